"""Kept sound, to be heard and seen."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np

from pipeline.core.errors import NotFound, UsageError
from pipeline.core.events import Block, Samples
from pipeline.storage.audio import SoundStore, piece_end, raw_tail
from pipeline.storage.journal import Journal
from pipeline.storage.recordings import kept_until, recording_row
from pipeline.web.dependencies import Context
from pipeline.web.schemas import Spectrogram
from pipeline.web.spectrogram import CEILING_DB, FLOOR_DB, bands, columns

MOST_SECONDS = 120.0
_LOUDEST = 0.7
"""Of full scale, for what is made as loud as it can be."""


@dataclass(frozen=True, slots=True)
class AudioStretch:
    """Sound of all sensors, zeros where there is none."""

    recording: str
    rate_hz: int
    start: int
    samples: Samples
    missing: list[tuple[int, int]]


def stretch(context: Context, recording: str, start: int, stop: int) -> AudioStretch:
    """From sample to sample, as far as it is kept."""
    with context.reading() as journal:
        rate_hz, n_sensors = _known(journal, recording)
        if not 0 <= start < stop or stop - start > MOST_SECONDS * rate_hz:
            raise UsageError(
                f"samples {start} to {stop} must be a stretch of at most {MOST_SECONDS:g} s; choose another"
            )
        samples, missing = _read(context, journal, recording, start, stop, n_sensors)
    if missing == [(start, stop)]:
        raise NotFound(
            f"no sound of {recording} is kept from sample {start} to {stop}; either it is being written still (try "
            "again in some seconds), or it had to make room (storage.budget)"
        )
    return AudioStretch(recording, rate_hz, start, samples, missing)


def _read(
    context: Context, journal: Journal, recording: str, start: int, stop: int, n_sensors: int
) -> tuple[Samples, list[tuple[int, int]]]:
    """Return the stored sound of a stretch, and what of it is missing."""
    samples: Samples = np.zeros((n_sensors, stop - start), np.float32)
    missing = []
    for fact in SoundStore(context.state.sound, journal).read(recording, start, stop):
        if isinstance(fact, Block):
            samples[:, fact.start - start : fact.stop - start] = np.where(fact.delivered[:, None], fact.samples, 0)
        else:
            missing.append((fact.start, fact.stop))
    return samples, missing


def latest(context: Context, seconds: float) -> AudioStretch:
    """Return the last seconds of the recording that goes on, including the piece that is being written."""
    status = context.live.status
    recording = status["recording"] if status else None
    if recording is None:
        raise NotFound("nothing has been recorded yet; wait for the first sound")
    with context.reading() as journal:
        rate_hz, n_sensors = _known(journal, recording)
        directory, length = context.state.sound / recording, round(seconds * rate_hz)
        tail = raw_tail(directory, n_sensors, after=None, most=length)
        stop = kept_until(journal, recording) if tail is None else tail[0] + tail[1].shape[1]
    if not stop:
        raise NotFound(f"no sound of {recording} is kept; see storage.sound")
    hop = bands(rate_hz).hop
    # Columns of the stream start at multiples of a hop, too.
    start = -(-max(0, stop - length) // hop) * hop
    if tail is None:
        return stretch(context, recording, start, stop)
    return _completed(context, recording, start, tail[0], tail[1])


def _completed(context: Context, recording: str, start: int, first: int, tail: Samples) -> AudioStretch:
    """Return the sound from `start` on, of which the tail from `first` on is known."""
    with context.reading() as journal:
        rate_hz, n_sensors = _known(journal, recording)
        samples, missing = _read(context, journal, recording, start, max(start, first), n_sensors)
    if missing and missing[-1][1] == first:
        # The piece before is finished, but not stored yet.
        begin = missing[-1][0]
        end = piece_end(context.state.sound / recording, n_sensors, begin, first)
        if end is not None:
            samples[:, begin - start : first - start] = end
            missing.pop()
    whole = np.concatenate([samples, tail[:, max(0, start - first) :]], axis=1)
    return AudioStretch(recording, rate_hz, start, whole, missing)


def _known(journal: Journal, recording: str) -> tuple[int, int]:
    row = recording_row(journal, recording)
    if row is None:
        raise NotFound(f"recording {recording!r} is not in the journal; take the name from an event")
    return row.rate_hz, row.sensors


def chosen(sound: AudioStretch, sensor: int | None) -> Samples:
    """One sensor, counted from 1, or all."""
    if sensor is None:
        return sound.samples
    if not 1 <= sensor <= len(sound.samples):
        raise NotFound(f"there is no sensor {sensor}; the array has 1 to {len(sound.samples)}")
    return sound.samples[sensor - 1 : sensor]


def as_wav(sound: AudioStretch, sensor: int | None, *, normalise: bool) -> bytes:
    """16 bits a sample; as loud as it can be if asked for, all sensors by the same factor."""
    import soundfile

    samples = chosen(sound, sensor)
    peak = float(abs(samples).max(initial=0.0))
    if normalise and peak > 0:
        samples = samples * (_LOUDEST / peak)
    file = io.BytesIO()
    soundfile.write(file, samples.T, sound.rate_hz, format="WAV", subtype="PCM_16")
    return file.getvalue()


def as_spectrogram(sound: AudioStretch, sensor: int | None) -> Spectrogram:
    samples, how = chosen(sound, sensor), bands(sound.rate_hz)
    made = columns(samples, sound.rate_hz)
    return Spectrogram(
        recording=sound.recording,
        rate_hz=sound.rate_hz,
        sensors=[sensor] if sensor is not None else list(range(1, len(samples) + 1)),
        start_sample=sound.start,
        hop=how.hop,
        n_columns=made.shape[1],
        frequencies_hz=[round(one, 1) for one in how.edges_hz.tolist()],
        floor_db=FLOOR_DB,
        ceiling_db=CEILING_DB,
        data=base64.b64encode(made.tobytes()).decode(),
        missing=[list(one) for one in sound.missing],
    )
