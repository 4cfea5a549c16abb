"""What a second of sound is like, for every sensor: numbers of physics, nothing learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.core.checkpoint import value
from pipeline.core.events import Mask, Numbers, Samples
from pipeline.core.fourier import rfft
from pipeline.health.cross_sensor import Relations

Bins: TypeAlias = NDArray[np.intp]

BANDS_HZ = ((20.0, 150.0), (300.0, 900.0))
"""Rumble, and where neither wind nor the pulse of insects reaches; both exist at every sample rate."""
LOW, MIDDLE = range(len(BANDS_HZ))
FULL_SCALE = 0.9999
MANY_VALUES = 16

_FRAME_SECONDS = 0.05
_SHORT_FRAME_SECONDS = 0.025
_FLOOR_QUANTILE = 0.1
_NO_FLOOR = 1e-14  # of full scale: no converter is so quiet, it is rounding
_MAINS_HZ = (50.0, 60.0)
_HARMONICS = 6
_SHORTEST_PAUSE_SECONDS = 0.004
_ARRIVAL_FRAMES = 2  # a sound reaches sensors tens of metres apart within so many frames
_LOUD_DB = -28.0
_SILENCE_DB = -200.0
_OF_NORMAL = 1.4826  # standard deviation of normal noise, in parts of the median of magnitudes
_LEAST_LOUD = (
    0.99 * 10 ** (_LOUD_DB / 20) / _OF_NORMAL / 2
)  # the median of magnitudes is at most twice the effective value
_ALONE_DB = 25.0
_ABRUPT_STEPS = 2
_SPIKE_MARGIN = 4.0
_MOST_CANDIDATES = 1000
_TONE_TO_NOISE = 10.0
_MAYBE_A_TONE = 5.0
_LEAST_HARMONICS = 3
_LOW_RATE_HZ = 2000  # five times the highest harmonic
_LONG = 8  # samples at the low rate: length of the low-pass filter
_SPIKE_NEIGHBORS = 8
_AROUND = np.delete(np.arange(-_SPIKE_NEIGHBORS, _SPIKE_NEIGHBORS + 1), _SPIKE_NEIGHBORS)
_NEXT = np.array([0, -2, -1, 1, 2])[:, None]
_LEAST_SPIKE = 0.02
_NOTHING = -np.inf
_MOST_MISSING = 0.5  # of a second of which less is there nothing can be said
_LARGEST = np.float32(1e3)  # a file of floating-point numbers may hold any


@value
@dataclass(frozen=True, eq=False)
class Measures:
    """Sensors in the second from `start` to `stop`; NaN, or no relations, where one delivered less than half of it.

    A second in which the source waited has no samples: it stops where it starts.
    """

    start: int
    stop: int
    missing: Numbers  # share of samples that were not delivered
    level_db: Numbers  # dB of full scale without the mean; -inf, never 0, where nothing moves
    floor_db: Numbers  # (sensors, bands): what is left between sounds; NaN where nothing is
    offset: Numbers  # mean, in parts of full scale
    values: Numbers  # distinct sample values, counted up to MANY_VALUES
    at_rail: Numbers  # share of samples at full scale
    clipped: Numbers  # share of samples at full scale, three or more in a row
    pauses: Numbers  # share of samples that stand still for milliseconds in the midst of sound
    spikes: Numbers  # how many single samples lie far off their neighbours
    hum: Numbers  # power of mains harmonics in parts of the rest; 0 where there are no harmonics
    alone: Numbers  # share of the time in which it crackles and nobody else hears anything like it
    relations: Relations | None = None
    waited_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in (*_SINGLE, "floor_db"):
            getattr(self, name).flags.writeable = False

    @property
    def n_sensors(self) -> int:
        return len(self.missing)

    @cached_property
    def table(self) -> Numbers:
        """(columns, sensors) all numbers; a second is looked back upon in many others."""
        return np.array([*(getattr(self, name) for name in _SINGLE), *self.floor_db.T])


def measure(
    samples: Samples, delivered: Mask, rate_hz: int, *, start: int, relations: Relations | None = None
) -> Measures:
    """All numbers of a second; `delivered` has a row for every sensor and a column for every sample."""
    samples = _limited(samples)
    missing = 1 - np.array([np.count_nonzero(row) for row in delivered]) / samples.shape[1]
    columns = _of_whole(samples, rate_hz) if not missing.any() else _in_parts(samples, delivered, missing, rate_hz)
    return Measures(start, start + samples.shape[1], missing=missing, relations=relations, **columns)


def _in_parts(samples: Samples, delivered: Mask, missing: Numbers, rate_hz: int) -> dict[str, Any]:
    """Each sensor by what it delivered; NaN where that is too little."""
    columns = _unknown(len(samples))
    for sensor in np.flatnonzero((missing > 0) & (missing <= _MOST_MISSING)):
        _put(columns, np.array([sensor]), _of_samples(samples[sensor, delivered[sensor]][None], rate_hz))
    whole = missing == 0
    if whole.any():
        _put(columns, whole, _of_whole(samples[whole], rate_hz))
    return columns


def _unknown(n_sensors: int) -> dict[str, Any]:
    columns = {name: np.full(n_sensors, np.nan) for name in _SINGLE if name != "missing"}
    return columns | {"floor_db": np.full((n_sensors, len(BANDS_HZ)), np.nan)}


def _limited(samples: Samples) -> Samples:
    within = samples.max() <= _LARGEST and samples.min() >= -_LARGEST
    return samples if within else np.clip(samples, -_LARGEST, _LARGEST)


def _put(columns: dict[str, Any], sensors: Mask | Bins, measured: dict[str, Numbers]) -> None:
    for name, values in measured.items():
        columns[name][sensors] = values


def _of_samples(sound: Samples, rate_hz: int) -> dict[str, Numbers]:
    """Numbers of each sensor that do not need sound without a break.

    A look at all sensors at once excludes most of what is rare; only the others are looked at one by one.
    """
    low, high = sound.min(axis=1), sound.max(axis=1)
    levels = _each(offset_and_level_db, sound)
    rails = _each(clipped_shares, sound, np.maximum(high, -low) > 0.999 * FULL_SCALE, otherwise=(0.0, 0.0))
    abrupt = (high - low).max() > 0.999 * _LEAST_SPIKE
    return {
        "offset": levels[:, 0],
        "level_db": levels[:, 1],
        "values": _each(distinct_values, sound, _has_few_values(sound), otherwise=MANY_VALUES),
        "at_rail": rails[:, 0],
        "clipped": rails[:, 1],
        "pauses": _each(partial(pauses_share, rate_hz=rate_hz), sound, _may_pause(sound, rate_hz)),
        "spikes": count_spikes(sound) if abrupt else np.zeros(len(sound)),
    }


def _each(
    number: Callable[[Numbers], Any], sound: Samples, which: Mask | None = None, *, otherwise: Any = 0.0
) -> Numbers:
    """A number of each sensor, and of those of which it is known what is known."""
    wanted = [True] * len(sound) if which is None else which.tolist()
    found = [number(row.astype(np.float64)) if one else otherwise for row, one in zip(sound, wanted, strict=True)]
    return np.array(found, np.float64)


def _of_whole(sound: Samples, rate_hz: int) -> dict[str, Any]:
    """Numbers of sensors of which every sample is there."""
    return _of_samples(sound, rate_hz) | {
        "floor_db": floors_db(sound, rate_hz),
        "hum": hum_ratios(sound, rate_hz),
        "alone": alone_shares(sound, rate_hz),
    }


def nothing_measured(start: int, stop: int, n_sensors: int, *, waited_seconds: float = 0.0) -> Measures:
    """A time in which no sensor delivered anything."""
    missing = np.ones(n_sensors)
    return Measures(start, stop, missing=missing, waited_seconds=waited_seconds, **_unknown(n_sensors))


def offset_and_level_db(x: Numbers) -> tuple[float, float]:
    """The mean, and the effective level in dB of full scale without it; -inf where nothing moves."""
    offset = float(x.sum()) / len(x)
    centred = x - offset
    power = float(np.square(centred, out=centred).sum()) / len(x)
    # What is left of a constant after its mean is removed is rounding, not sound.
    moves = power > 1e-24 + 1e-30 * (power + offset * offset)
    return offset, 10 * math.log10(power) if moves else _NOTHING


def _has_few_values(sound: Samples) -> Mask:
    """Rows of which a part of the samples does not show MANY_VALUES values yet."""
    part = np.sort(sound[:, :: max(sound.shape[1] // 256, 1)])
    return np.asarray(np.count_nonzero(part[:, 1:] != part[:, :-1], axis=1) < MANY_VALUES - 1)


def distinct_values(x: Numbers) -> int:
    """How many values occur, counted up to MANY_VALUES."""
    return min(len(np.unique(x)), MANY_VALUES)


def clipped_shares(x: Numbers) -> tuple[float, float]:
    """Share of samples at full scale, and of those that are so three or more in a row."""
    at_rail = np.abs(x) >= FULL_SCALE
    if not at_rail.any():
        return 0.0, 0.0
    lengths = np.diff(runs_of(at_rail), axis=1)
    return float(at_rail.mean()), float(lengths[lengths >= 3].sum() / len(x))


def pauses_share(x: Numbers, rate_hz: int) -> float:
    """Share of samples in stretches of one value that last milliseconds and break off the sound.

    Sound so quiet that it stays within one step of the converter stands still, too, but does not break off; and at
    full scale it is clipped.
    """
    steps = np.abs(np.diff(x))
    still, shortest = steps == 0, _shortest_pause(rate_hz)
    if np.count_nonzero(still) + 1 < shortest:
        return 0.0
    runs = runs_of(still)
    runs = runs[runs[:, 1] - runs[:, 0] + 1 >= shortest]
    if not len(runs):
        return 0.0
    quantum = steps[steps > 0].min(initial=np.inf)
    padded = np.pad(steps, 1)  # step k lies between samples k and k + 1
    breaks_off = np.minimum(padded[runs[:, 0]], padded[runs[:, 1] + 1]) > _ABRUPT_STEPS * quantum
    counted = runs[breaks_off & (np.abs(x[runs[:, 0]]) < FULL_SCALE)]
    return float((counted[:, 1] - counted[:, 0] + 1).sum() / len(x))


def _shortest_pause(rate_hz: int) -> int:
    """In samples."""
    return max(round(_SHORTEST_PAUSE_SECONDS * rate_hz), 12)


def _may_pause(sound: Samples, rate_hz: int) -> Mask:
    """Rows with eight equal samples in a row, of a part of the samples of which every pause has as many."""
    part = sound[:, :: _shortest_pause(rate_hz) // 8]
    same = part[:, 1:] == part[:, :-1]
    for shift in (1, 2, 3):  # of two, four and seven pairs in a row
        same = same[:, shift:] & same[:, :-shift]
    return np.asarray(same.any(axis=1))


def runs_of(flags: Mask) -> NDArray[np.int64]:
    """(runs, 2): where each unbroken run of True begins, and the place after its last one."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return edges.reshape(-1, 2)


