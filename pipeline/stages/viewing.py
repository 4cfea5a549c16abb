"""From cepstra to the two views of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pipeline.core.errors import SettingsError
from pipeline.core.events import Cepstra, Samples, Views
from pipeline.core.framing import Grid
from pipeline.core.segment_views import FEATURES, PAPER, Onsets, Summary, timing
from pipeline.stages.batches import replaced

_TOGETHER = 8
"""Segments whose spectra stay in the cache."""


class Viewing:
    """Summary and timing of every segment; with ``features="paper"`` both are all frames of the strongest window."""

    accepts = Cepstra
    remembers = ()

    def __init__(self, grid: Grid, *, n_coefficients: int, features: str) -> None:
        if features not in FEATURES:
            raise SettingsError(f"features={features!r} is unknown; use one of {', '.join(FEATURES)}")
        self._grid, self._is_paper = grid, features == PAPER
        self._summary = Summary(grid, n_coefficients)
        self._onsets = Onsets(grid, n_coefficients)

    def push(self, cepstra: Cepstra, /) -> list[object]:
        return self.push_all([cepstra])

    def push_all(self, items: Sequence[object], /) -> list[object]:
        """Describe many segments at once."""
        return replaced(items, Cepstra, self._views)

    def _views(self, segments: Sequence[Cepstra]) -> Iterator[Views]:
        for start in range(0, len(segments), _TOGETHER):
            yield from self._described(segments[start : start + _TOGETHER])

    def _described(self, segments: Sequence[Cepstra]) -> Iterator[Views]:
        values = np.concatenate([one.values for one in segments])
        onsets = self._onsets(values)
        if self._is_paper:
            summary = course = np.concatenate([self._window(one) for one in segments])
        else:
            summary, course = self._summary(values), timing(values)
        parts = (np.split(part, len(segments)) for part in (summary, course, onsets))
        for one, *(own_summary, own_course, own_onsets) in zip(segments, *parts, strict=True):
            yield Views(one.span, one.window, own_summary, own_course, one.present, one.trusted, own_onsets)

    def flush(self) -> list[object]:
        return []

    def _window(self, cepstra: Cepstra) -> Samples:
        first = (cepstra.window.start - cepstra.span.start) // self._grid.hop
        window = cepstra.values[:, first : first + self._grid.window_frames]
        return window.reshape(len(window), -1)
