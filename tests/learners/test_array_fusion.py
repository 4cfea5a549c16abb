"""One opinion from several: how far sensors repeat each other, and what stands in for one that is missing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import Ridge

from pipeline.learners._consistency import group_folds
from pipeline.learners.array import fit_machine
from pipeline.learners.array_fusion import CombinedFeatures, Expectation, WeightedVotes
from tests.learners.test_array import FEATURES, SENSORS, array


def opinions(correlation: float, n: int = 40_000, sensors: int = 4, separation: float = 1.0):
    """Log-odds of sensors whose evidence is normal with a given correlation within a class: calibrated each alone."""
    rng = np.random.default_rng(0)
    signs = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    common = rng.normal(size=(n, 1))
    noise = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.normal(size=(n, sensors))
    return 2 * separation * (separation * signs[:, None] + noise), signs


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8, 1.0])
def test_dependence_is_the_correlation_of_normal_evidence(correlation):
    """The closed form of equally correlated normal evidence is found again from labels alone."""
    log_odds, signs = opinions(correlation)
    votes = WeightedVotes.learn(log_odds, signs, np.ones_like(log_odds))
    assert votes.dependence == pytest.approx(correlation, abs=0.05)


def test_fused_probabilities_are_calibrated_for_any_number_of_sensors():
    """Whoever is left: where the probability is 0.8, four of five are right."""
    log_odds, signs = opinions(0.4)
    votes = WeightedVotes.learn(log_odds, signs, np.ones_like(log_odds))
    for left in ([0], [1, 3], [0, 1, 2, 3]):
        weights = np.isin(np.arange(4), left).astype(float)
        p = expit([votes.fused(row, weights) for row in log_odds[:8000]])
        near = (p > 0.75) & (p < 0.85)
        assert (signs[:8000][near] > 0).mean() == pytest.approx(p[near].mean(), abs=0.03)


def test_one_sensor_speaks_for_itself_and_those_without_weight_not_at_all():
    """NaN has no say where it has no weight."""
    votes = WeightedVotes(0.5)
    assert votes.fused(np.array([np.nan, 1.7]), np.array([0.0, 1.0])) == pytest.approx(1.7)
    assert votes.fused(np.array([np.nan, 1.7]), np.array([0.0, 0.5])) == pytest.approx(0.85)
    assert votes.fused(np.array([1.0, 1.7]), np.array([1.0, 1.0])) == pytest.approx(2.7 / 1.5)


def test_nothing_to_learn_from_means_full_dependence():
    """Sensors that were never trained together are not trusted to be independent."""
    nothing = np.full((10, 2), np.nan)
    assert WeightedVotes.learn(nothing, np.ones(10), np.ones((10, 2))).dependence == 1.0


def expected(X, groups, weights=None):
    folds = group_folds(groups, np.where(groups % 2, 1.0, -1.0), 5, np.random.RandomState(0))
    return Expectation.learn(X, np.ones(X.shape[:2]) if weights is None else weights, folds), folds


def test_combined_features_do_without_a_sensor():
    """With one sensor's features expected from the others, hardly less accurate than with all."""
    X, y, groups = array()
    expectation, folds = expected(X, groups)
    signs = np.where(y, 1.0, -1.0)
    machine = fit_machine(X.reshape(len(X), -1), signs, np.ones(len(X)), folds)
    rule = CombinedFeatures(machine, expectation)
    fresh, truth, _ = array(21)
    whole = np.array([rule(None, x, np.ones(SENSORS))[1] for x in fresh])
    spoilt = fresh.copy()
    spoilt[:, 1] = np.nan
    without = np.array([rule(None, x, np.array([1.0, 0.0, 1.0]))[1] for x in spoilt])
    accuracy = np.mean((whole > 0) == truth)
    assert accuracy > 0.75
    assert np.mean((without > 0) == truth) > accuracy - 0.03
    assert np.corrcoef(whole, without)[0, 1] > 0.9


