"""What sensors have in common is measured as it was made: delay, sign, share of a leak, stretch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.health.cross_sensor import WINDOW_SECONDS, Relations, relations

RATE = 16_000
N = round(WINDOW_SECONDS * RATE)
ALL = np.ones(4, np.bool_)


def noise(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def delayed(samples: tuple[int, ...], *, own: float = 0.1, seed: int = 0) -> NDArray[np.float32]:
    """One noise at several sensors, each of which has a little noise of its own."""
    source = noise(N + 2000, seed=seed)
    return np.stack([source[1000 - d : 1000 - d + N] for d in samples]) + own * noise(len(samples), N, seed=seed + 1)


def test_a_delay_is_found_between_all_pairs() -> None:
    delays = (0, 80, -160, 400)
    found = relations(delayed(delays), ALL, RATE)
    first, second = found.pairs.T
    expected = (np.array(delays)[second] - np.array(delays)[first]) / RATE
    np.testing.assert_allclose(found.lag_seconds, np.tile(expected, (8, 1)), atol=1.5e-4)
    arrivals = (np.array(delays) - np.mean(delays)) / RATE
    np.testing.assert_allclose(found.arrival_seconds, np.tile(arrivals, (8, 1)), atol=1.5e-4)


def test_a_negated_sensor_has_peaks_near_minus_one_at_the_same_delays() -> None:
    sound = delayed((0, 80, -160, 400), own=0.01)
    plain, negated = relations(sound, ALL, RATE), relations(sound * np.float32([[1], [-1], [1], [1]]), ALL, RATE)
    with_1 = (plain.pairs == 1).any(axis=1)
    np.testing.assert_array_equal(negated.correlation, np.where(with_1, -1, 1) * plain.correlation)
    np.testing.assert_array_equal(negated.lag_seconds, plain.lag_seconds)
    assert (np.median(negated.correlation[:, with_1], axis=0) < -0.7).all()


@pytest.mark.parametrize("leak", [0.3, 0.6, 0.95])
def test_a_leak_correlates_at_once_by_its_share(leak: float) -> None:
    """Of two independent noises x and y, (1 - a) x + a y and y correlate by a / sqrt(a^2 + (1 - a)^2)."""
    sound = noise(2, N)
    sound[0] = (1 - leak) * sound[0] + leak * sound[1]
    found = relations(sound, np.ones(2, np.bool_), RATE)
    assert np.mean(found.at_once) == pytest.approx(leak / np.hypot(leak, 1 - leak), abs=0.03)


@pytest.mark.parametrize("rate_hz", [2_000, 4_000, 11_025, 16_000, 44_100, 96_000])
def test_independent_noise_has_nothing_in_common_at_any_rate(rate_hz: int) -> None:
    found = relations(noise(4, round(WINDOW_SECONDS * rate_hz)), ALL, rate_hz)
    assert np.isnan(found.lag_seconds).all()
    assert np.isnan(found.arrival_seconds).all()
    assert np.isnan(found.stretch).all()
    assert np.abs(found.at_once).max() < 0.5


@pytest.mark.parametrize("rate_hz", [2_000, 96_000])
def test_a_delay_is_found_at_any_rate(rate_hz: int) -> None:
    late = round(0.02 * rate_hz)
    source = noise(round(WINDOW_SECONDS * rate_hz) + late)
    found = relations(np.stack([source[late:], source[:-late]]), np.ones(2, np.bool_), rate_hz)
    np.testing.assert_allclose(found.lag_seconds, late / rate_hz, atol=6e-4)


@pytest.mark.parametrize("stretch", [-0.011, 0.005, 0.02])
def test_a_stretched_sound_tells_by_how_much(stretch: float) -> None:
    found = relations(knocks((0, 0, stretch, 0)), ALL, RATE)
    assert np.isnan(found.stretch[[0, 1, 3]]).all()
    assert found.stretch[2] == pytest.approx(stretch, abs=1e-6)


def knocks(stretches: tuple[float, ...]) -> NDArray[np.float32]:
    """Bursts of many tones, written down for any time, so that a stretched one needs no interpolation."""
    rng = np.random.default_rng(3)
    hertz, phase = rng.uniform(200, 3800, 300), rng.uniform(0, 2 * np.pi, 300)
    rows = []
    for stretch in stretches:
        t = np.arange(N)[:, None] / RATE - 0.5
        t = t / (1 + stretch)
        tones = np.cos(2 * np.pi * hertz * t + phase).sum(axis=1) * np.exp(-((t[:, 0] / 0.04) ** 2))
        rows.append(tones + 0.05 * rng.standard_normal(N))
    return np.array(rows, np.float32)


def test_sensors_without_sound_have_no_relations_and_leave_the_others_alone() -> None:
    sound = delayed((0, 10, 20, 30, 40, 50))
    broken = sound.copy()
    broken[0], broken[1], broken[2, 7], broken[3] = np.nan, 0.0, np.inf, 0.25
    healthy, found = (relations(rows, np.ones(6, np.bool_), RATE) for rows in (sound, broken))
    both = (found.pairs >= 4).all(axis=1)
    np.testing.assert_array_equal(found.known, [False] * 4 + [True] * 2)
    np.testing.assert_array_equal(found.correlation[:, both], healthy.correlation[:, both])
    np.testing.assert_array_equal(found.lag_seconds[:, both], healthy.lag_seconds[:, both])
    assert not found.correlation[:, ~both].any()
    assert np.isnan(found.lag_seconds[:, ~both]).all()


def test_what_was_not_delivered_does_not_count() -> None:
    found = relations(delayed((0, 10, 20, 30)), np.array([True, True, True, False]), RATE)
    assert np.isnan(found.arrival_seconds[:, 3]).all()
    assert np.isfinite(found.arrival_seconds[:, :3]).all()


@pytest.mark.parametrize("n_sensors", [1, 2, 3, 9, 64])
def test_any_number_of_sensors_and_few_pairs_of_many(n_sensors: int) -> None:
    found = relations(delayed(tuple(range(n_sensors))), np.ones(n_sensors, np.bool_), RATE)
    assert len(found.pairs) <= max(3 * n_sensors, 28)
    assert found.arrival_seconds.shape == (8, n_sensors)
    if n_sensors > 2:
        steps = np.diff(found.arrival_seconds, axis=1)
        np.testing.assert_allclose(steps, 1 / RATE, atol=1.3e-4)


def test_gain_does_not_matter_and_the_same_sound_gives_the_same_bits() -> None:
    sound = delayed((0, 10, 20, 30))
    one, two = relations(sound, ALL, RATE), relations(sound * np.float32([[1], [2], [2**-20], [2**60]]), ALL, RATE)
    for name in Relations.__annotations__:
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes(), name
        assert not getattr(one, name).flags.writeable


def test_correlations_are_those_of_whitened_spectra_at_every_delay() -> None:
    """Against sums over frequencies in double precision, written down for every half step of delay."""
    found = relations(delayed((0, 37, -81), own=1.0), np.ones(3, np.bool_), RATE)
    sound = delayed((0, 37, -81), own=1.0).astype(np.float64)
    white = np.array([[whitened(row[at : at + 4000]) for at in range(0, N - 3999, 2000)] for row in sound])
    steps = 0.25 / 4050 * np.arange(-1620, 1621)
    turns = np.exp(2j * np.pi * np.outer(4 * np.arange(25, 1001), steps))
    for pair, (a, b) in enumerate(found.pairs.tolist()):
        alike = (white[b] * white[a].conj() @ turns).real
        at = np.abs(alike).argmax(axis=1)
        np.testing.assert_allclose(found.correlation[:, pair], alike[np.arange(8), at], atol=1e-5)
        np.testing.assert_allclose(found.lag_seconds[:, pair], steps[at], atol=1e-8)
        np.testing.assert_allclose(found.at_once[:, pair], alike[:, 1620], atol=1e-5)


def whitened(frame: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Bins of 4 Hz from 100 to 4000 Hz, of the same power in each of sixteen bands, one in all."""
    used = np.fft.rfft(frame * np.hanning(4001)[:-1])[25:1001]
    edges = np.unique(np.round(np.geomspace(25, 1001, 17)).astype(int)) - 25
    for first, beyond in itertools.pairwise(edges):
        used[first:beyond] *= np.sqrt((beyond - first) / 976 / (np.abs(used[first:beyond]) ** 2).sum())
    return used


def test_what_a_sensor_hears_does_not_depend_on_how_many_others_there_are() -> None:
    """To the bit: pairs of three sensors are the same among five, however faint the others are."""
    sound = delayed((0, 37, -81, 5, 300), own=1.0) * np.float32([[1], [1], [1], [1e-9], [1e20]])
    few, many = (relations(sound[:n], np.ones(n, np.bool_), RATE) for n in (3, 5))
    both = (many.pairs < 3).all(axis=1)
    for name in ("correlation", "lag_seconds", "at_once"):
        np.testing.assert_array_equal(getattr(few, name), getattr(many, name)[:, both])
    np.testing.assert_array_equal(few.activity_db, many.activity_db[:, :3])
