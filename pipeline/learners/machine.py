"""What remains of a kernel classifier at prediction time, for those who store or load it.

A process that decides for months loads this and nothing that training needs, neither scikit-learn nor a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from pipeline.exact import exponential, on_grid
from pipeline.learners._arrays import Floats, Integers

_BLOCK = 2_000
_TERMS_TOGETHER = 1 << 15
"""Terms of sums of radial basis functions that are computed at once; they stay in the cache."""
_LARGEST_LOG_ODDS = 6.0
"""Of a pair of classes, where there are more than two."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel whose typical value ``K(x, x)`` is 1, so that the amplitude has one meaning for all.

    Linear kernels are taken about the median of the training samples, in units of the median
    squared norm, precomputed ones in units of their median diagonal: a few huge samples then move neither the
    origin nor the scale.
    """

    name: str
    gamma: float = 1.0
    centre: Floats = field(default_factory=lambda: np.zeros(0))
    scale: float = 1.0

    def __call__(self, A: Floats, B: Floats) -> Floats:
        """Shape (len(A), len(B)). A precomputed kernel is its own matrix: `B` is ignored."""
        if self.name == "precomputed":
            return A / self.scale
        if self.name == "rbf":
            from scipy.spatial.distance import cdist

            return np.exp(-self.gamma * cdist(A, B, "sqeuclidean"))
        A, B = A - self.centre, B - self.centre
        if self.name == "cosine":
            A, B = unit_rows(A), unit_rows(B)
        return A @ B.T / self.scale


def unit_rows(A: Floats) -> Floats:
    norms = np.sqrt(np.einsum("ij,ij->i", A, A))
    return A / np.where(norms > 0, norms, 1.0)[:, None]


@dataclass(frozen=True)
class Discriminant:
    """``f(x) = sum_m coefficient_m K(x, basis_m) + offset`` and the slopes of its probabilities."""

    kernel: Kernel
    basis: Floats
    """Support samples or landmarks; for a precomputed kernel unused."""
    columns: Integers
    """Their places among the training samples."""
    coefficients: Floats
    offset: float
    slopes: Floats

    @property
    def n_terms(self) -> int:
        """Number of terms of the sum."""
        return len(self.coefficients)

    def decision(self, X: Floats) -> Floats:
        if self.kernel.name == "rbf":
            return self._radial(X)[:, 0]
        out = np.empty(len(X))
        for start in range(0, len(X), _BLOCK):
            block = X[start : start + _BLOCK]
            if self.kernel.name == "precomputed":
                block = block[:, self.columns]
            out[start : start + _BLOCK] = self.kernel(block, self.basis) @ self.coefficients + self.offset
        return out

    @cached_property
    def _radial(self) -> RadialSums:
        return RadialSums((self,))

    def log_odds(self, decision: Floats) -> Floats:
        """Of the second class, calibrated."""
        return log_odds(decision, self.slopes)

    def class_log_odds(self, decision: Floats) -> Floats:
        """Return log-odds of each class against the first, (n_samples, 2): zeros, and those of the second class."""
        return np.column_stack([np.zeros(len(decision)), self.log_odds(decision)])

    def probabilities(self, X: Floats) -> Floats:
        """Shape (n_samples, 2)."""
        positive = probability(self.decision(X), self.slopes)
        return np.column_stack([1.0 - positive, positive])


@dataclass(frozen=True)
class PairwiseDiscriminants:
    """One discriminant for each pair of three or more classes, in the order of `class_pairs`.

    The discriminant of pair (i, j) is positive for class j.
    """

    pairs: tuple[Discriminant, ...]
    n_classes: int

    @property
    def n_terms(self) -> int:
        """Number of terms of all discriminants together."""
        return sum(one.n_terms for one in self.pairs)

    def decision(self, X: Floats) -> Floats:
        """Return the margins, (n_samples, n_pairs)."""
        if all(one.kernel.name == "rbf" for one in self.pairs):
            return self._radial(X)
        return np.column_stack([one.decision(X) for one in self.pairs])

    @cached_property
    def _radial(self) -> RadialSums:
        return RadialSums(self.pairs)

    def class_log_odds(self, decision: Floats) -> Floats:
        """Return log-odds of each class against the first, (n_samples, n_classes); the first column is 0."""
        columns = [one.log_odds(decision[:, n]) for n, one in enumerate(self.pairs)]
        return coupled(np.column_stack(columns), self.n_classes)

    def of_pair(self, first: int, second: int) -> tuple[Discriminant, float]:
        """Return the discriminant of two classes, and the factor (1 or -1) that makes it positive for the second."""
        place = class_pairs(self.n_classes).index((min(first, second), max(first, second)))
        return self.pairs[place], 1.0 if first < second else -1.0


class RadialSums:
    """Values of discriminants with radial basis functions, the same to the bit for one sample and for many.

    What they share of their bases is looked at once. Squared distances are exact for features on a grid.
    """

    def __init__(self, discriminants: Sequence[Discriminant]) -> None:
        # One without terms has a term of no weight.
        bases = [one.basis if one.n_terms else np.zeros((1, one.basis.shape[1])) for one in discriminants]
        weights = [one.coefficients if one.n_terms else np.zeros(1) for one in discriminants]
        sizes = [len(one) for one in weights]
        samples, self._places = _shared(bases)
        self._points = on_grid(samples)
        self._own = np.einsum("pf,pf->p", self._points, self._points)
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._slopes = np.repeat([-one.kernel.gamma for one in discriminants], sizes)
        self._weights = np.concatenate(weights)
        self._offsets = np.array([one.offset for one in discriminants])

    def __call__(self, X: Floats) -> Floats:
        """Shape (n_samples, n_discriminants)."""
        n_rows = max(1, _TERMS_TOGETHER // len(self._weights))
        blocks = [self._values(X[start : start + n_rows]) for start in range(0, len(X), n_rows)]
        return np.concatenate(blocks) if blocks else np.empty((0, len(self._offsets)))

    def _values(self, X: Floats) -> Floats:
        exponents = self._squared_distances(X)[:, self._places] * self._slopes
        terms = exponential(exponents) * self._weights
        return np.add.reduceat(terms, self._starts, axis=1) + self._offsets

    def _squared_distances(self, X: Floats) -> Floats:
        placed = on_grid(X)
        own = np.einsum("sf,sf->s", placed, placed)
        return np.maximum(own[:, None] + self._own - 2 * (placed @ self._points.T), 0)


def _shared(bases: Sequence[Floats]) -> tuple[Floats, Integers]:
    """Return the distinct samples of several bases, and the place among them of each."""
    if len(bases) == 1:
        return bases[0], np.arange(len(bases[0]))
    samples, places = np.unique(np.concatenate(bases), axis=0, return_inverse=True)
    return samples, places.ravel()


Machine = Discriminant | PairwiseDiscriminants
"""The classifier of one sensor: a discriminant for two classes, pairs of them for more."""


def class_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Return all pairs (i, j) of classes with i < j."""
    return list(combinations(range(n_classes), 2))


