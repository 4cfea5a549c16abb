"""ROD and two-stage screening."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.svm import SVC

from pipeline.learners import GEMSVC, GEMDetector, RODClassifier
from pipeline.learners.rod import relaxation
from tests.conftest import component


def toy(n=12, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat([-1.0, 1.0], n // 2)
    X = rng.normal(size=(n, 2)) + 1.5 * y[:, None]
    X[0] = [3.0, 3.0]  # a negative sample deep in the positive class
    return X, y


def objective(K, y, kept, C):
    """|f|^2 / 2 + C sum of hinge losses of an SVM trained on the kept samples, by its dual."""
    svm = SVC(C=C, kernel="precomputed", tol=1e-8).fit(K[np.ix_(kept, kept)], y[kept])
    alpha_y = np.zeros(len(y))
    alpha_y[kept[svm.support_]] = svm.dual_coef_.ravel()
    f = K @ alpha_y + svm.intercept_[0]
    return 0.5 * alpha_y @ K @ alpha_y + C * np.maximum(0, 1 - y * f)[kept].sum()


def test_relaxation_bounds_the_enumerated_optimum_from_below():
    """All subsets of the size to keep are tried; the relaxed optimum lies below the best, and well above nothing."""
    component("cvxpy")
    X, y = toy(10)
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(-1))
    best = min(
        objective(K, y, np.array(kept), 1.0)
        for kept in itertools.combinations(range(10), 8)
        if len(set(y[list(kept)])) == 2
    )
    eta, bound = relaxation(K, y, 0.8, 1.0)
    assert eta.sum() >= 8 - 1e-2
    # The relaxation has no offset in f, which the bound must allow for.
    unbiased = relaxation(K + 1e3, y, 0.8, 1.0)[1]
    assert unbiased <= best + 1e-2
    assert bound > 0.2 * best


def test_relaxation_without_the_diagonal_would_be_vacuous():
    """The constraint diag(M) = eta is what keeps the bound away from zero: keeping more must cost more."""
    component("cvxpy")
    X, y = toy(10)
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(-1))
    bounds = [relaxation(K, y, keep, 1.0)[1] for keep in (0.3, 0.6, 0.9)]
    assert 0.05 < bounds[0] < bounds[1] < bounds[2]


def test_relaxation_doubts_the_sample_on_the_wrong_side():
    """The planted sample has the smallest eta of all."""
    component("cvxpy")
    X, y = toy(14)
    model = RODClassifier(solver="sdp", keep_fraction=0.9, kernel="cosine").fit(X, y)
    assert model.eta_.argmin() == 0
    assert model.predict(X)[0] == 1.0


def test_alternating_form_trims_each_class_and_lowers_the_objective():
    """The kept share is exact per class, and trimming beats the untrimmed objective on the kept samples."""
    X, y = toy(60)
    model = RODClassifier(keep_fraction=0.8).fit(X, y)
    assert [model.eta_[y == sign].sum() for sign in (-1, 1)] == [24.0, 24.0]
    assert model.eta_[0] == 0.0
    assert model.objective_ <= RODClassifier(keep_fraction=1.0).fit(X, y).objective_ + 1e-6


def test_keeping_everything_is_the_plain_svm():
    """keep_fraction 1: same decisions as SVC."""
    X, y = toy(60)
    model = RODClassifier(keep_fraction=1.0, gamma=0.3).fit(X, y)
    svm = SVC(C=1.0, gamma=0.3).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), svm.decision_function(X), atol=1e-5)


def test_relaxation_refuses_what_it_cannot_do():
    """Size and weights are refused by name."""
    component("cvxpy")
    X, y = toy(60)
    with pytest.raises(ValueError, match="solver='sdp' takes no sample_weight"):
        RODClassifier(solver="sdp").fit(X, y, sample_weight=np.ones(60))
    with pytest.raises(ValueError, match="solver='sdp' got 420 samples, it takes at most 400"):
        RODClassifier(solver="sdp").fit(np.tile(X, (7, 1)), np.tile(y, 7))


def test_screening_keeps_the_minimal_entropy_set_of_each_class():
    """The same samples as a detector fitted on the class alone would keep, up to its own partitions."""
    X, y = toy(60)
    model = GEMSVC(coverage=0.8, graph="leave-one-out").fit(X, y)
    for sign in (-1, 1):
        alone = GEMDetector(coverage=0.8, graph="leave-one-out").fit(X[y == sign])
        assert np.array_equal(model.kept_[y == sign], alone.minimal_entropy_set_)


def test_screening_nothing_is_the_plain_svm():
    """coverage 1: same decisions as SVC."""
    X, y = toy(60)
    model = GEMSVC(coverage=1.0, gamma=0.3).fit(X, y)
    svm = SVC(C=1.0, gamma=0.3).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), svm.decision_function(X), atol=1e-9)


def test_screening_with_an_estimated_coverage():
    """On clean samples nearly all are kept."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(-2, 1, (100, 2)), rng.normal(2, 1, (100, 2))])
    model = GEMSVC(coverage="auto").fit(X, np.repeat([0, 1], 100))
    assert model.kept_.mean() >= 0.97
