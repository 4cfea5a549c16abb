"""Labels for what arrays of a fleet heard. The log forgets, so the sound of a label is kept beside it at once."""

from __future__ import annotations

import csv
import fcntl
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import NotFound, UsageError
from pipeline.fleet.audio_extract import ArrayLog, Cut, LogPlace
from pipeline.fleet.config import ArrayOfFleet, Fleet
from pipeline.fleet.event_log import event_of
from pipeline.fleet.topology import Places
from pipeline.storage.journal import utc
from pipeline.storage.labels import LabelSpan, LabelSubmission, require_finite
from pipeline.transport.nats import Broker

_AROUND_SECONDS = 3.0
_SLIP = 0.75
"""So alike are words of which one may be a misspelling of the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of labels.csv; the first four columns are those that `gemmed train` reads."""

    recording: str
    """The file with its sound, below the directory of the examples."""
    start_seconds: float
    end_seconds: float
    label: str
    number: int
    array: str
    site: str
    cut_from: str
    """The recording of the array."""
    first_sample: int
    """Of that recording, with which the file begins."""
    rate_hz: int
    event: int | None
    who: str
    time: str
    why: str

    @property
    def span_seconds(self) -> tuple[float, float]:
        """In the recording of the array."""
        before = self.first_sample / self.rate_hz
        return before + self.start_seconds, before + self.end_seconds


