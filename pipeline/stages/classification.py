"""What does each sensor alone make of a segment?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.core.events import Mask, Numbers, Screened, Verdicts
from pipeline.stages.batches import replaced


class Machines(Protocol):
    """The classifiers of all sensors: margins, one or one for each pair of classes, and log-odds of all classes."""

    def margins(self, X: Any, present: Mask, /) -> Numbers: ...
    def log_odds(self, margins: Numbers, /) -> Numbers: ...


class Classification:
    """Margin and calibrated log-odds of every sensor that is present and has a classifier."""

    accepts = Screened
    remembers = ()

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def push(self, screened: Screened, /) -> list[object]:
        return self.push_all([screened])

    def push_all(self, items: Sequence[object], /) -> list[object]:
        """Classify all segments at once."""
        return replaced(items, Screened, self._verdicts)

    def _verdicts(self, segments: Sequence[Screened]) -> Iterator[Verdicts]:
        features = [one.features for one in segments]
        present = np.stack([one.present for one in features])
        margins = self._machines.margins(np.stack([one.summary for one in features]), present)
        return map(Verdicts, segments, margins, self._machines.log_odds(margins))

    def flush(self) -> list[object]:
        return []
