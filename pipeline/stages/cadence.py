"""Steps per minute, from how much louder the frames of a passage become."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.events import Numbers

_PERIODS_SECONDS = (0.25, 1.2)
_SMOOTHING_SECONDS = 0.07
_TREND_SECONDS = 1.0
_FIRST_PEAK = 0.7
"""The first peak that reaches this share of the highest one is the period; later ones are multiples of it."""
_SHORTEST_SECONDS = 4.0
CONFIDENT = 0.22
"""Exceeded by 5 % of stretches in which nobody walks."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """Steps per minute; the confidence is the height of the peak of the autocorrelation above its median."""

    per_minute: float
    confidence: float


def cadence(onsets: NDArray[np.floating], hop_seconds: float) -> Cadence | None:
    """Cadence of one course of onsets (frames,); None if it is too short, silent or has no peak."""
    from scipy.fft import irfft, next_fast_len, rfft

    longest = round(_PERIODS_SECONDS[1] / hop_seconds)
    if len(onsets) < max(_SHORTEST_SECONDS / hop_seconds, 2 * longest + 2):
        return None
    course = _without_trend(np.asarray(onsets, np.float64), hop_seconds)
    n, size = len(course), next_fast_len(2 * len(course), real=True)
    spectrum = rfft(course, size)
    sums = irfft(spectrum.real**2 + spectrum.imag**2, size)[: longest + 2]
    unbiased = sums / (n - np.arange(longest + 2))
    if unbiased[0] <= 1e-12:
        return None
    return _highest(unbiased / unbiased[0], hop_seconds)


def _without_trend(course: Numbers, hop_seconds: float) -> Numbers:
    smooth = _averaged(course, np.hanning(2 * round(_SMOOTHING_SECONDS / hop_seconds / 2) + 3)[1:-1])
    return smooth - _averaged(smooth, np.ones(round(_TREND_SECONDS / hop_seconds)))


def _averaged(course: Numbers, weights: Numbers) -> Numbers:
    """Moving average, at the ends over what there is."""
    total = np.convolve(np.ones(len(course)), weights, "same")
    return np.asarray(np.convolve(course, weights, "same") / total)


def _highest(correlation: Numbers, hop_seconds: float) -> Cadence | None:
    first = round(_PERIODS_SECONDS[0] / hop_seconds)
    inside = correlation[first:-1]
    peaks = np.flatnonzero((inside >= correlation[first - 1 : -2]) & (inside > correlation[first + 1 :])) + first
    if not len(peaks):
        return None
    heights = correlation[peaks]
    lag = int(peaks[np.argmax(heights >= _FIRST_PEAK * heights.max())])
    if correlation[lag] <= 0:
        return None
    before, at, after = correlation[lag - 1 : lag + 2].tolist()
    bend = before - 2 * at + after
    shift = 0.5 * (before - after) / bend if bend < 0 else 0.0
    return Cadence(60 / ((lag + shift) * hop_seconds), float(at - np.median(inside)))
