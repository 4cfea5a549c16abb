"""Sound of training segments: from the store, from files, or simulated again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np

from pipeline.config.schema import Settings, SimulatedSourceSettings
from pipeline.core.errors import NotFound, SourceError
from pipeline.core.events import Block, Features, Samples
from pipeline.model.build import listening
from pipeline.model.model import Model
from pipeline.reports.explanation import SAME
from pipeline.retraining.bootstrap import is_simulated, simulated_again
from pipeline.sources.factory import simulated_site
from pipeline.sources.files import Recording, find_recordings
from pipeline.stages import Chain, Projection
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal
from pipeline.storage.recordings import kept_samples, recording_row
from pipeline.training.extract import Format
from pipeline.training.labeled_spans import recording_of

_one_at_a_time = Lock()
"""Simulating a scene, or reading a file up to a segment, takes a core for a second: one at a time."""


@dataclass(frozen=True, slots=True)
class ReferenceSegment:
    """A training segment of a model."""

    model: Model
    index: int

    @property
    def recording(self) -> str:
        return recording_of(self.model.notes["recordings"][self.model.memory.recording[self.index]]["recording"])

    @property
    def start(self) -> int:
        return int(self.model.memory.start[self.index])

    @property
    def stop(self) -> int:
        return self.start + self.model.grid.segment

    @property
    def label(self) -> str | None:
        place = int(self.model.memory.label[self.index])
        return None if place < 0 else self.model.classes[place]

    @property
    def span(self) -> tuple[str, int, int]:
        return self.recording, self.start, self.stop


class ReferenceSounds:
    """Finds the sound of training segments."""

    def __init__(self, settings: Settings, journal: Journal, sound: SoundStore) -> None:
        self._settings, self._journal, self._sound = settings, journal, sound

    def why_silent(self, reference: ReferenceSegment) -> str | None:
        """Return the reason for which its sound is not available; None if it is, as far as known without reading it."""
        name = reference.recording
        if self._is_stored(name):
            return None if self._is_kept(reference) else f"the sound of {name} had to make room (storage.budget)"
        if self._is_simulated(name) or self._file(name) is not None:
            return None
        return f"{name} was heard elsewhere: its sound is neither in the store nor among training.recordings"

    def samples(self, reference: ReferenceSegment) -> Samples:
        """Return the samples (sensors, time) of a segment; `NotFound` gives the reason if there are none."""
        why = self.why_silent(reference)
        if why is not None:
            raise NotFound(why)
        if self._is_stored(reference.recording):
            return _cut(self._sound.read(*reference.span), reference)
        with _one_at_a_time:
            samples = _cut(self._fetched(reference), reference)
        if not _is_same(samples, reference):
            raise NotFound(
                f"{reference.recording} differs from the sound that model {reference.model.name} was trained on: the "
                "source settings or the files have changed since; restore them or train again"
            )
        return samples

    def _is_stored(self, name: str) -> bool:
        return recording_row(self._journal, name) is not None

    def _is_kept(self, reference: ReferenceSegment) -> bool:
        return kept_samples(self._journal, *reference.span) == reference.stop - reference.start

    def _is_simulated(self, name: str) -> bool:
        return isinstance(self._settings.source, SimulatedSourceSettings) and is_simulated(name)

    def _file(self, name: str) -> Recording | None:
        return self._files.get(name)

    @cached_property
    def _files(self) -> dict[str, Recording]:
        path = self._settings.training.recordings
        if path is None:
            return {}
        try:
            return {one.name: one for one in find_recordings(path).recordings}
        except SourceError:
            return {}

    def _fetched(self, reference: ReferenceSegment) -> Iterator[object]:
        """Yield the recording from its beginning."""
        name = reference.recording
        if self._is_simulated(name):
            samples = simulated_again(simulated_site(self._settings), name)
            yield Block(0, samples, np.ones(len(samples), np.bool_))
            return
        file = self._file(name)
        assert file is not None
        with Format(reference.model.grid.rate_hz, reference.model.n_sensors).source(file) as source:
            yield from source


def _cut(facts: Iterator[object], reference: ReferenceSegment) -> Samples:
    """Cut a segment out of blocks, with zeros where a sensor did not deliver."""
    start, stop = reference.start, reference.stop
    samples = np.zeros((reference.model.n_sensors, stop - start), np.float32)
    for fact in facts:
        if not isinstance(fact, Block) or fact.stop <= start:
            continue
        if fact.start >= stop or len(fact.samples) != len(samples):
            break
        first, last = max(fact.start, start), min(fact.stop, stop)
        block = fact.samples[:, first - fact.start : last - fact.start]
        samples[:, first - start : last - start] = np.where(fact.delivered[:, None], block, 0)
    return samples


def _is_same(samples: Samples, reference: ReferenceSegment) -> bool:
    """Return whether the summary equals that of the training segment at every sensor with a reference."""
    model, index = reference.model, reference.index
    chain = Chain(*listening(model.grid, model.settings), Projection(model.summary, model.timing))
    found = chain.push(Block(0, samples, np.ones(len(samples), np.bool_)))
    summary = next((fact.summary for fact in found if isinstance(fact, Features)), None)
    if summary is None:
        return False
    distances = np.linalg.norm(summary - model.reference.features[:, :, index], axis=1)
    return bool((distances[np.isfinite(model.reference.distances[index])] < SAME).all())
