"""Weighted MED: two solvers against each other, against a general optimiser, and against limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.svm import SVC

from pipeline.learners._weighted_med import (
    OFFSET,
    MEDProblem,
    _place_of_largest,
    best_multiplier,
    solve_dense,
    solve_low_rank,
)


def problem_of(n, seed, *, C=1.0, amplitude=0.3, offset_variance=0.3, curved=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)
    y[:2] = [-1.0, 1.0]
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(-1)).astype(np.float32)
    weights = rng.uniform(0.1, 2.0, n)
    curvature = rng.uniform(0, 0.5, n) if curved else np.zeros(n)
    return K, MEDProblem(y, weights, curvature, amplitude, max(1.2, C / amplitude), offset_variance)


def objective(l, K, p):
    a = p.weights * l * p.y
    Q = p.amplitude * K.astype(float) + p.offset_variance
    gain = p.weights * (l + np.log1p(-l / p.box) - 0.5 * p.self_curvature * l**2)
    return gain.sum() - 0.5 * a @ Q @ a


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("C", [0.4, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_pairwise_steps_reach_the_optimum_of_a_general_optimiser(seed, C, curved):
    """L-BFGS on the written objective is the independent truth."""
    K, p = problem_of(25, seed, C=C, curved=curved)
    solution = solve_dense(K, p, tolerance=1e-6)
    found = minimize(
        lambda l: -objective(l, K, p),
        np.full(25, 0.1),
        bounds=[(0, p.box * (1 - 1e-9))] * 25,
        method="L-BFGS-B",
        options={"maxiter": 10_000, "maxfun": 10**6, "ftol": 1e-14, "gtol": 1e-9},
    )
    assert solution.converged
    assert solution.value == pytest.approx(objective(solution.multipliers, K, p), rel=1e-9)
    assert solution.value == pytest.approx(-found.fun, rel=1e-6)


@pytest.mark.parametrize("C", [0.4, 3.0, 30.0])
def test_low_rank_and_dense_agree_at_full_rank(C):
    """Newton in the primal and pairs in the dual solve one problem."""
    K, p = problem_of(80, 5, C=C, curved=True)
    values, vectors = np.linalg.eigh(K.astype(float))
    factor = vectors * np.sqrt(np.maximum(values, 0))
    dense, low = solve_dense(K, p, tolerance=1e-6), solve_low_rank(factor, p, tolerance=1e-6)
    assert dense.converged
    assert low.converged
    np.testing.assert_allclose(low.decision, dense.decision, atol=2e-3)
    assert low.offset == pytest.approx(dense.offset, abs=2e-3)


@pytest.mark.parametrize("warm", [False, True])
def test_decisions_are_those_of_the_multipliers(warm):
    """They come from the last slopes of the search, of samples without weight, too."""
    K, p = problem_of(150, 4)
    p = replace(p, weights=np.where(np.arange(150) % 5 == 0, 0.0, p.weights))
    start = np.random.default_rng(0).uniform(0, p.box * 0.9, 150) if warm else None
    solution = solve_dense(K, p, start=start, tolerance=1e-3)
    expected = p.amplitude * K.astype(float) @ (p.weights * solution.multipliers * p.y) + solution.offset
    np.testing.assert_allclose(solution.decision, expected, atol=1e-10)


@given(
    st.lists(st.sampled_from([0.0, 1e-300, 0.5, 1.0, np.nextafter(1.0, 2.0), 7.0, np.inf]), min_size=1, max_size=200)
)
def test_the_place_of_the_largest_is_the_first(values):
    """As numpy finds it, and none if all are zero."""
    tops = np.empty((len(values) + 63) // 64, np.int64)
    found = _place_of_largest(np.array(values), tops)
    assert found == (int(np.argmax(values)) if any(values) else OFFSET)


def test_a_weight_is_a_number_of_copies():
    """Weight 3 equals three copies, weight 0 equals absence, tiny weight makes nearly no difference."""
    K, p = problem_of(30, 1)
    counts = np.array([0, 1, 3] * 10)
    index = np.repeat(np.arange(30), counts)
    weighted = solve_dense(
        K,
        MEDProblem(p.y, counts.astype(float), p.self_curvature, p.amplitude, p.box, p.offset_variance),
        tolerance=1e-6,
    )
    copied = solve_dense(
        np.ascontiguousarray(K[np.ix_(index, index)]),
        MEDProblem(p.y[index], np.ones(len(index)), np.zeros(len(index)), p.amplitude, p.box, p.offset_variance),
        tolerance=1e-6,
    )
    np.testing.assert_allclose(weighted.decision[index], copied.decision, atol=1e-4)


def test_a_hard_box_and_free_offset_give_the_hard_margin_svm():
    """c towards infinity on separable samples: same decision values as LIBSVM with a huge C."""
    rng = np.random.default_rng(3)
    X = np.vstack([rng.normal(-3, 1, (15, 2)), rng.normal(3, 1, (15, 2))])
    y = np.repeat([-1.0, 1.0], 15)
    K = X @ X.T
    p = MEDProblem(y, np.ones(30), np.zeros(30), 1.0, 1e7, 1e4)
    solution = solve_dense(K.astype(np.float32), p, tolerance=1e-5)
    svm = SVC(C=1e7, kernel="precomputed", tol=1e-6).fit(K, y)
    np.testing.assert_allclose(solution.decision, svm.decision_function(K), atol=2e-3)


def test_a_box_of_one_or_less_learns_nothing():
    """c <= 1: the barrier's slope at zero is already steeper than the gain."""
    assert best_multiplier(1.0, 0.5, 0.9) == 0.0


@given(st.floats(0.01, 50.0), st.floats(0.0, 20.0), st.floats(1.1, 100.0))
def test_best_multiplier_is_stationary(residual, curvature, box):
    """The closed form makes the derivative zero, or sits at zero where the derivative is negative."""
    l = best_multiplier(residual, curvature, box)
    assert 0.0 <= l < box
    derivative = residual - 1.0 / (box - l) - curvature * l
    if l > 0:
        assert derivative == pytest.approx(0.0, abs=1e-6 * (1 + 1.0 / (box - l) ** 2 * box + curvature * box))
    else:
        assert derivative <= 1e-12


def test_a_start_elsewhere_ends_in_the_same_place():
    """The problem is convex: warm or cold, one solution."""
    K, p = problem_of(60, 9)
    cold = solve_dense(K, p, tolerance=1e-6)
    start = np.random.default_rng(0).uniform(0, p.box * 0.9, 60)
    warm = solve_dense(K, p, start=start, tolerance=1e-6)
    np.testing.assert_allclose(warm.decision, cold.decision, atol=1e-4)
    assert warm.value == pytest.approx(cold.value, rel=1e-7)
