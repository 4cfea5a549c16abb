"""The chain of the daemon: its model may change between two segments, and all it knows of the sensors goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Protocol

from pipeline.core.blas_threads import one_thread
from pipeline.core.checkpoint import Taken, restore, snapshot, value
from pipeline.core.choices import Choices
from pipeline.core.errors import ModelError, StateError
from pipeline.core.events import (
    Authority,
    Decision,
    FaultClosed,
    FaultOpened,
    ModelChanged,
    RecordingStarted,
    StateChanged,
    TrustChanged,
    Views,
)
from pipeline.core.framing import Grid
from pipeline.core.sensor_state import Cause
from pipeline.model.build import deciding, hearing, hearing_settings, passing, screening, states, voting
from pipeline.model.model import Model
from pipeline.model.shadow import Shadow
from pipeline.stages import Chain, LabelAudit, Passages

_LEARNED = {Cause.ANOMALOUS, Cause.DRIFT, Cause.CONTAMINATED}
"""Faults that a model sees: another model looks for itself."""


class Comparison(Protocol):
    """Is told what two models make of the same segment, and when another recording begins."""

    def begin_recording(self) -> None: ...

    def compare(self, champion: Decision, challenger: Decision, /) -> None: ...


@dataclass(frozen=True, slots=True)
class ArrayInput:
    """How the array is heard, with or without a model; models that can replace each other hear alike."""

    grid: Grid
    settings: dict[str, Any]
    n_sensors: int

    @classmethod
    def of(cls, model: Model) -> ArrayInput:
        return cls(model.grid, model.settings, model.n_sensors)

    @classmethod
    def usual(cls, rate_hz: int, n_sensors: int) -> ArrayInput:
        """As the first model of this array will hear."""
        grid = Grid(rate_hz=rate_hz)
        return cls(grid, hearing_settings(grid), n_sensors)


@value
@dataclass(slots=True)
class _Known:
    """What newly made stages must be told of the past."""

    faults: dict[tuple[int, Cause], FaultOpened] = field(default_factory=dict)
    states: dict[int, StateChanged] = field(default_factory=dict)
    trust: TrustChanged | None = None

    def note(self, fact: object) -> None:
        if isinstance(fact, FaultOpened):
            self.faults[fact.sensor, fact.cause] = fact
        elif isinstance(fact, FaultClosed):
            self.faults.pop((fact.sensor, fact.cause), None)
        elif isinstance(fact, StateChanged):
            self.states[fact.sensor] = fact
        elif isinstance(fact, TrustChanged) and fact.by is Authority.OPERATOR:
            self.trust = fact

    def facts(self) -> list[object]:
        return [*self.faults.values(), *self.states.values(), *([self.trust] if self.trust else [])]


class Switching:
    """From blocks to decisions, by the model of the moment; without one, to the states of the sensors.

    A `ModelChanged` replaces the model for all segments that end behind it. Faults that the old model saw are closed,
    physical faults, states, trust and an open passage go on. What is usual is that of the model with which a recording
    began. A challenger may be heard in the shadow: it decides, too, and changes nothing.
    """

    accepts = object
    remembers = (
        "_made_for", "_began_with", "_decided_by", "_recording", "_known", "_listening", "_deciding", "_passing",
        "_shadow",
    )  # fmt: skip

    def __init__(
        self, hearing: ArrayInput, choices: Choices, model: Model | None, *, load: Callable[[str], Model]
    ) -> None:
        self.hearing, self.choices, self.model = hearing, choices, model
        self._load = load
        self._shadow: _Shadow | None = None
        self._recording = ""
        self._begin()

    def _begin(self) -> None:
        usual = self.model.usual if self.model else None
        how = self.hearing
        self._listening = Chain(*hearing(how.grid, how.settings, self.choices, how.n_sensors, usual))
        self._states = Chain(*states(how.grid.rate_hz, self.choices))
        self._known = _Known()
        self._began_with = _name_of(self.model)
        self._passing = Chain()
        self._adopt(self.model)

    def _adopt(self, model: Model | None) -> list[object]:
        """Let a model decide; the end of an open passage if it finds none."""
        self.model, self._decided_by = model, _name_of(model)
        screens = Chain(*screening(model, self.choices)) if model else Chain()
        votes = Chain(*voting(model, self.choices), LabelAudit(model.classes)) if model else Chain()
        for fact in self._known.facts():
            screens.push(fact)
            votes.push(fact)
        self._votes, self._deciding = votes, Chain(screens, self._states, votes)
        return self._pass_on(Chain(*passing(model, self.choices)) if model else Chain())

    def _pass_on(self, passages: Chain) -> list[object]:
        """Hand an open passage to the stage of another model."""
        before, self._passing = self._passing, passages
        old, new = _stage_of_passages(before), _stage_of_passages(passages)
        if old is not None and new is not None:
            return new.take_over(old)
        passages.push(RecordingStarted(self._recording, self.hearing.grid.rate_hz, ()))
        return before.flush()

    @one_thread  # for all chains together: each of them would set the limits anew
    def push(self, item: object, /) -> list[object]:
        if isinstance(item, RecordingStarted):
            before = self.flush()
            self._recording = item.recording
            self._begin()
            if self._shadow is not None:
                self._shadow.comparison.begin_recording()
            return [*before, *self._push(item)]
        if isinstance(item, ModelChanged):
            return self._change(item)
        return self._push(item)

    def _push(self, item: object) -> list[object]:
        heard = self._listening.push(item)
        decided = [fact for one in heard for fact in self._deciding.push(one)]
        for fact in decided:
            self._known.note(fact)
        if self._shadow is not None:
            self._shadow.push(heard, decided)
        return [fact for one in decided for fact in self._passing.push(one)]

    def flush(self) -> list[object]:
        heard = self._listening.flush()
        decided = [fact for one in heard for fact in self._deciding.push(one)] + self._deciding.flush()
        self._known = _Known()
        return [fact for one in decided for fact in self._passing.push(one)] + self._passing.flush()

    def _change(self, change: ModelChanged) -> list[object]:
        model = self._load(change.model) if change.model else None
        if model is not None and ArrayInput.of(model) != self.hearing:
            raise ModelError(
                f"model {change.model} hears with other settings than the one before; it can decide from the next "
                "recording on"
            )
        closed = [
            FaultClosed(change.sample, fault.since, change.sample, fault.sensor, fault.cause, fault.evidence)
            for (_, cause), fault in self._known.faults.items()
            if cause in _LEARNED
        ]
        for fact in closed:
            self._known.note(fact)
        ended = self._adopt(model)
        return [*ended, change, *(fact for one in closed for fact in Chain(self._states, self._votes).push(one))]

    def shadow(self, model: Model | None, comparison: Comparison | None = None) -> None:
        """Let a challenger decide about the same segments, or no longer."""
        if model is None or comparison is None:
            self._shadow = None
            return
        chain = Chain(*deciding(model, replace(self.choices, health=False)))
        self._shadow = _Shadow(model.name, chain, comparison)
        for fact in self._known.facts():
            self._shadow.chain.push(fact)

    def snapshot(self) -> bytes:
        """All that is known at the moment; models by their names, for they are stored elsewhere."""
        return snapshot(self)

    def restore(self, data: bytes) -> Shadow | None:
        """Go on, newly made with the same hearing and choices, where another one was; the comparison of its shadow."""
        restore(self, data)
        comparison = self._shadow.comparison if self._shadow else None
        if not isinstance(comparison, Shadow | None):
            raise StateError(f"stored state compares models by {comparison}, which cannot be")
        return comparison

    def prepare(self, state: Taken) -> None:
        self.model = self._named(state["_began_with"])
        self._begin()
        self._adopt(self._named(state["_decided_by"]))
        challenger = state["_shadow"]
        self.shadow(*((self._load(challenger["name"]), challenger["comparison"]) if challenger else (None,)))

    def _named(self, name: str) -> Model | None:
        return self._load(name) if name else None

    @property
    def _made_for(self) -> dict[str, str]:
        """All that must be the same where somebody goes on."""
        how = self.hearing
        made = asdict(how.grid) | dict(how.settings) | {"sensors": how.n_sensors} | self.choices.as_dict()
        return {name: repr(value) for name, value in sorted(made.items())}

    @_made_for.setter
    def _made_for(self, another: dict[str, str]) -> None:
        here = self._made_for
        if another != here:
            told = [
                f"{name} was {another.get(name, 'unknown')}, is {here.get(name, 'unknown')}"
                for name in sorted(another.keys() | here.keys())
                if another.get(name) != here.get(name)
            ]
            raise StateError(f"stored state is of other settings: {', '.join(told)}; use those to go on from it")


def _stage_of_passages(chain: Chain) -> Passages | None:
    return next((stage for stage in chain.stages if isinstance(stage, Passages)), None)


def _name_of(model: Model | None) -> str:
    return model.name if model else ""


@dataclass(slots=True)
class _Shadow:
    remembers: ClassVar = ("name", "chain", "comparison")

    name: str
    chain: Chain
    comparison: Comparison

    def push(self, heard: list[object], decided: list[object]) -> None:
        challenger = {}
        for fact in heard:
            if isinstance(fact, Views):
                for made in self.chain.push(fact):
                    if isinstance(made, Decision):
                        challenger[made.features.span] = made
        for fact in decided:
            if isinstance(fact, StateChanged | TrustChanged):
                self.chain.push(fact)
            elif isinstance(fact, Decision) and fact.features.span in challenger:
                self.comparison.compare(fact, challenger[fact.features.span])
