"""`gemmed clip`: the sound of an event, to be listened to."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.errors import UsageError
from pipeline.events import Block
from pipeline.service.state import StateDirectory
from pipeline.sinks.journal import Journal, Stored
from pipeline.sinks.sound import SoundStore

_BEGINNINGS = ("start_sample", "since_sample", "sample")
_ENDS = ("stop_sample", "until_sample", "sample", "start_sample")


def write_clip(state: StateDirectory, number: int, out: Path, *, before: float, after: float) -> tuple[float, str]:
    """All sensors, from so many seconds before an event to so many after it; how long it is, and of what."""
    import soundfile

    with Journal(state.journal, read_only=True) as journal:
        event = _event(journal, number)
        (row,) = journal.rows("SELECT rate_hz, sensors FROM recordings WHERE name = ?", (event.recording,))
        start = max(0, _first(event, _BEGINNINGS) - round(before * row["rate_hz"]))
        stop = _first(event, _ENDS) + round(after * row["rate_hz"])
        sound = np.zeros((stop - start, row["sensors"]), np.float32)
        heard = 0
        assert event.recording is not None
        for fact in SoundStore(state.sound, journal).read(event.recording, start, stop):
            if isinstance(fact, Block):
                sound[fact.start - start : fact.stop - start] = fact.samples.T
                heard = fact.stop - start
        end = journal.rows("SELECT coalesce(max(stop), 0) AS stop FROM pieces WHERE recording = ?", (event.recording,))
    if not heard and start >= end[0]["stop"]:
        raise UsageError(f"the sound of event {number} is not finished yet; try again in some seconds (storage.piece)")
    if not heard:
        raise UsageError(f"the sound of event {number} is no longer kept; see storage.budget")
    try:
        soundfile.write(out, sound[:heard], row["rate_hz"])
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise UsageError(f"{out} cannot be written: {error}; give a name that ends in .flac or .wav") from error
    return heard / row["rate_hz"], f"{event.type} in {event.recording}"


def _event(journal: Journal, number: int) -> Stored:
    found = journal.event(number)
    if found is None:
        raise UsageError(f"there is no event {number}; gemmed run and gemmed status show their ids")
    if found.recording is None or found.sample is None:
        raise UsageError(f"event {number} is a {found.type}, which has no sound; choose a decision or a fault")
    return found


def _first(event: Stored, names: tuple[str, ...]) -> int:
    return int(next((event.body[name] for name in names if event.body.get(name) is not None), event.sample or 0))
