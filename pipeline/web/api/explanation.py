"""Explanations of decisions: part of each sensor, values that support a class, rhythm, nearest training segments."""

from __future__ import annotations

import json
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Path
from fastapi.responses import Response
from pydantic import BaseModel, Field

from pipeline.core.choices import Choices
from pipeline.core.errors import GemmedError, NotFound, UsageError
from pipeline.model.build import loaded
from pipeline.model.metrics import fused_log_odds
from pipeline.model.model import Model
from pipeline.reports.deciding_values import NO_SUMMARY, DecidingValue, fault_in_words, has_summary, known_in_words
from pipeline.reports.explanation import WHY, Explained, compared, contribution, contributions_are
from pipeline.reports.reference_audio import ReferenceSegment, ReferenceSounds
from pipeline.reports.rhythm import rhythm_in_words
from pipeline.reports.stored_explanation import causes_at, explain_stored
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal, StoredEvent
from pipeline.storage.recordings import recording_row
from pipeline.web.api.events import EventId
from pipeline.web.api.sound import WAV, Sensor, wav
from pipeline.web.audio import AudioStretch, as_spectrogram, as_wav
from pipeline.web.dependencies import Context, Laborious, TheContext
from pipeline.web.schemas import Event, Spectrogram

router = APIRouter(prefix="/api/v1", tags=["explanations"], dependencies=[Laborious])
_NEAREST = 3


class OutcomeAnswer(BaseModel):
    """A decision, or the reason for none."""

    label: str | None
    probability: float | None
    reason: str | None


class Neighbor(BaseModel):
    """A training segment, or one that training excluded."""

    index: int = Field(description="Place in the model: /api/v1/references/{model}/{index}/sound.")
    recording: str
    start_sample: int
    seconds: float
    label: str | None
    distance: float = Field(description="Euclidean distance of the summary's components; 0 is the same sound.")
    refused: str | None = Field(description="Reason for which training excluded it.")
    sound: str | None = Field(description="Address of its sound.")
    why_silent: str | None = Field(description="Reason for which its sound is not available.")


class Value(BaseModel):
    """A value of a sensor's summary and its effect on the sensor's log-odds."""

    name: str = Field(description="Such as: modulation of c0 at 1 to 3 Hz (loudness rhythm).")
    unit: str = Field(description="Unit of the value and of the typical values: dB or ln dB².")
    value: float
    typical: list[float | None] = Field(description="Median of the training segments of either class at this sensor.")
    log_odds: float = Field(
        description="Log-odds of the segment minus log-odds with this value at the sensor's training median."
    )
    supports: str = Field(description="The class that the value supports: the second if log_odds is positive.")


class ValueGroup(BaseModel):
    """Values of one kind and their common effect on the sensor's log-odds."""

    name: str
    log_odds: float


class RhythmAnswer(BaseModel):
    """Rate at which the loudness of the segment repeats."""

    words: str = Field(description="Such as: steps at 1.9 per second (autocorrelation 0.54).")
    is_clear: bool = Field(description="Whether the autocorrelation is high enough to claim a rhythm.")
    rate_hz: float | None = Field(description="Strongest repetition rate between 0.7 and 6 Hz.")
    strength: float | None = Field(description="Autocorrelation at the period, 0 to 1.")


class SensorExplanation(BaseModel):
    """The part of one sensor in a decision."""

    sensor: int
    role: str
    why: str = Field(description="Whether the sensor was used, in words, and its open causes.")
    causes: list[str]
    weight: float
    p_value: float | None = Field(description="P-value of the timing. Excluded from the vote at alpha or less.")
    p_own: float | None = Field(description="P-value among past segments of the sensor.")
    p_others: float | None = Field(description="P-value given the simultaneous segments of the other sensors.")
    p_known: float | None = Field(
        default=None, description="P-value of the summary among all training segments; small for an unknown sound."
    )
    fault: str | None = Field(default=None, description="p_value in words: no sensor fault (p 0.43).")
    known: str | None = Field(default=None, description="p_known in words: fits the classes (p 0.43).")
    log_odds: float | None = Field(description="Log-odds of this sensor alone; positive for the second class.")
    median_log_odds: float | None = Field(
        default=None, description="Log-odds of a segment with all values at the sensor's training median."
    )
    values: list[Value] = Field(default=[], description="Values with the largest effect on log_odds, largest first.")
    groups: list[ValueGroup] = Field(default=[], description="Effects of all values of a kind.")
    contribution: float | None = Field(description="Part of the fused log-odds.")
    without: OutcomeAnswer = Field(description="Decision without this sensor.")
    nearest: list[Neighbor]
    nearest_refused: Neighbor | None = Field(description="Nearest excluded segment, if nearer than all references.")


