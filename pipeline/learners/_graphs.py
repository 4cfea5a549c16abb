"""Nearest-neighbour graphs: the distances behind geometric entropy minimisation.

Everything here starts from one *neighbour table*: for each sample its nearest allowed neighbours, sorted.
"Allowed" means: of the same class and of another group. The leave-one-out graph, every random bipartition and the
graph over the retained samples are all read off this one table, so distances are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipeline.learners._arrays import Flags, Floats, Integers
from pipeline.learners._compiled import compiled
from pipeline.learners._robust import rough_centre

_ROWS_AT_ONCE = 128
"""Rows of the distance matrix alive at any time; a block of them stays in the cache."""


@dataclass(frozen=True, slots=True)
class NeighbourTable:
    """Sorted nearest allowed neighbours of each sample; short rows end in index -1, distance inf."""

    distances: Floats
    indices: Integers


class DistanceRows(Protocol):
    """Squared distances of all samples to all samples, any block of rows."""

    n_samples: int

    def block(self, start: int, stop: int) -> Floats: ...


def row_blocks(rows: DistanceRows) -> Iterator[tuple[int, Floats]]:
    """All rows, a block at a time, each with the number of its first row."""
    for start in range(0, rows.n_samples, _ROWS_AT_ONCE):
        yield start, rows.block(start, min(start + _ROWS_AT_ONCE, rows.n_samples))


class EuclideanRows:
    """Euclidean, through one matrix product per block of centred samples.

    Centred near the median, which a few huge samples do not move. Where the product loses half of its digits, as
    inside a cluster far from the centre, the distance is computed again from the differences.
    """

    def __init__(self, X: Floats) -> None:
        self.n_samples = len(X)
        self._points = X - rough_centre(X)
        self._norms = np.einsum("ij,ij->i", self._points, self._points)

    def block(self, start: int, stop: int) -> Floats:
        rows = self._points[start:stop] @ self._points.T
        _to_squared_distances(rows, self._norms[start:stop], self._norms)
        _measure_cancelled(rows, self._points, self._norms, start)
        return rows


class KernelRows:
    """The distance a kernel induces, ``K_ii + K_jj - 2 K_ij``."""

    def __init__(self, kernel: Floats) -> None:
        self.n_samples = len(kernel)
        self._kernel = kernel
        self._norms = np.ascontiguousarray(np.diag(kernel))

    def block(self, start: int, stop: int) -> Floats:
        rows = self._kernel[start:stop].copy()
        _to_squared_distances(rows, self._norms[start:stop], self._norms)
        return rows


@compiled
def _to_squared_distances(products: Floats, row_norms: Floats, column_norms: Floats) -> None:
    """Turn inner products into squared distances in place; below rounding error means zero."""
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            norms = row_norms[i] + column_norms[j]
            squared = norms - 2.0 * products[i, j]
            products[i, j] = squared if squared > 1e-14 * norms else 0.0


@compiled
def _measure_cancelled(squared: Floats, points: Floats, norms: Floats, start: int) -> None:
    """Replace distances that are small against their norms by exact ones."""
    for i in range(squared.shape[0]):
        for j in range(squared.shape[1]):
            if squared[i, j] < 1e-8 * (norms[start + i] + norms[j]):
                total = 0.0
                for feature in range(points.shape[1]):
                    difference = points[start + i, feature] - points[j, feature]
                    total += difference * difference
                squared[i, j] = total


@compiled
def _scan_rows(
    squared: Floats,
    start: int,
    classes: Integers,
    groups: Integers,
    distances: Floats,
    indices: Integers,
) -> None:
    """Fill the table's rows from one block: an insertion sort that few entries ever enter."""
    depth = distances.shape[1]
    for i in range(squared.shape[0]):
        row = start + i
        found = 0
        farthest = np.inf
        for j in range(squared.shape[1]):
            value = squared[i, j]
            if value >= farthest or classes[j] != classes[row] or groups[j] == groups[row]:
                continue
            place = found if found < depth else depth - 1
            while place > 0 and distances[row, place - 1] > value:
                distances[row, place] = distances[row, place - 1]
                indices[row, place] = indices[row, place - 1]
                place -= 1
            distances[row, place] = value
            indices[row, place] = j
            if found < depth:
                found += 1
            if found == depth:
                farthest = distances[row, depth - 1]
        for place in range(found):
            distances[row, place] = np.sqrt(distances[row, place])


