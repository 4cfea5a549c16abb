"""Faults become a state: what an operator is told of a sensor, and how urgently."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from pipeline.core.checkpoint import value
from pipeline.core.sensor_state import Cause, Liveness, State

ESCALATE_SECONDS = 60
FAIL_SECONDS = 600
RECOVER_SECONDS = 60
SETTLE_SECONDS = 6
"""So long a sensor must be heard before it is called good: most faults are confirmed by then."""
FLAP_SECONDS = 900
FLAP_CHANGES = 3

CHRONIC = frozenset({Cause.FLAPPING, Cause.CONTAMINATED})
"""They lower the state, but nobody has to hurry, and they hide no new fault."""

_ILL = (Liveness.ALARMED, Liveness.ESCALATED, Liveness.FAILED)
_BADNESS = (State.GOOD, State.UNKNOWN, State.DEGRADED, State.BAD, State.OFF)


def state_of(causes: Collection[Cause], *, heard: bool, muted: bool) -> State:
    """The worst cause decides, not a sum that would hide it; it takes longer to call a sensor good than ill."""
    if muted:
        return State.OFF
    if not heard and not set(causes) - {Cause.NO_FRAMES}:
        return State.UNKNOWN
    return max((cause.state for cause in causes), key=_BADNESS.index, default=State.GOOD)


def liveness_after(
    before: Liveness, *, heard: bool, muted: bool, faulty: bool, seconds_ill: float, seconds_well: float
) -> Liveness:
    """The next liveness: faults escalate with time, and a sensor that was ill has to stay well for a while."""
    if muted:
        return Liveness.MUTED
    if faulty:
        if seconds_ill >= FAIL_SECONDS:
            return Liveness.FAILED
        return Liveness.ESCALATED if seconds_ill >= ESCALATE_SECONDS else Liveness.ALARMED
    if not heard:
        return Liveness.INITIALISING
    if before in _ILL or (before is Liveness.RECOVERING and seconds_well < RECOVER_SECONDS):
        return Liveness.RECOVERING
    return Liveness.HEALTHY


@value
@dataclass(slots=True)
class Condition:
    """One sensor on its way through time, which is counted in seconds of its sound."""

    state: State = State.UNKNOWN
    liveness: Liveness = Liveness.INITIALISING
    acute: State = State.UNKNOWN
    """The state without what is chronic."""
    seconds_heard: float = 0.0
    seconds_ill: float = 0.0
    seconds_well: float = 0.0

    def pass_time(self, seconds: float, *, sound: bool, causes: Collection[Cause], muted: bool) -> bool:
        """Let time pass with these faults open; whether state or liveness is another one now."""
        acute = [cause for cause in causes if cause not in CHRONIC]
        self.seconds_heard += seconds if sound else 0.0
        self.seconds_ill = self.seconds_ill + seconds if acute else 0.0
        self.seconds_well = 0.0 if acute else self.seconds_well + seconds
        heard = self.seconds_heard >= SETTLE_SECONDS
        before = self.state, self.liveness
        self.state = state_of(causes, heard=heard, muted=muted)
        self.acute = state_of(acute, heard=heard, muted=muted)
        self.liveness = liveness_after(
            self.liveness,
            heard=heard,
            muted=muted,
            faulty=bool(acute),
            seconds_ill=self.seconds_ill,
            seconds_well=self.seconds_well,
        )
        return before != (self.state, self.liveness)


def fell_ill(before: State, after: State) -> bool:
    """Whether a sensor is worse than before, by its own."""
    return after in (State.DEGRADED, State.BAD) and _BADNESS.index(after) > _BADNESS.index(before)


@value
@dataclass(slots=True, eq=False)
class Flapping:
    """Whether a sensor falls ill again and again, and whom to spare the news."""

    _falls: deque[float] = field(default_factory=lambda: deque(maxlen=FLAP_CHANGES))
    _told: deque[float] = field(default_factory=lambda: deque(maxlen=FLAP_CHANGES))
    _worst_told: tuple[int, int] = (-1, -1)

    def fall(self, now_seconds: float) -> None:
        self._falls.append(now_seconds)

    def active(self, now_seconds: float) -> bool:
        return len(self._falls) == FLAP_CHANGES and now_seconds - self._falls[0] < FLAP_SECONDS

    def worth_telling(self, before: State, state: State, liveness: Liveness, now_seconds: float) -> bool:
        """Three times in a quarter of an hour, and what is worse than all that was told; the operator's word always."""
        if State.OFF in (before, state):
            self._told.clear()
            return True
        while self._told and now_seconds - self._told[0] >= FLAP_SECONDS:
            self._told.popleft()
        rank = _BADNESS.index(state), _ILL.index(liveness) if liveness in _ILL else -1
        worst = self._worst_told if self._told else (-1, -1)
        if len(self._told) == FLAP_CHANGES and rank <= worst:
            return False
        self._told.append(now_seconds)
        self._worst_told = max(rank, worst)
        return True
