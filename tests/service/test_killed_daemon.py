"""The daemon is killed ten times; the hundred are in the soak."""

from __future__ import annotations

from tests.service.killed_daemon import ten_kills


def test_ten_kills_lose_nothing_that_was_acknowledged(model, other_models, tmp_path):
    """In the midst of migration, start, retraining, swap, encoding and removal; each next start goes on."""
    done = ten_kills(tmp_path, [model, *other_models], seed=0)
    assert done.pop("decisions verified") > 0
    assert sum(done.values()) == 10
