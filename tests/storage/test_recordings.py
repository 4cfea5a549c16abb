"""Rows of recordings and pieces: what was stored, and what of it is kept."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pipeline.storage.journal import Journal
from pipeline.storage.recordings import (
    AudioPiece,
    RecordingRow,
    beginning_change,
    ending_change,
    kept_samples,
    kept_seconds,
    kept_until,
    newest_pieces,
    recording_row,
    stored_until,
    whole_pieces,
)

SLOW = RecordingRow("slow", "run", 1000, 2, "{}", "2026-05-01T12:00:00+00:00")
FAST = RecordingRow("fast", "run", 4000, 2, "{}", "2026-05-01T13:00:00+00:00")


@pytest.fixture
def journal(tmp_path):
    """Two recordings: of the slow one the last of three pieces was removed, and a sensor missed the second."""
    pieces = [
        ("slow", 0, 2000, "[true, true]", "0.flac"),
        ("slow", 2000, 3000, "[true, false]", "1.flac"),
        ("slow", 3000, 5000, "[true, true]", None),
        ("fast", 0, 2000, "[true, true]", "2.flac"),
    ]
    with Journal(tmp_path / "journal.sqlite") as journal:
        for row in (SLOW, FAST):
            journal.execute(*beginning_change(row))
        for piece in pieces:
            journal.execute("INSERT INTO pieces VALUES (?, ?, ?, ?, ?, 1, '2026', NULL, NULL)", piece)
        yield journal


def test_a_recording_is_read_as_it_was_added_and_has_a_length_once_it_is_finished(journal):
    assert recording_row(journal, "slow") == SLOW
    assert recording_row(journal, "none") is None
    journal.execute(*ending_change("slow", 5000))
    assert recording_row(journal, "slow").samples == 5000
    assert SLOW.time(1500) == datetime(2026, 5, 1, 12, 0, 1, 500_000, UTC)


def test_only_pieces_whose_sound_is_kept_count_as_kept(journal):
    assert (stored_until(journal, "slow"), kept_until(journal, "slow")) == (5000, 3000)
    assert (stored_until(journal, "none"), kept_until(journal, "none")) == (0, 0)
    assert kept_samples(journal, "slow", 1500, 4000) == 1500
    assert kept_seconds(journal) == 3 + 0.5


def test_pieces_are_chosen_by_format_and_by_who_delivered(journal):
    kept = [AudioPiece("slow", 2000, 3000), AudioPiece("slow", 0, 2000)]
    assert newest_pieces(journal, 1000, 2) == kept
    assert whole_pieces(journal, 1000, 2) == kept[1:]
    assert newest_pieces(journal, 1000, 3) == []
