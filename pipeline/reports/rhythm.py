"""Rhythm of a segment: the rate at which its loudness repeats, as that of steps."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import Numbers

LOWEST_HZ, HIGHEST_HZ = 0.7, 6.0
CLEAR = 0.35
"""Autocorrelation below which there is no rhythm. Noise of one sensor exceeds 0.3 in 1 of 100 segments of 2 s, noise of
four sensors 0.15; footsteps reach 0.6."""
_SHOWN_TO_HZ = 12.0

Levels = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Rate at which the loudness of a segment repeats, and how exactly it does."""

    rate_hz: float
    strength: float
    """Autocorrelation of the loudness at the period, 0 to 1. It is relative to the power of the whole segment: at most
    0.75 for 2 per second and 0.5 for 1 per second in a segment of 2 s."""

    @property
    def is_clear(self) -> bool:
        return self.strength >= CLEAR

    def __str__(self) -> str:
        return f"{self.rate_hz:.1f} per second (autocorrelation {self.strength:.2f})"


def rhythm_in_words(rhythm: Rhythm | None) -> str:
    """Give the rate of the steps, or say that there is no clear rhythm."""
    if rhythm is None:
        return "no clear rhythm"
    return f"steps at {rhythm}" if rhythm.is_clear else f"no clear rhythm; the strongest is {rhythm}"


def rhythm(levels: Levels, hop_seconds: float) -> Rhythm | None:
    """Return the strongest rhythm between 0.7 and 6 Hz in the levels (sensors, frames) of some sensors, if any.

    The autocorrelations of the sensors are added, so the sensor with the largest modulation counts most. The peak is
    interpolated by a parabola. Whether the rhythm is clear is a property of the result.
    """
    if not levels.size or not np.isfinite(levels).all():
        return None
    about = _without_trend(levels)
    n_frames = about.shape[1]
    power = np.abs(np.fft.rfft(about, 2 * n_frames, axis=1)) ** 2
    correlation = np.fft.irfft(power.sum(axis=0))[:n_frames]
    if correlation[0] < 1e-6 * levels.size:  # squared decibels: a constant level has no rhythm
        return None
    correlation /= correlation[0]
    first, last = ceil(1 / HIGHEST_HZ / hop_seconds), int(1 / LOWEST_HZ / hop_seconds)
    lags = np.arange(max(first, 1), min(last, n_frames - 2) + 1)
    before, here, after = correlation[lags - 1], correlation[lags], correlation[lags + 1]
    peaks = np.flatnonzero((here >= before) & (here > after) & (here > 0))
    if not len(peaks):
        return None
    best = peaks[np.argmax(here[peaks])]
    below, top, above = float(before[best]), float(here[best]), float(after[best])
    shift = 0.5 * (below - above) / (below - 2 * top + above)
    return Rhythm(1 / ((lags[best] + shift) * hop_seconds), top - 0.25 * (below - above) * shift)


def modulation(levels: Levels, hop_seconds: float) -> tuple[Numbers, Numbers]:
    """Return modulation frequencies in Hz, and amplitudes in dB (sensors, frequencies), of levels (sensors, frames)."""
    about, n_frames = _without_trend(levels), levels.shape[1]
    taper = np.hanning(n_frames) if n_frames > 2 else np.ones(n_frames)
    n_fft = 1 << ceil(np.log2(8 * n_frames))
    frequencies = np.arange(n_fft // 2 + 1, dtype=np.float64) / (n_fft * hop_seconds)
    amplitudes = 2 * np.abs(np.fft.rfft(about * taper, n_fft, axis=1)) / taper.sum()
    shown = frequencies <= _SHOWN_TO_HZ
    return frequencies[shown], amplitudes[:, shown]


def _without_trend(levels: Levels) -> Numbers:
    """Remove the straight line of each sensor: an approach is no rhythm."""
    line = np.linspace(-1, 1, levels.shape[1]) if levels.shape[1] > 1 else np.zeros(1)
    about = levels - levels.mean(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(about - (about @ line)[:, None] * line / max(float(line @ line), 1e-12))
