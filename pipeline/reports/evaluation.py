"""`gemmed evaluate`: how good decisions are, and how well failures are noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.core.choices import Choices
from pipeline.core.errors import ModelError, UsageError
from pipeline.core.event_json import SCHEMA
from pipeline.model.metrics import Judged, LogOdds, Rate, by_class, fused_log_odds, rate, summary
from pipeline.model.model import Model
from pipeline.storage.decision_file import Event
from pipeline.training.ground_truth import Truth
from pipeline.training.labeled_spans import APART_SECONDS, recording_of
from pipeline.training.labels import Labels

_FAULTY_SHARE = 0.5
"""A segment with a failure for less of its time, but some, is neither faulty nor clean."""


@dataclass(frozen=True, slots=True)
class LabeledDecisions:
    """Decisions beside their labels, and the format they were made in."""

    judged: tuple[Judged, ...]
    unlabelled: tuple[Judged, ...]
    """Not labelled, but screened all the same; their truth means nothing."""
    classes: tuple[str, ...]
    alpha: float
    rate_hz: int
    segment: int
    held_out: tuple[str, ...]
    """Recordings that were trained on, for which models decided that were trained without them."""
    left_out: tuple[str, ...]
    """Recordings that were trained on, and cannot say anything."""


def collect(events: Iterable[Event], labels: Labels, model: Model | None) -> LabeledDecisions:
    """Decisions of a replay beside the labels; recordings that were trained on never judge the model they made."""
    header, by_recording, finished = _sorted(events)
    if model is not None and header["model"] != model.identity:
        raise ModelError(f"model {header['model'][:12]} made these decisions, not {model.name}; give its directory")
    # What the validation decided, it decided with the usual choices.
    usual = all(header.get(name, value) == value for name, value in Choices().as_dict().items())
    classes = tuple(header["classes"])
    judged: list[Judged] = []
    unlabelled: list[Judged] = []
    held_out: list[str] = []
    left_out: list[str] = []
    for name, decisions in by_recording.items():
        if not finished[name]["trained_on"]:
            groups = labels.groups(name, APART_SECONDS, lambda label: label in classes)
            for event in decisions:
                label = _label(labels, event, header["rate_hz"])
                one = _judged(event, classes, label)
                if label in classes:
                    judged.append(replace(one, recording=_unit(name, groups, event, header["rate_hz"])))
                else:
                    unlabelled.append(one)
            continue
        own = model.judged_without(finished[name]["fingerprint"], name) if model and usual else []
        judged += own
        (held_out if own else left_out).append(name)
    if not judged:
        raise UsageError(_nothing(left_out, len(by_recording), len(finished)))
    segment = next(e["stop_sample"] - e["start_sample"] for rows in by_recording.values() for e in rows)
    return LabeledDecisions(
        tuple(judged), tuple(unlabelled), classes, header["alpha"], header["rate_hz"], segment,
        tuple(held_out), tuple(left_out),
    )  # fmt: skip


def _nothing(left_out: Sequence[str], n_recordings: int, n_given: int) -> str:
    if not n_recordings:
        return f"nothing was decided about {n_given} recordings; gemmed replay says what is wrong with them"
    if left_out:
        return (
            f"the model was trained on {len(left_out)} of the {n_recordings} recordings and on the others nothing is "
            "labelled; give recordings it has not seen, or a model that was validated (without --folds 0)"
        )
    return f"none of the decisions about {n_recordings} recordings lies inside a label; check names and times of labels"


def _sorted(events: Iterable[Event]) -> tuple[Event, dict[str, list[Event]], dict[str, Event]]:
    """The header, decisions by recording, and the last word about each recording."""
    events = iter(events)
    header = next(events, None)
    if header is None or header.get("schema") != SCHEMA:
        raise UsageError("the file of decisions is empty or of another version; run gemmed replay")
    decisions: dict[str, list[Event]] = {}
    finished: dict[str, Event] = {}
    for event in events:
        if event["type"] == "decision":
            decisions.setdefault(event["recording"], []).append(event)
        elif event["type"] == "recording_finished":
            finished[event["recording"]] = event
    incomplete = set(header["recordings"]) - set(finished)
    if incomplete:
        raise UsageError(
            f"the replay is not finished: {len(incomplete)} recordings are missing; run the same gemmed replay again"
        )
    return header, decisions, finished


def _unit(name: str, groups: Sequence[tuple[float, float]], event: Event, rate_hz: int) -> str:
    """Name what is independent of the rest: the recording, or the group of labels in one whose labels lie far apart."""
    if len(groups) < 2:
        return name
    start = next(start for start, end in groups if event["start_sample"] / rate_hz < end)
    return f"{name}@{round(start * rate_hz)}"


def _label(labels: Labels, event: Event, rate_hz: int) -> str | None:
    return labels.of(event["recording"], event["start_sample"] / rate_hz, event["stop_sample"] / rate_hz)


def _judged(event: Event, classes: tuple[str, ...], label: str | None) -> Judged:
    return Judged(
        recording=event["recording"],
        start_sample=event["start_sample"],
        truth=classes.index(label) if label in classes else -1,
        label=None if event["label"] is None else classes.index(event["label"]),
        log_odds=_log_odds(event["fused_log_odds"], event.get("probabilities"), classes),
        sensor_log_odds=tuple(_log_odds(*own, classes) for own in _sensors(event)),
        p_values=tuple(event["p_values"]),
    )


def _sensors(event: Event) -> Iterable[tuple[float | None, dict[str, float] | None]]:
    """Of each sensor the log-odds of the second class and the probabilities; earlier versions tell only the former."""
    odds = event["log_odds"]
    return zip(odds, event.get("sensor_probabilities") or [None] * len(odds), strict=True)


def _log_odds(second: float | None, probabilities: dict[str, float] | None, classes: tuple[str, ...]) -> LogOdds | None:
    return fused_log_odds(second, None if probabilities is None else [probabilities[name] for name in classes])


def evaluation(evidence: LabeledDecisions, truth: Truth | None) -> dict[str, Any]:
    """Everything, ready for JSON."""
    told = summary(evidence.judged, evidence.classes)
    told["by_class"] = by_class(evidence.judged, evidence.classes)
    told |= {"alpha": evidence.alpha, "held_out": list(evidence.held_out), "left_out": list(evidence.left_out)}
    if truth is not None:
        told["anomalies"] = anomalies(evidence, truth)
    return told


@dataclass(frozen=True, slots=True)
class _Look:
    """One sensor's segment beside the truth about the sensor."""

    recording: str
    sensor: int
    p_value: float
    share: float
    fault: str


