"""How often what was decided in a time; and the decisions themselves, where they are few."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import itemgetter

from pipeline.storage.coverage import Window, seconds_of
from pipeline.storage.journal import Row
from pipeline.storage.recordings import first_started_at
from pipeline.storage.rollups import as_text, begin_of

_WIDE_SECONDS = 2 * 3600.0
"""A longer time is counted by its minutes or hours, a shorter one by its decisions."""
_LENGTHS = (1, 2, 5, 10, 15, 30, 60)
_MOST_SINGLE = 1500


@dataclass(frozen=True, slots=True)
class Count:
    """Decisions in a bin; `refused` is for each sensor how often the screen refused it."""

    begin: float
    labels: dict[str, int]
    undecided: int
    refused: list[int]


@dataclass(frozen=True, slots=True)
class Tally:
    """Bins of one length, in the order of time; those without a decision are left out.

    Decisions before `uncounted_until` are no longer, or were never, counted.
    """

    bin_seconds: int
    bins: list[Count]
    uncounted_until: float | None


@dataclass(frozen=True, slots=True)
class Single:
    """One decision, told at the end of its segment."""

    event: int
    time: float
    seconds: float
    label: str | None
    probability: float | None
    log_odds: float | None
    reason: str | None
    roles: list[str]


def tally(window: Window) -> Tally:
    """How often which label was decided."""
    return _by_summaries(window) if window.end - window.begin > _WIDE_SECONDS else _by_decisions(window)


def _by_decisions(window: Window) -> Tally:
    seconds = next((one for one in _LENGTHS if one >= window.shortest), _LENGTHS[-1])
    rows = window.journal.rows(
        "SELECT unixepoch(time) / ? * ? AS begin, json_extract(body, '$.label') AS label, "
        "json_extract(body, '$.roles') AS roles, count(*) AS n FROM events "
        "WHERE type = 'decision' AND time >= ? AND time < ? GROUP BY 1, 2, 3 ORDER BY 1",
        (seconds, seconds, as_text(begin_of(window.begin, seconds)), window.texts[1]),
    )
    found = [_count(begin, list(own)) for begin, own in groupby(rows, key=itemgetter("begin"))]
    return Tally(seconds, found, _removed_until(window))


def _count(begin: int, rows: Sequence[Row]) -> Count:
    labels: Counter[str | None] = Counter()
    refused: Counter[int] = Counter()
    n_sensors = 0
    for row in rows:
        roles = json.loads(row["roles"])
        n_sensors = max(n_sensors, len(roles))
        refused.update({place: row["n"] for place, role in enumerate(roles) if role == "anomalous"})
        labels[row["label"]] += row["n"]
    undecided = labels.pop(None, 0)
    named = {label: n for label, n in labels.items() if label is not None}
    return Count(begin, named, undecided, [refused[place] for place in range(n_sensors)])


def _removed_until(window: Window) -> float | None:
    """The oldest decisions go when the journal is over its share of the budget."""
    (row,) = window.journal.rows("SELECT min(time) AS time FROM events WHERE type = 'decision'")
    removed = window.journal.rows(
        "SELECT 1 FROM events WHERE type = 'storage_pruned' AND json_extract(body, '$.removed_events') > 0 LIMIT 1"
    )
    return seconds_of(row["time"]) if row["time"] and removed else None


def _by_summaries(window: Window) -> Tally:
    rows = window.history
    found = [
        Count(seconds_of(row["time"]), row["labels"], row["undecided"], [one["refused"] for one in row["sensors"]])
        for row in rows
    ]
    seconds = rows[0]["seconds"] if rows else max(_LENGTHS[-1], round(window.shortest))
    return Tally(seconds, found, uncounted_until(window))


def uncounted_until(window: Window) -> float | None:
    """Before it was counted by the minute, if anything was heard then."""
    heard = first_started_at(window.journal)
    (counted,) = window.journal.rows("SELECT min(time) AS time FROM summaries")
    since = inf if counted["time"] is None else seconds_of(counted["time"])
    if heard is None or seconds_of(heard) + _LENGTHS[-1] >= min(since, window.now):
        return None
    return min(since, window.now)


def singles(window: Window) -> list[Single] | None:
    """Decisions one by one; none if there are too many."""
    if window.end - window.begin > _WIDE_SECONDS:
        return None
    rows = window.journal.rows(
        "SELECT id, time, body FROM events WHERE type = 'decision' AND time >= ? AND time < ? "
        "ORDER BY time, id LIMIT ?",
        (*window.texts, _MOST_SINGLE + 1),
    )
    if len(rows) > _MOST_SINGLE:
        return None
    rates = {one.name: one.rate_hz for one in window.recordings}
    return [_single(row, json.loads(row["body"]), rates) for row in rows]


def _single(row: Row, body: Row, rates: Mapping[str, int]) -> Single:
    samples = body["stop_sample"] - body["start_sample"]
    return Single(
        event=row["id"],
        time=seconds_of(row["time"]),
        seconds=round(samples / rates[body["recording"]], 3) if body["recording"] in rates else 0.0,
        label=body["label"],
        probability=body["probability"],
        log_odds=body["fused_log_odds"],
        reason=body["reason"],
        roles=body["roles"],
    )
