"""The daemon is killed once in every way; a hundred kills are in the soak."""

from __future__ import annotations

from tests.daemon.killed_daemon import kills_of_every_kind


def test_seven_kills_lose_nothing_that_was_acknowledged(model, other_models, tmp_path):
    """In the midst of migration, start, labelling, retraining, swap, encoding and removal; each next start goes on."""
    done = kills_of_every_kind(tmp_path, [model, *other_models], seed=0)
    assert done.pop("decisions verified") > 0
    assert len(done) == sum(done.values()) == 7
