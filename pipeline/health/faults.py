"""Findings become faults that open when they are confirmed and close when they are over for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from pipeline.core.checkpoint import value
from pipeline.core.events import Evidence, FaultClosed, FaultOpened, Mask, Numbers
from pipeline.core.sensor_state import Cause
from pipeline.health import cross_sensor_checks
from pipeline.health.baseline import Baseline
from pipeline.health.checks import LONGEST_SECONDS, Check, Limits, Recent
from pipeline.health.measures import Measures

_SOUND = set(Cause) - {Cause.CONTAMINATED, Cause.FLAPPING}
EXPLAINS: dict[Cause, set[Cause]] = {
    Cause.NO_FRAMES: _SOUND - {Cause.NO_FRAMES},
    Cause.FLAT: _SOUND - {Cause.NO_FRAMES, Cause.FLAT, Cause.PEGGED},
    Cause.SILENT: _SOUND - {Cause.NO_FRAMES, Cause.FLAT, Cause.SILENT, Cause.PEGGED},
    Cause.PEGGED: _SOUND - {Cause.NO_FRAMES, Cause.PEGGED},
    Cause.GAP: {Cause.LOW_GAIN, Cause.SPIKES},
    Cause.HUM_ONLY: {Cause.HIGH_GAIN},
    Cause.CLIPPING: {Cause.SPIKES},
    Cause.HIGH_GAIN: {Cause.SPIKES},
    Cause.STALE: {Cause.LOW_GAIN, Cause.HIGH_GAIN, Cause.INCOHERENT},
    Cause.RATE_ERROR: {Cause.STALE, Cause.INCOHERENT},
}
"""While the first is open, nothing can be said of the others: they follow from it, or cannot be measured."""
RELATIONS = (
    Cause.CROSSTALK, Cause.POLARITY, Cause.RATE_ERROR, Cause.SWAPPED, Cause.STALE, Cause.INCOHERENT,
)  # fmt: skip
_CLEAR_SECONDS = 6
_CONFIRM_SECONDS = 2


class Faults:
    """What is the matter with every sensor, second by second."""

    remembers = ("_watches", "_spoilt", "_relations", "_open")

    def __init__(self, checks: Sequence[Check], n_sensors: int) -> None:
        self._watches = _Watches(checks, n_sensors)
        self._spoilt: deque[Mask] = deque(maxlen=LONGEST_SECONDS)
        self._relations = _RelationWatches(RELATIONS, n_sensors)
        self._open: list[dict[Cause, _Fault]] = [{} for _ in range(n_sensors)]

    def causes(self, sensor: int) -> set[Cause]:
        return set(self._open[sensor])

    def update(self, seconds: Sequence[Measures], usual: Baseline) -> list[FaultOpened | FaultClosed]:
        """Look at the newest second; what opened and what closed."""
        self._watches.look(Recent(seconds, usual))
        self._spoilt.append(self._watches.blinded)
        self._compare(seconds, usual)
        active = np.flatnonzero(self._watches.active.any(axis=0) | self._relations.active.any(axis=0)).tolist()
        for sensor in active:
            self._forget_what_follows(sensor)
        changes: list[FaultOpened | FaultClosed] = []
        for sensor in sorted({*active, *(sensor for sensor, faults in enumerate(self._open) if faults)}):
            changes += self._changes(sensor, seconds[-1].stop)
        return changes

    def _compare(self, seconds: Sequence[Measures], usual: Baseline) -> None:
        """Hear what the sensors say of each other, in the seconds without a break."""
        windows = [one for one in takewhile(bool, (one.relations for one in reversed(seconds))) if one][::-1]
        if not windows:
            return
        found = cross_sensor_checks.causes(windows, usual.relations, self._relations.standing)
        if any(found.values()):
            spoilt = set(np.flatnonzero(np.any(self._spoilt, axis=0)).tolist())
            found = {
                cause: {s: told for s, told in sensors.items() if not spoilt & {s, told.get("with_sensor")}}
                for cause, sensors in found.items()
            }
        self._relations.look(seconds[-1], found)

    def _changes(self, sensor: int, now: int) -> list[FaultOpened | FaultClosed]:
        was = self._open[sensor]
        found = {cause: fault.joined(was.get(cause)) for cause, fault in self._found(sensor).items()}
        self._open[sensor] = found
        closed = [
            FaultClosed(now, fault.since, fault.until, sensor, cause, fault.evidence)
            for cause, fault in was.items()
            if cause not in found
        ]
        opened = [
            FaultOpened(now, fault.since, sensor, cause, fault.evidence)
            for cause, fault in found.items()
            if cause not in was
        ]
        return [*closed, *opened]

    def _forget_what_follows(self, sensor: int) -> None:
        """What another fault explains is not seen until nothing of that fault is in sight any more."""
        active = self._watches.causes(sensor) | self._relations.causes(sensor)
        explained = set[Cause]().union(*(EXPLAINS.get(cause, set()) for cause in active))
        self._watches.forget(sensor, explained)
        self._relations.forget(sensor, explained)

    def _found(self, sensor: int) -> dict[Cause, _Fault]:
        found: dict[Cause, _Fault] = {}
        for cause, fault in [*self._watches.faults(sensor), *self._relations.faults(sensor)]:
            found[cause] = fault.joined(found.get(cause))
        return found


@value
@dataclass(frozen=True, slots=True, eq=False)
class _Fault:
    """One that is open: since when, until when it was seen, and its worst moment."""

    since: int
    until: int
    evidence: Evidence

    def joined(self, other: _Fault | None) -> _Fault:
        if other is None:
            return self
        more = {name: value for name, value in self.evidence.items() if name != "limit"}
        return _Fault(min(self.since, other.since), max(self.until, other.until), {**other.evidence, **more})


def _for_people(evidence: Evidence) -> Evidence:
    """They count sensors from 1."""
    return {name: value + 1 if name == "with_sensor" else value for name, value in evidence.items()}


class _Watches:
    """All checks over all sensors, (checks, sensors): count the seconds for and against."""

    remembers = ("active", "_against", "_for", "_since", "_until", "_worst", "_blind_seconds", "_second")

    def __init__(self, checks: Sequence[Check], n_sensors: int) -> None:
        shape = len(checks), n_sensors
        self._checks, self._limits = checks, Limits(checks)
        self._confirm, self._clear, self._back = (
            np.array([[seconds] for seconds in each], np.int64)
            for each in zip(
                *((one.confirm_seconds, one.clear_seconds, one.looks_back_seconds) for one in checks), strict=True
            )
        )
        self._blinding = np.array([check.blinds for check in checks])
        self.active = np.zeros(shape, np.bool_)
        self._against, self._for = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._since, self._until = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._worst = np.full(shape, np.nan)
        self._blind_seconds = np.zeros(shape, np.int64)
        self._second = 0  # samples

    @property
    def blinded(self) -> Mask:
        """Sensors of which the sound cannot be compared: something is confirmed, or to be confirmed."""
        suspects = self.active | (self._against > 0)
        return np.asarray(suspects[self._blinding].any(axis=0))

    def look(self, recent: Recent) -> None:
        values = np.array([check.value(recent) for check in self._checks])
        self._second = max(self._second, recent.seconds[0].stop - recent.seconds[0].start)
        out = self._limits.exceeded(values, self.active) & (self._blind_seconds == 0)
        self._blind_seconds = np.maximum(self._blind_seconds - 1, 0)
        if out.any():
            self._note(out, values, recent.seconds)
        self._against = np.where(out, self._against + 1, 0)
        self._for = np.where(out, 0, self._for + 1)
        opens = ~self.active & (self._against >= self._confirm)
        closes = self.active & (self._for >= self._clear)
        self.active = (self.active | opens) & ~closes

    def _note(self, out: Mask, values: Numbers, seconds: Sequence[Measures]) -> None:
        """Since when, until when and how badly."""
        fresh = out & (self._against == 0) & ~self.active
        for place in np.argwhere(fresh).tolist():
            check, sensor = place
            self._since[check, sensor] = self._checks[check].began(seconds, float(values[check, sensor]))
        self._worst[fresh] = values[fresh]
        told = out & ~np.isnan(values)
        self._until[told] = seconds[-1].stop
        sign = np.broadcast_to(self._limits.sign, values.shape)[told]
        self._worst[told] = sign * np.maximum(sign * self._worst[told], sign * values[told])

    def causes(self, sensor: int) -> set[Cause]:
        return {self._checks[check].cause for check in np.flatnonzero(self.active[:, sensor]).tolist()}

    def forget(self, sensor: int, causes: Container[Cause]) -> None:
        """As if nothing had been found; and what they look back upon now does not count."""
        rows = [row for row, check in enumerate(self._checks) if check.cause in causes]
        self.active[rows, sensor] = False
        self._against[rows, sensor] = 0
        self._blind_seconds[rows, sensor] = self._back[rows, 0]

    def faults(self, sensor: int) -> Iterator[tuple[Cause, _Fault]]:
        for row in np.flatnonzero(self.active[:, sensor]).tolist():
            check, since = self._checks[row], int(self._since[row, sensor])
            # What the check looks back upon was over before it showed.
            until = int(self._until[row, sensor]) - (check.looks_back_seconds - 1) * self._second
            yield check.cause, _Fault(since, max(until, since), check.found(float(self._worst[row, sensor])))


class _RelationWatches:
    """What sensors find by comparing each other, (causes, sensors): found in two seconds running it is true."""

    remembers = ("active", "_faults", "_running_seconds", "_quiet_seconds", "_blind_seconds")

    def __init__(self, causes: Sequence[Cause], n_sensors: int) -> None:
        shape = len(causes), n_sensors
        self._causes = causes
        self.active = np.zeros(shape, np.bool_)
        self._faults: dict[tuple[int, int], _Fault] = {}
        self._running_seconds = np.zeros(shape, np.int64)
        self._quiet_seconds = np.zeros(shape, np.int64)
        self._blind_seconds = np.zeros(shape, np.int64)

    @property
    def standing(self) -> dict[str, list[int]]:
        """Sensors by cause, where there are any."""
        places = np.argwhere(self.active).tolist() if self.active.any() else ()
        return {
            str(self._causes[row]): [sensor for other, sensor in places if other == row]
            for row in {row for row, _ in places}
        }

    def look(self, now: Measures, found: Mapping[str, cross_sensor_checks.Found]) -> None:
        self._quiet_seconds += 1
        self._blind_seconds = np.maximum(self._blind_seconds - 1, 0)
        for row, cause in enumerate(self._causes):
            for sensor, evidence in found.get(cause, {}).items():
                if not self._blind_seconds[row, sensor]:
                    self._confirm((row, sensor), now, evidence)
        self._running_seconds[self._quiet_seconds > 0] = 0
        self.active &= self._quiet_seconds < _CLEAR_SECONDS

    def _confirm(self, place: tuple[int, int], now: Measures, evidence: Evidence) -> None:
        if not self._running_seconds[place] and not self.active[place]:
            self._faults[place] = _Fault(now.start, now.stop, _for_people(evidence))
        known = self._faults[place]
        self._faults[place] = _Fault(known.since, now.stop, known.evidence)
        self._running_seconds[place] += 1
        self._quiet_seconds[place] = 0
        self.active[place] |= self._running_seconds[place] >= _CONFIRM_SECONDS

    def causes(self, sensor: int) -> set[Cause]:
        return {self._causes[row] for row in np.flatnonzero(self.active[:, sensor]).tolist()}

    def forget(self, sensor: int, causes: Container[Cause]) -> None:
        for row, cause in enumerate(self._causes):
            if cause in causes:
                self.active[row, sensor] = False
                self._faults.pop((row, sensor), None)
                self._running_seconds[row, sensor] = 0
                self._blind_seconds[row, sensor] = cross_sensor_checks.HISTORY

    def faults(self, sensor: int) -> Iterator[tuple[Cause, _Fault]]:
        for row in np.flatnonzero(self.active[:, sensor]).tolist():
            yield self._causes[row], self._faults[row, sensor]
