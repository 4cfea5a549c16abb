"""From sound to few numbers: mel-frequency cepstra of all frames of a segment, then principal components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import SettingsError
from pipeline.core.events import Cepstra, Features, Mask, Samples, Segment, Views
from pipeline.core.exact_sums import on_grid
from pipeline.core.fourier import fast_length, rfft
from pipeline.core.framing import Grid
from pipeline.core.segment_views import N_COEFFICIENTS
from pipeline.stages.batches import replaced
from pipeline.stages.mel import cosines, hann, mel_bands

LOWEST_HZ = 30.0
"""Where mel bands usually begin: below are the drift of a converter and the wind, and little of a step."""
_FLOOR = np.float32(1e-10)  # librosa's `amin`: -100 dB
_HIGHEST_BAND_HZ = 8_000.0  # above it there is little of a footstep left, and much of bats and switching converters
_MEL_GROUPS = 8
# A band with less than this share of a frame's power per bin is off by more than half a thousandth of a decibel when
# transformed in single precision; found on 180,000 frames of real sound.
_ROUNDING = 1.6e-6

Groups: TypeAlias = list[tuple[slice, slice, NDArray[Any]]]


class Mfcc:
    """Mel-frequency cepstra of a segment, by librosa's conventions (`center=False`, `top_db=None`).

    Frames lie on the absolute grid and depend on nothing but their own samples, so a frame that several segments share
    is transformed once. `n_mels` defaults to librosa's 128, or as many as have a frequency of their own at this rate
    and frame length; `f_max_hz` to half the rate, at most 8 kHz.
    """

    accepts = Segment
    remembers = ("_frames", "_start")

    def __init__(
        self,
        grid: Grid,
        *,
        n_coefficients: int = N_COEFFICIENTS,
        n_mels: int | None = None,
        f_min_hz: float = 0.0,
        f_max_hz: float | None = None,
    ) -> None:
        self._grid = grid
        self.cepstrum = Cepstrum(
            grid, n_coefficients=n_coefficients, n_mels=n_mels, f_min_hz=f_min_hz, f_max_hz=f_max_hz
        )
        self._frames: Samples | None = None
        self._start = 0

    def push(self, segment: Segment, /) -> list[object]:
        values = self._frames_of(segment)
        # Samples that are finite may have a power that is not.
        present = segment.present & np.isfinite(values).all(axis=(1, 2))
        if not present.all():
            values = np.where(present[:, None, None], values, np.float32(np.nan))
        return [Cepstra(segment.span, segment.window, values, present, segment.trusted)]

    def flush(self) -> list[object]:
        self._frames, self._start = None, 0
        return []

    def _frames_of(self, segment: Segment) -> Samples:
        """All frames inside the segment; those of the segment before are kept, the others transformed."""
        kept = self._kept(segment)
        fresh = self.cepstrum(segment.samples[:, kept.shape[1] * self._grid.hop :])
        self._frames, self._start = np.concatenate([kept, fresh], axis=1), segment.span.start
        return self._frames

    def _kept(self, segment: Segment) -> Samples:
        n_coefficients = self.cepstrum.n_coefficients
        if self._frames is None:
            return np.empty((len(segment.samples), 0, n_coefficients), np.float32)
        gone = (segment.span.start - self._start) // self._grid.hop
        if gone <= 0:
            raise ValueError(f"segment starts at sample {segment.span.start}, not after the last one at {self._start}")
        return self._frames[:, gone:]


class Components(Protocol):
    """Scaling and principal axes of one view, as `ArrayComponents` learns them."""

    @property
    def means(self) -> NDArray[Any]: ...
    @property
    def scales(self) -> NDArray[Any]: ...
    @property
    def limits(self) -> NDArray[Any]: ...
    @property
    def axes(self) -> NDArray[Any]: ...


class Projection:
    """Principal components of both views of a segment."""

    accepts = Views
    remembers = ()

    def __init__(self, summary: Components, timing: Components) -> None:
        self._summary, self._timing = _ViewProjection("summary", summary), _ViewProjection("timing", timing)

    def push(self, views: Views, /) -> list[object]:
        return self.push_all([views])

    def push_all(self, items: Sequence[object], /) -> list[object]:
        """Project all segments at once."""
        return replaced(items, Views, self._features)

    def _features(self, segments: Sequence[Views]) -> Iterator[Features]:
        summaries = self._summary([one.summary for one in segments])
        timings = self._timing([one.timing for one in segments])
        for views, summary, timing in zip(segments, summaries, timings, strict=True):
            yield Features(views.span, views.window, summary, timing, views.present, views.trusted, views)

    def flush(self) -> list[object]:
        return []


class _ViewProjection:
    """``axes @ clip((values - means) / scales, ±limits)`` of every sensor, exact on a grid of single precision."""

    def __init__(self, name: str, components: Components) -> None:
        self._name = name
        self._means, self._scales, self._limits, axes = (
            np.asarray(part, np.float32)
            for part in (components.means, components.scales, components.limits, components.axes)
        )
        if self._means.ndim != 2 or axes.ndim != 3 or axes[:, 0].shape != self._means.shape:
            raise SettingsError(
                f"means of shape {self._means.shape} and axes of shape {axes.shape} of the {name} view must be "
                "(sensors, values) and (sensors, components, values); learn them with ArrayComponents"
            )
        self._axes = on_grid(axes).swapaxes(1, 2)

    def __call__(self, views: Sequence[Samples]) -> Samples:
        """(segments, sensors, components) from the values of each segment."""
        for values in views:
            self._check(values)
        values = np.stack(views)
        scaled = np.clip((values - self._means) / self._scales, -self._limits, self._limits)
        projected = on_grid(scaled.swapaxes(0, 1)) @ self._axes
        return np.ascontiguousarray(projected.swapaxes(0, 1), np.float32)

    def _check(self, values: Samples) -> None:
        if values.shape != self._means.shape:
            raise SettingsError(
                f"{self._name} view of {len(values)} sensors with {values.shape[1]} values does not fit components of "
                f"{self._means.shape[0]} sensors with {self._means.shape[1]} values; use the settings that the "
                "components were learned with"
            )


class Cepstrum:
    """Cepstra, in decibels, of all frames inside some samples: Hann window, power, mel bands, logarithm, cosines."""

    def __init__(
        self, grid: Grid, *, n_coefficients: int, n_mels: int | None, f_min_hz: float, f_max_hz: float | None
    ) -> None:
        f_max_hz = min(grid.rate_hz / 2, _HIGHEST_BAND_HZ) if f_max_hz is None else f_max_hz
        if not 0 <= f_min_hz < f_max_hz <= grid.rate_hz / 2:
            raise SettingsError(
                f"f_min_hz={f_min_hz} and f_max_hz={f_max_hz} must be ordered and lie in 0 to {grid.rate_hz / 2:g}, "
                "half the sample rate; lower them"
            )
        self.grid, self.f_min_hz, self.f_max_hz = grid, f_min_hz, f_max_hz
        self.n_fft = fast_length(grid.frame)
        mels = mel_bands(grid.rate_hz, self.n_fft, n_mels, f_min_hz, f_max_hz)
        self.n_mels, self.n_coefficients = len(mels), n_coefficients
        if not 1 <= n_coefficients <= self.n_mels:
            raise SettingsError(
                f"n_coefficients={n_coefficients} must lie in 1 to n_mels={self.n_mels}; lower n_coefficients"
            )
        self._exact_window = hann(grid.frame)
        self._window = self._exact_window.astype(np.float32)
        self._groups = _grouped(mels)
        self._window_power = float(np.sum(self._exact_window**2))
        self._rounding = _ROUNDING * 2 / grid.rate_hz
        self._cosines = cosines(self.n_mels, n_coefficients) * (10 / np.log(10))
        self._windowed = np.zeros((0, 0, self.n_fft), np.float32)  # kept, for fresh memory costs a tenth of the time

    def __call__(self, samples: Samples) -> Samples:
        """(sensors, time) → (sensors, frames, coefficients)."""
        frames = self._frames_of(samples)
        if self._windowed.shape[:2] != frames.shape[:2]:
            self._windowed = np.zeros((*frames.shape[:2], self.n_fft), np.float32)
        # np.multiply takes half as long again.
        np.einsum("sft,t->sft", frames, self._window, out=self._windowed[:, :, : self.grid.frame])
        bands, parts = self._bands(self._windowed.reshape(-1, self.n_fft), self._groups)
        if not bands.min() >= self._rounding * self._most_power(samples):  # also where a sensor is not a number
            drowned = bands.min(axis=1) < self._rounding * parts.sum(axis=1)
            if drowned.any():
                bands[drowned] = self._exact_bands(frames, drowned)
        np.maximum(bands, _FLOOR, out=bands)
        np.log(bands, out=bands)  # several at a time, unlike np.log10
        # In double precision, for the first coefficient is a sum of many decibels, and off by a thousandth otherwise.
        cepstra: Samples = (bands.astype(np.float64) @ self._cosines).astype(np.float32)
        return cepstra.reshape(*frames.shape[:2], self.n_coefficients)

    def _bands(self, windowed: NDArray[Any], groups: Groups) -> tuple[NDArray[Any], NDArray[Any]]:
        """Power of every frame in every band, and that of its real and imaginary parts, in the frames' precision."""
        parts = rfft(windowed).view(windowed.dtype)
        np.square(parts, out=parts)
        bands = np.empty((len(parts), self.n_mels), windowed.dtype)
        for place, used, weights in groups:
            np.matmul(parts[:, used], weights, out=bands[:, place])
        return bands, parts

    def _most_power(self, samples: Samples) -> float:
        """No frame can have more than this: Parseval's theorem."""
        peak = max(float(samples.max()), -float(samples.min()))
        return float(self.n_fft * peak**2 * self._window_power)

    def _exact_bands(self, frames: Samples, drowned: Mask) -> NDArray[Any]:
        """Bands of frames in which the quietest would drown in the rounding of the loudest."""
        chosen = frames[np.nonzero(drowned.reshape(frames.shape[:2]))]
        groups = [(place, used, weights.astype(np.float64)) for place, used, weights in self._groups]
        padded = np.pad(chosen * self._exact_window, ((0, 0), (0, self.n_fft - self.grid.frame)))
        return self._bands(padded, groups)[0]

    def _frames_of(self, samples: Samples) -> Samples:
        """All frames as a view, (sensors, frames, time)."""
        sensor, sample = samples.strides
        n_frames = (samples.shape[1] - self.grid.frame) // self.grid.hop + 1
        return np.lib.stride_tricks.as_strided(
            samples,
            shape=(len(samples), n_frames, self.grid.frame),
            strides=(sensor, sample * self.grid.hop, sample),
            writeable=False,
        )


def _grouped(mels: Samples) -> Groups:
    """The basis in groups of neighbouring bands, each with only the frequencies that it uses: most of it is zero.

    Every frequency stands twice, for the squares of the real and the imaginary part lie side by side.
    """
    groups: Groups = []
    for bands in np.array_split(np.arange(len(mels)), min(_MEL_GROUPS, len(mels))):
        used = np.flatnonzero(mels[bands].any(axis=0))
        bins = slice(int(used[0]), int(used[-1]) + 1)
        weights = np.ascontiguousarray(np.repeat(mels[bands, bins].T, 2, axis=0))
        groups.append((slice(int(bands[0]), int(bands[-1]) + 1), slice(2 * bins.start, 2 * bins.stop), weights))
    return groups