def anomalies(evidence: LabeledDecisions, truth: Truth) -> dict[str, Any]:
    """How well the screen tells failing sensors from sound ones."""
    n_sensors = len(evidence.judged[0].p_values)
    truth.check({recording_of(one.recording) for one in (*evidence.judged, *evidence.unlabelled)}, n_sensors)
    looks = list(_looks(evidence, truth))
    kinds = Counter(look.fault for look in looks if look.share >= _FAULTY_SHARE)
    return {
        "all": _detection(looks, evidence.alpha),
        "sensors": [
            {"sensor": s, **_detection([look for look in looks if look.sensor == s], evidence.alpha)}
            for s in range(1, n_sensors + 1)
        ],
        "faults": {
            kind: _told(
                _rate([one for one in looks if one.fault == kind and one.share >= _FAULTY_SHARE], evidence.alpha)
            )
            for kind in sorted(kinds)
        },
    }


def _looks(evidence: LabeledDecisions, truth: Truth) -> Iterable[_Look]:
    for one in (*evidence.judged, *evidence.unlabelled):
        span = one.start_sample / evidence.rate_hz, (one.start_sample + evidence.segment) / evidence.rate_hz
        for sensor, p_value in enumerate(one.p_values, start=1):
            if p_value is not None:
                yield _Look(one.recording, sensor, p_value, *truth.overlap(recording_of(one.recording), sensor, *span))


def _detection(looks: Sequence[_Look], alpha: float) -> dict[str, Any]:
    from sklearn.metrics import roc_auc_score

    faulty = [look for look in looks if look.share >= _FAULTY_SHARE]
    clean = [look for look in looks if look.share == 0]
    auc = None
    if faulty and clean:
        scores = [-look.p_value for look in (*faulty, *clean)]
        auc = round(float(roc_auc_score(np.repeat([1, 0], [len(faulty), len(clean)]), scores)), 6)
    return {
        "auc": auc,
        "detected": _told(_rate(faulty, alpha)),
        "false_alarms": _told(_rate(clean, alpha)),
    }


def _rate(looks: Sequence[_Look], alpha: float) -> Rate | None:
    return rate([look.p_value <= alpha for look in looks], [look.recording for look in looks])


def _told(found: Rate | None) -> dict[str, Any] | None:
    return None if found is None else found.as_dict()
