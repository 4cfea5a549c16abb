"""Conformal p-values of new samples: how many training samples lie at least as far out?

Two calibrations, both with ``p = (1 + #{i: length_i >= length(x)}) / (N + 1)``:

* `LeaveOneOut`: sample i and the new one trade places in full. Each training sample's edges are recomputed with
  the new sample among its possible neighbours, so all N + 1 lengths are exchangeable and the
  false-alarm rate is at most alpha in finite samples.
* `Bipartite`: for each i the new sample is measured against just the halves that i was measured
  against (cross-conformal), averaged over the partitions.

Samples are stored feature by feature: the innermost loop runs over samples, needs no reordering of
sums to be vectorised, and so gives the same bits everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from pipeline.learners._graphs import Floats, Integers

_TIE = 1e-9
"""Lengths that differ by less, relatively, are equal: rounding must not decide a rank."""


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Calibration of the leave-one-out graph."""

    points: Floats
    """Shape (n_features, n_samples)."""
    lengths: Floats
    radii: Floats
    """Distance of each sample to its farthest counted neighbour."""
    n_neighbors: int

    def lengths_of(self, X: Floats) -> Floats:
        return _leave_one_out(X, self.points, self.lengths, self.radii, self.n_neighbors)[0]

    def p_values(self, X: Floats) -> Floats:
        return _leave_one_out(X, self.points, self.lengths, self.radii, self.n_neighbors)[1]


@dataclass(frozen=True, slots=True)
class Bipartite:
    """Calibration of the bipartite graph, cross-fitted over several partitions."""

    points: Floats
    lengths: Floats
    codes: Integers
    """Bit q says which half of partition q the sample is in."""
    n_partitions: int
    n_neighbors: int

    def lengths_of(self, X: Floats) -> Floats:
        return self._measure(X)[0]

    def p_values(self, X: Floats) -> Floats:
        return self._measure(X)[1]

    def _measure(self, X: Floats) -> tuple[Floats, Floats]:
        return _bipartite(X, self.points, self.lengths, self.codes, self.n_partitions, self.n_neighbors)


def half_codes(halves: Integers) -> Integers:
    """One integer per sample from its row of halves (shape n_partitions x n_samples)."""
    return (halves << np.arange(len(halves))[:, None]).sum(axis=0)


@njit(cache=True)
def _distances_to_all(x: Floats, points: Floats, out: Floats) -> None:
    """Squared distances, without the cancellation of the matrix-product form."""
    out[:] = 0.0
    for feature in range(points.shape[0]):
        value = x[feature]
        row = points[feature]
        for n in range(len(out)):
            difference = row[n] - value
            out[n] += difference * difference


@njit(cache=True)
def _insert(best: Floats, value: float) -> None:
    """Put `value` into the sorted `best`, pushing out the largest."""
    place = len(best) - 1
    while place > 0 and best[place - 1] > value:
        best[place] = best[place - 1]
        place -= 1
    best[place] = value


@njit(cache=True)
def _mean_root(squares: Floats) -> float:
    total = 0.0
    for value in squares:
        total += np.sqrt(value)
    return total / len(squares)


@njit(cache=True)
def _leave_one_out(X: Floats, points: Floats, lengths: Floats, radii: Floats, k: int) -> tuple[Floats, Floats]:
    n = points.shape[1]
    out = np.empty(len(X))
    p = np.empty(len(X))
    squares = np.empty(n)
    nearest = np.empty(k)
    for m in range(len(X)):
        _distances_to_all(X[m], points, squares)
        nearest[:] = np.inf
        for i in range(n):
            if squares[i] < nearest[k - 1]:
                _insert(nearest, squares[i])
        length = _mean_root(nearest)
        bar = length * (1.0 - _TIE)
        count = 1
        for i in range(n):
            candidate = lengths[i]
            if squares[i] < radii[i] * radii[i]:
                candidate -= (radii[i] - np.sqrt(squares[i])) / k
            count += candidate >= bar
        out[m] = length
        p[m] = count / (n + 1)
    return out, p


@njit(cache=True)
def _bipartite(
    X: Floats, points: Floats, lengths: Floats, codes: Integers, n_partitions: int, k: int
) -> tuple[Floats, Floats]:
    n = points.shape[1]
    out = np.empty(len(X))
    p = np.empty(len(X))
    squares = np.empty(n)
    nearest = np.empty((n_partitions, 2, k))
    to_half = np.empty((n_partitions, 2))
    against = np.empty(1 << n_partitions)
    for m in range(len(X)):
        _distances_to_all(X[m], points, squares)
        nearest[:] = np.inf
        farthest = np.inf
        for i in range(n):
            if squares[i] >= farthest:
                continue
            farthest = 0.0
            for q in range(n_partitions):
                best = nearest[q, (codes[i] >> q) & 1]
                if squares[i] < best[k - 1]:
                    _insert(best, squares[i])
                farthest = max(farthest, nearest[q, 0, k - 1], nearest[q, 1, k - 1])
        for q in range(n_partitions):
            to_half[q, 0] = _mean_root(nearest[q, 0])
            to_half[q, 1] = _mean_root(nearest[q, 1])
        for code in range(len(against)):
            total = 0.0
            for q in range(n_partitions):
                # A sample of half h was measured against half 1 - h.
                total += to_half[q, 1 - ((code >> q) & 1)]
            against[code] = total * (1.0 - _TIE) / n_partitions
        count = 1
        for i in range(n):
            count += lengths[i] >= against[codes[i]]
        out[m] = to_half.mean()
        p[m] = count / (n + 1)
    return out, p
