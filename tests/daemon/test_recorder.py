"""From facts to the journal: stored, shown once stored, and waiting while that is impossible."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.core.errors import StorageError
from pipeline.core.events import (
    Gap,
    Notice,
    NoticeKind,
    PassageEnd,
    PassageEnded,
    PassageStarted,
    PassageUpdated,
    RecordingFinished,
    RecordingStarted,
    Tick,
)
from pipeline.daemon import recorder as module
from pipeline.daemon.recorder import Recorder
from pipeline.storage.journal import Journal, JournalEntry
from tests.passages import passage

KEYS = {"id", "run", "time"}
STARTED = RecordingStarted("r", 1000, ("1",), datetime(2026, 5, 1, 4, 30, tzinfo=UTC))


@dataclass
class Desk:
    """A recorder that may try again at once, and what it has shown."""

    path: Path
    shown: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.path, "a run", show=[self.shown.append])
        self.recorder.choices = json.dumps({"alpha": 0.01})

    def tell(self, *facts: object) -> None:
        for fact in facts:
            self.recorder.observe(fact)
        self.recorder.commit()

    def lock_disk(self, locked: bool) -> None:
        """As SQLite does it on a disk that has become read-only."""
        self.recorder.journal.execute(f"PRAGMA query_only = {int(locked)}")

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.shown]


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Desk:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.0)
    desk = Desk(tmp_path / "journal.sqlite")
    yield desk
    desk.recorder.close()


def ticks(start: int, stop: int) -> list[Tick]:
    return [Tick(sample, 1.0) for sample in range(start, stop)]


def test_events_are_stored_with_the_time_of_their_sample_and_shown_with_their_id(desk):
    desk.tell(STARTED, Tick(2500, 1.0), Gap(3000, 4000, "lost"), RecordingFinished("r", 4000, "f"))
    with Journal(desk.path, read_only=True) as journal:
        stored = list(journal.events())
        (row,) = journal.rows("SELECT * FROM recordings")
    assert [(event.id, event.type) for event in stored] == [(event["id"], event["type"]) for event in desk.shown]
    assert [event.sample for event in stored if event.type in ("tick", "gap")] == [2500, 4000]
    assert [event.time for event in stored if event.type == "tick"] == ["2026-05-01T04:30:02.500Z"]
    assert (row["name"], row["run"], row["samples"], json.loads(row["choices"])) == (
        "r",
        "a run",
        4000,
        {"alpha": 0.01},
    )


def test_nobody_is_shown_what_is_not_stored(desk):
    desk.recorder.observe(STARTED)
    assert desk.shown == []


def test_while_the_disk_refuses_events_wait_and_are_stored_in_order_when_it_does_no_longer(desk):
    """What was told meanwhile, and that it could not be told."""
    desk.tell(STARTED)
    desk.lock_disk(True)
    desk.tell(*ticks(0, 5))
    assert desk.recorder.read_only
    desk.tell(*ticks(5, 10))
    assert desk.kinds == ["recording_started"]
    desk.lock_disk(False)
    desk.tell(Tick(10, 1.0))
    assert not desk.recorder.read_only
    desk.tell()
    kinds = ["tick"] * 5 + ["storage_read_only"] + ["tick"] * 6 + ["storage_recovered"]
    assert desk.kinds[1:] == kinds
    assert [event["start_sample"] for event in desk.shown if event["type"] == "tick"] == list(range(11))
    assert desk.shown[-1]["events_lost"] == 0
    assert "readonly" in desk.shown[6]["why"]


def test_only_so_many_can_wait_and_the_others_are_counted(desk, monkeypatch):
    monkeypatch.setattr(module, "_MOST_WAITING", 100)
    desk.tell(STARTED)
    desk.lock_disk(True)
    desk.tell(*ticks(0, 1))
    desk.tell(*ticks(1, 150))
    desk.lock_disk(False)
    desk.tell()
    desk.tell()
    told = [event["start_sample"] for event in desk.shown if event["type"] == "tick"]
    assert told == list(range(50, 150))
    assert desk.shown[-1]["events_lost"] == 51  # fifty of them, and the word that the disk refuses


def damage(path: Path) -> None:
    """All but the first page of the file; whoever has it open must look at it again."""
    with Journal(path) as other:
        other.append([JournalEntry("another", {"type": "tick"})])
        other.compact()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


def test_a_journal_that_gets_damaged_is_replaced_and_nothing_that_waits_is_lost(desk, tmp_path):
    desk.tell(STARTED, *ticks(0, 500))
    last = desk.shown[-1]["id"]
    damage(desk.path)
    desk.tell(*ticks(500, 510))
    desk.tell(Notice(NoticeKind.RUN_STOPPED))
    assert desk.kinds[-12:] == ["tick"] * 10 + ["journal_replaced", "run_stopped"]
    assert all(event["id"] > last for event in desk.shown[-12:])
    assert (tmp_path / desk.shown[-2]["moved_to"]).exists()
    with Journal(desk.path, read_only=True) as journal:
        journal.check()
        assert [event.id for event in journal.events()][-12:] == [event["id"] for event in desk.shown[-12:]]


def test_a_damaged_journal_on_a_disk_without_room_for_a_new_one_waits_for_it(desk, monkeypatch, tmp_path):
    """The damaged one stays in its place until there is a whole one to take it."""
    desk.tell(STARTED, *ticks(0, 500))
    damage(desk.path)
    fresh = tmp_path / "journal.sqlite.fresh"
    fresh.mkdir()  # in the way of the new one
    desk.tell(*ticks(500, 510))
    assert desk.recorder.read_only
    assert desk.kinds.count("tick") == 500
    fresh.rmdir()
    desk.tell()
    desk.tell()
    assert desk.kinds[-13:] == [*["tick"] * 10, "storage_read_only", "journal_replaced", "storage_recovered"]


def stored_rows(desk: Desk) -> list[dict]:
    with Journal(desk.path, read_only=True) as journal:
        return journal.rows("SELECT * FROM passages ORDER BY rowid")


def test_a_passage_has_one_row_that_follows_its_events(desk):
    begun, grown = passage("r", 1, 3), passage("r", 1, 12.5, cadence=(110.0, 0.5))
    desk.tell(STARTED, PassageStarted(3000, begun))
    (row,) = stored_rows(desk)
    assert (row["passage"], row["run"], row["stop_sample"], row["end"]) == ("r.p1000", "a run", 3000, None)
    desk.tell(PassageUpdated(12_500, grown))
    desk.tell(PassageEnded(16_000, grown, PassageEnd.QUIET))
    (row,) = stored_rows(desk)
    assert json.loads(row.pop("body")) == {name: desk.shown[-1][name] for name in desk.shown[-1].keys() - KEYS}
    assert row == {
        "passage": "r.p1000",
        "recording": "r",
        "run": "a run",
        "start_time": "2026-05-01T04:30:01.000Z",
        "end_time": "2026-05-01T04:30:12.500Z",
        "start_sample": 1000,
        "stop_sample": 12_500,
        "label": "human",
        "probability": pytest.approx(0.908877),
        "presence": 0.9,
        "cadence_per_minute": 110.0,
        "sensors_used": "[1, 2]",
        "end": "quiet",
        "model": "",
    }


def test_a_passage_and_its_event_are_stored_together_or_not_at_all(desk):
    """What is not committed when it is killed is in neither table; told again, it is there once."""
    desk.tell(STARTED, PassageStarted(3000, passage("r", 1, 3)))
    desk.recorder.observe(PassageEnded(9000, passage("r", 1, 8), PassageEnd.QUIET))
    desk.recorder.observe(PassageStarted(20_000, passage("r", 18, 20)))
    assert [row["end"] for row in stored_rows(desk)] == [None]
    with Journal(desk.path, read_only=True) as journal:
        assert [event.type for event in journal.events()] == ["recording_started", "passage_started"]
    desk.tell(PassageStarted(3000, passage("r", 1, 3)))
    assert [(row["passage"], row["end"]) for row in stored_rows(desk)] == [("r.p1000", None), ("r.p18000", None)]


def test_a_transaction_that_fails_half_way_leaves_no_passage(desk):
    desk.tell(STARTED)
    entry = JournalEntry("a run", {"type": "passage_started"}, also=(("INSERT INTO nowhere VALUES (1)", ()),))
    with pytest.raises(StorageError, match="no such table"):
        desk.recorder.journal.append([JournalEntry("a run", {"type": "tick"}), entry])
    assert [event["type"] for event in desk.shown] == ["recording_started"]
    with Journal(desk.path, read_only=True) as journal:
        assert [event.type for event in journal.events()] == ["recording_started"]


def test_passages_wait_while_the_disk_refuses_and_outlive_a_damaged_journal(desk):
    desk.tell(STARTED, PassageStarted(3000, passage("r", 1, 3)))
    desk.lock_disk(True)
    desk.tell(PassageEnded(9000, passage("r", 1, 8), PassageEnd.QUIET))
    assert [row["end"] for row in stored_rows(desk)] == [None]
    desk.lock_disk(False)
    desk.tell()
    assert [row["end"] for row in stored_rows(desk)] == ["quiet"]
    journal = sqlite3.connect(desk.path)
    (page,) = journal.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
    journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()
    with desk.path.open("r+b") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\xa5" * 4096)
    desk.tell(PassageStarted(20_000, passage("r", 18, 20)))
    desk.tell()
    assert "journal_replaced" in desk.kinds
    assert [(row["passage"], row["end"]) for row in stored_rows(desk)] == [("r.p1000", "quiet"), ("r.p18000", None)]
