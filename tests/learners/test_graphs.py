"""Graphs against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pipeline.learners._geometry import Neighbourhoods, distance_rows
from pipeline.learners._graphs import EuclideanRows, minimal_entropy_set, random_halves


def brute_force(X, classes, groups, k, side=None):
    """Mean and k-th smallest distance to allowed samples; `side[i]` limits the neighbours of i."""
    D = cdist(X, X)
    mean, radius = np.empty(len(X)), np.empty(len(X))
    for i in range(len(X)):
        allowed = (classes == classes[i]) & (groups != groups[i])
        if side is not None:
            allowed &= side == 1 - side[i]
        nearest = np.sort(D[i, allowed])[:k]
        mean[i], radius[i] = nearest.mean(), nearest[-1]
    return mean, radius


@pytest.mark.parametrize("graph", ["leave-one-out", "bipartite"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("n", [60, 300])
def test_edge_lengths_equal_brute_force(graph, grouped, n):
    """Classes, groups and partitions are all respected, across several blocks of rows."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 4)) + 1e4
    classes = rng.integers(0, 2, n)
    groups = rng.integers(0, n // 6, n) if grouped else np.arange(n)
    hoods = Neighbourhoods.choose(
        classes,
        groups,
        graph=graph,
        n_partitions=3,
        n_neighbors=3,
        rng=np.random.RandomState(0),
    )
    mean, radius = hoods.edge_lengths(hoods.graph(distance_rows(X, "rbf")))
    sides = [None] if hoods.halves is None else list(hoods.halves)
    twins = [brute_force(X, classes, groups, 3, side) for side in sides]
    np.testing.assert_allclose(mean, np.mean([m for m, _ in twins], axis=0), rtol=1e-6)
    np.testing.assert_allclose(radius, np.mean([r for _, r in twins], axis=0), rtol=1e-6)


def test_duplicates_are_at_distance_zero_exactly():
    """Rounding in the matrix product must not make copies of a far sample differ."""
    X = np.array([[1e3, 2e3], [1e3, 2e3], [0.0, 0.0], [1.0, 1.0]])
    squared = EuclideanRows(X).block(0, 4)
    assert squared[0, 1] == 0.0
    np.testing.assert_allclose(squared, cdist(X, X, "sqeuclidean"), rtol=1e-9)


def test_halves_are_balanced_and_keep_groups_whole():
    """Every class is halved in every partition and no group is split."""
    rng = np.random.RandomState(3)
    classes = np.repeat([0, 1], 30)
    groups = np.arange(60) // 3
    halves = random_halves(groups, classes, 4, rng)
    for partition in halves:
        assert all(len(set(partition[groups == g])) == 1 for g in range(20))
        assert [int(partition[classes == z].sum()) for z in (0, 1)] == [15, 15]
    assert len({partition.tobytes() for partition in halves}) > 1


def test_minimal_entropy_set_holds_the_least_that_reaches_the_coverage():
    """By weight: the shortest edges first, stopping as soon as the share is reached."""
    lengths = np.array([3.0, 1.0, 2.0, 10.0])
    inside = minimal_entropy_set(lengths, 0.5, np.ones(4))
    assert inside.tolist() == [False, True, True, False]
    inside = minimal_entropy_set(lengths, 0.5, np.array([1.0, 5.0, 1.0, 1.0]))
    assert inside.tolist() == [False, True, False, False]
    assert minimal_entropy_set(lengths, 1.0, np.ones(4)).all()
