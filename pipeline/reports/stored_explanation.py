"""Explain a decision of the journal from the stored sound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.choices import Choices
from pipeline.core.errors import NotFound
from pipeline.core.event_json import rounded_numbers
from pipeline.core.events import (
    Authority,
    Block,
    Decision,
    Gap,
    Numbers,
    Outcome,
    RecordingStarted,
    Role,
    TrustChanged,
    Verdicts,
)
from pipeline.core.sensor_state import Cause
from pipeline.learners.array_presence import fused
from pipeline.model.build import listening
from pipeline.model.model import Model
from pipeline.reports.explanation import Explained
from pipeline.stages import Chain, Classification, Presence, Projection, Screening
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal, StoredEvent
from pipeline.storage.recordings import RecordingRow, known_recording
from pipeline.storage.stored_events import changes_of_trust, last_states


def explain_stored(event: StoredEvent, journal: Journal, sound: SoundStore, model: Model) -> Explained:
    """Analyze the stored segment again, with the sensors that were trusted then.

    Roles and weights depend on earlier segments, so they are taken from the event.
    """
    assert event.recording is not None
    row = known_recording(journal, event.recording)
    blocks = _blocks(event, sound)
    verdicts = _verdicts(event, journal, row, blocks, model)
    decision = _decision(event.body, verdicts, model.classes)
    same = rounded_numbers(verdicts.screened.p_values) == event.body["p_values"]
    samples = np.concatenate([block.samples for block in blocks], axis=1)
    choices = Choices.from_dict(json.loads(row.choices))
    return Explained(event.recording, decision, event.body, samples, model, choices, same, causes_at(event, journal))


def _blocks(event: StoredEvent, sound: SoundStore) -> list[Block]:
    start, stop = event.body["start_sample"], event.body["stop_sample"]
    assert event.recording is not None
    blocks = []
    for fact in sound.read(event.recording, start, stop):
        if isinstance(fact, Gap):
            raise NotFound(
                f"the sound of event {event.id} is not kept, or not yet; sound older than some seconds was deleted to "
                "stay within storage.budget: raise it to explain older decisions"
            )
        blocks.append(fact)
    return blocks


def _verdicts(event: StoredEvent, journal: Journal, row: RecordingRow, blocks: list[Block], model: Model) -> Verdicts:
    told = event.body.get("sensor_presence")  # events of earlier versions have none
    chain = Chain(
        *listening(model.grid, model.settings),
        Projection(model.summary, model.timing),
        *([] if told is None else [Presence(_Told(told), fused, is_learned=model.presence is not None)]),
        Screening(model.screen, model.reference),
        Classification(model.classifiers),
    )
    sensors = tuple(str(number + 1) for number in range(row.sensors))
    chain.push(RecordingStarted(row.name, row.rate_hz, sensors))
    for change in changes_of_trust(journal, row.name, before=event.id):
        chain.push(_trust(change.body))
    for fact in (fact for block in blocks for fact in chain.push(block)):
        if isinstance(fact, Verdicts):
            return fact
    raise NotFound(f"the stored sound of event {event.id} is incomplete; choose another decision")


class _Told:
    """Presence as the event tells it: it depends on minutes of sound before the segment, which are not heard again."""

    def __init__(self, probabilities: Sequence[float | None]) -> None:
        told = np.array(probabilities, np.float64)
        with np.errstate(divide="ignore"):
            self._log_odds = np.log(told) - np.log1p(-told)

    def log_odds(self, summary: Any, background: Any, seconds: float, /) -> Numbers:
        return self._log_odds


def _trust(body: dict[str, Any]) -> TrustChanged:
    return TrustChanged(body["start_sample"], np.array(body["trusted"], np.bool_), Authority(body["by"]))


def _decision(body: dict[str, Any], verdicts: Verdicts, classes: tuple[str, ...]) -> Decision:
    told = body.get("probabilities")  # events of earlier versions have none
    probabilities = None if told is None else tuple(told[name] for name in classes)
    return Decision(
        verdicts,
        Outcome(body["label"], body["probability"], body["fused_log_odds"], body["reason"], probabilities),
        np.array(body["weights"], np.float64),
        tuple(map(Role, body["roles"])),
        tuple(Outcome(one["label"], one["probability"], None, one["reason"]) for one in body["without"]),
        classes,
    )


def causes_at(event: StoredEvent, journal: Journal) -> dict[int, tuple[Cause, ...]]:
    """Return the open causes of each sensor, counted from 0, at the time of an event."""
    bodies = [change.body for change in last_states(journal, event.recording, before=event.id)]
    return {body["sensor"] - 1: tuple(map(Cause, body["causes"])) for body in bodies}
