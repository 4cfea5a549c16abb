"""Time in stretches that tile it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pipeline.storage.intervals import Band, Change, bands, thinned

KINDS = ("bad", "degraded", "good")


def at(found: list[Band], moment: float) -> str:
    (kind,) = {band.kind for band in found if band.begin <= moment < band.end}
    return kind


def tiles(found: list[Band], begin: float, end: float) -> bool:
    edges = [found[0].begin, *(band.end for band in found)]
    joined = all(one.end == other.begin for one, other in pairwise(found))
    return joined and (edges[0], edges[-1]) == (begin, end) and all(a < b for a, b in pairwise(edges))


def random_changes(seed: int, n: int = 200) -> list[Change]:
    rng = np.random.default_rng(seed)
    return [
        Change(float(moment), KINDS[kind])
        for moment, kind in zip(np.sort(rng.uniform(-20, 120, n)), rng.integers(0, 3, n), strict=True)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_at_every_moment_the_last_change_holds(seed):
    changes = random_changes(seed)
    found = bands(changes, 0, 100, otherwise="good")
    assert tiles(found, 0, 100)
    for moment in np.random.default_rng(seed + 100).uniform(0, 100, 300):
        truth = [change.kind for change in changes if change.time <= moment] or ["good"]
        assert at(found, moment) == truth[-1]


def test_a_change_that_changes_nothing_is_no_edge():
    changes = [Change(1, "good", event=4), Change(3, "bad"), Change(3, "good", event=9), Change(5, "good", event=11)]
    assert bands(changes, 0, 9, otherwise="good") == [Band(0, 9, "good")]


def test_a_clock_that_was_set_back_leaves_no_hole_and_no_overlap():
    found = bands([Change(4, "bad"), Change(2, "good"), Change(6, "degraded")], 0, 9, otherwise="unknown")
    assert [(one.begin, one.end, one.kind) for one in found] == [
        (0, 4, "unknown"),
        (4, 6, "good"),
        (6, 9, "degraded"),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_thinning_keeps_the_tiles_counts_every_change_and_never_hides_the_worst(seed):
    found = bands(random_changes(seed, 2000), 0, 100, otherwise="good")
    thin = thinned(found, 1.0, worst_first=KINDS)
    assert tiles(thin, 0, 100)
    assert len(thin) <= 2 * 100 + 1 < len(found)
    assert sum(band.n for band in thin) == len(found)
    for band in thin:
        inside = [one.kind for one in found if band.begin <= one.begin and one.end <= band.end]
        assert band.n == len(inside)
        assert band.kind == min(inside, key=KINDS.index)


def test_what_is_long_enough_stays_as_it_is():
    found = bands(random_changes(1, 20), 0, 100, otherwise="good")
    assert thinned(found, 1e-9, worst_first=KINDS) == found
