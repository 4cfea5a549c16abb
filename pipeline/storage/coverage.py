"""Whether anybody listened, whether anything was heard, and whether it can be heard again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from math import floor
from typing import Any

from pipeline.storage.intervals import Band, Change, bands, thinned
from pipeline.storage.journal import Journal, Row
from pipeline.storage.labels import heard_until
from pipeline.storage.rollups import as_text, summaries

_LAG_SECONDS = 15.0
"""What was heard so recently may not be in the journal yet."""
_WRITTEN_SECONDS = 60.0
"""So recent sound may still be being written."""
_RECORDINGS = "SELECT name, run, rate_hz, sensors, started_at, samples FROM recordings WHERE started_at"


@dataclass(frozen=True, slots=True)
class HeardRecording:
    """From its first sample to the last that was heard of it."""

    name: str
    run: str
    rate_hz: int
    sensors: int
    begin: float
    end: float

    def time(self, sample: int) -> float:
        return min(_milliseconds(self.begin + sample / self.rate_hz), self.end)

    def sample(self, moment: float) -> int:
        return max(0, floor((moment - self.begin) * self.rate_hz))


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """An event: when, its id, and the fields that were asked for."""

    time: float
    event: int
    fields: list[Any]


@dataclass(frozen=True)
class Window:
    """A time that somebody looks at, in so many steps: whatever is shorter than one cannot be told apart.

    `running` is the run that is alive now. Times are seconds since 1970.
    """

    journal: Journal
    begin: float
    end: float
    bins: int
    now: float
    running: str | None = None

    @property
    def shortest(self) -> float:
        return (self.end - self.begin) / self.bins

    @cached_property
    def texts(self) -> tuple[str, str]:
        """Begin and end as they stand in the journal."""
        return as_text(self.begin), as_text(self.end)

    @cached_property
    def history(self) -> list[Row]:
        """Minutes, hours or days as they were summed up."""
        begin, end = (datetime.fromtimestamp(moment, UTC) for moment in (self.begin, self.end))
        return summaries(self.journal, begin, end, most_rows=self.bins)

    @cached_property
    def recordings(self) -> list[HeardRecording]:
        """Those that reach into the time, the last one before it and the first one behind it."""
        first, last = (text.removesuffix("Z") for text in self.texts)
        rows = [
            *self.journal.rows(f"{_RECORDINGS} < ? ORDER BY started_at DESC, rowid DESC LIMIT 1", (first,)),
            *self.journal.rows(f"{_RECORDINGS} >= ? AND started_at < ? ORDER BY started_at, rowid", (first, last)),
            *self.journal.rows(f"{_RECORDINGS} >= ? ORDER BY started_at, rowid LIMIT 1", (last,)),
        ]
        return [self._recording(row) for row in rows]

    def _recording(self, row: Row) -> HeardRecording:
        began = _milliseconds(seconds_of(row["started_at"]))
        samples = heard_until(self.journal, row["name"]) if row["samples"] is None else row["samples"]
        end = _milliseconds(began + samples / row["rate_hz"])
        if row["samples"] is None and row["run"] == self.running and self.now - end < _LAG_SECONDS:
            end = max(end, self.now)
        return HeardRecording(row["name"], row["run"], row["rate_hz"], row["sensors"], began, end)

    def is_being_made(self, recording: HeardRecording) -> bool:
        return recording.run == self.running and self.now - recording.end < _LAG_SECONDS

    def bands(self, changes: Iterable[Change], otherwise: str, worst_first: Sequence[str] = ()) -> list[Band]:
        found = bands(changes, self.begin, self.end, otherwise=otherwise)
        return thinned(found, self.shortest, worst_first=worst_first)

    def events(self, kind: str, *fields: str) -> dict[str, list[JournalEvent]]:
        """Of one type in this time, by recording."""
        return self._told(fields, "type = ? AND time >= ? AND time <= ? ORDER BY time, id", kind, *self.texts)

    def next_event(self, kind: str, *fields: str) -> dict[str, list[JournalEvent]]:
        """The first of one type behind this time."""
        return self._told(fields, "type = ? AND time > ? ORDER BY time, id LIMIT 1", kind, self.texts[1])

    def states(
        self, kind: str, *fields: str, each: str, of: Sequence[object]
    ) -> Iterator[tuple[HeardRecording, list[JournalEvent]]]:
        """Events of one type by which something is so until another one comes, for every recording.

        The one that is being made when this time begins has the last event before it, for each value of a field.
        """
        inside = self.events(kind, *fields)
        for recording in self.recordings:
            before = []
            if recording.begin < self.begin < recording.end:
                before = [one for value in of for one in self._last_before(recording, kind, fields, each, value)]
            yield recording, [*sorted(before, key=lambda one: one.event), *inside.get(recording.name, [])]

    def _last_before(
        self, recording: HeardRecording, kind: str, fields: Sequence[str], each: str, value: object
    ) -> list[JournalEvent]:
        found = self._told(
            fields,
            "type = ? AND time < ? AND time >= ? AND recording = ? AND json_extract(body, ?) IS ? "
            "ORDER BY time DESC, id DESC LIMIT 1",
            kind, self.texts[0], as_text(recording.begin), recording.name, f"$.{each}", value,
        )  # fmt: skip
        return found.get(recording.name, [])

    def _told(self, fields: Sequence[str], condition: str, *values: object) -> dict[str, list[JournalEvent]]:
        # Behind the type: of a single field SQLite would not make a list.
        paths = ", ".join(f"'$.{name}'" for name in ("type", *fields))
        rows = self.journal.rows(
            f"SELECT id, recording, time, json_extract(body, {paths}) AS told FROM events WHERE {condition}", values
        )
        found: dict[str, list[JournalEvent]] = {}
        for row in rows:
            told = JournalEvent(seconds_of(row["time"]), row["id"], json.loads(row["told"])[1:])
            found.setdefault(row["recording"], []).append(told)
        return found


def seconds_of(moment: str) -> float:
    """A time of the journal in seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp()


