"""What the daemon knows at the moment, for whoever asks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pipeline.conditions import State
from pipeline.events import AnomalyJudged, Decision, ModelChanged, RecordingStarted, StateChanged


class Board:
    """An observer that remembers the latest of everything, and no more."""

    def __init__(self, n_sensors: int) -> None:
        self._n_sensors = n_sensors
        self.recording: str | None = None
        self.model = ""
        self.labels: Counter[str] = Counter()
        self.decisions = 0
        self.anomalies = 0
        self.last: Decision | None = None
        self._states: list[StateChanged | None] = [None] * n_sensors

    def observe(self, event: object, /) -> None:
        if isinstance(event, Decision):
            self.decisions += 1
            self.labels[event.outcome.label or "undecided"] += 1
            self.last = event
        elif isinstance(event, StateChanged):
            self._states[event.sensor] = event
        elif isinstance(event, RecordingStarted):
            self.recording, self._states = event.recording, [None] * self._n_sensors
        elif isinstance(event, ModelChanged):
            self.model = event.model
        elif isinstance(event, AnomalyJudged):
            self.anomalies += 1

    def close(self) -> None:
        pass

    def as_dict(self) -> dict[str, Any]:
        return {
            "recording": self.recording,
            "model": self.model or None,
            "decisions": self.decisions,
            "labels": dict(self.labels.most_common()),
            "anomalies": self.anomalies,
            "sensors": [self._sensor(number) for number in range(self._n_sensors)],
        }

    def _sensor(self, number: int) -> dict[str, Any]:
        state = self._states[number]
        weight = None if self.last is None else round(float(self.last.weights[number]), 3)
        return {
            "sensor": number + 1,
            "state": str(state.state if state else State.UNKNOWN),
            "causes": [str(cause) for cause in state.causes] if state else [],
            "cures": list(state.cures) if state else [],
            "weight": weight,
        }
