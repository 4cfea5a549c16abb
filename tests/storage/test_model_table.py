"""Rows of models and of what they did not learn from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.storage.journal import Journal
from pipeline.storage.model_table import (
    ModelRow,
    RefusalCount,
    RefusalRow,
    model_rows,
    newest_models,
    refusal_counts,
    refusals_after,
    set_facts,
    set_status,
    store_model,
)

NEW = ModelRow("new", "1", "2026-05-02", "retrained", "old", "challenger", "2026-05-02", "passed", "{}")
OLD = ModelRow("old", "0", "2026-05-01", "given", None, "champion", "2026-05-01", "given", "{}")
REFUSALS = [RefusalRow("new", "r", start, 1 + start % 2, "stale", 0.25) for start in range(5)]


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        store_model(journal, NEW, REFUSALS)
        store_model(journal, OLD, [])
        yield journal


def test_models_are_listed_as_they_were_added_or_the_newest_first(journal):
    set_status(journal, "old", "retired", since="2026-05-03", why="new decides")
    set_facts(journal, "old", '{"classes": []}')
    retired = replace(OLD, status="retired", since="2026-05-03", why="new decides", facts='{"classes": []}')
    twin = replace(OLD, name="twin")
    store_model(journal, twin, [])
    assert model_rows(journal) == [NEW, retired, twin]
    assert newest_models(journal) == [NEW, twin, retired]


def test_refusals_are_read_in_portions_and_counted(journal):
    first = refusals_after(journal, "new", 0, sensor=None, why=None, most=2)
    rest = refusals_after(journal, "new", first[-1].number, sensor=None, why=None, most=9)
    assert [one.row for one in first + rest] == REFUSALS
    assert [one.row.start for one in refusals_after(journal, "new", 0, sensor=2, why="stale", most=9)] == [1, 3]
    assert refusals_after(journal, "new", 0, sensor=None, why="other", most=9) == []
    assert refusal_counts(journal, "new") == [RefusalCount(1, "stale", 3), RefusalCount(2, "stale", 2)]
