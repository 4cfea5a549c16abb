"""Centre and spread that a few wild values do not move."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.learners._arrays import Floats

_OF_A_NORMAL_SAMPLE = 1.4826


def robust_spread(values: Floats) -> Any:
    """Median absolute deviation along the first axis, scaled to the standard deviation of a normal sample."""
    return _OF_A_NORMAL_SAMPLE * np.median(np.abs(values - np.median(values, axis=0)), axis=0)


def rough_centre(X: Floats) -> Floats:
    """Median of every few samples: near the bulk, whatever a few huge ones do, and cheap."""
    centre: Floats = np.median(X[:: max(1, len(X) // 64)], axis=0)
    return centre
