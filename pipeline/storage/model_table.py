"""Models in the journal, and the segments that they did not learn from: a row each, read as typed rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from pipeline.storage.journal import Journal


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model as it stands in the journal."""

    name: str
    identity: str
    time: str
    origin: str
    parent: str | None
    status: str
    since: str
    why: str
    facts: str
    """JSON: what it was learned from, and how it was judged."""


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """A segment of one sensor, counted from 1, that a model did not learn from."""

    model: str
    recording: str
    start: int
    sensor: int
    why: str
    believed: float
    """How far, 0 to 1."""


@dataclass(frozen=True, slots=True)
class NumberedRefusal:
    """A refusal with its number, by which all of them are read in portions."""

    number: int
    row: RefusalRow


@dataclass(frozen=True, slots=True)
class RefusalCount:
    """How many segments of a sensor a model did not learn from for one reason."""

    sensor: int
    why: str
    segments: int


def model_rows(journal: Journal) -> list[ModelRow]:
    """Return all models in the order in which they were added."""
    return [ModelRow(**row) for row in journal.rows("SELECT * FROM models")]


def newest_models(journal: Journal) -> list[ModelRow]:
    """Return all models, the newest first."""
    return [ModelRow(**row) for row in journal.rows("SELECT * FROM models ORDER BY time DESC, rowid DESC")]


def store_model(journal: Journal, row: ModelRow, refusals: Iterable[RefusalRow]) -> None:
    """Store a model and what it did not learn from, inside a transaction of the caller."""
    journal.execute("INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(row))
    for refused in refusals:
        journal.execute("INSERT OR REPLACE INTO refusals VALUES (?, ?, ?, ?, ?, ?)", astuple(refused))


def set_status(journal: Journal, model: str, status: str, *, since: str, why: str) -> None:
    """Note what a model is now, inside a transaction of the caller."""
    journal.execute("UPDATE models SET status = ?, since = ?, why = ? WHERE name = ?", (status, since, why, model))


def set_facts(journal: Journal, model: str, facts: str) -> None:
    """Replace the facts of a model, inside a transaction of the caller."""
    journal.execute("UPDATE models SET facts = ? WHERE name = ?", (facts, model))


def refusals_after(
    journal: Journal, model: str, after: int, *, sensor: int | None, why: str | None, most: int
) -> list[NumberedRefusal]:
    """Return what a model did not learn from behind a number, of one sensor or for one reason if asked."""
    rows = journal.rows(
        "SELECT rowid AS number, * FROM refusals WHERE model = ?1 AND rowid > ?2 AND (?3 IS NULL OR sensor = ?3) "
        "AND (?4 IS NULL OR why = ?4) ORDER BY rowid LIMIT ?5",
        (model, after, sensor, why, most),
    )
    return [NumberedRefusal(row.pop("number"), RefusalRow(**row)) for row in rows]


def refusal_counts(journal: Journal, model: str) -> list[RefusalCount]:
    """Count what a model did not learn from, by sensor and reason."""
    rows = journal.rows(
        "SELECT sensor, why, count(*) AS segments FROM refusals WHERE model = ? GROUP BY sensor, why", (model,)
    )
    return [RefusalCount(**row) for row in rows]
