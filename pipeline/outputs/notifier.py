"""From passages in the journal to notifications in the journal, each exactly once.

The journal is the only memory. A cursor is stored in the same transaction as the notification it belongs to, so a run
that was killed between the end of a passage and its notification leaves the work to the next run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Protocol

from pipeline.config.schema import Settings
from pipeline.core.errors import StorageError
from pipeline.core.events import PassageEnd
from pipeline.core.label_names import shown_name
from pipeline.core.passages import LEAST_CONFIDENCE, PASSAGE_EVENTS, QUIET_SECONDS, PassageRow, joined
from pipeline.core.sensor_state import State
from pipeline.outputs.notification_rules import QuietHours, Rules, day_before, summary_due
from pipeline.outputs.notification_text import SensorFault, SummaryFacts, Wording
from pipeline.storage.cursors import place_change, stored_place
from pipeline.storage.journal import Change, Journal, Row, utc
from pipeline.storage.passage_history import PassageHistory
from pipeline.storage.passage_table import newest_passage, stored_passages, whole_passage
from pipeline.storage.stored_events import (
    changes_of_state,
    is_notified,
    last_notified,
    notified_since,
    summed_up_until,
)
from pipeline.training.labels import is_nobody

_CURSOR = "notifications"
_SOUND = ("decision", "tick", "gap", "paced", *PASSAGE_EVENTS)
"""Events whose time is that of a sample."""
_SETTLE_SECONDS = QUIET_SECONDS + 10.0
"""After this time nothing can continue a passage that a recording border cut: starts are backdated by a few seconds."""


class Store(Protocol):
    """Where notifications go: the recorder of a daemon."""

    journal: Journal

    def add(self, body: Row, time: datetime, change: Change) -> None:
        """Store an event and a change of another table in one transaction."""

    def change(self, change: Change) -> None:
        """Store a change of a table at the next commit."""


@dataclass(frozen=True, slots=True)
class JournalCursor:
    """How far the journal was processed.

    Every passage event up to `event` is settled, and every summary up to the time `summaries_until` of the sound.
    """

    event: int
    summaries_until: datetime | None = None

    @classmethod
    def read(cls, journal: Journal) -> JournalCursor | None:
        place = stored_place(journal, _CURSOR)
        if place is None:
            return None
        body = json.loads(place)
        until = body["summaries_until"]
        return cls(body["event"], None if until is None else datetime.fromisoformat(until))

    @property
    def change(self) -> Change:
        until = None if self.summaries_until is None else utc(self.summaries_until)
        return place_change(_CURSOR, json.dumps({"event": self.event, "summaries_until": until}))


def rules_of(settings: Settings) -> Rules:
    """Return the rules that the settings give."""
    chosen = settings.notifications
    return Rules(
        labels=chosen.labels,
        least_probability=chosen.least_probability,
        quiet_hours=None if chosen.quiet_times is None else QuietHours(*chosen.quiet_times),
        cool_down_seconds=chosen.cool_down_seconds,
        summary_at=chosen.summary_time,
        zone=chosen.time_zone,
    )


def wording_of(settings: Settings, *, array: str | None = None) -> Wording:
    """Return the wording that the settings give."""
    names = settings.labels.names
    return Wording(rules_of(settings), lambda label: shown_name(label, names), array)


class Notifying:
    """Watches what a run stores in its journal and adds notifications. `run` is the name of the run."""

    def __init__(self, store: Store, run: str, wording: Wording, *, least_confidence: float = LEAST_CONFIDENCE) -> None:
        self._store, self._run = store, run
        self.wording, self.least_confidence = wording, least_confidence
        self._now: datetime | None = None
        self._heard: datetime | None = None
        self._waiting: dict[int, str] = {}
        """Passages that are not settled, by the id of the event that ended them, or of their start."""
        self._today: _Today | None = None
        self._cursor = JournalCursor.read(store.journal) or self._first_cursor()
        self._take_up()

    def _first_cursor(self) -> JournalCursor:
        cursor = JournalCursor(self._store.journal.last_id)
        self._store.change(cursor.change)
        return cursor

    def _take_up(self) -> None:
        """Find passages that earlier runs did not settle; one whose run was killed has no end."""
        begun: dict[str, int] = {}
        for event in self._store.journal.events(after=self._cursor.event, types=["passage_started", "passage_ended"]):
            passage = event.body["passage"]
            begun.pop(passage, None)
            if event.type == "passage_ended":
                self._waiting[event.id] = passage
            else:
                begun[passage] = event.id
        self._waiting = dict(sorted((self._waiting | {number: passage for passage, number in begun.items()}).items()))

    def see(self, event: Mapping[str, Any]) -> None:
        """Take note of an event that was just stored."""
        kind = event["type"]
        if kind not in _SOUND:
            return
        if event.get("recording") is not None:
            self._heard = datetime.fromisoformat(event["time"])
        if self._heard is not None:
            # While no sound arrives, time goes on all the same.
            self._now = self._heard + timedelta(seconds=event.get("waited_seconds", 0.0))
        if kind == "passage_ended":
            self._waiting[event["id"]] = event["passage"]
            self._today = None

    def step(self, *, stopping: bool = False) -> None:
        """Add the notifications that are due; when the run stops, also those that could still be joined."""
        while self._waiting:
            number, passage = next(iter(self._waiting.items()))
            if not self._settle(number, passage, stopping=stopping):
                break
            del self._waiting[number]
        if self._now is not None:
            self._summarize(self._now)

    def _settle(self, number: int, passage: str, *, stopping: bool) -> bool:
        """Notify of a passage or decide not to; return False if it may still go on."""
        row = self._whole(passage)
        if row is None:  # the journal was damaged
            return self._move(number)
        if row.end is None and not stopping:
            return False
        if row.end == PassageEnd.RECORDING_ENDED and not stopping and not self._is_over(row):
            return False
        if self._is_notified(row) or self._is_refused(row):
            return self._move(number)
        assert row.end_time is not None
        self._cursor = JournalCursor(number, self._cursor.summaries_until)
        self._store.add(self.wording.passage(row), row.end_time, self._cursor.change)
        return True

    def _move(self, number: int) -> bool:
        self._cursor = JournalCursor(number, self._cursor.summaries_until)
        self._store.change(self._cursor.change)
        return True

    def _is_over(self, row: PassageRow) -> bool:
        assert row.end_time is not None
        return self._now is not None and (self._now - row.end_time).total_seconds() > _SETTLE_SECONDS

    def _whole(self, passage: str) -> PassageRow | None:
        return whole_passage(self._store.journal, passage, running=self._run, least_confidence=self.least_confidence)

    def _is_notified(self, row: PassageRow) -> bool:
        return any(is_notified(self._store.journal, part.passage) for part in row.parts)

    def _is_refused(self, row: PassageRow) -> bool:
        last = last_notified(self._store.journal, row.label)
        return self.wording.rules.refusal(row, last) is not None

    def _summarize(self, now: datetime) -> None:
        """Sum up the day when its time has come, once passages before it are settled."""
        cursor, rules = self._cursor, self.wording.rules
        if rules.summary_at is None or cursor.summaries_until is None:
            until = None if rules.summary_at is None else now
            if until != cursor.summaries_until:
                self._cursor = JournalCursor(cursor.event, until)
                self._store.change(self._cursor.change)
            return
        due = summary_due(rules, cursor.summaries_until, now)
        if due is None or self._waiting or (now - due).total_seconds() < _SETTLE_SECONDS:
            return
        self._cursor = JournalCursor(cursor.event, due)
        body = self.wording.summary(self._facts(summed_up_until(self._store.journal) or day_before(rules, due), due))
        self._store.add(body, due, self._cursor.change)

    def _facts(self, since: datetime, until: datetime) -> SummaryFacts:
        journal = self._store.journal
        history = PassageHistory(journal, running=self._run, least_confidence=self.least_confidence)
        found = [one for one in history.briefs if since < one.start <= until and not is_nobody(one.known_as)]
        notified = notified_since(journal, since)
        return SummaryFacts(
            since,
            until,
            [(one.start, one.known_as) for one in found],
            _faults(journal, since, until),
            sum(one.passage not in notified for one in found),
        )

    def as_dict(self) -> Row:
        """Return what the status of the daemon shows: the passages that ended on this local day, and the last one."""
        day = self.wording.rules.local(self._now or datetime.now(UTC)).date()
        if self._today is None or self._today.day != day:
            with suppress(StorageError):  # then it is tried again, and meanwhile unknown
                self._today = self._counted(day)
        known = self._today
        return {
            "passages_today": None if known is None else known.passages,
            "last_passage": None if known is None or known.last is None else self._brief(known.last),
        }

    def _counted(self, day: date) -> _Today:
        begin = datetime.combine(day, time(), self.wording.rules.zone).astimezone(UTC)
        rows = stored_passages(self._store.journal, since=begin, running=self._run)
        whole = [row for row in joined(rows, least_confidence=self.least_confidence) if row.end is not None]
        count = sum(row.start_time is not None and row.start_time >= begin for row in whole)
        return _Today(day, count, whole[-1] if whole else self._newest())

    def _newest(self) -> PassageRow | None:
        passage = newest_passage(self._store.journal)
        return None if passage is None else self._whole(passage)

    def _brief(self, row: PassageRow) -> Row:
        brief = self.wording.passage(row)
        kept = ("passage", "label", "name", "probability", "start_time", "end_time", "cadence_per_minute")
        return {name: brief[name] for name in kept}


@dataclass(frozen=True, slots=True)
class _Today:
    """The passages of a local day that have ended, and the last one of all days."""

    day: date
    passages: int
    last: PassageRow | None


def _faults(journal: Journal, since: datetime, until: datetime) -> list[SensorFault]:
    """Return the sensors that were bad in a time, with all causes."""
    causes: dict[int, dict[str, None]] = {}
    for event in changes_of_state(journal, since, until):
        if event.body["to"] == State.BAD:
            causes.setdefault(event.body["sensor"], {}).update(dict.fromkeys(event.body["causes"]))
    return [SensorFault(sensor, tuple(found)) for sensor, found in sorted(causes.items())]
