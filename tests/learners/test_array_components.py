"""Components of an array: common axes, middles of their own, and no say for a sensor that fails."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import median_abs_deviation
from sklearn.decomposition import PCA

from pipeline.learners.array_components import ArrayComponents

N, SENSORS, VALUES, RANK = 300, 3, 30, 4


def sound(seed: int = 0):
    """Scenes in four dimensions, heard by sensors with offsets of their own, and a little noise."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(np.random.default_rng(9).normal(size=(VALUES, RANK)))[0].T
    offsets = 5 * np.random.default_rng(10).normal(size=(SENSORS, VALUES))
    scenes = rng.normal(size=(N, SENSORS, RANK)) * [4, 3, 2, 1]
    return scenes @ axes + offsets + 0.05 * rng.normal(size=(N, SENSORS, VALUES)), axes, offsets


def angle(A, B) -> float:
    """Largest principal angle between two subspaces of orthonormal rows, in degrees."""
    return float(np.degrees(np.arccos(np.clip(np.linalg.svd(A @ B.T)[1].min(), -1, 1))))


def test_clean_sensors_have_the_axes_of_ordinary_components():
    """The subspace of scikit-learn's on all sensors, each about its middle; nearly all power is kept."""
    X, axes, offsets = sound()
    found = ArrayComponents.learn(X, np.ones((N, SENSORS), bool), RANK)
    ordinary = PCA(RANK).fit((X - X.mean(axis=0)).reshape(-1, VALUES))
    assert angle(found.axes[0], ordinary.components_) < 1
    assert angle(found.axes[0], axes) < 1
    assert np.abs(found.means - offsets).max() < 1.5
    assert min(found.power_kept(X, np.ones((N, SENSORS), bool))) > 0.98


def test_a_sensor_that_fails_half_of_the_time_does_not_own_its_axes():
    """Loud nonsense in half of its segments: the common axes stay, axes of its own would turn."""
    X, axes, _ = sound()
    rng = np.random.default_rng(1)
    X[: N // 2, 2] = 40 * rng.normal(size=(N // 2, VALUES))
    found = ArrayComponents.learn(X, np.ones((N, SENSORS), bool), RANK)
    assert angle(found.axes[2], axes) < 5
    assert angle(PCA(RANK).fit(X[:, 2]).components_, axes) > 60


def test_absent_sensors_are_nan_and_one_that_never_came_has_no_axes():
    """Nothing stands in for what was not heard."""
    X, _, _ = sound()
    present = np.ones((N, SENSORS), bool)
    present[:50, 0] = False
    present[5:, 1] = False
    X[~present] = np.nan
    found = ArrayComponents.learn(X, present, RANK)
    features = found.transform(X)
    assert np.isnan(features[:50, 0]).all()
    assert np.isfinite(features[50:, 0]).all()
    assert np.isnan(features[:, 1]).all()
    assert found.power_kept(X, present)[1] is None
    with pytest.raises(ValueError, match="too few to learn from"):
        ArrayComponents.learn(X[:5], present[:5], RANK)


def test_weighted_values_are_divided_by_their_spread_clipped_and_weighed():
    """By the definition, written out: median of each sensor, spread of all sensors, eight of them at most."""
    X, _, _ = sound()
    X *= np.geomspace(0.01, 100, VALUES)
    X[7, 1, 3] += 1e6
    weights = np.linspace(0.5, 2, VALUES)
    found = ArrayComponents.learn(X, np.ones((N, SENSORS), bool), RANK, weights=weights)
    about = X - np.median(X, axis=0)
    spread = median_abs_deviation(about.reshape(-1, VALUES), scale="normal", axis=0)
    scaled = weights * np.clip(about / spread, -8, 8)
    assert np.abs(scaled[7, 1]).max() == pytest.approx(8 * weights[3])
    expected = np.einsum("nsv,scv->nsc", scaled, found.axes)
    np.testing.assert_allclose(found.transform(X), expected, rtol=0, atol=1e-3 * np.abs(expected).max())
    assert np.abs(found.transform(X)).max() <= np.linalg.norm(8 * weights)
    ordinary = PCA(RANK).fit(np.delete(scaled.reshape(-1, VALUES), 7 * SENSORS + 1, axis=0))
    assert angle(found.axes[0], ordinary.components_) < 10


def test_the_unit_of_a_value_does_not_matter_once_it_is_weighed():
    """Decibels or millibels: the same components; without weights it matters."""
    X, _, _ = sound()
    units = np.geomspace(0.1, 10, VALUES)
    everyone = np.ones((N, SENSORS), bool)
    one, other = (
        ArrayComponents.learn(values, everyone, RANK, weights=np.ones(VALUES)).transform(values)
        for values in (X, X * units)
    )
    np.testing.assert_allclose(one, other, atol=1e-3 * np.abs(one).max())
    plain, scaled = (ArrayComponents.learn(values, everyone, RANK).transform(values) for values in (X, X * units))
    assert np.abs(plain - scaled).max() > 0.1 * np.abs(plain).max()


def test_divided_stored_and_loaded():
    """Components divided by the scale of their sensor; arrays in single precision give them again."""
    X, _, _ = sound()
    found = ArrayComponents.learn(X, np.ones((N, SENSORS), bool), RANK, weights=np.ones(VALUES))
    scales = np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(found.divided(scales).transform(X), found.transform(X) / scales[:, None], rtol=1e-12)
    arrays = found.as_arrays()
    assert {values.dtype for values in arrays.values()} == {np.dtype(np.float32)}
    again = ArrayComponents.from_arrays(arrays)
    np.testing.assert_allclose(again.transform(X), found.transform(X), atol=1e-5 * np.abs(found.transform(X)).max())