class TableBuilder:
    """Collects a `NeighbourTable` from blocks of squared distances, in one pass over them."""

    def __init__(self, classes: Integers, groups: Integers, depth: int) -> None:
        self._classes, self._groups = classes, groups
        self._distances = np.full((len(classes), depth), np.inf)
        self._indices = np.full((len(classes), depth), -1, dtype=np.int64)

    def add(self, start: int, squared: Floats) -> None:
        _scan_rows(squared, start, self._classes, self._groups, self._distances, self._indices)

    def table(self) -> NeighbourTable:
        return NeighbourTable(self._distances, self._indices)


@compiled
def _first_allowed(
    distances: Floats, indices: Integers, side: Integers, wanted: Integers, k: int, asked: Flags
) -> tuple[Floats, Floats]:
    """Mean and largest distance to the first `k` neighbours on the wanted side; NaN if too few."""
    n_samples, depth = distances.shape
    mean = np.full(n_samples, np.nan)
    radius = np.full(n_samples, np.nan)
    for i in range(n_samples):
        if not asked[i]:
            continue
        total = 0.0
        found = 0
        for place in range(depth):
            j = indices[i, place]
            if j < 0:
                break
            if side[j] == wanted[i]:
                total += distances[i, place]
                found += 1
                if found == k:
                    mean[i] = total / k
                    radius[i] = distances[i, place]
                    break
    return mean, radius


class Graph:
    """Mean distance of every sample to its `k` nearest allowed neighbours, on any side of a cut."""

    def __init__(self, rows: DistanceRows, table: NeighbourTable, classes: Integers, groups: Integers) -> None:
        self._rows, self._table = rows, table
        self._classes, self._groups = classes, groups

    def edge_lengths(
        self, side: Integers, wanted: Integers, k: int, asked: Flags | None = None
    ) -> tuple[Floats, Floats]:
        """Mean and largest of the `k` nearest distances from sample i to samples with ``side == wanted[i]``.

        The table answers nearly always; a sample whose listed neighbours do not suffice is
        measured again against all samples. Infinite where fewer than `k` neighbours exist, NaN where
        not `asked`.
        """
        asked = np.ones(len(side), dtype=bool) if asked is None else asked
        mean, radius = _first_allowed(self._table.distances, self._table.indices, side, wanted, k, asked)
        for i in np.flatnonzero(asked & np.isnan(mean)):
            mean[i], radius[i] = self._measure_again(int(i), side == wanted[i], k)
        return mean, radius

    def _measure_again(self, i: int, allowed: Flags, k: int) -> tuple[float, float]:
        allowed = allowed & (self._classes == self._classes[i]) & (self._groups != self._groups[i])
        if np.count_nonzero(allowed) < k:
            return np.inf, np.inf
        nearest = np.sort(np.sqrt(self._rows.block(i, i + 1)[0, allowed]))[:k]
        return float(nearest.mean()), float(nearest[-1])

    def leave_one_out(self, k: int, among: Flags | None = None) -> tuple[Floats, Floats]:
        """Mean and largest distance to the `k` nearest other samples; only within `among` if given."""
        side = np.ones(len(self._classes), dtype=np.int64) if among is None else among.astype(np.int64)
        return self.edge_lengths(side, np.ones_like(side), k, asked=among)

    def bipartite(self, k: int, halves: Integers) -> tuple[Floats, Floats]:
        """Mean over the partitions of each sample's edge length to the half it is not in.

        `halves` has one row of zeros and ones per partition. Both halves are scored: each is
        the reference of the other.
        """
        lengths = [self.edge_lengths(half, 1 - half, k) for half in halves]
        return np.mean([mean for mean, _ in lengths], axis=0), np.mean([r for _, r in lengths], axis=0)


def random_halves(groups: Integers, classes: Integers, n_partitions: int, rng: np.random.RandomState) -> Integers:
    """Random equal bipartitions, one row each; a group stays whole, every class is halved."""
    halves = np.empty((n_partitions, len(groups)), dtype=np.int64)
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        names, owner = np.unique(groups[members], return_inverse=True)
        for partition in halves:
            coin = np.empty(len(names), dtype=np.int64)
            coin[rng.permutation(len(names))] = np.arange(len(names)) % 2
            partition[members] = coin[owner]
    return halves


def minimal_entropy_set(lengths: Floats, coverage: float, weights: Floats) -> Flags:
    """The samples with the shortest edges whose weight reaches `coverage` of the total."""
    order = np.argsort(lengths, kind="stable")
    reached = np.cumsum(weights[order])
    needed = int(np.searchsorted(reached, coverage * reached[-1] * (1 - 1e-12))) + 1
    inside = np.zeros(len(lengths), dtype=bool)
    inside[order[:needed]] = True
    return inside
