"""From the journal to another machine: every event, in order, over a link that may be dead for days.

The journal is the queue. A forwarder remembers the last event that the other side has acknowledged and begins behind
it again whenever it must: what was acknowledged is never lost, what was not is sent once more, and its id tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from pipeline.core.errors import LinkError, StorageError
from pipeline.core.events import Notice, NoticeKind
from pipeline.storage.journal import Journal, JournalEntry, Row, StoredEvent, utc

_PORTION = 50
_LOOK_SECONDS = 0.25
_STORE_SECONDS = 1.0
"""So much may be sent twice after a kill; the disk is not worn out by every single acknowledgement."""
_TELL_SECONDS = 60.0
_JOURNAL_SECONDS = 2.0
_LONGEST_ASKED_SECONDS = 3600.0


class EventRefused(LinkError):
    """The other side is there, but does not take this event; after so many `tries` it is given up."""

    def __init__(self, message: str, *, event: int, tries: int) -> None:
        super().__init__(message)
        self.event, self.tries = event, tries


class Target(Protocol):
    """The other side of a link, in the hands of one thread. Every verb may raise `LinkError`; then it is closed."""

    def connect(self) -> None: ...

    def send(self, events: Sequence[StoredEvent]) -> Iterator[int]:
        """The ids of events that the other side has from now on, in the order in which they were given.

        `EventRefused` is for the first that it has not.
        """
        ...

    def idle(self, seconds: float) -> None:
        """There is nothing to send for the moment; keep the link alive."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Route:
    """Which events a target gets, and how many may wait for it."""

    target: str
    types: tuple[str, ...]
    most_waiting: int
    notable: bool = False
    """Without changes of state that nobody has to hear of, because a sensor flaps."""

    def waiting(self, journal: Journal, after: int, most: int) -> list[StoredEvent]:
        # By their ids: sorting all that waits, found by its type, would take longer each time.
        query = f"SELECT * FROM events WHERE id > ? AND +{self._chosen} ORDER BY id LIMIT ?"
        return [StoredEvent.of(row) for row in journal.rows(query, (after, *self.types, most))]

    def count_waiting(self, journal: Journal, after: int) -> int:
        query = f"SELECT count(*) AS n FROM events WHERE {self._chosen} AND id > ?"
        return int(journal.rows(query, (*self.types, after))[0]["n"])

    def excess(self, journal: Journal, after: int) -> tuple[int, int]:
        """How many wait beyond the bound, and the last of them."""
        excess = self.count_waiting(journal, after) - self.most_waiting
        if excess <= 0:
            return 0, after
        query = f"SELECT id FROM events WHERE id > ? AND +{self._chosen} ORDER BY id LIMIT 1 OFFSET ?"
        return excess, int(journal.rows(query, (after, *self.types, excess - 1))[0]["id"])

    @property
    def _chosen(self) -> str:
        notable = " AND coalesce(json_extract(body, '$.notify'), 1)" if self.notable else ""
        return f"type IN ({', '.join('?' * len(self.types))}){notable}"


def owed_after(journal: Journal, route: Route) -> int | None:
    """The event behind which all that a route chooses must stay in the journal; None if it was never used."""
    rows = journal.rows("SELECT last_id FROM deliveries WHERE target = ?", (route.target,))
    return route.excess(journal, rows[0]["last_id"])[1] if rows else None


def backlog(journal: Journal, route: Route) -> Row:
    """How many events wait for a target, and how many it will never get."""
    rows = journal.rows("SELECT last_id, dropped FROM deliveries WHERE target = ?", (route.target,))
    queued, dropped = (route.count_waiting(journal, rows[0]["last_id"]), rows[0]["dropped"]) if rows else (0, 0)
    return {"target": route.target, "queued": queued, "dropped": dropped}


def forget_others(journal: Journal, routes: Sequence[Route]) -> None:
    """Whoever is no longer told anything begins at the end if he ever comes again."""
    names = [route.target for route in routes]
    journal.execute(f"DELETE FROM deliveries WHERE target NOT IN ({', '.join('?' * len(names))})", names)


def forget_delivered(journal: Journal, before: datetime) -> None:
    """Remove events from before a time that every target has."""
    journal.execute(
        "DELETE FROM events WHERE time < ? AND id <= (SELECT coalesce(min(last_id), 0) FROM deliveries)",
        (utc(before),),
    )


