"""The header of a WAV stream, and raw PCM as numbers."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import SourceError
from pipeline.core.events import Samples

SAMPLE_BYTES = {"s16le": 2, "s24le": 3, "s32le": 4, "f32le": 4}
HEADER_LIMIT = 1 << 20

_MAGICS = (b"RIFF", b"RF64")
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FORMATS = {(_PCM, 16): "s16le", (_PCM, 24): "s24le", (_PCM, 32): "s32le", (_FLOAT, 32): "f32le"}


@dataclass(frozen=True, slots=True)
class WavHeader:
    rate_hz: int
    channels: int
    sample_format: str
    offset: int  # bytes before the first sample
    data_bytes: int | None  # None if the writer did not know


def is_wav(head: bytes | bytearray) -> bool | None:
    """Whether a stream begins with a WAV header; None if more bytes are needed to tell."""
    if len(head) >= 12:
        return head[:4] in _MAGICS and head[8:12] == b"WAVE"
    possible = any(magic.startswith(bytes(head[:4])) for magic in _MAGICS) and b"WAVE".startswith(bytes(head[8:12]))
    return None if possible else False


def parse_wav(head: bytes) -> WavHeader | None:
    """The header up to the first sample, or None if more bytes are needed."""
    position, layout, long_size = 12, None, 0
    while len(head) >= position + 8:
        name, size = struct.unpack_from("<4sI", head, position)
        body = position + 8
        if name == b"data":
            return _header(layout, body, long_size if size == 0xFFFFFFFF and long_size else size)
        if name in (b"fmt ", b"ds64") and len(head) < body + size:
            return None
        if name == b"fmt ":
            layout = _layout(head[body : body + size])
        if name == b"ds64":
            long_size = struct.unpack_from("<Q", head[body : body + size].ljust(16, b"\0"), 8)[0]
        position = body + size + size % 2
    return None


def open_ended(data_bytes: int, frame_bytes: int) -> bool:
    """Whether a size is one that streaming writers put because they cannot know it.

    0: Python's wave and GStreamer; 0x7FFFF000 rounded down to whole frames: sox; 0x80000000: arecord;
    0xFFFFFFFF: ffmpeg.
    """
    return data_bytes == 0 or 0x7FFFF000 - frame_bytes < data_bytes <= 0x80000000 or 0xFFFFFF00 <= data_bytes < 1 << 32


def decode(data: bytes | bytearray, sample_format: str, channels: int) -> Samples:
    """Whole frames of interleaved PCM as (channels, time), full scale at 1."""
    values: Samples
    if sample_format == "s16le":
        return from_integers(np.frombuffer(data, "<i2").reshape(-1, channels))
    if sample_format == "s24le":
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(1 << 31)
    elif sample_format == "s32le":
        values = np.frombuffer(data, "<i4").astype(np.float32) / np.float32(1 << 31)
    else:
        values = np.frombuffer(data, "<f4").astype(np.float32)
    return np.ascontiguousarray(values.reshape(-1, channels).T)


def from_integers(frames: NDArray[np.int16]) -> Samples:
    """Return (time, channels) of 16 bits as (channels, time), full scale at 1."""
    samples = np.empty(frames.shape[::-1], np.float32)
    return np.multiply(frames.T, np.float32(1 / (1 << 15)), out=samples)


def _layout(body: bytes) -> tuple[int, int, str]:
    if len(body) < 16:
        raise SourceError(f"WAV header has a fmt chunk of {len(body)} bytes, it needs 16; write the WAV again")
    tag, channels, rate_hz, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", body)
    if tag == _EXTENSIBLE and len(body) >= 26:
        tag = struct.unpack_from("<H", body, 24)[0]
    sample_format = _FORMATS.get((tag, bits))
    if sample_format is None or frame_bytes != channels * bits // 8:
        raise SourceError(
            f"WAV header says format {tag} with {bits} bits in frames of {frame_bytes} bytes, readable is PCM of "
            "16, 24 or 32 bits and float of 32 bits; let the writer use one of these"
        )
    if not channels or not rate_hz:
        raise SourceError(f"WAV header says {channels} channels at {rate_hz} Hz, both must be above 0; write it again")
    return rate_hz, channels, sample_format


def _header(layout: tuple[int, int, str] | None, offset: int, size: int) -> WavHeader:
    if layout is None:
        raise SourceError("WAV header has no fmt chunk before its data, so its samples have no meaning; write it again")
    rate_hz, channels, sample_format = layout
    frame_bytes = channels * SAMPLE_BYTES[sample_format]
    return WavHeader(rate_hz, channels, sample_format, offset, None if open_ended(size, frame_bytes) else size)
