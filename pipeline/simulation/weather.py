"""What the sensors hear besides steps: wind at each of them, and the sounds of a place at all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.simulation.propagation import REFERENCE_PA, EmittedSound, Floats

_THIRD_OCTAVE = 2 ** (1 / 6) - 2 ** (-1 / 6)  # bandwidth of a third of an octave, in parts of its centre


@dataclass(frozen=True, slots=True)
class Weather:
    """Conditions of one recording."""

    wind_m_per_s: float
    background_db: float
    tilt: float
    """How fast the background falls with frequency: its power goes as 1 / f**tilt."""
    rain_drops_per_second: float
    night: bool
    windscreen_m: float = 0.1


def draw_weather(rng: np.random.Generator) -> Weather:
    """Mostly a breeze, sometimes rain, as often night as day."""
    return Weather(
        wind_m_per_s=float(2.0 * rng.weibull(2.0)),
        background_db=float(rng.normal(33, 3)),
        tilt=float(rng.uniform(0.7, 1.3)),
        rain_drops_per_second=float(rng.uniform(5, 40)) if rng.random() < 0.08 else 0.0,
        night=bool(rng.random() < 0.5),
    )


def wind_noise(weather: Weather, rng: np.random.Generator, *, n_sensors: int, length: int, rate_hz: int) -> Floats:
    """Turbulence at every screen for itself: gusts are shared in part, the pressure is not."""
    speed = weather.wind_m_per_s
    steady = _shaped(lambda f: wind_density(f, speed, weather.windscreen_m), rng, n_sensors, length, rate_hz)
    shared, own = _gusts(rng, 1, length, rate_hz), _gusts(rng, n_sensors, length, rate_hz)
    gust = np.clip(1 + 0.35 * (0.6 * shared + 0.8 * own), 0.1, None)
    noise: Floats = steady * gust**2 / np.sqrt(np.mean(gust**4))
    return noise


def wind_density(frequency_hz: Floats, speed: float, diameter_m: float) -> Floats:
    """Power density in Pa²/Hz of a screened microphone: a third-octave level of
    40 lg V - 23 lg (f D / V) + 15 dB, level below f D / V = 0.1."""
    reduced = np.maximum(frequency_hz * diameter_m / max(speed, 1e-3), 0.1)
    level = 40 * np.log10(max(speed, 1e-3)) - 23 * np.log10(reduced) + 15
    width = np.maximum(reduced * max(speed, 1e-3) / diameter_m * _THIRD_OCTAVE, 1e-3)
    density: Floats = REFERENCE_PA**2 * 10 ** (level / 10) / width
    return density


def background(weather: Weather, rng: np.random.Generator, *, n_sensors: int, length: int, rate_hz: int) -> Floats:
    """Leaves, distant roads, insects: noise that is another one at every sensor, for they stand metres apart."""
    noise = _shaped(lambda f: np.maximum(f, 20.0) ** -weather.tilt, rng, n_sensors, length, rate_hz)
    noise *= REFERENCE_PA * 10 ** (weather.background_db / 20) / np.sqrt(np.mean(noise**2))
    if weather.night:
        noise += _crickets(rng, n_sensors, length, rate_hz)
    if weather.rain_drops_per_second:
        noise += _rain(weather.rain_drops_per_second, rng, n_sensors, length, rate_hz)
    return noise


def birds(weather: Weather, rng: np.random.Generator, *, duration_seconds: float, rate_hz: int) -> list[EmittedSound]:
    """Chirps from trees around the array, by day."""
    if weather.night:
        return []
    return [chirp(rng, duration_seconds, rate_hz) for _ in range(rng.poisson(4))]


def chirp(rng: np.random.Generator, duration_seconds: float, rate_hz: int) -> EmittedSound:
    """Draw one call of a bird that begins within the duration."""
    t = np.arange(round(rng.uniform(0.08, 0.25) * rate_hz)) / rate_hz
    start_hz, end_hz = rng.uniform(2000, 5500, 2)
    length = len(t) / rate_hz
    phase = 2 * np.pi * (start_hz * t + (end_hz - start_hz) * t**2 / (2 * length))
    audible = max(start_hz, end_hz) < 0.45 * rate_hz
    pressure = REFERENCE_PA * 10 ** (rng.normal(62, 4) / 20) * np.sin(phase) * np.sin(np.pi * t / length) ** 2 * audible
    far, bearing = rng.uniform(15, 60), rng.uniform(0, 2 * np.pi)
    return EmittedSound(rng.uniform(0, duration_seconds), (far * np.cos(bearing), far * np.sin(bearing)), pressure)


def _crickets(rng: np.random.Generator, n_sensors: int, length: int, rate_hz: int) -> Floats:
    """A chorus around 4.5 kHz that pulses."""
    t = np.arange(length) / rate_hz
    pitch, pulse = rng.normal(4500, 200), rng.uniform(15, 30)
    if pitch > 0.45 * rate_hz:
        return np.zeros((n_sensors, length))
    level = REFERENCE_PA * 10 ** (rng.normal(24, 4) / 20) * rng.uniform(0.5, 1.5, (n_sensors, 1))
    phase = rng.uniform(0, 2 * np.pi, (n_sensors, 1))
    song: Floats = level * np.sin(2 * np.pi * pitch * t + phase) * np.clip(np.sin(2 * np.pi * pulse * t), 0, None)
    return song


def _rain(drops_per_second: float, rng: np.random.Generator, n_sensors: int, length: int, rate_hz: int) -> Floats:
    """Drops on every housing."""
    drops = (rng.random((n_sensors, length)) < drops_per_second / rate_hz) * rng.exponential(0.004, (n_sensors, length))
    ring = np.exp(-np.arange(round(0.01 * rate_hz)) / (0.002 * rate_hz)) * rng.standard_normal(round(0.01 * rate_hz))
    return np.stack([np.convolve(row, ring)[:length] for row in drops])


def _gusts(rng: np.random.Generator, n: int, length: int, rate_hz: int) -> Floats:
    """Slow wandering of unit variance, a few seconds long."""
    every = round(0.5 * rate_hz)
    knots = np.arange(-2 * every, length + 4 * every, every)
    walk = rng.standard_normal((n, len(knots)))
    smooth = np.stack([np.convolve(row, np.ones(5) / np.sqrt(5), mode="same") for row in walk])
    return np.stack([np.interp(np.arange(length), knots, row) for row in smooth])


def _shaped(density: Callable[[Floats], Floats], rng: np.random.Generator, n: int, length: int, rate_hz: int) -> Floats:
    """Noise of a given one-sided power density, independent in every row."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = next_fast_len(length, real=True)
    frequency = np.arange(size // 2 + 1) * rate_hz / size
    gain = np.sqrt(density(np.maximum(frequency, rate_hz / size)) * rate_hz / 2)
    gain[0] = 0.0
    noise: Floats = irfft(rfft(rng.standard_normal((n, size))) * gain, n=size)[:, :length]
    return noise