class Position:
    """Up to where a target has everything. It is stored now and then, and when it is closed.

    A target that is new begins at the present end: it did not ask for the past.
    """

    def __init__(self, journal: Journal, target: str, *, known: int | None = None) -> None:
        self._journal, self._target = journal, target
        newest = journal.last_id
        rows = journal.rows("SELECT last_id, dropped FROM deliveries WHERE target = ?", (target,))
        if not rows:
            journal.execute("INSERT INTO deliveries (target, last_id) VALUES (?, ?)", (target, newest))
            rows = [{"last_id": newest, "dropped": 0}]
        # A journal that was damaged may have lost its end, and counts on from what is left.
        self.last_id: int = min(rows[0]["last_id"] if known is None else known, newest)
        self.dropped: int = rows[0]["dropped"]
        self._stored = rows[0]["last_id"], self.dropped
        self._stored_at = -inf

    def move(self, last_id: int) -> None:
        self.last_id = max(self.last_id, last_id)
        if time.monotonic() - self._stored_at > _STORE_SECONDS:
            self.store()

    def skip(self, last_id: int, events: int) -> None:
        self.last_id = max(self.last_id, last_id)
        self.dropped += events
        self.store()

    def store(self) -> None:
        """If the disk refuses, it is tried again later: sending goes on, and at worst is repeated."""
        if (self.last_id, self.dropped) == self._stored:
            return
        self._stored_at = time.monotonic()
        with suppress(StorageError):
            self._journal.execute(
                "UPDATE deliveries SET last_id = ?, dropped = ?, time = ? WHERE target = ?",
                (self.last_id, self.dropped, utc(datetime.now(UTC)), self._target),
            )
            self._stored = self.last_id, self.dropped

    def close(self) -> None:
        self.store()


@dataclass(slots=True)
class Pauses:
    """Between two attempts, doubled each time, unless the link stood for at least the longest of them."""

    first_seconds: float
    most_seconds: float
    _next: float = 0.0

    def after(self, stood_seconds: float, asked_seconds: float) -> float:
        pause = self.first_seconds if stood_seconds >= self.most_seconds else self._next or self.first_seconds
        self._next = min(2 * pause, self.most_seconds)
        return max(pause, min(asked_seconds, _LONGEST_ASKED_SECONDS))


