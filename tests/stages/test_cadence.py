"""Cadence of steps whose times are known, and none of noise."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.stages.cadence import CONFIDENT, cadence


def onsets(period: float, seconds: float = 20.0, jitter: float = 0.02, noise: float = 0.2, seed: int = 0) -> np.ndarray:
    """Rises of 60 ms at every step, with a jitter of each, in noise."""
    rng = np.random.default_rng(seed)
    course = noise * np.abs(rng.standard_normal(round(100 * seconds)))
    for step in np.arange(0.3, seconds - 0.3, period):
        at = round(100 * (step + rng.normal(0, jitter)))
        course[at : at + 6] += np.hanning(8)[1:-1] * rng.uniform(0.7, 1.3)
    return course


@pytest.mark.parametrize("period", [0.3, 0.4, 0.5, 0.55, 0.6, 0.75, 1.0, 1.15])
@pytest.mark.parametrize("seed", range(3))
def test_steps_at_a_known_period(period, seed):
    found = cadence(onsets(period, seed=seed), 0.01)
    assert found is not None
    assert found.per_minute == pytest.approx(60 / period, rel=0.03)
    assert found.confidence > CONFIDENT


def test_steps_of_uneven_strength_are_not_taken_for_half_as_many():
    course = onsets(0.5)
    weak = onsets(0.5)
    weak[(np.arange(len(weak)) // 50) % 2 == 1] *= 0.7
    assert cadence(weak, 0.01).per_minute == pytest.approx(cadence(course, 0.01).per_minute, rel=0.03)


def test_gain_and_steady_noise_do_not_move_it():
    course = onsets(0.55)
    assert cadence(7 * course + 3, 0.01).per_minute == pytest.approx(cadence(course, 0.01).per_minute, rel=1e-6)


def test_noise_is_hardly_ever_confident():
    """At most 5 % of 200 stretches of noise, by a margin of twice its standard error."""
    rng = np.random.default_rng(1)
    found = [cadence(np.abs(rng.standard_normal(2000)), 0.01) for _ in range(200)]
    assert np.mean([one is not None and one.confidence > CONFIDENT for one in found]) < 0.05 + 0.03


@pytest.mark.parametrize("course", [np.zeros(3000), np.ones(3000), np.zeros(0), np.ones(100)])
def test_silence_and_stretches_that_are_too_short_have_none(course):
    assert cadence(course, 0.01) is None


def test_sensors_with_peaks_of_their_own_are_less_confident_together():
    """Each sensor has a rhythm that the others do not share; the same rhythm at all is as sure as at one."""
    alone = [onsets(period, seed=seed) for seed, period in enumerate((0.31, 0.47, 0.67, 0.89))]
    together = cadence(np.stack(alone), 0.01)
    assert together is None or together.confidence < 0.6 * min(cadence(one, 0.01).confidence for one in alone)
    shared = [onsets(0.55, seed=seed) for seed in range(4)]
    assert cadence(np.stack(shared), 0.01).per_minute == pytest.approx(60 / 0.55, rel=0.03)
    assert cadence(np.stack([shared[0]] * 4), 0.01).confidence == pytest.approx(cadence(shared[0], 0.01).confidence)


def test_sensors_without_sound_take_no_part():
    course = onsets(0.5)
    gone = np.full_like(course, np.nan)
    assert cadence(np.stack([course, gone, np.zeros_like(course)]), 0.01) == cadence(course, 0.01)
    partly = course.copy()
    partly[:300] = np.nan
    assert cadence(partly, 0.01).per_minute == pytest.approx(120, rel=0.03)
    assert cadence(np.stack([gone, gone]), 0.01) is None
