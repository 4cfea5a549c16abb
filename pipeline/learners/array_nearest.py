"""Mean distances to the nearest of many reference points, for many queries of several sensors at once."""

from __future__ import annotations

from functools import cached_property
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from pipeline.learners._arrays import Flags, Floats, Singles
from pipeline.learners._consistency import N_NEIGHBORS

NEAREST = 1e-12
"""Distances are no smaller than this before their logarithm is taken."""
_FURTHEST = np.float32(1e30)
"""Queries whose squared length is beyond are infinitely far away."""
_UNIT = np.float32(2.0**-24)
_TOGETHER = 8
"""Queries of a set; their distances to all points stay in the cache."""
_GROUP = 16
"""Points of which only the nearest is looked at when the candidates are limited."""


class Nearest:
    """Sets of reference points, (sets, features, points), of which those count that are `used`, (sets, points).

    A matrix product in single precision finds the points that may be among the nearest, by a bound of its rounding
    errors. These are measured again, feature after feature, so that the result depends neither on the product's order
    of additions nor on how many queries there are.
    """

    def __init__(self, points: Singles, used: Flags) -> None:
        missing = -points.shape[2] % _GROUP
        self._by_point = np.pad(points.transpose(0, 2, 1), ((0, 0), (0, missing), (0, 0)))
        self._used = np.pad(used, ((0, 0), (0, missing)))
        self._k = min(N_NEIGHBORS, points.shape[2])

    def log_means(self, queries: Singles) -> Floats:
        """Return the logarithm of the mean distance of each query, (sets, queries, features), to its nearest points."""
        n_queries = queries.shape[1]
        out = np.empty(queries.shape[:2])
        # Far beyond all points a product overflows; such queries are set apart.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, n_queries, _TOGETHER):
                part = slice(start, min(start + _TOGETHER, n_queries))
                out[:, part] = self._log_means(queries[:, part])
        return out

    def _log_means(self, queries: Singles) -> Floats:
        lengths = np.einsum("sqf,sqf->sq", queries, queries)
        near = lengths < _FURTHEST
        queries = np.where(near[:, :, None], queries, np.float32(0))
        row, place = self._candidates(queries, np.where(near, lengths, np.float32(0)))
        squares = self._squared_distances(queries, row, place)
        nearest = self._smallest(squares, row, near.size)
        return np.where(near, _log_mean_roots(nearest).reshape(near.shape), inf)

    def _candidates(self, queries: Singles, lengths: Singles) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of queries and the places of points that may be among their nearest."""
        # Half of the squared distances, less that of the squared length of the query, and at most so much too small.
        most = np.matmul(queries, self._by_point.transpose(0, 2, 1))
        np.subtract(self._most[:, None], most, out=most)
        limits = self._limits(most) + self._error * lengths
        most -= self._slack[:, None]
        row, place = np.divmod(np.flatnonzero(most <= limits[:, :, None]), most.shape[2])
        return row, place

    def _limits(self, most: Singles) -> Singles:
        """Return a value for each row that its k smallest do not exceed: the smallest of groups are fewer to search."""
        least = most.reshape(*most.shape[:2], _GROUP, -1).min(axis=2)
        if least.shape[2] < self._k:
            least = most
        return np.partition(least, self._k - 1, axis=2)[:, :, self._k - 1]

    def _squared_distances(self, queries: Singles, row: NDArray[np.intp], place: NDArray[np.intp]) -> Singles:
        """Return those of pairs of queries and points, summed feature after feature."""
        chosen = self._by_point[row // queries.shape[1], place]
        differences = np.subtract(chosen.T, queries.reshape(-1, queries.shape[2])[row].T, order="C")
        if len(row) < 2:  # of a single column numpy would add in another order
            differences = np.repeat(differences, 2, axis=1)
        squares: Singles = np.add.reduce(np.square(differences, out=differences), axis=0)
        return squares[: len(row)]

    def _smallest(self, squares: Singles, row: NDArray[np.intp], n_rows: int) -> Singles:
        """Return the smallest values of each row, in order; infinite where there are fewer."""
        counts = np.bincount(row, minlength=n_rows)
        table = np.full((n_rows, max(int(counts.max(initial=0)), self._k)), np.inf, np.float32)
        table[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = squares
        return np.sort(table, axis=1)[:, : self._k]

    @property
    def _error(self) -> np.float32:
        """Largest error of a squared distance by the product, and by the sum of squares, over the squared lengths."""
        return np.float32(4 * (self._by_point.shape[2] + 4)) * _UNIT

    @cached_property
    def _lengths(self) -> Singles:
        lengths = np.einsum("spf,spf->sp", self._by_point, self._by_point)
        return np.where(self._used, lengths, np.float32(np.inf))

    @cached_property
    def _most(self) -> Singles:
        return np.asarray(self._lengths * (1 + self._error) / 2, np.float32)

    @cached_property
    def _slack(self) -> Singles:
        return np.asarray(self._lengths * self._error, np.float32)


def _log_mean_roots(squares: Singles) -> Floats:
    """Return the logarithm of the mean root of the finite values of each row; infinite where there is none."""
    finite = squares < np.inf
    roots = np.sqrt(np.where(finite, squares, np.float32(0))).astype(np.float64)
    counts = finite.sum(axis=1)
    means = np.where(counts > 0, np.cumsum(roots, axis=1)[:, -1] / np.maximum(counts, 1), inf)
    # numpy's logarithm is another one on every processor.
    return np.array([log(max(mean, NEAREST)) for mean in means.tolist()])
