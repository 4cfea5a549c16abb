"""`gemmed explain`: why a decision is what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.conditions import Cause
from pipeline.errors import ModelError, UsageError
from pipeline.events import Block, Decision, Numbers, Role, Samples, StateChanged
from pipeline.service.assembly import Choices, whole_chain
from pipeline.service.decisions import Event, opened, parsed
from pipeline.service.listening import Format
from pipeline.sinks.jsonl import EventLines
from pipeline.sources.files import Listing, Recording
from pipeline.training.model import Model, Refusal

SAME = 1e-3
"""Segments nearer than that are the same sound; others lie some units apart."""
WHY = {
    Role.USED: "used",
    Role.ABSENT: "not used: it did not deliver all of the segment",
    Role.OFF: "not used: it is switched off",
    Role.MASKED: "not used: its health is bad",
    Role.CALIBRATING: "not used: it has no reference yet",
    Role.UNTRAINED: "not used: training believed too little of it",
    Role.ANOMALOUS: "not used: the screen refuses it",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Which decision is asked for, as a user names it: a line of a file, or a recording and a time."""

    recording: str
    start_sample: int | None
    seconds: float | None
    choices: Choices | None = None
    model: str | None = None
    recorded: Event | None = None

    @classmethod
    def of(cls, text: str) -> Place:
        """From decisions.jsonl:17 or r001@3.5."""
        path, colon, number = text.rpartition(":")
        if colon and number.isascii() and number.isdigit():
            return cls._of_line(Path(path), int(number))
        recording, at, seconds = text.rpartition("@")
        try:
            return cls(recording, None, float(seconds)) if at else cls._unknown(text)
        except ValueError:
            return cls._unknown(text)

    @classmethod
    def _of_line(cls, path: Path, number: int) -> Place:
        header: Event | None = None
        event: Event | None = None
        with opened(path) as file:
            for n, text in enumerate(file, start=1):
                header = parsed(text) if n == 1 else header
                if n == number:
                    event = parsed(text)
                    break
        if header is None or header["type"] != "replay_started":
            raise UsageError(f"{path} is not a file of decisions; give one that gemmed replay wrote")
        if event is None or event["type"] != "decision":
            raise UsageError(f'{path} line {number} is not a decision; look for lines with "type":"decision"')
        choices = Choices.from_dict(header)
        return cls(event["recording"], event["start_sample"], None, choices, header["model"], event)

    @classmethod
    def _unknown(cls, text: str) -> Place:
        raise UsageError(
            f"{text!r} must name a decision: a line of a file, as decisions.jsonl:17, or a recording and a time in "
            "seconds, as r001@3.5"
        )


@dataclass(frozen=True, slots=True)
class Explained:
    """A decision with its sound."""

    recording: str
    decision: Decision
    event: Event
    samples: Samples  # (sensors, time)
    model: Model
    choices: Choices
    same: bool | None
    """Whether it equals the one in the file; None if there was none to compare."""
    causes: Mapping[int, tuple[Cause, ...]] = field(default_factory=dict)
    """What was the matter with sensors at that time."""

    @property
    def trained_on(self) -> bool:
        """Whether a sensor's segment is one of its reference, under whatever name."""
        heard = self.decision.features.present.nonzero()[0].tolist()
        return any(distance < SAME for s in heard for *_, distance in self.nearest(s, 1))

    @property
    def contributions_are(self) -> str:
        return contributions_are(self.choices)

    @property
    def start_seconds(self) -> float:
        return self.decision.features.span.start / self.model.grid.rate_hz

    def why(self, sensor: int) -> str:
        """Whether it was used, and what was the matter with it."""
        causes = ", ".join(self.causes.get(sensor, ()))
        return WHY[self.decision.roles[sensor]] + (f" ({causes})" if causes else "")

    def contribution(self, sensor: int) -> float:
        """What a sensor adds to the fused log-odds; where features are fused, its own opinion."""
        return contribution(self.model, self.choices, self.decision.weights, self.decision.verdicts.log_odds, sensor)

    def nearest(self, sensor: int, n: int = 3) -> Iterator[tuple[str, float, str, float]]:
        """Recording, seconds, label and distance of the reference segments that a sensor's segment is most like."""
        return self._named(*self.neighbours(sensor, n))

    def neighbours(self, sensor: int, n: int = 3) -> tuple[Any, Any]:
        """The same as places in the model's memory, and distances."""
        return self.model.screen.neighbours(self.decision.features.values[sensor], sensor, n)

    def nearest_refused(self, sensor: int) -> tuple[str, float, str, float, str] | None:
        """The most similar segment that training refused, if it is nearer than any it learned from, and why."""
        found, distance, why = self.refused_neighbour(sensor)
        if why is None:
            return None
        (named,) = self._named(found, distance)
        return *named, why

    def refused_neighbour(self, sensor: int) -> tuple[Any, Any, str | None]:
        """The same as a place in the model's memory, if there is one, its distance and why it was refused."""
        refusal = self.model.memory.refusal[:, sensor]
        refused = (refusal != Refusal.NONE) & (refusal != Refusal.ABSENT)
        _, least = self.neighbours(sensor, 1)
        found, distance = self.model.screen.neighbours(self.decision.features.values[sensor], sensor, 1, among=refused)
        if not len(found) or (len(least) and distance[0] >= least[0]):
            return found[:0], distance[:0], None
        return found, distance, Refusal(int(refusal[found[0]])).told

    def _named(self, places: Any, distances: Any) -> Iterator[tuple[str, float, str, float]]:
        memory, notes = self.model.memory, self.model.notes["recordings"]
        for place, distance in zip(places, distances, strict=True):
            yield (
                notes[memory.recording[place]]["recording"],
                float(memory.start[place]) / self.model.grid.rate_hz,
                self.model.classes[memory.label[place]],
                float(distance),
            )


