"""Sound files read piece by piece: the only door to soundfile and soxr among the sources."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from pipeline.core.errors import SourceError
from pipeline.core.events import Mask, Samples
from pipeline.sources._chunks import Chunk, NonFinite, join, screen, whole
from pipeline.sources._wav import (
    HEADER_LIMIT,
    SAMPLE_BYTES,
    WavHeader,
    decode,
    from_integers,
    is_wav,
    open_ended,
    parse_wav,
)

READ_FRAMES = 1 << 18
"""Read at a time: what takes many segments at once is the faster the more there are."""
_INTEGERS = ("WAV", "WAVEX", "RF64", "W64", "AIFF", "CAF", "AU")
"""Formats whose samples of 16 bits need no decoding."""
# Beyond so many samples of the lower rate the response of soxr's HQ filter is below 1e-6 of its peak.
FILTER_REACH = 100

# Where libsndfile's log tells the declared size of the sound in bytes, and how much of it is the chunk's own header.
_LOGGED_SIZES = {
    "WAV": (r"^data : (\d+)", 0),
    "WAVEX": (r"^data : (\d+)", 0),
    "W64": (r"^data : (\d+)", 24),
    "RF64": (r"^  Data size : (\d+)", 0),
    "CAF": (r"^data : (\d+)", 4),
    "AIFF": (r"^ SSND : (\d+)", 8),
    "AU": (r"^  Data Size   : (\d+)", 0),
}
_SUBTYPE_BYTES = {
    "PCM_S8": 1, "PCM_U8": 1, "ULAW": 1, "ALAW": 1, "PCM_16": 2, "PCM_24": 3, "PCM_32": 4, "FLOAT": 4, "DOUBLE": 8
}  # fmt: skip
_UNKNOWN_FRAMES = 1 << 62
_LONGEST_OGG_PAGE = 65307


class _Reader(Protocol):
    rate_hz: int
    channels: int

    def read(self, frames: int) -> Chunk: ...  # empty at the end
    def close(self) -> None: ...


class _SoundFileReader:
    """Whatever libsndfile knows."""

    def __init__(self, file: soundfile.SoundFile) -> None:
        self.rate_hz, self.channels = file.samplerate, file.channels
        # soundfile seeks after every read of a file that it can seek in, which puts clicks into MP3.
        file.seekable = lambda: False
        self._file = file
        self._are_integers = file.subtype == "PCM_16" and file.format in _INTEGERS
        self._failed = False

    def read(self, frames: int) -> Chunk:
        if self._are_integers:
            return whole(from_integers(self._file.read(out=np.empty((frames, self.channels), np.int16))))
        return screen(np.ascontiguousarray(self._numbers(frames).T))

    def _numbers(self, frames: int) -> Samples:
        buffer = np.full((0 if self._failed else frames, self.channels), np.nan, np.float32)
        try:
            found: Samples = self._file.read(out=buffer)
        except soundfile.LibsndfileError:
            # FLAC that is cut off fails here, with the last good samples in the buffer but their number unknown.
            self._failed = True
            known = np.flatnonzero(~np.isnan(buffer).all(axis=1))
            found = buffer[: known[-1] + 1 if known.size else 0]
        return found

    def close(self) -> None:
        self._file.close()


class _UnfinishedWavReader:
    """WAV that declares no samples because its writer never came back: libsndfile would read none."""

    def __init__(self, file: BinaryIO, header: WavHeader) -> None:
        self.rate_hz, self.channels = header.rate_hz, header.channels
        self._file, self._format = file, header.sample_format
        file.seek(header.offset)

    def read(self, frames: int) -> Chunk:
        frame_bytes = self.channels * SAMPLE_BYTES[self._format]
        data = self._file.read(frames * frame_bytes)
        return screen(decode(data[: len(data) // frame_bytes * frame_bytes], self._format, self.channels))

    def close(self) -> None:
        self._file.close()


class Track:
    """An open file, read once from its beginning to its end; afterwards it can tell what was wrong with it."""

    def __init__(self, name: str, reader: _Reader, *, declared: int | None, ending: str | None) -> None:
        self.name, self.rate_hz, self.channels = name, reader.rate_hz, reader.channels
        self._reader, self._declared, self._ending = reader, declared, ending
        self._read = 0
        self._non_finite = NonFinite()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._reader.close()

    def chunks(self, rate_hz: int) -> Iterator[Chunk]:
        own = self._own_chunks()
        return own if rate_hz == self.rate_hz else resampled(own, self.channels, old_hz=self.rate_hz, new_hz=rate_hz)

    def length(self, rate_hz: int) -> int:
        """Samples that the file holds or declares, whatever is more. Only known after the end."""
        return resampled_length(max(self._read, self._declared or 0), old_hz=self.rate_hz, new_hz=rate_hz)

    @property
    def truncated(self) -> bool:
        return self._read < (self._declared or 0)

    def complaints(self) -> Iterator[str]:
        """What was found wrong while reading. Only known after the end."""
        if self.truncated:
            yield (
                f"declares {self._declared} samples but only the first {self._read} can be read; "
                "the rest is missing, copy or record the file again"
            )
        if self._ending:
            yield self._ending
        if self._non_finite.count:
            yield (
                f"holds {self._non_finite.count} values that are not finite numbers, the first is "
                f"{self._non_finite.first}; they are not delivered, export the file again without them"
            )

    def _own_chunks(self) -> Iterator[Chunk]:
        while (chunk := self._reader.read(READ_FRAMES)).n:
            self._non_finite.add(chunk.valid, self._read)
            self._read += chunk.n
            yield chunk


class Feed:
    """Chunks of any length, taken in lengths of one's own."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._pending: list[Chunk] = []

    def take(self, n: int) -> Chunk | None:
        """The next `n` samples, fewer at the end, None after it."""
        while sum(chunk.n for chunk in self._pending) < n and (chunk := next(self._chunks, None)):
            self._pending.append(chunk)
        if not self._pending:
            return None
        joined = join(self._pending)
        self._pending = [joined.part(n, joined.n)] if joined.n > n else []
        return joined.part(0, n)


