"""What does each sensor alone make of a segment?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.events import Numbers, Screened, Verdicts


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
        features = screened.features
        n_sensors, n_classes = len(self._machines), self._n_classes
        margins = np.full(n_sensors if n_classes == 2 else (n_sensors, n_classes * (n_classes - 1) // 2), np.nan)
        log_odds = np.full((n_sensors, n_classes), np.nan)
        for s, machine in enumerate(self._machines):
            if machine is not None and features.present[s]:
                margins[s : s + 1] = machine.decision(features.summary[s : s + 1])
                log_odds[s : s + 1] = machine.class_log_odds(margins[s : s + 1])
        return [Verdicts(screened, margins, log_odds)]

    def flush(self) -> list[object]:
        return []
