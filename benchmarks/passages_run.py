"""Streams with truth, models trained on them through the product, and what the product decides about others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from rich.console import Console

from benchmarks._streams import Stream
from pipeline.core.choices import Choices
from pipeline.core.events import (
    AnomalyJudged,
    Block,
    Decision,
    FaultOpened,
    Passage,
    PassageEnd,
    PassageEnded,
    PassageStarted,
    RecordingStarted,
    Role,
    Samples,
    StateChanged,
)
from pipeline.model.build import passing, whole_chain
from pipeline.model.model import Model
from pipeline.runtime.process_pool import LocalEngine, progress_bar
from pipeline.simulation.climate import PIECE_SECONDS
from pipeline.simulation.day import Day, PassageTruth
from pipeline.sources.files import find_recordings
from pipeline.stages import Chain
from pipeline.training.examples import Examples
from pipeline.training.labels import read_labels
from pipeline.training.offline import TrainingOptions, learned, listen

RATE_HZ, N_SENSORS = 16_000, 4
NOBODY = "nobody"
MARGIN_SECONDS = 5.0
"""Around passages, which is neither passage nor background."""
_DISTRACTOR_MARGIN_SECONDS = 2.0
_FILE_SECONDS = 3600.0
_REPORT_SECONDS = 600.0
_UNUSABLE = (Role.ABSENT, Role.OFF, Role.MASKED)

Floats = NDArray[np.float64]
Stretch = tuple[float, float]
Listener = Callable[[Samples], object]


def say(message: str) -> None:
    """Report progress on stderr."""
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Happening:
    """A passage or a distractor, in seconds; `enters` to `leaves` is the time in which it makes any sound."""

    start: float
    end: float
    label: str
    peak_db: float
    enters: float
    leaves: float

    @classmethod
    def plain(cls, start: float, end: float, label: str, peak_db: float) -> Happening:
        return cls(start, end, label, peak_db, start, end)


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """A stream of 4 x 16 kHz in pieces, and the truth about it."""

    name: str
    seconds: float
    passages: tuple[Happening, ...]
    distractors: tuple[Happening, ...]
    pieces: Callable[[], Iterator[Samples]]

    @classmethod
    def of_stream(cls, name: str, stream: Stream) -> Sound:
        happenings = [Happening.plain(one.start, one.end, one.label, one.peak_db) for one in stream.events]
        walkers = [one.is_walker for one in stream.events]
        return cls(
            name,
            stream.seconds,
            tuple(one for one, is_walker in zip(happenings, walkers, strict=True) if is_walker),
            tuple(one for one, is_walker in zip(happenings, walkers, strict=True) if not is_walker),
            stream.pieces,
        )

    @classmethod
    def of_day(cls, name: str, day: Day) -> Sound:
        """Passages are those that are audible, while they are."""
        truths = [day.truth(number) for number in range(len(day.passages))]
        passages = [
            Happening(
                one.start_seconds, one.end_seconds, one.label, one.peak_db, one.enters_seconds, one.leaves_seconds
            )
            for one in truths
            if one.is_audible
        ]
        distractors = [Happening.plain(one.start_seconds, one.end_seconds, one.kind, np.nan) for one in day.distractors]
        pieces = lambda: (day.piece(number) for number in range(day.n_pieces))  # noqa: E731
        assert day.site.rate_hz == RATE_HZ
        assert PIECE_SECONDS * day.n_pieces == day.seconds
        return cls(name, day.seconds, tuple(passages), tuple(distractors), pieces)

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    @property
    def nobody(self) -> list[Stretch]:
        """Return the time without passages, margins left out; distractors are part of it."""
        return free_of([(one.enters, one.leaves) for one in self.passages], self.seconds, MARGIN_SECONDS)

    @property
    def background(self) -> list[Stretch]:
        """Return the time with neither passages nor distractors, margins left out."""
        taken = [(one.enters - MARGIN_SECONDS, one.leaves + MARGIN_SECONDS) for one in self.passages]
        margin = _DISTRACTOR_MARGIN_SECONDS
        taken += [(one.start - margin, one.end + margin) for one in self.distractors]
        return free_of(taken, self.seconds, 0.0)


def _sounding(truth: PassageTruth) -> Stretch:
    return truth.enters_seconds, truth.leaves_seconds


def free_of(taken: Sequence[Stretch], seconds: float, margin: float) -> list[Stretch]:
    """Return the stretches of 0 to `seconds` outside those taken and a margin around them."""
    found, free = [], 0.0
    for start, end in [*sorted(taken), (seconds + margin, seconds + margin)]:
        if start - margin > free:
            found.append((free, start - margin))
        free = max(free, end + margin)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model and what it was learned from."""

    model: Model
    examples: Examples
    sound: Sound
    label_distractors: bool
    """Whether distractors count as false passages when thresholds are chosen."""

    @property
    def nobody(self) -> list[Stretch]:
        return self.sound.nobody if self.label_distractors else self.sound.background


