"""Faults become a state: what an operator is told of a sensor, and how urgently."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from pipeline.conditions import Cause, Liveness, State

ESCALATE_SECONDS = 60
FAIL_SECONDS = 600
RECOVER_SECONDS = 60
SETTLE_SECONDS = 3
"""So long a sensor must be heard before anything is said of it: a fault is confirmed by then."""
FLAP_SECONDS = 900
FLAP_CHANGES = 3

_ILL = (Liveness.ALARMED, Liveness.ESCALATED, Liveness.FAILED)
_BADNESS = (State.GOOD, State.UNKNOWN, State.DEGRADED, State.BAD, State.OFF)


def state_of(causes: Collection[Cause], *, heard: bool, muted: bool) -> State:
    """The worst cause decides, not a sum that would hide it."""
    if muted:
        return State.OFF
    if not heard:
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


@dataclass(slots=True)
class Condition:
    """One sensor on its way through time, which is counted in seconds of its sound."""

    state: State = State.UNKNOWN
    liveness: Liveness = Liveness.INITIALISING
    seconds_heard: float = 0.0
    seconds_ill: float = 0.0
    seconds_well: float = 0.0

    def pass_time(self, seconds: float, *, sound: bool, causes: Collection[Cause], muted: bool) -> bool:
        """Let time pass with these faults open; whether state or liveness is another one now."""
        self.seconds_heard += seconds if sound else 0.0
        self.seconds_ill = self.seconds_ill + seconds if causes else 0.0
        self.seconds_well = 0.0 if causes else self.seconds_well + seconds
        heard = self.seconds_heard >= SETTLE_SECONDS
        before = self.state, self.liveness
        self.state = state_of(causes, heard=heard, muted=muted)
        self.liveness = liveness_after(
            self.liveness,
            heard=heard,
            muted=muted,
            faulty=bool(causes),
            seconds_ill=self.seconds_ill,
            seconds_well=self.seconds_well,
        )
        return before != (self.state, self.liveness)


class Flapping:
    """Whether a sensor falls ill again and again, and whom to spare the news."""

    def __init__(self) -> None:
        self._falls: deque[float] = deque(maxlen=FLAP_CHANGES)
        self._worst_told = State.GOOD

    def fell_ill(self, now_seconds: float) -> None:
        self._falls.append(now_seconds)

    def active(self, now_seconds: float) -> bool:
        return len(self._falls) == FLAP_CHANGES and now_seconds - self._falls[0] < FLAP_SECONDS

    def worth_telling(self, state: State, now_seconds: float) -> bool:
        """While it flaps only what is worse than all that was told; whatever the operator did is always told."""
        if not self.active(now_seconds):
            self._worst_told = state
            return True
        worse = _BADNESS.index(state) > _BADNESS.index(self._worst_told)
        self._worst_told = state if worse else self._worst_told
        return worse
