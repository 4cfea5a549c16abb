"""Conformal p-values of new samples: how many training samples lie at least as far out?

Two calibrations, both with ``p = (1 + #{i: length_i >= length(x)}) / (N + 1)``:

* `LeaveOneOut`: sample i and the new one trade places in full. Each training sample's edges are recomputed
  with the new sample among its possible neighbours, so all N + 1 lengths are exchangeable and the
  false-alarm rate is at most alpha in finite samples.
* `Bipartite`: for each i the new sample is measured against just the halves that i was measured
  against (cross-conformal), averaged over the partitions.

A new sample's cost is reading the training samples once. They are therefore scanned in single precision
first, which only has to tell who may be near; whoever may is measured again in double precision. The result
is that of double precision throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.learners._arrays import Floats, Integers
from pipeline.learners._compiled import compiled
from pipeline.learners._robust import rough_centre

Singles = NDArray[np.float32]

_TIE = 1e-9
"""Lengths that differ by less, relatively, are equal: rounding must not decide a rank."""

_LANES = 64


@dataclass(frozen=True, slots=True)
class Scan:
    """The training samples twice: as they are, and scaled to single precision, feature by feature."""

    points: Floats
    """Shape (n_samples, n_features)."""
    centre: Floats
    scale: float
    coarse: Singles
    """Shape (n_features, n_samples), within -1 to 1: the innermost loop runs over samples."""

    @classmethod
    def of(cls, X: Floats) -> Scan:
        centre = rough_centre(X)
        centred = X - centre
        scale = float(np.abs(centred).max()) or 1.0
        return cls(np.ascontiguousarray(X), centre, scale, np.ascontiguousarray((centred / scale).T.astype(np.float32)))


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Calibration of the leave-one-out graph."""

    scan: Scan
    lengths: Floats
    radii: Floats
    """Distance of each sample to its farthest counted neighbour."""
    n_neighbors: int

    def lengths_of(self, X: Floats) -> Floats:
        return self._measure(X)[0]

    def p_values(self, X: Floats) -> Floats:
        return self._measure(X)[1]

    def _measure(self, X: Floats) -> tuple[Floats, Floats]:
        s = self.scan
        return _leave_one_out(X, s.points, s.centre, s.scale, s.coarse, self.lengths, self.radii, self.n_neighbors)


@dataclass(frozen=True, slots=True)
class Bipartite:
    """Calibration of the bipartite graph, cross-fitted over several partitions."""

    scan: Scan
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
        s = self.scan
        return _bipartite(
            X, s.points, s.centre, s.scale, s.coarse, self.lengths, self.codes, self.n_partitions, self.n_neighbors
        )


def half_codes(halves: Integers) -> Integers:
    """One integer per sample from its row of halves (shape n_partitions x n_samples)."""
    return (halves << np.arange(len(halves))[:, None]).sum(axis=0)


@compiled
def _coarse_squares(x: Floats, centre: Floats, scale: float, coarse: Singles, out: Singles) -> float:
    """Squared distances in scaled single precision; returns a bound on the error of their roots.

    Four features at a time: the running sum then stays in a register for four terms.
    """
    out[:] = np.float32(0.0)
    n_features = coarse.shape[0]
    whole = n_features - n_features % 4
    largest = 1.0
    for feature in range(0, whole, 4):
        a, b, c, d = coarse[feature], coarse[feature + 1], coarse[feature + 2], coarse[feature + 3]
        x_a = np.float32((x[feature] - centre[feature]) / scale)
        x_b = np.float32((x[feature + 1] - centre[feature + 1]) / scale)
        x_c = np.float32((x[feature + 2] - centre[feature + 2]) / scale)
        x_d = np.float32((x[feature + 3] - centre[feature + 3]) / scale)
        largest = max(largest, float(abs(x_a)), float(abs(x_b)), float(abs(x_c)), float(abs(x_d)))
        for n in range(len(out)):
            total = out[n]
            total += (a[n] - x_a) * (a[n] - x_a)
            total += (b[n] - x_b) * (b[n] - x_b)
            total += (c[n] - x_c) * (c[n] - x_c)
            total += (d[n] - x_d) * (d[n] - x_d)
            out[n] = total
    for feature in range(whole, n_features):
        row = coarse[feature]
        value = np.float32((x[feature] - centre[feature]) / scale)
        largest = max(largest, float(abs(value)))
        for n in range(len(out)):
            out[n] += (row[n] - value) * (row[n] - value)
    # Rounding: 6e-8 of each coordinate, and of each partial sum.
    return 2.5e-7 * np.sqrt(n_features) * largest * (1.0 + 0.5 * np.sqrt(n_features))


@compiled
def _exact_square(x: Floats, point: Floats) -> float:
    total = 0.0
    for feature in range(len(x)):
        total += (point[feature] - x[feature]) * (point[feature] - x[feature])
    return total