def _milliseconds(moment: float) -> float:
    """As precise as times in the journal, so that what happens at once stays so."""
    return floor(moment * 1000 + 1e-6) / 1000


def listening(window: Window) -> list[Band]:
    """Whether anybody heard anything, and if not, why."""
    return window.bands(_heard(window), "not_listening", ("not_listening", "gap", "waiting", "future", "heard"))


def _heard(window: Window) -> Iterator[Change]:
    gaps, endings = _gaps(window), _endings(window.journal)
    yield Change(window.begin, "not_listening", "gemmed had not been started yet")
    for recording, following in pairwise([*window.recordings, None]):
        assert recording is not None
        yield Change(recording.begin, "heard")
        for gap in gaps.get(recording.name, ()):
            start, stop, why = gap.fields
            yield Change(recording.time(start), "gap", why, gap.event)
            yield Change(recording.time(stop), "heard")
        yield _silence(window, recording, following, endings)
    yield Change(window.now, "future", "this has not happened yet")


def _silence(
    window: Window, recording: HeardRecording, following: HeardRecording | None, endings: Mapping[str, Change]
) -> Change:
    """What comes behind a recording."""
    run = recording.run
    if run == (window.running if following is None else following.run):
        return Change(recording.end, "waiting", "no sound came from the source")
    unknown = Change(0.0, "not_listening", "gemmed ended without a word: it was killed, or the power failed")
    return replace(endings.get(run, unknown), time=recording.end)


def _endings(journal: Journal) -> dict[str, Change]:
    """Why runs ended."""
    rows = journal.rows(
        "SELECT id, coalesce(json_extract(body, '$.run_that_died'), run) AS run, json_extract(body, '$.why') AS why "
        "FROM events WHERE type IN ('run_stopped', 'run_died')"
    )
    died = "gemmed died: it was killed, or the power failed"
    return {
        row["run"]: Change(0.0, "not_listening", f"gemmed was stopped: {row['why']}" if row["why"] else died, row["id"])
        for row in rows
    }


def _gaps(window: Window) -> dict[str, list[JournalEvent]]:
    """Those that end in this time, and the one that reaches beyond it."""
    fields = ("start_sample", "stop_sample", "reason")
    found = window.events("gap", *fields)
    for name, told in window.next_event("gap", *fields).items():
        found.setdefault(name, []).extend(told)
    return found


def kept(window: Window) -> list[Band]:
    """Of what was heard, what can still be listened to."""
    found = window.bands(_stored(window), "none", ("removed", "never_kept", "kept", "none"))
    mixed = "a part of it had to make room, or was never stored"
    return [replace(one, kind="partly", why=mixed) if one.n > 1 and one.kind in _LOST else one for one in found]


_LOST = {"removed": "it had to make room (storage.budget)", "never_kept": "it was never stored (storage.sound)"}


def _stored(window: Window) -> Iterator[Change]:
    for recording in window.recordings:
        at = max(recording.begin, window.begin)
        for begin, end in _pieces(window, recording):
            if begin > at:
                yield _lost(window, recording, at, begin)
            yield Change(begin, "kept")
            at = end
        if recording.end > at:
            yield _lost(window, recording, at, recording.end)
        yield Change(recording.end, "none")


def _pieces(window: Window, recording: HeardRecording) -> Iterator[tuple[float, float]]:
    """Stretches of kept sound; where pieces are missing that are too short to be shown, the end of it is."""
    rows = window.journal.rows(
        "SELECT min(start) AS start, sum(stop - start) AS samples FROM pieces "
        "WHERE recording = ? AND start < ? AND stop > ? AND file IS NOT NULL GROUP BY start / ? ORDER BY 1",
        (
            recording.name,
            recording.sample(window.end),
            recording.sample(window.begin),
            max(1, floor(window.shortest * recording.rate_hz)),
        ),
    )
    for row in rows:
        yield recording.time(row["start"]), recording.time(row["start"] + row["samples"])
    if window.is_being_made(recording):
        yield max(recording.begin, window.now - _WRITTEN_SECONDS), recording.end


def _lost(window: Window, recording: HeardRecording, begin: float, end: float) -> Change:
    removed = window.journal.rows(
        "SELECT 1 FROM pieces WHERE recording = ? AND start >= ? AND start < ? AND file IS NULL LIMIT 1",
        (recording.name, recording.sample(begin), recording.sample(end)),
    )
    kind = "removed" if removed else "never_kept"
    return Change(begin, kind, _LOST[kind])