class Taught:
    """The examples of a fleet: labels.csv and, by site and array, the sound. Many may add to them at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.table = directory / "labels.csv"

    def rows(self) -> list[Row]:
        try:
            lines = list(csv.DictReader(io.StringIO(self.table.read_text(encoding="utf-8-sig"), newline="")))
        except FileNotFoundError:
            return []
        except (UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{self.table} cannot be read: {error}; save it as UTF-8 with commas") from error
        return [_row(line, f"{self.table} line {number}") for number, line in enumerate(lines, start=2)]

    def add(
        self, array: ArrayOfFleet, cut: Cut, moment: LabelSpan, given: LabelSubmission, *, event: int | None
    ) -> Row:
        """The sound first: a row without it would teach nothing."""
        assert given.label is not None
        rate_hz = cut.recording.rate_hz
        with self._alone():
            rows = self.rows()
            row = Row(
                recording="",
                start_seconds=(moment.start - cut.start) / rate_hz,
                end_seconds=(moment.stop - cut.start) / rate_hz,
                label=given.label,
                number=max((one.number for one in rows), default=0) + 1,
                array=array.name,
                site=array.place,
                cut_from=moment.recording,
                first_sample=cut.start,
                rate_hz=rate_hz,
                event=event,
                who=given.who,
                time=utc(datetime.now(UTC)),
                why=given.why,
            )
            _require_no_other(row, rows)
            row = Row(**asdict(row) | {"recording": self._keep(array, cut)})
            self._write([*rows, row])
        return row

    def _keep(self, array: ArrayOfFleet, cut: Cut) -> str:
        """The file of the sound. One that is there begins with the same samples: the longer one is kept."""
        suffix, content = cut.encoded()
        name = f"{_as_file_name(cut.recording.recording)}-{cut.start}{suffix}"
        path = self.directory / _as_file_name(array.place) / array.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or _length(path) < cut.samples.shape[1]:
            write_whole(path, content)
        return path.relative_to(self.directory).as_posix()

    def take_back(self, number: int) -> Row:
        """Its sound stays, for others may have labelled it, too."""
        with self._alone():
            rows = self.rows()
            found = next((row for row in rows if row.number == number), None)
            if found is None:
                raise NotFound(f"there is no label {number} in {self.table}; gemmed fleet label --list shows them")
            self._write([row for row in rows if row.number != number])
        return found

    def check_word(self, name: str) -> None:
        """A misspelt label would be a class of its own."""
        said = sorted({row.label for row in self.rows()})
        likely = get_close_matches(name, said, n=1, cutoff=_SLIP)
        if name not in said and likely:
            raise UsageError(f"{name!r} is no label so far ({', '.join(said)}); did you mean {likely[0]}? add --new "
                             "if it is meant so")  # fmt: skip

    def _write(self, rows: list[Row]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
        write_whole(self.table, text.getvalue().encode())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Others wait. The table is replaced as a whole, so it cannot be the lock itself."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / ".labels.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _row(line: dict[str, Any], where: str) -> Row:
    try:
        numbers: dict[str, Any] = {name: int(line[name]) for name in ("number", "first_sample", "rate_hz")}
        seconds: dict[str, Any] = {name: float(line[name]) for name in ("start_seconds", "end_seconds")}
        event = int(line["event"]) if line["event"] else None
        names = ("recording", "label", "array", "site", "cut_from", "who", "time", "why")
        return Row(**numbers, **seconds, event=event, **{name: line[name] for name in names})
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where} is none that gemmed fleet label wrote ({error}); correct or remove it") from error


def _require_no_other(new: Row, rows: list[Row]) -> None:
    """No moment has two labels, and none has one twice."""
    begin, end = new.span_seconds
    for row in rows:
        start, stop = row.span_seconds
        if (row.array, row.cut_from) != (new.array, new.cut_from) or stop <= begin or end <= start:
            continue
        if row.label != new.label:
            raise UsageError(
                f"label {row.number} of {row.who} says {row.label!r} of {start:g} to {stop:g} s of {row.cut_from}; if "
                f"that is wrong, remove it first with --take-back {row.number}"
            )
        if start <= begin and end <= stop:
            raise UsageError(f"label {row.number} of {row.who} says so already; nothing was added")


def _as_file_name(text: str) -> str:
    """Names come from other machines: none of them leads elsewhere."""
    return re.sub(r"[^\w.-]", "_", text).lstrip(".") or "_"


def _length(path: Path) -> int:
    import soundfile

    return int(soundfile.info(path).frames)


@dataclass(frozen=True, slots=True)
class FleetLabelPlace:
    """Where a user says that something was heard: an event, or seconds of a recording."""

    event: int | None
    recording: str | None
    begin: float | None
    end: float | None

    def check(self) -> None:
        by_seconds = [self.recording is not None, self.begin is not None, self.end is not None]
        if (self.event is not None) == any(by_seconds) or any(by_seconds) != all(by_seconds):
            raise UsageError(
                "a label needs a place, and only one: give --event ID, or --recording NAME --from S --to S"
            )
        require_finite("--from", self.begin)
        require_finite("--to", self.end)
        if self.begin is not None and self.end is not None and not 0 <= self.begin < self.end:
            raise UsageError(
                f"a label from {self.begin:g} to {self.end:g} s has no length; end it after its start, from 0 on"
            )


def give(
    fleet: Fleet, array: ArrayOfFleet, broker: Broker, examples: Taught, place: FleetLabelPlace, given: LabelSubmission
) -> Row:
    """Store a label and the sound that it speaks of."""
    log = ArrayLog(broker, fleet.places.sound, array.name)
    if place.event is not None:
        moment = moment_of_event(broker, fleet.places, array.name, place.event)
        found = log.find(moment.recording)
        # Segments of all grids on which this one lies begin so many samples before it, too.
        step = moment.stop - moment.start
    else:
        assert place.recording is not None
        found = log.find(place.recording)
        moment, step = _moment(found, place), found.recording.rate_hz
    cut = log.cut(found, moment, around_seconds=_AROUND_SECONDS, step=step)
    return examples.add(array, cut, moment, given, event=place.event)


def _moment(found: LogPlace, place: FleetLabelPlace) -> LabelSpan:
    assert place.begin is not None
    assert place.end is not None
    rate_hz = found.recording.rate_hz
    start, stop = round(place.begin * rate_hz), round(place.end * rate_hz)
    if start >= stop:
        raise UsageError(
            f"a label from {place.begin} to {place.end} s holds no sample at {rate_hz} Hz; end it at least "
            f"{1 / rate_hz:g} s after its start"
        )
    return LabelSpan(found.recording.recording, start, stop)


def moment_of_event(broker: Broker, places: Places, array: str, number: int) -> LabelSpan:
    """The segment of a decision, by its id."""
    event = event_of(broker, places, array, number)
    if event is not None and event["type"] == "decision":
        return LabelSpan(event["recording"], event["start_sample"], event["stop_sample"])
    told = "there is no such event" if event is None else f"it is a {event['type']}"
    raise UsageError(
        f"event {number} of array {array!r} must be a decision, and {told}; gemmed fleet events shows their ids"
    )


def labels_table(rows: list[Row]) -> Table:
    """All labels, by site and array."""
    table = Table(title=f"{len(rows)} labels")
    for name in ("label", "what", "site", "array", "recording", "from s", "to s", "event", "who", "when", "why"):
        table.add_column(name, overflow="fold")
    for row in sorted(rows, key=lambda row: (row.site, row.array, row.number)):
        begin, end = row.span_seconds
        event = "" if row.event is None else str(row.event)
        known = (str(row.number), row.label, row.site, row.array, row.cut_from, f"{begin:.2f}", f"{end:.2f}", event,
                 row.who, row.time, row.why)  # fmt: skip
        table.add_row(*map(Text, known))
    return table
