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
    """Squared distances, without the cancellation of the matrix-product form.

    Four features at a time: the running sum then stays in a register for four terms.
    """
    out[:] = 0.0
    n_features = points.shape[0]
    whole = n_features - n_features % 4
    for feature in range(0, whole, 4):
        a, b, c, d = points[feature], points[feature + 1], points[feature + 2], points[feature + 3]
        x_a, x_b, x_c, x_d = x[feature], x[feature + 1], x[feature + 2], x[feature + 3]
        for n in range(len(out)):
            total = out[n]
            total += (a[n] - x_a) * (a[n] - x_a)
            total += (b[n] - x_b) * (b[n] - x_b)
            total += (c[n] - x_c) * (c[n] - x_c)
            total += (d[n] - x_d) * (d[n] - x_d)
            out[n] = total
    for feature in range(whole, n_features):
        row, value = points[feature], x[feature]
        for n in range(len(out)):
            out[n] += (row[n] - value) * (row[n] - value)


@njit(cache=True, inline="always")
def _insert(best: Floats, first: int, k: int, value: float) -> None:
    """Put `value` into the sorted run ``best[first : first + k]``, pushing out the largest."""
    place = first + k - 1
    while place > first and best[place - 1] > value:
        best[place] = best[place - 1]
        place -= 1
    best[place] = value


@njit(cache=True, inline="always")
def _mean_root(squares: Floats, first: int, k: int) -> float:
    total = 0.0
    for place in range(first, first + k):
        total += np.sqrt(squares[place])
    return total / k


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
                _insert(nearest, 0, k, squares[i])
        length = _mean_root(nearest, 0, k)
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
def _near_candidates(squares: Floats, wanted: int, chosen: Integers) -> int:
    """List at least `wanted` samples that hold all the nearest ones up to some radius; returns how many.

    The radius is the `wanted`-th smallest of 64 interleaved minima: found without a branch, where
    keeping sorted lists of all samples would mispredict one at every new neighbour.
    """
    n, lanes = len(squares), 64
    minima = np.full(lanes, np.inf)
    whole = n - n % lanes
    for start in range(0, whole, lanes):
        for lane in range(lanes):
            minima[lane] = min(minima[lane], squares[start + lane])
    for lane in range(n - whole):
        minima[lane] = min(minima[lane], squares[whole + lane])
    minima.sort()
    radius = minima[wanted - 1] if wanted <= lanes else np.inf
    count = 0
    for i in range(n):
        chosen[count] = i
        count += squares[i] <= radius
    return count


@njit(cache=True)
def _nearest_per_half(
    squares: Floats, chosen: Integers, codes: Integers, n_partitions: int, k: int, nearest: Floats
) -> bool:
    """Fill `nearest`, k sorted squares per half, from the chosen samples; False if a half has too few."""
    nearest[:] = np.inf
    for i in chosen:
        value = squares[i]
        for q in range(n_partitions):
            first = (2 * q + ((codes[i] >> q) & 1)) * k
            if value < nearest[first + k - 1]:
                _insert(nearest, first, k, value)
    for half in range(2 * n_partitions):
        if nearest[half * k + k - 1] == np.inf:
            return False
    return True


@njit(cache=True)
def _bipartite(
    X: Floats, points: Floats, lengths: Floats, codes: Integers, n_partitions: int, k: int
) -> tuple[Floats, Floats]:
    n = points.shape[1]
    n_halves = 2 * n_partitions
    out = np.empty(len(X))
    p = np.empty(len(X))
    squares = np.empty(n)
    chosen = np.empty(n, dtype=np.int64)
    everyone = np.arange(n)
    nearest = np.empty(n_halves * k)
    to_half = np.empty(n_halves)
    against = np.empty(1 << n_partitions)
    for m in range(len(X)):
        _distances_to_all(X[m], points, squares)
        found = _near_candidates(squares, 5 * k + 5, chosen)
        if not _nearest_per_half(squares, chosen[:found], codes, n_partitions, k, nearest):
            _nearest_per_half(squares, everyone, codes, n_partitions, k, nearest)
        for half in range(n_halves):
            to_half[half] = _mean_root(nearest, half * k, k)
        for code in range(len(against)):
            total = 0.0
            for q in range(n_partitions):
                # A sample of half h was measured against half 1 - h.
                total += to_half[2 * q + 1 - ((code >> q) & 1)]
            against[code] = total * (1.0 - _TIE) / n_partitions
        count = 1
        for i in range(n):
            count += lengths[i] >= against[codes[i]]
        out[m] = to_half.mean()
        p[m] = count / (n + 1)
    return out, p
