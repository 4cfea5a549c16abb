"""What is worth labelling, the most instructive first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from pipeline.storage.journal import Journal
from pipeline.storage.label_table import last_label
from pipeline.storage.labels import new_labels
from pipeline.storage.review_queue import Question, Questions, Why, classes_of, given_since
from pipeline.web.api.labels import EarlierLabel, Word, words_of
from pipeline.web.dependencies import Context, Laborious, TheContext

router = APIRouter(prefix="/api/v1", tags=["labels"])
CONTEXT_SECONDS = 4.0
"""Heard before and after, so that one knows what one hears."""


class SensorVerdictAnswer(BaseModel):
    """What one sensor had to say in a decision."""

    sensor: int = Field(description="Counted from 1.")
    role: str
    weight: float | None
    p_value: float | None = Field(description="How usual its sound is for it.")
    says: str | None = Field(description="The class it is for.")
    probability: float | None = Field(default=None, description="Of that class, by this sensor alone.")
    log_odds: float | None = Field(description="Of the second class; null if there are more than two.")
    without: str | None = Field(description="What would be decided without it.")


class Decided(BaseModel):
    """What the array made of it."""

    event: int
    time: str
    label: str | None
    probability: float | None
    reason: str | None
    model: str
    sensors: list[SensorVerdictAnswer]


class Teaches(BaseModel):
    """How much labelling it teaches, from 0 to 1, and why: value = uncertainty (1 + disagreement) (1 + anomaly) / 4."""

    value: float
    uncertainty: float
    disagreement: float
    anomaly: float


class Near(BaseModel):
    """What else was told about the same seconds."""

    id: int
    type: str
    sample: int
    told: str


class Item(BaseModel):
    """A passage, or a moment outside of passages, to be labelled, and why it is asked about."""

    asked: Why
    passage: str | None = Field(description="The id of the passage; null of a moment outside of passages.")
    recording: str
    rate_hz: int
    start_sample: int
    stop_sample: int
    shown_start_sample: int = Field(description="With what was heard before.")
    shown_stop_sample: int = Field(description="With what was heard after.")
    why: list[str]
    decision: Decided | None
    teaches: Teaches | None
    labelled: EarlierLabel | None = Field(description="What somebody said of it already.")
    near: list[Near]


class Empty(BaseModel):
    """Why there is nothing to review, and what to do."""

    title: str
    cure: str


class RetrainingAnswer(BaseModel):
    """When labels are learned from."""

    enabled: bool
    new_labels: int = Field(description="Given since the last round of learning.")
    wanted: int = Field(description="So many begin a new round.")


class ToReview(BaseModel):
    """What to ask, in this order."""

    items: list[Item]
    waiting: int = Field(description="All passages that could be asked about.")
    decisions: int = Field(description="So many of the latest were looked at.")
    empty: Empty | None
    words: list[Word]
    last_label: int = Field(description="The number of the newest label there is.")
    labels_today: int
    retraining: RetrainingAnswer


@router.get("/review", dependencies=[Laborious])
def review(
    context: TheContext,
    most: Annotated[int, Query(ge=1, le=100)] = 20,
    event: Annotated[int | None, Query(ge=1, le=2**62, description="A decision that shall come first.")] = None,
    passage: Annotated[str | None, Query(max_length=200, description="A passage that shall come first.")] = None,
) -> ToReview:
    """Passages, and moments outside of them, whose sound is kept and that nobody labelled, by what a label teaches."""
    with context.reading() as journal:
        newest = last_label(journal)
        found = context.review.questions(journal, most=most, event=event, passage=passage)
        training = context.settings.training
        midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        return ToReview(
            items=[_item(journal, one) for one in found.first],
            waiting=found.waiting,
            decisions=found.decisions,
            empty=None if found.first else _empty(context, found),
            words=words_of(context, journal).words,
            last_label=newest,
            labels_today=given_since(journal, midnight),
            retraining=RetrainingAnswer(
                enabled=training.enabled, new_labels=new_labels(journal), wanted=training.new_labels
            ),
        )


def _item(journal: Journal, question: Question) -> Item:
    reach = round(CONTEXT_SECONDS * question.rate_hz)
    lesson, given = question.lesson, question.labelled
    return Item(
        asked=question.asked,
        passage=question.passage,
        recording=question.recording,
        rate_hz=question.rate_hz,
        start_sample=question.start,
        stop_sample=question.stop,
        shown_start_sample=max(0, question.start - reach),
        shown_stop_sample=question.stop + reach,
        why=list(question.why),
        decision=None if question.decision is None else _decided(journal, question.decision.as_dict()),
        teaches=None
        if lesson is None
        else Teaches(
            value=lesson.teaches,
            uncertainty=lesson.uncertainty,
            disagreement=lesson.disagreement,
            anomaly=lesson.anomaly,
        ),
        labelled=None if given is None else EarlierLabel(**{name: given[name] for name in EarlierLabel.model_fields}),
        near=[Near(**one) for one in question.near],
    )


def _decided(journal: Journal, event: dict[str, Any]) -> Decided:
    classes = classes_of(journal, event["model"])

    def says(log_odds: float | None, shares: Mapping[str, float] | None) -> str | None:
        if log_odds is None and shares:
            return max(shares, key=lambda name: shares[name])
        return classes[log_odds > 0] if log_odds and len(classes) == 2 else None

    told = event.get("sensor_probabilities") or [None] * len(event["roles"])  # events of earlier versions have none
    columns = zip(
        event["roles"], event["weights"], event["p_values"], event["log_odds"], told, event["without"], strict=True
    )
    return Decided(
        event=event["id"],
        time=event["time"],
        label=event["label"],
        probability=event["probability"],
        reason=event["reason"],
        model=event["model"],
        sensors=[
            SensorVerdictAnswer(
                sensor=number,
                role=role,
                weight=weight,
                p_value=p_value,
                says=says(log_odds, shares) if role == "used" else None,
                probability=max(shares.values()) if shares else None,
                log_odds=log_odds,
                without=without["label"],
            )
            for number, (role, weight, p_value, log_odds, shares, without) in enumerate(columns, start=1)
        ],
    )


def _empty(context: Context, found: Questions) -> Empty:
    settings, status = context.settings, context.live.status or {}
    if settings.storage.sound == "none":
        return Empty(
            title="No sound is kept",
            cure='What was not kept cannot be heard. Set storage.sound = "all", and restart gemmed.',
        )
    if not found.decisions and not status.get("model"):
        under_way = (
            "A first model is being made; that takes a minute."
            if status.get("learning")
            else (
                "There is no model yet: gemmed listens until it has heard enough to judge its sensors "
                "(training.unlabelled), or give it training.recordings and training.labels."
            )
        )
        return Empty(title="Nothing was decided yet", cure=under_way)
    if not found.decisions:
        return Empty(
            title="Nothing was decided yet", cure="The first decision comes within seconds; it will appear here."
        )
    if not found.with_sound:
        piece = settings.storage.piece_seconds
        return Empty(
            title="The sound of what was decided cannot be heard yet",
            cure=f"Sound is kept in pieces of {piece:g} s: wait for the first. If it has made room for newer sound, "
            "raise storage.budget.",
        )
    return Empty(
        title="All that was heard is labelled",
        cure=f"Of the last {found.decisions} decisions none is left that would teach anything new. New ones "
        "appear here by themselves.",
    )
