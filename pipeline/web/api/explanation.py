"""Why a decision is what it is: who was believed, and which sound of the past each sensor is most like."""

from __future__ import annotations

import json
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Path
from fastapi.responses import Response
from pydantic import BaseModel, Field

from pipeline.errors import GemmedError, NotFound, UsageError
from pipeline.service.assembly import Choices, loaded
from pipeline.service.explain import WHY, Explained, contribution, contributions_are
from pipeline.service.explain_stored import causes_at, explain_stored
from pipeline.service.references import Reference, ReferenceSounds
from pipeline.sinks.journal import Journal, Stored
from pipeline.sinks.sound import SoundStore
from pipeline.training.model import Model
from pipeline.web.api.events import EventId
from pipeline.web.api.sound import WAV, Sensor, wav
from pipeline.web.context import Context, Laborious, TheContext
from pipeline.web.schemas import Event, Spectrogram
from pipeline.web.sounds import Stretch, as_spectrogram, as_wav

router = APIRouter(prefix="/api/v1", tags=["explanations"], dependencies=[Laborious])
_NEAREST = 3


class Outcome(BaseModel):
    """What is decided, or why nothing."""

    label: str | None
    probability: float | None
    reason: str | None


class Neighbour(BaseModel):
    """A segment that the model was learned from, or refused to learn from."""

    index: int = Field(description="Among the segments of the model: /api/v1/references/{model}/{index}/sound.")
    recording: str
    start_sample: int
    seconds: float
    label: str | None
    distance: float = Field(description="Of its features to those of the segment; 0 is the same sound.")
    refused: str | None = Field(description="Why training did not learn from it.")
    sound: str | None = Field(description="Where to hear it.")
    why_silent: str | None = Field(description="Why it cannot be heard.")


class Say(BaseModel):
    """What one sensor had to say."""

    sensor: int
    role: str
    why: str = Field(description="Whether it was used, in words, and what was the matter with it.")
    causes: list[str]
    weight: float
    p_value: float | None = Field(description="How usual the segment is; at most alpha, and it is refused.")
    p_own: float | None = Field(description="The same among what the sensor delivered before.")
    p_others: float | None = Field(description="The same given what the other sensors delivered just now.")
    log_odds: float | None = Field(description="What it makes of the segment alone; positive for the second class.")
    contribution: float | None = Field(description="What it adds to the fused log-odds.")
    without: Outcome = Field(description="What would be decided without it.")
    nearest: list[Neighbour]
    nearest_refused: Neighbour | None = Field(description="If it is nearer than any that was learned from.")


class Explanation(BaseModel):
    """A decision and all that speaks for it."""

    event: Event
    alpha: float
    classes: list[str] | None = Field(description="The first, then the second; none if the model is not kept.")
    contributions_are: str | None = Field(description="Contributions to the log-odds, or opinions of each sensor.")
    same: bool | None = Field(description="Whether the p-values, made again from the sound, are those of the event.")
    trained_on: bool | None = Field(description="Whether the model was learned from this very sound.")
    why_not: str | None = Field(description="Why there are no neighbours.")
    sensors: list[Say]


@router.get("/events/{number}/explanation")
def explanation(context: TheContext, number: EventId) -> Explanation:
    """Why a decision is what it is, by its id."""
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
            classes=list(model.classes) if model else None,
            contributions_are=contributions_are(choices) if model else None,
            same=explained.same if explained else None,
            trained_on=explained.trained_on if explained else None,
            why_not=why_not,
            sensors=[
                _say(event, s, [str(one) for one in causes.get(s, ())], model, choices, explained, finder)
                for s in range(len(event.body["roles"]))
            ],
        )


def _decision(journal: Journal, number: int) -> Stored:
    event = journal.event(number)
    if event is None:
        raise NotFound(f"there is no event {number}; /api/v1/events lists them")
    if event.type != "decision":
        raise UsageError(f"event {number} is a {event.type}; only decisions are explained, give the id of one")
    return event


