"""One opinion of an array from those of its sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, Self

import numpy as np

from pipeline.learners._arrays import Flags, Floats, Integers
from pipeline.learners._consistency import predict_out_of_fold, ridge_map
from pipeline.learners.array_reference import FEWEST_SEGMENTS
from pipeline.learners.kernel_classifier import Machine

_MANY_SENSORS = 6
"""With more, only pairs and all together are looked at: there would be too many subsets."""


@dataclass(frozen=True, slots=True)
class WeightedVotes:
    """Sum of the sensors' log-odds by weight, lowered by how far they repeat each other.

    Sensors that hear one walker are not independent witnesses. Were their log-odds normal with the correlation
    `dependence` within a class, the best use of k of them would be ``sum / (1 + dependence (k - 1))``; with weights
    their sum stands for k.
    """

    dependence: float

    @classmethod
    def learn(cls, log_odds: Floats, signs: Floats, weights: Floats) -> Self:
        """The dependence under which the labels are likeliest, given log-odds on left-out recordings.

        All arrays but the signs (+1 or -1) have the shape (segments, sensors). Every subset of the sensors counts the
        same, for any of them may be left one day.
        """
        return cls._learned([signs[:, None] * log_odds], weights)

    @classmethod
    def learn_classes(cls, log_odds: Floats, label: Integers, weights: Floats) -> Self:
        """Return the same for log-odds (segments, sensors, classes) of each class against the first, and labels.

        What is learned from is the advantage of the labeled class over each other one, so the order of the classes does
        not matter.
        """
        n_classes, rows = log_odds.shape[2], np.arange(len(label))
        own = log_odds[rows, :, label]
        return cls._learned([own - log_odds[rows, :, (label + n) % n_classes] for n in range(1, n_classes)], weights)

    @classmethod
    def _learned(cls, advantages: Sequence[Floats], weights: Floats) -> Self:
        """From advantages over each other class, and weights, all of the shape (segments, sensors)."""
        from scipy.optimize import minimize_scalar

        subsets = [_Subset.of([one[:, c] for one in advantages], weights[:, c]) for c in _subsets(weights.shape[1])]
        used = [subset for subset in subsets if subset is not None]
        if not used:
            return cls(1.0)
        found = minimize_scalar(lambda d: sum(s.loss(d) for s in used), bounds=(0.0, 1.0), method="bounded")
        return cls(float(found.x))

    def __call__(self, log_odds: Floats, features: Any, weights: Floats) -> list[float]:
        """Return log-odds of each class against the first from those of the sensors, (sensors, classes).

        Sensors of weight 0 may be NaN.
        """
        return [0.0, *(self.fused(log_odds[:, k], weights) for k in range(1, log_odds.shape[1]))]

    def fused(self, log_odds: Floats, weights: Floats) -> float:
        """Return the log-odds of one class against another from those of the sensors, (sensors,)."""
        # Of so few numbers a plain sum is faster than numpy's.
        heard = [(w, l) for w, l in zip(weights.tolist(), log_odds.tolist(), strict=True) if w > 0]
        total = sum(w for w, _ in heard)
        return sum(w * l for w, l in heard) / (1 + self.dependence * max(total - 1, 0.0))


@dataclass(frozen=True, slots=True)
class _Subset:
    """Sums of the log-odds of some sensors for the labeled class against each other one."""

    right: Floats  # (other classes, segments)
    weights: Floats
    n_sensors: int

    @classmethod
    def of(cls, advantages: Sequence[Floats], weights: Floats) -> _Subset | None:
        finite = np.all([np.isfinite(one).all(axis=1) for one in advantages], axis=0)
        together = np.where(finite, weights.min(axis=1), 0.0)
        known = together > 0.5
        if not known.any():
            return None
        right = np.stack([one[known].sum(axis=1) for one in advantages])
        return cls(right, together[known], weights.shape[1])

    def loss(self, dependence: float) -> float:
        lowered = self.right / (1 + dependence * (self.n_sensors - 1))
        others = np.logaddexp.reduce(-lowered, axis=0)
        return float(self.weights @ np.logaddexp(0.0, others)) / float(self.weights.sum())


def _subsets(n_sensors: int) -> list[list[int]]:
    sizes = range(2, n_sensors + 1) if n_sensors <= _MANY_SENSORS else (2, n_sensors)
    return [list(chosen) for size in sizes for chosen in combinations(range(n_sensors), size)]


@dataclass(frozen=True, slots=True)
class Expectation:
    """Linear predictions of the features of each sensor from those of every other."""

    maps: Floats  # (sensors, partners, features of the partner, features of the sensor), zeros where there is none
    offsets: Floats  # (sensors, partners, features)

    @classmethod
    def learn(cls, X: Floats, weights: Floats, folds: Integers) -> Self:
        """From features (segments, sensors, features) and weights (segments, sensors); 0 where features are NaN."""
        n_sensors, n_features = X.shape[1:]
        found = cls(
            np.zeros((n_sensors, n_sensors, n_features, n_features)), np.zeros((n_sensors, n_sensors, n_features))
        )
        for s, k in permutations(range(n_sensors), 2):
            pair = weights[:, s] * weights[:, k]
            if (pair > 0).sum() >= FEWEST_SEGMENTS:
                _, ridge = predict_out_of_fold(X[:, k], X[:, s], pair, folds)
                expected = ridge_map(X[:, k], X[:, s], pair, ridge)
                found.maps[s, k], found.offsets[s, k] = expected.matrix, expected.offset
        return found

    def complete(self, x: Floats, used: Flags) -> Floats:
        """Features (sensors, features) with those of unused sensors replaced by the mean of their predictions.

        Without a prediction they are zero, the median of the sensor.
        """
        completed = np.where(used[:, None], x, 0.0)
        paired = np.asarray(self.maps.any(axis=(2, 3)))
        for s in np.flatnonzero(~used):
            partners = np.flatnonzero(used & paired[s])
            if len(partners):
                completed[s] = np.mean([x[k] @ self.maps[s, k] + self.offsets[s, k] for k in partners], axis=0)
        return completed


@dataclass(frozen=True, slots=True)
class CombinedFeatures:
    """One classifier for the features of all sensors side by side; those of sensors without weight are predicted."""

    discriminant: Machine
    expectation: Expectation

    def __call__(self, log_odds: Floats, features: Floats, weights: Floats) -> list[float]:
        """Return log-odds of each class against the first; sensors of weight 0 may be NaN."""
        completed = self.expectation.complete(features, weights > 0)
        margins = self.discriminant.decision(completed.reshape(1, -1))
        found: list[float] = self.discriminant.class_log_odds(margins)[0].tolist()
        return found
