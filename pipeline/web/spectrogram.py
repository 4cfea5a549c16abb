"""Sound as a picture: bands of frequency by time, in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import Samples

COLUMNS_PER_SECOND = 20
N_BANDS = 64
LOWEST_HZ = 50.0
FLOOR_DB, CEILING_DB = -110.0, -10.0
"""What is at most as loud is a byte of 0, what is at least as loud is 255."""


@dataclass(frozen=True, slots=True)
class Bands:
    """How sound of one rate becomes columns."""

    hop: int
    window: NDArray[np.float32]
    weights: NDArray[np.float32]  # (bands, bins)
    edges_hz: NDArray[np.float64]

    @property
    def length(self) -> int:
        return len(self.window)


@lru_cache(maxsize=4)
def bands(rate_hz: int) -> Bands:
    """Bands that grow with their frequency, and take what lies between bins from both neighbours."""
    hop = rate_hz // COLUMNS_PER_SECOND
    length = 2 * hop
    window = np.hanning(length + 1)[:-1]
    bins_hz = np.fft.rfftfreq(length, 1 / rate_hz)
    edges = np.geomspace(LOWEST_HZ, rate_hz / 2, N_BANDS + 2)
    rising = (bins_hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins_hz) / (edges[2:] - edges[1:-1])[:, None]
    weights = np.clip(np.minimum(rising, falling), 0.0, None)
    # Low bands may lie between two bins.
    for band in np.flatnonzero(weights.sum(axis=1) == 0):
        weights[band, np.argmin(abs(bins_hz - edges[band + 1]))] = 1.0
    weights /= weights.sum(axis=1, keepdims=True)
    # A sine of full scale has 0 dB.
    scale = (2 / window.sum()) ** 2
    return Bands(hop, window.astype(np.float32), (weights * scale).astype(np.float32), edges[1:-1])


def columns(samples: Samples, rate_hz: int) -> NDArray[np.uint8]:
    """(sensors, columns, bands) of sound (sensors, time); a column begins every hop and is two hops long."""
    how = bands(rate_hz)
    n = max(0, samples.shape[1] // how.hop - 1)
    made = np.zeros((len(samples), n, N_BANDS), np.uint8)
    # One sensor after the other: frames need many times the memory of the sound.
    for row, heard in zip(made, samples if n else (), strict=False):
        frames = np.lib.stride_tricks.sliding_window_view(heard, how.length)[: n * how.hop : how.hop]
        spectra = np.fft.rfft(frames * how.window, axis=1)
        power = (spectra.real**2 + spectra.imag**2).astype(np.float32) @ how.weights.T
        decibels = 10 * np.log10(np.maximum(power, 1e-20))
        scaled = (decibels - FLOOR_DB) * (255 / (CEILING_DB - FLOOR_DB))
        row[:] = np.clip(np.rint(np.nan_to_num(scaled)), 0, 255)
    return made
