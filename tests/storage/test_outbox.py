"""Events from the journal to somebody who is not always there, does not always listen, and does not take everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Thread

import pytest

from pipeline.core.errors import LinkError
from pipeline.core.event_json import EVENT_TYPES
from pipeline.storage import outbox
from pipeline.storage.journal import Journal, JournalEntry, StoredEvent
from pipeline.storage.outbox import EventRefused, Forwarder, Pauses, Position, Route, backlog, forget_others
from pipeline.storage.retention import Retention
from tests.conftest import TIMEOUT

LINK = ("output_link_down", "output_link_up")
SCHEMA = Path(__file__).parents[2] / "pipeline" / "core" / "events.schema.json"


class Mailbox:
    """Takes events as a script has it: what to do with the next ones, then it takes all."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.reachable, self.connections = True, 0
        self.refuses: set[int] = set()
        self.breaks_at: list[int] = []
        self._changed = Condition()

    def connect(self) -> None:
        with self._changed:
            self.connections += 1
            self._changed.notify_all()
        if not self.reachable:
            raise LinkError("nobody is there")

    def send(self, events: Sequence[StoredEvent]) -> Iterator[int]:
        for event in events:
            if event.id in self.refuses:
                raise EventRefused("not this one", event=event.id, tries=3)
            with self._changed:
                self.got.append(event.id)
                self._changed.notify_all()
            # It has the event, but its answer is lost.
            if event.id in self.breaks_at:
                self.breaks_at.remove(event.id)
                raise LinkError("the line went dead")
            yield event.id

    def idle(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(0.01)

    def close(self) -> None:
        pass

    def until(self, done: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(done, TIMEOUT), self.got[-5:]


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def tell(journal: Journal, events: int, kind: str = "decision", **body: object) -> list[int]:
    return journal.append([JournalEntry("a-run", {"type": kind, **body}) for _ in range(events)])


def route(*types: str, most: int = 1000, **options: bool) -> Route:
    return Route("box", types or ("decision", *LINK, "output_dropped"), most, **options)


@contextmanager
def forwarded(journal: Journal, box: Mailbox, way: Route, *, finish: float = TIMEOUT):
    """While it runs; at the end what waits is sent."""
    forwarder = Forwarder(journal.path, way, box, run="a-run", pauses=Pauses(0.01, 0.02))
    thread = Thread(target=forwarder.run)
    thread.start()
    try:
        box.until(lambda: box.connections > 0)
        yield forwarder
    finally:
        forwarder.stop(seconds=finish)
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def told(journal: Journal, *kinds: str) -> list[dict]:
    return [event.body for event in journal.events(types=kinds)]


def delivery(journal: Journal) -> tuple[int, int]:
    (row,) = journal.rows("SELECT last_id, dropped FROM deliveries WHERE target = 'box'")
    return row["last_id"], row["dropped"]


def test_the_types_of_events_are_those_of_the_schema():
    schema = json.loads(SCHEMA.read_text())["$defs"].values()
    types = [one["properties"]["type"] for one in schema if "type" in one.get("properties", {})]
    known = {name for one in types for name in one.get("enum", [one.get("const")])}
    assert known - {"replay_started", "replay_finished"} == set(EVENT_TYPES)
    assert len(set(EVENT_TYPES)) == len(EVENT_TYPES)


def test_whoever_is_new_gets_what_comes_from_now_on_and_only_what_it_chose(journal):
    tell(journal, 3)
    box = Mailbox()
    with forwarded(journal, box, route("decision")):
        tell(journal, 2, "tick")
        wanted = tell(journal, 120)
        tell(journal, 2, "tick")
        box.until(lambda: len(box.got) == 120)
    assert box.got == wanted
    assert delivery(journal) == (journal.last_id, 0)
    assert backlog(journal, route("decision")) == {"target": "box", "queued": 0, "dropped": 0}


def test_flapping_is_not_for_everybody(journal):
    Position(journal, "box")
    tell(journal, 1, "state_changed", notify=False)
    (notable,) = tell(journal, 1, "state_changed", notify=True)
    (plain,) = tell(journal, 1, "event_noticed")
    way = route("state_changed", "event_noticed", notable=True)
    assert backlog(journal, way)["queued"] == 2
    box = Mailbox()
    with forwarded(journal, box, way):
        box.until(lambda: len(box.got) == 2)
    assert box.got == [notable, plain]


def test_after_a_break_it_begins_behind_what_was_acknowledged(journal):
    """So nothing is missing, and what was sent twice comes twice at once."""
    Position(journal, "box")
    ids = tell(journal, 200)
    box = Mailbox()
    box.breaks_at = [ids[70], ids[120]]
    with forwarded(journal, box, route()):
        box.until(lambda: ids[-1] in box.got)
    got = [number for number in box.got if number <= ids[-1]]
    assert got == ids[:71] + ids[70:121] + ids[120:]
    downs, ups = told(journal, "output_link_down"), told(journal, "output_link_up")
    assert downs[0]["queued"] == 130
    assert ups[0]["queued"] >= 130  # and the word of the break itself
    assert len(downs) == len(ups) == 2
    assert downs[0]["target"] == "box"
    assert downs[0]["why"] == "the line went dead"


def test_a_dead_link_is_told_once_and_also_not_again_after_a_kill(journal):
    """Nor does telling it wake anything up."""
    box = Mailbox()
    box.reachable = False
    for tries in (5, 10):
        with forwarded(journal, box, route()):
            box.until(lambda tries=tries: box.connections >= tries)
    assert len(told(journal, *LINK)) == 1
    box.reachable = True
    with forwarded(journal, box, route()):
        box.until(lambda: len(box.got) >= 1)
    assert [event.type for event in journal.events(types=LINK)] == list(LINK)


def test_a_queue_has_a_bound_and_the_oldest_are_counted(journal):
    box = Mailbox()
    box.reachable = False
    with forwarded(journal, box, route("decision", most=40)):
        ids = tell(journal, 100)
        box.until(lambda: delivery_is(journal, dropped=60))
        box.reachable = True
        box.until(lambda: len(box.got) == 40)
    assert box.got == ids[60:]
    assert [(one["dropped"], one["target"]) for one in told(journal, "output_dropped")] == [(60, "box")]
    assert delivery(journal)[1] == 60


def delivery_is(journal: Journal, *, dropped: int) -> bool:
    with Journal(journal.path, read_only=True) as other:
        return delivery(other)[1] == dropped


def test_what_is_refused_again_and_again_does_not_block_the_rest(journal):
    Position(journal, "box")
    ids = tell(journal, 5)
    box = Mailbox()
    box.refuses = {ids[2]}
    with forwarded(journal, box, route("decision")):
        box.until(lambda: ids[-1] in box.got)
    assert box.got == ids[:2] + ids[3:]
    (dropped,) = told(journal, "output_dropped")
    assert (dropped["event"], dropped["dropped"]) == (ids[2], 1)
    assert "not this one" in dropped["why"]
    assert delivery(journal)[1] == 1


def test_a_kill_leads_to_repetition_never_to_loss(journal, monkeypatch):
    """A forwarder that had no time to store where it was."""
    monkeypatch.setattr(outbox, "_STORE_SECONDS", 1e9)
    monkeypatch.setattr(Position, "close", lambda self: None)
    Position(journal, "box")
    ids = tell(journal, 80)
    first, second = Mailbox(), Mailbox()
    for box in (first, second):
        with forwarded(journal, box, route("decision")):
            box.until(lambda box=box: ids[-1] in box.got)
    assert first.got == ids
    assert second.got == ids[1:]  # the first acknowledgement was stored


def test_a_journal_that_lost_its_end_is_followed_from_there(journal):
    """A damaged one may count some numbers again: they are others now."""
    tell(journal, 10)
    position = Position(journal, "box")
    journal.execute("DELETE FROM events WHERE id > 6")
    assert Position(journal, "box", known=position.last_id).last_id == 6


def test_a_journal_that_is_replaced_while_it_is_followed_is_opened_anew(journal, monkeypatch):
    """As the daemon does with a damaged one."""
    monkeypatch.setattr(outbox, "_JOURNAL_SECONDS", 0.01)
    box = Mailbox()
    with forwarded(journal, box, route("decision")):
        first = tell(journal, 3)
        box.until(lambda: box.got == first)
        fresh = journal.path.with_name("fresh")
        with Journal(fresh) as other:
            other.append([JournalEntry("a-run", {"type": "decision"}) for _ in range(3)])
        for end in ("-wal", "-shm", ""):
            journal.path.with_name(journal.path.name + end).rename(journal.path.with_name(f"aside{end}"))
        fresh.rename(journal.path)
        with Journal(journal.path) as other:
            second = tell(other, 2)
            box.until(lambda: box.got == first + second)


def test_pauses_grow_and_begin_anew_when_the_link_stood_long_enough():
    pauses = Pauses(1.0, 5.0)
    assert [pauses.after(0.0, 0.0) for _ in range(5)] == [1, 2, 4, 5, 5]
    assert pauses.after(4.9, 0.0) == 5
    assert pauses.after(5.0, 0.0) == 1
    assert pauses.after(0.0, 30.0) == 30
    assert pauses.after(0.0, 1e9) == 3600


def test_clearing_the_journal_leaves_what_others_still_have_to_get(journal, tmp_path):
    """Of what they chose, and no more than may wait for them; a target that is not configured holds nothing."""
    Position(journal, "box")
    Position(journal, "gone")
    for kind in ("decision", "tick"):
        tell(journal, 3000, kind, padding="x" * 200)

    def left(routes: list[Route]) -> dict[str, int]:
        Retention(tmp_path, journal, 10**6, 0, routes).enforce()
        rows = journal.rows("SELECT type, count(*) AS n FROM events GROUP BY type")
        return {row["type"]: row["n"] for row in rows}

    assert left([route("decision", most=100_000)])["decision"] == 3000
    assert 1200 <= left([route("decision", most=1200), route("tick", most=1)])["decision"] < 3000
    forget_others(journal, [route()])
    assert [row["target"] for row in journal.rows("SELECT target FROM deliveries")] == ["box"]
    journal.execute("UPDATE deliveries SET last_id = ?", (journal.last_id,))
    tell(journal, 3000, "paced", padding="x" * 200)
    assert left([route("decision", most=1200)]).get("decision", 0) < 1200
