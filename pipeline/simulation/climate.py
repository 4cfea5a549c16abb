"""Weather and background sound that change slowly through the day.

All of it is a function of the seed and of absolute time, made in pieces of `PIECE_SECONDS`. A piece needs none of the
others: where two of them meet, both fade into the same short stretch of noise that belongs to the border.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import Samples
from pipeline.simulation.microphones import FULL_SCALE_PA, SELF_NOISE_DB, response
from pipeline.simulation.propagation import REFERENCE_PA, Air, EmittedSound, Floats, arrivals
from pipeline.simulation.weather import chirp, wind_density

PIECE_SECONDS = 15
BAND_HZ = (100.0, 4000.0)
"""Signal-to-noise ratios are measured in this band."""
_FADE_SECONDS = 0.5  # of a piece into the noise of its border
_DAY_SECONDS = 86_400
_KNOT_SECONDS = 600  # of the slow changes of wind and level
_KNOTS_A_DAY = _DAY_SECONDS // _KNOT_SECONDS
_SHOWERS_A_DAY = 2.0
_GUST_DEPTH = 0.35
_CALM_M_PER_S = 0.5
_WINDSCREEN_M = 0.1
# Streams of chance: those of other parts of the simulation begin with other numbers.
_STREAM = 41
_AMBIENCE, _WIND, _RAIN, _SELF, _GUSTS, _BIRDS, _CRICKETS, _DROPS, _SHOWERS, _LEVEL, _SPEED = range(1, 12)


@dataclass(frozen=True, slots=True)
class Shower:
    """Rain that begins within seconds and thins out towards its end."""

    start_seconds: float
    end_seconds: float
    level_db: float
    drops_per_second: float

    def strength(self, seconds: Floats) -> Floats:
        """Return the amplitude against that of its beginning, 0 outside."""
        into, left = seconds - self.start_seconds, self.end_seconds - seconds
        fading = 0.3 * (self.end_seconds - self.start_seconds)
        share: Floats = np.clip(np.minimum(into / 2.0, left / fading), 0.0, 1.0)
        return share


@dataclass(frozen=True, eq=False)
class Climate:
    """Wind, level of the background, showers, crickets and birds as functions of absolute time.

    Absolute second 0 is `start_hour` o'clock of the first day.
    """

    seed: int
    start_hour: float = 0.0
    tilt: float = field(init=False)
    """Power of the background goes as 1 / f**tilt."""
    _knots: dict[tuple[int, int], Floats] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tilt", float(self.chance(_AMBIENCE, -1).uniform(0.7, 1.3)))

    def chance(self, purpose: int, index: int, part: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, _STREAM, purpose, part, index + 2])

    def hour(self, seconds: Floats) -> Floats:
        """Return the time of day from 0 to 24."""
        hours: Floats = (self.start_hour + seconds / 3600) % 24
        return hours

    def wind_m_per_s(self, seconds: Floats) -> Floats:
        """Return the mean wind speed: calm at night, strongest in the afternoon, wandering by a factor."""
        usual = 0.8 + 1.6 * _bump(self.hour(seconds), 15.0, 5.0)
        speed: Floats = np.clip(usual * np.exp(0.4 * self._wander(_SPEED, seconds)), 0.2, 8.0)
        return speed

    def ambience_db(self, seconds: Floats) -> Floats:
        """Return the level of the background without wind noise and rain; leaves make it rise with the wind."""
        busy = 8.0 * _bump(self.hour(seconds), 13.0, 4.5)
        leaves = 10.0 * np.log10(np.maximum(self.wind_m_per_s(seconds), _CALM_M_PER_S) / _CALM_M_PER_S)
        level: Floats = 27.0 + busy + leaves + 2.0 * self._wander(_LEVEL, seconds)
        return level

    def cricket_share(self, seconds: Floats) -> Floats:
        """Return the amplitude of the crickets, from 0 by day to 1 at night."""
        return np.clip(1.6 * _bump(self.hour(seconds), 0.5, 3.5) - 0.2, 0.0, 1.0)

    def birds_per_second(self, seconds: Floats) -> Floats:
        """Return the mean number of chirps: most at dawn, some by day, none at night."""
        hour = self.hour(seconds)
        rate: Floats = np.clip(0.8 * _bump(hour, 5.5, 1.2) + 0.15 * _bump(hour, 12.5, 4.5) - 0.02, 0.0, None)
        return rate

    def showers(self, start_seconds: float, end_seconds: float) -> list[Shower]:
        """Return the showers that touch a stretch of time."""
        first, last = int(start_seconds // _DAY_SECONDS) - 1, int(end_seconds // _DAY_SECONDS)
        drawn = [shower for day in range(max(first, 0), last + 1) for shower in self._showers_of(day)]
        return [shower for shower in drawn if shower.start_seconds < end_seconds and shower.end_seconds > start_seconds]

    def rain(self, seconds: Floats) -> Floats:
        """Return the amplitude of the rain, in pascal."""
        amplitude = np.zeros(len(seconds))
        for shower in self.showers(float(seconds[0]), float(seconds[-1]) + 1e-9):
            amplitude += _pascal(shower.level_db) * shower.strength(seconds)
        return amplitude

    def _showers_of(self, day: int) -> list[Shower]:
        rng = self.chance(_SHOWERS, day)
        starts = day * _DAY_SECONDS + rng.uniform(0, _DAY_SECONDS, rng.poisson(_SHOWERS_A_DAY))
        return [
            Shower(float(start), float(start + rng.uniform(600, 2400)), float(rng.uniform(36, 46)), rng.uniform(1, 8))
            for start in starts
        ]

    def _wander(self, purpose: int, seconds: Floats) -> Floats:
        """Return a slow change of unit variance with a correlation of about half an hour."""
        place = np.asarray(seconds) / _KNOT_SECONDS
        first, last = int(np.floor(place.min())) - 2, int(np.floor(place.max())) + 3
        knots = np.arange(first, last + 1)
        drawn = np.array([self._drawn(purpose, int(knot) // _KNOTS_A_DAY)[knot % _KNOTS_A_DAY] for knot in knots])
        smooth = np.convolve(drawn, np.ones(5) / np.sqrt(5), mode="valid")
        wandering: Floats = np.interp(place, knots[2:-2], smooth)
        return wandering

    def _drawn(self, purpose: int, day: int) -> Floats:
        if (purpose, day) not in self._knots:
            self._knots[purpose, day] = self.chance(purpose, day).standard_normal(_KNOTS_A_DAY)
        return self._knots[purpose, day]


@dataclass(frozen=True, eq=False)
class DayBackground:
    """What sensors record while nobody is there, in parts of full scale and made piece by piece."""

    climate: Climate
    sensors_m: Floats
    gains: Floats
    rate_hz: int
    air: Air

    @property
    def length(self) -> int:
        """Return the number of samples of a piece."""
        return PIECE_SECONDS * self.rate_hz

    def piece(self, number: int) -> Samples:
        """Return piece `number` of the background, (sensors, length)."""
        knots = self._knots(number)
        white = self.climate.chance(_SELF, number).standard_normal((len(self.gains), self.length), dtype=np.float32)
        sound = np.float32(_pascal(SELF_NOISE_DB)) * white
        ambience = _pascal(self.climate.ambience_db(knots))
        self._add_noise(sound, _AMBIENCE, number, np.tile(ambience, (len(self.gains), 1)))
        self._add_noise(sound, _WIND, number, self._wind_amplitude(number, knots))
        rain = self.climate.rain(knots)
        if rain.any():
            self._add_noise(sound, _RAIN, number, np.tile(rain, (len(self.gains), 1)))
            sound += self._drops(number, rain)
        crickets = self.climate.cricket_share(knots)
        if crickets.any():
            sound += self._crickets(number, crickets)
        chirps = [*self._chirps(number - 1, PIECE_SECONDS), *self._chirps(number, 0)]
        if chirps:
            sound += arrivals(chirps, self.sensors_m, length=self.length, rate_hz=self.rate_hz, air=self.air)
        sound *= (self.gains[:, None] / FULL_SCALE_PA).astype(np.float32)
        return sound

    def band_power(self, seconds: Floats) -> Floats:
        """Return the expected power in `BAND_HZ` at each sensor, (sensors, times), without birds and single drops."""
        climate = self.climate
        power = (
            _pascal(climate.ambience_db(seconds)) ** 2 * self._in_band(_AMBIENCE)
            + _wind_reference(climate.wind_m_per_s(seconds)) ** 2 * self._in_band(_WIND)
            + climate.rain(seconds) ** 2 * self._in_band(_RAIN)
            + _pascal(SELF_NOISE_DB) ** 2 * (min(BAND_HZ[1], self.rate_hz / 2) - BAND_HZ[0]) / (self.rate_hz / 2)
        )
        expected: Floats = power * (self.gains[:, None] / FULL_SCALE_PA) ** 2
        return expected

    def _knots(self, number: int) -> Floats:
        """Whole seconds of a piece, with the end."""
        return number * PIECE_SECONDS + np.arange(PIECE_SECONDS + 1.0)

    def _in_band(self, purpose: int) -> float:
        size = 2 * self.rate_hz
        gain = _spectrum(purpose, self.climate.tilt, size, self.rate_hz)
        frequency = np.arange(size // 2 + 1) * self.rate_hz / size
        inside = (frequency >= BAND_HZ[0]) & (frequency <= BAND_HZ[1])
        return float(2 * np.sum(np.square(gain[inside], dtype=np.float64)) * 2 / size**2)

    def _wind_amplitude(self, number: int, knots: Floats) -> Floats:
        """Gusts are shared in part; turbulence at each windscreen is its own."""
        drawn = [
            self.climate.chance(_GUSTS, piece).standard_normal((1 + len(self.gains), PIECE_SECONDS))
            for piece in (number - 1, number, number + 1)
        ]
        walk = np.concatenate(drawn, axis=1)
        smooth = (walk[:, :-2] + walk[:, 1:-1] + walk[:, 2:]) / np.sqrt(3)
        gusts = smooth[:, PIECE_SECONDS - 1 : 2 * PIECE_SECONDS]
        factor = np.clip(1 + _GUST_DEPTH * (0.6 * gusts[0] + 0.8 * gusts[1:]), 0.1, None) ** 2
        # The mean square of such factors, for chance of unit variance.
        usual = np.sqrt(1 + 6 * _GUST_DEPTH**2 + 3 * _GUST_DEPTH**4)
        amplitude: Floats = factor / usual * _wind_reference(self.climate.wind_m_per_s(knots))
        return amplitude

    def _add_noise(self, sound: Samples, purpose: int, number: int, amplitude: Floats) -> None:
        """Add noise of one color with an amplitude that is given at whole seconds."""
        noise = self._noise(purpose, number)
        noise *= _between_seconds(amplitude, self.rate_hz)
        sound += noise

    def _noise(self, purpose: int, number: int) -> Samples:
        """Stationary noise that goes on into the pieces before and after."""
        fade = round(_FADE_SECONDS * self.rate_hz)
        noise = self._drawn_noise(purpose, number, 0, self.length)
        before = self._drawn_noise(purpose, number, 1, 2 * fade)
        after = self._drawn_noise(purpose, number + 1, 1, 2 * fade)
        rise = np.sin(np.arange(fade) * (np.pi / 2 / fade)).astype(np.float32)
        fall = np.cos(np.arange(fade) * (np.pi / 2 / fade)).astype(np.float32)
        noise[:, :fade] = noise[:, :fade] * rise + before[:, fade:] * fall
        noise[:, -fade:] = noise[:, -fade:] * fall + after[:, :fade] * rise
        return noise

    def _drawn_noise(self, purpose: int, number: int, part: int, size: int) -> Samples:
        from scipy.fft import irfft

        gain = _spectrum(purpose, self.climate.tilt, size, self.rate_hz)
        rng = self.climate.chance(purpose, number, part)
        drawn = rng.standard_normal((len(self.gains), 2 * len(gain)), dtype=np.float32).view(np.complex64)
        noise: Samples = irfft(drawn * gain, n=size, overwrite_x=True)
        return noise

    def _drops(self, number: int, rain: Floats) -> Samples:
        """Single drops on the housings, each sensor its own; none in the last 10 ms, so that none is cut."""
        rng, rate_hz = self.climate.chance(_DROPS, number), self.rate_hz
        start = float(number * PIECE_SECONDS)
        rate = max(shower.drops_per_second for shower in self.climate.showers(start, start + PIECE_SECONDS))
        ring = np.exp(-np.arange(round(0.01 * rate_hz)) / (0.002 * rate_hz))
        sound = np.zeros((len(self.gains), self.length), np.float32)
        for row in sound:
            for at in rng.integers(0, self.length - len(ring), rng.poisson(rate * PIECE_SECONDS * np.mean(rain > 0))):
                row[at : at + len(ring)] += rng.exponential(0.002) * ring * rng.standard_normal(len(ring))
        return sound

    def _crickets(self, number: int, share: Floats) -> Samples:
        """Two choruses near 4.5 kHz that pulse, at each sensor with a level and phase of its own."""
        rng = self.climate.chance(_CRICKETS, -1)
        seconds = number * PIECE_SECONDS + np.arange(self.length) / self.rate_hz
        envelope = _between_seconds(share[None], self.rate_hz)[0]
        song = np.zeros((len(self.gains), self.length), np.float32)
        for _ in range(2):
            pitch, pulse, level = rng.normal(4500, 250), rng.uniform(15, 30), rng.normal(23, 3)
            loud = _pascal(level) * rng.uniform(0.5, 1.5, len(self.gains))
            phase = rng.uniform(0, 2 * np.pi, len(self.gains))
            if pitch > 0.45 * self.rate_hz:
                continue
            beat = envelope * np.clip(np.sin(2 * np.pi * pulse * seconds), 0, None)
            turn = 2 * np.pi * ((pitch * seconds) % 1.0)
            sine, cosine = (beat * np.sin(turn)).astype(np.float32), (beat * np.cos(turn)).astype(np.float32)
            mix = (loud * [np.cos(phase), np.sin(phase)]).astype(np.float32)
            song += mix[0][:, None] * sine + mix[1][:, None] * cosine
        return song

    def _chirps(self, number: int, ago_seconds: float) -> list[EmittedSound]:
        """Birds that begin to sing during a piece which began some seconds before the one that is made."""
        middle = np.array([(number + 0.5) * PIECE_SECONDS])
        rng = self.climate.chance(_BIRDS, number)
        count = rng.poisson(PIECE_SECONDS * float(self.climate.birds_per_second(middle)[0]))
        chirps = [chirp(rng, PIECE_SECONDS, self.rate_hz) for _ in range(count)]
        return [EmittedSound(one.seconds - ago_seconds, one.place_m, one.pressure) for one in chirps]


def _bump(hour: Floats, center: float, width: float) -> Floats:
    """A bell over the hours of the day, 1 at its center."""
    away = (hour - center + 12) % 24 - 12
    bell: Floats = np.exp(-0.5 * (away / width) ** 2)
    return bell


def _pascal(level_db: Floats | float) -> Floats:
    amplitude: Floats = REFERENCE_PA * 10 ** (np.asarray(level_db) / 20)
    return amplitude


def _wind_reference(speed: Floats) -> Floats:
    """Amplitude of wind noise against a wind of 1 m/s: its power goes as V**6.3 at the frequencies of interest."""
    amplitude: Floats = speed**3.15
    return amplitude


_DENSITIES: dict[int, Callable[[Floats, float], Floats]] = {
    _AMBIENCE: lambda f, tilt: np.maximum(f, 20.0) ** -tilt / _power(20.0, 8000.0, tilt),
    _WIND: lambda f, tilt: wind_density(f, 1.0, _WINDSCREEN_M),
    _RAIN: lambda f, tilt: 1 / ((1 + (600.0 / f) ** 4) * (1 + (f / 6000.0) ** 4)) / 5900.0,
}
"""Power per hertz of each noise: of unit power, but for the wind, which is in pascal at 1 m/s."""


def _power(low_hz: float, high_hz: float, tilt: float) -> float:
    """Integral of f**-tilt, with what lies flat below `low_hz`."""
    rest = (
        np.log(high_hz / low_hz)
        if abs(tilt - 1) < 1e-9
        else (high_hz ** (1 - tilt) - low_hz ** (1 - tilt)) / (1 - tilt)
    )
    return float(low_hz ** (1 - tilt) + rest)


@lru_cache(maxsize=32)
def _spectrum(purpose: int, tilt: float, size: int, rate_hz: int) -> NDArray[np.float32]:
    """Amplitudes by which complex chance of variance 2 becomes the spectrum of a noise behind the microphone."""
    frequency = np.maximum(np.arange(size // 2 + 1) * rate_hz / size, rate_hz / size)
    density = _DENSITIES[purpose](frequency, tilt) * np.abs(response(size, rate_hz)) ** 2
    gain = np.sqrt(density * rate_hz * size / 4)
    gain[0] = gain[-1] = 0.0
    amplitudes: NDArray[np.float32] = gain.astype(np.float32)
    return amplitudes


def _between_seconds(values: Floats, rate_hz: int) -> Samples:
    """Values at whole seconds, (rows, seconds + 1), as samples on straight lines between them."""
    share = (np.arange(rate_hz) / rate_hz).astype(np.float32)
    start, slope = values[:, :-1, None].astype(np.float32), np.diff(values)[:, :, None].astype(np.float32)
    samples: Samples = (start + slope * share).reshape(len(values), -1)
    return samples
