"""Notifications of a fleet: from passages at the broker to events in a local journal, the queue of all outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from datetime import time as daytime
from typing import Any

from pipeline.core.label_names import shown_name
from pipeline.core.passages import PASSAGE_EVENTS, PassageRow
from pipeline.core.sensor_state import State
from pipeline.fleet.config import Fleet
from pipeline.fleet.passages import SETTLE_SECONDS, ArrayPassages, FleetPassage, FleetPassages
from pipeline.outputs.notification_rules import Rules, day_before, summary_due
from pipeline.outputs.notification_text import SensorFault, SummaryFacts, Wording
from pipeline.storage.cursors import store_place, stored_place
from pipeline.storage.journal import Journal, JournalEntry, utc
from pipeline.storage.outbox import forget_delivered
from pipeline.storage.stored_events import is_notified, last_notified, passages_ended_since
from pipeline.training.labels import is_nobody
from pipeline.transport.nats import Broker, Message

_CURSOR = "fleet"
_AT_ONCE = 64
_FORGET_EVERY = timedelta(hours=1)
_KEEP = timedelta(days=90)
"""Delivered events are kept for as long, to tell what was notified before."""


@dataclass(slots=True)
class StreamCursor:
    """How far the stream of passages was processed; stored with the events that came of it."""

    stream: str
    """The identity of the stream: one that was made anew is read from its beginning."""
    sequence: int
    """All up to this message are settled."""
    last: dict[str, int] = field(default_factory=dict)
    """The last event of each array in the journal."""
    summaries_until: datetime | None = None

    @classmethod
    def read(cls, journal: Journal) -> StreamCursor | None:
        place = stored_place(journal, _CURSOR)
        if place is None:
            return None
        body = json.loads(place)
        until = body["summaries_until"]
        return cls(
            body["stream"], body["sequence"], body["last"], None if until is None else datetime.fromisoformat(until)
        )

    def store(self, journal: Journal) -> None:
        body = {
            "stream": self.stream,
            "sequence": self.sequence,
            "last": self.last,
            "summaries_until": None if self.summaries_until is None else utc(self.summaries_until),
        }
        store_place(journal, _CURSOR, json.dumps(body))


@dataclass(slots=True)
class _Array:
    """An array that is followed; `first` has the place in the stream at which each open passage began."""

    site: str
    wording: Wording
    known: ArrayPassages
    first: dict[str, int] = field(default_factory=dict)


class FleetNotifying:
    """Follows the passages of a fleet over one connection and adds events to a journal.

    A new journal begins at the end of the stream. Whatever is killed, the next one goes on where all is settled;
    what it reads again is recognized by its numbers, and no passage is notified twice.
    """

    def __init__(self, fleet: Fleet, rules: Rules, broker: Broker, journal: Journal, run: str) -> None:
        self._fleet, self._rules, self._broker, self._journal, self._run = fleet, rules, broker, journal, run
        self._arrays = {
            one.name: _Array(one.place, self._wording(one.name, one.place), ArrayPassages(fleet.decisions.confidence))
            for one in fleet.arrays
        }
        self._forgot_at = datetime.min.replace(tzinfo=UTC)
        self._cursor = self._first_cursor()
        places = fleet.places
        self._reader = broker.read(places.notable_stream, places.notable, self._cursor.sequence + 1)
        self._read_up_to = self._cursor.sequence

    def _wording(self, array: str, site: str) -> Wording:
        names = self._fleet.labels.names
        title = array if site == array else f"{array} ({site})"
        return Wording(self._rules, lambda label: shown_name(label, names), title)

    def _first_cursor(self) -> StreamCursor:
        stream = self._fleet.places.notable_stream
        identity, known = self._broker.identity(stream), StreamCursor.read(self._journal)
        if known is not None and known.stream == identity:
            return known
        if known is not None:
            return replace(known, stream=identity, sequence=0)
        cursor = StreamCursor(identity, self._broker.last_sequence(stream))
        cursor.store(self._journal)
        return cursor

    def step(self, now: datetime, *, seconds: float) -> None:
        """Take what there is, waiting at most `seconds` for it; notify of passages that are over, sum up days."""
        for message in self._reader.take(most=_AT_ONCE, seconds=seconds):
            self._take(message)
        self._settle()
        self._summarize(now)
        if now - self._forgot_at > _FORGET_EVERY:
            self._forgot_at = now
            forget_delivered(self._journal, now - _KEEP)

    def as_dict(self) -> dict[str, Any]:
        """Return whether somebody is at any array, the passages of this local day, and the last one."""
        found = [
            FleetPassage(name, array.site, row).as_dict()
            for name, array in self._arrays.items()
            for row in array.known.rows()
            if row.end is None
        ]
        newest = max(found, key=lambda one: one["start_time"] or "", default=None)
        day = datetime.combine(self._rules.local(datetime.now(UTC)).date(), daytime(), self._rules.zone)
        return {
            "presence": {"somebody": bool(found), "since": newest and newest["start_time"], "passage": newest},
            "passages_today": passages_ended_since(self._journal, day),
            "last_passage": self._last_ended(),
        }

    def _last_ended(self) -> dict[str, Any] | None:
        event = next(self._journal.events(types=["passage_ended"], most=1, newest_first=True), None)
        if event is None:
            return None
        kept = ("array", "site", "passage", "label", "probability", "cadence_per_minute")
        name = shown_name(event.body["label"], self._fleet.labels.names) if event.body["label"] else "Somebody"
        return {"name": name, "end_time": event.time, **{one: event.body[one] for one in kept}}

    def _take(self, message: Message) -> None:
        self._read_up_to = message.sequence
        name, event = message.subject.rpartition(".")[2], json.loads(message.data)
        array = self._arrays.get(name)
        if array is None or not array.known.add(event):
            return
        if event["type"] in PASSAGE_EVENTS:
            array.first.setdefault(event["passage"], message.sequence)
        if event["id"] > self._cursor.last.get(name, 0):
            self._cursor.last[name] = event["id"]
            self._add(_entry(self._run, name, array.site, event))

    def _settle(self) -> None:
        """Notify of what is over and has not been notified; all of it is settled then."""
        for name, array in self._arrays.items():
            for row in array.known.pop_complete():
                self._notify(name, array, row)
                for part in row.parts:
                    array.first.pop(part.passage, None)
        open_from = min((one for array in self._arrays.values() for one in array.first.values()), default=None)
        settled = self._read_up_to if open_from is None else open_from - 1
        if settled > self._cursor.sequence:
            self._cursor.sequence = settled
            self._cursor.store(self._journal)

    def _notify(self, name: str, array: _Array, row: PassageRow) -> None:
        if row.start_time is None or self._is_notified(name, row):
            return
        if self._rules.refusal(row, last_notified(self._journal, row.label, array=name)) is not None:
            return
        place = {"array": name, "site": array.site}
        self._add(JournalEntry(self._run, array.wording.passage(row) | place, row.recording, time=row.end_time))

    def _add(self, entry: JournalEntry) -> None:
        with self._journal.transaction():
            self._journal.add([entry])
            self._cursor.store(self._journal)

    def _is_notified(self, array: str, row: PassageRow) -> bool:
        return any(is_notified(self._journal, part.passage, array=array) for part in row.parts)

    def _summarize(self, now: datetime) -> None:
        """Sum up the day when its time has come and its passages are settled."""
        cursor = self._cursor
        if self._rules.summary_at is None or cursor.summaries_until is None:
            until = None if self._rules.summary_at is None else now
            if until != cursor.summaries_until:
                cursor.summaries_until = until
                cursor.store(self._journal)
            return
        due = summary_due(self._rules, cursor.summaries_until, now)
        if due is None or (now - due).total_seconds() < 2 * SETTLE_SECONDS:
            return
        cursor.summaries_until = due
        wording = Wording(self._rules, lambda label: label, f"fleet {self._fleet.broker.name}")
        facts = self._facts(day_before(self._rules, due), due)
        self._add(JournalEntry(self._run, wording.summary(facts), time=due))

    def _facts(self, since: datetime, until: datetime) -> SummaryFacts:
        passages = FleetPassages(self._fleet, self._broker, since=since)
        passages.read()
        found = [
            one
            for one in passages.found()
            if one.row.start_time is not None and since < one.row.start_time <= until
            and not (one.row.label and is_nobody(one.row.label))
        ]  # fmt: skip
        return SummaryFacts(
            since,
            until,
            [(one.row.start_time, self._name(one)) for one in found if one.row.start_time is not None],
            self._faults() or None,
            sum(not self._is_notified(one.array, one.row) for one in found),
        )

    def _name(self, one: FleetPassage) -> str:
        return f"{one.array}: {self._arrays[one.array].wording.name(one.row.label)}"

    def _faults(self) -> Sequence[SensorFault]:
        """Return the sensors that are bad now, as workers report them."""
        status = self._fleet.places.status(self._broker).all()
        return [
            SensorFault(f"{sensor['sensor']} of {name}", tuple(sensor.get("causes", ())))
            for name in self._arrays
            if name in status
            for sensor in json.loads(status[name].value).get("sensors", ())
            if sensor["state"] == State.BAD
        ]


def _entry(run: str, array: str, site: str, event: Mapping[str, Any]) -> JournalEntry:
    """Return an event of an array as it stands in the journal, which numbers its events itself."""
    body = {name: value for name, value in event.items() if name != "id"}
    body |= {"array": array, "site": site, "array_event": event["id"]}
    at, seconds = event["recording_started_at"], event.get("end_seconds")
    time = None
    if at is not None and seconds is not None:
        time = datetime.fromisoformat(at) + timedelta(seconds=seconds)
    return JournalEntry(run, body, event["recording"], event.get("sample"), time)
