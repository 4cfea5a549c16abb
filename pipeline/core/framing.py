"""How seconds become samples: one absolute grid of frames, windows and segments."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from pipeline.core.errors import SettingsError

LOWEST_RATE_HZ, HIGHEST_RATE_HZ = 2_000, 96_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Frames begin at every multiple of `hop`, segments at every multiple of `stride`, counted from sample 0.

    A segment is `segment_seconds` long and begins `1 - overlap` of that after the previous one. Its window has
    `window_frames` frames, all of which lie inside the segment; the frames *begin* within `window_seconds`, so
    the last ones reach up to one frame length beyond. Seconds are rounded to whole hops, a hop and a frame to samples.
    """

    rate_hz: int
    frame_seconds: float = 0.05
    hop_seconds: float = 0.01
    window_seconds: float = 1.5
    segment_seconds: float = 2.0
    overlap: float = 0.75

    def __post_init__(self) -> None:
        if not LOWEST_RATE_HZ <= self.rate_hz <= HIGHEST_RATE_HZ or self.rate_hz != int(self.rate_hz):
            raise SettingsError(
                f"rate_hz={self.rate_hz} must be a whole number from {LOWEST_RATE_HZ} to {HIGHEST_RATE_HZ}; "
                "resample the sound"
            )
        for name in ("frame_seconds", "hop_seconds", "window_seconds", "segment_seconds"):
            if not 0 < getattr(self, name) < inf:
                raise SettingsError(f"{name}={getattr(self, name)} must be a positive number of seconds")
        if not self.hop_seconds * self.rate_hz >= 1:
            raise SettingsError(f"hop_seconds={self.hop_seconds} must be at least one sample, {1 / self.rate_hz:.3g}")
        if not self.frame_seconds >= self.hop_seconds:
            raise SettingsError(
                f"frame_seconds={self.frame_seconds} must be at least hop_seconds={self.hop_seconds}; "
                "shorten the hop, or samples between two frames are lost"
            )
        if not 0 <= self.overlap < 1 or self.stride < self.hop:
            raise SettingsError(
                f"overlap={self.overlap} must be at least 0 and leave {self.hop_seconds} s of new sound in a segment; "
                "lower the overlap"
            )
        if self.window_frames < 1 or self.window > self.segment:
            raise SettingsError(
                f"window_seconds={self.window_seconds} and one frame of {self.frame_seconds} must fit into "
                f"segment_seconds={self.segment_seconds}; lengthen the segment"
            )

    @property
    def hop(self) -> int:
        return round(self.hop_seconds * self.rate_hz)

    @property
    def frame(self) -> int:
        return round(self.frame_seconds * self.rate_hz)

    @property
    def window_frames(self) -> int:
        return round(self.window_seconds / self.hop_seconds)

    @property
    def window_hops(self) -> int:
        """Hops that the frames of a window touch."""
        return self.window_frames - 1 + ceil(self.frame / self.hop)

    @property
    def window(self) -> int:
        """Samples from the first of the first frame to the last of the last frame of a window."""
        return (self.window_frames - 1) * self.hop + self.frame

    @property
    def segment_hops(self) -> int:
        return round(self.segment_seconds / self.hop_seconds)

    @property
    def segment(self) -> int:
        return self.segment_hops * self.hop

    @property
    def segment_frames(self) -> int:
        """Frames that lie inside a segment."""
        return (self.segment - self.frame) // self.hop + 1

    @property
    def stride_hops(self) -> int:
        return round(self.segment_seconds * (1 - self.overlap) / self.hop_seconds)

    @property
    def stride(self) -> int:
        return self.stride_hops * self.hop
