"""Bands of frequencies as wide as the ear hears them, and the window of a frame: librosa's numbers, to the last bit.

They are so few that they are made anew at every start; librosa itself would take 120 MB for them.
"""

from __future__ import annotations

from math import cos, pi, sqrt

import numpy as np

from pipeline.core.errors import SettingsError
from pipeline.core.events import Numbers, Samples

_MOST_MELS = 128  # librosa's number
# Slaney's scale: so many hertz to a mel, and from there on always the same ratio.
_HZ_PER_MEL = 200 / 3
_BEND_HZ = 1000.0
_BEND_MEL = _BEND_HZ / _HZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27


def hann(length: int) -> Numbers:
    """The window whose copies at half its length add up to one."""
    return np.asarray(0.5 + 0.5 * np.cos(np.linspace(-np.pi, np.pi, length + 1)))[:-1]


def mel_bands(rate_hz: int, n_fft: int, n_mels: int | None, f_min_hz: float, f_max_hz: float) -> Samples:
    """(bands, frequencies): a basis of `n_mels` bands, or of as many as there can be without an empty one."""

    def basis(n: int) -> Samples:
        return mel_basis(rate_hz, n_fft, n, f_min_hz, f_max_hz)

    if n_mels is not None and n_mels < 1:
        raise SettingsError(f"n_mels={n_mels} must be at least 1; for example 40")
    possible = range(_MOST_MELS if n_mels is None else n_mels, 0, -1)
    most = next((n for n in possible if basis(n).any(axis=1).all()), 0)
    if most == 0:
        raise SettingsError(
            f"f_min_hz={f_min_hz} and f_max_hz={f_max_hz} leave no frequency at {rate_hz} Hz and {n_fft} samples a "
            "frame; move them apart, or lengthen frame_seconds"
        )
    if n_mels is not None and most < n_mels:
        raise SettingsError(
            f"n_mels={n_mels} leaves bands without a frequency at {rate_hz} Hz and {n_fft} samples a frame; "
            f"set n_mels to at most {most}, or lengthen frame_seconds"
        )
    return basis(most)


def mel_basis(rate_hz: int, n_fft: int, n_mels: int, f_min_hz: float, f_max_hz: float) -> Samples:
    """Triangles that overlap by half, each of the same area; a band may be empty."""
    edges = _to_hz(np.linspace(_to_mel(f_min_hz), _to_mel(f_max_hz), n_mels + 2))
    above = edges[:, None] - np.fft.rfftfreq(n_fft, 1 / rate_hz)
    widths = np.diff(edges)[:, None]
    rising, falling = -above[:-2] / widths[:-1], above[2:] / widths[1:]
    # Rounded before it is scaled, and again after it, as librosa does.
    basis = np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
    return (basis * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)


def cosines(n_bands: int, n_coefficients: int) -> Numbers:
    """(bands, coefficients): the orthonormal cosines that turn the levels of bands into cepstra.

    The angle of each is reduced to one turn first, where it is an exact fraction of it.
    """
    steps = [[(2 * band + 1) * order % (4 * n_bands) for order in range(n_coefficients)] for band in range(n_bands)]
    scales = [sqrt((1 if order == 0 else 2) / n_bands) for order in range(n_coefficients)]
    turned = [[cos(pi * step / (2 * n_bands)) for step in row] for row in steps]
    return np.array(turned) * scales


def _to_mel(hz: float) -> float:
    return hz / _HZ_PER_MEL if hz < _BEND_HZ else float(_BEND_MEL + np.log(hz / _BEND_HZ) / _LOG_STEP)


def _to_hz(mels: Numbers) -> Numbers:
    hz = _HZ_PER_MEL * mels
    bent = mels >= _BEND_MEL
    hz[bent] = _BEND_HZ * np.exp(_LOG_STEP * (mels[bent] - _BEND_MEL))
    return hz
