"""One opinion of an array from those of its sensors."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, Self

import numpy as np

from pipeline.learners._arrays import Flags, Floats
from pipeline.learners.machine import Discriminant

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
        from scipy.optimize import minimize_scalar

        subsets = [_Subset.of(log_odds[:, c], signs, weights[:, c]) for c in _subsets(log_odds.shape[1])]
        used = [subset for subset in subsets if subset is not None]
        if not used:
            return cls(1.0)
        found = minimize_scalar(lambda d: sum(s.loss(d) for s in used), bounds=(0.0, 1.0), method="bounded")
        return cls(float(found.x))

    def __call__(self, log_odds: Floats, features: Any, weights: Floats) -> float:
        """Log-odds of the second class; sensors of weight 0 may be NaN."""
        # Of so few numbers a plain sum is faster than numpy's.
        heard = [(w, l) for w, l in zip(weights.tolist(), log_odds.tolist(), strict=True) if w > 0]
        total = sum(w for w, _ in heard)
        return sum(w * l for w, l in heard) / (1 + self.dependence * max(total - 1, 0.0))


@dataclass(frozen=True, slots=True)
class _Subset:
    """Sums of the log-odds of some sensors, positive where they are right."""

    right: Floats
    weights: Floats
    n_sensors: int

    @classmethod
    def of(cls, log_odds: Floats, signs: Floats, weights: Floats) -> _Subset | None:
        together = np.where(np.isfinite(log_odds).all(axis=1), weights.min(axis=1), 0.0)
        known = together > 0.5
        if not known.any():
            return None
        return cls(signs[known] * log_odds[known].sum(axis=1), together[known], log_odds.shape[1])

    def loss(self, dependence: float) -> float:
        lowered = self.right / (1 + dependence * (self.n_sensors - 1))
        return float(self.weights @ np.logaddexp(0.0, -lowered)) / float(self.weights.sum())


def _subsets(n_sensors: int) -> list[list[int]]:
    sizes = range(2, n_sensors + 1) if n_sensors <= _MANY_SENSORS else (2, n_sensors)
    return [list(chosen) for size in sizes for chosen in combinations(range(n_sensors), size)]


class Screen(Protocol):
    """Knows what a sensor's features would be if the others were right."""

    def expected(self, x: Floats, sensor: int, partners: Flags, /) -> Floats: ...


@dataclass(frozen=True, slots=True)
class CombinedFeatures:
    """One classifier for the features of all sensors side by side.

    It cannot do without a sensor. So where one has no weight, its features are those that the others let expect.
    """

    discriminant: Discriminant
    screen: Screen

    def __call__(self, log_odds: Floats, features: Floats, weights: Floats) -> float:
        """Log-odds of the second class; sensors of weight 0 may be NaN."""
        completed = complete(self.screen, features, weights > 0)
        return float(self.discriminant.log_odds(self.discriminant.decision(completed.reshape(1, -1)))[0])


def complete(screen: Screen, x: Floats, believed: Flags) -> Floats:
    """Features (sensors, features) with those of sensors that are not believed as the others let expect them.

    Where nobody can say, they are zero: the mean of the sensor.
    """
    completed = np.where(believed[:, None], x, 0.0)
    for sensor in np.flatnonzero(~believed):
        completed[sensor] = np.nan_to_num(screen.expected(x, int(sensor), believed))
    return completed
