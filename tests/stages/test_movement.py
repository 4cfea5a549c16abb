"""Straight paths past known sensors, recovered from their levels."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.stages.movement import movement

PLACES = np.array([[-7.5, 3.0], [-2.5, -3.0], [2.5, 3.0], [7.5, -3.0]])


def levels(velocity, at, noise=0.0, seed=0, seconds=20.0, floor=-5.0):
    """Levels every half second of a source that is `at` a place in the middle."""
    rng = np.random.default_rng(seed)
    t = np.arange(0, seconds, 0.5)
    path = np.array(at) + np.outer(t - t.mean(), velocity)
    distance = np.linalg.norm(path[:, None] - PLACES, axis=2)
    return t, np.maximum(
        30 - 20 * np.log10(np.hypot(distance, 0.5)) + noise * rng.standard_normal(distance.shape), floor
    )


def angle(one, other):
    return abs((one - other + 180) % 360 - 180)


@pytest.mark.parametrize("heading", [0.0, 180.0, 10.0, 350.0, 170.0])
@pytest.mark.parametrize("offset", [0.0, 1.0, -1.5])
def test_a_path_without_noise_is_recovered(heading, offset):
    turn = np.radians(heading)
    velocity = 1.4 * np.array([np.cos(turn), np.sin(turn)])
    found = movement(*levels(velocity, (0.0, offset)), PLACES)
    assert angle(found.direction_degrees, heading) < 3
    assert found.speed_mps == pytest.approx(1.4, rel=0.05)
    assert found.nearest_m[1] == pytest.approx(offset * np.cos(turn) ** 2, abs=0.3)


def test_errors_cover_the_truth_about_as_often_as_they_say():
    """With noise of 2 dB, nine in ten speeds lie within three standard errors."""
    inside = []
    for seed in range(40):
        found = movement(*levels((1.4, 0.0), (0.0, 0.5), noise=2.0, seed=seed), PLACES)
        if found is not None:
            inside.append(abs(found.speed_mps - 1.4) < 3 * found.speed_error_mps)
    assert len(inside) > 30
    assert np.mean(inside) > 0.9


def test_turning_the_array_turns_the_path():
    """Positions turned by 90 degrees: so is the direction, and nothing else changes."""
    t, found_levels = levels((1.2, 0.2), (0.0, 0.5), noise=1.0)
    turned = np.column_stack([-PLACES[:, 1], PLACES[:, 0]])
    one, other = movement(t, found_levels, PLACES), movement(t, found_levels, turned)
    assert angle(other.direction_degrees, one.direction_degrees + 90) < 0.5
    assert other.speed_mps == pytest.approx(one.speed_mps, rel=1e-2)


def test_nothing_is_said_where_nothing_is_known():
    t, found = levels((1.4, 0.0), (0.0, 0.0))
    assert movement(t, np.full_like(found, np.nan), PLACES) is None
    assert movement(t, np.full_like(found, 1.0), PLACES) is None
    only_one = np.where(np.arange(4) == 1, found, np.nan)
    assert movement(t, only_one, PLACES) is None


def test_noise_alone_has_no_path():
    """Levels that do not depend on time: hardly ever a path with a small error."""
    rng = np.random.default_rng(0)
    t = np.arange(0, 20, 0.5)
    found = [movement(t, 8 + 2 * rng.standard_normal((len(t), 4)), PLACES) for _ in range(30)]
    assert sum(one is not None for one in found) <= 5
