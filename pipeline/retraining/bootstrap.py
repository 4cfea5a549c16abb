"""What the first model is learned from: recordings with labels, a simulated site, or what was heard without labels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.errors import UsageError
from pipeline.core.events import Block, Gap, RecordingStarted, Samples, SourceTrouble, Views
from pipeline.health.baseline import Baseline, learn_usual
from pipeline.health.measures import Measures
from pipeline.model.build import listening
from pipeline.model.hot_swap import ArrayInput
from pipeline.sources.files import FileSource, Listing, find_recordings
from pipeline.stages import Chain, Measure
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal
from pipeline.storage.recordings import known_recording, newest_pieces, newest_recording
from pipeline.training.examples import Examples, RecordingNote, classes_of, evenly, views_of
from pipeline.training.extract import Format, Heard, hear
from pipeline.training.labeled_spans import LabeledPassage, LabeledSpan
from pipeline.training.labels import Labels, read_labels

if TYPE_CHECKING:
    from pipeline.simulation.scene import SimulatedRecording, Site

_RECORDINGS, _SECONDS = 40, 8.0
"""Of a simulated site: enough to decide by, and learned from in a minute or two."""
_PART_SECONDS = 10.0
_MOST_UNLABELLED = 1500
_STARTER = "starter-"
_UNHEARD = 500_000
"""Recordings of a simulated site from this number on: who plays the site from its beginning never comes so far."""


@dataclass(slots=True)
class References:
    """Labelled recordings, each a passage of its own; heard one after the other, for all of them are large."""

    hearing: ArrayInput
    classes: tuple[str, ...]
    names: Sequence[str]
    hear: Callable[[str], tuple[Heard, tuple[LabeledSpan, ...]]]
    troubles: list[SourceTrouble] = field(default_factory=list)
    """What could not be heard, so far."""
    _measures: list[Measures] = field(default_factory=list)

    def passages(self) -> Iterator[tuple[LabeledPassage, list[Views]]]:
        for name in self.names:
            heard, stretches = self.hear(name)
            self._measures += heard.measures
            self.troubles += heard.troubles
            if stretches:
                yield LabeledPassage(name, stretches), heard.segments

    def usual(self) -> Baseline | None:
        """Of all that was heard so far."""
        return learn_usual(self._measures)


def from_files(paths: Sequence[Path], labels: Path, classes: tuple[str, ...] | None) -> References:
    """Recordings and labels as `gemmed train` takes them."""
    listing, given = find_recordings(paths), read_labels(labels)
    given.check_recordings(recording.name for recording in listing.recordings)
    by_name = {recording.name: recording for recording in listing.recordings if recording.name in given.recordings}
    rate_hz, n_sensors = FileSource(Listing(tuple(by_name.values()))).format()
    hearing, sound = ArrayInput.usual(rate_hz, n_sensors), Format(rate_hz, n_sensors)

    def heard(name: str) -> tuple[Heard, tuple[LabeledSpan, ...]]:
        return hear(by_name[name], sound, hearing.grid, hearing.settings), _stretches(given, name, rate_hz)

    return References(hearing, classes_of(given.names, classes), tuple(by_name), heard)


def _stretches(labels: Labels, recording: str, rate_hz: int) -> tuple[LabeledSpan, ...]:
    return tuple(
        LabeledSpan(round(one.start_seconds * rate_hz), round(one.end_seconds * rate_hz), one.label)
        for one in labels
        if one.recording == recording
    )


def from_simulation(options: Mapping[str, Any], *, classes: tuple[str, ...]) -> References:
    """Recordings of a simulated site that nobody who plays it will hear, as many of either class."""
    site = _site(options)
    hearing = ArrayInput.usual(site.rate_hz, len(site.sensors_m))
    numbers = {f"{_STARTER}{n + 1:03d}": n for n in range(int(options.get("recordings", _RECORDINGS)))}

    def heard(name: str) -> tuple[Heard, tuple[LabeledSpan, ...]]:
        made = _simulated(site, numbers[name])
        block = Block(0, made.samples, np.ones(len(made.samples), np.bool_))
        return _listen(name, [block], hearing), (LabeledSpan(0, block.stop, made.label),)

    return References(hearing, classes, tuple(numbers), heard)


def is_simulated(name: str) -> bool:
    """Whether a recording of `from_simulation` may have this name."""
    number = name.removeprefix(_STARTER)
    return number != name and number.isascii() and number.isdigit() and 1 <= int(number) < _UNHEARD


def simulated_again(options: Mapping[str, Any], name: str) -> Samples:
    """The sound of a recording of `from_simulation`, (sensors, time), to the bit."""
    return _simulated(_site(options), int(name.removeprefix(_STARTER)) - 1).samples


def _site(options: Mapping[str, Any]) -> Site:
    from pipeline.simulation.options import site_of

    try:
        given = {name: value for name, value in options.items() if name != "recordings"}
        return site_of(**given | {"seconds": min(_SECONDS, given["seconds"])})
    except (TypeError, KeyError) as error:
        raise UsageError(f"simulated={dict(options)} does not describe a site ({error}); correct it") from error


def _simulated(site: Site, number: int) -> SimulatedRecording:
    from pipeline.simulation import HUMAN, HUMAN_WITH_ANIMAL, record

    return record(site, _UNHEARD + number, label=(HUMAN, HUMAN_WITH_ANIMAL)[number % 2])


def _listen(name: str, sound: Iterable[Block | Gap], hearing: ArrayInput) -> Heard:
    found, chain = Heard(name), Chain(Measure(hearing.grid.rate_hz), *listening(hearing.grid, hearing.settings))
    started = RecordingStarted(name, hearing.grid.rate_hz, tuple(map(str, range(1, hearing.n_sensors + 1))))
    for item in itertools.chain([started], sound):
        for fact in chain.push(item):
            found.observe(fact)
    for fact in chain.flush():
        found.observe(fact)
    return found


def latest_sound(journal: Journal, seconds: float) -> dict[str, tuple[int, int]]:
    """From which sample to which of each recording the last so many seconds were heard; nothing if there are fewer."""
    newest = newest_recording(journal)
    if newest is None:
        return {}
    places: dict[str, tuple[int, int]] = {}
    for piece in newest_pieces(journal, newest.rate_hz, newest.sensors):
        _, stop = places.get(piece.recording, (0, piece.stop))
        places[piece.recording] = piece.start, stop
        seconds -= (piece.stop - piece.start) / newest.rate_hz
        if seconds <= 0:
            return places
    return {}


@dataclass(frozen=True, slots=True)
class Unlabelled:
    """Segments of which nobody has said what they are, and what is usual."""

    hearing: ArrayInput
    examples: Examples
    usual: Baseline | None


def from_stream(
    places: Mapping[str, tuple[int, int]], sound: SoundStore, journal: Journal, classes: tuple[str, ...]
) -> Unlabelled:
    """All of these stretches of sound, in parts of some seconds that stand for recordings."""
    row = known_recording(journal, next(iter(places)))
    hearing = ArrayInput.usual(row.rate_hz, row.sensors)
    heard = [_listen(name, sound.read(name, *place), hearing) for name, place in places.items()]
    rows = [(one.recording, fact) for one in heard for fact in one.segments]
    rows = [rows[n] for n in evenly(len(rows), _MOST_UNLABELLED)]
    part = round(_PART_SECONDS * row.rate_hz)
    parts = [(name, fact.span.start // part * part) for name, fact in rows]
    number = {one: n for n, one in enumerate(dict.fromkeys(parts))}
    if not rows:
        raise UsageError("no sensor delivered a whole segment; check the sensors")
    examples = Examples(
        **views_of([fact for _, fact in rows]),
        recording=np.array([number[one] for one in parts]),
        label=np.full(len(rows), -1),
        recordings=tuple(
            RecordingNote(f"{name}@{start}", {}, part, (start, start + part), f"{name}@{start}")
            for name, start in number
        ),
        classes=classes,
    )
    return Unlabelled(hearing, examples, learn_usual([second for one in heard for second in one.measures]))
