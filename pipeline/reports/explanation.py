"""Explain a decision: the part of each sensor, the values that support a class, rhythm, nearest training segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.choices import Choices
from pipeline.core.errors import ModelError, UsageError
from pipeline.core.event_json import EventLines
from pipeline.core.events import Block, Cepstra, Decision, Numbers, Role, Samples, StateChanged, Views
from pipeline.core.sensor_state import Cause
from pipeline.model.build import listening, whole_chain
from pipeline.model.model import Model, Refusal
from pipeline.reports.deciding_values import SensorReasons, fault_in_words, known_in_words, reasons, sound_in_words
from pipeline.reports.rhythm import Rhythm, rhythm
from pipeline.sources.files import Listing, Recording
from pipeline.stages import Chain
from pipeline.storage.decision_file import Event, opened, parsed
from pipeline.training.extract import Format

SAME = 1e-3
"""Distance below which two segments are the same sound; different segments are at least some tenths apart."""
_LEAST_PROBABILITY = 5e-7
"""Stands for 0 in events, where probabilities have six digits."""
WHY = {
    Role.USED: "used",
    Role.ABSENT: "not used: part of the segment is missing",
    Role.OFF: "not used: switched off",
    Role.MASKED: "not used: health is bad",
    Role.CALIBRATING: "not used: no reference set yet",
    Role.UNTRAINED: "not used: no classifier, too few training segments",
    Role.ANOMALOUS: "not used: sensor fault in this segment",
}


@dataclass(frozen=True, slots=True)
class DecisionPlace:
    """The decision to explain: a line of a file, or a recording and a time."""

    recording: str
    start_sample: int | None
    seconds: float | None
    choices: Choices | None = None
    model: str | None = None
    recorded: Event | None = None

    @classmethod
    def of(cls, text: str) -> DecisionPlace:
        """Parse decisions.jsonl:17 or r001@3.5."""
        path, colon, number = text.rpartition(":")
        if colon and number.isascii() and number.isdigit():
            return cls._of_line(Path(path), int(number))
        recording, at, seconds = text.rpartition("@")
        try:
            return cls(recording, None, float(seconds)) if at else cls._unknown(text)
        except ValueError:
            return cls._unknown(text)

    @classmethod
    def _of_line(cls, path: Path, number: int) -> DecisionPlace:
        header: Event | None = None
        event: Event | None = None
        with opened(path) as file:
            for n, text in enumerate(file, start=1):
                header = parsed(text) if n == 1 else header
                if n == number:
                    event = parsed(text)
                    break
        if header is None or header["type"] != "replay_started":
            raise UsageError(f"{path} is not a file of decisions; use one that gemmed replay wrote")
        if event is None or event["type"] != "decision":
            raise UsageError(f'{path} line {number} is not a decision; look for lines with "type":"decision"')
        choices = Choices.from_dict(header)
        return cls(event["recording"], event["start_sample"], None, choices, header["model"], event)

    @classmethod
    def _unknown(cls, text: str) -> DecisionPlace:
        raise UsageError(
            f"{text!r} must name a decision: a line of a file, as decisions.jsonl:17, or a recording and a time in "
            "seconds, as r001@3.5"
        )


@dataclass(frozen=True)
class Explained:
    """A decision with the sound of its segment."""

    recording: str
    decision: Decision
    event: Event
    samples: Samples  # (sensors, time)
    model: Model
    choices: Choices
    same: bool | None
    """Whether the decision equals the recorded one; None if there is none to compare with."""
    causes: Mapping[int, tuple[Cause, ...]] = field(default_factory=dict)
    """Open causes of each sensor at that time."""

    @property
    def trained_on(self) -> bool:
        """Return whether the segment is in the reference set of a sensor, under any name."""
        present = self.decision.features.present.nonzero()[0].tolist()
        return any(distance < SAME for s in present for *_, distance in self.nearest(s, 1))

    @property
    def contributions_are(self) -> str:
        return contributions_are(self.choices)

    @cached_property
    def pair(self) -> tuple[int, int]:
        """Places of the two classes that are compared: see `compared`."""
        return compared(self.model.classes, self.decision.outcome.probabilities)

    @property
    def classes(self) -> tuple[str, str]:
        """The two classes that are compared; log-odds are positive for the second."""
        first, second = self.pair
        return self.model.classes[first], self.model.classes[second]

    @property
    def log_odds(self) -> Numbers:
        """Log-odds of each sensor for the second of the compared classes against the first; NaN where it has none."""
        own, (first, second) = self.decision.verdicts.log_odds, self.pair
        found: Numbers = own[:, second] - own[:, first]
        return found

    @property
    def fused_log_odds(self) -> float | None:
        """The same of all sensors together; None if no sensor had a say."""
        outcome = self.decision.outcome
        if outcome.log_odds is not None or outcome.probabilities is None:
            return outcome.log_odds
        first, second = (outcome.probabilities[place] or _LEAST_PROBABILITY for place in self.pair)
        return log(second / first)

    @property
    def start_seconds(self) -> float:
        return self.decision.features.span.start / self.model.grid.rate_hz

    @cached_property
    def cepstra(self) -> Cepstra:
        """Cepstra of all frames of the segment; NaN where a sensor is absent."""
        return self._analyzed[0]

    @cached_property
    def views(self) -> Views:
        """Both views of the segment in original units; NaN where a sensor is absent."""
        return self._analyzed[1]

    @cached_property
    def rhythm(self) -> Rhythm | None:
        """Strongest rhythm of the array, from c0 of the sensors that were used; None without any."""
        return rhythm(self.cepstra.values[self._used, :, 0], self.model.grid.hop_seconds)

    def reasons(self, sensor: int) -> SensorReasons | None:
        """Return the values of the summary that decide at a sensor; None if it is absent or has no classifier."""
        if not self.views.present[sensor]:
            return None
        return reasons(self.model, self.views.summary[sensor], sensor, pair=self.pair)

    def why(self, sensor: int) -> str:
        """Say whether a sensor was used, and which causes are open."""
        causes = ", ".join(self.causes.get(sensor, ()))
        return WHY[self.decision.roles[sensor]] + (f" ({causes})" if causes else "")

    def fault(self, sensor: int) -> str | None:
        """Put the p-value of a sensor's timing in words; None without a p-value."""
        return fault_in_words(self.decision.verdicts.screened.p_values[sensor], self.choices.alpha)

    def known(self, sensor: int) -> str | None:
        """Put the p-value of a sensor's summary in words; None without a p-value."""
        return known_in_words(self.decision.verdicts.screened.p_known[sensor], self.choices.alpha)

    @property
    def sound(self) -> str:
        """Say at how many of the sensors that were used the sound is unlike every class."""
        p_known = self.decision.verdicts.screened.p_known
        return sound_in_words([p_known[s] for s in self._used], self.choices.alpha)

    def contribution(self, sensor: int) -> float:
        """Return a sensor's part of the fused log-odds; with feature fusion, its own log-odds."""
        return contribution(self.model, self.choices, self.decision.weights, self.log_odds, sensor)

    def nearest(self, sensor: int, n: int = 3) -> Iterator[tuple[str, float, str, float]]:
        """Yield recording, seconds, label and distance of the nearest training segments, by the summary view."""
        return self._named(*self.neighbors(sensor, n))

    def neighbors(self, sensor: int, n: int = 3) -> tuple[Any, Any]:
        """Return the nearest training segments as places in the model's memory, and their distances."""
        return self.model.reference.neighbors(self.decision.features.summary[sensor], sensor, n)

    def nearest_refused(self, sensor: int) -> tuple[str, float, str, float, str] | None:
        """Return the nearest segment that training excluded and the reason, if it is nearer than all references."""
        found, distance, why = self.refused_neighbor(sensor)
        if why is None:
            return None
        (named,) = self._named(found, distance)
        return *named, why

    def refused_neighbor(self, sensor: int) -> tuple[Any, Any, str | None]:
        """Return the same as a place in the model's memory (or none), its distance and the reason."""
        refusal = self.model.memory.refusal[:, sensor]
        refused = (refusal != Refusal.NONE) & (refusal != Refusal.ABSENT)
        _, least = self.neighbors(sensor, 1)
        summary = self.decision.features.summary[sensor]
        found, distance = self.model.reference.neighbors(summary, sensor, 1, among=refused)
        if not len(found) or (len(least) and distance[0] >= least[0]):
            return found[:0], distance[:0], None
        return found, distance, Refusal(int(refusal[found[0]])).told

    @property
    def _used(self) -> list[int]:
        return [s for s, role in enumerate(self.decision.roles) if role == Role.USED]

    @cached_property
    def _analyzed(self) -> tuple[Cepstra, Views]:
        *before, viewing, _ = listening(self.model.grid, self.model.settings)
        # The segment begins at a multiple of the hop, so its frames are those of a recording that begins with it.
        block = Block(0, self.samples.copy(), self.decision.features.present.copy())
        (cepstra,) = Chain(*before).push(block)
        (views,) = viewing.push(cepstra)
        assert isinstance(cepstra, Cepstra)
        assert isinstance(views, Views)
        return cepstra, views

    def _named(self, places: Any, distances: Any) -> Iterator[tuple[str, float, str, float]]:
        memory, notes = self.model.memory, self.model.notes["recordings"]
        for place, distance in zip(places, distances, strict=True):
            yield (
                notes[memory.recording[place]]["recording"],
                float(memory.start[place]) / self.model.grid.rate_hz,
                self.model.classes[memory.label[place]],
                float(distance),
            )


