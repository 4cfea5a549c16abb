"""Segments of recorded sound, before anything is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.errors import SourceError
from pipeline.core.events import RecordingFinished, SourceTrouble, Views
from pipeline.core.framing import Grid
from pipeline.core.runner import run
from pipeline.health.measures import Measures
from pipeline.model.build import listening
from pipeline.sources.files import FileSource, Listing, Recording
from pipeline.stages import Chain, Fingerprint, Measure


@dataclass(frozen=True, slots=True)
class Format:
    """What all recordings of an array have in common."""

    rate_hz: int
    n_sensors: int
    resample: bool = False

    def source(self, recording: Recording, **options: Any) -> FileSource:
        return FileSource(
            Listing((recording,)), rate_hz=self.rate_hz, n_sensors=self.n_sensors, resample=self.resample, **options
        )


@dataclass(slots=True)
class Heard:
    """Segments and measures of one recording, as they come; an observer."""

    recording: str
    samples: int = 0
    fingerprint: str = ""
    segments: list[Views] = field(default_factory=list)
    measures: list[Measures] = field(default_factory=list)
    keep: Callable[[Views], bool] | None = None
    """Which segments are wanted; all if nobody says."""
    troubles: list[SourceTrouble] = field(default_factory=list)

    def observe(self, event: object, /) -> None:
        if isinstance(event, Views):
            if self.keep is None or self.keep(event):
                self.segments.append(event)
        elif isinstance(event, Measures):
            self.measures.append(event)
        elif isinstance(event, SourceTrouble):
            self.troubles.append(event)
        elif isinstance(event, RecordingFinished):
            self.samples, self.fingerprint = event.samples, event.fingerprint

    def close(self) -> None:
        pass


def hear(
    recording: Recording,
    sound: Format,
    grid: Grid,
    settings: dict[str, Any],
    *,
    keep: Callable[[Views], bool] | None = None,
) -> Heard:
    """All segments of a recording, or those to keep; what is wrong with it is among the troubles."""
    heard = Heard(recording.name, keep=keep)
    chain = Chain(Fingerprint(), Measure(grid.rate_hz), *listening(grid, settings))
    try:
        run(sound.source(recording), chain, [heard])
    except SourceError as error:
        if not heard.troubles:
            heard.troubles.append(SourceTrouble(recording.name, str(error)))
    heard.keep = None
    return heard
