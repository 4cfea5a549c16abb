"""`gemmed replay`: recordings and a model in, decisions out, the same bytes every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from rich.progress import Progress as ProgressBar

from pipeline.core.choices import Choices
from pipeline.core.errors import SourceError
from pipeline.core.event_json import SCHEMA, EventLines
from pipeline.core.events import RecordingFinished, SourceTrouble
from pipeline.core.runner import Progress, run
from pipeline.model.build import loaded, passing, whole_chain
from pipeline.model.model import Model
from pipeline.runtime.process_pool import Engine
from pipeline.sources.files import Listing, Recording, files_of, sound_identity, sound_seconds
from pipeline.stages import Chain
from pipeline.storage.decision_file import DecisionFile, StandardOutput
from pipeline.training.extract import Format

Events = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Replay:
    """Which model decides, how, and about what; all that decides the bytes of the output."""

    directory: Path
    """Of the model."""
    choices: Choices
    resample: bool = False
    block_samples: int | None = None
    """How the sound is cut; it changes nothing in the output."""

    @property
    def model(self) -> Model:
        return loaded(self.directory)

    def check(self) -> None:
        """Refuse choices that cannot be, before anything is written."""
        _chain(self.directory, self.model.identity, self.choices)

    def header(self, listing: Listing) -> dict[str, Any]:
        model = self.model
        return {
            "type": "replay_started",
            "schema": SCHEMA,
            "model": model.identity,
            "classes": list(model.classes),
            "sensors": model.n_sensors,
            "rate_hz": model.grid.rate_hz,
            **self.choices.as_dict(),
            "resample": self.resample,
            "finds_passages": bool(passing(model, self.choices)),
            "recordings": [recording.name for recording in listing.recordings],
            "sound": sound_identity(listing.recordings),
            "left_out": [{"where": one.where, "message": one.message} for one in listing.troubles],
        }

    def events(self, recording: Recording, *, progress: Progress | None = None) -> Events:
        """Everything about one recording; the last event is always that it is finished."""
        model = self.model
        events: Events = []
        sound = Format(model.grid.rate_hz, model.n_sensors, self.resample)
        options = {} if self.block_samples is None else {"block_samples": self.block_samples}
        lines = EventLines(events.append, model=model.name)
        try:
            chain = _chain(self.directory, model.identity, self.choices)
            run(sound.source(recording, **options), chain, [lines], progress=progress)
        except SourceError as error:
            if not events:
                lines.observe(SourceTrouble(recording.name, str(error)))
        if not events or events[-1]["type"] != "recording_finished":
            lines.observe(RecordingFinished(recording.name, 0, ""))
        troubles = [event for event in events if event["type"] == "source_trouble"]
        for trouble in troubles:
            trouble["recording"] = recording.name
        events[-1] |= {"troubles": len(troubles), "trained_on": model.knows(events[-1]["fingerprint"])}
        return events


@lru_cache(maxsize=2)
def _chain(directory: Path, identity: str, choices: Choices) -> Chain:
    """One for all recordings: after each it is as new."""
    return whole_chain(loaded(directory), choices)


def replay(
    task: Replay, listing: Listing, out: DecisionFile | StandardOutput, *, engine: Engine, bar: ProgressBar
) -> None:
    """Decide about every recording that the file does not hold yet, in the order of the listing."""
    missing = [recording for recording in listing.recordings if recording.name not in out.finished]
    seconds = {recording.name: sound_seconds(recording) for recording in listing.recordings}
    engine.check_files([*files_of(missing), *task.directory.iterdir()])
    done = sum(seconds[name] for name in out.finished)
    shown = bar.add_task("seconds of sound", total=round(sum(seconds.values())), completed=round(done))
    for events in _in_order(task, missing, engine, lambda amount: bar.advance(shown, amount), seconds):
        out.add(events)
    bar.update(shown, completed=round(sum(seconds.values())))
    out.complete()


def _in_order(
    task: Replay,
    recordings: Sequence[Recording],
    engine: Engine,
    advance: Callable[[float], None],
    seconds: Mapping[str, float],
) -> Iterator[Events]:
    if not engine.spreads(len(recordings)):
        rate_hz = task.model.grid.rate_hz
        for recording in recordings:
            yield task.events(recording, progress=lambda samples: advance(samples / rate_hz))
        return
    waiting, results = list(recordings), {}
    for recording, events in engine.finished(partial(_events, task=task), recordings):
        results[recording.name] = events
        advance(seconds[recording.name])
        while waiting and waiting[0].name in results:
            yield results.pop(waiting.pop(0).name)


def _events(recording: Recording, task: Replay) -> Events:
    return task.events(recording)