class Explanation(BaseModel):
    """A decision and the evidence for it."""

    event: Event
    alpha: float
    classes: list[str] | None = Field(
        description="The two classes that log-odds compare, positive for the second: of more than two, the runner-up "
        "and the most probable one. None if the model was deleted."
    )
    contributions_are: str | None = Field(description="What contribution is: contribution, or own log-odds.")
    same: bool | None = Field(description="Whether the p-values, recomputed from the sound, equal those of the event.")
    trained_on: bool | None = Field(description="Whether the segment is a training segment of the model.")
    rhythm: RhythmAnswer | None = Field(default=None, description="Rhythm of the sensors that were used.")
    sound: str | None = Field(
        default=None, description="In words, at how many of the sensors that were used the sound is unlike every class."
    )
    why_no_values: str | None = Field(default=None, description="Reason for which no values are named.")
    why_not: str | None = Field(description="Reason for which there is neither rhythm, values nor neighbors.")
    sensors: list[SensorExplanation]


@router.get("/events/{number}/explanation")
def explanation(context: TheContext, number: EventId) -> Explanation:
    """Explain a decision, by its id."""
    with context.reading() as journal:
        event = _decision(journal, number)
        sound = SoundStore(context.state.sound, journal)
        choices = _choices(journal, event)
        model, explained, why_not = _explained(context, event, journal, sound)
        finder = ReferenceSounds(context.settings, journal, sound)
        causes = causes_at(event, journal)
        return Explanation(
            event=Event(**event.as_dict()),
            alpha=choices.alpha,
            classes=[model.classes[place] for place in _compared(event, model)] if model else None,
            contributions_are=contributions_are(choices) if model else None,
            same=explained.same if explained else None,
            trained_on=explained.trained_on if explained else None,
            rhythm=_rhythm(explained) if explained else None,
            sound=explained.sound if explained else None,
            why_no_values=NO_SUMMARY if model and not has_summary(model) else None,
            why_not=why_not,
            sensors=[
                _sensor(event, s, [str(one) for one in causes.get(s, ())], model, choices, explained, finder)
                for s in range(len(event.body["roles"]))
            ],
        )


def _decision(journal: Journal, number: int) -> StoredEvent:
    event = journal.event(number)
    if event is None:
        raise NotFound(f"there is no event {number}; /api/v1/events lists them")
    if event.type != "decision":
        raise UsageError(f"event {number} is a {event.type}; only decisions can be explained, use the id of one")
    return event


def _choices(journal: Journal, event: StoredEvent) -> Choices:
    recording = recording_row(journal, event.recording)
    if recording is None:
        raise NotFound(f"recording {event.recording} of event {event.id} is no longer known; choose a newer decision")
    return Choices.from_dict(json.loads(recording.choices))


def _explained(
    context: Context, event: StoredEvent, journal: Journal, sound: SoundStore
) -> tuple[Model | None, Explained | None, str | None]:
    """Return the model and the explanation as far as they are available, and the reason if not."""
    try:
        model = _model(context, event.body["model"])
    except GemmedError as error:
        return None, None, str(error)
    try:
        return model, explain_stored(event, journal, sound, model), None
    except GemmedError as error:
        return model, None, str(error)


def _sensor(
    event: StoredEvent,
    s: int,
    causes: list[str],
    model: Model | None,
    choices: Choices,
    explained: Explained | None,
    finder: ReferenceSounds,
) -> SensorExplanation:
    body = event.body
    weights, log_odds = np.array(body["weights"], np.float64), _log_odds(event, model)
    why = next(words for role, words in WHY.items() if role == body["roles"][s])
    p_known = body.get("p_known", [None] * (s + 1))[s]  # events of earlier versions have none
    nearest: list[Neighbor] = []
    refused: list[Neighbor] = []
    reasons = explained.reasons(s) if explained is not None else None
    if explained is not None and explained.decision.features.present[s]:
        nearest = _neighbors(*explained.neighbors(s, _NEAREST), None, explained, finder)
        refused = _neighbors(*explained.refused_neighbor(s), explained, finder)
    return SensorExplanation(
        sensor=s + 1,
        role=body["roles"][s],
        why=f"{why} ({', '.join(causes)})" if causes else why,
        causes=causes,
        weight=body["weights"][s],
        p_value=body["p_values"][s],
        p_own=body["p_own"][s],
        p_others=body["p_others"][s],
        p_known=p_known,
        fault=fault_in_words(_number(body["p_values"][s]), choices.alpha),
        known=known_in_words(_number(p_known), choices.alpha),
        log_odds=None if np.isnan(log_odds[s]) else round(float(log_odds[s]), 6),
        median_log_odds=round(reasons.neutral, 6) if reasons else None,
        values=[_value(one) for one in reasons.values] if reasons else [],
        groups=[ValueGroup(name=name, log_odds=round(x, 6)) for name, x in reasons.groups.items()] if reasons else [],
        contribution=round(contribution(model, choices, weights, log_odds, s), 6) if model else None,
        without=OutcomeAnswer(**body["without"][s]),
        nearest=nearest,
        nearest_refused=refused[0] if refused else None,
    )


