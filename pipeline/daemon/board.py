"""What the daemon knows at the moment, for whoever asks."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from math import exp, isnan
from typing import Any

from pipeline.core.events import (
    AnomalyJudged,
    Decision,
    ModelChanged,
    Passage,
    PassageEnded,
    PassageStarted,
    PassageUpdated,
    RecordingStarted,
    StateChanged,
)
from pipeline.core.passages import NO_LABEL
from pipeline.core.sensor_state import Liveness, State
from pipeline.storage.journal import utc


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
        self.passages: Counter[str] = Counter()
        self._passage: Passage | None = None
        self._nobody_since: datetime | None = None
        self.last: Decision | None = None
        self._states: list[StateChanged | None] = [None] * n_sensors

    def resume(self, started: RecordingStarted) -> None:
        """Continue in a recording whose beginning was observed before."""
        self._started = started

    def observe(self, event: object, /) -> None:
        if isinstance(event, Decision):
            self.decisions += 1
            self.labels[event.outcome.label or ("undecided" if event.is_somebody else "nobody")] += 1
            self.last = event
        elif isinstance(event, StateChanged):
            self._states[event.sensor] = event
        elif isinstance(event, PassageStarted | PassageUpdated):
            self._passage = event.passage
        elif isinstance(event, PassageEnded):
            self.passages[event.passage.outcome.label or NO_LABEL] += 1
            self._passage, self._nobody_since = None, self._time(event.passage.stop)
        elif isinstance(event, RecordingStarted):
            self._started, self._states = event, [None] * self._n_sensors
            self._nobody_since = self._nobody_since or event.started_at
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
            "passages_total": dict(self.passages.most_common()),
            "presence": self._presence(),
            "sensors_used": None if self.last is None else self.last.sensors_used,
            "sensors": [self._sensor(number) for number in range(self._n_sensors)],
        }

    def _presence(self) -> dict[str, Any]:
        """Whether somebody is there: null before the first decision of a model that knows."""
        log_odds = None if self.last is None else self.last.presence
        passage = self._passage
        since = self._nobody_since if passage is None else self._time(passage.start)
        return {
            "somebody": None if log_odds is None else passage is not None,
            "probability": None if log_odds is None else round(1 / (1 + exp(-max(log_odds, -700.0))), 6),
            "since": None if since is None else utc(since),
            "passage": None if passage is None else _passage(passage),
        }

    def _sensor(self, number: int) -> dict[str, Any]:
        state, last = self._states[number], self.last
        return {
            "sensor": number + 1,
            "state": str(state.state if state else State.UNKNOWN),
            "since": None if state is None or (since := self._time(state.since)) is None else utc(since),
            "liveness": str(state.liveness if state else Liveness.INITIALISING),
            "causes": [str(cause) for cause in state.causes] if state else [],
            "cures": list(state.cures) if state else [],
            "weight": None if last is None else round(float(last.weights[number]), 3),
            "role": None if last is None else str(last.roles[number]),
            "p_value": None if last is None else _known(float(last.verdicts.screened.p_values[number])),
        }

    def _time(self, sample: int) -> datetime | None:
        if self._started is None or self._started.started_at is None:
            return None
        return self._started.started_at + timedelta(seconds=sample / self._started.rate_hz)


def _passage(passage: Passage) -> dict[str, Any]:
    outcome = passage.outcome
    return {
        "passage": passage.id,
        "label": outcome.label,
        "probability": None if outcome.probability is None else round(outcome.probability, 6),
        "reason": outcome.reason,
        "cadence_per_minute": None if passage.cadence_per_minute is None else round(passage.cadence_per_minute, 1),
        "sensors_used": [sensor + 1 for sensor in passage.sensors_used],
    }


def _known(value: float) -> float | None:
    return None if isnan(value) else round(value, 4)
