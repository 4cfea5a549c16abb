"""Where passages and their sound are read from: the state directory of a daemon, or a file of `gemmed replay`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import numpy as np

from pipeline.errors import UsageError
from pipeline.events import Block
from pipeline.passages import LEAST_CONFIDENCE, PASSAGE_EVENTS, PassageRow, joined, passages_of
from pipeline.service.clip import Sound, stored_sound
from pipeline.service.decisions import read_events
from pipeline.service.state import StateDirectory
from pipeline.sinks.journal import Journal
from pipeline.sinks.passages import stored_passages
from pipeline.sources.files import FileSource, Listing, find_recordings

_LONGEST = timedelta(hours=1)
"""A passage that overlaps a time has no part further away from it."""


class PassageSource(Protocol):
    """Passages, joined across recordings, and their sound."""

    def passages(self, since: datetime | None = None, until: datetime | None = None) -> list[PassageRow]:
        """Return all that may overlap a time, in the order of time, or of the file."""

    def sound(self, row: PassageRow) -> Sound:
        """Return the sound of a passage; that of joined parts follows without a pause."""


@dataclass(frozen=True, slots=True)
class StoredPassages:
    """The passages of a daemon."""

    state: StateDirectory

    def passages(self, since: datetime | None = None, until: datetime | None = None) -> list[PassageRow]:
        begin = None if since is None else since - _LONGEST
        end = None if until is None else until + _LONGEST
        running = self.state.is_locked()
        with Journal(self.state.journal, read_only=True) as journal:
            found = stored_passages(journal, since=begin, until=end, running=_last_run(journal) if running else None)
            return joined(found, least_confidence=_least_confidence(journal))

    def sound(self, row: PassageRow) -> Sound:
        with Journal(self.state.journal, read_only=True) as journal:
            of = f"passage {row.passage}"
            return _concatenated([
                stored_sound(self.state, journal, part.recording, part.start_sample, part.stop_sample, of=of)
                for part in row.parts
            ])  # fmt: skip


def _last_run(journal: Journal) -> str | None:
    event = next(journal.events(types=["run_started"], most=1, newest_first=True), None)
    return None if event is None else event.run


def _least_confidence(journal: Journal) -> float:
    """Return what the latest recording was decided with."""
    rows = journal.rows("SELECT choices FROM recordings ORDER BY rowid DESC LIMIT 1")
    return float(json.loads(rows[0]["choices"]).get("least_confidence", LEAST_CONFIDENCE)) if rows else LEAST_CONFIDENCE


@dataclass(frozen=True, slots=True)
class ReplayedPassages:
    """The passages of a file that `gemmed replay` wrote; their sound is in `recordings`."""

    file: Path
    recordings: Sequence[Path] = ()
    pattern: str | None = None

    def passages(self, since: datetime | None = None, until: datetime | None = None) -> list[PassageRow]:
        header, *events = (
            event for event in read_events(self.file)
            if event["type"] in (*PASSAGE_EVENTS, "replay_started", "recording_started")
        )  # fmt: skip
        return joined(passages_of(events), least_confidence=header.get("least_confidence", LEAST_CONFIDENCE))

    def sound(self, row: PassageRow) -> Sound:
        if not self.recordings:
            raise UsageError(
                f"{self.file} holds no sound; add --recordings with the directory or the files of the sound"
            )
        listing = find_recordings(list(self.recordings), pattern=self.pattern)
        return _concatenated(
            [self._sound(listing, part.recording, part.start_sample, part.stop_sample) for part in row.parts]
        )

    def _sound(self, listing: Listing, recording: str, start: int, stop: int) -> Sound:
        header = next(read_events(self.file))
        own = tuple(one for one in listing.recordings if one.name == recording)
        if not own:
            places = ", ".join(map(str, self.recordings))
            raise UsageError(f"recording {recording!r} is not in {places}; give the directory that was replayed")
        rate_hz, n_sensors = header["rate_hz"], header["sensors"]
        samples = np.zeros((stop - start, n_sensors), np.float32)
        with FileSource(Listing(own), rate_hz=rate_hz, n_sensors=n_sensors, resample=header["resample"]) as source:
            for fact in source:
                if isinstance(fact, Block) and fact.stop > start:
                    if fact.start >= stop:
                        break
                    first, last = max(fact.start, start), min(fact.stop, stop)
                    block = fact.samples[:, first - fact.start : last - fact.start]
                    samples[first - start : last - start] = np.where(fact.delivered[:, None], block, 0).T
        return Sound(samples, rate_hz)


def _concatenated(sounds: Sequence[Sound]) -> Sound:
    return Sound(np.concatenate([sound.samples for sound in sounds]), sounds[0].rate_hz)
