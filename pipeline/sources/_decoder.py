"""PCM bytes in any cuts into facts."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from pipeline.core.errors import SettingsError, SourceError
from pipeline.core.events import Gap, RecordingStarted, SourceTrouble
from pipeline.sources._chunks import Chunk, NonFinite, channel_names, cut, screen
from pipeline.sources._wav import HEADER_LIMIT, SAMPLE_BYTES, WavHeader, decode, is_wav, parse_wav

_COMPRESSED = {b"fLaC": "FLAC", b"OggS": "Ogg"}


class Decoder:
    """Takes bytes as they come; `position` is the next sample, `complete` says that no more can follow."""

    def __init__(
        self,
        recording: str,
        *,
        rate_hz: int | None,
        n_sensors: int | None,
        sample_format: str,
        started_at: datetime | None,
        block_samples: int,
    ) -> None:
        self.recording, self.started_at, self.block_samples = recording, started_at, block_samples
        self.rate_hz, self.n_sensors, self.sample_format = rate_hz, n_sensors, sample_format
        self.position = 0
        self._pending = bytearray()
        self._begun = self._recognised = False
        self._bytes_left: int | None = None
        self._non_finite = NonFinite()

    @property
    def complete(self) -> bool:
        return self._bytes_left == 0

    def bytes_until(self, samples: int) -> int:
        """How many more bring the position to the next multiple of so many samples; 0 if nobody knows yet."""
        if not self._recognised:
            return 0
        return (samples - self.position % samples) * self._frame_bytes - len(self._pending)

    def begin(self) -> list[object]:
        """The start of the recording, once and as soon as it is known."""
        if self._begun or self.rate_hz is None or self.n_sensors is None:
            return []
        self._begun = True
        return [RecordingStarted(self.recording, self.rate_hz, channel_names(self.n_sensors), self.started_at)]

    def push(self, data: bytes) -> list[object]:
        self._pending += data
        self._recognised = self._recognised or self._recognise()
        return [*self.begin(), *self._sound()] if self._recognised else []

    def finish(self) -> list[object]:
        """What is left to say when the stream has ended."""
        if is_wav(self._pending) and not self._recognised:
            raise SourceError(f"{self.recording} ended within its WAV header; start the writer of the stream again")
        facts: list[object] = []
        if not self._recognised and self._pending:
            self._require_format()
            facts += [*self.begin(), *self._sound()]
        if self._pending and not self.complete:
            facts.append(
                self._trouble(f"ended with {len(self._pending)} bytes of an unfinished frame; they are dropped")
            )
        if self._bytes_left:
            missing = self._bytes_left // self._frame_bytes
            message = f"ended {missing} samples before the end that its WAV header declares; check the writer"
            facts += [self._trouble(message), Gap(self.position, self.position + missing, "the stream ended too early")]
            self.position += missing
        return facts

    def _recognise(self) -> bool:
        """Whether the kind of stream is known; it may take more bytes to know."""
        wav = is_wav(self._pending)
        if wav is None:
            return False
        if not wav:
            return self._recognise_raw()
        header = parse_wav(bytes(self._pending))
        if header is not None:
            self._adopt(header)
        elif len(self._pending) > HEADER_LIMIT:
            raise SourceError(
                f"{self.recording} has no sound in the first {HEADER_LIMIT} bytes of its WAV header; write raw PCM"
            )
        return header is not None

    def _recognise_raw(self) -> bool:
        """Anything may be raw sound, except what says at once that it is not."""
        head = bytes(self._pending[:4])
        if head in _COMPRESSED:
            raise SourceError(
                f"{self.recording} begins with {head!r} and so is {_COMPRESSED[head]}, not PCM; "
                "let sox or ffmpeg decode it: ffmpeg -i ... -f s16le -"
            )
        if len(head) < 4 and any(magic.startswith(head) for magic in _COMPRESSED):
            return False
        self._require_format()
        return True

    def _require_format(self) -> None:
        if self.rate_hz is None or self.n_sensors is None:
            name = "rate_hz" if self.rate_hz is None else "n_sensors"
            raise SettingsError(f"{name} is not set and {self.recording} has no WAV header to tell it; set {name}")

    def _adopt(self, header: WavHeader) -> None:
        for name, asked, found in (
            ("rate_hz", self.rate_hz, header.rate_hz),
            ("n_sensors", self.n_sensors, header.channels),
        ):
            if asked not in (None, found):
                raise SourceError(
                    f"{name}={asked} is set but the WAV header of {self.recording} says {found}; "
                    f"leave {name} out or let the writer use {asked}"
                )
        self.rate_hz, self.n_sensors, self.sample_format = header.rate_hz, header.channels, header.sample_format
        del self._pending[: header.offset]
        if header.data_bytes is not None:
            self._bytes_left = header.data_bytes // self._frame_bytes * self._frame_bytes

    @property
    def _frame_bytes(self) -> int:
        return (self.n_sensors or 1) * SAMPLE_BYTES[self.sample_format]

    def _sound(self) -> list[object]:
        ready = len(self._pending) if self._bytes_left is None else min(len(self._pending), self._bytes_left)
        ready -= ready % self._frame_bytes
        samples = decode(self._pending[:ready], self.sample_format, self.n_sensors or 1)
        chunk = (
            screen(samples) if self.sample_format.startswith("f") else Chunk(samples, np.ones(samples.shape, np.bool_))
        )
        del self._pending[:ready]
        if self._bytes_left is not None:
            self._bytes_left -= ready
        reason = "no sensor has finite numbers"
        facts = [
            *self._screened(chunk),
            *cut(chunk, start=self.position, block_samples=self.block_samples, reason=reason),
        ]
        self.position += chunk.n
        return facts

    def _screened(self, chunk: Chunk) -> list[object]:
        """Said at the first of them, since a stream may never end."""
        known = self._non_finite.count
        self._non_finite.add(chunk.valid, self.position)
        if known or not self._non_finite.count:
            return []
        message = f"{self._non_finite.first} is not a finite number; such values are not delivered, check the writer"
        return [self._trouble(message)]

    def _trouble(self, message: str) -> SourceTrouble:
        return SourceTrouble(self.recording, message)
