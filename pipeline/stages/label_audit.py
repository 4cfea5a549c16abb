"""Do all sensors together contradict what somebody said?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np

from pipeline.core.checkpoint import value
from pipeline.core.events import AnomalyJudged, Decision, Labelled, Numbers, RecordingStarted, Role
from pipeline.core.sensor_state import Pattern

_LEAST_SEGMENTS = 3
_LEAST_LOG_ODDS = log(1000)


class LabelAudit:
    """Compares decisions with labels: where every sensor that had a say is against the label, it is doubted, once.

    Only segments inside the label that do not overlap each other count, and only if their log-odds add up to a
    thousand to one.
    """

    accepts = (RecordingStarted, Labelled, Decision)
    remembers = ("_labels", "_next")

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes = tuple(classes)
        self._labels: list[_Doubt] = []
        self._next = 0

    def push(self, item: RecordingStarted | Labelled | Decision, /) -> list[object]:
        if isinstance(item, RecordingStarted):
            self.flush()
        elif isinstance(item, Labelled):
            if item.label in self._classes:
                self._labels.append(_Doubt(item, self._classes.index(item.label)))
        elif item.features.span.start >= self._next:
            self._next = item.features.span.stop
            self._labels = [label for label in self._labels if not label.is_past(item.features.span.start)]
            return [item, *(found for label in self._labels for found in label.compare(item))]
        return [item]

    def flush(self) -> list[object]:
        self._labels, self._next = [], 0
        return []


@value
@dataclass(slots=True, eq=False)
class _Doubt:
    """What speaks against one label."""

    labelled: Labelled
    own: int
    """Place of the label among the classes."""
    _against: Numbers = field(default_factory=lambda: np.zeros((0, 0)))
    _segments: int = 0
    _told: bool = False

    def is_past(self, sample: int) -> bool:
        return self.labelled.span.stop <= sample

    def compare(self, decision: Decision) -> list[AnomalyJudged]:
        span, label = decision.features.span, self.labelled
        if self._told or span.start < label.span.start or span.stop > label.span.stop:
            return []
        used = np.array([role is Role.USED for role in decision.roles])
        if not used.any():
            return []
        log_odds = np.nan_to_num(decision.verdicts.log_odds)
        if not len(self._against):
            self._against = np.zeros(log_odds.shape)
        self._against += np.where(used[:, None], log_odds - log_odds[:, self.own, None], 0.0)
        self._segments += 1
        # All sensors must be for one other class: the one for which they are most, taken together.
        others = [k for k in range(log_odds.shape[1]) if k != self.own]
        against = self._against[:, max(others, key=lambda k: float(self._against[:, k].sum()))]
        heard = against[against != 0]
        total = float(heard.mean()) if len(heard) else 0.0
        if self._segments < _LEAST_SEGMENTS or (heard <= 0).any() or total < _LEAST_LOG_ODDS:
            return []
        self._told = True
        evidence = {"log_odds_against": total, "segments": float(self._segments)}
        sensors = tuple(np.flatnonzero(against).tolist())
        reason = f"all sensors together contradict the label {label.label!r}"
        return [AnomalyJudged(span.stop, Pattern.DOUBTED_LABEL, sensors, evidence, reason)]
