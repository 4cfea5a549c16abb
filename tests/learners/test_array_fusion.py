"""One opinion from several: how far sensors repeat each other, and what stands in for one that is missing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from pipeline.learners.array import fit_machine
from pipeline.learners.array_fusion import CombinedFeatures, WeightedVotes, complete
from tests.learners.test_array import SENSORS, array
from tests.learners.test_array_screen import learned


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
        p = expit([votes(row, None, weights) for row in log_odds[:8000]])
        near = (p > 0.75) & (p < 0.85)
        assert (signs[:8000][near] > 0).mean() == pytest.approx(p[near].mean(), abs=0.03)


def test_one_sensor_speaks_for_itself_and_those_without_weight_not_at_all():
    """NaN has no say where it has no weight."""
    votes = WeightedVotes(0.5)
    assert votes(np.array([np.nan, 1.7]), None, np.array([0.0, 1.0])) == pytest.approx(1.7)
    assert votes(np.array([np.nan, 1.7]), None, np.array([0.0, 0.5])) == pytest.approx(0.85)
    assert votes(np.array([1.0, 1.7]), None, np.array([1.0, 1.0])) == pytest.approx(2.7 / 1.5)


def test_nothing_to_learn_from_means_full_dependence():
    """Sensors that were never trained together are not trusted to be independent."""
    nothing = np.full((10, 2), np.nan)
    assert WeightedVotes.learn(nothing, np.ones(10), np.ones((10, 2))).dependence == 1.0


def test_combined_features_do_without_a_sensor():
    """With one sensor's features expected from the others, hardly less accurate than with all."""
    X, y, groups = array()
    screen, folds = learned(X, groups)
    signs = np.where(y, 1.0, -1.0)
    machine = fit_machine(X.reshape(len(X), -1), signs, np.ones(len(X)), folds)
    rule = CombinedFeatures(machine, screen)
    fresh, truth, _ = array(21)
    whole = np.array([rule(None, x, np.ones(SENSORS)) for x in fresh])
    spoilt = fresh.copy()
    spoilt[:, 1] = np.nan
    without = np.array([rule(None, x, np.array([1.0, 0.0, 1.0])) for x in spoilt])
    accuracy = np.mean((whole > 0) == truth)
    assert accuracy > 0.75
    assert np.mean((without > 0) == truth) > accuracy - 0.03
    assert np.corrcoef(whole, without)[0, 1] > 0.9


def test_completed_features_leave_the_believed_alone():
    """Only the row of the missing sensor changes."""
    X, _, groups = array()
    screen, _ = learned(X, groups)
    x = X[3].copy()
    believed = np.array([True, False, True])
    completed = complete(screen, x, believed)
    assert (completed[believed] == x[believed]).all()
    assert (completed[1] != x[1]).any()
    assert np.isfinite(completed).all()