def contributions_are(choices: Choices) -> str:
    """What `contribution` stands for."""
    return "own opinion" if choices.fusion == "features" else "contribution"


def contribution(model: Model, choices: Choices, weights: Numbers, log_odds: Numbers, sensor: int) -> float:
    """What a sensor adds to the fused log-odds; where features are fused, its own opinion."""
    if not weights[sensor]:
        return 0.0
    if choices.fusion == "features":
        return float(log_odds[sensor])
    alone = np.where(np.arange(len(weights)) == sensor, np.nan_to_num(log_odds), 0.0)
    return model.votes(alone, None, weights)


def explain(place: Place, listing: Listing, model: Model, choices: Choices, *, resample: bool) -> Explained:
    """Decide about the recording again, and keep the decision that was asked for, with its sound."""
    if place.model not in (None, model.identity):
        raise ModelError(
            f"the decision was made by model {str(place.model)[:12]}, not by {model.name}; give the directory of that"
        )
    recording = next((one for one in listing.recordings if one.name == place.recording), None)
    if recording is None:
        raise UsageError(
            f"recording {place.recording!r} is not among the {len(listing.recordings)} given; "
            "add the directory it is in"
        )
    choices = place.choices or choices
    decision, event, samples, causes = _find(place, recording, model, choices, resample)
    same = None if place.recorded is None else event == place.recorded
    return Explained(recording.name, decision, event, samples, model, choices, same, causes)


def _find(
    place: Place, recording: Recording, model: Model, choices: Choices, resample: bool
) -> tuple[Decision, Event, Samples, dict[int, tuple[Cause, ...]]]:
    events: list[Event] = []
    causes: dict[int, tuple[Cause, ...]] = {}
    lines = EventLines(events.append, model=model.name)
    chain, recent, last = whole_chain(model, choices), _Recent(model), -1
    with Format(model.grid.rate_hz, model.n_sensors, resample).source(recording) as source:
        for item in source:
            recent.keep(item)
            for fact in chain.push(item):
                lines.observe(fact)
                if isinstance(fact, StateChanged):
                    causes[fact.sensor] = fact.causes
                elif isinstance(fact, Decision):
                    last = fact.features.span.stop
                    if _is_meant(fact, place, model):
                        return fact, events[-1], recent.samples(fact), causes
    raise UsageError(
        f"{recording.name} has no decision there; its last one ends at {max(last, 0) / model.grid.rate_hz:g} s"
    )


def _is_meant(decision: Decision, place: Place, model: Model) -> bool:
    """The named one, or the first whose next would begin after the named time."""
    start = decision.features.span.start
    if place.start_sample is not None:
        return start == place.start_sample
    assert place.seconds is not None
    return start <= place.seconds * model.grid.rate_hz < start + model.grid.stride


class _Recent:
    """The last samples of a recording, as many as a decision may speak of."""

    def __init__(self, model: Model) -> None:
        self._segment, self._blocks = model.grid.segment, list[Block]()

    def keep(self, item: object) -> None:
        if isinstance(item, Block):
            self._blocks.append(item)
            while self._blocks[0].stop <= item.start - self._segment:
                self._blocks.pop(0)

    def samples(self, decision: Decision) -> Samples:
        span = decision.features.span
        sound = np.zeros((len(decision.weights), len(span)), np.float32)
        for block in self._blocks:
            first, last = max(block.start, span.start), min(block.stop, span.stop)
            if first < last:
                sound[:, first - span.start : last - span.start] = block.samples[
                    :, first - block.start : last - block.start
                ]
        return sound


def refused(model: Model) -> list[dict[str, Any]]:
    """What training did not learn from, per sensor and reason, with the recordings that lost most."""
    memory, names = model.memory, [note["recording"] for note in model.notes["recordings"]]
    told = []
    for s in range(model.n_sensors):
        reasons = {}
        for refusal in (Refusal.LABEL, Refusal.OTHERS, Refusal.OWN, Refusal.ABSENT):
            own = memory.refusal[:, s] == refusal
            if own.any():
                most = Counter(names[r] for r in memory.recording[own]).most_common(3)
                reasons[refusal.told] = {"segments": int(own.sum()), "mostly": dict(most)}
        told.append({"sensor": s + 1, "segments": len(memory.start), "refused": reasons})
    return told
