"""History by the minute, the hour and the day: what was decided, and how the sensors were.

A `Rollup` can be merged with another one, so an hour is made of its minutes and a day of its hours.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipeline.core.sensor_state import State
from pipeline.storage.journal import Journal, utc

MINUTE, HOUR, DAY = 60, 3600, 86400
LENGTHS = (MINUTE, HOUR, DAY)
_MOST_MINUTES, _MOST_HOURS = DAY // MINUTE, 32 * DAY // HOUR
"""A chart of a longer time is drawn from what is coarser."""
WORST_FIRST = (State.BAD, State.DEGRADED, State.UNKNOWN, State.OFF, State.GOOD)


@dataclass(slots=True)
class RunningMean:
    """Of numbers that come one by one, with the smallest and the largest of them."""

    n: int = 0
    total: float = 0.0
    least: float | None = None
    most: float | None = None

    def take(self, value: float) -> None:
        self.merge(RunningMean(1, value, value, value))

    def merge(self, other: RunningMean) -> None:
        self.n, self.total = self.n + other.n, self.total + other.total
        if other.least is not None and (self.least is None or other.least < self.least):
            self.least = other.least
        if other.most is not None and (self.most is None or other.most > self.most):
            self.most = other.most

    @property
    def value(self) -> float | None:
        return self.total / self.n if self.n else None

    def stored(self) -> list[Any]:
        return [self.n, round(self.total, 3), self.least, self.most]


@dataclass(slots=True)
class SensorSummary:
    """How one sensor was."""

    level_dbfs: RunningMean = field(default_factory=RunningMean)
    """Of seconds in which something was to be heard."""
    weight: RunningMean = field(default_factory=RunningMean)
    refused: int = 0
    """Windows that the screen refuses."""
    samples_lost: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """In each state."""

    def merge(self, other: SensorSummary) -> None:
        self.level_dbfs.merge(other.level_dbfs)
        self.weight.merge(other.weight)
        self.refused += other.refused
        self.samples_lost += other.samples_lost
        for state, seconds in other.seconds.items():
            self.spend(state, seconds)

    def spend(self, state: str, seconds: float) -> None:
        self.seconds[state] = self.seconds.get(state, 0.0) + seconds

    @property
    def worst(self) -> str | None:
        return next((str(state) for state in WORST_FIRST if state in self.seconds), None)

    def stored(self) -> list[Any]:
        seconds = {state: round(seconds, 3) for state, seconds in self.seconds.items()}
        return [self.level_dbfs.stored(), self.weight.stored(), self.refused, self.samples_lost, seconds]

    @classmethod
    def of(cls, stored: list[Any]) -> SensorSummary:
        level, weight, refused, lost, seconds = stored
        return cls(RunningMean(*level), RunningMean(*weight), refused, lost, seconds)

    def as_dict(self) -> dict[str, Any]:
        level, weight = self.level_dbfs, self.weight
        return {
            "level_dbfs": {"mean": _rounded(level.value), "min": _rounded(level.least), "max": _rounded(level.most)},
            "weight": _rounded(weight.value),
            "refused": self.refused,
            "samples_lost": self.samples_lost,
            "worst": self.worst,
            "seconds": {state: round(seconds, 1) for state, seconds in self.seconds.items()},
        }


@dataclass(slots=True)
class Rollup:
    """What happened in a time."""

    labels: Counter[str] = field(default_factory=Counter)
    undecided: int = 0
    degraded: int = 0
    sensors: list[SensorSummary] = field(default_factory=list)

    def sensor(self, number: int) -> SensorSummary:
        """Counted from 0."""
        self.sensors += [SensorSummary() for _ in range(len(self.sensors), number + 1)]
        return self.sensors[number]

    def merge(self, other: Rollup) -> None:
        self.labels.update(other.labels)
        self.undecided += other.undecided
        self.degraded += other.degraded
        for number, sensor in enumerate(other.sensors):
            self.sensor(number).merge(sensor)

    @classmethod
    def together(cls, several: Iterable[Rollup]) -> Rollup:
        whole = cls()
        for one in several:
            whole.merge(one)
        return whole

    def stored(self) -> str:
        """Short, for there are half a million minutes in a year."""
        body = [self.labels, self.undecided, self.degraded, [sensor.stored() for sensor in self.sensors]]
        return json.dumps(body, separators=(",", ":"), allow_nan=False)

    @classmethod
    def of(cls, stored: str) -> Rollup:
        labels, undecided, degraded, sensors = json.loads(stored)
        return cls(Counter(labels), undecided, degraded, [SensorSummary.of(sensor) for sensor in sensors])

    def as_dict(self) -> dict[str, Any]:
        return {
            "decisions": self.labels.total() + self.undecided,
            "labels": dict(self.labels),
            "undecided": self.undecided,
            "degraded": self.degraded,
            "sensors": [sensor.as_dict() for sensor in self.sensors],
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def begin_of(moment: float, seconds: int) -> int:
    """Where the minute, hour or day of a moment begins, in seconds since 1970."""
    return int(moment // seconds * seconds)


def as_text(moment: float) -> str:
    return utc(datetime.fromtimestamp(moment, UTC))


def store(journal: Journal, seconds: int, begin: int, summary: Rollup) -> None:
    journal.execute(
        "INSERT OR REPLACE INTO summaries (seconds, time, body) VALUES (?, ?, ?)",
        (seconds, as_text(begin), summary.stored()),
    )


def read(journal: Journal, seconds: int, begin: float, end: float) -> list[tuple[float, Rollup]]:
    """Those of one length that begin in a time, each with the moment of its beginning."""
    rows = journal.rows(
        "SELECT time, body FROM summaries WHERE seconds = ? AND time >= ? AND time < ? ORDER BY time",
        (seconds, as_text(begin), as_text(end)),
    )
    return [(datetime.fromisoformat(row["time"]).timestamp(), Rollup.of(row["body"])) for row in rows]


def gather(journal: Journal, minute: int) -> None:
    """Make the hour and the day of a minute anew."""
    for parts, whole in ((MINUTE, HOUR), (HOUR, DAY)):
        begin = begin_of(minute, whole)
        store(journal, whole, begin, Rollup.together(one for _, one in read(journal, parts, begin, begin + whole)))


def newest_minute(journal: Journal) -> int | None:
    (row,) = journal.rows("SELECT max(time) AS time FROM summaries WHERE seconds = ?", (MINUTE,))
    return None if row["time"] is None else round(datetime.fromisoformat(row["time"]).timestamp())


def summaries(journal: Journal, begin: datetime, end: datetime, *, most_rows: int) -> list[dict[str, Any]]:
    """What happened between two moments, in at most so many bins of one length; times without anything have none.

    Bins begin at whole multiples of their length, so that they stay where they are while time goes on.
    """
    first, last = begin.timestamp(), end.timestamp()
    base = _base(journal, first, last)
    seconds = base
    while (last - begin_of(first, seconds)) / seconds > max(most_rows, 1):
        seconds += base
    bins: dict[int, Rollup] = {}
    for moment, summary in read(journal, base, begin_of(first, seconds), last):
        place = begin_of(moment, seconds)
        if place in bins:
            bins[place].merge(summary)
        else:
            bins[place] = summary
    return [{"time": as_text(moment), "seconds": seconds, **one.as_dict()} for moment, one in bins.items()]


def _base(journal: Journal, first: float, last: float) -> int:
    """The finest length that is fast enough to read, and still there."""
    if (last - first) / MINUTE <= _MOST_MINUTES and not _minutes_removed(journal, first):
        return MINUTE
    return HOUR if (last - first) / HOUR <= _MOST_HOURS else DAY


def _minutes_removed(journal: Journal, since: float) -> bool:
    """Whether there are hours whose minutes are gone."""
    (oldest,) = journal.rows("SELECT coalesce(min(time), '9999') AS minute FROM summaries WHERE seconds = ?", (MINUTE,))
    hours = "SELECT 1 FROM summaries WHERE seconds = ? AND time >= ? AND time < substr(?, 1, 13) LIMIT 1"
    return bool(journal.rows(hours, (HOUR, as_text(begin_of(since, HOUR)), oldest["minute"])))
