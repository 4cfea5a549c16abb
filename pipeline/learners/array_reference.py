"""Reference segments of every sensor: kNN distances of new segments to them, and conformal p-values of these."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import erfc, log1p, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.learners._arrays import Flags, Floats, Integers, Singles
from pipeline.learners._consistency import mean_distances
from pipeline.learners.array_nearest import NEAREST, Nearest

FEWEST_SEGMENTS = 20
"""Fewer segments with a weight above one half are no reference."""
_LARGEST = 1e300
_STORED = ("features", "distances", "groups")


@dataclass(frozen=True)
class ArrayReference:
    """Training segments of an array, and how far each lies from those of other recordings."""

    features: Singles  # (sensors, features, segments)
    distances: Floats  # (segments, sensors): log mean distance to the nearest segments, NaN where it is no reference
    groups: Integers  # (segments,): recordings

    @classmethod
    def learn(cls, X: Floats, weights: Floats, groups: Integers) -> Self:
        """From features (segments, sensors, features) and the weight of each (segments, sensors).

        A segment is a reference for a sensor if its weight exceeds one half; the others may be NaN.
        """
        used = weights > 0.5
        X = np.where(np.isnan(X), 0.0, X)
        distances = np.full(used.shape, np.nan)
        for s in np.flatnonzero(used.sum(axis=0) >= FEWEST_SEGMENTS):
            distances[used[:, s], s] = log_distances(X[:, s], used[:, s], groups)
        return cls(np.ascontiguousarray(X.transpose(1, 2, 0), np.float32), distances, np.asarray(groups))

    @cached_property
    def ready(self) -> Flags:
        """Sensors that have a reference."""
        return np.asarray(np.isfinite(self.distances).any(axis=0))

    def measured(self, X: Floats | Singles, present: Flags) -> Floats:
        """Return the log mean distance of segments to their nearest references, (segments, sensors).

        From features (segments, sensors, features) and which sensors are present; NaN without any.
        """
        return np.where(present & self.ready, self._nearest.log_means(queries_of(X, present)).T, np.nan)

    def p_values(self, measured: Floats) -> Floats:
        """By rank among the reference, the new segment included, and by recording; NaN without a reference."""
        rows = zip(self._sorted, self._spreads, measured.tolist(), strict=True)
        return np.array(
            [
                by_recording(p_value(ordered, value), spread.tail(value), len(ordered), spread.n_recordings)
                if value == value
                else np.nan
                for ordered, spread, value in rows
            ]
        )

    def neighbors(self, x: Floats, sensor: int, n: int, *, among: Flags | None = None) -> tuple[Integers, Floats]:
        """The segments nearest to a sensor's features, and their distances, nearest first; of the reference, or given.

        Training segments that are no reference can be asked for as well.
        """
        squares = np.sum((self.features[sensor].astype(np.float64) - x[:, None]) ** 2, axis=0)
        squares[~(np.isfinite(self.distances[:, sensor]) if among is None else among)] = np.inf
        nearest = np.argsort(squares, kind="stable")[: min(n, int(np.isfinite(squares).sum()))]
        return nearest, np.sqrt(squares[nearest])

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in _STORED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        features, distances, groups = (arrays[name] for name in _STORED)
        return cls(features, distances, groups)

    @cached_property
    def _nearest(self) -> Nearest:
        return Nearest(self.features, np.isfinite(self.distances.T))

    @cached_property
    def _sorted(self) -> list[list[float]]:
        return [np.sort(own[np.isfinite(own)]).tolist() for own in self.distances.T]

    @cached_property
    def _spreads(self) -> list[Spread]:
        return [Spread.of(own, self.groups) for own in self.distances.T]


@dataclass(frozen=True, slots=True)
class Spread:
    """Normal model of a measure whose values differ between recordings as well as within them."""

    mean: float
    deviation: float
    """Standard deviation of a segment of a new recording; 0 where fewer than two recordings are known."""
    n_recordings: int

    @classmethod
    def of(cls, values: Floats, groups: Integers) -> Self:
        """From the finite values."""
        used = np.isfinite(values)
        _, place, counts = np.unique(groups[used], return_inverse=True, return_counts=True)
        if len(counts) < 2:
            return cls(0.0, 0.0, len(counts))
        means = np.bincount(place, values[used]) / counts
        within = np.sum((values[used] - means[place]) ** 2) / max(len(place) - len(counts), 1)
        between = means.var(ddof=1) * (1 + 1 / len(counts))
        return cls(float(means.mean()), sqrt(float(between + within)), len(counts))

    def tail(self, value: float) -> float:
        """Probability of at least this value in a new recording, by Student's distribution; 0 if nothing is known."""
        if not self.deviation:
            return 0.0
        # Wallace's normal approximation, good to some percent of the probability: scipy is not needed to decide.
        n, t = self.n_recordings - 1, (value - self.mean) / self.deviation
        z = sqrt(n * log1p(min(t * t, _LARGEST) / n)) * (8 * n + 1) / (8 * n + 3)
        return 0.5 * erfc((z if t > 0 else -z) / sqrt(2))


def by_recording(p_value: float, tail: float, n_segments: int, n_recordings: int) -> float:
    """Raise a p-value by rank to one that holds where recordings, not segments, are drawn independently.

    A new recording lies beyond all of R others with probability 1 / (R + 1), and all its segments with it, although the
    rank of each is one among thousands. Counted by recordings, ranks are valid but cannot fall below 1 / (R + 1); from
    there on the tail of a normal model decides.
    """
    n_beyond = p_value * (n_segments + 1) - 1
    bound = (1 + n_beyond * n_recordings / n_segments) / (n_recordings + 1)
    return max(p_value, min(bound, tail))


def p_value(ordered: list[float], value: float) -> float:
    """Share of all, the new one included, that are at least as large."""
    return (1 + len(ordered) - bisect_left(ordered, value)) / (len(ordered) + 1)


def queries_of(X: Floats | Singles, present: Flags) -> Singles:
    """Return features (segments, sensors, features) as queries (sensors, segments, features), 0 where absent."""
    with np.errstate(over="ignore"):  # too far for single precision is infinitely far
        return np.where(present[:, :, None], X, 0).astype(np.float32).swapaxes(0, 1)


def log_distances(points: Floats, used: Flags, groups: Integers) -> Floats:
    """Of each used point to the nearest used ones of other recordings."""
    distances = mean_distances(points[used], groups[used], points[used], groups[used])
    logs: Floats = np.log(np.maximum(distances, NEAREST))
    return logs
