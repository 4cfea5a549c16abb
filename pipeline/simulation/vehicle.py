"""The sound of a slow vehicle that drives past: engine orders, tire noise, and a moving source in still air."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.simulation.faults import interpolated
from pipeline.simulation.footsteps import Path, band_noise
from pipeline.simulation.propagation import NEAREST_M, REFERENCE_PA, Air, Floats

_LEAD_SECONDS = 1.0  # emitted before the passage begins, so that its delayed start is not cut
_TABLE = 4096  # points of one engine cycle
_ORDERS = 12
_PART = 65_536
_KNOT_SECONDS = 0.2  # of what wanders: engine speed and load


@dataclass(frozen=True, slots=True)
class Vehicle:
    """Engine and tires of one vehicle; levels are sound pressure levels at a distance of 1 m."""

    firing_hz: float
    orders_db: tuple[float, ...]
    """Level of each order against the first; even places are multiples of the firing rate, odd ones lie between."""
    jitter: float
    """Standard deviation of the firing rate as a share of it."""
    engine_db: float
    tire_db: float
    tire_band_hz: tuple[float, float]


def draw_vehicle(rng: np.random.Generator, speed_m_per_s: float) -> Vehicle:
    """Draw a vehicle at a given speed; tires get louder by 9 dB per doubling of the speed."""
    orders = -2.5 * np.arange(_ORDERS) + rng.normal(0, 3, _ORDERS)
    between = orders - rng.uniform(6, 14, _ORDERS)
    low = float(rng.uniform(300, 600))
    return Vehicle(
        firing_hz=float(rng.uniform(28, 60)),
        orders_db=tuple(map(float, np.ravel(np.column_stack([between, orders])))),
        jitter=float(rng.uniform(0.005, 0.02)),
        engine_db=float(rng.normal(67, 3)),
        tire_db=float(rng.normal(62, 2) + 30 * np.log10(speed_m_per_s / 5)),
        tire_band_hz=(low, low * float(rng.uniform(3, 5))),
    )


def drive_by(
    vehicle: Vehicle, path: Path, rng: np.random.Generator, *, sensors_m: Floats, length: int, rate_hz: int, air: Air
) -> Floats:
    """Pressure at every sensor, (sensors, length), with Doppler shift; air absorption is left out."""
    emitted = _emission(vehicle, rng, length + round(_LEAD_SECONDS * rate_hz), rate_hz)
    heard = np.empty((len(sensors_m), length))
    for row, sensor in zip(heard, sensors_m, strict=True):
        for start in range(0, length, _PART):  # the temporary arrays of a minute would be large
            part = row[start : start + _PART]
            samples = np.arange(start, start + len(part))
            at, distance = _emission_times(path, sensor, samples / rate_hz, air)
            part[:] = interpolated(emitted, (at + _LEAD_SECONDS) * rate_hz) / distance
    return heard


def _emission_times(path: Path, sensor: Floats, seconds: Floats, air: Air) -> tuple[Floats, Floats]:
    """For times at a sensor: when the sound was emitted that arrives then, and from how far away."""
    knots = np.arange(np.floor(seconds[0]) - _LEAD_SECONDS, seconds[-1] + 0.05, 0.05)
    distance = np.maximum(np.hypot(*(path.places(knots) - sensor).T), NEAREST_M)
    arrival = knots + distance / air.speed_m_per_s
    return np.interp(seconds, arrival, knots), np.interp(seconds, arrival, distance)


def _emission(vehicle: Vehicle, rng: np.random.Generator, length: int, rate_hz: int) -> Floats:
    """Pressure at 1 m."""
    speed = vehicle.firing_hz * np.clip(1 + vehicle.jitter * _wander(rng, length, rate_hz), 0.8, 1.2)
    phase = (np.cumsum(speed) / rate_hz / 2) % 1.0  # of a cycle of two firings, in which orders between them fit
    engine = np.interp(phase * _TABLE, np.arange(_TABLE + 1), _cycle(vehicle, rng, rate_hz))
    engine *= 1 + 0.15 * _wander(rng, length, rate_hz)
    tires = band_noise(vehicle.tire_band_hz, rng, length, rate_hz)
    emitted: Floats = _pascal(vehicle.engine_db) * engine + _pascal(vehicle.tire_db) * tires
    return emitted


def _cycle(vehicle: Vehicle, rng: np.random.Generator, rate_hz: int) -> Floats:
    """One engine cycle of unit power, with its first point again at the end."""
    turn = np.arange(_TABLE + 1) / _TABLE
    wave = np.zeros(_TABLE + 1)
    for order, level in enumerate(vehicle.orders_db, start=1):
        if order / 2 * vehicle.firing_hz < 0.4 * rate_hz:
            wave += 10 ** (level / 20) * np.sin(2 * np.pi * (order * turn + rng.random()))
    scaled: Floats = wave / np.sqrt(np.mean(wave[:-1] ** 2))
    return scaled


def _wander(rng: np.random.Generator, length: int, rate_hz: int) -> Floats:
    """Slow change of about unit variance."""
    every = round(_KNOT_SECONDS * rate_hz)
    knots = np.arange(0, length + 2 * every, every)
    smooth = np.convolve(rng.standard_normal(len(knots) + 4), np.ones(5) / np.sqrt(5), mode="valid")
    wandering: Floats = np.interp(np.arange(length), knots, smooth)
    return wandering


def _pascal(level_db: float) -> float:
    return float(REFERENCE_PA * 10 ** (level_db / 20))
