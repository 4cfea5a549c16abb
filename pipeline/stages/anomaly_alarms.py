"""Do the p-values of a sensor show a fault, or those of all sensors an event?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import ClassVar

from pipeline.core.checkpoint import Taken
from pipeline.core.errors import SettingsError
from pipeline.core.events import AnomalyJudged, CalibrationChanged, Evidence, FaultClosed, FaultOpened, Screened
from pipeline.core.framing import Grid
from pipeline.core.sensor_state import Cause, Pattern
from pipeline.health.sequential_tests import SECONDS_PER_DAY, Calibration, Cusum, Drift, combined, threshold

CONTAMINATION_BUDGET = 0.3
_LEARNED = {Cause.ANOMALOUS, Cause.DRIFT, Cause.CONTAMINATED, Cause.FLAPPING}
_NOVEL = 0.05
"""Where all sensors together are so unusual, no single one is blamed for it."""


class AnomalyAlarms:
    """Evidence from p-values of segments that do not overlap, summed up until it suffices.

    One sensor against the others is a fault; all of them together are an event. The sums reach their height by chance
    at most `alarms_per_day` times a day, all sensors together. How often each is refused at `alpha` in truth is
    compared with alpha. What physics explains is not held against anybody: while a sensor has a physical fault, its
    p-values are left out.
    """

    accepts = (Screened, FaultOpened, FaultClosed)
    remembers = ("_suspects", "_scene", "_explained", "_next")

    def __init__(
        self, grid: Grid, *, alpha: float = 0.01, alarms_per_day: float = 1.0, contamination: Sequence[float] = ()
    ) -> None:
        if not 0 < alpha < 1:
            raise SettingsError(f"alpha={alpha} must lie between 0 and 1; 0.01 is usual")
        self._grid, self._alpha, self._contamination = grid, alpha, tuple(contamination)
        self._tests_per_day = SECONDS_PER_DAY * grid.rate_hz / grid.segment
        self._alarms_per_day = alarms_per_day
        self._height(1)
        self.flush()

    def push(self, item: Screened | FaultOpened | FaultClosed, /) -> list[object]:
        if isinstance(item, Screened):
            return [*self._screened(item), item]
        if item.cause not in _LEARNED:
            explained = self._explained.setdefault(item.sensor, set())
            explained.add(item.cause) if isinstance(item, FaultOpened) else explained.discard(item.cause)
        return [item]

    def flush(self) -> list[object]:
        self._suspects: list[_Suspect] = []
        self._scene: Cusum | None = None
        self._explained: dict[int, set[Cause]] = {}
        self._next = 0
        return []

    def prepare(self, state: Taken) -> None:
        if state["_scene"] is not None:
            self._begin(len(state["_suspects"]))

    def _begin(self, n_sensors: int) -> None:
        height = self._height(n_sensors)
        self._scene = Cusum(height)
        self._suspects = [_Suspect(n, height, self._alpha) for n in range(n_sensors)]

    def _height(self, n_sensors: int) -> float:
        tests = (n_sensors + 1) * self._tests_per_day
        return threshold(tests_per_day=tests, alarms_per_day=self._alarms_per_day)

    def _screened(self, screened: Screened) -> Iterator[object]:
        span = screened.features.span
        if self._scene is None:
            self._begin(len(screened.p_values))
            yield from self._contaminated(span.stop)
        if span.start < self._next:
            return  # its sound is part of a segment that was counted
        self._next = span.stop
        own = {n: p for n, p in enumerate(screened.p_own.tolist()) if not isnan(p) and not self._explained.get(n)}
        witnesses = tuple(n for n in own if screened.features.trusted[n])
        known = [float(screened.p_known[n]) for n in witnesses]
        together = combined(known) if len(known) > 1 else float("nan")
        yield from self._event(span.stop, witnesses, together)
        for n, p_own in own.items():
            p_value = float(screened.p_values[n])
            yield from self._suspects[n].take(p_value, p_own, span.start, span.stop, novel=together <= _NOVEL)

    def _event(self, sample: int, witnesses: tuple[int, ...], p_value: float) -> Iterator[AnomalyJudged]:
        assert self._scene is not None
        if self._scene.take(p_value) and self._scene.active:
            evidence = {"p_combined": p_value, "log_likelihood_ratio": self._scene.evidence}
            reason = "all sensors together hear what none of them has heard before"
            yield AnomalyJudged(sample, Pattern.EVENT, witnesses, evidence, reason)

    def _contaminated(self, sample: int) -> Iterator[FaultOpened]:
        for sensor, share in enumerate(self._contamination):
            if share > CONTAMINATION_BUDGET:
                evidence = {"refused_share_of_training": share, "limit": CONTAMINATION_BUDGET}
                yield FaultOpened(sample, sample, sensor, Cause.CONTAMINATED, evidence)


@dataclass(slots=True, eq=False)
class _Suspect:
    """The evidence against one sensor."""

    remembers: ClassVar = ("cusum", "drift", "calibration", "opened", "rising_since")

    number: int
    height: float
    alpha: float
    cusum: Cusum = field(init=False)
    drift: Drift = field(init=False)
    calibration: Calibration = field(init=False)
    opened: dict[Cause, FaultOpened] = field(default_factory=dict)
    rising_since: int = 0

    def __post_init__(self) -> None:
        self.cusum, self.drift, self.calibration = Cusum(self.height), Drift(), Calibration(self.alpha)

    def take(self, p_value: float, own: float, start: int, stop: int, *, novel: bool) -> Iterator[object]:
        if novel:
            return  # something new out there is nobody's fault
        yield from self._accuse(p_value, start, stop)
        if self.cusum.active:
            return  # what lasts a moment is told as such: it is neither drift nor a false alarm
        if self.drift.take(own):
            evidence = {"mean_log_p": -self.drift.mean}
            yield self._fault(Cause.DRIFT, self.drift.active, start, stop, evidence)
        if self.calibration.take(p_value):
            low, high = self.calibration.interval
            lost, realised = self.calibration.lost, self.calibration.realised
            yield CalibrationChanged(stop, self.number, lost, self.alpha, realised, low, high)

    def _accuse(self, p_value: float, start: int, stop: int) -> Iterator[object]:
        if self.cusum.evidence == 0:
            self.rising_since = start
        if not self.cusum.take(p_value):
            return
        evidence = {"p_value": p_value, "log_likelihood_ratio": self.cusum.height}
        yield self._fault(Cause.ANOMALOUS, self.cusum.active, self.rising_since, stop, evidence)
        if self.cusum.active:
            reason = "one sensor against the others: it is unlike itself, or unlike what they hear"
            yield AnomalyJudged(stop, Pattern.FAULT, (self.number,), evidence, reason)

    def _fault(self, cause: Cause, opens: bool, since: int, now: int, evidence: Evidence) -> FaultOpened | FaultClosed:
        if opens:
            self.opened[cause] = FaultOpened(now, since, self.number, cause, evidence)
            return self.opened[cause]
        fault = self.opened.pop(cause)
        return FaultClosed(now, fault.since, now, self.number, cause, fault.evidence)
