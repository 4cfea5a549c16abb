"""What each sensor has delivered lately, against which a segment stands out."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from pipeline.core.events import Samples, Views
from pipeline.core.framing import Grid

BACKGROUND_SECONDS = 120.0
_EVERY_SECONDS = 5.0


class Background:
    """Adds to every segment the median summary of each sensor over the last two minutes.

    Whoever passes within a minute moves a median of two minutes little, while wind, rain and a changed gain are
    followed within a minute or two. The segment itself is among those of which the median is taken.
    """

    accepts = Views
    remembers = ("_past", "_median", "_next", "_seconds")

    def __init__(self, grid: Grid) -> None:
        self._every = round(_EVERY_SECONDS * grid.rate_hz)
        self._next = 0
        self._seconds = 0.0
        self.flush()

    def push(self, views: Views, /) -> list[object]:
        if views.span.start >= self._next:
            self._next = views.span.start + self._every
            self._past.append(views.summary)
            self._median = _median(self._past)
            self._seconds = min(BACKGROUND_SECONDS, len(self._past) * _EVERY_SECONDS)
        return [replace(views, background=self._median, background_seconds=self._seconds)]

    def flush(self) -> list[object]:
        self._past: deque[Samples] = deque(maxlen=round(BACKGROUND_SECONDS / _EVERY_SECONDS))
        self._median = np.empty((0, 0), np.float32)
        self._next, self._seconds = 0, 0.0
        return []


def _median(past: deque[Samples]) -> Samples:
    """Of each sensor and value; NaN for a sensor that was never present."""
    stacked = np.stack(past)
    present = ~np.isnan(stacked[:, :, 0])
    if present.all():
        return np.asarray(np.median(stacked, axis=0), np.float32)
    median = np.full(stacked.shape[1:], np.nan, np.float32)
    for sensor in np.flatnonzero(present.any(axis=0)):
        median[sensor] = np.median(stacked[present[:, sensor], sensor], axis=0)
    return median
