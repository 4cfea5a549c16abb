"""Two views of the cepstra of a segment: the summary, for classes, and the timing, for comparing sensors."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from pipeline.core.events import Numbers, Samples
from pipeline.core.fourier import rfft
from pipeline.core.framing import Grid

N_COEFFICIENTS = 13
TWO_VIEWS, PAPER = FEATURES = ("views", "paper")
MODULATION_BANDS_HZ = ((1.0, 3.0), (3.0, 6.0), (6.0, 12.0), (12.0, 25.0))
_MODULATION_WEIGHT = 0.8
_MODULATION_FLOOR = 0.1  # squared decibels: below it are the fluctuations of steady noise
_TIMING_COEFFICIENTS = 4
_TIMING_FRAMES = 4
_RISE_SECONDS, _RISE_BANDS = 0.02, 40


class Summary:
    """Mean, deviation and modulation of each cepstral coefficient over all frames of a segment.

    Modulation is the logarithm of the power of the coefficient's course in four bands of frequency: steps at 2 per
    second appear in the first. None of the values depends on where in the segment a step falls.
    """

    def __init__(self, grid: Grid, n_coefficients: int) -> None:
        n_frames, frames_per_second = grid.segment_frames, 1 / grid.hop_seconds
        # Fine enough for a bin in every band below half the frame rate.
        self._n_fft = 1 << ceil(np.log2(max(n_frames, frames_per_second, 2)))
        taper = np.hanning(n_frames) if n_frames > 2 else np.ones(n_frames)
        self._taper, self._power = taper.astype(np.float32), float(np.sum(taper**2))
        frequencies = np.fft.rfftfreq(self._n_fft, grid.hop_seconds)
        bins = [slice(*np.searchsorted(frequencies, band).tolist()) for band in MODULATION_BANDS_HZ]
        self._bands_hz = [band for band, own in zip(MODULATION_BANDS_HZ, bins, strict=True) if own.start < own.stop]
        self._bins = [own for own in bins if own.start < own.stop]
        self._n_coefficients = n_coefficients

    def __call__(self, values: Samples) -> Samples:
        """(sensors, frames, coefficients) → (sensors, values); the sensors may be those of many segments."""
        courses = np.ascontiguousarray(values.swapaxes(1, 2), np.float64)  # (sensors, coefficients, frames)
        mean = courses.mean(axis=2)
        about = courses - mean[:, :, None]
        deviation = np.sqrt(np.mean(about**2, axis=2))
        modulation = self._modulation(about).reshape(len(values), -1)
        summary: Samples = np.concatenate((mean, deviation, modulation), axis=1).astype(np.float32)
        return summary

    def _modulation(self, about: Numbers) -> Numbers:
        """Return the logarithm of the mean power in each band, (sensors, coefficients, bands)."""
        padded = np.zeros((*about.shape[:2], self._n_fft), np.float32)
        np.multiply(about, self._taper, out=padded[:, :, : about.shape[2]], casting="same_kind")
        spectrum = rfft(padded)
        power = spectrum.real**2 + spectrum.imag**2
        # Not by a matrix product, whose rounding depends on the number of rows.
        means = [power[:, :, own].mean(axis=2) for own in self._bins]
        bands = np.stack(means, axis=2) if means else np.empty((*about.shape[:2], 0))
        return np.asarray(np.log(_MODULATION_FLOOR + bands.astype(np.float64) / self._power))

    @property
    def parts(self) -> list[SummaryValue]:
        """What each value of the summary is."""
        coefficients = range(self._n_coefficients)
        return [
            *(SummaryValue("mean", number) for number in coefficients),
            *(SummaryValue("deviation", number) for number in coefficients),
            *(SummaryValue("modulation", number, band) for number in coefficients for band in self._bands_hz),
        ]

    @property
    def weights(self) -> Numbers:
        """How much each value counts among the others once all have been scaled to unit spread."""
        n, n_modulation = self._n_coefficients, self._n_coefficients * len(self._bands_hz)
        modulation = [_MODULATION_WEIGHT / sqrt(n_modulation)] * n_modulation
        return np.array([1 / sqrt(n)] * (2 * n) + modulation)


class Onsets:
    """How much louder the frames of a segment become, as the mean rise over a smoothed mel spectrum.

    Of the frames at the end of a segment only, as many as the next segment is later: those of consecutive segments
    follow each other without overlap.
    """

    def __init__(self, grid: Grid, n_coefficients: int) -> None:
        self._n_frames = min(grid.stride // grid.hop, grid.segment_frames)
        self._lag = max(1, round(_RISE_SECONDS / grid.hop_seconds))
        number, band = np.arange(n_coefficients), np.arange(_RISE_BANDS)
        # The inverse of an orthogonal cosine transform, at so many bands.
        waves = np.cos(np.pi * number[:, None] * (band + 0.5) / _RISE_BANDS)
        waves *= np.where(number == 0, sqrt(0.5), 1.0)[:, None] * sqrt(2 / _RISE_BANDS)
        self._waves = waves.astype(np.float32)

    def __call__(self, values: Samples) -> Samples:
        """(sensors, frames, coefficients) → (sensors, new frames)."""
        first = max(0, values.shape[1] - self._n_frames - self._lag)
        bands = values[:, first:] @ self._waves
        rises: Samples = np.maximum(bands[:, self._lag :] - bands[:, : -self._lag], 0).mean(axis=2)
        missing = self._n_frames - rises.shape[1]
        return np.pad(rises, ((0, 0), (missing, 0))) if missing else rises


@dataclass(frozen=True, slots=True)
class SummaryValue:
    """One value of the summary: a statistic of a cepstral coefficient."""

    statistic: str
    coefficient: int
    band_hz: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.band_hz is None:
            return f"{self.statistic} of c{self.coefficient}"
        low, high = self.band_hz
        return f"{self.statistic} of c{self.coefficient} at {low:g} to {high:g} Hz"


def timing(values: Samples) -> Samples:
    """The first coefficients less their means, averaged over groups of frames.

    (sensors, frames, coefficients) → (sensors, values). Without their means they depend neither on the gain of the
    sensor nor on the color of steady noise, in which recordings differ.
    """
    n_sensors, n_frames, _ = values.shape
    size = min(_TIMING_FRAMES, n_frames)
    used = values[:, : n_frames - n_frames % size, :_TIMING_COEFFICIENTS]
    groups = used.reshape(n_sensors, -1, size, used.shape[2])
    averaged = groups.mean(axis=2, dtype=np.float64)
    course: Samples = (averaged - averaged.mean(axis=1, keepdims=True)).astype(np.float32)
    return course.reshape(n_sensors, -1)
