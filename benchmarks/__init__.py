"""Measurements against peers, as ratios within one run. Each module runs as ``python -m benchmarks.NAME``."""

import pipeline  # noqa: F401  (first: one BLAS thread for every peer too)