def train_on(
    sound: Sound, folder: Path, *, jobs: int, label_distractors: bool = True, listener: Listener | None = None
) -> Trained:
    """Train through the product: an hour of sound a file, a table of labels, then as `gemmed train` does.

    Distractors are labeled nobody like the rest of the background, or not labeled at all.
    """
    folder.mkdir(parents=True)
    say(f"{sound.name}: writing {sound.hours:g} h of training sound, {len(sound.passages)} passages")
    names = _write_sound(sound, folder, listener)
    nobody = sound.nobody if label_distractors else sound.background
    _write_labels(sound, nobody, folder / "labels.csv", names)
    plan = TrainingOptions(folds=0)  # the validation decides nothing here
    console = Console(stderr=True)
    with LocalEngine(jobs) as engine, progress_bar(console) as progress:
        labels = read_labels(folder / "labels.csv")
        lesson = listen(find_recordings(folder), labels, plan, engine=engine, progress=progress)
        model = learned(lesson, plan, engine=engine, progress=progress)
    for file in folder.glob("*.flac"):
        file.unlink()
    if model.presence is None:
        sys.exit(f"{sound.name} has too few segments with or without passages to learn presence; use more hours")
    say(f"{sound.name}: presence learned from {model.presence.hours[0]:.2f} h of background")
    return Trained(model.save(folder / "model"), lesson.examples, sound, label_distractors)


def _write_sound(sound: Sound, folder: Path, listener: Listener | None) -> list[str]:
    names: list[str] = []
    file: soundfile.SoundFile | None = None
    seconds = 0.0
    for piece in sound.pieces():
        if file is None or seconds >= len(names) * _FILE_SECONDS:
            if file is not None:
                file.close()
            names.append(f"hour{len(names):03d}")
            file = soundfile.SoundFile(folder / f"{names[-1]}.flac", "w", RATE_HZ, N_SENSORS, subtype="PCM_16")
        file.write(np.rint(piece.T * 32768).astype(np.int16))
        if listener is not None:
            listener(piece)
        seconds += piece.shape[1] / RATE_HZ
    if file is not None:
        file.close()
    return names


