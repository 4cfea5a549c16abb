"""The nearest samples of other groups, found while products are turned into distances."""

from __future__ import annotations

import numpy as np

from pipeline.learners._arrays import Floats, Integers
from pipeline.learners._compiled import compiled


@compiled
def mean_of_nearest(
    products: Floats, squares_A: Floats, squares_B: Floats, groups_A: Integers, groups_B: Integers, k: int
) -> Floats:
    """Mean distance of each row to its k nearest columns of other groups, fewer where there are fewer; NaN without any.

    Takes the inner products of both sets of points, and their squared lengths.
    """
    means = np.empty(len(products))
    nearest = np.empty(k)
    for i in range(len(products)):
        nearest[:] = np.inf
        row = products[i]
        for j in range(len(row)):
            squared = squares_A[i] + squares_B[j] - 2.0 * row[j]
            if squared < nearest[k - 1] and groups_A[i] != groups_B[j]:
                _insert(nearest, squared)
        means[i] = _mean_root(nearest)
    return means


@compiled
def _insert(ordered: Floats, value: float) -> None:
    """Put a value into ascending ones, pushing out the largest."""
    place = len(ordered) - 1
    while place > 0 and ordered[place - 1] > value:
        ordered[place] = ordered[place - 1]
        place -= 1
    ordered[place] = value


@compiled
def _mean_root(squares: Floats) -> float:
    """Mean root of those that are finite; rounding may have made some of them negative."""
    total, n = 0.0, 0
    for squared in squares:
        if squared < np.inf:
            total += np.sqrt(max(squared, 0.0))
            n += 1
    return total / n if n else np.nan
