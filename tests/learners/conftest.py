"""Small data sets."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@pytest.fixture
def two_blobs() -> tuple[Floats, NDArray[np.int64]]:
    """Two overlapping classes of 40 samples in three dimensions."""
    rng = np.random.default_rng(7)
    X = np.vstack([rng.normal(-1, 1, (40, 3)), rng.normal(1, 1, (40, 3))])
    return X, np.repeat([0, 1], 40)