def open_track(path: Path) -> Track:
    """Open a file for reading; a `SourceError` says why it cannot be used."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(12)
    except OSError as error:
        raise SourceError(f"cannot be opened: {error.strerror}; check that it exists and may be read") from error
    if size == 0:
        raise SourceError("is empty (0 bytes); remove it or record it again")
    unfinished = _unfinished_wav(path, size) if is_wav(head) else None
    return unfinished or _sound_file(path, size)


def resampled_length(n: int, *, old_hz: int, new_hz: int) -> int:
    """`n * new_hz / old_hz`, rounded to the nearest, halves up: what soxr delivers."""
    return (2 * n * new_hz + old_hz) // (2 * old_hz)


def resampled(chunks: Iterator[Chunk], channels: int, *, old_hz: int, new_hz: int) -> Iterator[Chunk]:
    """The same sound at another rate. What the filter drew from samples that are not valid is not valid either."""
    stream = soxr.ResampleStream(old_hz, new_hz, channels, dtype="float32", quality="HQ")
    reach = math.ceil(FILTER_REACH * max(1, old_hz / new_hz))
    nothing = Chunk(np.zeros((channels, 0), np.float32), np.zeros((channels, 0), np.bool_))
    surroundings, first, done = nothing.valid, 0, 0  # validity of the input from sample `first` on; output samples done
    waiting = nothing.samples
    ended = False
    while not ended:
        following = next(chunks, None)
        ended, chunk = following is None, following or nothing
        output = stream.resample_chunk(np.ascontiguousarray(chunk.samples.T), last=ended)
        waiting = np.concatenate([waiting, output.T], axis=1)
        surroundings = np.concatenate([surroundings, chunk.valid], axis=1)
        known = max(0, (first + surroundings.shape[1] - reach) * new_hz // old_hz - done)
        ready = waiting.shape[1] if ended else min(known, waiting.shape[1])
        centres = np.arange(done, done + ready) * old_hz // new_hz - first
        valid = _all_valid(surroundings, centres - reach, centres + reach + 1)
        yield Chunk(np.where(valid, waiting[:, :ready], np.float32(0)), valid)
        waiting, done = waiting[:, ready:], done + ready
        past = max(0, done * old_hz // new_hz - reach - first)
        surroundings, first = surroundings[:, past:], first + past


def _all_valid(valid: Mask, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Mask:
    """For each interval whether all of it that exists is valid."""
    n = valid.shape[1]
    faults = np.concatenate([np.zeros((len(valid), 1), np.int64), np.cumsum(~valid, axis=1)], axis=1)
    same: Mask = faults[:, np.clip(stops, 0, n)] == faults[:, np.clip(starts, 0, n)]
    return same


def _unfinished_wav(path: Path, size: int) -> Track | None:
    with path.open("rb") as file:
        head = file.read(HEADER_LIMIT)
    try:
        header = parse_wav(head)
    except SourceError:
        return None
    finished = int.from_bytes(head[4:8], "little") + 8 == size
    if header is None or header.data_bytes is not None or finished or header.offset >= size:
        return None
    return Track(path.name, _UnfinishedWavReader(path.open("rb"), header), declared=None, ending=None)


def _sound_file(path: Path, size: int) -> Track:
    if path.suffix.lower() == ".raw":
        raise SourceError("is raw sound without a header; pipe it in as PCM, with its rate and channels")
    try:
        file = soundfile.SoundFile(path)
    except soundfile.LibsndfileError as error:
        raise SourceError(f"is not sound that can be read ({error.error_string}); convert it to WAV") from error
    declared = _declared_frames(file)
    # Of some extensions libsndfile takes any bytes for telephone sound.
    problem = "is not sound that can be read; convert it to WAV" if file.format == "RAW" else None
    if file.frames == 0:
        problem = f"holds no samples, its header declares {declared}; remove it or record it again"
    if problem:
        file.close()
        raise SourceError(problem)
    ending = None
    if file.format == "OGG":
        ending = _ogg_ending(path, size)
    elif file.format == "MP3" and not _declares_mp3_length(path):
        declared = None
        ending = "does not tell its length, so that its end may be missing; convert it to WAV"
    return Track(path.name, _SoundFileReader(file), declared=declared, ending=ending)


def _declared_frames(file: soundfile.SoundFile) -> int | None:
    pattern, overhead = _LOGGED_SIZES.get(file.format, ("(?!)", 0))
    match = re.search(pattern, file.extra_info, re.MULTILINE)
    frames = int(file.frames)
    frame_bytes: int = file.channels * _SUBTYPE_BYTES.get(file.subtype, 0)
    if match and frame_bytes and not open_ended(int(match[1]), frame_bytes):
        return max(frames, (int(match[1]) - overhead) // frame_bytes)
    return frames if frames < _UNKNOWN_FRAMES else None


def _declares_mp3_length(path: Path) -> bool:
    """Without the header of its first frame libsndfile estimates the length, and reads no further."""
    with path.open("rb") as file:
        head = file.read(10)
        if head[:3] == b"ID3":
            # The size of these tags has seven bits in each byte.
            file.seek(10 + sum(byte << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True)))
        return re.search(b"Xing|Info|VBRI", file.read(4096)) is not None


def _ogg_ending(path: Path, size: int) -> str | None:
    """Ogg does not declare its length; its last page says that it is the last."""
    with path.open("rb") as file:
        file.seek(max(0, size - _LONGEST_OGG_PAGE))
        tail = file.read()
    page = tail[tail.rfind(b"OggS") :]
    body = 27 + page[26] if len(page) > 26 else len(page) + 1
    if len(page) >= body + sum(page[27:body]) and page[5] & 4:
        return None
    return "ends without its last page, so an unknown part of it is missing; copy or record the file again"
