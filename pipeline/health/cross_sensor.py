"""What sensors have in common: how alike two of them sound, with which sign and how much later one hears it.

Sound is cut into short frames, so that one footfall is not averaged with the next one, which comes from another place.
Every frame is whitened, band by band, so that no wind or hum outweighs the rest and the sign of a peak is plain; then
two sensors are compared at all delays that the air between them can explain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.core.checkpoint import value
from pipeline.core.fourier import fast_length, irfft, rfft

Floats: TypeAlias = NDArray[np.float32]
Spectra: TypeAlias = NDArray[np.complex64]
Mask: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.intp]

EVERY_SECONDS = 1.0
"""Relations are meant to be measured once in this time,"""
WINDOW_SECONDS = 1.125
"""over this much sound: then every frame is looked at once."""
HOP_SECONDS = 0.125
LARGEST_LAG_SECONDS = 0.1
_LOWEST_HZ, _HIGHEST_HZ = 100.0, 4000.0  # wind is below, and beyond every bin costs time
_N_BANDS = 16
_NOTHING = np.float32(1e-20)
_QUIET = 0.25  # this share of the frames is taken to be free of events
_CHANCE = 6.5  # standard deviations that equal noise never reaches at any delay
_LEAST_CORRELATION = 0.22
_CLOSURE_SECONDS = 1.5e-3
_STRETCHES = np.array([0, 2.5, 5, 8, 11, 14, 17, 20, -2.5, -5, -8, -11, -14, -17, -20]) * 1e-3
_STRETCH_FRAMES = 2
_CLEAR, _BLURRED, _SHARPENED = 0.4, 0.1, 0.08
_USUAL_EXPONENT = 10  # of two; what is larger or smaller by far is scaled before it is squared
_FINER = 2  # steps of lag, lest a peak falls between two
ALL_PAIRS_UP_TO = 8  # sensors; each of more is compared with some next ones only
_NEXT_ONES = 3


@value
@dataclass(frozen=True, eq=False)
class Relations:
    """What one window of sound says about pairs of sensors, frame by frame.

    A pair with nothing in common has a lag of NaN. Arrays are read-only. Without slots, so that what is found in a
    window can be kept with it.
    """

    pairs: Indices
    """(pairs, 2), the first sensor before the second one."""
    known: Mask
    """(sensors,) which of them delivered sound that is more than zeros or a constant."""
    correlation: Floats
    """(frames, pairs) largest in magnitude over all delays, with its sign; 0 for unknown sensors."""
    lag_seconds: Floats
    """(frames, pairs) how much later the second one hears what the first one hears."""
    at_once: Floats
    """(frames, pairs) correlation at no delay."""
    arrival_seconds: Floats
    """(frames, sensors) when each hears what at least three hear with delays that add up, around 0; else NaN."""
    stretch: Floats
    """(sensors,) by what share its sound must be shortened to be most like that of the others; NaN if untold."""
    activity_db: Floats
    """(frames, sensors) level over the quiet part of the window, after whitening."""

    def __post_init__(self) -> None:
        for array in vars(self).values():
            array.flags.writeable = False

    @property
    def n_sensors(self) -> int:
        return len(self.known)


def relations(samples: Floats, delivered: Mask, rate_hz: int) -> Relations:
    """Compare the sensors of (sensors, samples), of which those count that are delivered."""
    pairs, triangles = _compared(len(samples))
    known = delivered & _sounding(samples)
    if not known.all():
        samples = np.where(known[:, None], samples, np.float32(0))
    white, activity_db = _whitened(_framed(samples, rate_hz), rate_hz)
    correlation, lag, at_once = _likeness(white, pairs)
    lag[np.abs(correlation) < _least_correlation(rate_hz)] = np.nan
    return Relations(
        pairs=pairs,
        known=known,
        correlation=correlation,
        lag_seconds=lag,
        at_once=at_once,
        arrival_seconds=_arrivals(lag, pairs, triangles, len(samples)),
        stretch=_stretch(white, correlation, pairs),
        activity_db=activity_db,
    )


@lru_cache(maxsize=8)
def _compared(n_sensors: int) -> tuple[Indices, Indices]:
    """Pairs (pairs, 2), and triangles (triangles, 3): where the pairs ab, bc and ac of three sensors are."""
    apart = n_sensors if n_sensors <= ALL_PAIRS_UP_TO else _NEXT_ONES
    together = [(a, b) for a, b in combinations(range(n_sensors), 2) if b - a <= apart or a + n_sensors - b <= apart]
    place = {pair: number for number, pair in enumerate(together)}
    threes = [
        (place[a, b], place[b, c], place[a, c])
        for a, b in together
        for c in range(b + 1, n_sensors)
        if (b, c) in place and (a, c) in place
    ]
    pairs, triangles = np.array(together, np.intp).reshape(-1, 2), np.array(threes, np.intp).reshape(-1, 3)
    pairs.flags.writeable = triangles.flags.writeable = False
    return pairs, triangles


def _sounding(samples: Floats) -> Mask:
    """Rows of finite numbers that are not all the same."""
    lowest, highest = samples.min(axis=1), samples.max(axis=1)
    sounding: Mask = np.isfinite(lowest) & np.isfinite(highest) & (lowest != highest)
    return sounding


def _framed(samples: Floats, rate_hz: int) -> Floats:
    """(sensors, frames, samples), tapered; every frame begins in the middle of the one before."""
    hop = round(HOP_SECONDS * rate_hz)
    taper, n_frames = _taper(2 * hop), samples.shape[1] // hop - 1
    halves = _scaled(samples)[:, : (n_frames + 1) * hop].reshape(len(samples), n_frames + 1, hop)
    frames = np.empty((len(samples), n_frames, 2 * hop), np.float32)
    np.multiply(halves[:, :-1], taper[:hop], out=frames[:, :, :hop])
    np.multiply(halves[:, 1:], taper[hop:], out=frames[:, :, hop:])
    return frames


def _scaled(samples: Floats) -> Floats:
    """Each sensor times a power of two, which changes no bit of what comes out, where squares might overflow."""
    exponent = np.frexp(np.maximum(samples.max(axis=1), -samples.min(axis=1)))[1]
    unusual = np.abs(exponent) > _USUAL_EXPONENT
    if not unusual.any():
        return samples
    scaled: Floats = samples * np.ldexp(np.float32(1), np.where(unusual, -np.maximum(exponent, -100), 0))[:, None]
    return scaled


@lru_cache(maxsize=8)
def _taper(length: int) -> Floats:
    return np.hanning(length + 1)[:-1].astype(np.float32)


def _used_bins(rate_hz: int) -> tuple[int, int]:
    """The first frequency of a frame that is used, and the first beyond."""
    width_hz = rate_hz / (2 * round(HOP_SECONDS * rate_hz))
    return math.ceil(_LOWEST_HZ / width_hz), int(min(_HIGHEST_HZ, 0.45 * rate_hz) / width_hz) + 1


def _least_correlation(rate_hz: int) -> float:
    """Two noises are alike by about one over the square root of the number of frequencies, by chance."""
    first, beyond = _used_bins(rate_hz)
    return max(_LEAST_CORRELATION, _CHANCE / math.sqrt(beyond - first))


@lru_cache(maxsize=8)
def _band_edges(first: int, beyond: int) -> Indices:
    """Where bands begin and end, counted from the first frequency that is used."""
    return np.unique(np.round(np.geomspace(first, beyond, _N_BANDS + 1)).astype(np.intp)) - first


def _whitened(frames: Floats, rate_hz: int) -> tuple[Spectra, Floats]:
    """Spectra (sensors, frames, bins) of unit power that are flat over bands; (frames, sensors) levels over quiet."""
    first, beyond = _used_bins(rate_hz)
    edges = _band_edges(first, beyond)
    widths = np.diff(edges)
    spectra = rfft(frames)
    # Real and imaginary parts side by side: a product of real numbers costs a quarter of one of complex numbers.
    used = spectra[:, :, first:beyond].view(np.float32)
    power = np.add.reduceat(np.square(used), 2 * edges[:-1], axis=2) + _NOTHING
    used *= np.repeat(np.sqrt(widths.astype(np.float32) / (power * np.float32(beyond - first))), 2 * widths, axis=2)
    spectra[:, :, :first] = 0
    activity = (power / _quiet(power) * widths).sum(axis=2) / (beyond - first)
    return spectra[:, :, :beyond], 10 * np.log10(activity).T.astype(np.float32)


def _quiet(power: Floats) -> Floats:
    """(sensors, 1, bands) the quantile over frames below which there are no events."""
    ordered = np.sort(power, axis=1)
    below, part = divmod(_QUIET * (power.shape[1] - 1), 1)
    low, high = (ordered[:, [min(int(below) + step, power.shape[1] - 1)]] for step in (0, 1))
    return high - (high - low) * np.float32(1 - part)


def _likeness(white: Spectra, pairs: Indices) -> tuple[Floats, Floats, Floats]:
    """(frames, pairs) each: the largest correlation with its sign, its lag in seconds, and the one at no lag."""
    size = fast_length(_FINER * 2 * white.shape[2])
    step_seconds, scale = 2 * HOP_SECONDS / size, np.float32(size / 2)
    reach = round(LARGEST_LAG_SECONDS / step_seconds)
    alike = irfft(_cross(white, pairs, size // 2 + 1), size)
    near = np.empty((*alike.shape[:2], 2 * reach + 1), np.float32)
    np.abs(alike[:, :, -reach:], out=near[:, :, :reach])
    np.abs(alike[:, :, : reach + 1], out=near[:, :, reach:])
    lag = near.argmax(axis=2) - reach
    peak = np.take_along_axis(alike, lag[:, :, None], axis=2)[:, :, 0]
    return (scale * peak).T.copy(), (lag * step_seconds).astype(np.float32).T.copy(), (scale * alike[:, :, 0]).T.copy()


def _cross(white: Spectra, pairs: Indices, n_bins: int) -> Spectra:
    """(pairs, frames, bins) products of the spectra of the second sensor and the conjugate ones of the first."""
    used = white.shape[2]
    cross, conjugate = np.empty((len(pairs), white.shape[1], n_bins), np.complex64), white.conj()
    cross[:, :, used:] = 0
    for out, (first, second) in zip(cross, pairs.tolist(), strict=True):
        np.multiply(white[second], conjugate[first], out=out[:, :used])
    return cross


def _arrivals(lag: Floats, pairs: Indices, triangles: Indices, n_sensors: int) -> Floats:
    """(frames, sensors) by least squares over the pairs whose lags add up around a triangle."""
    ab, bc, ac = lag[:, triangles.T].transpose(1, 0, 2)
    closed = np.abs(ab + bc - ac) < _CLOSURE_SECONDS
    arrival = np.full((len(lag), n_sensors), np.nan, np.float32)
    for frame in np.flatnonzero(closed.any(axis=1)).tolist():
        agreed = np.zeros(len(pairs), np.bool_)
        agreed[triangles[closed[frame]]] = True
        member, weights = _least_squares(agreed.tobytes(), n_sensors)
        arrival[frame, member] = weights @ lag[frame, agreed].astype(np.float64)
    return arrival


@lru_cache(maxsize=32)
def _least_squares(agreed: bytes, n_sensors: int) -> tuple[Mask, NDArray[np.float64]]:
    """The sensors of the largest group that pairs link, and what lags are weighed by: (members, pairs that agreed)."""
    pairs = _compared(n_sensors)[0][np.frombuffer(agreed, np.bool_)]
    linked = np.zeros((n_sensors, n_sensors))
    linked[pairs[:, 0], pairs[:, 1]] = linked[pairs[:, 1], pairs[:, 0]] = 1
    member = _largest_group(linked)
    ends = (pairs[:, 1] == np.arange(n_sensors)[:, None]) * 1.0 - (pairs[:, 0] == np.arange(n_sensors)[:, None])
    inside = linked[member][:, member]
    # One more equation: that the mean is 0.
    laplacian = np.diag(inside.sum(axis=1)) - inside + 1
    return member, np.linalg.solve(laplacian, ends[member])


def _largest_group(linked: NDArray[np.float64]) -> Mask:
    """(sensors,) who belongs to the largest set of linked sensors."""
    reached = np.minimum(linked + np.eye(len(linked)), 1)
    for _ in range(len(linked).bit_length()):
        reached = np.minimum(reached @ reached, 1)
    group: Mask = reached[reached.sum(axis=1).argmax()] > 0
    return group


def _stretch(white: Spectra, correlation: Floats, pairs: Indices) -> Floats:
    """Of the sensor that is least like the others although these are like each other, whose clock may be wrong."""
    stretch = np.full(len(white), np.nan, np.float32)
    if np.abs(correlation).max(initial=0) <= _CLEAR:
        return stretch
    clear, blur = blurring(correlation, pairs, len(white))
    heard = clear > _CLEAR
    mean_blur = (blur * heard).sum(axis=0) / np.maximum(heard.sum(axis=0), 1)
    sensor = int(mean_blur.argmax())
    frames = np.argsort(-clear[:, sensor], kind="stable")[:_STRETCH_FRAMES]
    frames = frames[heard[frames, sensor] & (mean_blur[sensor] > _BLURRED)]
    partners = pairs[(pairs == sensor).any(axis=1)].sum(axis=1) - sensor
    if not len(frames) or len(partners) < 2:
        return stretch
    likeness = _likeness_shortened(white[sensor, frames], white[partners][:, frames])
    best = int(likeness.argmax())
    if likeness[best] > likeness[0] + _SHARPENED:
        stretch[sensor] = _STRETCHES[best]
    return stretch


def blurring(correlation: Floats, pairs: Indices, n_sensors: int) -> tuple[Floats, Floats]:
    """(frames, sensors) how like the others are to each other, and how much less a sensor is like them."""
    mine, others = _averaging(pairs.tobytes(), n_sensors)
    alike: Floats = np.abs(correlation)
    of_others: Floats = np.matmul(alike, others)
    with_it: Floats = np.matmul(alike, mine)
    return of_others, of_others - with_it


@lru_cache(maxsize=8)
def _averaging(pairs: bytes, n_sensors: int) -> tuple[Floats, Floats]:
    """(pairs, sensors) what averages over the pairs with a sensor, and over those without it."""
    ends = np.frombuffer(pairs, np.intp).reshape(-1, 2)
    mine = (ends[:, :, None] == np.arange(n_sensors)).any(axis=1)
    with_it, without = ((which / np.maximum(which.sum(axis=0), 1)).astype(np.float32) for which in (mine, ~mine))
    return with_it, without


def _likeness_shortened(white: Spectra, others: Spectra) -> Floats:
    """(stretches,) mean over others and frames of the largest correlation with frames that last less by a share.

    `white` is (frames, bins), `others` (others, frames, bins).
    """
    n_bins = white.shape[1]
    shortened = _shortened(white)
    power = np.square(shortened.view(np.float32)).sum(axis=2) + _NOTHING
    size = fast_length(2 * n_bins)
    reach = round(LARGEST_LAG_SECONDS * size / (2 * HOP_SECONDS))
    cross = np.zeros((len(others), *shortened.shape[:2], size // 2 + 1), np.complex64)
    np.multiply(others.conj()[:, :, None], shortened, out=cross[:, :, :, :n_bins])
    alike = irfft(cross, size)
    sides = alike[..., : reach + 1], alike[..., 1 - reach :]
    peaks = np.max([np.maximum(side.max(axis=3), -side.min(axis=3)) for side in sides], axis=0)
    mean: Floats = (peaks / np.sqrt(power)).mean(axis=(0, 1)) * np.float32(size / 2)
    return mean


def _shortened(white: Spectra) -> Spectra:
    """Frames (frames, bins) that last less by a share, about their middle: (frames, stretches, bins)."""
    # Twice the samples that are needed, so that straight lines between them will do.
    size = fast_length(4 * (white.shape[1] - 1))
    sound = irfft(white, size)
    first, between = _shortened_places(size)
    shorter = np.take(np.diff(sound), first, axis=1)
    shorter *= between
    shorter += np.take(sound, first, axis=1)
    return np.ascontiguousarray(rfft(shorter)[:, :, : white.shape[1]])


@lru_cache(maxsize=2)
def _shortened_places(size: int) -> tuple[Indices, Floats]:
    """(stretches, samples): which sample comes before each of a shortened frame, and how far behind it that lies."""
    at = np.clip(np.outer(1 + _STRETCHES, np.arange(size) - size // 2) + size // 2, 0, size - 2)
    first = at.astype(np.intp)
    return first, (at - first).astype(np.float32)
