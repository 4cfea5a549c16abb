"""Distances to the nearest of many points: a product chooses, plain loops are the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.learners.array_nearest import Nearest


def one_after_the_other(x, points, used) -> float:
    """The same distance by plain loops, every operation in single precision and in the order of the features."""
    squares = []
    for n in np.flatnonzero(used):
        total = np.float32(0)
        for f in range(len(x)):
            difference = points[f, n] - x[f]
            total = total + difference * difference
        squares.append(total)
    total = 0.0
    for square in (nearest := sorted(square for square in squares if square < np.inf)[:10]):
        total += float(np.sqrt(square))
    return math.log(max(total / len(nearest), 1e-12)) if nearest else math.inf


def points_of(n_features, *, n_sets=3, n_points=150, spread=1.0, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n_sets, n_features, n_points)) * rng.lognormal(0, spread, size=(n_sets, 1, n_points))
    return points.astype(np.float32)


@pytest.mark.parametrize("n_features", [1, 3, 8, 50])
@pytest.mark.parametrize("n_used", [0, 4, 150])
def test_distances_are_rounded_in_the_order_of_the_features(n_features, n_used):
    """To the last bit, whatever the number of features: decisions repeat on every processor."""
    points, used = points_of(n_features), np.tile(np.arange(150) < n_used, (3, 1))
    queries = np.random.default_rng(1).normal(size=(3, 5, n_features)).astype(np.float32)
    found = Nearest(points, used).log_means(queries)
    expected = [[one_after_the_other(x, points[s], used[s]) for x in queries[s]] for s in range(3)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("scale", [1e-18, 1e-3, 1.0, 1e6])
def test_points_far_from_zero_and_close_together_are_told_apart(scale):
    """All points in a cloud that is a thousandth of its distance from zero: the product is all rounding there."""
    points = (1 + 1e-3 * points_of(20, spread=0.0)) * np.float32(scale)
    queries = (np.float32(scale) * (1 + 1e-3 * np.random.default_rng(2).normal(size=(3, 4, 20)))).astype(np.float32)
    used = np.ones((3, 150), bool)
    expected = [[one_after_the_other(x, points[s], used[s]) for x in queries[s]] for s in range(3)]
    np.testing.assert_array_equal(Nearest(points, used).log_means(queries), expected)


def test_repeated_points_and_queries_among_them():
    """Distances of zero, and more equal ones than are asked for."""
    points = np.repeat(points_of(6, n_points=5), 30, axis=2)
    queries = np.ascontiguousarray(points[:, :, ::31].swapaxes(1, 2))
    assert (Nearest(points, np.ones((3, 150), bool)).log_means(queries) == math.log(1e-12)).all()


def test_many_queries_at_once_have_the_distances_that_each_has_alone():
    points, used = points_of(50, n_points=1250), np.random.default_rng(3).random((3, 1250)) < 0.9
    queries = np.random.default_rng(4).normal(size=(3, 61, 50)).astype(np.float32)
    nearest = Nearest(points, used)
    alone = [nearest.log_means(queries[:, n : n + 1]) for n in range(61)]
    np.testing.assert_array_equal(nearest.log_means(queries), np.concatenate(alone, axis=1))


def test_a_query_beyond_all_numbers_is_infinitely_far_and_disturbs_no_other():
    points, used = points_of(4), np.ones((3, 150), bool)
    queries = np.zeros((3, 3, 4), np.float32)
    queries[:, 1] = [1e25, -1e30, 3e38, np.inf]
    found = Nearest(points, used).log_means(queries)
    assert (found[:, 1] == math.inf).all()
    np.testing.assert_array_equal(found[:, [0, 2]], Nearest(points, used).log_means(queries[:, [0, 2]]))
