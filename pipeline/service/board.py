"""What the daemon knows at the moment, for whoever asks."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from math import isnan
from typing import Any

from pipeline.conditions import Liveness, State
from pipeline.events import AnomalyJudged, Decision, ModelChanged, RecordingStarted, StateChanged
from pipeline.sinks.journal import utc


class Board:
    """An observer that remembers the latest of everything, and no more."""

    remembers = ("_states", "decisions", "anomalies")

    def __init__(self, n_sensors: int) -> None:
        self._n_sensors = n_sensors
        self._started: RecordingStarted | None = None
        self.model = ""
        self.labels: Counter[str] = Counter()
        self.decisions = 0
        self.anomalies = 0
        self.last: Decision | None = None
        self._states: list[StateChanged | None] = [None] * n_sensors

    def observe(self, event: object, /) -> None:
        if isinstance(event, Decision):
            self.decisions += 1
            self.labels[event.outcome.label or ("undecided" if event.is_somebody else "nobody")] += 1
            self.last = event
        elif isinstance(event, StateChanged):
            self._states[event.sensor] = event
        elif isinstance(event, RecordingStarted):
            self._started, self._states = event, [None] * self._n_sensors
        elif isinstance(event, ModelChanged):
            self.model = event.model
        elif isinstance(event, AnomalyJudged):
            self.anomalies += 1

    def close(self) -> None:
        pass

    def as_dict(self) -> dict[str, Any]:
        return {
            "recording": self._started.recording if self._started else None,
            "model": self.model or None,
            "decisions": self.decisions,
            "labels": dict(self.labels.most_common()),
            "anomalies": self.anomalies,
            "sensors_used": None if self.last is None else self.last.sensors_used,
            "sensors": [self._sensor(number) for number in range(self._n_sensors)],
        }

    def _sensor(self, number: int) -> dict[str, Any]:
        state, last = self._states[number], self.last
        return {
            "sensor": number + 1,
            "state": str(state.state if state else State.UNKNOWN),
            "since": self._since(state) if state else None,
            "liveness": str(state.liveness if state else Liveness.INITIALISING),
            "causes": [str(cause) for cause in state.causes] if state else [],
            "cures": list(state.cures) if state else [],
            "weight": None if last is None else round(float(last.weights[number]), 3),
            "role": None if last is None else str(last.roles[number]),
            "p_value": None if last is None else _known(float(last.verdicts.screened.p_values[number])),
        }

    def _since(self, state: StateChanged) -> str | None:
        if self._started is None or self._started.started_at is None:
            return None
        return utc(self._started.started_at + timedelta(seconds=state.since / self._started.rate_hz))


def _known(value: float) -> float | None:
    return None if isnan(value) else round(value, 4)
