"""Passages of the arrays of a fleet, as the broker holds them: collected, joined over recording borders, followed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pipeline.core.events import PassageEnd
from pipeline.core.passages import INTERRUPTED, LEAST_CONFIDENCE, PASSAGE_EVENTS, PassageRow, joined
from pipeline.fleet.config import Fleet
from pipeline.transport.nats import Broker, Message

_LONGEST = timedelta(hours=1)
"""A passage that overlaps a time was sent after that time, if the clocks of both machines agree to within this."""
_AT_ONCE = 64
_WAIT_SECONDS = 0.5
SETTLE_SECONDS = 15.0
"""After this time nothing continues a passage that a recording border cut."""


@dataclass(frozen=True, slots=True)
class FleetPassage:
    """A passage with the array that heard it and the site of that array."""

    array: str
    site: str
    row: PassageRow

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {"array": self.array, "site": self.site, **self.row.as_dict()}


@dataclass
class ArrayPassages:
    """The passages of one array, from its events in the order in which they were sent.

    Events that come again, which their numbers tell, are skipped. `pop_complete` returns each passage once: when it
    has ended and, if a recording border cut it, nothing can continue it.
    """

    least_confidence: float = LEAST_CONFIDENCE
    _rows: dict[str, PassageRow] = field(default_factory=dict)
    _ended_at: dict[str, float] = field(default_factory=dict)
    _last: int = 0
    _newest: str = ""

    def add(self, event: Mapping[str, Any]) -> bool:
        """Take an event of any type; return False if it came before."""
        if event["id"] <= self._last:
            return False
        self._last = event["id"]
        if event["type"] not in PASSAGE_EVENTS:
            return True
        at = event["recording_started_at"]
        row = PassageRow.of(event, None if at is None else datetime.fromisoformat(at))
        self._rows[row.passage], self._newest = row, row.passage
        if row.end is not None:
            self._ended_at[row.passage] = time.monotonic()
        return True

    def rows(self) -> list[PassageRow]:
        """Return all passages. Only the newest one can be going on; another one without an end was interrupted."""
        whole = [
            row if row.end is not None or row.passage == self._newest else replace(row, end=INTERRUPTED)
            for row in self._rows.values()
        ]
        return joined(whole, least_confidence=self.least_confidence)

    def pop_complete(self) -> list[PassageRow]:
        """Return the passages that are over, and forget them."""
        complete = [row for row in self.rows() if self._is_complete(row)]
        for row in complete:
            for part in row.parts:
                del self._rows[part.passage]
                self._ended_at.pop(part.passage, None)
        return complete

    def _is_complete(self, row: PassageRow) -> bool:
        if row.end != PassageEnd.RECORDING_ENDED or row.start_time is None:
            return row.end is not None
        last = row.parts[-1].passage
        return self._newest != last or time.monotonic() - self._ended_at[last] > SETTLE_SECONDS


class FleetPassages:
    """The passages of some arrays of a fleet, or of all, from a time on."""

    def __init__(
        self, fleet: Fleet, broker: Broker, arrays: Collection[str] = (), *, since: datetime | None = None
    ) -> None:
        places, names = fleet.places, tuple(arrays)
        subject = places.passages(names[0] if len(names) == 1 else "*")
        start = 1 if since is None else since - _LONGEST
        self._reader = broker.read(places.notable_stream, subject, start)
        self._arrays = {
            array.name: (array.place, ArrayPassages(fleet.decisions.confidence))
            for array in fleet.arrays
            if not names or array.name in names
        }

    def read(self, progress: Callable[[int, int], None] = lambda done, left: None) -> None:
        """Read what is there; `progress` gets the numbers of messages read and left."""
        for done, message in enumerate(self._reader.to_the_end(), start=1):
            self._add(message)
            progress(done, message.pending)

    def found(self) -> list[FleetPassage]:
        """Return all passages that were read, by time; those without a time come last."""
        rows = [FleetPassage(array, site, row) for array, (site, known) in self._arrays.items() for row in known.rows()]
        return sorted(rows, key=_by_time)

    def follow(self) -> Iterator[FleetPassage]:
        """Yield each passage once it is complete, first those that were read before; never ends."""
        while True:
            complete = [
                FleetPassage(array, site, row)
                for array, (site, known) in self._arrays.items()
                for row in known.pop_complete()
            ]
            yield from sorted(complete, key=_by_time)
            for message in self._reader.take(most=_AT_ONCE, seconds=_WAIT_SECONDS):
                self._add(message)

    def _add(self, message: Message) -> None:
        array = message.subject.rpartition(".")[2]
        if array in self._arrays:
            self._arrays[array][1].add(json.loads(message.data))


def last_passage(fleet: Fleet, broker: Broker, array: str) -> dict[str, Any] | None:
    """Return the newest passage of an array in short, ready for JSON."""
    message = broker.last(fleet.places.notable_stream, fleet.places.passages(array))
    if message is None:
        return None
    known = ArrayPassages()
    known.add(json.loads(message.data))
    (row,) = known.rows()
    kept = ("passage", "start_time", "end_time", "label", "probability", "reason", "end")
    return {name: value for name, value in row.as_dict().items() if name in kept}


def _by_time(one: FleetPassage) -> tuple[bool, float, str]:
    start = one.row.start_time
    return start is None, 0.0 if start is None else start.timestamp(), one.array
