"""Principal components that loud failures do not own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from pipeline.learners import RobustPCA


def nominal(n: int = 300, d: int = 60, seed: int = 0) -> np.ndarray:
    """Variance falls along the first axes, then noise."""
    rng = np.random.default_rng(seed)
    spread = np.concatenate([[10, 8, 6, 5, 4], np.full(d - 5, 0.5)])
    return rng.standard_normal((n, d)) * spread + rng.standard_normal(d)


def angle(one: np.ndarray, other: np.ndarray) -> float:
    """Largest principal angle between two row spaces, radians."""
    return float(np.arccos(np.clip(np.linalg.svd(one @ other.T)[1].min(), -1, 1)))


def failures(kind: str, n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(9)
    return {
        "loud": 300 * rng.standard_normal((n, d)),
        "dead": np.full((n, d), -400.0),
        "one direction": np.outer(rng.normal(0, 500, n), rng.standard_normal(d)),
        "cluster": 40 * rng.standard_normal(d) + 0.3 * rng.standard_normal((n, d)),
        "near cluster": 8 * rng.standard_normal(d) + 0.1 * rng.standard_normal((n, d)),
    }[kind]


@pytest.mark.parametrize("shape", [(300, 60), (50, 60)])
def test_on_clean_data_it_is_ordinary_pca(shape):
    """Where nothing is left out, axes, variances and power are scikit-learn's."""
    X = nominal(*shape)
    ours = RobustPCA(n_components=5).fit(X)
    theirs = PCA(5, svd_solver="full").fit(X[ours.kept_])
    assert ours.kept_.mean() > 0.9
    assert angle(ours.components_, theirs.components_) < 1e-6
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(ours.retained_power_, theirs.explained_variance_ratio_.sum(), rtol=1e-9)
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), atol=1e-8)


@pytest.mark.parametrize("share", [0.1, 0.45])
@pytest.mark.parametrize("kind", ["loud", "dead", "one direction", "cluster", "near cluster"])
def test_failures_do_not_own_the_axes(kind, share):
    """With up to 45 % corrupted samples the axes are nearly those of the clean ones; ordinary PCA loses them."""
    X = nominal()
    clean = PCA(5).fit(X).components_
    n_bad = round(share * len(X))
    X[:n_bad] = failures(kind, n_bad, X.shape[1])
    ours = RobustPCA(n_components=5).fit(X)
    assert ours.kept_[:n_bad].mean() < 0.03  # those that happen to be no louder than the others
    assert ours.kept_[n_bad:].mean() > 0.9
    assert angle(ours.components_, clean) < 0.15
    assert ours.retained_power_ > 0.9
    assert angle(PCA(5).fit(X).components_, clean) > 0.5


def test_components_are_orthonormal_even_where_the_samples_span_less():
    """Rank 2 in 30 dimensions, 5 components asked for."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    pca = RobustPCA(n_components=5).fit(X)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(5), atol=1e-9)
    assert pca.retained_power_ == pytest.approx(1.0)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.floats(0.1, 100), st.integers(0, 2))
def test_shift_scale_and_order_change_nothing_else(seed, scale, turn):
    """Equivariance: the same samples are kept and the same axes found."""
    X = nominal(80, 20, seed)
    order = np.random.default_rng(turn).permutation(80)
    one, other = RobustPCA(n_components=4).fit(X), RobustPCA(n_components=4).fit(scale * X[order] + 7)
    assert (one.kept_[order] == other.kept_).all()
    assert angle(one.components_, other.components_) < 1e-5


def test_axes_are_turned_so_that_their_largest_entry_is_positive():
    """Two fits of the same samples in other order give the same axes, not opposite ones."""
    X = nominal(80, 20)
    one, other = RobustPCA(n_components=4).fit(X), RobustPCA(n_components=4).fit(X[::-1])
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-9)
    assert (np.take_along_axis(one.components_, np.abs(one.components_).argmax(axis=1)[:, None], axis=1) > 0).all()


def test_there_are_always_samples_enough_for_the_components():
    """As many components as possible: all samples are needed, however far out some are."""
    X = nominal(12, 30)
    X[:3] *= 1000
    pca = RobustPCA(n_components=11).fit(X)
    assert pca.kept_.sum() == 12
    assert pca.components_.shape == (11, 30)


def test_more_components_than_there_are_is_an_error():
    """The message names the number, the rule and the cure."""
    with pytest.raises(ValueError, match="n_components=9 must be a whole number at least 1 and at most 4; 5 samples"):
        RobustPCA(n_components=9).fit(np.eye(5))
