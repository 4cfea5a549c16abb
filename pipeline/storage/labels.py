"""Labels for what a running array heard: given by command or file, corrected, taken back; nothing is overwritten."""

from __future__ import annotations

import csv
import getpass
import io
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from pipeline.core.errors import NotFound, UsageError
from pipeline.core.events import NoticeKind
from pipeline.core.units import DURATION
from pipeline.storage.journal import Journal, JournalEntry, utc
from pipeline.storage.recordings import recording_row
from pipeline.storage.retention import RetentionClass, worth_keeping
from pipeline.training.labels import is_class

_READ_AGAIN_SECONDS = 10.0
_SLIP = 0.75
"""So alike are words of which one may be a misspelling of the other."""
_COLUMNS = ("recording", "start_seconds", "end_seconds", "label")


@dataclass(frozen=True, slots=True)
class LabelSpan:
    """A stretch of a recording."""

    recording: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LabelSubmission:
    """Who says what, why, and by which way; no label takes back what was said."""

    label: str | None
    who: str
    why: str = ""
    via: str = "command"


def somebody() -> str:
    """Who uses this machine now."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def give(journal: Journal, moment: LabelSpan, given: LabelSubmission, *, takes_back: int | None = None) -> int:
    """Store a label for what was heard of a moment; its number, once it cannot be lost any more."""
    moment = _heard(journal, moment)
    with journal.transaction():
        number = journal.insert(
            "INSERT INTO labels (recording, start, stop, label, who, time, why, via, takes_back) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                moment.recording,
                moment.start,
                moment.stop,
                given.label,
                given.who,
                utc(datetime.now(UTC)),
                given.why,
                given.via,
                takes_back,
            ),
        )
        worth_keeping(journal, moment.recording, moment.start, moment.stop, RetentionClass.LABELLED)
        body = {
            "type": str(NoticeKind.LABEL_GIVEN),
            "recording": moment.recording,
            "start_sample": moment.start,
            "stop_sample": moment.stop,
            "number": number,
            "label": given.label,
            "who": given.who,
            "why": given.why,
            "via": given.via,
            "takes_back": takes_back,
        }
        journal.add([JournalEntry("", body, moment.recording, moment.start)])
    return number


def _heard(journal: Journal, moment: LabelSpan) -> LabelSpan:
    """As much of a moment as was heard by now."""
    row = recording_row(journal, moment.recording)
    if row is None:
        raise UsageError(f"recording {moment.recording!r} is not in the journal; gemmed status names the present one")
    if not 0 <= moment.start < moment.stop:
        raise UsageError(f"a label from sample {moment.start} to {moment.stop} has no length; end it after its start")
    end = row.samples if row.samples is not None else heard_until(journal, moment.recording)
    if moment.start >= end:
        raise UsageError(
            f"the label begins {moment.start / row.rate_hz:g} s into {moment.recording}, of which "
            f"{end / row.rate_hz:g} s were heard; label what was heard"
        )
    return LabelSpan(moment.recording, moment.start, min(moment.stop, end))


def heard_until(journal: Journal, recording: str) -> int:
    """Of a recording that was never finished, or not yet."""
    (row,) = journal.rows(
        "SELECT max(coalesce((SELECT max(stop) FROM pieces WHERE recording = ?1), 0), "
        "coalesce((SELECT max(sample) FROM events WHERE recording = ?1 AND type != 'label_given'), 0)) AS stop",
        (recording,),
    )
    return int(row["stop"])


def take_back(journal: Journal, number: int, given: LabelSubmission) -> int:
    """What a label said is no longer said; what others said of the same sound stays."""
    rows = journal.rows("SELECT recording, start, stop, takes_back, void FROM label_rows WHERE id = ?", (number,))
    if not rows:
        raise NotFound(f"there is no label {number}; gemmed label --list shows them")
    (row,) = rows
    if row["takes_back"] is not None:
        raise UsageError(f"{number} is no label, it takes back {row['takes_back']}; give the label again instead")
    if row["void"]:
        raise UsageError(f"label {number} is taken back already; gemmed label --list shows which count")
    moment = LabelSpan(row["recording"], row["start"], row["stop"])
    return give(journal, moment, LabelSubmission(None, given.who, given.why, given.via), takes_back=number)


def learned_until(journal: Journal) -> int:
    """The last event that a round of learning knew of which came to its end; a killed one has taught nothing."""
    (row,) = journal.rows(
        """
        SELECT coalesce(max(id), 0) AS id FROM events WHERE type = 'retraining_started' AND id < (
            SELECT max(id) FROM events WHERE type IN ('retraining_finished', 'retraining_failed')
        )
        """
    )
    return int(row["id"])


def new_labels(journal: Journal) -> int:
    """How many were given, corrected or taken back since."""
    (row,) = journal.rows(
        "SELECT count(*) AS n FROM events WHERE type = 'label_given' AND id > ?", (learned_until(journal),)
    )
    return int(row["n"])


def moment_of_event(journal: Journal, number: int) -> LabelSpan:
    """The segment of a decision, by its id."""
    found = journal.event(number)
    if found is None or found.type != "decision":
        told = "there is no such event" if found is None else f"it is a {found.type}"
        raise UsageError(f"event {number} must be a decision, and {told}; give the id of a decision")
    assert found.recording is not None
    return LabelSpan(found.recording, found.body["start_sample"], found.body["stop_sample"])


def moment_at(journal: Journal, begin: datetime, seconds: float) -> LabelSpan:
    """What was heard at a time."""
    rows = journal.rows("SELECT name, rate_hz, samples, started_at FROM recordings ORDER BY started_at DESC")
    for row in rows:
        started_at = datetime.fromisoformat(row["started_at"])
        if started_at <= begin:
            start = round((begin - started_at).total_seconds() * row["rate_hz"])
            if row["samples"] is not None and start >= row["samples"]:
                break
            return LabelSpan(row["name"], start, start + round(seconds * row["rate_hz"]))
    first = rows[-1]["started_at"] if rows else None
    told = f"the journal begins at {first}" if first else "nothing was heard yet"
    raise UsageError(f"nothing was heard at {utc(begin)}; {told}; give a time at which gemmed ran")


def require_finite(option: str, seconds: float | None) -> None:
    """What has no end cannot be counted in samples."""
    if seconds is not None and not isfinite(seconds):
        raise UsageError(f"{option}={seconds:g} must be a finite number of seconds; for example 12.5")


def moment_in(journal: Journal, recording: str | None, start_seconds: float, end_seconds: float) -> LabelSpan:
    """Seconds of a recording, by its name or the end of it; of the last one if it has no name."""
    rows = journal.rows("SELECT name, rate_hz FROM recordings ORDER BY started_at DESC, rowid DESC")
    found = [row for row in rows if recording is None or f"-{row['name']}".endswith(f"-{recording}")]
    if not found:
        raise UsageError(f"recording {recording!r} is not in the journal; gemmed status names the present one")
    if recording is not None and len(found) > 1 and recording not in (row["name"] for row in found):
        raise UsageError(f"{recording!r} ends the names of {len(found)} recordings; write more of it")
    row = next((row for row in found if row["name"] == recording), found[0])
    return LabelSpan(row["name"], round(start_seconds * row["rate_hz"]), round(end_seconds * row["rate_hz"]))


def check_word(journal: Journal, name: str, *, cure: str = "add --new") -> None:
    """A misspelt label would be a class of its own: it must be one that models tell apart.

    Before there is a model, it must only not look like a slip of what others said. A word for nobody, `unknown`
    and `not sure` always fit. The `cure` is how to insist.
    """
    if not is_class(name):
        return
    classes = _column(journal, "SELECT DISTINCT value AS word FROM models, json_each(models.facts, '$.classes')")
    said = _column(journal, "SELECT DISTINCT label AS word FROM label_rows WHERE label IS NOT NULL AND NOT void")
    likely = get_close_matches(name, classes or said, n=1, cutoff=0.6 if classes else _SLIP)
    if name not in (classes or said) and (classes or likely):
        hint = f"did you mean {likely[0]}? " if likely else ""
        raise UsageError(f"{name!r} is no label so far ({', '.join(classes or said)}); {hint}{cure} if it is meant so")


def _column(journal: Journal, query: str) -> list[str]:
    return sorted(row["word"] for row in journal.rows(query))


class WatchedLabels:
    """A table of labels that is read again whenever it changes: recording, start_seconds, end_seconds, label.

    Columns who and why are taken over. Only what is new is given; a line that is removed is not taken back, for the
    file may be written from scratch every day. A label that is empty takes back what was said.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._told: set[str] = set()
        self._read_at = 0.0

    def changed(self, journal: Journal) -> bool:
        """Also if only the recordings have, and now and then: a line may speak of what is yet to be heard."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        (row,) = journal.rows("SELECT count(*) AS n FROM recordings")
        now = status.st_mtime_ns, status.st_size, row["n"]
        changed, self._seen = now != self._seen, now
        return changed or (bool(self._told) and time.monotonic() - self._read_at > _READ_AGAIN_SECONDS)

    def give_new(self, journal: Journal) -> tuple[int, list[str]]:
        """How many labels were new, and what is wrong with others, each said once."""
        given, wrong, self._read_at = 0, list[str](), time.monotonic()
        try:
            rows = list(csv.DictReader(io.StringIO(self.path.read_text(encoding="utf-8-sig"), newline="")))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            return 0, [f"{self.path} cannot be read: {error}"]
        for number, row in enumerate(rows, start=2):
            try:
                given += self._give(journal, row)
            except (UsageError, ValueError, OverflowError, KeyError) as error:
                wrong.append(f"{self.path} line {number}: {_told(error)}")
        fresh = [trouble for trouble in wrong if trouble not in self._told]
        self._told = set(wrong)
        return given, fresh

    def _give(self, journal: Journal, row: dict[str, Any]) -> int:
        recording, start, end, label = ((row[name] or "").strip() for name in _COLUMNS)
        moment = _heard(journal, moment_in(journal, recording, float(start), float(end)))
        if label:
            check_word(journal, label)
        said = journal.rows(
            "SELECT label FROM labels WHERE via = 'file' AND recording = ? AND start = ? AND stop = ? ORDER BY id DESC",
            (moment.recording, moment.start, moment.stop),
        )
        if (said and said[0]["label"] == (label or None)) or not (said or label):
            return 0
        who = (row.get("who") or "").strip() or "label file"
        give(journal, moment, LabelSubmission(label or None, who, (row.get("why") or "").strip(), "file"))
        return 1


def _told(error: Exception) -> str:
    if isinstance(error, UsageError):
        return str(error)
    return f"needs the columns {', '.join(_COLUMNS)} with two times in seconds; correct it"


def parsed_time(text: str, *, now: datetime | None = None) -> datetime:
    """A time in ISO 8601, UTC unless it says otherwise; or so long ago: -90s, -5min."""
    now = now or datetime.now(UTC)
    if text.startswith("-"):
        try:
            return now - timedelta(seconds=DURATION.read(text[1:]))
        except (ValueError, OverflowError) as error:
            raise UsageError(f"time {text!r} must be so long ago; for example -90s or -5min") from error
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"time {text!r} must be like 2026-05-01T04:30:00Z, or -90s for so long ago") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)
