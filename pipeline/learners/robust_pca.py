"""Principal components that failing sensors do not own."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from pipeline.core.blas_threads import one_thread
from pipeline.learners import _checks
from pipeline.learners._arrays import Flags, Floats
from pipeline.learners._robust import robust_spread

_DEFAULT_COMPONENTS = 50
_CUTOFF = 4.0  # robust standard deviations of the logarithm of a distance
_ROUNDS = 10


class RobustPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal components of the samples that belong together.

    Begins with spherical components: every sample, seen from the median, counts by its direction alone, so a loud one
    has no more say than a quiet one. Each sample then has two distances: within the components, in robust spreads of
    each, and from their space. A sample with a distance far above the median of those kept (at first the half nearest
    to the median) is left out, all others are kept; and so on with ordinary components of these, until nothing changes,
    at most ten times.

    Parameters
    ----------
    n_components : int or None, default=None
        None means 50, or as many as there are.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal axes, the strongest first; the largest entry of each is positive.
    mean_ : ndarray of shape (n_features_in_,)
    explained_variance_ : ndarray of shape (n_components_,)
        Of the samples that remain.
    retained_power_ : float
        Share of their variance that the components hold.
    kept_ : ndarray of bool of shape (n_samples,)
        The samples that remain.
    n_components_ : int

    Notes
    -----
    Meant for fewer than half of the samples corrupted; tested up to 45 %, also when all of these are equal, as those of
    a dead sensor. `transform` is the ordinary projection: a loud sample stays far away, it is just not followed.
    Cost: that of an eigenproblem of the smaller of samples and features, two to eleven times.

    References
    ----------
    Spherical components: Locantore et al., Test 8 (1999). The two distances: Hubert, Rousseeuw, Vanden Branden, ROBPCA,
    Technometrics 47 (2005).

    Examples
    --------
    >>> import numpy as np
    >>> from pipeline.learners import RobustPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3)) * [5, 1, 1]
    >>> X[:40] = rng.normal(size=(40, 3)) * [1, 1, 500]  # loud, and elsewhere
    >>> pca = RobustPCA(n_components=1).fit(X)
    >>> bool(abs(pca.components_[0, 0]) > 0.99), bool(pca.kept_[:40].mean() < 0.05)
    (True, True)
    """

    def __init__(self, *, n_components: int | None = None) -> None:
        self.n_components = n_components

    @one_thread
    def fit(self, X: Any, y: object = None) -> Self:
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        most = min(len(X) - 1, X.shape[1])
        if self.n_components is not None:
            _checks.whole_number(
                self.n_components,
                "n_components",
                least=1,
                most=most,
                cure=f"{len(X)} samples of {X.shape[1]} features have no more components",
            )
        self.n_components_ = min(most, _DEFAULT_COMPONENTS) if self.n_components is None else int(self.n_components)
        self.kept_ = _belonging(X, self.n_components_)
        kept = X[self.kept_]
        self.mean_ = kept.mean(axis=0)
        self.components_, self.explained_variance_ = _principal_axes(kept - self.mean_, self.n_components_)
        total = float(np.var(kept, axis=0, ddof=1).sum())
        self.retained_power_ = float(self.explained_variance_.sum() / total) if total > 0 else 1.0
        return self

    @one_thread
    def transform(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores: Floats = (X - self.mean_) @ self.components_.T
        return scores

    @property
    def _n_features_out(self) -> int:
        return self.n_components_


def _belonging(X: Floats, n_components: int) -> Flags:
    """Samples near the others, but at least as many as the components need."""
    offsets = X - np.median(X, axis=0)
    lengths = np.linalg.norm(offsets, axis=1)
    axes, _ = _principal_axes(offsets / np.where(lengths > 0, lengths, 1.0)[:, None], n_components)
    # Distances are compared with those of the nearer half: a cluster of failures would distort the quantiles of all.
    kept = lengths <= np.median(lengths)
    for _ in range(_ROUNDS):
        excess = _outlyingness(offsets, axes, kept)
        nearer = excess <= max(_CUTOFF, np.partition(excess, n_components)[n_components])
        if (nearer == kept).all():
            break
        kept = nearer
        offsets = offsets - offsets[kept].mean(axis=0)
        axes, _ = _principal_axes(offsets[kept], n_components)
    return kept


def _outlyingness(offsets: Floats, axes: Floats, kept: Flags) -> Floats:
    """How far a sample lies within the axes or beyond them, compared with those kept so far."""
    scores = offsets @ axes.T
    spread = robust_spread(scores[kept])
    within = np.linalg.norm(scores / np.maximum(spread, 1e-9 * spread.max(initial=1e-300)), axis=1)
    beyond = np.sqrt(np.maximum(np.sum(offsets**2, axis=1) - np.sum(scores**2, axis=1), 0.0))
    negligible = max(1e-6 * float(np.median(np.linalg.norm(offsets, axis=1))), 1e-300)
    return np.maximum(_excess(within, kept, 1e-300), _excess(beyond, kept, negligible))


def _excess(distances: Floats, kept: Flags, negligible: float) -> Floats:
    """How far a logarithmic distance lies above the median of the kept, in spreads; 0 if half of them are equal."""
    logs = np.log(np.maximum(distances, negligible))
    spread = robust_spread(logs[kept])
    excess: Floats = (logs - np.median(logs[kept])) / spread if spread > 0 else np.zeros(len(logs))
    return excess


def _principal_axes(X: Floats, n_components: int) -> tuple[Floats, Floats]:
    """The strongest orthonormal axes of centred samples, and the variance along them."""
    n_samples, n_features = X.shape
    wide = n_features > n_samples
    gram = (X @ X.T if wide else X.T @ X) / (n_samples - 1)
    size = len(gram)
    values, vectors = eigh(gram, subset_by_index=(size - n_components, size - 1))
    order = np.argsort(-values, kind="stable")
    axes = X.T @ vectors[:, order] if wide else vectors[:, order]
    # Where the samples span fewer dimensions, the decomposition supplies axes of no variance that are orthogonal too.
    axes = np.linalg.qr(axes / np.maximum(np.linalg.norm(axes, axis=0), 1e-300))[0].T
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return axes * np.where(largest < 0, -1.0, 1.0), np.maximum(values[order], 0.0)
