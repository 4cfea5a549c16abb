"""What people say that was heard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from threading import Lock
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field, StringConstraints

from pipeline.core.errors import UsageError
from pipeline.core.label_names import shown_name
from pipeline.retraining.registry import Registry
from pipeline.storage.journal import Journal, Row
from pipeline.storage.label_table import common_words, count_labels, newest_labels, same_label
from pipeline.storage.labels import LabelSpan, LabelSubmission, check_word, give, moment_of_event, take_back
from pipeline.storage.passage_history import PassageHistory
from pipeline.storage.review_queue import labels_of
from pipeline.training.labels import NOT_SURE, UNKNOWN, is_class
from pipeline.web.dependencies import Context, TheContext, Who

router = APIRouter(prefix="/api/v1/labels", tags=["labels"])
_VIA = "page"
_Kind = Literal["class", "nobody", "unknown", "not sure", "other"]
_RESERVED: tuple[tuple[str, _Kind, str], ...] = (
    ("nobody", "nobody", "0"),
    (UNKNOWN, "unknown", "x"),
    (NOT_SURE, "not sure", "d"),
)
_Number = Annotated[int, Path(ge=1, le=2**62, description="The number of a label.")]
_Sample = Annotated[int, Field(ge=0, le=2**62)]
_Word = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")
]
_Why = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
# A label that is sent twice because an answer was lost must be looked up and given by nobody else in between.
_one_at_a_time = Lock()


class LabelAnswer(BaseModel):
    """What somebody said of a stretch of a recording."""

    number: int
    recording: str
    start_sample: int
    stop_sample: int
    rate_hz: int | None
    label: str | None = Field(description="None: what was said of this stretch before is no longer said.")
    who: str
    time: str
    why: str
    via: str = Field(description="By command, file or page.")
    takes_back: int | None = Field(description="The number of the label that this one makes void.")
    void: bool = Field(description="It was taken back, or takes one back.")


class LabelsAnswer(BaseModel):
    """The newest first."""

    labels: list[LabelAnswer]
    total: int


class Word(BaseModel):
    """A label that can be given."""

    word: str
    name: str = Field(description="As it is shown.")
    kind: _Kind
    key: str | None = Field(description="The key of a keyboard that gives it; null if none is left.")
    learned: bool = Field(description="The next model learns from it; else its sound is only kept.")


class Words(BaseModel):
    """What can be said without `new`: the classes, then nobody, unknown and not sure, then what was said before."""

    words: list[Word]
    origin: Literal["model", "settings", "said"] = Field(description="Whence the classes come.")


class NewLabel(BaseModel):
    """What is heard in a passage, in the segment of a decision, or from sample to sample of a recording."""

    label: _Word
    event: Annotated[int | None, Field(ge=1, le=2**62, description="The id of a decision.")] = None
    passage: Annotated[str | None, Field(min_length=1, max_length=200, description="The id of a passage.")] = None
    recording: Annotated[str | None, Field(max_length=200)] = None
    start_sample: _Sample | None = None
    stop_sample: _Sample | None = None
    why: _Why = ""
    new: Annotated[bool, Field(description="The word is meant so, even if no model knows it.")] = False
    known: Annotated[
        int | None,
        Field(
            ge=0,
            le=2**62,
            description="The newest label you knew of. The same label for the same stretch is then stored once, "
            "however often it is sent; and you are told what others said meanwhile.",
        ),
    ] = None

    def moments(self, journal: Journal, history: PassageHistory) -> list[LabelSpan]:
        """Return the stretches to label: one; of a passage one for each recording that it lies in."""
        stretch = (self.recording, self.start_sample, self.stop_sample)
        ways = [self.passage is not None, self.event is not None, stretch != (None, None, None)]
        if sum(ways) == 1:
            if self.passage is not None:
                parts = history.row(self.passage).parts
                return [LabelSpan(part.recording, part.start_sample, part.stop_sample) for part in parts]
            if self.event is not None:
                return [moment_of_event(journal, self.event)]
            if self.recording and self.start_sample is not None and self.stop_sample is not None:
                return [LabelSpan(self.recording, self.start_sample, self.stop_sample)]
        raise UsageError(
            "a label needs a place, and only one: give passage, or event, or recording with start_sample and "
            "stop_sample"
        )


class EarlierLabel(BaseModel):
    """What somebody said of the same sound."""

    number: int
    label: str | None = Field(description="None: nothing is said of it any more.")
    who: str
    time: str


class StoredLabel(BaseModel):
    """It cannot be lost any more."""

    number: int
    numbers: list[int] = Field(description="All of them; a passage that lies in two recordings has two.")
    meanwhile: list[EarlierLabel] = Field(
        description="What others said of the same sound meanwhile; yours counts, as the last."
    )


class TakenBack(BaseModel):
    number: int
    takes_back: int


class LabelReason(BaseModel):
    why: _Why = ""


@router.get("")
def labels(
    context: TheContext,
    before: Annotated[int, Query(ge=1, le=2**62, description="Only labels with a smaller number.")] = 2**62,
    most: Annotated[int, Query(ge=1, le=500)] = 100,
) -> LabelsAnswer:
    """Who said what, when and why; also what was taken back, for nothing is ever removed."""
    with context.reading() as journal:
        found = newest_labels(journal, before=before, most=most)
        return LabelsAnswer(labels=[LabelAnswer(**asdict(one)) for one in found], total=count_labels(journal))


@router.get("/words")
def words(context: TheContext) -> Words:
    """What may be said: the classes of the champion, else those of the settings; and what was said before."""
    with context.reading() as journal:
        return words_of(context, journal)


def words_of(context: Context, journal: Journal) -> Words:
    champion = Registry(context.state.models, journal).champion()
    classes = list(context.settings.training.classes or ())
    if champion is not None and champion.facts.get("classes"):
        classes = champion.facts["classes"]
    origin: Literal["model", "settings", "said"] = "model" if champion else "settings" if classes else "said"
    names = context.settings.labels.names
    others = [word for word in common_words(journal) if word not in classes and is_class(word)]
    keys = iter("123456789")
    told = [_word(word, "class", next(keys, None), names, learned=True) for word in classes]
    told += [_word(word, kind, key, names, learned=kind == "nobody") for word, kind, key in _RESERVED]
    told += [_word(word, "other", next(keys, None), names, learned=not classes) for word in others]
    return Words(words=told, origin=origin)


def _word(word: str, kind: _Kind, key: str | None, names: Mapping[str, str], *, learned: bool) -> Word:
    return Word(word=word, name=shown_name(word, names), kind=kind, key=key, learned=learned)


@router.post("")
def label(context: TheContext, who: Who, given: NewLabel) -> StoredLabel:
    """Say what was heard. The last word of anybody counts; what was said before stays to be read."""
    with _one_at_a_time, context.writing() as journal:
        stored = [_give(journal, moment, given, who) for moment in given.moments(journal, context.history(journal))]
    return StoredLabel(
        number=stored[-1][0],
        numbers=[number for number, _ in stored],
        meanwhile=[
            EarlierLabel(**{name: one[name] for name in EarlierLabel.model_fields})
            for _, others in stored
            for one in others
        ],
    )


def _give(journal: Journal, moment: LabelSpan, given: NewLabel, who: str) -> tuple[int, list[Row]]:
    """Store a label unless it arrived before; return its number, and what others said meanwhile."""
    said, known = LabelSubmission(given.label, who, given.why, _VIA), given.known
    # It may have arrived before, and only the answer was lost.
    same = None if known is None else same_label(journal, moment, said, after=known)
    if same is None and not given.new:
        check_word(journal, given.label, cure="say new: true")
    others = [] if known is None else labels_of(journal, moment.recording, moment.start, moment.stop, after=known)
    number = same or give(journal, moment, said)
    return number, [one for one in others if one["number"] != same]


@router.post("/{number}/take-back")
def taken_back(context: TheContext, who: Who, number: _Number, reason: LabelReason) -> TakenBack:
    """What this label said is no longer said; what others said of the same sound stays."""
    with _one_at_a_time, context.writing() as journal:
        return TakenBack(
            number=take_back(journal, number, LabelSubmission(None, who, reason.why, _VIA)), takes_back=number
        )
