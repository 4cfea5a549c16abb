"""What the first model is learned from: recordings with labels, or a simulated site."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import UsageError
from pipeline.events import Block, Cepstra, RecordingStarted
from pipeline.health.measures import Measures
from pipeline.health.usual import Usual, learn_usual
from pipeline.service.assembly import listening
from pipeline.service.listening import Format, Heard, hear
from pipeline.service.switching import Hearing
from pipeline.sources.files import FileSource, Listing, find_recordings
from pipeline.stages import Chain, Measuring
from pipeline.training.examples import two_classes
from pipeline.training.labels import Labels, read_labels
from pipeline.training.passages import Passage, Stretch

_RECORDINGS = 60
_UNHEARD = 500_000
"""Recordings of a simulated site from this number on: who plays the site from its beginning never comes so far."""


@dataclass(slots=True)
class References:
    """Labelled recordings, each a passage of its own; heard one after the other, for all of them are large."""

    hearing: Hearing
    classes: tuple[str, str]
    names: Sequence[str]
    hear: Callable[[str], tuple[Heard, tuple[Stretch, ...]]]
    _measures: list[Measures] = field(default_factory=list)

    def passages(self) -> Iterator[tuple[Passage, list[Cepstra]]]:
        for name in self.names:
            heard, stretches = self.hear(name)
            self._measures += heard.measures
            if stretches:
                yield Passage(name, stretches), heard.cepstra

    def usual(self) -> Usual | None:
        """Of all that was heard so far."""
        return learn_usual(self._measures)


def from_files(paths: Sequence[Path], labels: Path, classes: tuple[str, str] | None) -> References:
    """Recordings and labels as `gemmed train` takes them."""
    listing, given = find_recordings(paths), read_labels(labels)
    given.check_recordings(recording.name for recording in listing.recordings)
    by_name = {recording.name: recording for recording in listing.recordings if recording.name in given.recordings}
    rate_hz, n_sensors = FileSource(Listing(tuple(by_name.values()))).format()
    hearing, sound = Hearing.usual(rate_hz, n_sensors), Format(rate_hz, n_sensors)

    def heard(name: str) -> tuple[Heard, tuple[Stretch, ...]]:
        return hear(by_name[name], sound, hearing.grid, hearing.settings), _stretches(given, name, rate_hz)

    return References(hearing, two_classes(given.names, classes), tuple(by_name), heard)


def _stretches(labels: Labels, recording: str, rate_hz: int) -> tuple[Stretch, ...]:
    return tuple(
        Stretch(round(one.start_seconds * rate_hz), round(one.end_seconds * rate_hz), one.label)
        for one in labels
        if one.recording == recording
    )


def from_simulation(options: Mapping[str, Any], *, classes: tuple[str, str]) -> References:
    """Recordings of a simulated site that nobody who plays it will hear, as many of either class."""
    from pipeline.simulation.options import site_of
    from pipeline.simulation.scene import HUMAN, HUMAN_WITH_ANIMAL, record

    try:
        site = site_of(**{name: value for name, value in options.items() if name != "recordings"})
    except TypeError as error:
        raise UsageError(f"simulated={dict(options)} does not describe a site ({error}); correct it") from error
    hearing = Hearing.usual(site.rate_hz, len(site.sensors_m))
    numbers = {f"starter-{n + 1:03d}": n for n in range(int(options.get("recordings", _RECORDINGS)))}

    def heard(name: str) -> tuple[Heard, tuple[Stretch, ...]]:
        label = (HUMAN, HUMAN_WITH_ANIMAL)[numbers[name] % 2]
        made = record(site, _UNHEARD + numbers[name], label=label)
        found, chain = Heard(name), Chain(Measuring(site.rate_hz), *listening(hearing.grid, hearing.settings))
        block = Block(0, made.samples, np.ones(len(made.samples), np.bool_))
        started = RecordingStarted(name, site.rate_hz, tuple(map(str, range(1, len(made.samples) + 1))))
        for fact in (*chain.push(started), *chain.push(block), *chain.flush()):
            found.observe(fact)
        return found, (Stretch(0, block.stop, label),)

    return References(hearing, classes, tuple(numbers), heard)