def _write_labels(sound: Sound, nobody: Sequence[Stretch], path: Path, names: Sequence[str]) -> None:
    """Spans of passages and of nobody, cut where files are."""
    spans = [(one.start, one.end, one.label) for one in sound.passages]
    spans += [(start, end, NOBODY) for start, end in nobody]
    rows = ["recording,start_seconds,end_seconds,label"]
    borders = [_FILE_SECONDS * number for number in range(len(names) + 1)]
    for name, (begin, stop) in zip(names, pairwise(borders), strict=True):
        for start, end, label in sorted(spans):
            a, b = max(start, begin), min(end, stop)
            if b - a > 0.01:
                rows.append(f"{name},{a - begin:.3f},{b - begin:.3f},{label}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Found:
    """A passage that was found, in seconds."""

    start: float
    end: float
    label: str | None = None
    leaning: str | None = None
    """The most probable class, decided or not."""
    probability: float | None = None
    """Of that class."""
    p_known: float | None = None
    known_at: float = np.nan
    reason: PassageEnd | None = None


@dataclass(slots=True)
class Heard:
    """What the product made of a stream: evidence and labels of segments, passages, what it says of sensors."""

    start: list[float] = field(default_factory=list)
    presence: list[float] = field(default_factory=list)
    label: list[str | None] = field(default_factory=list)
    leaning: list[str | None] = field(default_factory=list)
    p_known: list[float] = field(default_factory=list)
    summary: list[NDArray[np.float32]] = field(default_factory=list)
    """Mean of the sensors that are present."""
    passages: dict[float, list[Found]] = field(default_factory=dict)
    """By the configured number of false passages in a day."""
    states: list[tuple[float, str]] = field(default_factory=list)
    """Seconds and a word for each fault, state and anomaly that was reported."""

    def segments(self, segment_seconds: float) -> tuple[Floats, Floats]:
        """Return starts and ends in seconds."""
        starts = np.array(self.start)
        return starts, starts + segment_seconds


class _Collector:
    """Collects what leaves a chain; other stages of passages decide beside it at other rates."""

    def __init__(self, model: Model, choices: Choices, rates: Sequence[float], keep_summary: bool) -> None:
        self.heard = Heard()
        self._keep_summary = keep_summary
        self._main = choices.false_passages_per_day
        self._others = {rate: Chain(*passing(model, _at_rate(choices, rate))) for rate in rates if rate != self._main}
        self._known_at: dict[tuple[float, str], float] = {}
        for rate in (self._main, *self._others):
            self.heard.passages[rate] = []

    def take(self, facts: Sequence[object]) -> None:
        for fact in facts:
            self._fact(fact)
            self._passage(self._main, fact)
            if isinstance(fact, RecordingStarted | Decision):
                for rate, chain in self._others.items():
                    for other in chain.push(fact):
                        self._passage(rate, other)

    def flush(self) -> None:
        for rate, chain in self._others.items():
            for fact in chain.flush():
                self._passage(rate, fact)

    def _passage(self, rate: float, fact: object) -> None:
        if isinstance(fact, PassageStarted):
            self._known_at[rate, fact.passage.id] = fact.sample / RATE_HZ
        elif isinstance(fact, PassageEnded):
            known_at = self._known_at.get((rate, fact.passage.id), np.nan)
            self.heard.passages[rate].append(_found(fact.passage, known_at, fact.reason))

    def _fact(self, fact: object) -> None:
        if isinstance(fact, Decision):
            self._decision(fact)
        elif isinstance(fact, FaultOpened):
            self.heard.states.append((fact.sample / RATE_HZ, f"fault: {fact.cause}"))
        elif isinstance(fact, StateChanged):
            self.heard.states.append((fact.sample / RATE_HZ, f"state: {fact.state}"))
        elif isinstance(fact, AnomalyJudged):
            self.heard.states.append((fact.sample / RATE_HZ, f"anomaly: {fact.pattern}"))

    def _decision(self, decision: Decision) -> None:
        heard, probabilities = self.heard, decision.outcome.probabilities
        heard.start.append(decision.features.span.start / RATE_HZ)
        heard.presence.append(np.nan if decision.presence is None else decision.presence)
        heard.label.append(decision.outcome.label)
        leaning = None if not probabilities else decision.classes[int(np.argmax(probabilities))]
        heard.leaning.append(leaning)
        usable = np.array([role not in _UNUSABLE for role in decision.roles])
        known = decision.verdicts.screened.p_known[usable]
        known = known[np.isfinite(known)]
        heard.p_known.append(float(np.median(known)) if len(known) else np.nan)
        views = decision.features.views
        if self._keep_summary and views is not None:
            present = views.summary[~np.isnan(views.summary[:, 0])]
            empty = np.full(views.summary.shape[1], np.nan, np.float32)
            heard.summary.append(present.mean(axis=0) if len(present) else empty)


def _found(passage: Passage, known_at: float, reason: PassageEnd) -> Found:
    leaning = max(passage.evidence, key=passage.evidence.__getitem__) if passage.evidence else None
    return Found(
        passage.start / RATE_HZ,
        passage.stop / RATE_HZ,
        passage.outcome.label,
        leaning,
        passage.outcome.probability,
        passage.p_known,
        known_at,
        reason,
    )


def _at_rate(choices: Choices, rate: float) -> Choices:
    return Choices.from_dict(choices.as_dict() | {"false_passages_per_day": rate})


def decide(
    model: Model,
    sound: Sound,
    choices: Choices,
    *,
    rates: Sequence[float] = (),
    keep_summary: bool = False,
    listener: Listener | None = None,
) -> Heard:
    """Run a stream through the whole chain; `rates` are further numbers of false passages a day to decide at."""
    chain = whole_chain(model, choices)
    collector = _Collector(model, choices, rates, keep_summary)
    collector.take(chain.push(RecordingStarted(sound.name, RATE_HZ, tuple("1234"))))
    at, delivered, reported = 0, np.ones(N_SENSORS, np.bool_), 0.0
    for piece in sound.pieces():
        collector.take(chain.push(Block(at, piece, delivered)))
        if listener is not None:
            listener(piece)
        at += piece.shape[1]
        if at / RATE_HZ - reported >= _REPORT_SECONDS or at / RATE_HZ >= sound.seconds:
            reported = at / RATE_HZ
            say(f"{sound.name}: decided {reported / 3600:.2f} of {sound.hours:g} h")
    collector.take(chain.flush())
    collector.flush()
    return collector.heard
