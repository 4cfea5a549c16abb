"""Events as lines of JSON. `docs/events.md` describes every field; `SCHEMA` changes when one changes its meaning."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import singledispatchmethod
from math import exp, isfinite
from typing import Any

import orjson

from pipeline.core.events import (
    AnomalyJudged,
    CalibrationChanged,
    Decision,
    Evidence,
    FaultClosed,
    FaultOpened,
    FileHeard,
    Gap,
    ModelChanged,
    Movement,
    Notice,
    NoticeKind,
    Numbers,
    Outcome,
    Paced,
    Passage,
    PassageEnded,
    PassageStarted,
    PassageUpdated,
    PresenceAudited,
    RecordingFinished,
    RecordingStarted,
    SourceTrouble,
    StateChanged,
    Tick,
    TrustChanged,
)
from pipeline.core.sensor_state import Pattern

SCHEMA = 1
_DIGITS = 6
_LARGEST = 700.0
_VERDICTS = {
    Pattern.FAULT: "fault_suspected",
    Pattern.EVENT: "event_noticed",
    Pattern.COMMON_FAULT: "common_fault",
    Pattern.DOUBTED_LABEL: "label_doubted",
}
EVENT_TYPES = (
    "recording_started", "trust_changed", "fault_opened", "fault_closed", "state_changed", *_VERDICTS.values(),
    "calibration_lost", "calibration_regained", "gap", "tick", "file_heard", "paced", "model_changed",
    "source_trouble", "decision", "passage_started", "passage_updated", "passage_ended",
    "presence_audited", "recording_finished", "notification",
    *map(str, NoticeKind),
)  # fmt: skip
"""All that a daemon tells."""


def line(event: dict[str, Any]) -> str:
    """Return one event as it is written, in ASCII whatever names it holds."""
    with suppress(TypeError):  # lone surrogates, integers of more than 64 bits
        text = orjson.dumps(event).decode()
        if text.isascii():
            return text + "\n"
    return json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n"


class EventLines:
    """An observer that hands every event to `write`, ready for JSON; facts of other kinds are skipped."""

    remembers = ("_recording", "_rate_hz", "_model", "_counts", "_passages", "_abstained", "_degraded", "_nobody")

    def __init__(self, write: Callable[[dict[str, Any]], None], *, model: str) -> None:
        self._write, self._model = write, model
        self._recording: str | None = None
        self._rate_hz = 1
        self._forget()

    def _forget(self) -> None:
        self._counts: Counter[str] = Counter()
        self._passages: Counter[str] = Counter()
        self._abstained = self._degraded = self._nobody = 0

    def observe(self, event: object, /) -> None:
        described = self._describe(event)
        if described is not None:
            self._write(described)

    def close(self) -> None:
        pass

    @singledispatchmethod
    def _describe(self, event: object) -> dict[str, Any] | None:
        return None

    @_describe.register
    def _(self, event: RecordingStarted) -> dict[str, Any]:
        self._recording, self._rate_hz = event.recording, event.rate_hz
        self._forget()
        return {
            "type": "recording_started",
            "recording": event.recording,
            "rate_hz": event.rate_hz,
            "sensors": list(event.sensors),
            "started_at": event.started_at.isoformat() if event.started_at else None,
        }

    @_describe.register
    def _(self, event: Gap) -> dict[str, Any]:
        return {
            "type": "gap",
            "recording": self._recording,
            "start_sample": event.start,
            "stop_sample": event.stop,
            "reason": event.reason,
            "recorded": event.recorded,
        }

    @_describe.register
    def _(self, event: SourceTrouble) -> dict[str, Any]:
        return {
            "type": "source_trouble",
            "recording": self._recording,
            "where": event.where,
            "message": event.message,
        }

    @_describe.register
    def _(self, event: FileHeard) -> dict[str, Any]:
        return {"type": "file_heard", "identity": event.identity, "path": event.path}

    @_describe.register
    def _(self, event: Tick) -> dict[str, Any]:
        return {
            "type": "tick",
            "recording": self._recording,
            "start_sample": event.sample,
            "waited_seconds": _rounded(event.waited_seconds),
        }

    @_describe.register
    def _(self, event: Paced) -> dict[str, Any]:
        return {
            "type": "paced",
            "recording": self._recording,
            "start_sample": event.sample,
            "seconds": _rounded(event.seconds),
            "samples": event.samples,
        }

    @_describe.register
    def _(self, event: ModelChanged) -> dict[str, Any]:
        self._model = event.model
        return {
            "type": "model_changed",
            "recording": self._recording,
            "start_sample": event.sample,
            "model": event.model or None,
        }

    @_describe.register
    def _(self, event: Notice) -> dict[str, Any]:
        own = {"type": str(event.kind), "recording": self._recording, "sample": event.sample}
        return own | dict(event.details) | own  # details may come from another machine

    @_describe.register
    def _(self, event: TrustChanged) -> dict[str, Any]:
        return {
            "type": "trust_changed",
            "recording": self._recording,
            "start_sample": event.sample,
            "trusted": event.trusted.tolist(),
            "by": str(event.by),
        }

    @_describe.register
    def _(self, event: FaultOpened) -> dict[str, Any]:
        return {
            "type": "fault_opened",
            "recording": self._recording,
            "sample": event.sample,
            "since_sample": event.since,
            "sensor": event.sensor + 1,
            "cause": str(event.cause),
            "evidence": evidence_numbers(event.evidence),
            "cure": event.cause.cure,
        }

    @_describe.register
    def _(self, event: FaultClosed) -> dict[str, Any]:
        return {
            "type": "fault_closed",
            "recording": self._recording,
            "sample": event.sample,
            "since_sample": event.since,
            "until_sample": event.until,
            "sensor": event.sensor + 1,
            "cause": str(event.cause),
            "evidence": evidence_numbers(event.evidence),
        }

    @_describe.register
    def _(self, event: StateChanged) -> dict[str, Any]:
        return {
            "type": "state_changed",
            "recording": self._recording,
            "sample": event.sample,
            "since_sample": event.since,
            "sensor": event.sensor + 1,
            "from": str(event.before),
            "to": str(event.state),
            "liveness": str(event.liveness),
            "causes": [str(cause) for cause in event.causes],
            "evidence": {str(cause): evidence_numbers(found) for cause, found in event.evidence.items()},
            "cures": list(event.cures),
            "notify": event.notify,
        }

    @_describe.register
    def _(self, event: AnomalyJudged) -> dict[str, Any]:
        return {
            "type": _VERDICTS[event.pattern],
            "recording": self._recording,
            "sample": event.sample,
            "sensors": [sensor + 1 for sensor in event.sensors],
            "evidence": evidence_numbers(event.evidence),
            "reason": event.reason,
        }

    @_describe.register
    def _(self, event: CalibrationChanged) -> dict[str, Any]:
        return {
            "type": "calibration_lost" if event.lost else "calibration_regained",
            "recording": self._recording,
            "sample": event.sample,
            "sensor": event.sensor + 1,
            "nominal": _rounded(event.nominal),
            "realised": _rounded(event.realised),
            "interval": [_rounded(event.low), _rounded(event.high)],
        }

    @_describe.register
    def _(self, event: Decision) -> dict[str, Any]:
        if event.outcome.label is None:
            self._abstained += 1
        else:
            self._counts[event.outcome.label] += 1
        self._degraded += event.degraded
        self._nobody += not event.is_somebody
        features, verdicts = event.features, event.verdicts
        return {
            "type": "decision",
            "recording": self._recording,
            "start_sample": features.span.start,
            "stop_sample": features.span.stop,
            "start_seconds": self._seconds(features.span.start),
            "window_start_sample": features.window.start,
            **_outcome(event.outcome),
            "probabilities": _by_class(event.classes, event.outcome.probabilities),
            "fused_log_odds": _rounded(event.outcome.log_odds),
            "weights": rounded_numbers(event.weights),
            "sensors_used": event.sensors_used,
            "degraded": event.degraded,
            "roles": [str(role) for role in event.roles],
            "p_values": rounded_numbers(verdicts.screened.p_values),
            "p_own": rounded_numbers(verdicts.screened.p_own),
            "p_others": rounded_numbers(verdicts.screened.p_others),
            "p_known": rounded_numbers(verdicts.screened.p_known),
            "margins": _rounded_margins(verdicts.margins),
            "log_odds": _of_second_class(verdicts.log_odds),
            "sensor_probabilities": [_by_class(event.classes, own) for own in verdicts.probabilities()],
            "presence": _probability(event.presence),
            "sensor_presence": None
            if verdicts.presence is None
            else [_probability(one) for one in verdicts.presence.tolist()],
            "without": [_outcome(outcome) for outcome in event.without],
            "model": self._model,
        }

    @_describe.register
    def _(self, event: PassageStarted) -> dict[str, Any]:
        return {"type": "passage_started", **self._passage(event.passage, event.sample)}

    @_describe.register
    def _(self, event: PassageUpdated) -> dict[str, Any]:
        return {"type": "passage_updated", **self._passage(event.passage, event.sample)}

    @_describe.register
    def _(self, event: PassageEnded) -> dict[str, Any]:
        self._passages[event.passage.outcome.label or "no label"] += 1
        return {"type": "passage_ended", **self._passage(event.passage, event.sample), "end": str(event.reason)}

    @_describe.register
    def _(self, event: PresenceAudited) -> dict[str, Any]:
        return {
            "type": "presence_audited",
            "recording": self._recording,
            "sample": event.sample,
            "seconds": _rounded(event.seconds),
            "threshold": _rounded(event.threshold),
            "thresholds": [_rounded(one) for one in event.thresholds],
            "starts": list(event.starts),
            "model": self._model,
        }

    def _passage(self, passage: Passage, sample: int) -> dict[str, Any]:
        return {
            "passage": passage.id,
            "recording": self._recording,
            "sample": sample,
            "start_sample": passage.start,
            "stop_sample": passage.stop,
            "start_seconds": self._seconds(passage.start),
            "end_seconds": self._seconds(passage.stop),
            **_outcome(passage.outcome),
            "probabilities": _by_class(tuple(passage.evidence), passage.outcome.probabilities),
            "evidence": {name: _rounded(value) for name, value in passage.evidence.items()},
            "presence": _rounded(passage.presence),
            "segments": passage.segments,
            "decided": passage.decided,
            "sensors_used": [sensor + 1 for sensor in passage.sensors_used],
            "sensors_excluded": [
                {"sensor": one.sensor + 1, "role": str(one.role), "share": _rounded(one.share)}
                for one in passage.excluded
            ],
            "peaks": [
                {"sensor": one.sensor + 1, "seconds": self._seconds(one.sample), "level_db": _rounded(one.level_db)}
                for one in passage.peaks
            ],
            "p_known": _rounded(passage.p_known),
            "cadence_per_minute": _rounded(passage.cadence_per_minute),
            "cadence_confidence": _rounded(passage.cadence_confidence),
            "movement": _movement(passage.movement),
            "model": self._model,
        }

    def _seconds(self, sample: int) -> float | None:
        return _rounded(sample / self._rate_hz)

    @_describe.register
    def _(self, event: RecordingFinished) -> dict[str, Any]:
        described = {
            "type": "recording_finished",
            "recording": event.recording,
            "samples": event.samples,
            "fingerprint": event.fingerprint,
            "label": _most_frequent(self._counts),
            "decisions": sum(self._counts.values()) + self._abstained,
            "labels": dict(sorted(self._counts.items())),
            "abstained": self._abstained,
            "degraded": self._degraded,
            "nobody": self._nobody,
            "passages": dict(sorted(self._passages.items())),
        }
        self._recording = None
        self._forget()
        return described


def evidence_numbers(evidence: Evidence) -> dict[str, float | None]:
    """Numbers that JSON knows: the level of a sensor where nothing moves is null, never 0."""
    return {name: _rounded(float(value)) for name, value in evidence.items()}


def _most_frequent(counts: Counter[str]) -> str | None:
    """The label given most often; None where two are given equally often."""
    (label, most), *rest = [*counts.most_common(), (None, 0), (None, 0)][:2]
    return label if most > rest[0][1] else None


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {"label": outcome.label, "probability": _rounded(outcome.probability), "reason": outcome.reason}


def _movement(movement: Movement | None) -> dict[str, Any] | None:
    if movement is None:
        return None
    told = {field.name: getattr(movement, field.name) for field in fields(movement)}
    return {
        name: [_rounded(one) for one in value] if isinstance(value, tuple) else _rounded(value)
        for name, value in told.items()
    }


def _probability(log_odds: float | None) -> float | None:
    """Of log-odds; None if they are unknown."""
    if log_odds is None or not isfinite(log_odds):
        return None
    return _rounded(1 / (1 + exp(-log_odds)) if log_odds > -_LARGEST else 0.0)


def _by_class(classes: Sequence[str], probabilities: Sequence[float] | None) -> dict[str, float] | None:
    if probabilities is None:
        return None
    return {name: round(one, _DIGITS) for name, one in zip(classes, probabilities, strict=True)}


def _rounded_margins(margins: Numbers) -> list[Any]:
    """A margin for each sensor; with more than two classes one for each sensor and pair of classes."""
    return rounded_numbers(margins) if margins.ndim == 1 else [rounded_numbers(own) for own in margins]


def _of_second_class(log_odds: Numbers) -> list[float | None]:
    """Of each sensor the log-odds of the second class; null if there are more than two."""
    return rounded_numbers(log_odds[:, 1]) if log_odds.shape[1] == 2 else [None] * len(log_odds)


def rounded_numbers(values: Numbers) -> list[float | None]:
    return [_rounded(value) for value in values.tolist()]


def _rounded(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else round(value, _DIGITS)
