"""Events in the journal, found by what they speak of."""

from __future__ import annotations

from datetime import datetime

from pipeline.storage.journal import Journal, StoredEvent, utc


def runs_that_died(journal: Journal) -> list[str]:
    """Return the runs that began, never said that they stopped, and were not missed yet."""
    rows = journal.rows(
        """
        SELECT run FROM events WHERE type = 'run_started' AND run NOT IN (
            SELECT run FROM events WHERE type = 'run_stopped'
            UNION SELECT json_extract(body, '$.run_that_died') FROM events WHERE type = 'run_died'
        )
        """
    )
    return [row["run"] for row in rows]


def has_holes(journal: Journal, recording: str) -> bool:
    """Return whether events of a recording were removed; if not, the ids between its first and last are complete."""
    (row,) = journal.rows(
        """
        SELECT last - first + 1 > (SELECT count(*) FROM events WHERE id BETWEEN first AND last) AS incomplete
        FROM (SELECT min(id) AS first, max(id) AS last FROM events WHERE recording = ? AND type != 'label_given')
        """,
        (recording,),
    )
    return bool(row["incomplete"])


def last_heard_decision(journal: Journal) -> int | None:
    """Return the id of the newest decision of which all sound is stored, or None."""
    rows = journal.rows(
        "SELECT id FROM events JOIN (SELECT recording, stop FROM pieces ORDER BY rowid DESC LIMIT 1) AS newest "
        "ON events.recording = newest.recording WHERE type = 'decision' "
        "AND json_extract(body, '$.stop_sample') <= newest.stop ORDER BY sample DESC LIMIT 1"
    )
    return int(rows[0]["id"]) if rows else None


def events_of_sensor(
    journal: Journal, kind: str, sensor: int, *, most: int, since: str = "", until: str = "9"
) -> list[StoredEvent]:
    """Return the newest events of a type that speak of one sensor, the newest first."""
    # From the end on, as far as is needed: by their time, all there are would be sorted.
    rows = journal.rows(
        "SELECT * FROM events WHERE type = ? AND +time BETWEEN ? AND ? "
        "AND json_extract(body, '$.sensor') = ? ORDER BY id DESC LIMIT ?",
        (kind, since, until, sensor, most),
    )
    return [StoredEvent.of(row) for row in rows]


def opened_fault(journal: Journal, recording: str, sensor: int, cause: str) -> StoredEvent | None:
    """Return the event that opened a fault of a sensor last, or None."""
    rows = journal.rows(
        "SELECT * FROM events WHERE type = 'fault_opened' AND recording = ? AND json_extract(body, '$.sensor') = ? "
        "AND json_extract(body, '$.cause') = ? ORDER BY id DESC LIMIT 1",
        (recording, sensor, cause),
    )
    return StoredEvent.of(rows[0]) if rows else None


def has_drifted(journal: Journal, *, after: int) -> bool:
    """Return whether a sensor has drifted since an event."""
    return bool(
        journal.rows(
            "SELECT 1 FROM events WHERE type = 'fault_opened' AND id > ? AND json_extract(body, '$.cause') = 'drift' "
            "LIMIT 1",
            (after,),
        )
    )


def changes_of_state(journal: Journal, since: datetime, until: datetime) -> list[StoredEvent]:
    """Return the changes of state of all sensors after one time, up to another, in the order of time."""
    rows = journal.rows(
        "SELECT * FROM events WHERE type = 'state_changed' AND time > ? AND time <= ? ORDER BY time, id",
        (utc(since), utc(until)),
    )
    return [StoredEvent.of(row) for row in rows]


def last_states(journal: Journal, recording: str | None, *, before: int) -> list[StoredEvent]:
    """Return the last change of state of each sensor of a recording before an event."""
    rows = journal.rows(
        "SELECT max(id) AS id, run, recording, sample, time, type, body FROM events WHERE type = 'state_changed' "
        "AND recording = ? AND id < ? GROUP BY json_extract(body, '$.sensor')",
        (recording, before),
    )
    return [StoredEvent.of(row) for row in rows]


def changes_of_trust(journal: Journal, recording: str | None, *, before: int) -> list[StoredEvent]:
    """Return the changes of trust in a recording before an event, in their order."""
    rows = journal.rows(
        "SELECT * FROM events WHERE type = 'trust_changed' AND recording = ? AND id < ? ORDER BY id",
        (recording, before),
    )
    return [StoredEvent.of(row) for row in rows]


def passages_ended_since(journal: Journal, time: datetime) -> int:
    """Count the passages that ended at a time or later."""
    (row,) = journal.rows("SELECT count(*) AS n FROM events WHERE type = 'passage_ended' AND time >= ?", (utc(time),))
    return int(row["n"])


def is_notified(journal: Journal, passage: str, *, array: str | None = None) -> bool:
    """Return whether there is a notification of a passage; of one array if it is given."""
    condition, values = _of_array(array)
    query = f"SELECT 1 FROM events WHERE type = 'notification' AND json_extract(body, '$.passage') = ? {condition}"
    return bool(journal.rows(f"{query}LIMIT 1", (passage, *values)))


def last_notified(journal: Journal, label: str | None, *, array: str | None = None) -> datetime | None:
    """Return the end of the last passage with a label that was notified, or None; of one array if it is given."""
    condition, values = _of_array(array)
    rows = journal.rows(
        "SELECT json_extract(body, '$.end_time') AS end_time FROM events WHERE type = 'notification' "
        f"AND json_extract(body, '$.about') = 'passage' {condition}"
        "AND json_extract(body, '$.label') IS ? ORDER BY id DESC LIMIT 1",
        (*values, label),
    )
    return datetime.fromisoformat(rows[0]["end_time"]) if rows else None


def _of_array(array: str | None) -> tuple[str, tuple[str, ...]]:
    return ("", ()) if array is None else ("AND json_extract(body, '$.array') = ? ", (array,))


def notified_since(journal: Journal, time: datetime) -> set[str]:
    """Return the passages of which there is a notification after a time."""
    rows = journal.rows(
        "SELECT json_extract(body, '$.passage') AS passage FROM events WHERE type = 'notification' AND time > ?",
        (utc(time),),
    )
    return {row["passage"] for row in rows if row["passage"] is not None}


def summed_up_until(journal: Journal) -> datetime | None:
    """Return the time up to which the last summary reached, or None."""
    rows = journal.rows(
        "SELECT json_extract(body, '$.until') AS until FROM events WHERE type = 'notification' "
        "AND json_extract(body, '$.about') = 'summary' ORDER BY id DESC LIMIT 1"
    )
    return datetime.fromisoformat(rows[0]["until"]) if rows else None