def compared(classes: Sequence[str], probabilities: Sequence[float] | None) -> tuple[int, int]:
    """Return the places of the two classes that an explanation compares: the runner-up, then the most probable one.

    Of two classes they are the first and the second, whichever is more probable.
    """
    if len(classes) == 2 or probabilities is None:
        return 0, 1
    second, first = sorted(range(len(classes)), key=lambda place: (-probabilities[place], place))[:2]
    return first, second


def contributions_are(choices: Choices) -> str:
    """Name the quantity that `contribution` returns."""
    return "own log-odds" if choices.fusion == "features" else "contribution"


def contribution(model: Model, choices: Choices, weights: Numbers, log_odds: Numbers, sensor: int) -> float:
    """Return a sensor's part of the fused log-odds; with feature fusion, its own log-odds."""
    if not weights[sensor]:
        return 0.0
    if choices.fusion == "features":
        return float(log_odds[sensor])
    alone = np.where(np.arange(len(weights)) == sensor, np.nan_to_num(log_odds), 0.0)
    return model.votes.fused(alone, weights)


def explain(place: DecisionPlace, listing: Listing, model: Model, choices: Choices, *, resample: bool) -> Explained:
    """Run the recording through the chain again and return the decision at a place, with its sound."""
    if place.model not in (None, model.identity):
        raise ModelError(
            f"the decision was made by model {str(place.model)[:12]}, not by {model.name}; "
            "use the directory of that model"
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
    place: DecisionPlace, recording: Recording, model: Model, choices: Choices, resample: bool
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


def _is_meant(decision: Decision, place: DecisionPlace, model: Model) -> bool:
    """Return whether a decision is the one at the place: its segment is the last that begins before the time."""
    start = decision.features.span.start
    if place.start_sample is not None:
        return start == place.start_sample
    assert place.seconds is not None
    return start <= place.seconds * model.grid.rate_hz < start + model.grid.stride


class _Recent:
    """Keeps the last samples of a recording, enough for one segment."""

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
    """Count the training segments that were excluded, per sensor and reason, with the recordings most concerned."""
    memory, names = model.memory, [note["recording"] for note in model.notes["recordings"]]
    counts = []
    for s in range(model.n_sensors):
        reasons = {}
        for refusal in (Refusal.LABEL, Refusal.OTHERS, Refusal.OWN, Refusal.ABSENT):
            own = memory.refusal[:, s] == refusal
            if own.any():
                most = Counter(names[r] for r in memory.recording[own]).most_common(3)
                reasons[refusal.told] = {"segments": int(own.sum()), "mostly": dict(most)}
        counts.append({"sensor": s + 1, "segments": len(memory.start), "refused": reasons})
    return counts
