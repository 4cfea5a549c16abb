"""Labels in the journal: a row each, read as typed rows; `labels` adds to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.storage.journal import Journal
from pipeline.storage.labels import LabelSpan, LabelSubmission
from pipeline.training.labeled_spans import LabeledSpan, current_labels

_MOST_WORDS = 50
_LABELS = (
    "SELECT l.id AS number, l.recording, l.start AS start_sample, l.stop AS stop_sample, r.rate_hz, l.label, "
    "l.who, l.time, l.why, l.via, l.takes_back, l.void FROM label_rows l"
)


@dataclass(frozen=True, slots=True)
class LabelRow:
    """What somebody said of a stretch of a recording."""

    number: int
    recording: str
    start_sample: int
    stop_sample: int
    rate_hz: int | None
    """None if the recording is no longer known."""
    label: str | None
    who: str
    time: str
    why: str
    via: str
    takes_back: int | None
    void: bool

    @property
    def seconds(self) -> tuple[float, float]:
        """Return where it begins and ends in a recording that is known."""
        assert self.rate_hz is not None
        return self.start_sample / self.rate_hz, self.stop_sample / self.rate_hz


def newest_labels(journal: Journal, *, before: int, most: int) -> list[LabelRow]:
    """Return labels with a smaller number than one, the newest first."""
    rows = journal.rows(
        f"{_LABELS} LEFT JOIN recordings r ON r.name = l.recording WHERE l.id < ? ORDER BY l.id DESC LIMIT ?",
        (before, most),
    )
    return [_row(**row) for row in rows]


def labels_of_known_recordings(journal: Journal) -> list[LabelRow]:
    """Return all labels whose recording is known, in the order in which they were given."""
    rows = journal.rows(f"{_LABELS} JOIN recordings r ON r.name = l.recording ORDER BY l.id")
    return [_row(**row) for row in rows]


def label_row(journal: Journal, number: int) -> LabelRow | None:
    """Return a label whose recording is known, by its number, or None."""
    rows = journal.rows(f"{_LABELS} JOIN recordings r ON r.name = l.recording WHERE l.id = ?", (number,))
    return _row(**rows[0]) if rows else None


def _row(*, void: int, **values: Any) -> LabelRow:
    return LabelRow(**values, void=bool(void))


def current_stretches(journal: Journal) -> dict[str, list[LabeledSpan]]:
    """Return what is labeled now, by recording; one whose labels were all taken back has no stretches."""
    return current_labels(journal.rows("SELECT recording, start, stop, label, void FROM label_rows ORDER BY id"))


def last_label(journal: Journal) -> int:
    """Return the number of the newest label; 0 if there is none."""
    (row,) = journal.rows("SELECT coalesce(max(id), 0) AS n FROM labels")
    return int(row["n"])


def count_labels(journal: Journal) -> int:
    """Count the labels that were ever given."""
    (row,) = journal.rows("SELECT count(*) AS n FROM labels")
    return int(row["n"])


def common_words(journal: Journal) -> list[str]:
    """Return the words that were said most often, the most common first."""
    rows = journal.rows(
        "SELECT label, count(*) AS n FROM label_rows WHERE label IS NOT NULL AND NOT void GROUP BY label "
        f"ORDER BY n DESC, label LIMIT {_MOST_WORDS}"
    )
    return [row["label"] for row in rows]


def same_label(journal: Journal, moment: LabelSpan, given: LabelSubmission, *, after: int) -> int | None:
    """Return the number of the first label behind another one that says the same of the same stretch, or None."""
    rows = journal.rows(
        "SELECT id FROM label_rows WHERE recording = ? AND start = ? AND stop = ? AND label = ? AND who = ? "
        "AND via = ? AND id > ? AND NOT void ORDER BY id LIMIT 1",
        (moment.recording, moment.start, moment.stop, given.label, given.who, given.via, after),
    )
    return int(rows[0]["id"]) if rows else None
