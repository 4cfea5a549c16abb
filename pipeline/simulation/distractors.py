"""Sounds that are no passage: a bird on a housing, thunder, a car far away, drops on the housings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.simulation.footsteps import band_noise
from pipeline.simulation.propagation import REFERENCE_PA, Floats

BIRD, THUNDER, CAR, DROPS = "bird_on_housing", "thunder", "distant_car", "rain_drops"
KINDS = (BIRD, THUNDER, CAR, DROPS)
_SHARES = (0.35, 0.1, 0.35, 0.2)
_SECONDS = {BIRD: (3.0, 20.0), THUNDER: (6.0, 15.0), CAR: (30.0, 60.0), DROPS: (15.0, 60.0)}
_SOUND_M_PER_S = 343.0


@dataclass(frozen=True, slots=True)
class Distractor:
    """A sound other than a passage; `sensor` counts from 0 and is None if all sensors record it."""

    number: int
    kind: str
    start_seconds: float
    end_seconds: float
    sensor: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _Array:
    """Where and how a distractor is recorded."""

    sensors_m: Floats
    length: int
    rate_hz: int
    sensor: int | None

    @property
    def seconds(self) -> Floats:
        return np.arange(self.length) / self.rate_hz


def draw_distractor(number: int, rng: np.random.Generator, *, within_seconds: float, n_sensors: int) -> Distractor:
    """Draw kind, time and sensor of a distractor that lies within a stretch of time from 0 on."""
    kind = str(rng.choice(KINDS, p=_SHARES))
    seconds = min(float(rng.uniform(*_SECONDS[kind])), within_seconds)
    start = float(rng.uniform(0, within_seconds - seconds))
    sensor = int(rng.integers(n_sensors))
    return Distractor(number, kind, start, start + seconds, sensor if kind == BIRD else None)


def distractor_pressure(
    distractor: Distractor, rng: np.random.Generator, *, sensors_m: Floats, length: int, rate_hz: int
) -> Floats:
    """Pressure at every sensor from the distractor's start on, (sensors, length), in pascal."""
    return _SOUNDS[distractor.kind](_Array(sensors_m, length, rate_hz, distractor.sensor), rng)


def _bird(array: _Array, rng: np.random.Generator) -> Floats:
    """A thump of landing, then bouts of pecking and scraping, carried by one housing only."""
    rate_hz, row = array.rate_hz, np.zeros(array.length)
    duration = array.length / rate_hz
    resonance = float(rng.uniform(1200, 3500))
    _put(row, 0.05, _knock(rng, rate_hz, 140.0, 0.03, 78.0), rate_hz)
    seconds = 0.4
    while seconds < duration - 1.0:
        for _ in range(int(rng.integers(3, 9))):
            _put(row, seconds, _knock(rng, rate_hz, resonance, 0.005, float(rng.normal(74, 3))), rate_hz)
            seconds += 1 / float(rng.uniform(5, 11))
        if rng.random() < 0.5:
            scrape = band_noise((800.0, 3000.0), rng, round(0.25 * rate_hz), rate_hz) * np.hanning(
                round(0.25 * rate_hz)
            )
            _put(row, seconds, _pascal(float(rng.normal(56, 3))) * scrape, rate_hz)
        seconds += float(rng.uniform(0.3, 2.0))
    pressure = np.zeros((len(array.sensors_m), array.length))
    pressure[array.sensor or 0] = row
    return pressure


def _thunder(array: _Array, rng: np.random.Generator) -> Floats:
    """Rumble of several claps from kilometers away: the farther, the lower and the longer."""
    rate_hz, t = array.rate_hz, array.seconds
    envelope = np.zeros(array.length)
    last = max(array.length / rate_hz - 4.0, 0.5)
    for start in np.sort(rng.uniform(0, last, int(rng.integers(3, 8)))):
        after = np.maximum(t - start, 0)
        envelope += 10 ** (rng.normal(0, 4) / 20) * (1 - np.exp(-after / 0.15)) * np.exp(-after / rng.uniform(0.6, 1.8))
    cutoff = float(rng.uniform(70, 250))
    rumble = band_noise((20.0, cutoff), rng, array.length, rate_hz) * envelope
    return _plane_wave(_at_level(_faded(rumble, rate_hz, 0.5), float(rng.uniform(58, 74))), array, rng)


