"""`gemmed clip`: the sound of an event, to be listened to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import UsageError
from pipeline.core.events import Block
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal, StoredEvent
from pipeline.storage.recordings import recording_row

_BEGINNINGS = ("start_sample", "since_sample", "sample")
_ENDS = ("stop_sample", "until_sample", "sample", "start_sample")


def write_clip(state: StateDirectory, number: int, out: Path, *, before: float, after: float) -> tuple[float, str]:
    """Write all sensors from `before` seconds before an event to `after` seconds after it; its length, and of what."""
    with Journal(state.journal, read_only=True) as journal:
        event = _event(journal, number)
        assert event.recording is not None
        rate_hz = _format(journal, event.recording)[0]
        start = max(0, _first(event, _BEGINNINGS) - round(before * rate_hz))
        stop = _first(event, _ENDS) + round(after * rate_hz)
        sound = stored_sound(state, journal, event.recording, start, stop, of=f"event {number}")
    write_sound(out, sound)
    return sound.seconds, f"{event.type} in {event.recording}"


@dataclass(frozen=True, slots=True)
class Clip:
    """Samples of all sensors, ready to be written to a file."""

    samples: NDArray[np.float32]  # (time, sensors)
    rate_hz: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate_hz


def stored_sound(state: StateDirectory, journal: Journal, recording: str, start: int, stop: int, *, of: str) -> Clip:
    """Return what the state directory keeps of a stretch, up to the last sample kept; gaps are zeros.

    An error names `of`, what the sound belongs to.
    """
    rate_hz, n_sensors = _format(journal, recording)
    samples = np.zeros((stop - start, n_sensors), np.float32)
    heard = 0
    for fact in SoundStore(state.sound, journal).read(recording, start, stop):
        if isinstance(fact, Block):
            samples[fact.start - start : fact.stop - start] = fact.samples.T
            heard = fact.stop - start
    if not heard:
        raise UsageError(f"the sound of {of} {_why_silent(journal, recording, start)}")
    return Clip(samples[:heard], rate_hz)


def _why_silent(journal: Journal, recording: str, start: int) -> str:
    (row,) = journal.rows(
        "SELECT samples IS NOT NULL AS finished, (SELECT max(stop) FROM pieces WHERE recording = name) AS stop "
        "FROM recordings WHERE name = ?",
        (recording,),
    )
    if start < (row["stop"] or 0):
        return "is no longer kept; see storage.budget"
    if row["finished"]:
        return "was not kept; see storage.sound"
    return "is not finished yet; try again in some seconds (storage.piece)"


def _format(journal: Journal, recording: str) -> tuple[int, int]:
    """Return samples per second and number of sensors."""
    row = recording_row(journal, recording)
    if row is None:
        raise UsageError(f"recording {recording!r} is not in the journal; its sound cannot be found")
    return row.rate_hz, row.sensors


def write_sound(out: Path, sound: Clip) -> None:
    """Write a FLAC or WAV file, as its name says."""
    import soundfile

    try:
        soundfile.write(out, sound.samples, sound.rate_hz)
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise UsageError(f"{out} cannot be written: {error}; give a name that ends in .flac or .wav") from error


def _event(journal: Journal, number: int) -> StoredEvent:
    found = journal.event(number)
    if found is None:
        raise UsageError(f"there is no event {number}; gemmed run and gemmed status show their ids")
    if found.recording is None or found.sample is None:
        raise UsageError(f"event {number} is a {found.type}, which has no sound; choose a decision or a fault")
    return found


def _first(event: StoredEvent, names: tuple[str, ...]) -> int:
    return int(next((event.body[name] for name in names if event.body.get(name) is not None), event.sample or 0))
