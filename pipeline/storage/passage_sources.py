"""Where passages and their sound are read from: the state directory of a daemon, or a file of `gemmed replay`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import numpy as np

from pipeline.core.errors import UsageError
from pipeline.core.events import Block, Numbers
from pipeline.core.passages import LEAST_CONFIDENCE, PASSAGE_EVENTS, PassageRow, joined, passages_of
from pipeline.runtime.state_dir import StateDirectory
from pipeline.sources.files import FileSource, Listing, find_recordings
from pipeline.storage.clips import Clip, stored_sound
from pipeline.storage.decision_file import read_events
from pipeline.storage.journal import Journal
from pipeline.storage.passage_table import stored_passages, whole_passage
from pipeline.storage.recordings import latest_choices

_LOUDEST = 0.7
"""Share of full scale."""
_LONGEST = timedelta(hours=1)
"""A passage that overlaps a time has no part further away from it."""


class PassageSource(Protocol):
    """Passages, joined across recordings, and their sound."""

    def passages(self, since: datetime | None = None, until: datetime | None = None) -> list[PassageRow]:
        """Return all that may overlap a time, in the order of time, or of the file."""

    def sound(self, row: PassageRow) -> Clip:
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
            return joined(found, least_confidence=least_confidence(journal))

    def sound(self, row: PassageRow) -> Clip:
        with Journal(self.state.journal, read_only=True) as journal:
            of = f"passage {row.passage}"
            return _concatenated([
                stored_sound(self.state, journal, part.recording, part.start_sample, part.stop_sample, of=of)
                for part in row.parts
            ])  # fmt: skip


def passage_clip(state: StateDirectory, passage: str) -> bytes:
    """Return the mixed sound of a passage as FLAC."""
    with Journal(state.journal, read_only=True) as journal:
        row = whole_passage(journal, passage, least_confidence=least_confidence(journal))
    if row is None:
        raise UsageError(f"there is no passage {passage!r}; gemmed passages lists them")
    sound = StoredPassages(state).sound(row)
    return as_flac(mixed(sound, row), sound.rate_hz)


def mixed(sound: Clip, row: PassageRow) -> Numbers:
    """Return the sensors used in one channel; they differ in level, so each has the same power in the mix."""
    used = [sensor - 1 for sensor in row.sensors_used] or list(range(sound.samples.shape[1]))
    samples = sound.samples[:, used]
    power = np.sqrt(np.mean(samples**2, axis=0))
    mix: Numbers = np.mean(samples / np.where(power > 0, power, 1), axis=1)
    loudest: Numbers = mix * (_LOUDEST / max(float(abs(mix).max(initial=0.0)), 1e-9))
    return loudest


def as_flac(samples: Numbers, rate_hz: int) -> bytes:
    """Return samples, (n,) or (n, channels), as a file."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def _last_run(journal: Journal) -> str | None:
    event = next(journal.events(types=["run_started"], most=1, newest_first=True), None)
    return None if event is None else event.run


def least_confidence(journal: Journal) -> float:
    """Return the confidence that the latest recording was decided with."""
    return float(latest_choices(journal).get("least_confidence", LEAST_CONFIDENCE))


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

    def sound(self, row: PassageRow) -> Clip:
        if not self.recordings:
            raise UsageError(
                f"{self.file} holds no sound; add --recordings with the directory or the files of the sound"
            )
        listing = find_recordings(list(self.recordings), pattern=self.pattern)
        return _concatenated(
            [self._sound(listing, part.recording, part.start_sample, part.stop_sample) for part in row.parts]
        )

    def _sound(self, listing: Listing, recording: str, start: int, stop: int) -> Clip:
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
        return Clip(samples, rate_hz)


def _concatenated(sounds: Sequence[Clip]) -> Clip:
    return Clip(np.concatenate([sound.samples for sound in sounds]), sounds[0].rate_hz)