def count_spikes(sound: Samples) -> Numbers:
    """Single samples of each sensor several times as far out as anything around them.

    What rings is sound, a spike does not.
    """
    steps = sound[:, 1:] - sound[:, :-1]
    up, down = steps > _LEAST_SPIKE, steps < -_LEAST_SPIKE
    there_and_back = (up[:, :-1] & down[:, 1:]) | (down[:, :-1] & up[:, 1:])
    sensors, places = np.divmod(np.flatnonzero(there_and_back), there_and_back.shape[1])
    if len(places) > _MOST_CANDIDATES:
        few = np.arange(len(sensors)) - np.searchsorted(sensors, sensors) < _MOST_CANDIDATES
        sensors, places = sensors[few], places[few]
    places += 1
    for sticks_out in (_beyond_the_next, _far_from_neighbors):
        if len(places):
            out = sticks_out(sound, sensors, places)
            sensors, places = sensors[out], places[out]
    return np.bincount(sensors, minlength=len(sound)).astype(np.float64)


def _beyond_the_next(sound: Samples, sensors: Bins, places: Bins) -> Mask:
    """Samples that may be spikes, by two neighbors on either side.

    A spike is four times as far from the middle as any neighbor: at least one and a half times as far beyond them as
    they are apart.
    """
    x, *near = sound[sensors, np.clip(places + _NEXT, 0, sound.shape[1] - 1)]
    low, high = np.minimum.reduce(near), np.maximum.reduce(near)
    return np.asarray(np.maximum(x - high, low - x) > 1.49 * (high - low))


