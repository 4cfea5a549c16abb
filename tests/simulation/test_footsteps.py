"""Gait and weather, against the published numbers they are drawn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.simulation.footsteps import SPECIES, SURFACES, Path, contact, draw_walker, footfalls
from pipeline.simulation.weather import Weather, background, wind_noise

SECONDS, RATE = 30.0, 8000


def walker(seed: int = 0, *, animal: bool = False):
    return draw_walker(np.random.default_rng(seed), animal=animal, surface_name="gravel", duration_seconds=SECONDS)


def times(person, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([s.seconds for s in footfalls(person, rng, duration_seconds=SECONDS, rate_hz=RATE)])


def test_people_walk_at_the_published_rate():
    """1.9 ± 0.15 steps a second, at about 1.35 m/s; all within the published 95 to 160 a minute."""
    people = [walker(seed) for seed in range(300)]
    rates = np.array([person.steps_per_second for person in people])
    assert rates.mean() == pytest.approx(1.9, abs=0.03)
    assert rates.std() == pytest.approx(0.15, abs=0.02)
    assert rates.min() >= 95 / 60
    assert rates.max() <= 160 / 60
    assert np.mean([person.path.speed_m_per_s for person in people]) == pytest.approx(1.35, abs=0.05)


def test_a_step_is_a_heel_and_a_toe():
    """Toes follow their heels by 80 to 150 ms, heels each other by one over the step rate, varying by 2 to 4 %."""
    person = walker(3)
    heels, toes = times(person)[::2], times(person)[1::2]
    assert ((toes - heels > 0.06) & (toes - heels < 0.19)).all()
    intervals = np.diff(heels)
    assert intervals.mean() == pytest.approx(1 / person.steps_per_second, rel=0.03)
    assert 0.01 < intervals.std() / intervals.mean() < 0.06


def test_animals_add_four_beats_a_stride():
    """The animal's contacts come on top of the human's, four for each of its strides, in even quarters for a horse."""
    person = next(w for w in (walker(seed, animal=True) for seed in range(50)) if w.animal == "horse")
    alone = replace(person, animal=None)
    beats = times(person)[len(times(alone)) :]
    assert len(beats) == pytest.approx(4 * SECONDS * person.strides_per_second, rel=0.05)
    quarters = np.diff(np.sort(beats)) * person.strides_per_second
    assert np.median(quarters) == pytest.approx(0.25, abs=0.02)
    assert set(SPECIES) == {w.animal for w in (walker(seed, animal=True) for seed in range(60))}


def test_the_path_is_walked_at_its_speed():
    """Where somebody is, is a matter of time; the animal follows behind."""
    path = Path((1.0, 2.0), np.pi / 2, 1.5, 10.0)
    assert path.place(10.0) == pytest.approx((1.0, 2.0))
    assert path.place(12.0) == pytest.approx((1.0, 5.0))
    assert path.place(12.0, behind_m=2.0) == pytest.approx((1.0, 3.0))
    assert path.place(10.0, aside_m=0.5) == pytest.approx((0.5, 2.0))


@pytest.mark.parametrize("surface", SURFACES)
def test_a_contact_has_weight_below_and_noise_above(surface):
    """Most energy lies below 500 Hz or in the band of the surface, it rises at once, and it dies away."""
    person = draw_walker(np.random.default_rng(1), animal=False, surface_name=surface, duration_seconds=SECONDS)
    sound = contact(person.feet[0], np.random.default_rng(2), 16_000)
    power = np.cumsum(sound**2) / np.sum(sound**2)
    assert power[round(0.25 * 16_000)] > 0.95
    assert np.abs(sound[-160:]).max() < 3e-3 * np.abs(sound).max()
    spectrum = np.abs(np.fft.rfft(sound)) ** 2
    frequency = np.fft.rfftfreq(len(sound), 1 / 16_000)
    resonance = person.feet[0].resonance_hz
    assert 20 <= resonance <= 90
    assert spectrum[frequency < 8000].sum() > 0.99 * spectrum.sum()
    assert 10 < frequency[: round(len(frequency) * 0.02)][spectrum[: round(len(frequency) * 0.02)].argmax()] < 160


def third_octave_level(noise: np.ndarray, centre_hz: float, rate_hz: int) -> float:
    power = np.abs(np.fft.rfft(noise)) ** 2 / (len(noise) ** 2) * 2
    frequency = np.fft.rfftfreq(noise.shape[-1], 1 / rate_hz)
    band = (frequency >= centre_hz * 2 ** (-1 / 6)) & (frequency < centre_hz * 2 ** (1 / 6))
    return float(10 * np.log10(power[band].sum() / 4e-10))


@pytest.mark.parametrize("speed", [2.0, 5.0])
def test_wind_noise_has_the_published_spectrum_and_is_another_one_at_every_sensor(speed):
    """40 lg V - 23 lg (f D / V) + 15 dB in each third of an octave; no correlation between sensors."""
    weather = Weather(wind_m_per_s=speed, background_db=30, tilt=1, rain_drops_per_second=0, night=False)
    noise = wind_noise(weather, np.random.default_rng(0), n_sensors=4, length=120 * 2000, rate_hz=2000)
    for centre in (20.0, 50.0, 100.0):
        expected = 40 * np.log10(speed) - 23 * np.log10(centre * 0.1 / speed) + 15
        levels = [third_octave_level(row, centre, 2000) for row in noise]
        assert np.mean(levels) == pytest.approx(expected, abs=1)
    assert np.abs(np.corrcoef(noise) - np.eye(4)).max() < 0.1


def test_background_has_its_level():
    """The level that was asked for, and more when crickets sing or rain falls."""
    quiet = Weather(wind_m_per_s=0, background_db=35, tilt=1, rain_drops_per_second=0, night=False)
    make = {"n_sensors": 2, "length": 16_000 * 10, "rate_hz": 16_000}

    def level(weather: Weather) -> float:
        noise = background(weather, np.random.default_rng(0), **make)
        return float(10 * np.log10(np.mean(noise**2) / 4e-10))

    assert level(quiet) == pytest.approx(35, abs=0.1)
    assert level(replace(quiet, night=True)) > 35.03
    assert level(replace(quiet, rain_drops_per_second=30)) > 36
