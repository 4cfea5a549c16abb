"""Steps per minute, from how much louder the frames of a passage become."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import Numbers
from pipeline.core.fourier import fast_length, irfft, rfft

_PERIODS_SECONDS = (0.25, 1.2)
_SMOOTHING_SECONDS = 0.07
_TREND_SECONDS = 1.0
_FIRST_PEAK = 0.7
"""The first peak that reaches this share of the highest one is the period; later ones are multiples of it."""
_SHORTEST_SECONDS = 4.0
_LEAST_KNOWN = 0.5
CONFIDENT = 0.22
"""Exceeded by 26 % of 720 stretches of 20 s of real background at four sensors (7, 37 and 35 % of three sets of 240,
which depends on the clips): birds and crickets have rhythms of their own. Only noise without a rhythm stays below."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """Steps per minute; the confidence is the height of the peak of the autocorrelation above its median."""

    per_minute: float
    confidence: float


def cadence(onsets: NDArray[np.floating], hop_seconds: float) -> Cadence | None:
    """Cadence of onsets, (frames,) or (sensors, frames); None if they are too short, silent or have no peak.

    The autocorrelations of sensors are averaged, not their onsets: the background of each has peaks of its own, which
    average out, while steps have the same period at all of them. Frames may be NaN; a sensor takes part if at least
    half of its frames are known.
    """
    longest = round(_PERIODS_SECONDS[1] / hop_seconds)
    courses = np.atleast_2d(np.asarray(onsets, np.float64))
    if courses.shape[1] < max(_SHORTEST_SECONDS / hop_seconds, 2 * longest + 2):
        return None
    known = np.isfinite(courses)
    found = [
        _correlation(np.where(there, course, course[there].mean()), longest, hop_seconds)
        for course, there in zip(courses, known, strict=True)
        if there.mean() >= _LEAST_KNOWN
    ]
    correlations = [one for one in found if one is not None]
    return _highest(np.mean(correlations, axis=0), hop_seconds) if correlations else None


def _correlation(course: Numbers, longest: int, hop_seconds: float) -> Numbers | None:
    """Autocorrelation up to a longest lag, without bias; None of silence."""
    smooth = _without_trend(course, hop_seconds)
    n, size = len(smooth), fast_length(2 * len(smooth))
    spectrum = rfft(np.pad(smooth, (0, size - n)))
    sums = irfft(spectrum * spectrum.conj(), size)[: longest + 2]
    unbiased = np.asarray(sums / (n - np.arange(longest + 2)))
    return None if unbiased[0] <= 1e-12 else unbiased / unbiased[0]


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
