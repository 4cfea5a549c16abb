"""Mean distances to the nearest samples of other groups, against sorting all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.learners._nearest import mean_of_nearest


def by_sorting(A, groups_A, B, groups_B, k):
    means = []
    for point, group in zip(A, groups_A, strict=True):
        others = np.sort(np.sqrt(((B[groups_B != group] - point) ** 2).sum(axis=1)))[:k]
        means.append(others.mean() if len(others) else np.nan)
    return np.array(means)


@given(
    n=st.integers(1, 150),
    others=st.integers(1, 300),
    k=st.integers(1, 70),
    n_groups=st.integers(1, 4),
    n_equal=st.integers(0, 100),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_nearest_are_those_of_a_sort(n, others, k, n_groups, n_equal, seed):
    """Of any number of points and groups, some of them equal; fewer than asked for, or none, where there are fewer."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(n, 3)), rng.normal(size=(others, 3))
    B[:n_equal] = A[0]
    groups_A, groups_B = rng.integers(0, n_groups, n), rng.integers(0, n_groups, others)
    expected = by_sorting(A, groups_A, B, groups_B, k)
    np.testing.assert_allclose(mean_of_nearest(A, groups_A, B, groups_B, k), expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 1e3), (1.0, 1e8), (1e-25, 0.0), (1e25, 0.0)])
def test_single_precision_chooses_but_does_not_measure(scale, shift):
    """Far from the origin all coarse distances round to nothing; very large and very small ones have no coarse one."""
    rng = np.random.default_rng(0)
    X, groups = shift + scale * rng.normal(size=(200, 20)), np.arange(200) // 10
    np.testing.assert_allclose(
        mean_of_nearest(X, groups, X, groups, 10), by_sorting(X, groups, X, groups, 10), rtol=1e-12
    )


def test_a_huge_sample_moves_no_distance_between_others():
    """Coarse distances of a loud sample are useless, those of all others are not."""
    rng = np.random.default_rng(1)
    X, groups = rng.normal(size=(300, 20)), np.arange(300) // 10
    quiet = mean_of_nearest(X[1:], groups[1:], X[1:], groups[1:], 10)
    X[0] *= 1e9
    np.testing.assert_array_equal(mean_of_nearest(X, groups, X, groups, 10)[1:], quiet)