@compiled
def _near(coarse_squares: Singles, error: float, wanted: int, chosen: Integers) -> tuple[int, float]:
    """List all samples that may lie within some radius of the new one, at least `wanted`.

    Returns how many, and the radius (scaled). It comes from the `wanted`-th smallest of interleaved minima, found
    without a branch, where a sorted list of all samples would mispredict one at every new neighbour.
    """
    n = len(coarse_squares)
    minima = np.full(_LANES, np.float32(np.inf))
    whole = n - n % _LANES
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            minima[lane] = min(minima[lane], coarse_squares[start + lane])
    for lane in range(n - whole):
        minima[lane] = min(minima[lane], coarse_squares[whole + lane])
    minima.sort()
    radius = np.inf
    if wanted <= min(_LANES, n):
        radius = np.sqrt(minima[wanted - 1]) + error
    bound = np.float32((radius + error) * (radius + error) * (1.0 + 1e-6))
    count = 0
    for i in range(n):
        chosen[count] = i
        # Not "<=": what overflowed to NaN may be near.
        count += not (coarse_squares[i] > bound)
    return count, radius


@compiled
def _insert(best: Floats, first: int, k: int, value: float) -> None:
    """Put `value` into the sorted run ``best[first : first + k]``, pushing out the largest."""
    place = first + k - 1
    while place > first and best[place - 1] > value:
        best[place] = best[place - 1]
        place -= 1
    best[place] = value


@compiled
def _mean_root(squares: Floats, first: int, k: int) -> float:
    total = 0.0
    for place in range(first, first + k):
        total += np.sqrt(squares[place])
    return total / k


@compiled
def _nearest_per_half(
    x: Floats,
    points: Floats,
    chosen: Integers,
    codes: Integers,
    n_partitions: int,
    k: int,
    reach: float,
    nearest: Floats,
) -> bool:
    """Fill `nearest`, k sorted squares per half, from the chosen samples.

    False if some half has fewer than k within `reach`: then samples that were not chosen may be nearer.
    """
    nearest[:] = np.inf
    for i in chosen:
        value = _exact_square(x, points[i])
        for q in range(n_partitions):
            first = (2 * q + ((codes[i] >> q) & 1)) * k
            if value < nearest[first + k - 1]:
                _insert(nearest, first, k, value)
    farthest = 0.0
    for half in range(2 * n_partitions):
        farthest = max(farthest, nearest[half * k + k - 1])
    return farthest <= reach * reach


@compiled
def _bipartite(
    X: Floats,
    points: Floats,
    centre: Floats,
    scale: float,
    coarse: Singles,
    lengths: Floats,
    codes: Integers,
    n_partitions: int,
    k: int,
) -> tuple[Floats, Floats]:
    n = len(points)
    n_halves = 2 * n_partitions
    out = np.empty(len(X))
    p = np.empty(len(X))
    squares = np.empty(n, dtype=np.float32)
    chosen = np.empty(n, dtype=np.int64)
    nearest = np.empty(n_halves * k)
    to_half = np.empty(n_halves)
    against = np.empty(1 << n_partitions)
    for m in range(len(X)):
        x = X[m]
        error = _coarse_squares(x, centre, scale, coarse, squares)
        found, radius = _near(squares, error, 5 * k + 5, chosen)
        if not _nearest_per_half(x, points, chosen[:found], codes, n_partitions, k, radius * scale, nearest):
            _nearest_per_half(x, points, np.arange(n), codes, n_partitions, k, np.inf, nearest)
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


@compiled
def _leave_one_out(
    X: Floats,
    points: Floats,
    centre: Floats,
    scale: float,
    coarse: Singles,
    lengths: Floats,
    radii: Floats,
    k: int,
) -> tuple[Floats, Floats]:
    n = len(points)
    out = np.empty(len(X))
    p = np.empty(len(X))
    squares = np.empty(n, dtype=np.float32)
    chosen = np.empty(n, dtype=np.int64)
    nearest = np.empty(k)
    for m in range(len(X)):
        x = X[m]
        error = _coarse_squares(x, centre, scale, coarse, squares)
        found, _ = _near(squares, error, k, chosen)
        nearest[:] = np.inf
        for i in chosen[:found]:
            value = _exact_square(x, points[i])
            if value < nearest[k - 1]:
                _insert(nearest, 0, k, value)
        length = _mean_root(nearest, 0, k)
        bar = length * (1.0 - _TIE)
        count = 1
        for i in range(n):
            candidate = lengths[i]
            reach = radii[i] / scale + error
            if not (squares[i] > reach * reach * (1.0 + 1e-6)):
                distance = np.sqrt(_exact_square(x, points[i]))
                if distance < radii[i]:
                    candidate -= (radii[i] - distance) / k
            count += candidate >= bar
        out[m] = length
        p[m] = count / (n + 1)
    return out, p
