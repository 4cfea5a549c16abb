"""Labels for what a running array heard: given by command or file, corrected, taken back; nothing is overwritten."""

from __future__ import annotations

import csv
import getpass
import io
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.errors import UsageError
from pipeline.events import NoticeKind
from pipeline.sinks.journal import Entry, Journal, utc
from pipeline.sinks.retention import Worth, worth_keeping

_COLUMNS = ("recording", "start_seconds", "end_seconds", "label")


@dataclass(frozen=True, slots=True)
class Moment:
    """A stretch of a recording."""

    recording: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Given:
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


def give(journal: Journal, moment: Moment, given: Given) -> int:
    """Store a label; its number, once it cannot be lost any more."""
    _check(journal, moment)
    with journal.transaction():
        number = journal.insert(
            "INSERT INTO labels (recording, start, stop, label, who, time, why, via) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                moment.recording,
                moment.start,
                moment.stop,
                given.label,
                given.who,
                utc(datetime.now(UTC)),
                given.why,
                given.via,
            ),
        )
        worth_keeping(journal, moment.recording, moment.start, moment.stop, Worth.LABELLED)
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
        }
        journal.add([Entry("", body, moment.recording, moment.start)])
    return number


def _check(journal: Journal, moment: Moment) -> None:
    rows = journal.rows("SELECT rate_hz, samples FROM recordings WHERE name = ?", (moment.recording,))
    if not rows:
        raise UsageError(f"recording {moment.recording!r} is not in the journal; gemmed status names the present one")
    if not 0 <= moment.start < moment.stop:
        raise UsageError(f"a label from sample {moment.start} to {moment.stop} has no length; end it after its start")
    length = rows[0]["samples"]
    if length is not None and moment.stop > length:
        seconds = length / rows[0]["rate_hz"]
        raise UsageError(
            f"the label ends {moment.stop / rows[0]['rate_hz']:g} s into {moment.recording}, which is {seconds:g} s "
            "long; end it there"
        )


def take_back(journal: Journal, number: int, given: Given) -> int:
    """What was said by a label is no longer said; what others said of the same sound before it neither."""
    rows = journal.rows("SELECT recording, start, stop FROM labels WHERE id = ?", (number,))
    if not rows:
        raise UsageError(f"there is no label {number}; gemmed label --list shows them")
    return give(journal, Moment(**rows[0]), Given(None, given.who, given.why, given.via))


def moment_of_event(journal: Journal, number: int) -> Moment:
    """The segment of a decision, by its id."""
    found = next((event for event in journal.events(after=number - 1, most=1) if event.id == number), None)
    if found is None or found.type != "decision":
        told = "there is no such event" if found is None else f"it is a {found.type}"
        raise UsageError(f"event {number} must be a decision, and {told}; give the id of a decision")
    assert found.recording is not None
    return Moment(found.recording, found.body["start_sample"], found.body["stop_sample"])


def moment_at(journal: Journal, begin: datetime, seconds: float) -> Moment:
    """What was heard at a time."""
    rows = journal.rows("SELECT name, rate_hz, samples, started_at FROM recordings ORDER BY started_at DESC")
    for row in rows:
        started_at = datetime.fromisoformat(row["started_at"])
        if started_at <= begin:
            start = round((begin - started_at).total_seconds() * row["rate_hz"])
            if row["samples"] is not None and start >= row["samples"]:
                break
            return Moment(row["name"], start, start + round(seconds * row["rate_hz"]))
    first = rows[-1]["started_at"] if rows else None
    told = f"the journal begins at {first}" if first else "nothing was heard yet"
    raise UsageError(f"nothing was heard at {utc(begin)}; {told}; give a time at which gemmed ran")


def moment_in(journal: Journal, recording: str | None, start_seconds: float, end_seconds: float) -> Moment:
    """Seconds of a recording, by its name or the end of it; of the last one if it has no name."""
    rows = journal.rows("SELECT name, rate_hz FROM recordings ORDER BY started_at DESC, rowid DESC")
    found = [row for row in rows if recording is None or row["name"].endswith(recording)]
    if not found:
        raise UsageError(f"recording {recording!r} is not in the journal; gemmed status names the present one")
    if recording is not None and len(found) > 1 and recording not in (row["name"] for row in found):
        raise UsageError(f"{recording!r} ends the names of {len(found)} recordings; write more of it")
    row = next((row for row in found if row["name"] == recording), found[0])
    return Moment(row["name"], round(start_seconds * row["rate_hz"]), round(end_seconds * row["rate_hz"]))


def known_labels(journal: Journal) -> list[str]:
    """What models and people have called things so far."""
    rows = journal.rows(
        "SELECT DISTINCT value AS label FROM models, json_each(models.facts, '$.classes') "
        "UNION SELECT DISTINCT label FROM labels WHERE label IS NOT NULL"
    )
    return sorted(row["label"] for row in rows)


class WatchedLabels:
    """A table of labels that is read again whenever it changes: recording, start_seconds, end_seconds, label.

    Columns who and why are taken over. Only what is new is given; a line that is removed is not taken back, for the
    file may be written from scratch every day. A label that is empty takes back what was said.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None

    def changed(self) -> bool:
        try:
            status = self.path.stat()
        except OSError:
            return False
        now = status.st_mtime_ns, status.st_size
        changed, self._seen = now != self._seen, now
        return changed

    def give_new(self, journal: Journal) -> tuple[int, list[str]]:
        """How many labels were new, and what is wrong with the rest."""
        given, wrong = 0, []
        try:
            rows = list(csv.DictReader(io.StringIO(self.path.read_text(encoding="utf-8-sig"), newline="")))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            return 0, [f"{self.path} cannot be read: {error}"]
        for number, row in enumerate(rows, start=2):
            try:
                given += self._give(journal, row)
            except (UsageError, ValueError, OverflowError, KeyError) as error:
                wrong.append(f"{self.path} line {number}: {_told(error)}")
        return given, wrong

    def _give(self, journal: Journal, row: dict[str, Any]) -> int:
        recording, start, end, label = ((row[name] or "").strip() for name in _COLUMNS)
        moment = moment_in(journal, recording, float(start), float(end))
        said = journal.rows(
            "SELECT label FROM labels WHERE via = 'file' AND recording = ? AND start = ? AND stop = ? ORDER BY id DESC",
            (moment.recording, moment.start, moment.stop),
        )
        if (said and said[0]["label"] == (label or None)) or not (said or label):
            return 0
        who = (row.get("who") or "").strip() or "label file"
        give(journal, moment, Given(label or None, who, (row.get("why") or "").strip(), "file"))
        return 1


def _told(error: Exception) -> str:
    if isinstance(error, UsageError):
        return str(error)
    return f"needs the columns {', '.join(_COLUMNS)} with two times in seconds; correct it"


def parsed_time(text: str, *, now: datetime | None = None) -> datetime:
    """A time in ISO 8601, UTC unless it says otherwise; or so long ago: -90s."""
    now = now or datetime.now(UTC)
    if text.startswith("-"):
        try:
            return now - timedelta(seconds=float(text[1:].removesuffix("s").strip()))
        except ValueError as error:
            raise UsageError(f"time {text!r} must be seconds ago; for example -90s") from error
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"time {text!r} must be like 2026-05-01T04:30:00Z, or -90s for so long ago") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
