"""Mean distances to the nearest samples of other groups: coarse distances choose candidates, exact ones decide."""

from __future__ import annotations

import numpy as np

from pipeline.learners._arrays import Floats, Integers, Singles
from pipeline.learners._compiled import compiled

_ROWS = 128
"""Rows of coarse distances alive at any time; they stay in the cache."""
_LANES = 64
"""Of every so many samples the nearest is kept while all are visited; processors compare several lanes at once."""
_EPSILON = 2.0**-24


def mean_of_nearest(A: Floats, groups_A: Integers, B: Floats, groups_B: Integers, k: int) -> Floats:
    """Mean distance from each row of A to its k nearest rows of B in other groups, fewer where there are fewer.

    NaN where there is none. The distances are those of the differences in double precision, however close the points.
    """
    means = np.empty(len(A))
    # Rounding moves a coarse distance by less than this share of both squared lengths, whatever the order of its sums.
    slack = (2 * A.shape[1] + 20) * _EPSILON
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is compared exactly
        coarse_A, coarse_B = A.astype(np.float32), B.astype(np.float32)
        squares_A, squares_B = (np.einsum("ij,ij->i", X, X) for X in (coarse_A, coarse_B))
        for start in range(0, len(A), _ROWS):
            rows = slice(start, start + _ROWS)
            products = coarse_A[rows] @ coarse_B.T
            sizes = squares_A[rows], squares_B
            means[rows] = _exact_means(products, *sizes, A[rows], B, groups_A[rows], groups_B, k, slack)
    return means


@compiled
def _exact_means(
    products: Singles,
    squares_A: Singles,
    squares_B: Singles,
    A: Floats,
    B: Floats,
    groups_A: Integers,
    groups_B: Integers,
    k: int,
    slack: float,
) -> Floats:
    n = len(B)
    low = np.full(max(n + (-n) % _LANES, _LANES), np.float32(np.inf))
    high = low.copy()
    lowest, highest = np.empty(_LANES, np.float32), np.empty(_LANES, np.float32)
    nearest = np.empty(k)
    means = np.empty(len(A))
    for i in range(len(A)):
        _bounds(products[i], squares_A[i], squares_B, groups_B, groups_A[i], np.float32(slack), low, high)
        _least_of_lanes(low, lowest)
        _least_of_lanes(high, highest)
        nearest[:] = np.inf
        for lane in range(_LANES):
            _insert(nearest, float(highest[lane]))
        reach = nearest[k - 1]
        nearest[:] = np.inf
        for lane in range(_LANES):
            if lowest[lane] <= reach:
                for m in range(lane, n, _LANES):
                    if low[m] <= reach and groups_B[m] != groups_A[i]:
                        _insert(nearest, _square(A[i], B[m]))
        means[i] = _mean_root(nearest)
    return means


@compiled
def _bounds(
    products: Singles,
    square: np.float32,
    squares: Singles,
    groups: Integers,
    group: int,
    slack: np.float32,
    low: Singles,
    high: Singles,
) -> None:
    """Between what two numbers each squared distance lies; infinite for the group that does not count."""
    zero, infinite = np.float32(0.0), np.float32(np.inf)
    for m in range(len(products)):
        size = square + squares[m]
        middle = size - products[m] - products[m]
        least, most = middle - slack * size, middle + slack * size
        counts = groups[m] != group
        # What is no number for an overflow fails both comparisons.
        low[m] = (least if least > zero else zero) if counts else infinite
        high[m] = most if most < infinite and counts else infinite


@compiled
def _least_of_lanes(values: Singles, least: Singles) -> None:
    """Of values none of which is negative: such numbers have the order of their bits, and integers compare faster."""
    bits, least_bits = values.view(np.int32), least.view(np.int32)
    least_bits[:] = bits[:_LANES]
    for start in range(_LANES, len(bits), _LANES):
        row = bits[start : start + _LANES]
        for lane in range(_LANES):
            least_bits[lane] = min(least_bits[lane], row[lane])


@compiled
def _square(a: Floats, b: Floats) -> float:
    total = 0.0
    for feature in range(len(a)):
        total += (a[feature] - b[feature]) * (a[feature] - b[feature])
    return total


@compiled
def _insert(ordered: Floats, value: float) -> None:
    """Put a value into ascending ones, pushing out the largest, unless it is none smaller."""
    place = len(ordered) - 1
    if not value < ordered[place]:
        return
    while place > 0 and ordered[place - 1] > value:
        ordered[place] = ordered[place - 1]
        place -= 1
    ordered[place] = value


@compiled
def _mean_root(squares: Floats) -> float:
    """Mean root of those that are finite."""
    total, n = 0.0, 0
    for squared in squares:
        if squared < np.inf:
            total += np.sqrt(squared)
            n += 1
    return total / n if n else np.nan
