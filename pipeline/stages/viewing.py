"""From cepstra to the two views of a segment."""

from __future__ import annotations

from pipeline.errors import SettingsError
from pipeline.events import Cepstra, Samples, Views
from pipeline.grid import Grid
from pipeline.views import FEATURES, PAPER, Onsets, Summary, timing


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
        values = cepstra.values
        if self._is_paper:
            summary = course = self._window(cepstra)
        else:
            summary, course = self._summary(values), timing(values)
        onsets = self._onsets(values)
        return [Views(cepstra.span, cepstra.window, summary, course, cepstra.present, cepstra.trusted, onsets)]

    def flush(self) -> list[object]:
        return []

    def _window(self, cepstra: Cepstra) -> Samples:
        first = (cepstra.window.start - cepstra.span.start) // self._grid.hop
        window = cepstra.values[:, first : first + self._grid.window_frames]
        return window.reshape(len(window), -1)
