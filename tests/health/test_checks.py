"""Every check of one sensor against numbers whose answer is known, and its two limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.sensor_state import Cause
from pipeline.health import checks
from pipeline.health.baseline import Baseline
from pipeline.health.checks import CHECKS, LONGEST_SECONDS, Recent
from pipeline.health.measures import LOW, MIDDLE, Measures

N = 4
WELL = Measures(
    start=0,
    stop=1,
    missing=np.zeros(N),
    level_db=np.full(N, -50.0),
    floor_db=np.full((N, 2), -60.0),
    offset=np.zeros(N),
    values=np.full(N, 16.0),
    at_rail=np.zeros(N),
    clipped=np.zeros(N),
    pauses=np.zeros(N),
    spikes=np.zeros(N),
    hum=np.zeros(N),
    alone=np.zeros(N),
)
USUAL = Baseline(np.full((N, 2), -60.0), np.zeros((N, 2)))
STRANGER = Baseline.nothing(N)


def seconds(n=LONGEST_SECONDS, *, sensor=2, **changes):
    """Some seconds in which one sensor is otherwise; a list of values is one for each second."""
    made = []
    for k in range(n):
        columns = {}
        for name, value in changes.items():
            column = getattr(WELL, name).copy()
            column[sensor] = value[k] if isinstance(value, list) else value
            columns[name] = column
        made.append(replace(WELL, **columns))
    return made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.cause}-{check.evidence}")
def test_healthy_sensors_are_far_from_every_limit(check):
    """Nothing is found of sensors in which nothing is wrong, with or without knowledge of what is usual."""
    for usual in (USUAL, STRANGER):
        values = check.value(Recent(seconds(), usual))
        nobody = np.zeros(N, bool)
        assert values.shape == (N,)
        assert not check.out_of_limits(values, nobody).any()
        assert not check.out_of_limits(values, nobody | True)[~np.isnan(values)].any()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.cause}-{check.evidence}")
def test_limits_have_a_dead_band_and_who_cannot_be_told_stays(check):
    """Between the limits what was is kept; NaN keeps it, too; beyond it opens and on this side it closes."""
    worse = -1.0 if check.below else 1.0
    assert worse * (check.enter - check.leave) >= 0
    between = np.full(2, (check.enter + check.leave) / 2)
    was = np.array([False, True])
    if check.enter != check.leave:
        np.testing.assert_array_equal(check.out_of_limits(between, was), was)
    np.testing.assert_array_equal(check.out_of_limits(np.full(2, np.nan), was), was)
    assert check.out_of_limits(np.full(2, check.enter), was).all()
    assert not check.out_of_limits(np.full(2, check.leave - worse * 1e-9), was).any()


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"missing": 1.0}, {Cause.NO_FRAMES}),
        ({"missing": 0.01}, {Cause.GAP}),
        ({"pauses": 0.05}, {Cause.GAP}),
        ({"values": 1.0}, {Cause.FLAT}),
        ({"values": 2.0}, {Cause.FLAT}),
        ({"level_db": -np.inf}, {Cause.SILENT}),
        ({"level_db": -96.0}, {Cause.SILENT}),
        ({"level_db": -94.0}, set()),
        ({"at_rail": 0.6}, {Cause.PEGGED}),
        ({"offset": 0.02}, {Cause.DC_OFFSET}),
        ({"offset": -0.02}, {Cause.DC_OFFSET}),
        ({"offset": 0.02, "level_db": -15.0}, set()),
        ({"hum": 0.1}, {Cause.HUM_ONLY}),
        ({"clipped": 0.01}, {Cause.CLIPPING}),
        ({"clipped": 2e-4}, set()),
        ({"clipped": 2e-4, "floor_db": [(-50.0, -50.0)] * LONGEST_SECONDS}, {Cause.CLIPPING}),
        ({"spikes": 2.0}, {Cause.SPIKES}),
        ({"alone": 0.1}, {Cause.HIGH_GAIN}),
        ({"floor_db": [(-60.0, -71.0)] * LONGEST_SECONDS}, {Cause.LOW_GAIN}),
        ({"floor_db": [(-60.0, -69.0)] * LONGEST_SECONDS}, set()),
        ({"floor_db": [(-60.0, -44.0)] * LONGEST_SECONDS}, {Cause.HIGH_GAIN}),
        ({"floor_db": [(-40.0, -60.0)] * LONGEST_SECONDS}, {Cause.HIGH_GAIN}),
    ],
)
def test_what_each_number_means(changes, causes):
    """The cause is found at the one sensor, and nothing at the others."""
    found = [
        check
        for check in CHECKS
        if check.out_of_limits(check.value(Recent(seconds(**changes), USUAL)), np.zeros(N, bool)).any()
    ]
    assert {check.cause for check in found} == causes
    for check in found:
        out = check.out_of_limits(check.value(Recent(seconds(**changes), USUAL)), np.zeros(N, bool))
        np.testing.assert_array_equal(np.flatnonzero(out), [2])


def test_seconds_without_sound_are_counted_from_the_last_one():
    history = seconds(missing=[0.0] * 6 + [1.0] * 4)
    np.testing.assert_array_equal(checks.seconds_without_sound(Recent(history, USUAL)), [0, 0, 4, 0])
    history = seconds(missing=[1.0] * 9 + [0.5])
    np.testing.assert_array_equal(checks.seconds_without_sound(Recent(history, USUAL)), np.zeros(N))


def test_gain_against_the_array_and_against_itself():
    """All sensors 25 dB lower: none differs from the others, each differs from itself; an usual difference is none."""
    lower = [replace(WELL, floor_db=np.full((N, 2), -85.0))] * 5
    np.testing.assert_allclose(checks.above_array_db(Recent(lower, USUAL), upper=True), 0)
    np.testing.assert_allclose(checks.above_own_db(Recent(lower, USUAL)), -25)
    assert np.isnan(checks.above_own_db(Recent(lower, STRANGER))).all()
    softer = seconds(floor_db=[(-60.0, -72.0)] * 5, n=5)
    usually = replace(USUAL, offset_db=np.array([[0, 0], [0, 0], [0, -12.0], [0, 0]]))
    np.testing.assert_allclose(checks.above_array_db(Recent(softer, USUAL), upper=False), [0, 0, -12, 0])
    np.testing.assert_allclose(checks.above_array_db(Recent(softer, usually), upper=False), 0)


def test_of_two_sensors_that_differ_nobody_knows_which_is_wrong():
    history = [replace(WELL, floor_db=np.array([[-60.0, -60], [-60, -90], [np.nan] * 2, [np.nan] * 2]))] * 5
    assert np.isnan(checks.above_array_db(Recent(history, USUAL), upper=True)).all()
    assert np.isnan(checks.louder_than_array_db(Recent(history, USUAL))).all()
    assert np.isnan(checks.softer_than_array_db(Recent(history, USUAL))).all()


def test_one_wrong_sensor_of_three_does_not_make_the_others_wrong():
    """The first is 25 dB too loud: it is found, and the others are not too quiet beside it."""
    floors = np.array([[-60.0, -35], [-60, -60], [-60, -60], [np.nan, np.nan]])
    history = [replace(WELL, floor_db=floors)] * 5
    assert checks.louder_than_array_db(Recent(history, USUAL))[0] == 25
    np.testing.assert_allclose(checks.softer_than_array_db(Recent(history, USUAL))[1:3], 0)


def test_rumble_that_comes_and_goes_is_wind():
    """A gust of three seconds, or lulls at the others, are none; six seconds above all that the others had are."""
    gust = seconds(floor_db=[(-60.0, -60.0)] * 7 + [(-30.0, -60.0)] * 3)
    assert checks.rumble_above_array_db(Recent(gust, USUAL))[2] < 0.1
    steady = seconds(floor_db=[(-30.0, -60.0)] * 10)
    np.testing.assert_allclose(checks.rumble_above_array_db(Recent(steady, USUAL)), [0, 0, 30, 0], atol=1e-9)
    windy = [replace(one, floor_db=np.where(np.arange(N)[:, None] == 2, one.floor_db, -30.0 - 30 * (k % 3 > 0)))
             for k, one in enumerate(steady)]  # fmt: skip
    assert checks.rumble_above_array_db(Recent(windy, USUAL))[2] <= 0
    assert LOW != MIDDLE


def test_no_check_looks_further_back_than_it_says():
    """Older seconds may hold anything."""
    rubbish = seconds(5, missing=1.0, values=1.0, level_db=-np.inf, spikes=99.0, clipped=1.0, alone=1.0, hum=9.0)
    recent = seconds(LONGEST_SECONDS)
    for check in CHECKS:
        np.testing.assert_array_equal(
            check.value(Recent([*rubbish, *recent][-LONGEST_SECONDS:], USUAL)), check.value(Recent(recent, USUAL))
        )
        short = recent[-check.looks_back_seconds :] if check.cause is not Cause.NO_FRAMES else recent
        np.testing.assert_array_equal(
            check.value(Recent([*rubbish, *short], USUAL))[:2], check.value(Recent([*recent, *short], USUAL))[:2]
        )


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_the_middle_of_the_last_three_seconds_is_their_median(n):
    """Also with infinities; NaN where a sensor has one."""
    rng = np.random.default_rng(n)
    levels = rng.choice([-np.inf, -80, -60, -50, -40, np.nan], (n, N), p=[0.1, 0.2, 0.2, 0.2, 0.2, 0.1])
    recent = Recent([replace(WELL, level_db=row) for row in levels], USUAL)
    np.testing.assert_array_equal(recent.middle("level_db"), np.median(levels[-3:], axis=0))
    np.testing.assert_array_equal(recent.last("level_db", 5), levels[-5:])
    np.testing.assert_array_equal(recent.newest("level_db"), levels[-1])


@pytest.mark.parametrize("n_sensors", [1, 2, 3, 4, 5, 8])
def test_the_middle_one_of_the_others_is_found_for_every_sensor(n_sensors):
    """Against a list without the sensor, with ties and with sensors of which nothing is known."""
    rng = np.random.default_rng(n_sensors)
    for _ in range(30):
        values = rng.choice([-60.0, -55.0, -50.0, -45.0, np.nan], n_sensors)
        lower, upper = checks._of_others(values)
        for sensor in range(n_sensors):
            others = sorted(np.delete(values, sensor)[np.isfinite(np.delete(values, sensor))])
            known = np.isfinite(values).sum() >= 3
            expected = (others[(len(others) - 1) // 2], others[len(others) // 2]) if known else (np.nan, np.nan)
            np.testing.assert_array_equal((lower[sensor], upper[sensor]), expected)