class Forwarder:
    """Sends the events of a route to its target until it is stopped, whatever the link and the journal do meanwhile.

    What becomes of the link it tells in the journal, and to `report`.
    """

    def __init__(
        self,
        path: Path,
        route: Route,
        target: Target,
        *,
        run: str,
        pauses: Pauses,
        report: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        self._path, self._route, self._target = path, route, target
        self._run, self._pauses, self._report = run, pauses, report
        self._stopping = Event()
        self._until = inf
        self._known: int | None = None
        self._connected_at: float | None = None
        self._down_since: float | None = None
        self._storage_trouble = ""
        self._tries: tuple[int, int] = (0, 0)
        self._told_drops, self._drops_told_at = 0, -inf

    def stop(self, *, seconds: float = 0.0) -> None:
        """Send what waits if that takes no longer than so many seconds, then end."""
        self._until = time.monotonic() + seconds
        self._stopping.set()

    def run(self) -> None:
        while not self._over():
            try:
                with Journal(self._path) as journal, closing(self._position(journal)) as position:
                    self._follow(journal, position)
            except StorageError as error:
                self._report_once(str(error))
                self._wait(_JOURNAL_SECONDS)
        self._close()

    def _report_once(self, why: str) -> None:
        if why != self._storage_trouble:
            self._storage_trouble = why
            self._report(Notice(NoticeKind.STORAGE_READ_ONLY, {"target": self._route.target, "why": why}))

    def _position(self, journal: Journal) -> Position:
        position = Position(journal, self._route.target, known=self._known)
        if self._known is None:
            self._told_drops = position.dropped
            if self._last_word(journal) == NoticeKind.OUTPUT_LINK_DOWN:
                self._down_since = time.monotonic()
        return position

    def _last_word(self, journal: Journal) -> str | None:
        """Of the link: what was told before a kill need not be told again."""
        rows = journal.rows(
            "SELECT type FROM events WHERE type IN (?, ?) AND json_extract(body, '$.target') = ? "
            "ORDER BY id DESC LIMIT 1",
            (NoticeKind.OUTPUT_LINK_DOWN, NoticeKind.OUTPUT_LINK_UP, self._route.target),
        )
        return rows[0]["type"] if rows else None

    def _follow(self, journal: Journal, position: Position) -> None:
        while not self._over():
            journal.require_in_place()
            self._drop_excess(journal, position)
            try:
                self._connect()
                burden = self._burden(journal, position) if self._down_since is not None else None
                busy = self._forward(journal, position)
                self._tell_up(journal, burden)
                self._tell_drops(journal, position)
                if not busy and self._stopping.is_set():
                    self._until = -inf
                elif not busy:
                    self._target.idle(_LOOK_SECONDS)
            except LinkError as error:
                self._failed(journal, position, error)
            finally:
                self._known = position.last_id

    def _over(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._until

    def _connect(self) -> None:
        if self._connected_at is None:
            self._target.connect()
            self._connected_at = time.monotonic()

    def _forward(self, journal: Journal, position: Position) -> bool:
        """One portion; whether there may be more."""
        newest = journal.last_id
        events = self._route.waiting(journal, position.last_id, _PORTION)
        if events:
            for number in self._target.send(events):
                position.move(number)
        if len(events) == _PORTION:
            return True
        position.move(newest)
        return False

    def _failed(self, journal: Journal, position: Position, error: LinkError) -> None:
        if isinstance(error, EventRefused) and self._given_up(journal, position, error):
            return
        stood = 0.0 if self._connected_at is None else time.monotonic() - self._connected_at
        self._close()
        self._tell_down(journal, position, error)
        if self._stopping.is_set():
            self._until = -inf
        self._wait(self._pauses.after(stood, error.retry_after_seconds))

    def _given_up(self, journal: Journal, position: Position, error: EventRefused) -> bool:
        """Whether an event was refused often enough; then the next one has its turn."""
        tried = self._tries[1] + 1 if self._tries[0] == error.event else 1
        self._tries = error.event, tried
        if tried < error.tries:
            return False
        position.skip(error.event, 1)
        self._told_drops += 1
        self._tell(journal, NoticeKind.OUTPUT_DROPPED, dropped=1, event=error.event, why=f"it was refused: {error}")
        return True

    def _drop_excess(self, journal: Journal, position: Position) -> None:
        # Ids are not sparser than events: usually there is nothing to count.
        if journal.last_id - position.last_id > self._route.most_waiting:
            excess, last = self._route.excess(journal, position.last_id)
            if excess:
                position.skip(last, excess)

    def _close(self) -> None:
        self._connected_at = None
        self._target.close()

    def _wait(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def _tell_down(self, journal: Journal, position: Position, error: LinkError) -> None:
        if self._down_since is None:
            self._down_since = time.monotonic()
            self._tell(journal, NoticeKind.OUTPUT_LINK_DOWN, why=str(error), **self._burden(journal, position))

    def _tell_up(self, journal: Journal, burden: Row | None) -> None:
        """With what waited when the link was there again, though much of it may be sent by now."""
        if self._down_since is not None and burden is not None:
            seconds, self._down_since = round(time.monotonic() - self._down_since, 1), None
            self._tell(journal, NoticeKind.OUTPUT_LINK_UP, after_seconds=seconds, **burden)

    def _tell_drops(self, journal: Journal, position: Position) -> None:
        """All that were skipped since it was told last; nobody is interested while the link is dead."""
        dropped = position.dropped - self._told_drops
        if dropped and time.monotonic() - self._drops_told_at > _TELL_SECONDS:
            self._told_drops, self._drops_told_at = position.dropped, time.monotonic()
            why = f"more than {self._route.most_waiting} events waited; the oldest were skipped"
            self._tell(journal, NoticeKind.OUTPUT_DROPPED, dropped=dropped, why=why)

    def _burden(self, journal: Journal, position: Position) -> Row:
        return {"queued": self._route.count_waiting(journal, position.last_id), "dropped": position.dropped}

    def _tell(self, journal: Journal, kind: NoticeKind, **details: Any) -> None:
        notice = Notice(kind, {"target": self._route.target, **details})
        self._report(notice)
        with suppress(StorageError):
            journal.append([JournalEntry(self._run, {"type": kind.value, **notice.details})])
