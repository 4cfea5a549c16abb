"""From facts to the journal, also while the disk refuses."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.core.errors import StorageError
from pipeline.core.event_json import EventLines
from pipeline.core.events import Notice, NoticeKind, RecordingFinished, RecordingStarted
from pipeline.core.passages import PASSAGE_EVENTS
from pipeline.runtime.logs import log
from pipeline.storage.cursors import place_change
from pipeline.storage.journal import Change, JournalEntry, Row, opened_or_replaced
from pipeline.storage.passage_table import passage_change
from pipeline.storage.recordings import RecordingRow, beginning_change, ending_change

_MOST_WAITING = 20_000
_RETRY_SECONDS = 2.0
_PLACES = ("sample", "stop_sample", "start_sample")
Show = Callable[[dict[str, Any]], None]


class Recorder:
    """An observer that stores every event, in portions, and shows it to others once it is stored.

    If the disk is full or no longer lets itself be written to, events wait, a bounded number of them, and are stored
    when it does again; those that had to go are counted.
    """

    def __init__(self, path: Path, run: str, *, show: Sequence[Show] = ()) -> None:
        self._path, self._run, self._show = path, run, tuple(show)
        self.watchers: list[Show] = []
        """Also shown every event once it is stored."""
        self.choices = "{}"
        """As JSON: how the recordings that begin from now on are decided about."""
        self.journal, replaced = opened_or_replaced(path)
        self._lines = EventLines(self._take, model="")
        self._recording: RecordingStarted | None = None
        self._waiting: deque[JournalEntry] = deque()
        self._statements: deque[Change] = deque()
        self._read_only_since: float | None = None
        self._tried_at = 0.0
        self._lost = 0
        self.last_id = self.journal.last_id
        """Of the events that are stored, by whomever it was when this began, by this since then."""
        if replaced is not None:
            self.observe(Notice(NoticeKind.JOURNAL_REPLACED, replaced))

    @property
    def read_only(self) -> bool:
        return self._read_only_since is not None

    def observe(self, event: object, /) -> None:
        if isinstance(event, RecordingStarted):
            self._begin(event)
        self._lines.observe(event)
        if isinstance(event, RecordingFinished):
            self._statements.append(ending_change(event.recording, event.samples))

    def _begin(self, started: RecordingStarted) -> None:
        self._recording = started
        assert started.started_at is not None
        started_at, n_sensors = started.started_at.isoformat(), len(started.sensors)
        row = RecordingRow(started.recording, self._run, started.rate_hz, n_sensors, self.choices, started_at)
        self._statements.append(beginning_change(row))

    def note_place(self, source: str, place: str) -> None:
        """Up to where a log of sound was decided about; stored together with what was decided."""
        self.change(place_change(source, place))

    def change(self, change: Change) -> None:
        """Store a change of a table at the next commit."""
        self._statements.append(change)

    def add(self, body: Row, time: datetime, change: Change) -> None:
        """Store an event that is no fact of the chain, and a change of another table, in one transaction."""
        self._wait(JournalEntry(self._run, body, time=time, also=(change,)))
        self.commit()

    def _take(self, body: dict[str, Any]) -> None:
        sample = next((body[name] for name in _PLACES if body.get(name) is not None), None)
        time_of_it = self._time(sample) or datetime.now(UTC)
        also = (self._passage(body),) if body["type"] in PASSAGE_EVENTS else ()
        self._wait(JournalEntry(self._run, body, body.get("recording"), sample, time_of_it, also))

    def _wait(self, entry: JournalEntry) -> None:
        self._waiting.append(entry)
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self._lost += 1

    def _passage(self, body: dict[str, Any]) -> Change:
        """The row of a passage, as of this event."""
        start, stop = self._time(body["start_sample"]), self._time(body["stop_sample"])
        assert start is not None
        assert stop is not None
        return passage_change(self._run, body, start, stop)

    def _time(self, sample: int | None) -> datetime | None:
        """When a sample was heard."""
        if sample is None or self._recording is None or self._recording.started_at is None:
            return None
        return self._recording.started_at + timedelta(seconds=sample / self._recording.rate_hz)

    def commit(self) -> None:
        """Store what waits; if that is impossible now, it goes on waiting."""
        if not (self._waiting or self._statements):
            return
        if self.read_only and time.monotonic() - self._tried_at < _RETRY_SECONDS:
            return
        self._tried_at = time.monotonic()
        try:
            self._store()
        except StorageError as error:
            if not self._overcome(error):
                return
        if self.read_only:
            self._recovered()

    def _store(self) -> None:
        entries = list(self._waiting)
        with self.journal.transaction():
            for statement, values in self._statements:
                self.journal.execute(statement, values)
            ids = self.journal.add(entries)
        self._waiting.clear()
        self._statements.clear()
        self.last_id = max([self.last_id, *ids])
        for number, entry in zip(ids, entries, strict=True):
            for show in (*self._show, *self.watchers):
                show({"id": number, "run": entry.run, "time": entry.told_at, **entry.body})

    def _overcome(self, error: StorageError) -> bool:
        """Whether a new journal has taken the place of a damaged one; else events wait."""
        if error.damaged:
            try:
                self._replace()
                return True
            except StorageError as another:
                error = another
        if not self.read_only:
            self._read_only_since = time.monotonic()
            log.error("the journal cannot be written to; events wait", why=str(error))
            self.observe(Notice(NoticeKind.STORAGE_READ_ONLY, {"why": str(error)}))
        return False

    def _replace(self) -> None:
        """A journal that got damaged while it was in use."""
        damaged = self.journal
        self.journal, details = opened_or_replaced(self._path)
        with suppress(StorageError):
            damaged.close()
        if details is not None:
            log.error("the journal was damaged; a new one goes on", **details)
            self.observe(Notice(NoticeKind.JOURNAL_REPLACED, details))
        self._store()

    def _recovered(self) -> None:
        assert self._read_only_since is not None
        seconds = round(time.monotonic() - self._read_only_since, 1)
        self._read_only_since = None
        log.info("the journal can be written to again", after_seconds=seconds, events_lost=self._lost)
        self.observe(Notice(NoticeKind.STORAGE_RECOVERED, {"after_seconds": seconds, "events_lost": self._lost}))
        self._lost = 0

    def close(self) -> None:
        self._tried_at = 0.0
        self.commit()
        self.journal.close()
