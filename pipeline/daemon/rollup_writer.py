"""What every minute was like, from the facts as they come."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from pipeline.core.events import Decision, RecordingStarted, Role, StateChanged
from pipeline.core.sensor_state import State
from pipeline.health.measures import Measures
from pipeline.storage.journal import Journal
from pipeline.storage.rollups import HOUR, MINUTE, Rollup, begin_of, gather, newest_minute, read, store

_MOST_WAITING = 1440


class Summaries:
    """An observer that keeps the minutes that are not stored yet, by the time at which sound was heard.

    Whoever calls `write` decides when they are stored; a minute that is in the journal already goes on from there. An
    hour and a day are gathered whenever one of their minutes is over.
    """

    def __init__(self, n_sensors: int) -> None:
        self._n_sensors = n_sensors
        self._states = [State.UNKNOWN] * n_sensors
        self._started_at, self._rate_hz = 0.0, 1
        self._waited_seconds = 0.0
        self._fresh: dict[int, Rollup] = {}
        self._current: int | None = None
        self._over: set[int] = set()
        self._left_behind = True

    def observe(self, event: object, /) -> None:
        if isinstance(event, Measures):
            self._measured(event)
        elif isinstance(event, Decision):
            self._decided(event)
        elif isinstance(event, StateChanged):
            self._states[event.sensor] = event.state
        elif isinstance(event, RecordingStarted):
            assert event.started_at is not None
            self._states = [State.UNKNOWN] * self._n_sensors
            self._started_at, self._rate_hz = event.started_at.timestamp(), event.rate_hz
            self._waited_seconds = 0.0

    def close(self) -> None:
        pass

    def _measured(self, second: Measures) -> None:
        self._waited_seconds = self._waited_seconds * (second.waited_seconds > 0) + second.waited_seconds
        stop = self._time(second.stop) + self._waited_seconds
        start = stop - (second.stop - second.start) / self._rate_hz - second.waited_seconds
        for begin, end in _by_minutes(start, stop):
            summary = self._minute(begin)
            for number, missing in enumerate(second.missing.tolist()):
                sensor = summary.sensor(number)
                sensor.samples_lost += round(missing * (end - begin) * self._rate_hz)
                sensor.spend(self._states[number], end - begin)
        levels = self._minute(start)
        for number, level in enumerate(second.level_db.tolist()):
            if isfinite(level):
                levels.sensor(number).level_dbfs.take(round(level, 2))

    def _decided(self, decision: Decision) -> None:
        minute = self._minute(self._time(decision.features.span.stop))
        if decision.outcome.label is None:
            minute.undecided += 1
        else:
            minute.labels[decision.outcome.label] += 1
        minute.degraded += decision.degraded
        for number, (weight, role) in enumerate(zip(decision.weights.tolist(), decision.roles, strict=True)):
            sensor = minute.sensor(number)
            sensor.weight.take(round(weight, 3))
            sensor.refused += role is Role.ANOMALOUS

    def _time(self, sample: int) -> float:
        return self._started_at + sample / self._rate_hz

    def _minute(self, moment: float) -> Rollup:
        begin = begin_of(moment, MINUTE)
        if begin not in self._fresh and len(self._fresh) >= _MOST_WAITING:
            del self._fresh[min(self._fresh)]  # the disk refuses for a day by now
        if self._current is not None and begin != self._current:
            self._over.add(self._current)
        self._current = begin
        return self._fresh.setdefault(begin, Rollup())

    def write(self, journal: Journal) -> None:
        """Add what is new to what is stored, all of it or nothing."""
        if self._left_behind:  # by an earlier run, which may not have come to gather its last hour
            self._over |= {minute for minute in [newest_minute(journal)] if minute is not None}
        with journal.transaction():
            for begin, fresh in self._fresh.items():
                known = [one for _, one in read(journal, MINUTE, begin, begin + MINUTE)]
                store(journal, MINUTE, begin, Rollup.together([*known, fresh]))
            for hour in {begin_of(minute, HOUR) for minute in self._over}:
                gather(journal, hour)
        self._fresh.clear()
        self._over.clear()
        self._left_behind = False


def _by_minutes(start: float, stop: float) -> Iterator[tuple[float, float]]:
    """A time, cut where minutes end."""
    while start < stop:
        end = min(begin_of(start, MINUTE) + MINUTE, stop)
        yield start, end
        start = end
