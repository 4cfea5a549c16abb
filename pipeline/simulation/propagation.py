"""Sound on its way through the air: delay, spreading and absorption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

REFERENCE_PA = 20e-6  # 0 dB
NEAREST_M = 0.5  # nobody treads on a microphone
_MARGIN = 32  # samples on either side, where a delay by a fraction of a sample rings


@dataclass(frozen=True, slots=True)
class Air:
    """Still air at sea level."""

    temperature_c: float = 20.0
    humidity_percent: float = 50.0

    @property
    def speed_m_per_s(self) -> float:
        return 331.3 * float(np.sqrt(1 + self.temperature_c / 273.15))

    def absorption_db_per_m(self, frequency_hz: Floats) -> Floats:
        """Absorption of a pure tone by ISO 9613-1, at one standard atmosphere."""
        kelvin = self.temperature_c + 273.15
        ratio = kelvin / 293.15
        saturation = 10 ** (-6.8346 * (273.16 / kelvin) ** 1.261 + 4.6151)
        vapour = self.humidity_percent * saturation
        oxygen_hz = 24 + 4.04e4 * vapour * (0.02 + vapour) / (0.391 + vapour)
        nitrogen_hz = ratio**-0.5 * (9 + 280 * vapour * np.exp(-4.170 * (ratio ** (-1 / 3) - 1)))
        squared = np.square(frequency_hz)
        oxygen = 0.01275 * np.exp(-2239.1 / kelvin) * oxygen_hz / (oxygen_hz**2 + squared)
        nitrogen = 0.1068 * np.exp(-3352.0 / kelvin) * nitrogen_hz / (nitrogen_hz**2 + squared)
        absorbed: Floats = 8.686 * squared * (1.84e-11 * ratio**0.5 + ratio**-2.5 * (oxygen + nitrogen))
        return absorbed


@dataclass(frozen=True, slots=True, eq=False)
class EmittedSound:
    """What one place emits: pressure in pascal at a distance of 1 m, from `seconds` on."""

    seconds: float
    place_m: tuple[float, float]
    pressure: Floats


def arrivals(sounds: list[EmittedSound], sensors_m: Floats, *, length: int, rate_hz: int, air: Air) -> Floats:
    """Pressure at every sensor, (sensors, length): each sound delayed, spread over a sphere and absorbed."""
    heard = np.zeros((len(sensors_m), length))
    for sound in sounds:
        _add(heard, sound, sensors_m, rate_hz, air)
    return heard


def _add(heard: Floats, sound: EmittedSound, sensors_m: Floats, rate_hz: int, air: Air) -> None:
    from scipy.fft import irfft, next_fast_len, rfft

    distance = np.maximum(np.linalg.norm(sensors_m - np.array(sound.place_m), axis=1), NEAREST_M)
    arrival = (sound.seconds + distance / air.speed_m_per_s) * rate_hz
    first = np.floor(arrival).astype(int)
    size = next_fast_len(len(sound.pressure) + 2 * _MARGIN, real=True)
    spectrum = rfft(np.pad(sound.pressure, (_MARGIN, size - len(sound.pressure) - _MARGIN)))
    frequency = np.arange(len(spectrum)) * rate_hz / size
    loss = 10 ** (-np.outer(distance, air.absorption_db_per_m(frequency)) / 20) / distance[:, None]
    turn = np.exp(-2j * np.pi * np.outer(arrival - first, frequency / rate_hz))
    for row, piece, at in zip(heard, irfft(spectrum * loss * turn, n=size), first - _MARGIN, strict=True):
        start, stop = max(at, 0), min(at + size, len(row))
        if start < stop:
            row[start:stop] += piece[start - at : stop - at]
