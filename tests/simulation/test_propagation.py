"""Air, against published tables and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.simulation.propagation import Air, EmittedSound, arrivals

RATE = 16_000


def test_absorption_is_that_of_the_standard():
    """ISO 9613-1 at 20 °C and 50 %: decibels per kilometre at octaves from 125 to 4000 Hz."""
    frequencies = np.array([125.0, 250, 500, 1000, 2000, 4000])
    found = 1000 * Air(20, 50).absorption_db_per_m(frequencies)
    np.testing.assert_allclose(found, [0.44, 1.3, 2.7, 4.7, 9.9, 29.7], rtol=0.03)


def test_speed_of_sound():
    """331.3 m/s at 0 °C and 343 m/s at 20 °C."""
    assert Air(0).speed_m_per_s == pytest.approx(331.3)
    assert Air(20).speed_m_per_s == pytest.approx(343.2, abs=0.1)


def pulse(hz: float = 500.0) -> np.ndarray:
    """A smooth burst, far from the edges of the spectrum."""
    t = np.arange(800) / RATE
    return np.sin(2 * np.pi * hz * t) * np.hanning(800)


def heard(distance: float, *, at: float = 0.1) -> np.ndarray:
    sensors = np.array([[0.0, 0.0]])
    return arrivals([EmittedSound(at, (distance, 0.0), pulse())], sensors, length=8000, rate_hz=RATE, air=Air())[0]


@pytest.mark.parametrize("distance", [1.0, 3.7, 17.3])
def test_sound_arrives_late_and_weak(distance):
    """The pulse itself, evaluated where it should be: delayed by distance over speed, a fraction of a sample exact,
    and weaker by the distance and the absorption."""
    arrival = (0.1 + distance / Air().speed_m_per_s) * RATE
    t = (np.arange(8000) - arrival) / RATE
    inside = (t >= 0) & (t < 799 / RATE)
    expected = np.where(inside, np.sin(2 * np.pi * 500 * t) * 0.5 * (1 - np.cos(2 * np.pi * t * RATE / 799)), 0)
    loss = 10 ** (-Air().absorption_db_per_m(np.array([500.0]))[0] * distance / 20) / distance
    np.testing.assert_allclose(heard(distance), loss * expected, atol=2e-3 * loss)


def test_six_decibels_per_doubling():
    """Spreading dominates nearby."""
    ratio = np.abs(heard(4.0)).max() / np.abs(heard(8.0)).max()
    assert 20 * np.log10(ratio) == pytest.approx(6.02, abs=0.1)


def test_sound_that_begins_before_or_ends_after_the_recording_is_cut():
    """The part inside is what it would be in a longer recording."""
    place, sensors = (2.0, 0.0), np.zeros((1, 2))
    for at in (-0.03, 0.46):
        short = arrivals([EmittedSound(at, place, pulse())], sensors, length=8000, rate_hz=RATE, air=Air())[0]
        long = arrivals([EmittedSound(at + 1, place, pulse())], sensors, length=32_000, rate_hz=RATE, air=Air())[0]
        np.testing.assert_allclose(short, long[RATE : RATE + 8000], atol=1e-9)
        assert np.abs(short).max() > 0.1


def test_many_sounds_add_up():
    """Superposition."""
    sensors = np.array([[0.0, 0.0], [5.0, 1.0]])
    one, other = EmittedSound(0.1, (3.0, 0.0), pulse()), EmittedSound(0.15, (-2.0, 4.0), pulse(900))
    both = arrivals([one, other], sensors, length=8000, rate_hz=RATE, air=Air())
    apart = sum(arrivals([sound], sensors, length=8000, rate_hz=RATE, air=Air()) for sound in (one, other))
    np.testing.assert_allclose(both, apart, atol=1e-12)
