"""Passages in the journal: a row each, written with their events, read as typed rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pipeline.core.passages import INTERRUPTED, LEAST_CONFIDENCE, PassageRow, joined
from pipeline.storage.journal import Change, Journal, Row, utc

_COLUMNS = (
    "passage", "recording", "run", "start_time", "end_time", "start_sample", "stop_sample", "label", "probability",
    "presence", "cadence_per_minute", "sensors_used", "end", "model", "body",
)  # fmt: skip
# Not INSERT OR REPLACE, which would give the row another rowid.
_UPSERT = (
    f"INSERT INTO passages ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    f"ON CONFLICT (passage) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[1:])}"
)

_NEAR = timedelta(hours=1)
"""No part of a passage is further away from another one."""


def passage_change(run: str, event: Mapping[str, Any], start: datetime, stop: datetime) -> Change:
    """Return the statement that makes the row of a passage what its event says."""
    values: Row = {
        **{name: event.get(name) for name in _COLUMNS},
        "run": run,
        "start_time": utc(start),
        "end_time": utc(stop),
        "sensors_used": json.dumps(event["sensors_used"]),
        "body": json.dumps(event, separators=(",", ":"), allow_nan=False),
    }
    return _UPSERT, tuple(values[name] for name in _COLUMNS)


def stored_passages(
    journal: Journal,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    recordings: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    running: str | None = None,
) -> list[PassageRow]:
    """Read passages that overlap a time, of recordings or of ids if they are given, in the order of time.

    Those without an end are going on if `running` is their run; otherwise they were interrupted.
    """
    conditions, values = ["1"], list[Any]()
    for condition, time in (("end_time >= ?", since), ("start_time < ?", until)):
        if time is not None:
            conditions.append(condition)
            values.append(utc(time))
    if recordings is not None:
        conditions.append(f"recording IN ({', '.join('?' * len(recordings))})")
        values += recordings
    if ids is not None:
        # As JSON: SQLite limits the number of values of a statement.
        conditions.append("passage IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(ids)))
    query = f"SELECT run, start_time, body FROM passages WHERE {' AND '.join(conditions)} ORDER BY start_time, passage"
    return [_row(row, running) for row in journal.rows(query, values)]


def whole_passage(
    journal: Journal, passage: str, *, running: str | None = None, least_confidence: float = LEAST_CONFIDENCE
) -> PassageRow | None:
    """Read one passage by its id, or that of a part of it, joined across recordings."""
    own = stored_passages(journal, ids=[passage], running=running)
    if not own:
        return None
    start, end = own[0].start_time, own[0].end_time
    assert start is not None
    assert end is not None
    near = stored_passages(journal, since=start - _NEAR, until=end + _NEAR, running=running)
    rows = joined(near, least_confidence=least_confidence)
    return next(row for row in rows if any(part.passage == passage for part in row.parts))


def newest_passage(journal: Journal) -> str | None:
    """Return the id of the passage that started last, or None."""
    rows = journal.rows("SELECT passage FROM passages ORDER BY start_time DESC LIMIT 1")
    return str(rows[0]["passage"]) if rows else None


def passage_spans(journal: Journal) -> dict[str, list[tuple[int, int]]]:
    """Return start and stop of all passages, in samples, by recording."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in journal.rows("SELECT recording, start_sample, stop_sample FROM passages"):
        spans.setdefault(row["recording"], []).append((row["start_sample"], row["stop_sample"]))
    return spans


def _row(row: Row, running: str | None) -> PassageRow:
    body = json.loads(row["body"])
    started_at = datetime.fromisoformat(row["start_time"]) - timedelta(seconds=body["start_seconds"])
    found = PassageRow.of(body, started_at)
    return found if found.end is not None or row["run"] == running else replace(found, end=INTERRUPTED)