def _car(array: _Array, rng: np.random.Generator) -> Floats:
    """Slow rise and fall of low-passed noise and a weak engine tone, nearly equal at all sensors."""
    rate_hz, t = array.rate_hz, array.seconds
    middle = t[-1] / 2
    envelope = np.exp(-0.5 * ((t - middle) / (0.2 * t[-1])) ** 2)
    noise = band_noise((60.0, float(rng.uniform(250, 500))), rng, array.length, rate_hz)
    tone = np.sin(2 * np.pi * float(rng.uniform(35, 80)) * t + 3 * np.sin(2 * np.pi * 0.05 * t))
    rolling = _at_level(_faded((noise + 0.5 * tone) * envelope, rate_hz, 2.0), float(rng.uniform(42, 54)))
    return _plane_wave(rolling, array, rng)


def _drops(array: _Array, rng: np.random.Generator) -> Floats:
    """Heavy drops, such as from a branch: every housing has times and tones of its own."""
    pressure = np.zeros((len(array.sensors_m), array.length))
    seconds = array.length / array.rate_hz
    rate = float(rng.uniform(1.0, 5.0))
    for row in pressure:
        tone = float(rng.uniform(700, 3000))
        for at in rng.uniform(0, seconds - 0.1, rng.poisson(rate * (seconds - 0.1))):
            pitch = tone * float(np.exp(rng.normal(0, 0.1)))
            _put(row, at, _knock(rng, array.rate_hz, pitch, 0.004, float(rng.normal(64, 5))), array.rate_hz)
    return pressure


_SOUNDS: dict[str, Callable[[_Array, np.random.Generator], Floats]] = {
    BIRD: _bird,
    THUNDER: _thunder,
    CAR: _car,
    DROPS: _drops,
}


def _knock(rng: np.random.Generator, rate_hz: int, pitch_hz: float, ringing_seconds: float, peak_db: float) -> Floats:
    """A damped tone with a click of noise, of a given peak level."""
    t = np.arange(round(0.08 * rate_hz)) / rate_hz
    ring = np.sin(2 * np.pi * min(pitch_hz, 0.4 * rate_hz) * t + 0.3) + 0.3 * rng.standard_normal(len(t))
    knock: Floats = _pascal(peak_db) * ring * np.exp(-t / ringing_seconds) * np.minimum(1, (t[-1] - t) / 0.01)
    return knock


def _put(row: Floats, seconds: float, sound: Floats, rate_hz: int) -> None:
    start = round(seconds * rate_hz)
    stop = min(start + len(sound), len(row))
    if start < stop:
        row[start:stop] += sound[: stop - start]


def _faded(sound: Floats, rate_hz: int, seconds: float) -> Floats:
    """Ends that rise and fall within some seconds."""
    edge = max(min(round(seconds * rate_hz), len(sound) // 2), 1)
    place = np.arange(len(sound))
    nearest = np.minimum(place, place[::-1])
    faded: Floats = sound * np.sin(np.pi / 2 * np.minimum(1, nearest / edge)) ** 2
    return faded


def _at_level(sound: Floats, peak_db: float) -> Floats:
    """A sound whose loudest second has the given level."""
    width = max(len(sound) // 20, 1)
    power = np.add.reduceat(sound**2, np.arange(0, len(sound), width)) / width
    scaled: Floats = sound * _pascal(peak_db) / np.sqrt(max(float(power.max()), 1e-30))
    return scaled


def _plane_wave(sound: Floats, array: _Array, rng: np.random.Generator) -> Floats:
    """The same sound at every sensor, delayed as from far away and within half a decibel."""
    from scipy.fft import irfft, next_fast_len, rfft

    bearing = rng.uniform(0, 2 * np.pi)
    delays = array.sensors_m @ np.array([np.cos(bearing), np.sin(bearing)]) / _SOUND_M_PER_S
    gains = 10 ** (rng.normal(0, 0.25, len(delays)) / 20)
    margin = round(0.25 * array.rate_hz)
    size = next_fast_len(array.length + 2 * margin, real=True)
    spectrum = rfft(sound, n=size)
    frequency = np.arange(len(spectrum)) * array.rate_hz / size
    heard = np.empty((len(delays), array.length))
    for row, delay, gain in zip(heard, delays, gains, strict=True):
        row[:] = gain * irfft(spectrum * np.exp(-2j * np.pi * frequency * delay), n=size)[: array.length]
    return heard


def _pascal(level_db: float) -> float:
    return float(REFERENCE_PA * 10 ** (level_db / 20))