def coupled(log_odds: Floats, n_classes: int) -> Floats:
    """Return log-odds of each class against the first from those of all pairs, (n_samples, n_pairs).

    The log-odds of pair (i, j) are those of class j. They are clipped, because no calibration on some hundred segments
    supports more, and explained by one score for each class in least squares (Bradley-Terry): the score of a class is
    the mean of its log-odds against all classes, itself included. Pairs that agree with each other are met exactly.
    """
    if n_classes == 2:
        return np.column_stack([np.zeros(len(log_odds)), log_odds])
    scores = np.zeros((len(log_odds), n_classes))
    # Term after term: the order of a sum must not depend on the number of samples.
    for n, (i, j) in enumerate(class_pairs(n_classes)):
        clipped = np.clip(log_odds[:, n], -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
        scores[:, i] -= clipped
        scores[:, j] += clipped
    against_first: Floats = (scores - scores[:, :1]) / n_classes
    return against_first


def log_odds(decision: Floats, slopes: Floats) -> Floats:
    """Of y = +1, for decision values."""
    odds: Floats = decision * np.where(decision < 0, slopes[0], slopes[1])
    return odds


def probability(decision: Floats, slopes: Floats) -> Floats:
    """P(y = +1) for decision values."""
    from scipy.special import expit

    return expit(log_odds(decision, slopes))
