"""What remains of a kernel classifier at prediction time, for those who store or load it.

A process that decides for months loads this and nothing that training needs, neither scikit-learn nor a compiler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import exp

import numpy as np

from pipeline.learners._arrays import Floats, Integers

_BLOCK = 2_000
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
        if len(X) == 1 and self.kernel.name == "rbf":
            return np.array([self._rbf_sum(X[0]) + self.offset])
        out = np.empty(len(X))
        for start in range(0, len(X), _BLOCK):
            block = X[start : start + _BLOCK]
            if self.kernel.name == "precomputed":
                block = block[:, self.columns]
            out[start : start + _BLOCK] = self.kernel(block, self.basis) @ self.coefficients + self.offset
        return out

    def _rbf_sum(self, x: Floats) -> float:
        """The sum for one sample, as a stream brings them, term after term: the same to the bit on every machine."""
        differences = self._features - x[:, None]
        squared = np.add.reduce(np.square(differences, out=differences), axis=0)
        # numpy's exp is another one on every processor, and its sum another one for every length.
        values = np.array([exp(exponent) for exponent in (-self.kernel.gamma * squared).tolist()])
        return float(np.cumsum(self.coefficients * values)[-1]) if len(values) else 0.0

    @cached_property
    def _features(self) -> Floats:
        """The basis, feature by feature."""
        return np.ascontiguousarray(self.basis.T)

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


@dataclass(frozen=True, slots=True)
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
        return np.column_stack([one.decision(X) for one in self.pairs])

    def class_log_odds(self, decision: Floats) -> Floats:
        """Return log-odds of each class against the first, (n_samples, n_classes); the first column is 0."""
        columns = [one.log_odds(decision[:, n]) for n, one in enumerate(self.pairs)]
        return coupled(np.column_stack(columns), self.n_classes)

    def of_pair(self, first: int, second: int) -> tuple[Discriminant, float]:
        """Return the discriminant of two classes, and the factor (1 or -1) that makes it positive for the second."""
        place = class_pairs(self.n_classes).index((min(first, second), max(first, second)))
        return self.pairs[place], 1.0 if first < second else -1.0


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
