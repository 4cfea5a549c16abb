"""What came of the rounds of learning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pipeline.retraining.history import DURATION_EDGES, Rounds
from pipeline.storage.journal import Journal, JournalEntry

BEGAN = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def tell(journal: Journal, kind: str, after_seconds: float, **details: object) -> None:
    journal.append([JournalEntry("r", {"type": kind, **details}, time=BEGAN + timedelta(seconds=after_seconds))])


def test_every_round_that_ended_is_counted_once_by_what_came_of_it(journal):
    rounds = Rounds()
    for start, status in ((0, "challenger"), (100, "refused"), (200, "nothing"), (300, "champion")):
        tell(journal, "retraining_started", start)
        tell(journal, "retraining_finished", start + 30, status=status)
        rounds.look(journal)
    tell(journal, "retraining_started", 400)  # killed
    tell(journal, "retraining_started", 500)
    tell(journal, "retraining_failed", 4500, why="no")
    rounds.look(journal)
    rounds.look(journal)
    known = rounds.as_dict()
    assert known["results"] == {"passed": 2, "refused": 1, "nothing": 1, "failed": 1}
    assert dict(zip(DURATION_EDGES, known["seconds"]["counts"], strict=True)) == {
        10: 0, 60: 4, 300: 0, 900: 0, 3600: 0, 14400: 1, float("inf"): 0,
    }  # fmt: skip
    assert known["seconds"]["sum"] == 4 * 30 + 4000


def test_another_daemon_counts_on_from_the_journal(journal):
    tell(journal, "retraining_failed", 1, why="its process was ended")
    for _ in range(2):
        rounds = Rounds()
        rounds.look(journal)
        assert rounds.as_dict()["results"]["failed"] == 1
