"""How is each sensor?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.core.checkpoint import value
from pipeline.core.events import (
    AnomalyJudged,
    Authority,
    FaultClosed,
    FaultOpened,
    RecordingStarted,
    StateChanged,
    TrustChanged,
)
from pipeline.core.sensor_state import Cause, Pattern, State
from pipeline.health.measures import Measures
from pipeline.health.state_machine import CHRONIC, FLAP_CHANGES, FLAP_SECONDS, Condition, Flapping, fell_ill


class SensorStates:
    """The faults of a sensor, whoever found them, become its state; time passes with the measures.

    A sensor that falls ill again and again is called so, and only what is worse than before is worth telling then. The
    same fault in all sensors at once is told apart from an event out there: it is a fault of what they share.
    """

    accepts = (RecordingStarted, Measures, FaultOpened, FaultClosed, TrustChanged)
    remembers = ("_sensors", "_common", "_now")

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._sensors: list[_Sensor] = []
        self._common: set[Cause] = set()
        self._now = 0.0

    def push(self, item: RecordingStarted | Measures | FaultOpened | FaultClosed | TrustChanged, /) -> list[object]:
        if isinstance(item, RecordingStarted):
            self._sensors = [_Sensor(number) for number in range(len(item.sensors))]
        elif isinstance(item, TrustChanged):
            if item.by is Authority.OPERATOR:
                for sensor, trusted in zip(self._known(len(item.trusted)), item.trusted.tolist(), strict=True):
                    sensor.muted = not trusted
        elif isinstance(item, Measures):
            return [item, *self._pass_time(item)]
        elif isinstance(item, FaultOpened):
            self._known(item.sensor + 1)[item.sensor].faults[item.cause] = item
        elif isinstance(item, FaultClosed):
            self._known(item.sensor + 1)[item.sensor].close(item)
        return [item]

    def flush(self) -> list[object]:
        self._sensors, self._common, self._now = [], set(), 0.0
        return []

    def _known(self, n_sensors: int) -> list[_Sensor]:
        self._sensors += [_Sensor(number) for number in range(len(self._sensors), n_sensors)]
        return self._sensors

    def _pass_time(self, second: Measures) -> Iterator[object]:
        sensors = self._known(second.n_sensors)
        seconds = (second.stop - second.start) / self._rate_hz + second.waited_seconds
        self._now += seconds
        yield from self._in_common(second)
        for sensor, missing in zip(sensors, second.missing.tolist(), strict=True):
            yield from sensor.pass_time(second.stop, seconds, self._now, sound=missing < 1)

    def _in_common(self, second: Measures) -> Iterator[AnomalyJudged]:
        # Who was never heard, or is switched off, shares nothing that could fail now.
        living = [one for one in self._sensors if not one.muted and one.condition.seconds_heard > 0]
        common = set.intersection(*(set(one.faults) - CHRONIC for one in living)) if len(living) > 1 else set()
        for cause in sorted(common - self._common):
            yield AnomalyJudged(
                second.stop,
                Pattern.COMMON_FAULT,
                tuple(sensor.number for sensor in living),
                {"sensors": float(len(living))},
                f"{cause} at all sensors at once: look at what they share, such as supply, converter or clock",
            )
        self._common = common


@value
@dataclass(slots=True, eq=False)
class _Sensor:
    """What is known of one sensor."""

    number: int
    faults: dict[Cause, FaultOpened] = field(default_factory=dict)
    muted: bool = False
    condition: Condition = field(default_factory=Condition)
    flapping: Flapping = field(default_factory=Flapping)
    well_since: int = 0

    def close(self, closed: FaultClosed) -> None:
        self.faults.pop(closed.cause, None)
        self.well_since = closed.until

    def pass_time(self, sample: int, seconds: float, now: float, *, sound: bool) -> Iterator[object]:
        before, acute = self.condition.state, self.condition.acute
        changed = self.condition.pass_time(seconds, sound=sound, causes=self.faults, muted=self.muted)
        if fell_ill(acute, self.condition.acute):
            self.flapping.fall(now)
        yield from self._flap(sample, now)
        if changed:
            yield self._told(before, sample, now)

    def _flap(self, sample: int, now: float) -> Iterator[FaultOpened | FaultClosed]:
        flaps = self.flapping.active(now)
        evidence = {"times_fallen_ill": float(FLAP_CHANGES), "within_seconds": float(FLAP_SECONDS)}
        if flaps and Cause.FLAPPING not in self.faults:
            self.faults[Cause.FLAPPING] = FaultOpened(sample, sample, self.number, Cause.FLAPPING, evidence)
            yield self.faults[Cause.FLAPPING]
        elif not flaps and Cause.FLAPPING in self.faults:
            opened = self.faults[Cause.FLAPPING]
            over = FaultClosed(sample, opened.since, sample, self.number, Cause.FLAPPING, opened.evidence)
            self.close(over)
            yield over

    def _told(self, before: State, sample: int, now: float) -> StateChanged:
        state = self.condition.state
        return StateChanged(
            sample=sample,
            since=max((fault.since for fault in self.faults.values()), default=self.well_since),
            sensor=self.number,
            before=before,
            state=state,
            liveness=self.condition.liveness,
            causes=tuple(sorted(self.faults)),
            evidence={cause: self.faults[cause].evidence for cause in sorted(self.faults)},
            notify=self.flapping.worth_telling(before, state, self.condition.liveness, now),
        )
