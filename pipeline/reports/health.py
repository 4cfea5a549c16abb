"""`gemmed health`: how each sensor was during recordings, and what was the matter with it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress as ProgressBar

from pipeline.core.choices import Choices
from pipeline.core.errors import SourceError
from pipeline.core.event_json import evidence_numbers
from pipeline.core.events import (
    AnomalyJudged,
    CalibrationChanged,
    Decision,
    FaultClosed,
    FaultOpened,
    Gap,
    Labelled,
    RecordingFinished,
    RecordingStarted,
    SourceTrouble,
    Span,
    StateChanged,
)
from pipeline.core.runner import run
from pipeline.core.sensor_state import Cause, Pattern, State
from pipeline.health.baseline import Baseline, learn_usual
from pipeline.health.measures import MIDDLE, Measures
from pipeline.model.build import loaded, whole_chain
from pipeline.runtime.process_pool import Engine
from pipeline.sources.files import Recording, sound_seconds
from pipeline.stages import Chain, Fingerprint, LabelNotice, Measure, OperatorMask, PhysicalFaults, SensorStates
from pipeline.training.extract import Format
from pipeline.training.labels import Labels

USUAL_SECONDS = 7200.0
"""So much sound suffices to learn what is usual."""
_PARTS = 10
"""Recordings are examined in so many parts, each by what is usual in the others."""


@dataclass(frozen=True, slots=True)
class HealthEpisode:
    """Something was the matter, from second to second; `still_open` if the recording ended before it did."""

    cause: Cause
    start_seconds: float
    end_seconds: float
    evidence: dict[str, float | None]
    found_seconds: float
    still_open: bool = False


@dataclass(slots=True)
class SensorHealth:
    """One sensor during one recording; sensors are counted from 1. Series have one value for every second."""

    sensor: int
    name: str
    episodes: list[HealthEpisode] = field(default_factory=list)
    states: list[tuple[float, State]] = field(default_factory=list)  # from when on
    level_db: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    floor_db: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    missing: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    p_seconds: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    p_values: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))

    @property
    def availability(self) -> float | None:
        """Share of the time in which it delivered sound that was not bad; None if nobody wanted to know."""
        if not len(self.missing) or self.switched_off:
            return None
        there = 1.0 - self.missing.astype(np.float64)
        recorded = np.isfinite(there)
        for episode in self.episodes:
            if episode.cause.state is State.BAD:
                there[round(episode.start_seconds) : round(episode.end_seconds)] = 0.0
        return float(there[recorded].mean()) if recorded.any() else None

    @property
    def worst(self) -> State:
        """The worst that it was, unknown aside; off if the operator did not want to hear it."""
        if self.switched_off:
            return State.OFF
        found = {state for _, state in self.states} | {episode.cause.state for episode in self.episodes}
        return next((state for state in (State.BAD, State.DEGRADED, State.GOOD) if state in found), State.UNKNOWN)

    @property
    def switched_off(self) -> bool:
        """From the beginning to the end."""
        return bool(self.states) and all(state is State.OFF for _, state in self.states)


@dataclass(frozen=True, slots=True)
class FaultOrEvent:
    """Fault or event: what the sensors together say of an anomaly."""

    seconds: float
    pattern: Pattern
    sensors: tuple[int, ...]
    evidence: dict[str, float | None]
    reason: str


@dataclass(slots=True)
class RecordingHealth:
    """All that is known of the sensors during one recording."""

    recording: str
    seconds: float = 0.0
    started_at: str | None = None
    sensors: list[SensorHealth] = field(default_factory=list)
    verdicts: list[FaultOrEvent] = field(default_factory=list)
    calibration: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[tuple[float, float, str]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "recording": self.recording,
            "seconds": round(self.seconds, 3),
            "sensors": [
                {
                    "sensor": one.sensor,
                    "availability": None if one.availability is None else round(one.availability, 6),
                    "state": str(one.worst),
                    "episodes": [
                        {
                            "cause": str(episode.cause),
                            "start_seconds": round(episode.start_seconds, 3),
                            "end_seconds": round(episode.end_seconds, 3),
                            "evidence": episode.evidence,
                        }
                        for episode in one.episodes
                    ],
                }
                for one in self.sensors
            ],
            "verdicts": [
                {
                    "pattern": str(one.pattern),
                    "seconds": round(one.seconds, 3),
                    "sensors": list(one.sensors),
                    "evidence": one.evidence,
                    "reason": one.reason,
                }
                for one in self.verdicts
            ],
            "calibration": self.calibration,
            "troubles": self.troubles,
        }


@dataclass(frozen=True, slots=True)
class Examination:
    """What decides the findings: the sound's format, a model or what is usual, and the user's choices."""

    sound: Format
    choices: Choices
    directory: Path | None = None
    """Of the model, if there is one."""
    usual: Mapping[str, Baseline | None] = field(default_factory=dict)
    """Without a model, for each recording by its name."""
    labels: Labels | None = None

    def chain(self, recording: str = "") -> Chain:
        if self.directory is not None:
            chain = whole_chain(loaded(self.directory), self.choices)
        else:
            masking = OperatorMask([sensor - 1 for sensor in self.choices.masked], self.sound.n_sensors)
            rate_hz = self.sound.rate_hz
            chain = Chain(
                masking,
                Fingerprint(),
                Measure(rate_hz),
                PhysicalFaults(self.usual.get(recording)),
                SensorStates(rate_hz),
            )
        return chain if self.labels is None else Chain(LabelNotice(self._labelled(self.labels)), *chain.stages)

    def _labelled(self, labels: Labels) -> dict[str, list[Labelled]]:
        rate_hz = self.sound.rate_hz
        told: dict[str, list[Labelled]] = {}
        for label in labels:
            span = Span(round(label.start_seconds * rate_hz), round(label.end_seconds * rate_hz))
            told.setdefault(label.recording, []).append(Labelled(span, label.label))
        return told


def what_is_usual(
    recordings: Sequence[Recording], sound: Format, *, engine: Engine, bar: ProgressBar
) -> dict[str, Baseline | None]:
    """For each recording, learned from others of the array, evenly chosen if there are many.

    A recording does not say itself what is usual in it, unless there is only one.
    """
    lengths = [sound_seconds(recording) for recording in recordings]
    every = max(round(sum(lengths) / USUAL_SECONDS), 1)
    chosen = recordings[::every]
    shown = bar.add_task("recordings heard to learn what is usual", total=len(chosen))
    heard: dict[str, list[Measures]] = {}
    for recording, measures in engine.finished(partial(_measures, sound=sound), chosen):
        heard[recording.name] = measures
        bar.advance(shown)
    seconds = {recording.name: heard[recording.name] for recording in chosen}  # in their order, whoever was first
    parts = [recordings[first::_PARTS] for first in range(min(_PARTS, len(recordings)))]
    usual: dict[str, Baseline | None] = {}
    for part in parts:
        own = {recording.name for recording in part} if len(parts) > 1 else set()
        known = learn_usual([second for name, found in seconds.items() if name not in own for second in found])
        usual |= dict.fromkeys((recording.name for recording in part), known)
    return usual


def _measures(recording: Recording, sound: Format) -> list[Measures]:
    """Of a recording, or of its first hours."""
    found: list[Measures] = []
    chain = Chain(Measure(sound.rate_hz))
    with suppress(SourceError), sound.source(recording) as source:  # an error is told when it is examined
        for item in source:
            found += [fact for fact in chain.push(item) if isinstance(fact, Measures)]
            if len(found) >= USUAL_SECONDS:
                break
    return found


def examine(
    recordings: Sequence[Recording], task: Examination, *, engine: Engine, bar: ProgressBar
) -> list[RecordingHealth]:
    """All recordings, in their order."""
    shown = bar.add_task("recordings examined", total=len(recordings))
    found: dict[str, RecordingHealth] = {}
    for recording, health in engine.finished(partial(examined, task=task), recordings):
        found[recording.name] = health
        bar.advance(shown)
    return [found[recording.name] for recording in recordings]


def examined(recording: Recording, task: Examination) -> RecordingHealth:
    """One recording; what is wrong with its files is among the troubles."""
    watcher = Watcher(recording.name, task.sound.rate_hz)
    try:
        run(task.sound.source(recording), task.chain(recording.name), [watcher])
    except SourceError as error:
        if not watcher.health.troubles:
            watcher.health.troubles.append(str(error))
    health = watcher.finish()
    if 0 < health.seconds < 1:
        health.troubles.append(
            f"{recording.name} lasts {health.seconds:.2g} s; nothing can be said of less than a second"
        )
    return health


class Watcher:
    """An observer that writes the history of every sensor; `finish` gives it."""

    def __init__(self, recording: str, rate_hz: int) -> None:
        self.health = RecordingHealth(recording)
        self._rate_hz = rate_hz
        self._series = {name: array("f") for name in ("level_db", "floor_db", "missing")}  # small: a week is long
        self._open: dict[tuple[int, Cause], FaultOpened] = {}
        self._p_seconds: list[float] = []
        self._p_values: list[list[float]] = []

    def observe(self, event: object, /) -> None:
        match event:
            case RecordingStarted():
                self.health.started_at = event.started_at.isoformat() if event.started_at else None
                self.health.sensors = [SensorHealth(n, name) for n, name in enumerate(event.sensors, start=1)]
            case Measures():
                self._measured(event)
            case FaultOpened():
                self._open[event.sensor, event.cause] = event
            case FaultClosed():
                del self._open[event.sensor, event.cause]
                self._episode(event, event.until, self._at(event.sample), still_open=False)
            case StateChanged():
                self.health.sensors[event.sensor].states.append((self._at(event.sample), event.state))
            case AnomalyJudged():
                self.health.verdicts.append(self._verdict(event))
            case CalibrationChanged():
                self.health.calibration.append(self._calibration(event))
            case Decision():
                self._p_seconds.append(self._at(event.features.span.stop))
                self._p_values.append(event.verdicts.screened.p_values.tolist())
            case Gap():
                self.health.gaps.append((self._at(event.start), self._at(event.stop), event.reason))
            case SourceTrouble():
                self.health.troubles.append(f"{event.where} {event.message}")
            case RecordingFinished():
                self.health.seconds = event.samples / self._rate_hz

    def close(self) -> None:
        pass

    def finish(self) -> RecordingHealth:
        for opened in self._open.values():
            self._episode(opened, round(self.health.seconds * self._rate_hz), self._at(opened.sample), still_open=True)
        for number, sensor in enumerate(self.health.sensors):
            if sensor.states and sensor.states[0][1] in (State.GOOD, State.OFF):
                sensor.states[0] = (0.0, sensor.states[0][1])  # it took some seconds to know, but nothing was amiss
            sensor.episodes.sort(key=lambda episode: (episode.start_seconds, episode.cause))
            sensor.level_db, sensor.floor_db, sensor.missing = (self._of(number, name) for name in self._series)
            sensor.p_seconds = np.array(self._p_seconds, np.float32)
            sensor.p_values = np.array([p[number] for p in self._p_values], np.float32)
        return self.health

    def _measured(self, second: Measures) -> None:
        unrecorded = round(second.start / self._rate_hz) * second.n_sensors - len(self._series["missing"])
        for series in self._series.values():
            series.extend([nan] * unrecorded)
        columns = {"level_db": second.level_db, "floor_db": second.floor_db[:, MIDDLE], "missing": second.missing}
        for _ in range(round((second.stop - second.start) / self._rate_hz)):
            for name, values in columns.items():
                self._series[name].extend(values.tolist())

    def _of(self, number: int, name: str) -> NDArray[np.float32]:
        """The series of one sensor, whose values stand among those of the others."""
        return np.array(self._series[name][number :: len(self.health.sensors)], np.float32)

    def _at(self, sample: int) -> float:
        return sample / self._rate_hz

    def _episode(self, fault: FaultOpened | FaultClosed, until: int, found: float, *, still_open: bool) -> None:
        episode = HealthEpisode(
            cause=fault.cause,
            start_seconds=self._at(fault.since),
            end_seconds=self._at(until),
            evidence=evidence_numbers(fault.evidence),
            found_seconds=found,
            still_open=still_open,
        )
        self.health.sensors[fault.sensor].episodes.append(episode)

    def _verdict(self, event: AnomalyJudged) -> FaultOrEvent:
        sensors = tuple(sensor + 1 for sensor in event.sensors)
        return FaultOrEvent(
            self._at(event.sample), event.pattern, sensors, evidence_numbers(event.evidence), event.reason
        )

    def _calibration(self, event: CalibrationChanged) -> dict[str, Any]:
        return {
            "sensor": event.sensor + 1,
            "seconds": self._at(event.sample),
            "lost": event.lost,
            "nominal": event.nominal,
            "realised": round(event.realised, 6),
            "interval": [round(event.low, 6), round(event.high, 6)],
        }
