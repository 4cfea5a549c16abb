"""A sensor that fails must not speak against its neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.learners.array_screen import ArrayScreen

N_RECORDINGS, PER_RECORDING, N_SENSORS, N_FEATURES = 60, 10, 4, 20
EVERYONE = np.ones(N_SENSORS, np.bool_)


def heard(rng: np.random.Generator, n: int) -> np.ndarray:
    """Segments of an array in a row: one scene for all, something that neighbours share, and noise."""
    scene = rng.standard_normal((n, 1, N_FEATURES))
    along = rng.standard_normal((n, N_SENSORS + 1, N_FEATURES))
    return scene + 0.3 * (along[:, :-1] + along[:, 1:]) + 0.1 * rng.standard_normal((n, N_SENSORS, N_FEATURES))


@pytest.fixture(scope="module")
def screen() -> ArrayScreen:
    X = heard(np.random.default_rng(0), N_RECORDINGS * PER_RECORDING)
    groups = np.repeat(np.arange(N_RECORDINGS), PER_RECORDING)
    return ArrayScreen.learn(X, np.ones(X.shape[:2]), groups, groups % 5)


@pytest.mark.parametrize("failing", [(0,), (2,), (0, 1), (1, 2), (0, 3)])
def test_who_is_unlike_itself_is_as_good_as_masked(screen, failing):
    broken, well = list(failing), [s for s in range(N_SENSORS) if s not in failing]
    for x in heard(np.random.default_rng(1), 50):
        # Only where the others are beyond doubt; a chance refusal among them is another matter.
        masked = screen.p_values(x, EVERYONE, ~np.isin(np.arange(N_SENSORS), broken))
        if min(masked.both[well]) <= 0.01 or min(masked.own[well]) <= 0.02:
            continue
        x[broken] = 100.0
        found = screen.p_values(x, EVERYONE, EVERYONE)
        assert (found.both[broken] <= 0.01).all()
        np.testing.assert_array_equal(found.both[well], masked.both[well])


@pytest.mark.parametrize("stale", [(1,), (1, 2), (0, 2)])
def test_healthy_sensors_are_seldom_refused_beside_nominal_sound_of_other_moments(screen, stale):
    rng = np.random.default_rng(2)
    scene, broken, well = heard(rng, 400), list(stale), [s for s in range(N_SENSORS) if s not in stale]
    for s in broken:
        scene[:, s] = heard(rng, 400)[:, s]
    p = np.array([screen.p_values(x, EVERYONE, EVERYONE).both for x in scene])
    assert np.mean(p[:, broken] <= 0.01) > 0.8
    assert np.mean(p[:, well] <= 0.01) < 0.04


def test_of_two_that_contradict_each_other_neither_is_believed(screen):
    rng = np.random.default_rng(3)
    scene = heard(rng, 200)
    scene[:, 1] = heard(rng, 200)[:, 1]
    pair = np.array([True, True, False, False])
    p = np.array([screen.p_values(x, pair, pair).both for x in scene])
    assert (np.mean(p[:, :2] <= 0.01, axis=0) > 0.8).all()


def test_healthy_sensors_keep_their_false_alarm_rate(screen):
    p = np.array([screen.p_values(x, EVERYONE, EVERYONE).both for x in heard(np.random.default_rng(4), 2000)])
    for alpha in (0.01, 0.05, 0.1):
        n_reference = N_RECORDINGS * PER_RECORDING
        error = np.sqrt(alpha * (1 - alpha) * (1 / len(p) + 1 / n_reference))
        assert abs(np.mean(p <= alpha) - alpha) < 3 * error


def test_an_array_of_many_sensors_remembers_no_more_sets_of_partners_than_it_may(screen, monkeypatch):
    monkeypatch.setattr("pipeline.learners.array_screen._MOST_TABLES", 3)
    screen._tables.clear()
    rng = np.random.default_rng(5)
    for x in heard(rng, 50):
        screen.p_values(x, rng.random(N_SENSORS) < 0.7, EVERYONE)
        assert len(screen._tables) <= 3