def _compared(event: StoredEvent, model: Model) -> tuple[int, int]:
    told = event.body.get("probabilities")  # events of earlier versions have none
    return compared(model.classes, None if told is None else [told[name] for name in model.classes])


def _log_odds(event: StoredEvent, model: Model | None) -> np.ndarray:
    """Return log-odds of the second of the compared classes by each sensor; NaN where it has none."""
    body = event.body
    if model is None or len(model.classes) == 2:
        return np.array(body["log_odds"], np.float64)
    pair = [model.classes[place] for place in _compared(event, model)]
    told = [
        None if own is None else fused_log_odds(None, [own[name] for name in pair])
        for own in body["sensor_probabilities"]
    ]
    return np.array([np.nan if own is None else own[1] for own in told])


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _value(reason: DecidingValue) -> Value:
    return Value(
        name=reason.name,
        unit=reason.unit,
        value=round(reason.value, 4),
        typical=[None if one is None else round(one, 4) for one in reason.typical],
        log_odds=round(reason.log_odds, 6),
        supports=reason.supports,
    )


def _rhythm(explained: Explained) -> RhythmAnswer:
    found = explained.rhythm
    return RhythmAnswer(
        words=rhythm_in_words(found),
        is_clear=found is not None and found.is_clear,
        rate_hz=round(found.rate_hz, 3) if found else None,
        strength=round(found.strength, 4) if found else None,
    )


def _neighbors(
    places: np.ndarray, distances: np.ndarray, refused: str | None, explained: Explained, finder: ReferenceSounds
) -> list[Neighbor]:
    found = []
    for place, distance in zip(places.tolist(), distances.tolist(), strict=True):
        reference = ReferenceSegment(explained.model, place)
        why = finder.why_silent(reference)
        found.append(
            Neighbor(
                index=place,
                recording=reference.recording,
                start_sample=reference.start,
                seconds=reference.start / explained.model.grid.rate_hz,
                label=reference.label,
                distance=round(distance, 4),
                refused=refused,
                sound=None if why else f"/api/v1/references/{explained.model.name}/{place}/sound",
                why_silent=why,
            )
        )
    return found


ModelName = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="Name of a model.")]
Index = Annotated[int, Path(ge=0, le=10**6, description="Place of a training segment in the model.")]


@router.get("/references/{model}/{index}/sound", response_class=Response, responses=WAV)
def reference_sound(context: TheContext, model: ModelName, index: Index, sensor: Sensor = None) -> Response:
    """Return a training segment of a model as WAV, normalized to full scale."""
    return wav(as_wav(_stretch(context, model, index), sensor, normalise=True), lasting=True)


@router.get("/references/{model}/{index}/spectrogram")
def reference_spectrogram(context: TheContext, model: ModelName, index: Index, sensor: Sensor = None) -> Spectrogram:
    """Return the spectrogram of a training segment of a model."""
    return as_spectrogram(_stretch(context, model, index), sensor)


def _stretch(context: Context, name: str, index: int) -> AudioStretch:
    model = _model(context, name)
    if index >= len(model.memory.start):
        raise NotFound(f"model {name} has no segment {index}; use 0 to {len(model.memory.start) - 1}")
    reference = ReferenceSegment(model, index)
    with context.reading() as journal:
        finder = ReferenceSounds(context.settings, journal, SoundStore(context.state.sound, journal))
        samples = finder.samples(reference)
    return AudioStretch(reference.recording, model.grid.rate_hz, reference.start, samples, [])


def _model(context: Context, name: str) -> Model:
    directory = context.state.models / name
    if not directory.is_dir():
        raise NotFound(f"model {name} is not stored here; /api/v1/models lists those that are")
    return loaded(directory)
