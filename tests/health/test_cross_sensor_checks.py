"""Checks name the sensor at fault, leave the others alone, and keep silent where nothing is heard in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.health import cross_sensor_checks
from pipeline.health.cross_sensor import WINDOW_SECONDS, Relations, relations
from pipeline.health.cross_sensor_checks import (
    HISTORY,
    ArrivalBaseline,
    Found,
    causes,
    crosstalk,
    polarity,
    rate_error,
    swapped,
    unrelated,
    usual,
)

RATE = 8_000
SECONDS = 12
PLACES_M = np.array([[-7.0, 3.0], [-3.0, -2.0], [2.0, 3.0], [8.0, -3.0]])
BEGINS = 3
Sound = NDArray[np.float64]


@cache
def passing(seed: int, *, steps: bool = True) -> Sound:
    """Somebody walks past four sensors, on sand: bursts of noise, twice a second, later and weaker with distance."""
    rng = np.random.default_rng(seed)
    sound = 0.01 * rng.standard_normal((4, SECONDS * RATE))
    direction, aside = rng.choice([-1, 1]), rng.normal(0, 0.5)
    for moment in np.arange(0.2, SECONDS - 0.5, 0.5) if steps else ():
        place = np.array([direction * 1.4 * (moment - SECONDS / 2), aside])
        burst = rng.standard_normal(800) * np.exp(-np.arange(800) / 250)
        for row, far in zip(sound, np.linalg.norm(PLACES_M - place, axis=1), strict=True):
            start = round((moment + far / 340) * RATE)
            row[start : start + 800] += burst / far
    return sound


def measured(sound: Sound) -> list[Relations]:
    length = round(WINDOW_SECONDS * RATE)
    starts = range(0, sound.shape[1] - length + 1, RATE)
    return [relations(sound[:, at : at + length].astype(np.float32), np.ones(4, np.bool_), RATE) for at in starts]


@cache
def usual_here() -> ArrivalBaseline:
    return usual(window for seed in range(100, 110) for window in measured(passing(seed)))


def judged(sound: Sound, seconds: int = BEGINS + 8) -> dict[str, Found]:
    """All that is ever found until some seconds after the fault began."""
    history, ever = measured(sound), dict[str, Found]()
    for now in range(1, seconds + 1):
        for cause, found in causes(history[:now][-HISTORY:], usual_here(), ever).items():
            if found:
                ever[cause] = ever.get(cause, {}) | found
    return ever


def from_then(seed: int, sensor: int, row: Sound) -> Sound:
    sound = passing(seed).copy()
    sound[sensor, BEGINS * RATE :] = row[BEGINS * RATE :]
    return sound


SEEDS = (1, 2, 3)
EVERY = [(seed, (seed + k) % 4) for seed in SEEDS for k in (0, 1)]


@pytest.mark.parametrize("seed", range(1, 9))
def test_of_healthy_sensors_nothing_is_said(seed: int) -> None:
    assert judged(passing(seed), SECONDS) == {}


@pytest.mark.parametrize("fault", [-1.0, 0.0])
def test_where_nothing_is_heard_in_common_nothing_is_said(fault: float) -> None:
    quiet = passing(1, steps=False).copy()
    quiet[2] = fault * quiet[2] if fault else passing(2)[2]
    assert judged(quiet) == {}


@pytest.mark.parametrize(("seed", "sensor"), EVERY)
def test_a_negated_sensor_is_named(seed: int, sensor: int) -> None:
    found = judged(from_then(seed, sensor, -passing(seed)[sensor]))
    assert {cause: [*sensors] for cause, sensors in found.items()} == {"polarity": [sensor]}
    assert found["polarity"][sensor]["agreement"] < -0.9


@pytest.mark.parametrize("leak", [0.6, 0.95])
@pytest.mark.parametrize(("seed", "victim"), EVERY)
def test_the_victim_of_a_leak_is_named_and_not_its_source(seed: int, victim: int, leak: float) -> None:
    source = (victim + 1 + seed % 3) % 4
    mixed = (1 - leak) * passing(seed)[victim] + leak * passing(seed)[source]
    found = judged(from_then(seed, victim, mixed))
    if leak > 0.9 and not found:
        return  # hardly anything is its own any more: nobody may know who leaks into whom
    assert {cause: [*sensors] for cause, sensors in found.items()} == {"crosstalk": [victim]}
    assert found["crosstalk"][victim]["with_sensor"] == source


def test_the_victim_of_a_large_leak_is_not_known_without_what_is_usual() -> None:
    mixed = 0.001 * passing(1)[0] + 0.999 * passing(1)[1]
    assert crosstalk(measured(from_then(1, 0, mixed))) == {}


@pytest.mark.parametrize(("seed", "sensor"), EVERY)
def test_sound_of_another_time_is_named(seed: int, sensor: int) -> None:
    found = judged(from_then(seed, sensor, np.roll(passing(seed + 50)[sensor], RATE // 4)))
    assert {cause: [*sensors] for cause, sensors in found.items()} == {"stale": [sensor]}


def test_a_sensor_of_mere_noise_is_incoherent() -> None:
    found = judged(from_then(1, 2, passing(9, steps=False)[2]))
    assert {cause: [*sensors] for cause, sensors in found.items()} == {"incoherent": [2]}


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("seed", SEEDS)
def test_both_of_two_exchanged_sensors_are_named(seed: int, pair: tuple[int, int]) -> None:
    sound, (a, b) = passing(seed).copy(), pair
    sound[[a, b], BEGINS * RATE :] = sound[[b, a], BEGINS * RATE :]
    found = judged(sound)
    assert {cause: sorted(sensors) for cause, sensors in found.items()} == {"swapped": [a, b]}
    assert found["swapped"][a]["with_sensor"] == b


@pytest.mark.parametrize("share", [0.005, 0.011, -0.011, 0.017])
@pytest.mark.parametrize("sensor", range(4))
def test_a_wrong_clock_is_named_with_its_error(sensor: int, share: float) -> None:
    from scipy.interpolate import CubicSpline

    own = passing(3)[sensor]
    at = np.arange(len(own) - BEGINS * RATE) * (1 - share)
    late = np.concatenate([own[: BEGINS * RATE], CubicSpline(np.arange(len(own)), own)(BEGINS * RATE + at)])
    found = judged(from_then(3, sensor, late), BEGINS + 5)
    assert {cause: [*sensors] for cause, sensors in found.items()} == {"rate_error": [sensor]}
    assert found["rate_error"][sensor]["rate_error"] == pytest.approx(share, abs=0.003)


def test_who_left_all_lags_by_a_wrong_clock_is_not_stale_but_still_late() -> None:
    history = measured(from_then(1, 2, np.roll(passing(60)[2], RATE // 4)))
    assert [*causes(history, usual_here(), {"rate_error": [2]})["rate_error"]] == [2]


def by_hand(arrivals: Sound, *, blurred: int | None = None) -> list[Relations]:
    """Windows in each of which four sensors hear two sounds, half a second apart; one of them hears less clearly."""
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    likeness = np.where((pairs == blurred).any(axis=1), 0.5, 0.9)
    windows = []
    for two in arrivals.reshape(-1, 2, 4):
        heard = np.full((8, 4), np.nan, np.float32)
        heard[[1, 5]] = two - two.mean(axis=1, keepdims=True)
        correlation = np.where(np.isfinite(heard[:, :1]), likeness, 0.05).astype(np.float32)
        lag = (heard[:, pairs[:, 1]] - heard[:, pairs[:, 0]]).astype(np.float32)
        nothing = np.zeros((8, 6), np.float32)
        unknown = np.full(4, np.nan, np.float32)
        calm = np.zeros((8, 4), np.float32)
        windows.append(Relations(pairs, np.ones(4, np.bool_), correlation, lag, nothing, heard, unknown, calm))
    return windows


def walk(seconds: int = 8, *, start_m: float = -6.0, speed: float = 1.4) -> Sound:
    moments = np.arange(0, seconds, 0.5)
    places = np.column_stack([start_m + speed * moments, 0 * moments])
    return np.linalg.norm(places[:, None] - PLACES_M, axis=2) / 340


def ways() -> ArrivalBaseline:
    return usual(w for start in np.linspace(-12, -4, 9) for w in by_hand(walk(14, start_m=start)))


@pytest.mark.parametrize("share", [0.0025, -0.006, 0.012])
def test_lateness_that_grows_is_a_rate_even_if_no_stretch_was_told(share: float) -> None:
    late = walk()
    late[:, 1] += share * np.arange(0, 8, 0.5)
    found = rate_error(by_hand(late, blurred=1), ways())
    assert [*found] == [1]
    assert found[1]["rate_error"] == pytest.approx(share, rel=0.15)
    assert rate_error(by_hand(walk(), blurred=1), ways()) == {}


def test_without_what_is_usual_nobody_is_swapped_or_late() -> None:
    nothing = usual([])
    assert len(nothing.arrival_seconds) == 0
    exchanged = by_hand(walk()[:, [1, 0, 2, 3]])
    assert swapped(exchanged, ways()).keys() == {0, 1}
    assert swapped(exchanged, nothing) == {}
    assert rate_error(exchanged, nothing) == {}
    assert causes(exchanged)["swapped"] == {}


def test_what_is_usual_survives_many_bad_windows_and_stays_small() -> None:
    rng = np.random.default_rng(0)
    good = [w for start in rng.uniform(-12, -4, 200) for w in by_hand(walk(14, start_m=start))]
    bad = [w for _ in range(90) for w in by_hand(rng.uniform(-0.03, 0.03, (28, 4)))]
    learned = usual(good[i] if i < len(good) else bad[i - len(good)] for i in rng.permutation(len(good) + len(bad)))
    places = np.linspace(-12, 14, 2000)
    known = np.linalg.norm(np.column_stack([places, 0 * places])[:, None] - PLACES_M, axis=2) / 340
    known -= known.mean(axis=1, keepdims=True)
    off = np.abs(learned.arrival_seconds[:, None] - known).max(axis=2).min(axis=1)
    assert len(learned.arrival_seconds) <= 600
    assert np.mean(off < 1e-3) > 0.95


@pytest.mark.parametrize("n_sensors", [1, 2, 3, 64])
def test_any_number_of_sensors(n_sensors: int) -> None:
    rng = np.random.default_rng(0)
    sound = rng.standard_normal((n_sensors, round(WINDOW_SECONDS * RATE))).astype(np.float32)
    history: Sequence[Relations] = [relations(sound, np.ones(n_sensors, np.bool_), RATE)] * HISTORY
    assert not any(causes(history, usual(history)).values())


def test_nothing_is_found_in_no_history() -> None:
    assert not any(causes([], usual([])).values())
    assert polarity([]) == unrelated([]) == crosstalk([]) == {}


def test_distances_are_deviations_of_differences_over_the_sensors_that_heard_both() -> None:
    """Row by row, whichever sensors heard nothing; of less than three in common nothing is known."""
    rng = np.random.default_rng(2)
    rows, others = (rng.normal(0, 0.02, (n, 5)).astype(np.float32) for n in (7, 9))
    for table in (rows, others):
        table[1:][rng.random((len(table) - 1, 5)) < 0.3] = np.nan
    found = cross_sensor_checks._distances(rows, others)
    for i, row in enumerate(rows):
        for j, other in enumerate(others):
            apart = (row.astype(float) - other)[np.isfinite(row) & np.isfinite(other)]
            assert found[i, j] == pytest.approx(np.std(apart) if len(apart) >= 3 else np.inf, abs=1e-9)


def test_what_a_window_says_is_found_once_and_forgotten_with_it() -> None:
    window = measured(passing(1))[4]
    calls = []
    often = cross_sensor_checks._once_a_window(lambda window, sensor: calls.append(sensor) or len(calls))
    assert [often(window, 1), often(window, 2), often(window, 1)] == [1, 2, 1]
    cross_sensor_checks.forget(window)
    assert often(window, 1) == 3