def _far_from_neighbors(sound: Samples, sensors: Bins, places: Bins) -> Mask:
    """Samples several times as far from the middle of their neighbors as the furthest of these."""
    around = np.clip(places[:, None] + _AROUND, 0, sound.shape[1] - 1)
    values = np.sort(sound[sensors[:, None], around].astype(np.float64), axis=1)
    middle = values[:, _SPIKE_NEIGHBORS - 1 : _SPIKE_NEIGHBORS + 1].mean(axis=1)
    furthest = np.maximum(middle - values[:, 0], values[:, -1] - middle)
    return np.asarray(np.abs(sound[sensors, places] - middle) > _SPIKE_MARGIN * furthest)


def hum_ratios(sound: Samples, rate_hz: int) -> Numbers:
    """Power of mains harmonics in parts of all the rest; 0 unless three harmonics stand out of their neighbourhood."""
    ratios, hums = np.zeros(len(sound)), _may_hum(sound, rate_hz)
    if hums.any():
        ratios[hums] = _harmonic_ratios(_powers(sound[hums]), rate_hz / sound.shape[1])
    return ratios


def _may_hum(sound: Samples, rate_hz: int) -> Mask:
    """Sensors at which three harmonics stand out at least a little at a low sample rate, where that costs little."""
    tones, expected = _tones(_powers(_slowed(sound, rate_hz)), rate_hz / sound.shape[1])
    return np.asarray(((tones > _MAYBE_A_TONE * expected).sum(axis=2) >= _LEAST_HARMONICS).any(axis=1))


