"""What is kept and what is removed when the share of the disk is used up."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from pipeline.storage.journal import Journal, JournalEntry, utc
from pipeline.storage.retention import Retention, RetentionClass, used_bytes, worth_keeping

PIECE, BYTES = 1000, 100_000
OLD = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def journal(tmp_path) -> Journal:
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def keep_pieces(journal: Journal, n: int, *, kept_at: str = OLD) -> None:
    """Pieces of a hundred kilobytes."""
    directory = journal.path.parent / "sound" / "r"
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(n):
        (directory / f"{number}.flac").write_bytes(bytes(BYTES))
        journal.execute(
            "INSERT INTO pieces (recording, start, stop, delivered, file, bytes, kept_at) "
            "VALUES ('r', ?, ?, '[]', ?, ?, ?)",
            (number * PIECE, (number + 1) * PIECE, f"r/{number}.flac", BYTES, kept_at),
        )


def tell(journal: Journal, piece: int, kind: str, **body: object) -> None:
    journal.append([JournalEntry("a run", {"type": kind, **body}, "r", piece * PIECE + 5)])


def there(directory: Path) -> list[int]:
    return sorted(int(file.stem) for file in (directory / "sound" / "r").iterdir())


def retention(journal: Journal, pieces: float, **options) -> Retention:
    """With room for so many pieces beside the journal."""
    used = used_bytes(journal.path.parent) - used_bytes(journal.path.parent / "sound")
    return Retention(journal.path.parent, journal, round(used + pieces * BYTES), **options)


def test_what_fits_is_left_alone(journal, tmp_path):
    keep_pieces(journal, 5)
    assert retention(journal, 5.5).enforce() is None
    assert there(tmp_path) == [0, 1, 2, 3, 4]


def test_what_is_worth_least_goes_first_and_it_is_told_why(journal, tmp_path):
    """Ordinary, decided, anomalous, reference, labelled; of each the oldest first."""
    keep_pieces(journal, 12)
    tell(journal, 1, "decision", label="human")
    tell(journal, 2, "decision", label=None)
    tell(journal, 3, "fault_opened")
    tell(journal, 4, "decision", label="human")
    tell(journal, 4, "event_noticed")
    worth_keeping(journal, "r", 5 * PIECE, 6 * PIECE, RetentionClass.REFERENCE)
    journal.execute("INSERT INTO labels VALUES (1, 'r', 5500, 6500, 'human', 'me', ?, '', 'command', NULL)", (OLD,))
    worth_keeping(journal, "r", 0, 1, RetentionClass.LABELLED)
    order = [2, 7, 8, 9, 10, 11, 1, 3, 4, 5, 0, 6]
    room, gone = 11.5, []
    while len(gone) < len(order):
        before = set(there(tmp_path))
        pruned = retention(journal, room).enforce()
        assert pruned is not None
        now = sorted(before - set(there(tmp_path)), key=order.index)
        gone += now
        assert sum(pruned.removed.values()) == len(now)
        assert pruned.bytes_removed == len(now) * BYTES
        assert gone == order[: len(gone)]
        assert sum(pruned.kept.values()) == 12 - len(gone)
        room = len(order) - len(gone) - 0.5
    assert [row["file"] for row in journal.rows("SELECT file FROM pieces")] == [None] * 12


def test_the_reasons_are_named(journal):
    keep_pieces(journal, 4)
    tell(journal, 1, "state_changed")
    worth_keeping(journal, "r", 3 * PIECE, 4 * PIECE, RetentionClass.LABELLED)
    pruned = retention(journal, 3.5).enforce()
    assert pruned is not None
    assert pruned.as_dict()["removed_pieces"] == {"ordinary": 1}
    assert pruned.as_dict()["kept_pieces"] == {"ordinary": 1, "anomalous": 1, "labelled": 1}
    assert pruned.as_dict()["bytes_over_budget"] == 0


def test_a_label_that_comes_later_saves_its_sound(journal, tmp_path):
    keep_pieces(journal, 4)
    retention(journal, 3.5).enforce()
    worth_keeping(journal, "r", 1 * PIECE, 2 * PIECE, RetentionClass.LABELLED)
    retention(journal, 1.5).enforce()
    assert there(tmp_path) == [1]


def test_what_has_just_been_heard_stays_until_nothing_else_is_left(journal, tmp_path):
    """A fault may be noticed a while after the sound in which it began."""
    keep_pieces(journal, 3, kept_at="2999-01-01T00:00:00.000Z")
    journal.execute("UPDATE pieces SET kept_at = ? WHERE start = ?", (OLD, 2 * PIECE))
    pruned = retention(journal, 2.5).enforce()
    assert pruned is not None
    assert there(tmp_path) == [0, 1]
    assert pruned.kept == {"recent": 2}
    retention(journal, 1.5).enforce()
    assert there(tmp_path) == [1]


def test_the_journal_is_shortened_by_its_passing_events(journal, tmp_path):
    """Decisions and ticks of the oldest time; faults and labels never. The file becomes smaller."""
    padding = np.random.default_rng(0).bytes(300).hex()
    decisions = [JournalEntry("r", {"type": "decision", "padding": padding}) for _ in range(3000)]
    journal.append([*decisions, JournalEntry("r", {"type": "fault_opened", "padding": padding}), *decisions])
    journal.compact()
    before = used_bytes(tmp_path)
    pruned = Retention(tmp_path, journal, before // 4).enforce()
    assert pruned is not None
    assert pruned.events_removed == 6000
    assert [event.type for event in journal.events()] == ["fault_opened"]
    assert used_bytes(tmp_path) < before / 4
    assert pruned.bytes_over == 0


def test_no_more_of_the_journal_goes_than_must(journal, tmp_path):
    """The oldest few; the rest is within its share."""
    journal.append([JournalEntry("r", {"type": "tick"})] * 50_000)
    pruned = Retention(tmp_path, journal, round(3.9 * journal.content_bytes())).enforce()
    assert pruned is None
    pruned = Retention(tmp_path, journal, round(3.9 * journal.content_bytes()), least_free_bytes=10**18).enforce()
    assert pruned is not None
    assert 0 < pruned.events_removed < 5000
    assert next(journal.events()).id == pruned.events_removed + 1


def test_if_nothing_can_be_removed_it_is_told(journal):
    journal.append([JournalEntry("r", {"type": "fault_opened", "padding": "x" * 100_000})])
    pruned = Retention(journal.path.parent, journal, 50_000).enforce()
    assert pruned is not None
    assert pruned.bytes_over > 0


def test_what_must_stay_free_on_the_disk_counts_as_well(journal, tmp_path):
    """No disk has as much room as is asked for here."""
    keep_pieces(journal, 3)
    pruned = Retention(tmp_path, journal, 10**12, least_free_bytes=10**18).enforce()
    assert pruned is not None
    assert there(tmp_path) == []
    assert pruned.bytes_over > 10**17


def test_the_outlook_tells_how_long_sound_fits_at_the_rate_at_which_it_comes(journal, tmp_path):
    """Ten pieces in ten minutes, after one of long ago: six hundred kilobytes an hour."""
    keep_pieces(journal, 1)
    now = datetime.now(UTC)
    for number in range(1, 12):
        kept_at = utc(now - timedelta(minutes=11 - number))
        journal.execute(
            "INSERT INTO pieces (recording, start, stop, delivered, file, bytes, kept_at) "
            "VALUES ('r', ?, ?, '[]', ?, ?, ?)",
            (number * PIECE, (number + 1) * PIECE, f"r/{number}.flac", BYTES, kept_at),
        )
    found = retention(journal, 12 + 24 * 60).outlook()
    assert found.hours_left == pytest.approx(24, rel=0.05)
    assert found.oldest_sound == OLD
    assert found.over_bytes == 0
    assert found.budget_bytes - found.used_bytes == pytest.approx(24 * 60 * BYTES, rel=0.01)
    assert found.free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)


def test_the_outlook_of_a_full_store_is_none_and_without_sound_unknown(journal):
    empty = retention(journal, 5).outlook()
    assert (empty.hours_left, empty.oldest_sound) == (None, None)
    keep_pieces(journal, 10, kept_at=utc(datetime.now(UTC) - timedelta(minutes=1)))
    full = retention(journal, 5).outlook()
    assert full.hours_left == 0
    assert full.over_bytes == pytest.approx(5 * BYTES, rel=0.2)


def test_a_disk_that_others_fill_counts_too(journal, tmp_path):
    keep_pieces(journal, 10, kept_at=utc(datetime.now(UTC) - timedelta(minutes=1)))
    free = shutil.disk_usage(tmp_path).free
    found = retention(journal, 1000, least_free_bytes=2 * free).outlook()
    assert found.hours_left == 0
    assert found.over_bytes == pytest.approx(free, rel=0.1)


def test_passages_outlive_the_events_that_told_them(journal, tmp_path):
    """Updates go like decisions; starts, ends and the table stay."""
    keep_pieces(journal, 3)
    padding = np.random.default_rng(0).bytes(300).hex()
    row = ("r.p1200", "r", "run", OLD, OLD, PIECE + 200, PIECE + 400, None, None, 0.9, None, "[1]", "quiet", "", "{}")
    start, *updates, end = (
        JournalEntry("r", {"type": kind, "padding": padding})
        for kind in ("passage_started", *["passage_updated"] * 3000, "passage_ended")
    )
    change = (f"INSERT INTO passages VALUES ({', '.join('?' * len(row))})", row)
    journal.append([start, *updates, replace(end, also=(change,))])
    journal.compact()
    pruned = Retention(tmp_path, journal, used_bytes(tmp_path) // 4).enforce()
    assert pruned is not None
    assert pruned.events_removed == 3000
    assert [event.type for event in journal.events()] == ["passage_started", "passage_ended"]
    assert [found["passage"] for found in journal.rows("SELECT passage FROM passages")] == ["r.p1200"]


def test_sound_of_a_passage_is_worth_more_than_that_of_nobody(journal, tmp_path):
    keep_pieces(journal, 3)
    row = ("r.p1200", "r", "run", OLD, OLD, PIECE + 200, PIECE + 400, None, None, 0.9, None, "[1]", "quiet", "", "{}")
    journal.execute(f"INSERT INTO passages VALUES ({', '.join('?' * len(row))})", row)
    retention(journal, 1.5).enforce()
    assert there(tmp_path) == [1]