def _choices(journal: Journal, event: Stored) -> Choices:
    rows = journal.rows("SELECT choices FROM recordings WHERE name = ?", (event.recording,))
    if not rows:
        raise NotFound(f"recording {event.recording} of event {event.id} is no longer known; choose a newer decision")
    return Choices.from_dict(json.loads(rows[0]["choices"]))


def _explained(
    context: Context, event: Stored, journal: Journal, sound: SoundStore
) -> tuple[Model | None, Explained | None, str | None]:
    """As much as can be found; and why it is not more."""
    try:
        model = _model(context, event.body["model"])
    except GemmedError as error:
        return None, None, str(error)
    try:
        return model, explain_stored(event, journal, sound, model), None
    except GemmedError as error:
        return model, None, str(error)


def _say(
    event: Stored,
    s: int,
    causes: list[str],
    model: Model | None,
    choices: Choices,
    explained: Explained | None,
    finder: ReferenceSounds,
) -> Say:
    body = event.body
    weights, log_odds = (np.array(body[name], np.float64) for name in ("weights", "log_odds"))
    why = next(words for role, words in WHY.items() if role == body["roles"][s])
    nearest: list[Neighbour] = []
    refused: list[Neighbour] = []
    if explained is not None and explained.decision.features.present[s]:
        nearest = _neighbours(*explained.neighbours(s, _NEAREST), None, explained, finder)
        refused = _neighbours(*explained.refused_neighbour(s), explained, finder)
    return Say(
        sensor=s + 1,
        role=body["roles"][s],
        why=f"{why} ({', '.join(causes)})" if causes else why,
        causes=causes,
        weight=body["weights"][s],
        p_value=body["p_values"][s],
        p_own=body["p_own"][s],
        p_others=body["p_others"][s],
        log_odds=body["log_odds"][s],
        contribution=round(contribution(model, choices, weights, log_odds, s), 6) if model else None,
        without=Outcome(**body["without"][s]),
        nearest=nearest,
        nearest_refused=refused[0] if refused else None,
    )


def _neighbours(
    places: np.ndarray, distances: np.ndarray, refused: str | None, explained: Explained, finder: ReferenceSounds
) -> list[Neighbour]:
    found = []
    for place, distance in zip(places.tolist(), distances.tolist(), strict=True):
        reference = Reference(explained.model, place)
        why = finder.why_silent(reference)
        found.append(
            Neighbour(
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


ModelName = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="The name of a model.")]
Index = Annotated[int, Path(ge=0, le=10**6, description="One of the segments that it was learned from.")]


@router.get("/references/{model}/{index}/sound", response_class=Response, responses=WAV)
def reference_sound(context: TheContext, model: ModelName, index: Index, sensor: Sensor = None) -> Response:
    """A segment that a model was learned from as WAV, as loud as it can be."""
    return wav(as_wav(_stretch(context, model, index), sensor, normalise=True), lasting=True)


@router.get("/references/{model}/{index}/spectrogram")
def reference_spectrogram(context: TheContext, model: ModelName, index: Index, sensor: Sensor = None) -> Spectrogram:
    """The same as a picture."""
    return as_spectrogram(_stretch(context, model, index), sensor)


def _stretch(context: Context, name: str, index: int) -> Stretch:
    model = _model(context, name)
    if index >= len(model.memory.start):
        raise NotFound(f"model {name} was learned from {len(model.memory.start)} segments; there is no {index}")
    reference = Reference(model, index)
    with context.reading() as journal:
        finder = ReferenceSounds(context.settings, journal, SoundStore(context.state.sound, journal))
        samples = finder.samples(reference)
    return Stretch(reference.recording, model.grid.rate_hz, reference.start, samples, [])


def _model(context: Context, name: str) -> Model:
    directory = context.state.models / name
    if not directory.is_dir():
        raise NotFound(f"model {name} is not kept (any more); /api/v1/models lists those that are")
    return loaded(directory)