def _slowed(sound: Samples, rate_hz: int) -> Samples:
    """The same time at a low sample rate; what it cannot hold is at least 60 dB lower in the range of the harmonics."""
    n_sensors, n = sound.shape
    step = _slowing(n, rate_hz)
    if step == 1:
        return sound
    # Taps that are `step` apart lie in one row, so that the filter is a product of small matrices.
    parts = _low_pass(step) @ sound.reshape(n_sensors, -1, step).transpose(0, 2, 1)
    low, length = np.zeros((n_sensors, n // step), np.float32), n // step - _LONG + 1
    filtered = low[:, _LONG // 2 : _LONG // 2 + length]
    for k in range(_LONG):
        filtered += parts[:, k, k : k + length]
    return low


@lru_cache(maxsize=8)
def _slowing(n: int, rate_hz: int) -> int:
    """The largest divisor of the number of samples that leaves a rate of at least _LOW_RATE_HZ."""
    return max(step for step in range(1, max(rate_hz // _LOW_RATE_HZ, 1) + 1) if n % step == 0)


@lru_cache(maxsize=8)
def _low_pass(step: int) -> Samples:
    """(_LONG, step) taps, one row behind the other."""
    taps = np.sinc((np.arange(_LONG * step) + 0.5) / step - _LONG / 2) * np.blackman(_LONG * step)
    return np.asarray(taps / taps.sum(), np.float32).reshape(_LONG, step)


def _powers(sound: Samples) -> Numbers:
    """(sensors, bins) without the mean."""
    spectra = rfft((sound - sound.mean(axis=1, keepdims=True)) * _window(sound.shape[1]))
    return np.asarray(np.square(spectra.real) + np.square(spectra.imag), np.float64)


def _harmonic_ratios(powers: Numbers, bin_hz: float) -> Numbers:
    tones, expected = _tones(powers, bin_hz)
    out = tones > _TONE_TO_NOISE * expected
    humming = np.where(out, tones - expected, 0).sum(axis=2)
    rest = powers[:, 1:].sum(axis=1)[:, None] - humming
    told = out.sum(axis=2) >= _LEAST_HARMONICS
    ratios = np.divide(humming, np.maximum(rest, 1e-3 * humming), where=told, out=np.zeros(humming.shape))
    return np.asarray(ratios.max(axis=1))


def _tones(powers: Numbers, bin_hz: float) -> tuple[Numbers, Numbers]:
    """(sensors, mains, harmonics) power of each harmonic, and the part of it that its neighbourhood lets expect.

    A tone fills the five bins of the window's main lobe; 6 to 20 Hz away on either side lies its neighbourhood.
    """
    near, far = round(6 / bin_hz), round(20 / bin_hz)
    edges = _harmonic_edges(bin_hz, powers.shape[1], ((-far, -near), (-2, 3), (near, far)))
    below, tones, above = np.moveaxis(
        np.add.reduceat(powers, edges.ravel(), axis=1)[:, ::2].reshape(len(powers), *edges.shape[:-1]), 1, 0
    )
    return tones, 5 * (below + above) / (2 * (far - near))


@lru_cache(maxsize=8)
def _harmonic_edges(bin_hz: float, n_bins: int, parts: tuple[tuple[int, int], ...]) -> Bins:
    """(parts, mains, harmonics, 2) where each part of the spectrum around a harmonic begins and ends."""
    centres = np.round(np.outer(_MAINS_HZ, np.arange(1, _HARMONICS + 1)) / bin_hz).astype(np.intp)
    centres = centres[:, centres.max(axis=0) + parts[-1][1] < n_bins]
    edges: Bins = centres[:, :, None] + np.array(parts)[:, None, None]
    return edges


def floors_db(sound: Samples, rate_hz: int) -> Numbers:
    """(sensors, bands) level of each band in the quietest frames, in dB of full scale."""
    frames = _frames(sound, round(_FRAME_SECONDS * rate_hz))
    length = frames.shape[2]
    tapered = frames - frames.mean(axis=2, keepdims=True)
    tapered *= _window(length)
    spectra = rfft(tapered)
    bands = [_power(spectra[:, :, first:beyond]) for first, beyond in _bands(length, rate_hz)]
    quiet = np.sort(bands, axis=2)[:, :, round(_FLOOR_QUANTILE * (frames.shape[1] - 1))].T * _density(length)
    return np.asarray(10 * np.log10(np.where(quiet > _NO_FLOOR, quiet, np.nan)), np.float64)


def _power(spectra: NDArray[np.complex64]) -> Samples:
    return np.asarray((np.square(spectra.real) + np.square(spectra.imag)).sum(axis=-1))


@lru_cache(maxsize=8)
def _density(length: int) -> float:
    """What the sum of the powers of bins is multiplied by."""
    return 2 / (length * float(np.square(_window(length), dtype=np.float64).sum()))


@lru_cache(maxsize=8)
def _bands(length: int, rate_hz: int) -> list[tuple[int, int]]:
    """The first bin of each band, and the first beyond."""
    hz = np.arange(length // 2 + 1) * rate_hz / length
    return [(int(np.searchsorted(hz, low)), int(np.searchsorted(hz, high))) for low, high in BANDS_HZ]


def alone_shares(sound: Samples, rate_hz: int) -> Numbers:
    """Share of frames in which a sensor crackles far above all others, who would hear it, too, were it out there."""
    if len(sound) < 2 or np.ptp(sound, axis=1).max() < _LEAST_LOUD:
        return np.zeros(len(sound))
    # Of the differences between samples: what crackles is white, what treads or blows is not.
    frames = _frames(sound[:, 1:] - sound[:, :-1], round(_SHORT_FRAME_SECONDS * rate_hz))
    loud = np.full(frames.shape[:2], _SILENCE_DB)
    maybe = np.vecdot(frames, frames) > _LEAST_LOUD**2 * frames.shape[2]
    loud[maybe] = _robust_levels_db(frames[maybe])
    beside = np.convolve((loud > _LOUD_DB).any(axis=0), np.ones(2 * _ARRIVAL_FRAMES + 1), "same") > 0
    if not beside.any():
        return np.zeros(len(sound))
    loud[:, beside] = _robust_levels_db(frames[:, beside])
    padded = np.pad(loud, ((0, 0), (_ARRIVAL_FRAMES, _ARRIVAL_FRAMES)), constant_values=_SILENCE_DB)
    nearby = np.lib.stride_tricks.sliding_window_view(padded, 2 * _ARRIVAL_FRAMES + 1, axis=1).max(axis=2)
    second, first = np.sort(nearby, axis=0)[-2:]
    loudest_other = np.where(nearby == first, second, first)
    return np.asarray(((loud > _LOUD_DB) & (loud > loudest_other + _ALONE_DB)).mean(axis=1))


def _robust_levels_db(frames: Samples) -> Numbers:
    """Level by the median of magnitudes, which single samples do not move."""
    half = frames.shape[-1] // 2
    magnitudes = np.abs(frames - np.partition(frames, half)[..., half, None])
    deviation = _OF_NORMAL * np.partition(magnitudes, half)[..., half].astype(np.float64)
    return np.asarray(20 * np.log10(np.maximum(deviation, 1e-10)))


def _frames(sound: Samples, length: int) -> Samples:
    """(sensors, frames, samples), what fills no frame left out."""
    n = sound.shape[1] // length
    return sound[:, : n * length].reshape(len(sound), n, length)


@lru_cache(maxsize=8)
def _window(length: int) -> Samples:
    return np.hanning(length).astype(np.float32)


_SINGLE = tuple(
    field.name
    for field in fields(Measures)
    if field.name not in ("start", "stop", "floor_db", "relations", "waited_seconds")
)
COLUMNS = {name: place for place, name in enumerate(_SINGLE)}
"""Where each of the numbers of a sensor stands in a table;"""
FLOORS = slice(len(_SINGLE), None)
"""and its floors, band by band."""
