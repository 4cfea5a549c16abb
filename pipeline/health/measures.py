"""What a second of sound is like, for every sensor: numbers of physics, nothing learned."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.events import Mask, Numbers, Samples
from pipeline.health.together import Relations
from pipeline.snapshots import value

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
_ALONE_DB = 25.0
_ABRUPT_STEPS = 2
_SPIKE_MARGIN = 4.0
_MOST_CANDIDATES = 1000
_TONE_TO_NOISE = 10.0
_SPIKE_NEIGHBOURS = 8
_AROUND = np.delete(np.arange(-_SPIKE_NEIGHBOURS, _SPIKE_NEIGHBOURS + 1), _SPIKE_NEIGHBOURS)
_LEAST_SPIKE = 0.02
_NOTHING = -np.inf
_MOST_MISSING = 0.5  # of a second of which less is there nothing can be said
_LARGEST = np.float32(1e3)  # a file of floating-point numbers may hold any


@value
@dataclass(frozen=True, slots=True, eq=False)
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


def measure(
    samples: Samples, delivered: Mask, rate_hz: int, *, start: int, relations: Relations | None = None
) -> Measures:
    """All numbers of a second; `delivered` has a row for every sensor and a column for every sample."""
    samples = np.clip(samples, -_LARGEST, _LARGEST)
    columns: dict[str, Any] = {name: np.full(len(samples), np.nan) for name in _SINGLE}
    columns["missing"] = 1 - delivered.mean(axis=1)
    whole = np.asarray(delivered.all(axis=1))
    for sensor in np.flatnonzero(columns["missing"] <= _MOST_MISSING):
        x = (samples[sensor] if whole[sensor] else samples[sensor, delivered[sensor]]).astype(np.float64)
        columns["offset"][sensor] = x.mean()
        columns["level_db"][sensor] = level_db(x)
        columns["values"][sensor] = distinct_values(x)
        columns["at_rail"][sensor], columns["clipped"][sensor] = clipped_shares(x)
        columns["pauses"][sensor] = pauses_share(x, rate_hz)
        columns["spikes"][sensor] = count_spikes(x)
    floors = np.full((len(samples), len(BANDS_HZ)), np.nan)
    if whole.any():
        sound = samples[whole]
        floors[whole] = floors_db(sound, rate_hz)
        columns["hum"][whole] = hum_ratios(sound, rate_hz)
        columns["alone"][whole] = alone_shares(sound, rate_hz)
    stop = start + samples.shape[1]
    return Measures(start, stop, floor_db=floors, relations=relations, **columns)


def nothing_measured(start: int, stop: int, n_sensors: int, *, waited_seconds: float = 0.0) -> Measures:
    """A time in which no sensor delivered anything."""
    columns: dict[str, Any] = {name: np.full(n_sensors, np.nan) for name in _SINGLE} | {"missing": np.ones(n_sensors)}
    floors = np.full((n_sensors, len(BANDS_HZ)), np.nan)
    return Measures(start, stop, floor_db=floors, waited_seconds=waited_seconds, **columns)


def level_db(x: Numbers) -> float:
    """Effective level in dB of full scale, the mean removed; -inf where nothing moves."""
    power = float(np.mean(np.square(x - x.mean())))
    # What is left of a constant after its mean is removed is rounding, not sound.
    return 10 * np.log10(power) if power > 1e-24 + 1e-30 * float(np.mean(np.square(x))) else _NOTHING


def distinct_values(x: Numbers) -> int:
    """How many values occur, counted up to MANY_VALUES; a part of the samples often suffices to see that many."""
    few = np.unique(x[:: max(len(x) // 256, 1)])
    return min(len(few) if len(few) >= MANY_VALUES else len(np.unique(x)), MANY_VALUES)


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
    still, shortest = steps == 0, max(round(_SHORTEST_PAUSE_SECONDS * rate_hz), 12)
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


def runs_of(flags: Mask) -> NDArray[np.int64]:
    """(runs, 2): where each unbroken run of True begins, and the place after its last one."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return edges.reshape(-1, 2)


def count_spikes(x: Numbers) -> int:
    """Single samples several times as far out as anything around them: what rings is sound, a spike does not."""
    steps = np.diff(x)
    large = np.abs(steps) > _LEAST_SPIKE
    candidates = np.flatnonzero(large[:-1] & large[1:]) + 1
    candidates = candidates[steps[candidates - 1] * steps[candidates] < 0][:_MOST_CANDIDATES]
    if not len(candidates):
        return 0
    around = np.sort(x[np.clip(candidates[:, None] + _AROUND, 0, len(x) - 1)], axis=1)
    middle = around[:, _SPIKE_NEIGHBOURS - 1 : _SPIKE_NEIGHBOURS + 1].mean(axis=1)
    furthest = np.maximum(middle - around[:, 0], around[:, -1] - middle)
    return int((np.abs(x[candidates] - middle) > _SPIKE_MARGIN * furthest).sum())


