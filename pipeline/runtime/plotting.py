"""The only door to matplotlib."""

from __future__ import annotations

from typing import Any

from pipeline.core.errors import UsageError


def pyplot() -> Any:
    """matplotlib for files, without a screen."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("figures need matplotlib; install gemmed[plots]") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt
