"""Recordings in sound files: one file with all sensors, one file per sensor, or pieces that follow in time."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from os import SEEK_END
from pathlib import Path
from typing import Self

import numpy as np

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, Gap, RecordingStarted, SourceTrouble
from pipeline.sources._chunks import Chunk, channel_names, cut, require
from pipeline.sources._listing import Listing, Piece, Recording, find_recordings
from pipeline.sources._tracks import READ_FRAMES, Feed, Track, open_track

__all__ = [
    "FileSource",
    "Listing",
    "Piece",
    "Recording",
    "files_of",
    "find_recordings",
    "sound_identity",
    "sound_seconds",
]

_LOOK = 65_536


class FileSource:
    """Plays recordings in order, each from sample 0; a new iteration begins again. A path stands for all found there.

    The rate and the number of sensors are those of the first readable recording unless given. Files of another rate
    are resampled if `resample`, to `n * rate_hz / own` samples rounded to the nearest, else left out. A piece whose
    name puts it within `join_seconds` of the end of the previous piece continues that exactly.
    """

    def __init__(
        self,
        recordings: str | Path | Listing | Sequence[Recording],
        *,
        rate_hz: int | None = None,
        n_sensors: int | None = None,
        resample: bool = False,
        block_samples: int = READ_FRAMES,
        join_seconds: float = 1.0,
    ) -> None:
        require("rate_hz", rate_hz, least=1)
        require("n_sensors", n_sensors, least=1)
        require("block_samples", block_samples, least=1)
        require("join_seconds", join_seconds, least=0)
        if isinstance(recordings, str | Path):
            recordings = find_recordings(recordings)
        self.listing = recordings if isinstance(recordings, Listing) else Listing(tuple(recordings))
        self.rate_hz, self.n_sensors, self.resample = rate_hz, n_sensors, resample
        self.block_samples, self.join_seconds = block_samples, join_seconds
        self._facts: Generator[object, None, None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._facts is not None:
            self._facts.close()

    def __iter__(self) -> Iterator[object]:
        self.__exit__()
        self._facts = self._play()
        return self._facts

    def _play(self) -> Generator[object, None, None]:
        yield from self.listing.troubles
        rate_hz, n_sensors = self.format()
        usable, reason = False, ""
        for recording in self.listing.recordings:
            for fact in _Playback(self, recording, rate_hz, n_sensors).facts():
                usable = usable or isinstance(fact, Block)
                if isinstance(fact, SourceTrouble):
                    reason = reason or f"{fact.where} {fact.message}"
                yield fact
        if not usable:
            n_files = len(files_of(self.listing.recordings))
            raise SourceError(f"none of {n_files} sound files could be used; {reason or 'give at least one'}")

    def format(self) -> tuple[int, int]:
        """Samples per second and number of sensors."""
        if self.rate_hz is not None and self.n_sensors is not None:
            return self.rate_hz, self.n_sensors
        for recording in self.listing.recordings:
            for path in files_of([recording]):
                try:
                    with open_track(path) as track:
                        own_sensors = len(recording.sensors) if recording.sensors else track.channels
                        return self.rate_hz or track.rate_hz, self.n_sensors or own_sensors
                except SourceError:
                    continue
        return self.rate_hz or 1, self.n_sensors or 1


class _Playback:
    """One recording on its way; `position` is the next sample of it."""

    def __init__(self, source: FileSource, recording: Recording, rate_hz: int, n_sensors: int) -> None:
        self.recording, self.rate_hz, self.n_sensors = recording, rate_hz, n_sensors
        self.resample, self.block_samples = source.resample, source.block_samples
        self.join_samples = round(source.join_seconds * rate_hz)
        self.position = 0

    def facts(self) -> Iterator[object]:
        sensors = self.recording.sensors or channel_names(self.n_sensors)
        if len(sensors) != self.n_sensors:
            message = f"has {len(sensors)} sensors, the pipeline has {self.n_sensors}; change n_sensors or leave it out"
            yield SourceTrouble(self.recording.name, message)
            return
        begun = False
        for piece in self.recording.pieces:
            with ExitStack() as stack:
                tracks = yield from self._open(piece, stack)
                if not tracks:
                    continue
                if not begun:
                    yield RecordingStarted(self.recording.name, self.rate_hz, sensors, self.recording.pieces[0].time)
                    begun = True
                yield from self._piece(piece, tracks)

    def _open(self, piece: Piece, stack: ExitStack) -> Generator[SourceTrouble, None, dict[int, Track]]:
        """Usable tracks by the row of their first sensor."""
        tracks = {}
        for row, path in enumerate(piece.files):
            if path is None:
                continue
            try:
                track = stack.enter_context(open_track(path))
                self._check(track)
                tracks[row] = track
            except SourceError as error:
                yield SourceTrouble(path.name, str(error))
        return tracks

    def _check(self, track: Track) -> None:
        channels = 1 if self.recording.sensors else self.n_sensors
        if track.channels != channels:
            raise SourceError(f"has {track.channels} channels, here {channels} must be; leave it out or convert it")
        if track.rate_hz != self.rate_hz and not self.resample:
            raise SourceError(
                f"has {track.rate_hz} samples per second, the pipeline has {self.rate_hz}; "
                "allow resampling or convert it"
            )

    def _piece(self, piece: Piece, tracks: dict[int, Track]) -> Iterator[object]:
        """All of a piece, after the gap before it or without its beginning that was already played."""
        late = self._due(piece) - self.position
        if late > self.join_samples:
            yield self._gap(self.position + late, f"nothing usable before {piece.name}", recorded=False)
        overlap = -late if -late > self.join_samples else 0
        if overlap:
            message = f"begins {overlap} samples before the previous piece ends; these are dropped, check its name"
            yield SourceTrouble(piece.name, message)
        first = self.position - overlap
        for chunk in _without_first(overlap, _mixed(tracks, self.rate_hz, self.n_sensors)):
            yield from cut(
                chunk,
                start=self.position,
                block_samples=self.block_samples,
                reason=f"no sensor has finite numbers in {piece.name}",
            )
            self.position += chunk.n
        yield from self._complaints(tracks)
        end = first + max(track.length(self.rate_hz) for track in tracks.values())
        if end > self.position:
            yield self._gap(end, f"{piece.name} is truncated")

    def _due(self, piece: Piece) -> int:
        """The sample at which a piece begins, as its name says."""
        origin = self.recording.pieces[0].time
        if piece.time is None or origin is None:
            return 0
        return round((piece.time - origin) / timedelta(microseconds=1) * self.rate_hz / 1_000_000)

    def _gap(self, stop: int, reason: str, *, recorded: bool = True) -> Gap:
        gap = Gap(self.position, stop, reason, recorded)
        self.position = stop
        return gap

    def _complaints(self, tracks: dict[int, Track]) -> Iterator[SourceTrouble]:
        longest = max(track.length(self.rate_hz) for track in tracks.values())
        for track in tracks.values():
            for complaint in track.complaints():
                yield SourceTrouble(track.name, complaint)
            length = track.length(self.rate_hz)
            if length < longest:
                message = f"ends after {length} samples, the longest file beside it after {longest}; check its recorder"
                yield SourceTrouble(track.name, message)


def _mixed(tracks: dict[int, Track], rate_hz: int, n_sensors: int) -> Iterator[Chunk]:
    """All sensors side by side; those without a track, or after its end, are not valid."""
    feeds = {row: Feed(track.chunks(rate_hz)) for row, track in tracks.items()}
    while parts := {row: part for row, feed in feeds.items() if (part := feed.take(READ_FRAMES))}:
        n = max(part.n for part in parts.values())
        if len(parts) == 1 and parts.get(0) and len(parts[0].samples) == n_sensors:
            yield parts[0]
            continue
        whole = Chunk(np.zeros((n_sensors, n), np.float32), np.zeros((n_sensors, n), np.bool_))
        for row, part in parts.items():
            rows = slice(row, row + len(part.samples))
            whole.samples[rows, : part.n] = part.samples
            whole.valid[rows, : part.n] = part.valid
        yield whole


def _without_first(n: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        skipped = min(n, chunk.n)
        n -= skipped
        yield chunk.part(skipped, chunk.n)


def sound_seconds(recording: Recording) -> float:
    """How long the files of a recording are; what cannot be read has no length."""
    total = 0.0
    for piece in recording.pieces:
        longest = 0.0
        for path in filter(None, piece.files):
            try:
                with open_track(path) as track:
                    longest = max(longest, track.length(track.rate_hz) / track.rate_hz)
            except SourceError:
                continue
        total += longest
    return total


def sound_identity(recordings: Sequence[Recording]) -> str:
    """Tells one collection of sound files from another of the same names: sizes, beginnings and ends."""
    state = hashlib.sha256()
    for recording in recordings:
        for path in files_of([recording]):
            state.update(f"{recording.name}\n{path.name}\n".encode(errors="surrogateescape"))
            try:
                with path.open("rb") as file:
                    size = file.seek(0, SEEK_END)
                    for start in (0, max(0, size - _LOOK)):
                        file.seek(start)
                        state.update(f"{size}\n".encode() + file.read(_LOOK))
            except OSError:
                continue
    return state.hexdigest()


def files_of(recordings: Sequence[Recording]) -> list[Path]:
    """All of their files, absolute paths."""
    return [path for recording in recordings for piece in recording.pieces for path in piece.files if path]