def hum_ratios(sound: Samples, rate_hz: int) -> Numbers:
    """Power of mains harmonics in parts of all the rest; 0 unless three harmonics stand out of their neighbourhood."""
    from scipy.fft import rfft

    n = sound.shape[1]
    spectra = rfft((sound - sound.mean(axis=1, keepdims=True)) * _window(n))
    powers = (np.square(spectra.real) + np.square(spectra.imag)).astype(np.float64)
    return np.array([
        max(_harmonic_ratio(power, mains, rate_hz / n) for mains in _MAINS_HZ) for power in powers
    ])  # fmt: skip


def _harmonic_ratio(power: Numbers, mains_hz: float, bin_hz: float) -> float:
    """A tone fills the five bins of the window's main lobe; 6 to 20 Hz away on either side lies its neighbourhood."""
    humming, standing_out = 0.0, 0
    bins = _harmonic_bins(mains_hz, bin_hz, len(power))
    tones, below, above = (power[some].sum(axis=1) for some in bins)
    n_around = bins[1].shape[1] + bins[2].shape[1]
    for tone, around in zip(tones.tolist(), (below + above).tolist(), strict=True):
        usual = 5 * around / n_around
        if tone > _TONE_TO_NOISE * usual:
            humming += tone - usual
            standing_out += 1
    if standing_out < 3:
        return 0.0
    rest = float(power[1:].sum()) - humming
    return humming / max(rest, 1e-3 * humming)


@lru_cache(maxsize=8)
def _harmonic_bins(mains_hz: float, bin_hz: float, n_bins: int) -> tuple[Bins, Bins, Bins]:
    """(harmonics, bins): those of the tone, and of its neighbourhood below and above."""
    near, far = round(6 / bin_hz), round(20 / bin_hz)
    centres = np.array([round(harmonic * mains_hz / bin_hz) for harmonic in range(1, _HARMONICS + 1)])[:, None]
    centres = centres[centres[:, 0] + far < n_bins]
    return centres + np.arange(-2, 3), centres + np.arange(-far, -near), centres + np.arange(near, far)


def floors_db(sound: Samples, rate_hz: int) -> Numbers:
    """(sensors, bands) level of each band in the quietest frames, in dB of full scale."""
    from scipy.fft import rfft

    frames = _frames(sound, round(_FRAME_SECONDS * rate_hz))
    length = frames.shape[2]
    window = _window(length)
    spectra = rfft((frames - frames.mean(axis=2, keepdims=True)) * window)
    hz = np.arange(spectra.shape[2]) * rate_hz / length
    scale = 2 / (length * float(np.square(window, dtype=np.float64).sum()))
    bands = [np.square(np.abs(spectra[:, :, (hz >= low) & (hz < high)])).sum(axis=2) for low, high in BANDS_HZ]
    quiet = np.sort(bands, axis=2)[:, :, round(_FLOOR_QUANTILE * (frames.shape[1] - 1))] * scale
    return np.asarray(10 * np.log10(np.where(quiet.T > _NO_FLOOR, quiet.T, np.nan)), np.float64)


def alone_shares(sound: Samples, rate_hz: int) -> Numbers:
    """Share of frames in which a sensor crackles far above all others, who would hear it, too, were it out there."""
    if len(sound) < 2:
        return np.zeros(len(sound))
    # Of the differences between samples: what crackles is white, what treads or blows is not.
    loud = _robust_levels_db(_frames(np.diff(sound, axis=1), round(_SHORT_FRAME_SECONDS * rate_hz)))
    padded = np.pad(loud, ((0, 0), (_ARRIVAL_FRAMES, _ARRIVAL_FRAMES)), constant_values=-200.0)
    nearby = np.lib.stride_tricks.sliding_window_view(padded, 2 * _ARRIVAL_FRAMES + 1, axis=1).max(axis=2)
    second, first = np.sort(nearby, axis=0)[-2:]
    loudest_other = np.where(nearby == first, second, first)
    return np.asarray(((loud > _LOUD_DB) & (loud > loudest_other + _ALONE_DB)).mean(axis=1))


def _robust_levels_db(frames: Samples) -> Numbers:
    """Level by the median of magnitudes, which single samples do not move."""
    half = frames.shape[2] // 2
    magnitudes = np.abs(frames - np.partition(frames, half, axis=2)[:, :, half, None])
    deviation = 1.4826 * np.partition(magnitudes, half, axis=2)[:, :, half].astype(np.float64)
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
