"""Finished trials survive interruptions."""

from __future__ import annotations

import pytest

from pipeline.core.errors import UsageError
from pipeline.experiments.store import TrialStore

PLAN = {"trials": 3, "rates": (0.2, 0.5)}


def test_trials_are_found_again(tmp_path):
    """A second store with the same plan knows what is done."""
    path = tmp_path / "trials.jsonl"
    with TrialStore(path, PLAN) as store:
        store.add("a", [{"error": 0.1}])
        store.add("b", [{"error": 0.2}])
    with TrialStore(path, PLAN) as store:
        assert store.done == {"a": [{"error": 0.1}], "b": [{"error": 0.2}]}


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00\n", b'{"a": 1}\n', b"3\n", b'{"key": 1, "records": []}\n'])
def test_damaged_lines_are_dropped(tmp_path, damage):
    """Foreign bytes and objects among the trials cost no more than themselves."""
    path = tmp_path / "trials.jsonl"
    with TrialStore(path, PLAN) as store:
        store.add("a", [{"error": 0.1}])
    path.write_bytes(path.read_bytes() + damage)
    with TrialStore(path, PLAN) as store:
        assert set(store.done) == {"a"}
    assert damage not in path.read_bytes()


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_line_cut_off_by_a_crash_is_measured_again(tmp_path, cut):
    """Wherever the file ends, whole lines count, the broken one is dropped, and the next write is clean."""
    path = tmp_path / "trials.jsonl"
    with TrialStore(path, PLAN) as store:
        store.add("a", [{"error": 0.1}])
        store.add("b", [{"error": 0.2}])
    path.write_bytes(path.read_bytes()[:-cut])
    with TrialStore(path, PLAN) as store:
        assert set(store.done) == {"a"}
        store.add("c", [])
    with TrialStore(path, PLAN) as store:
        assert "c" in store.done


def test_trials_of_another_plan_are_not_mixed_in(tmp_path):
    """The message says what the file holds and offers both cures."""
    path = tmp_path / "trials.jsonl"
    TrialStore(path, PLAN).close()
    with pytest.raises(UsageError, match=r"another run \(trials 3 there, 4 here\); .*--out.* --restart"):
        TrialStore(path, {"trials": 4})
    assert path.exists()


def test_a_foreign_file_is_left_alone(tmp_path):
    """Not ours: refused, and not overwritten."""
    path = tmp_path / "trials.jsonl"
    for content in (b"hello\n", b"\xff\x00", b'{"plan": 3}\n'):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="is not a file of trials"):
            TrialStore(path, PLAN)
        assert path.read_bytes() == content