def test_completed_features_leave_the_others_alone():
    """Only the row of the missing sensor changes, also if that is NaN."""
    X, _, groups = array()
    expectation, _ = expected(X, groups)
    x = X[3].copy()
    used = np.array([True, False, True])
    completed = expectation.complete(x, used)
    assert (completed[used] == x[used]).all()
    assert (completed[1] != x[1]).any()
    x[1] = np.nan
    np.testing.assert_array_equal(expectation.complete(x, used), completed)
    assert (expectation.complete(X[3], np.ones(SENSORS, bool)) == X[3]).all()


def test_a_missing_sensor_is_predicted_by_ridge_regression_from_each_other_one():
    """The mean of scikit-learn's predictions; on linear scenes they leave less than a third of the power."""
    X, _, groups = array()
    expectation, folds = expected(X, groups)
    completed = np.array([expectation.complete(x, np.array([True, False, True])) for x in X])
    predictions = []
    for k in (0, 2):
        errors = {}
        for share in (0.1, 1.0):
            out = np.empty_like(X[:, 1])
            for fold in np.unique(folds):
                away = folds == fold
                out[away] = Ridge(alpha=share * (~away).sum()).fit(X[~away, k], X[~away, 1]).predict(X[away, k])
            errors[share] = np.sum((X[:, 1] - out) ** 2)
        best = min(errors, key=errors.__getitem__)
        predictions.append(Ridge(alpha=best * len(X)).fit(X[:, k], X[:, 1]).predict(X[:, k]))
    np.testing.assert_allclose(completed[:, 1], np.mean(predictions, axis=0), atol=1e-6)
    assert np.mean((completed[:, 1] - X[:, 1]) ** 2) < 0.3 * np.var(X[:, 1])


def test_without_anybody_to_predict_it_a_sensor_is_at_its_median():
    """Nobody else is used, or they were too seldom heard together: zeros, never NaN."""
    X, _, groups = array()
    weights = np.ones(X.shape[:2])
    weights[15:, 2] = 0
    expectation, _ = expected(np.where(weights[:, :, None] > 0, X, 0.0), groups, weights)
    assert (expectation.complete(X[3], np.array([True, True, False]))[2] == np.zeros(FEATURES)).all()
    assert (expectation.complete(X[3], np.zeros(SENSORS, bool)) == 0).all()
    with_the_second_only = expectation.complete(X[3], np.array([False, True, True]))[0]
    assert (with_the_second_only == expectation.complete(X[3], np.array([False, True, False]))[0]).all()
    assert with_the_second_only.any()


def test_two_classes_learn_the_same_dependence_either_way():
    """Log-odds of the second class with signs, or of both classes with labels."""
    log_odds, signs = opinions(0.4, n=2000)
    both = np.stack([np.zeros_like(log_odds), log_odds], axis=2)
    weights = np.ones_like(log_odds)
    found = WeightedVotes.learn_classes(both, (signs > 0).astype(int), weights)
    assert found.dependence == pytest.approx(WeightedVotes.learn(log_odds, signs, weights).dependence, abs=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8])
def test_dependence_of_three_classes_is_the_correlation_of_their_evidence(correlation):
    """Normal evidence about three means, equally correlated among sensors: its closed form is found from labels."""
    rng, n, sensors, separation = np.random.default_rng(1), 20_000, 3, 1.2
    truth = rng.integers(3, size=n)
    means = separation * np.eye(3)
    common = rng.normal(size=(n, 1, 3))
    noise = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.normal(size=(n, sensors, 3))
    log_odds = (means[truth][:, None] + noise) @ means.T  # of each class, up to a constant
    log_odds -= log_odds[:, :, :1]
    found = WeightedVotes.learn_classes(log_odds, truth, np.ones((n, sensors)))
    assert found.dependence == pytest.approx(correlation, abs=0.05)


def test_each_class_is_fused_by_the_same_rule():
    """Column after column, the first one 0; NaN has no say where it has no weight."""
    votes = WeightedVotes(0.5)
    log_odds = np.array([[0.0, 1.0, -2.0], [0.0, 3.0, 1.0], [np.nan] * 3])
    weights = np.array([1.0, 0.5, 0.0])
    expected = [0.0, *(votes.fused(log_odds[:, k], weights) for k in (1, 2))]
    assert votes(log_odds, None, weights) == pytest.approx(expected)
    assert votes(log_odds, None, weights)[1] == pytest.approx(2.5 / 1.25)
