"""From margins to probabilities: a sigmoid on either side of the decision boundary."""

from __future__ import annotations

import math

import numpy as np

from pipeline.learners._arrays import Floats
from pipeline.learners._compiled import compiled


@compiled
def _fit_slope(distance: Floats, right: Floats, weights: Floats) -> float:
    """Slope of ``P(the sign is right) = sigmoid(slope * |f|)``, by weighted likelihood.

    One pseudo-sample on the right and one on the wrong side, both of mean weight and at the mean distance, keep the
    slope finite on separable data. The problem is convex in one variable: Newton's method inside a bracket.
    """
    total = weights.sum()
    if total <= 0.0:
        return 1.0
    pseudo = total / (weights > 0).sum()
    mean = max((weights * distance).sum() / total, 1e-12)
    low, high = 0.0, 1e6 / mean
    slope = 1.0 / mean
    for _ in range(200):
        sure = 1.0 / (1.0 + math.exp(-slope * mean))
        gradient = pseudo * mean * (2.0 * sure - 1.0)
        bend = pseudo * 2.0 * mean * mean * sure * (1.0 - sure)
        for n in range(len(distance)):
            p = 1.0 / (1.0 + math.exp(-min(slope * distance[n], 700.0)))
            gradient += weights[n] * distance[n] * (p - right[n])
            bend += weights[n] * distance[n] ** 2 * p * (1.0 - p)
        if gradient > 0.0:
            high = slope
        else:
            low = slope
        if abs(gradient) <= 1e-9 * total * mean or high - low <= 1e-12 * high:
            break
        following = slope - gradient / max(bend, 1e-300)
        slope = following if low < following < high else 0.5 * (low + high)
    return max(slope, 1e-6 / mean)


def fit_slopes(decision: Floats, y: Floats, weights: Floats) -> Floats:
    """Slopes below and above zero; the probability is one half exactly where the decision changes."""
    slopes = []
    for below in (True, False):
        side = (decision < 0) == below
        right = (y[side] < 0) == below
        slopes.append(_fit_slope(np.abs(decision[side]), right.astype(np.float64), weights[side]))
    return np.array(slopes)
