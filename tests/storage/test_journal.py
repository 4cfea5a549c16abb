"""The journal on real files: what is stored stays, damage is survived, no id is ever given twice."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.core.errors import StorageError
from pipeline.storage.journal import Journal, JournalEntry, opened_or_replaced
from pipeline.storage.schema import MIGRATIONS, SCHEMA_VERSION

EVENTS = 3000


def entry(number: int) -> JournalEntry:
    return JournalEntry("a run", {"type": "decision", "number": number, "padding": "x" * 200}, "r", number)


@pytest.fixture
def path(tmp_path) -> Path:
    """A journal of three thousand events and a label."""
    file = tmp_path / "journal.sqlite"
    with Journal(file) as journal:
        journal.append([entry(number) for number in range(EVENTS)])
        journal.execute("INSERT INTO labels VALUES (7, 'r', 0, 10, 'human', 'me', '2026-01-01', '', 'command', NULL)")
    return file


def test_events_come_back_in_order_with_their_ids(path):
    with Journal(path, read_only=True) as journal:
        stored = list(journal.events())
        assert [event.id for event in stored] == list(range(1, EVENTS + 1))
        assert [event.body["number"] for event in stored] == list(range(EVENTS))
        assert [event.id for event in journal.events(after=10, most=2)] == [11, 12]
        assert [event.id for event in journal.events(types=["decision"], most=1, newest_first=True)] == [EVENTS]
        assert not list(journal.events(run="another"))


def test_all_of_a_portion_or_nothing(path):
    """An event that JSON cannot say takes those beside it back."""
    with Journal(path) as journal:
        with pytest.raises(ValueError, match="JSON compliant"):
            journal.append([entry(1), JournalEntry("a run", {"type": "decision", "value": float("nan")})])
        assert journal.last_id == EVENTS
        assert journal.append([entry(2)]) == [EVENTS + 1]


def test_ids_of_removed_events_are_not_given_again(path):
    with Journal(path) as journal:
        journal.execute("DELETE FROM events WHERE id > 100")
        assert journal.append([entry(0)]) == [EVENTS + 1]


def test_one_that_another_program_holds_says_so(path, monkeypatch):
    """Neither the disk nor its rights are to blame."""
    monkeypatch.setattr("pipeline.storage.journal._BUSY_SECONDS", 0.05)
    with Journal(path) as holder, Journal(path) as waiting, holder.transaction():
        with pytest.raises(StorageError, match=r"locked; another program has been writing to it for 0\.05 s") as caught:
            waiting.append([entry(0)])
        assert not caught.value.damaged


def test_a_journal_of_the_future_is_left_alone(path):
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(StorageError, match="use a newer gemmed") as caught:
        opened_or_replaced(path)
    assert not caught.value.damaged


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_every_older_schema_is_renewed_and_keeps_its_events(tmp_path, version):
    path = tmp_path / "journal.sqlite"
    connection = sqlite3.connect(path)
    for statements in MIGRATIONS[:version]:
        for statement in statements:
            connection.execute(statement)
    values = (5, "a run", None, None, "2026-01-01", "tick", '{"type": "tick"}')
    connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="start gemmed run once"):
        Journal(path, read_only=True)
    with Journal(path) as journal:
        assert [event.id for event in journal.events()] == [5]
        assert journal.append([entry(0)]) == [6]
        assert journal.rows("SELECT * FROM models") == []


def test_who_only_reads_makes_nothing(tmp_path):
    with pytest.raises(StorageError, match="start gemmed run first"):
        Journal(tmp_path / "journal.sqlite", read_only=True)
    assert not list(tmp_path.iterdir())


def overwrite_the_middle(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xa5" * 20_000)


DAMAGES = {
    "bytes overwritten in the middle": overwrite_the_middle,
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_bytes(b"not a database at all" * 1000),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_journal_is_moved_aside_and_what_can_be_read_is_taken_over(path, damage):
    DAMAGES[damage](path)
    broken = path.read_bytes()
    journal, details = opened_or_replaced(path)
    with journal:
        assert details is not None
        assert (path.parent / details["moved_to"]).read_bytes() == broken
        assert path.name in details["why"]
        saved = [event.id for event in journal.events()]
        assert details["rows_saved"]["events"] == len(saved) == len(set(saved))
        assert all(event.body["number"] == event.id - 1 for event in journal.events())
        (new,) = journal.append([entry(0)])
        assert new > EVENTS
        assert new > 1000 * datetime(2026, 1, 1, tzinfo=UTC).timestamp()
        journal.check()
    again, details = opened_or_replaced(path)
    with again:
        assert details is None
        assert again.append([entry(0)]) == [new + 1]
    assert not list(path.parent.glob("*.fresh*"))


def test_damage_in_the_middle_costs_the_middle(path):
    """What comes before and after it is there, the newest event and the label among it."""
    overwrite_the_middle(path)
    journal, details = opened_or_replaced(path)
    with journal:
        saved = [event.id for event in journal.events()]
        assert saved[0] == 1
        assert saved[-1] == EVENTS
        assert EVENTS / 2 < len(saved) < EVENTS
        assert [row["id"] for row in journal.rows("SELECT id FROM labels")] == [7]
        assert details["rows_saved"]["labels"] == 1


def test_a_connection_knows_that_its_file_was_moved_aside(path):
    with Journal(path) as old:
        assert old.in_place
        overwrite_the_middle(path)
        new, details = opened_or_replaced(path)
        with new:
            assert details is not None
            assert not old.in_place
            assert new.in_place
            new.append([entry(0)])
            last = new.last_id
            with pytest.raises(StorageError, match="open it again"):
                old.require_in_place()
            old.close()  # must not touch what belongs to the new one
    with Journal(path) as journal:
        assert journal.last_id == last
