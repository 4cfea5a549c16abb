"""The daemon is killed a hundred times."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.daemon.killed_daemon import kills_of_every_kind

pytestmark = pytest.mark.soak
ROUNDS = 10


def test_a_hundred_kills_lose_nothing_that_was_acknowledged(model, other_models, tmp_path, report):
    """Ten state directories, each from an old journal to a full disk; every event that is kept is decided again."""
    done: Counter[str] = Counter()
    for seed in range(1, ROUNDS + 1):
        done += kills_of_every_kind(tmp_path / str(seed), [model, *other_models], seed=seed, thorough=True)
    verified = done.pop("decisions verified")
    report(kills=done.total(), **done, decisions_verified=verified)
    assert verified > 0
    assert done.total() == 10 * ROUNDS
