"""Recordings and the pieces of their sound in the journal: a row each, read as typed rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pipeline.storage.journal import Change, Journal


@dataclass(frozen=True, slots=True)
class RecordingRow:
    """A recording as it stands in the journal."""

    name: str
    run: str
    rate_hz: int
    sensors: int
    choices: str
    """JSON: how it is decided about."""
    started_at: str
    samples: int | None = None
    """None until it is finished."""

    def time(self, sample: int) -> datetime:
        """Return when a sample was heard."""
        return datetime.fromisoformat(self.started_at) + timedelta(seconds=sample / self.rate_hz)


@dataclass(frozen=True, slots=True)
class AudioPiece:
    """A stored stretch of a recording."""

    recording: str
    start: int
    stop: int


def beginning_change(row: RecordingRow) -> Change:
    """Return the statement that adds a recording that has begun."""
    return (
        "INSERT INTO recordings (name, run, rate_hz, sensors, choices, started_at) VALUES (?, ?, ?, ?, ?, ?)",
        (row.name, row.run, row.rate_hz, row.sensors, row.choices, row.started_at),
    )


def ending_change(recording: str, samples: int) -> Change:
    """Return the statement that notes how long a finished recording is."""
    return "UPDATE recordings SET samples = ? WHERE name = ?", (samples, recording)


def recording_row(journal: Journal, name: str | None) -> RecordingRow | None:
    """Return the row of a recording, or None."""
    rows = journal.rows("SELECT * FROM recordings WHERE name = ?", (name,))
    return RecordingRow(**rows[0]) if rows else None


def known_recording(journal: Journal, name: str) -> RecordingRow:
    """Return the row of a recording that must be in the journal."""
    row = recording_row(journal, name)
    assert row is not None
    return row


def newest_recording(journal: Journal) -> RecordingRow | None:
    """Return the recording that started last, or None."""
    rows = journal.rows("SELECT * FROM recordings ORDER BY started_at DESC LIMIT 1")
    return RecordingRow(**rows[0]) if rows else None


def latest_choices(journal: Journal) -> dict[str, Any]:
    """Return how the recording that was added last is decided about; nothing if there is none."""
    rows = journal.rows("SELECT choices FROM recordings ORDER BY rowid DESC LIMIT 1")
    return dict(json.loads(rows[0]["choices"])) if rows else {}


def first_started_at(journal: Journal) -> str | None:
    """Return when the first recording started, or None."""
    (row,) = journal.rows("SELECT min(started_at) AS time FROM recordings")
    return None if row["time"] is None else str(row["time"])


def runs(journal: Journal) -> list[str]:
    """Return the runs that have recordings, in the order of time."""
    return [row["run"] for row in journal.rows("SELECT run FROM recordings GROUP BY run ORDER BY min(started_at)")]


def recordings_of(journal: Journal, run: str) -> list[str]:
    """Return the names of the recordings of a run, in the order in which they began."""
    rows = journal.rows("SELECT name FROM recordings WHERE run = ? ORDER BY rowid", (run,))
    return [row["name"] for row in rows]


def stored_until(journal: Journal, recording: str) -> int:
    """Return how many samples of a recording were stored, whether they are still kept or not."""
    (row,) = journal.rows("SELECT coalesce(max(stop), 0) AS stop FROM pieces WHERE recording = ?", (recording,))
    return int(row["stop"])


def kept_until(journal: Journal, recording: str) -> int:
    """Return where the last kept piece of a recording ends; 0 if none is kept."""
    (row,) = journal.rows(
        "SELECT coalesce(max(stop), 0) AS stop FROM pieces WHERE recording = ? AND file IS NOT NULL", (recording,)
    )
    return int(row["stop"])


def kept_samples(journal: Journal, recording: str, start: int, stop: int) -> int:
    """Return how many samples of a stretch are kept."""
    (row,) = journal.rows(
        "SELECT coalesce(sum(min(stop, ?3) - max(start, ?2)), 0) AS samples FROM pieces "
        "WHERE recording = ?1 AND stop > ?2 AND start < ?3 AND file IS NOT NULL",
        (recording, start, stop),
    )
    return int(row["samples"])


def kept_seconds(journal: Journal) -> float:
    """Return how many seconds of sound are kept, of all recordings together."""
    (row,) = journal.rows(
        "SELECT coalesce(sum(1.0 * (stop - start) / rate_hz), 0) AS seconds FROM pieces JOIN recordings "
        "ON name = recording WHERE file IS NOT NULL"
    )
    return float(row["seconds"])


def stored_ends(journal: Journal, rate_hz: int, sensors: int) -> dict[str, int]:
    """Return how many samples were stored of each recording of this format."""
    rows = journal.rows(
        "SELECT recording, max(stop) AS stop FROM pieces JOIN recordings ON name = recording "
        "WHERE rate_hz = ? AND sensors = ? GROUP BY recording",
        (rate_hz, sensors),
    )
    return {row["recording"]: int(row["stop"]) for row in rows}


def newest_pieces(journal: Journal, rate_hz: int, sensors: int) -> list[AudioPiece]:
    """Return the kept pieces of all recordings of this format, the newest first."""
    rows = journal.rows(
        "SELECT recording, start, stop FROM pieces JOIN recordings ON name = recording "
        "WHERE file IS NOT NULL AND rate_hz = ? AND sensors = ? ORDER BY started_at DESC, start DESC",
        (rate_hz, sensors),
    )
    return [AudioPiece(**row) for row in rows]


def whole_pieces(journal: Journal, rate_hz: int, sensors: int) -> list[AudioPiece]:
    """Return the kept pieces of all recordings of this format that every sensor delivered, in the order of time."""
    rows = journal.rows(
        "SELECT recording, start, stop FROM pieces JOIN recordings ON name = recording "
        "WHERE file IS NOT NULL AND rate_hz = ? AND recordings.sensors = ? AND delivered NOT LIKE '%false%' "
        "ORDER BY started_at, recording, start",
        (rate_hz, sensors),
    )
    return [AudioPiece(**row) for row in rows]
