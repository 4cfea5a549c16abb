"""What remains of a kernel classifier at prediction time, for those who store or load it.

A process that decides for months loads this and nothing that training needs, neither scikit-learn nor a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from pipeline.core.exact_sums import exponential, on_grid
from pipeline.learners._arrays import Flags, Floats, Integers

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
            return self._radial(X[:, None])[:, 0]
        out = np.empty(len(X))
        for start in range(0, len(X), _BLOCK):
            block = X[start : start + _BLOCK]
            if self.kernel.name == "precomputed":
                block = block[:, self.columns]
            out[start : start + _BLOCK] = self.kernel(block, self.basis) @ self.coefficients + self.offset
        return out

    @cached_property
    def _radial(self) -> RadialSums:
        return RadialSums([[self]])

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
            return self._radial(X[:, None])
        return np.column_stack([one.decision(X) for one in self.pairs])

    @cached_property
    def _radial(self) -> RadialSums:
        return RadialSums([self.pairs])

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


class RadialSums:
    """Values of the discriminants of several sensors, all with radial basis functions.

    The same to the bit for one sample and for many: squared distances are exact for features on a grid. What the
    discriminants of a sensor share of their bases is looked at once.
    """

    def __init__(self, sensors: Sequence[Sequence[Discriminant]]) -> None:
        shared = [_shared([_basis(one) for one in own]) for own in sensors]
        self._points = [on_grid(points) for points, _ in shared]
        self._own = [np.einsum("pf,pf->p", points, points) for points in self._points]
        self._places = [places for _, places in shared]
        discriminants = [one for own in sensors for one in own]
        sizes = [max(one.n_terms, 1) for one in discriminants]
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._slopes = np.repeat([-one.kernel.gamma for one in discriminants], sizes)
        weights = [one.coefficients if one.n_terms else np.zeros(1) for one in discriminants]
        self._weights = np.concatenate([np.empty(0), *weights])
        self._offsets = np.array([one.offset for one in discriminants])

    def __call__(self, X: Floats) -> Floats:
        """Return all values, (n_samples, n_discriminants), from features (n_samples, n_sensors, n_features)."""
        n_rows = max(1, _TERMS_TOGETHER // len(self._weights))
        blocks = [self._values(X[start : start + n_rows]) for start in range(0, len(X), n_rows)]
        return np.concatenate(blocks) if blocks else np.empty((0, len(self._offsets)))

    def _values(self, X: Floats) -> Floats:
        terms = exponential(self._squared_distances(X) * self._slopes)
        terms *= self._weights
        return np.add.reduceat(terms, self._starts, axis=1) + self._offsets

    def _squared_distances(self, X: Floats) -> Floats:
        """Return those of every sample to the basis of each term, (n_samples, n_terms)."""
        placed = on_grid(X)
        own = np.einsum("nsf,nsf->ns", placed, placed)
        squares = np.empty((len(X), len(self._weights)))
        start = 0
        for s, (points, lengths, places) in enumerate(zip(self._points, self._own, self._places, strict=True)):
            found = own[:, s, None] + lengths - 2 * (placed[:, s] @ points.T)
            squares[:, start : start + len(places)] = found[:, places]
            start += len(places)
        return np.maximum(squares, 0, out=squares)


class ArrayMachines:
    """The machines of all sensors, with radial basis functions, for segments of all of them; a sensor may have none."""

    def __init__(self, machines: Sequence[Machine | None], n_classes: int) -> None:
        self._n_classes = n_classes
        self._machines = {s: machine for s, machine in enumerate(machines) if machine is not None}
        self._radial = RadialSums([_discriminants(machine) for machine in self._machines.values()])

    def margins(self, X: Floats, present: Flags) -> Floats:
        """Return those of segments (segments, sensors, features): (segments, sensors), or with pairs of classes.

        NaN where a sensor is absent or has no machine.
        """
        n_pairs, trained = self._n_classes * (self._n_classes - 1) // 2, list(self._machines)
        margins = np.full((*present.shape, n_pairs), np.nan)
        if trained:
            values = self._radial(np.where(present[:, :, None], X, 0)[:, trained])
            margins[:, trained] = values.reshape(len(X), -1, n_pairs)
        margins[~present] = np.nan
        return margins[:, :, 0] if self._n_classes == 2 else margins

    def log_odds(self, margins: Floats) -> Floats:
        """Return calibrated log-odds of each class against the first, (segments, sensors, classes)."""
        log_odds = np.full((*margins.shape[:2], self._n_classes), np.nan)
        for s, machine in self._machines.items():
            log_odds[:, s] = machine.class_log_odds(margins[:, s])
        log_odds[np.isnan(log_odds[:, :, -1])] = np.nan
        return log_odds


def _discriminants(machine: Machine) -> Sequence[Discriminant]:
    return machine.pairs if isinstance(machine, PairwiseDiscriminants) else (machine,)


def _basis(discriminant: Discriminant) -> Floats:
    """Return the basis; one without terms has a term of no weight."""
    return discriminant.basis if discriminant.n_terms else np.zeros((1, discriminant.basis.shape[1]))


def _shared(bases: Sequence[Floats]) -> tuple[Floats, Integers]:
    """Return the distinct samples of several bases, and the place among them of each."""
    if len(bases) == 1:
        return bases[0], np.arange(len(bases[0]))
    samples, places = np.unique(np.concatenate(bases), axis=0, return_inverse=True)
    return samples, places.ravel()


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
