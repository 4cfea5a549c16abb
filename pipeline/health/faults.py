"""Findings become faults that open when they are confirmed and close when they are over for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.conditions import Cause
from pipeline.events import Evidence, FaultClosed, FaultOpened, Mask, Numbers
from pipeline.health import together_checks
from pipeline.health.checks import LONGEST_SECONDS, Check, History
from pipeline.health.measures import Measures
from pipeline.health.usual import Usual
from pipeline.snapshots import value

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
        self._watches = [_Watch(check, n_sensors) for check in checks]
        self._spoilt: deque[Mask] = deque(maxlen=LONGEST_SECONDS)
        self._relations = {cause: _RelationWatch(cause, n_sensors) for cause in RELATIONS}
        self._open: list[dict[Cause, _Fault]] = [{} for _ in range(n_sensors)]

    @property
    def _all(self) -> list[_Watch | _RelationWatch]:
        return [*self._watches, *self._relations.values()]

    def causes(self, sensor: int) -> set[Cause]:
        return set(self._open[sensor])

    def update(self, history: History, usual: Usual) -> list[FaultOpened | FaultClosed]:
        """Look at the newest second; what opened and what closed."""
        for watch in self._watches:
            watch.look(history, usual)
        self._spoilt.append(np.any([watch.suspects for watch in self._watches if watch.check.blinds], axis=0))
        self._compare(history, usual)
        for sensor in range(len(self._open)):
            self._forget_what_follows(sensor)
        changes: list[FaultOpened | FaultClosed] = []
        for sensor in range(len(self._open)):
            changes += self._changes(sensor, history[-1].stop)
        return changes

    def _compare(self, history: History, usual: Usual) -> None:
        """Hear what the sensors say of each other, in the seconds without a break."""
        windows = [one.relations for one in history]
        if None in windows:
            windows = windows[len(windows) - windows[::-1].index(None) :]
        if not windows:
            return
        standing = {str(cause): np.flatnonzero(watch.active).tolist() for cause, watch in self._relations.items()}
        found = together_checks.causes([one for one in windows if one is not None], usual.relations, standing)
        spoilt = set(np.flatnonzero(np.any(self._spoilt, axis=0)).tolist())
        for cause, watch in self._relations.items():
            clear = {s: told for s, told in found[cause].items() if not spoilt & {s, told.get("with_sensor")}}
            watch.look(history[-1], clear)

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
        active = {watch.cause for watch in self._all if watch.active[sensor]}
        explained = set().union(*(EXPLAINS.get(cause, set()) for cause in active))
        for watch in self._all:
            if watch.cause in explained:
                watch.forget(sensor)

    def _found(self, sensor: int) -> dict[Cause, _Fault]:
        found: dict[Cause, _Fault] = {}
        for watch in self._all:
            if watch.active[sensor]:
                fault = watch.fault(sensor)
                found[watch.cause] = fault.joined(found.get(watch.cause))
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


class _Watch:
    """One check over all sensors: counts the seconds for and against."""

    remembers = ("active", "_against", "_for", "_since", "_until", "_worst", "_blind_seconds", "_second")

    def __init__(self, check: Check, n_sensors: int) -> None:
        self.check, self.cause = check, check.cause
        self.active = np.zeros(n_sensors, np.bool_)
        self._against, self._for = np.zeros(n_sensors, np.int64), np.zeros(n_sensors, np.int64)
        self._since, self._until = np.zeros(n_sensors, np.int64), np.zeros(n_sensors, np.int64)
        self._worst = np.full(n_sensors, np.nan)
        self._blind_seconds = np.zeros(n_sensors, np.int64)
        self._second = 0  # samples

    @property
    def suspects(self) -> Mask:
        """Sensors with something to be confirmed, or confirmed."""
        return self.active | (self._against > 0)

    def look(self, history: History, usual: Usual) -> None:
        values = self.check.value(history, usual)
        self._second = max(self._second, history[0].stop - history[0].start)
        out = self.check.out_of_limits(values, self.active) & (self._blind_seconds == 0)
        self._blind_seconds = np.maximum(self._blind_seconds - 1, 0)
        if out.any():
            self._note(out, values, history)
        self._against = np.where(out, self._against + 1, 0)
        self._for = np.where(out, 0, self._for + 1)
        opens = ~self.active & (self._against >= self.check.confirm_seconds)
        closes = self.active & (self._for >= self.check.clear_seconds)
        self.active = (self.active | opens) & ~closes

    def _note(self, out: Mask, values: Numbers, history: History) -> None:
        """Since when, until when and how badly."""
        fresh = out & (self._against == 0) & ~self.active
        self._since[fresh] = self.check.began(history, values)[fresh]
        self._worst[fresh] = values[fresh]
        told = out & ~np.isnan(values)
        self._until[told] = history[-1].stop
        worse = np.minimum if self.check.below else np.maximum
        self._worst[told] = worse(self._worst[told], values[told])

    def forget(self, sensor: int) -> None:
        """As if nothing had been found; and what it looks back upon now does not count."""
        self.active[sensor] = False
        self._against[sensor] = 0
        self._blind_seconds[sensor] = self.check.looks_back_seconds

    def fault(self, sensor: int) -> _Fault:
        evidence = self.check.found(float(self._worst[sensor]))
        # What the check looks back upon was over before it showed.
        until = max(self._until[sensor] - (self.check.looks_back_seconds - 1) * self._second, self._since[sensor])
        return _Fault(int(self._since[sensor]), int(until), evidence)


class _RelationWatch:
    """One cause that the sensors find by comparing each other: found in two seconds running it is true."""

    remembers = ("active", "_faults", "_running_seconds", "_quiet_seconds", "_blind_seconds")

    def __init__(self, cause: Cause, n_sensors: int) -> None:
        self.cause = cause
        self.active = np.zeros(n_sensors, np.bool_)
        self._faults: dict[int, _Fault] = {}
        self._running_seconds = np.zeros(n_sensors, np.int64)
        self._quiet_seconds = np.zeros(n_sensors, np.int64)
        self._blind_seconds = np.zeros(n_sensors, np.int64)

    def look(self, now: Measures, found: together_checks.Found) -> None:
        self._quiet_seconds += 1
        self._blind_seconds = np.maximum(self._blind_seconds - 1, 0)
        for sensor, evidence in found.items():
            if not self._blind_seconds[sensor]:
                self._confirm(sensor, now, evidence)
        self._running_seconds[self._quiet_seconds > 0] = 0
        self.active &= self._quiet_seconds < _CLEAR_SECONDS

    def _confirm(self, sensor: int, now: Measures, evidence: Evidence) -> None:
        if not self._running_seconds[sensor] and not self.active[sensor]:
            self._faults[sensor] = _Fault(now.start, now.stop, _for_people(evidence))
        known = self._faults[sensor]
        self._faults[sensor] = _Fault(known.since, now.stop, known.evidence)
        self._running_seconds[sensor] += 1
        self._quiet_seconds[sensor] = 0
        self.active[sensor] |= self._running_seconds[sensor] >= _CONFIRM_SECONDS

    def forget(self, sensor: int) -> None:
        self.active[sensor] = False
        self._faults.pop(sensor, None)
        self._running_seconds[sensor] = 0
        self._blind_seconds[sensor] = together_checks.HISTORY

    def fault(self, sensor: int) -> _Fault:
        return self._faults[sensor]
