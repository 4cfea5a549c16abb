"""What decides, decided, or was refused; and what it was learned from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from pipeline.core.errors import NotFound, UsageError
from pipeline.core.events import NoticeKind
from pipeline.model.build import loaded
from pipeline.reports.model_text import Criterion, agreement, criteria, differences, learned_apart
from pipeline.reports.reference_audio import ReferenceSegment, ReferenceSounds
from pipeline.retraining.registry import Registered, Registry
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal, Row
from pipeline.storage.model_table import NumberedRefusal, refusal_counts, refusals_after
from pipeline.web.dependencies import Context, Laborious, TheContext, Who

router = APIRouter(prefix="/api/v1/models", tags=["models"])
Name = Annotated[str, Path(min_length=1, max_length=64, description="The name of a model.")]


class Interval(BaseModel):
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float


class Listed(BaseModel):
    """A model, as a list shows it."""

    name: str
    status: str = Field(description="champion, challenger, refused, retired, unusable")
    since: str = Field(description="Of the status.")
    why: str = Field(description="It is what it is.")
    origin: str = Field(description="starter, unlabelled, retrained, given")
    learned: str = Field(description="When.")
    parent: str | None = Field(description="The champion of that time.")
    stored: bool = Field(description="Whether its files are still there: else it can never decide again.")
    classes: list[str]
    passages: int
    segments: int
    accuracy: Interval | None = Field(description="On passages that were left out.")
    contamination: list[float] = Field(description="For each sensor, the share of segments that it did not deliver.")
    trained: list[bool] = Field(description="For each sensor, whether it has a classifier.")
    passed: bool | None = Field(description="The gate; none if it never stood before it.")


class Models(BaseModel):
    """All of them, the newest first."""

    champion: str | None = Field(description="The one that should decide.")
    deciding: str | None = Field(description="The one that decides, as the daemon says; none if it does not run.")
    before: str | None = Field(description="The one that a rollback brings back.")
    learning: str | None = Field(description="What is under way.")
    models: list[Listed]


class RefusedCount(BaseModel):
    """How many segments of a sensor training did not learn from, and why."""

    sensor: int
    why: str
    segments: int


class Described(Listed):
    """All that is known of a model."""

    criteria: list[Criterion]
    reasons: list[str] = Field(description="Why the gate, or the shadow run, refused it.")
    most_contamination: float = Field(description="The gate's limit.")
    shadow: dict[str, Any] | None
    wrong_labels: float = Field(description="The share of labels that seem wrong.")
    doubted: list[str] = Field(description="Passages whose labels seem wrong.")
    refused: list[RefusedCount]


class RefusedSegment(BaseModel):
    """A segment of one sensor that training did not learn from."""

    number: int
    recording: str
    start_sample: int
    sensor: int
    why: str
    believed: float
    sound: str | None = Field(description="Where it can be heard.")
    why_silent: str | None = Field(description="Why it cannot be heard, if so.")


class Refusals(BaseModel):
    """Some of them; ask for those after `last` to go on."""

    refusals: list[RefusedSegment]
    last: int
    more: bool


class Compared(BaseModel):
    """One thing of two models."""

    what: str
    values: tuple[str, str]
    same: bool


class Diff(BaseModel):
    """Two models beside each other."""

    names: tuple[str, str]
    rows: list[Compared]
    learned_apart: list[str]
    agreement: list[str]


class PromotionReason(BaseModel):
    """Why somebody wants it."""

    why: str = Field(min_length=1, max_length=500)


@router.get("")
def models(context: TheContext) -> Models:
    """Which models there are, and who decides."""
    status = context.live.status or {}
    with _registry(context) as registry:
        champion = registry.champion()
        before = registry.predecessor(champion) if champion else None
        return Models(
            champion=champion.name if champion else None,
            deciding=status.get("model"),
            before=before.name if before else None,
            learning=status.get("learning"),
            models=[Listed(**_listed(one, registry)) for one in registry.all()],
        )


@router.post("/rollback")
def rollback(context: TheContext, who: Who, reason: PromotionReason) -> Listed:
    """Let the champion before the present one decide again."""
    with _registry(context, write=True) as registry:
        return Listed(**_listed(registry.rollback(who=who, why=reason.why), registry))


@router.get("/{name}")
def model(context: TheContext, name: Name) -> Described:
    """One model: what the gate says, what it was learned from, and what training refused."""
    with context.reading() as journal:
        registry = Registry(context.state.models, journal)
        one = _named(registry, name)
        facts, gate = one.facts, one.facts.get("gate") or {}
        shadow = facts.get("shadow")
        return Described(
            **_listed(one, registry),
            criteria=criteria(facts),
            reasons=[*gate.get("reasons", ()), *(shadow or {}).get("reasons", ())],
            most_contamination=gate.get("limits", {}).get("contamination", context.settings.training.contamination),
            shadow=shadow,
            wrong_labels=facts.get("wrong_labels", 0.0),
            doubted=facts.get("doubted", []),
            refused=[RefusedCount(**asdict(one)) for one in refusal_counts(journal, name)],
        )


@router.get("/{name}/refusals")
def refusals(
    context: TheContext,
    name: Name,
    sensor: Annotated[int | None, Query(ge=1, le=64, description="Only of this one, counted from 1.")] = None,
    why: Annotated[str | None, Query(max_length=100, description="Only for this reason.")] = None,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only those with a larger number.")] = 0,
    most: Annotated[int, Query(ge=1, le=200)] = 20,
) -> Refusals:
    """Segments that training did not learn from, one by one."""
    with context.reading() as journal:
        _named(Registry(context.state.models, journal), name)
        rows = refusals_after(journal, name, after, sensor=sensor, why=why, most=most + 1)
        sounds = _Sounds(context, journal, name)
        found = [_refusal(row, sounds) for row in rows[:most]]
    return Refusals(refusals=found, last=found[-1].number if found else after, more=len(rows) > most)


@router.get("/{name}/diff/{other}", dependencies=[Laborious])
def diff(
    context: TheContext, name: Name, other: Annotated[str, Path(min_length=1, max_length=64, description="Another.")]
) -> Diff:
    """Two models beside each other, as far as they can be compared."""
    with _registry(context) as registry:
        entries = [_stored(registry, one) for one in (name, other)]
        loaded = [registry.load(one.name) for one in entries]
    return Diff(
        names=(name, other),
        rows=[Compared(what=one.what, values=one.values, same=one.same) for one in differences(entries, loaded)],
        learned_apart=list(learned_apart(entries, loaded)),
        agreement=list(agreement(loaded)),
    )


@router.post("/{name}/promote")
def promote(context: TheContext, who: Who, name: Name, reason: PromotionReason) -> Listed:
    """Let a model decide from now on; a daemon that runs takes it up within a second."""
    with _registry(context, write=True) as registry:
        _require_fit(context, registry, _stored(registry, name).name)
        new = registry.promote(name, who=who, why=reason.why, told=NoticeKind.PROMOTION_ASKED)
        return Listed(**_listed(new, registry))


@contextmanager
def _registry(context: Context, *, write: bool = False) -> Iterator[Registry]:
    with context.writing() if write else context.reading() as journal:
        yield Registry(context.state.models, journal)


def _named(registry: Registry, name: str) -> Registered:
    """By its whole name."""
    found = next((one for one in registry.all() if one.name == name), None)
    if found is None:
        raise NotFound(f"there is no model {name!r}; /api/v1/models lists them")
    return found


def _stored(registry: Registry, name: str) -> Registered:
    """One whose files are there."""
    if not registry.path((one := _named(registry, name)).name).exists():
        raise UsageError(f"the files of model {name} were removed (training.keep_models); choose another")
    return one


def _require_fit(context: Context, registry: Registry, name: str) -> None:
    """The daemon would refuse what it cannot use, and then nobody decides."""
    model, array = registry.load(name), context.settings.array
    if (model.grid.rate_hz, model.n_sensors) != (array.rate_hz, array.sensors):
        raise UsageError(
            f"model {name} is for {model.n_sensors} sensors at {model.grid.rate_hz} Hz, the settings say "
            f"{array.sensors} at {array.rate_hz} Hz; promote another"
        )


def _listed(one: Registered, registry: Registry) -> Row:
    facts, gate = one.facts, one.facts.get("gate")
    return {
        "name": one.name,
        "status": one.status,
        "since": one.since,
        "why": one.why,
        "origin": one.origin,
        "learned": one.time,
        "parent": one.parent,
        "stored": registry.path(one.name).exists(),
        "classes": facts.get("classes", []),
        "passages": facts.get("passages", 0),
        "segments": facts.get("segments", 0),
        "accuracy": facts.get("accuracy"),
        "contamination": facts.get("contamination", []),
        "trained": facts.get("trained", []),
        "passed": gate["passed"] if gate else None,
    }


class _Sounds:
    """Where segments that a model knows can be heard."""

    def __init__(self, context: Context, journal: Journal, name: str) -> None:
        self._finder = ReferenceSounds(context.settings, journal, SoundStore(context.state.sound, journal))
        directory = context.state.models / name
        self._known: dict[tuple[str, int], ReferenceSegment] = {}
        if directory.is_dir():
            model = loaded(directory)
            every = (ReferenceSegment(model, index) for index in range(len(model.memory.start)))
            self._known = {(one.recording, one.start): one for one in every}

    def of(self, recording: str, start: int) -> tuple[str | None, str | None]:
        """Its address, or why there is none."""
        reference = self._known.get((recording, start))
        if reference is None:
            return None, "the files of the model were removed (training.keep_models)"
        why = self._finder.why_silent(reference)
        address = f"/api/v1/references/{reference.model.name}/{reference.index}/sound"
        return (address, None) if why is None else (None, why)


def _refusal(refused: NumberedRefusal, sounds: _Sounds) -> RefusedSegment:
    row = refused.row
    address, why = sounds.of(row.recording, row.start)
    return RefusedSegment(
        number=refused.number,
        recording=row.recording,
        start_sample=row.start,
        sensor=row.sensor,
        why=row.why,
        believed=row.believed,
        sound=address and f"{address}?sensor={row.sensor}",
        why_silent=why,
    )
