"""What does each sensor alone make of a segment?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.events import Numbers, Screened, Verdicts
from pipeline.stages.batches import replaced


class Machine(Protocol):
    """The classifier of one sensor: margins, one or one for each pair of classes, and log-odds of all classes."""

    def decision(self, X: Any, /) -> Numbers: ...
    def class_log_odds(self, decision: Numbers, /) -> Numbers: ...


class Classification:
    """Margin and calibrated log-odds of every sensor that is present and has a classifier."""

    accepts = Screened
    remembers = ()

    def __init__(self, machines: Sequence[Machine | None], n_classes: int = 2) -> None:
        self._machines, self._n_classes = tuple(machines), n_classes

    def push(self, screened: Screened, /) -> list[object]:
        return self.push_all([screened])

    def push_all(self, items: Sequence[object], /) -> list[object]:
        """Classify all segments at once, sensor by sensor."""
        return replaced(items, Screened, self._verdicts)

    def _verdicts(self, segments: Sequence[Screened]) -> Iterator[Verdicts]:
        shape, n_classes = (len(segments), len(self._machines)), self._n_classes
        margins = np.full(shape if n_classes == 2 else (*shape, n_classes * (n_classes - 1) // 2), np.nan)
        log_odds = np.full((*shape, n_classes), np.nan)
        present = np.array([one.features.present for one in segments])
        summaries = np.array([one.features.summary for one in segments])
        for s, machine in enumerate(self._machines):
            here = present[:, s]
            if machine is not None and here.any():
                margins[here, s] = machine.decision(summaries[here, s])
                log_odds[here, s] = machine.class_log_odds(margins[here, s])
        yield from map(Verdicts, segments, margins, log_odds)

    def flush(self) -> list[object]:
        return []
