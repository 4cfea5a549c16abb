"""How far each source was processed, and the last heartbeat: a row each, replaced whenever it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.storage.journal import Change, Journal, Row, utc


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a daemon said of itself last, and when."""

    time: str
    status: Row

    @property
    def age_seconds(self) -> float:
        return (datetime.now(UTC) - datetime.fromisoformat(self.time)).total_seconds()


def stored_place(journal: Journal, source: str) -> str | None:
    """Return how far a source was processed, in its own words, or None."""
    rows = journal.rows("SELECT body FROM places WHERE source = ?", (source,))
    return str(rows[0]["body"]) if rows else None


def place_change(source: str, place: str) -> Change:
    """Return the statement that notes how far a source was processed."""
    return "INSERT OR REPLACE INTO places (source, body) VALUES (?, ?)", (source, place)


def store_place(journal: Journal, source: str, place: str) -> None:
    """Note how far a source was processed, inside a transaction of the caller or alone."""
    journal.execute(*place_change(source, place))


def last_heartbeat(journal: Journal) -> Heartbeat | None:
    """Return the last heartbeat, or None."""
    rows = journal.rows("SELECT time, body FROM heartbeat")
    return Heartbeat(rows[0]["time"], json.loads(rows[0]["body"])) if rows else None


def store_heartbeat(journal: Journal, status: Mapping[str, Any]) -> None:
    """Store a status as of now, in the place of the one before."""
    journal.execute(
        "INSERT OR REPLACE INTO heartbeat (one, time, body) VALUES (1, ?, ?)",
        (utc(datetime.now(UTC)), json.dumps(status)),
    )
