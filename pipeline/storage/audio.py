"""All that was heard, in pieces of some seconds: to be listened to, learned from, and decided about again to the bit.

    sound/RECORDING/000000160000.flac          a finished piece, named by its first sample
    sound/RECORDING/000000320000-s16-15.part   the piece being heard, raw; 15 is a bit for every sensor that delivered

Sound is on disk before anybody decides about it. After a kill the raw file is there, and the next start finishes it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import ENOENT
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, Gap, Mask, Samples
from pipeline.storage.journal import Journal, utc

_FULL_SCALE = 32768.0
_TYPES: dict[str, np.dtype[Any]] = {"s16": np.dtype("<i2"), "f32": np.dtype("<f4")}
_PART = re.compile(r"(\d{12})-(s16|f32)-(\d+)\.part")
_MOST_FLAC_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class AudioPart:
    """A raw piece that is complete, or was cut off by a kill."""

    file: Path
    recording: str
    start: int
    form: str
    delivered: tuple[bool, ...]
    rate_hz: int


class AudioSpool:
    """Writes what is heard into raw pieces, cut at multiples of their length and where the sensors that deliver change.

    Samples that a 16-bit converter can have given take 16 bits, all others 32.
    """

    def __init__(self, directory: Path, *, piece_seconds: float, finished: Callable[[AudioPart], None]) -> None:
        self._directory, self._piece_seconds, self._finished = directory, piece_seconds, finished
        self._recording, self._rate_hz, self._form = "", 0, "s16"
        self._part: AudioPart | None = None
        self._file: IO[bytes] | None = None
        self.position = 0
        """Behind the last sample that was written."""

    def begin(self, recording: str, rate_hz: int) -> None:
        try:
            self.finish()
        finally:
            self._recording, self._rate_hz, self._form, self.position = recording, rate_hz, "s16", 0

    def write(self, block: Block) -> None:
        """On disk when it returns, as far as the system goes; a kill no longer loses it."""
        frames = self._converted(block)
        length = round(self._piece_seconds * self._rate_hz)
        for start, stop in _cut(block.start, block.stop, length):
            self._continue(start, tuple(block.delivered.tolist()))
            assert self._file is not None
            _append(self._file, frames[start - block.start : stop - block.start].tobytes())
            self.position = stop
            if stop % length == 0:
                self.finish()

    def _converted(self, block: Block) -> NDArray[Any]:
        """Time by sensors, as it will be stored; 16 bits until a sample does not fit into them."""
        samples = block.samples if block.delivered.all() else np.where(block.delivered[:, None], block.samples, 0)
        if self._form == "s16":
            scaled = samples * np.float32(_FULL_SCALE)
            with np.errstate(invalid="ignore"):
                whole = scaled.astype(_TYPES["s16"])
            if (whole == scaled).all():
                return whole.T
            self._form = "f32"
        return samples.T.astype(_TYPES["f32"])

    def _continue(self, start: int, delivered: tuple[bool, ...]) -> None:
        part, form = self._part, self._form
        if part is not None and (start, form, delivered) == (self.position, part.form, part.delivered):
            return
        self.finish()
        bits = sum(1 << sensor for sensor, there in enumerate(delivered) if there)
        file = self._directory / self._recording / f"{start:012d}-{form}-{bits}.part"
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("wb", buffering=0)
        self._part = AudioPart(file, self._recording, start, form, delivered, self._rate_hz)

    def finish(self) -> None:
        """Hand over the piece being written."""
        part, file = self._part, self._file
        self._part = self._file = None
        try:
            if file is not None:
                file.close()
        finally:
            if part is not None:
                self._finished(part)


def _append(file: IO[bytes], data: bytes) -> None:
    """All or nothing: a disk that fills up takes a part of what it is given, which would shift all that follows."""
    before, left = file.tell(), memoryview(data)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        file.truncate(before)
        raise


def _cut(start: int, stop: int, length: int) -> Iterator[tuple[int, int]]:
    while start < stop:
        end = min((start // length + 1) * length, stop)
        yield start, end
        start = end


class SoundStore:
    """The pieces of all recordings, as the journal lists them."""

    def __init__(self, directory: Path, journal: Journal) -> None:
        self.directory, self._journal = directory, journal

    def keep(self, part: AudioPart) -> None:
        """Turn a raw piece into a finished one and list it; done twice, it does no harm."""
        if not self.directory.is_dir():
            # A disk that is away for a moment has lost nothing: the piece is tried again.
            raise FileNotFoundError(ENOENT, "the directory of the sound is not there", str(self.directory))
        values = np.fromfile(part.file, _TYPES[part.form]) if part.file.exists() else np.zeros(0)
        frames = len(values) // len(part.delivered)
        if frames:
            samples = values[: frames * len(part.delivered)].reshape(frames, -1)
            file = self._encode(part, samples)
            self._journal.execute(
                "INSERT OR REPLACE INTO pieces (recording, start, stop, delivered, file, bytes, kept_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    part.recording,
                    part.start,
                    part.start + frames,
                    json.dumps(part.delivered),
                    str(file.relative_to(self.directory)),
                    file.stat().st_size,
                    utc(datetime.now(UTC)),
                ),
            )
        self._journal.require_in_place()
        part.file.unlink(missing_ok=True)

    def _encode(self, part: AudioPart, samples: NDArray[Any]) -> Path:
        import soundfile

        flac = part.form == "s16" and samples.shape[1] <= _MOST_FLAC_CHANNELS
        subtype = "PCM_16" if part.form == "s16" else "FLOAT"
        file = part.file.with_name(f"{part.start:012d}.{'flac' if flac else 'wav'}")
        fresh = file.with_name(f"{file.name}.partial")
        try:
            soundfile.write(fresh, samples, part.rate_hz, subtype=subtype, format="FLAC" if flac else "WAV")
        except soundfile.LibsndfileError as error:
            fresh.unlink(missing_ok=True)
            raise OSError(f"{file} cannot be written: {error}") from error
        os.replace(fresh, file)
        return file

    def left_behind(self) -> list[AudioPart]:
        """Raw pieces of runs that were killed, in the order of time."""
        rates = {row["name"]: row for row in self._journal.rows("SELECT name, rate_hz, sensors FROM recordings")}
        found = []
        for file in sorted(self.directory.glob("*/*.part")):
            match, known = _PART.fullmatch(file.name), rates.get(file.parent.name)
            if match and known:
                bits = int(match[3])
                delivered = tuple(bool(bits >> sensor & 1) for sensor in range(known["sensors"]))
                found.append(AudioPart(file, file.parent.name, int(match[1]), match[2], delivered, known["rate_hz"]))
        return found

    def read(self, recording: str, start: int = 0, stop: int | None = None) -> Iterator[Block | Gap]:
        """Sound from sample to sample; gaps where nothing was heard, or nothing is kept."""
        position = start
        for row in self._journal.rows(
            "SELECT * FROM pieces WHERE recording = ? AND stop > ? AND file IS NOT NULL ORDER BY start",
            (recording, start),
        ):
            if stop is not None and row["start"] >= stop:
                break
            first, last = max(row["start"], position), row["stop"] if stop is None else min(row["stop"], stop)
            if first > position:
                yield Gap(position, first, "not kept", recorded=False)
            delivered: Mask = np.array(json.loads(row["delivered"]), np.bool_)
            yield Block(first, self._decode(row, first, last), delivered)
            position = last
        if stop is not None and position < stop:
            yield Gap(position, stop, "not kept", recorded=False)

    def _decode(self, row: dict[str, Any], first: int, last: int) -> Samples:
        import soundfile

        file = self.directory / row["file"]
        try:
            with soundfile.SoundFile(file) as sound:
                sound.seek(first - row["start"])
                samples = sound.read(last - first, dtype="float32", always_2d=True)
        except (OSError, soundfile.LibsndfileError) as error:
            raise SourceError(f"{file} cannot be read: {error}; restore it from a copy") from error
        if len(samples) != last - first:
            raise SourceError(f"{file} is shorter than the journal says; restore it from a copy")
        return np.ascontiguousarray(samples.T)


def raw_tail(
    directory: Path, n_sensors: int, *, after: int | None, most: int
) -> tuple[int, Samples, tuple[bool, ...]] | None:
    """The newest of what a recording's raw piece holds while somebody writes it, from a sample on; none if nothing new.

    First sample, (sensors, time), and who delivered. The end of a piece that was finished meanwhile is not in it, see
    `piece_end`.
    """
    for file in sorted(directory.glob("*.part"), reverse=True):
        match = _PART.fullmatch(file.name)
        if match is None:
            continue
        start, bits = int(match[1]), int(match[3])
        try:
            stop = start + file.stat().st_size // (n_sensors * _TYPES[match[2]].itemsize)
            first = max(start, stop - most, after or 0)
            samples = _raw(file, match[2], n_sensors, first - start, stop - start)
        except FileNotFoundError:
            continue
        if not samples.shape[1]:
            return None
        return first, samples, tuple(bool(bits >> sensor & 1) for sensor in range(n_sensors))
    return None


def piece_end(directory: Path, n_sensors: int, first: int, stop: int) -> Samples | None:
    """From a sample to the end of its piece at another, (sensors, time), whether it is still raw or finished by now."""
    starts = {int(file.name[:12]) for file in directory.glob("?" * 12 + "[-.]*") if file.name[:12].isdigit()}
    start = max((one for one in starts if one <= first), default=None)
    if start is None:
        return None
    # First the raw one: it is removed only when the finished one is there.
    for file in [*directory.glob(f"{start:012d}-*.part"), *directory.glob(f"{start:012d}.*[cv]")]:
        try:
            found = _stored(file, n_sensors, first - start, stop - start)
        except (FileNotFoundError, SourceError):
            continue
        if found.shape == (n_sensors, stop - first):
            return found
    return None


def _stored(file: Path, n_sensors: int, first: int, stop: int) -> Samples:
    match = _PART.fullmatch(file.name)
    if match is not None:
        return _raw(file, match[2], n_sensors, first, stop)
    import soundfile

    try:
        with file.open("rb") as opened:
            samples: Samples = soundfile.read(opened, stop - first, first, dtype="float32", always_2d=True)[0].T
    except soundfile.LibsndfileError as error:
        raise SourceError(f"{file} cannot be read: {error}; restore it from a copy") from error
    return samples


def _raw(file: Path, form: str, n_sensors: int, first: int, stop: int) -> Samples:
    kind = _TYPES[form]
    raw = np.fromfile(file, kind, max(0, stop - first) * n_sensors, offset=first * n_sensors * kind.itemsize)
    samples = raw[: len(raw) // n_sensors * n_sensors].reshape(-1, n_sensors).T.astype(np.float32)
    return samples / np.float32(_FULL_SCALE) if form == "s16" else samples
