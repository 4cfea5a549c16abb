"""What is counted and measured of an array, against sound of which it is known."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from math import log10, sqrt

import numpy as np
import pytest

from pipeline.core.events import (
    Block,
    CalibrationChanged,
    Decision,
    Features,
    Gap,
    Outcome,
    Paced,
    RecordingStarted,
    Role,
    Screened,
    Span,
    StateChanged,
    Tick,
    Verdicts,
)
from pipeline.core.sensor_state import Liveness, State
from pipeline.daemon.meters import P_VALUE_EDGES, Load, Meters
from pipeline.health.measures import measure, nothing_measured
from pipeline.stages import Measure

RATE = 4000
STARTED = RecordingStarted("r", RATE, ("1", "2", "3", "4"), datetime(2026, 5, 1, tzinfo=UTC))


def metered(facts: Iterable[object]) -> Meters:
    """What is known of an array after these facts, the first of which come as a source gives them."""
    meters, stage = Meters(4, RATE, wall=lambda: 1000.0), Measure(RATE)
    for fact in [STARTED, *facts]:
        meters.hear(fact)
        for made in stage.push(fact) if isinstance(fact, stage.accepts) else [fact]:
            meters.observe(made)
    return meters


def blocks(samples: np.ndarray, *, length: int = 777) -> list[Block]:
    return [
        Block(start, samples[:, start : start + length].astype(np.float32), np.ones(len(samples), np.bool_))
        for start in range(0, samples.shape[1], length)
    ]


def noise(seconds: float, *, level: float = 0.01, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, level, (4, round(seconds * RATE)))


def test_a_sine_has_the_level_of_its_effective_value_whatever_its_offset():
    sine = 0.1 * np.sin(2 * np.pi * 440 * np.arange(3 * RATE) / RATE)
    first, second, *_ = metered(blocks(np.stack([sine, sine + 0.25, sine / 2, sine]))).sensors()
    assert first["level_dbfs"] == second["level_dbfs"] == pytest.approx(20 * log10(0.1 / sqrt(2)), abs=0.01)
    assert second["offset_of_full_scale"] == pytest.approx(0.25, abs=1e-5)
    assert not first["silent"]


def test_silence_has_no_level_and_is_never_0_db():
    sound = noise(4)
    sound[2] = 0
    sound[3, 2 * RATE :] = 0
    meters = metered(blocks(sound)).sensors()
    assert (meters[2]["level_dbfs"], meters[2]["silent"], meters[2]["silence_ratio"]) == (None, True, 1.0)
    assert (meters[3]["level_dbfs"], meters[3]["silent"], meters[3]["silence_ratio"]) == (None, True, 0.5)
    assert meters[2]["distinct_values"] == 1
    assert meters[2]["floor_dbfs"] == [None, None]


def test_clipped_samples_and_spikes_are_counted():
    sound = noise(3)
    for second in range(3):
        at = second * RATE
        sound[0, at + 100 : at + 105] = 1.0
        sound[0, at + 900 : at + 903] = -1.0
        sound[0, at + 2000 : at + 2002] = 1.0  # two in a row may be a loud sound
        sound[1, at + 1000 : at + 3500 : 500] = 0.8
    first, second, third, _ = metered(blocks(sound)).sensors()
    assert first["samples_clipped"] == 3 * (5 + 3)
    assert second["spikes"] == 3 * 5
    assert (third["samples_clipped"], third["spikes"]) == (0, 0)


def test_samples_are_received_or_lost_and_gaps_are_counted_where_they_begin():
    """Sensor 2 is away for a second, then all for another, then the source waits for three."""
    sound = noise(6).astype(np.float32)
    everybody, three = np.ones(4, np.bool_), np.array([True, False, True, True])
    facts = [
        Block(0, sound[:, :RATE], everybody),
        Block(RATE, sound[:, RATE : RATE + 1500], three),
        Block(RATE + 1500, sound[:, RATE + 1500 : 2 * RATE], three),
        Block(2 * RATE, sound[:, 2 * RATE : 3 * RATE], everybody),
        Gap(3 * RATE, 4 * RATE, "lost"),
        *[Tick(4 * RATE, float(waited)) for waited in (1, 2, 3)],
        # As a source tells that was away: the time has been counted by now.
        Gap(4 * RATE, 7 * RATE, "was away", recorded=False),
        Block(7 * RATE, sound[:, :RATE], everybody),
    ]
    first, second, *_ = metered(facts).sensors()
    assert (first["samples"], first["samples_lost"], first["gaps"]) == (4 * RATE, 4 * RATE, 2)
    assert (second["samples"], second["samples_lost"], second["gaps"]) == (3 * RATE, 5 * RATE, 3)
    assert first["availability_1h"] == pytest.approx(4 / 8)
    assert second["availability_1h"] == pytest.approx(3 / 8)
    assert first["last_frame"] == 1000.0


def test_availability_forgets_what_is_more_than_an_hour_ago():
    away = nothing_measured(0, 0, 4, waited_seconds=1.0)
    heard = measure(noise(1).astype(np.float32), np.ones((4, RATE), np.bool_), RATE, start=0)
    meters = Meters(4, RATE)
    for second in [away] * 600 + [heard] * 600:
        meters.observe(second)
    assert meters.sensors()[0]["availability_1h"] == pytest.approx(0.5)
    for second in [heard] * 3000:
        meters.observe(second)
    assert meters.sensors()[0]["availability_1h"] == 1.0


def test_a_sensor_with_exchanged_wires_is_negative_and_who_hears_another_at_once_is_told():
    common = np.random.default_rng(1).normal(0, 0.1, 5 * RATE + 100)
    delayed = np.stack([common[100 - 20 * sensor : 5 * RATE + 100 - 20 * sensor] for sensor in range(4)])
    inverted = delayed * np.array([1, -1, 1, 1])[:, None]
    polarities = [one["polarity"] for one in metered(blocks(inverted)).sensors()]
    assert polarities[1] < -0.5
    assert min(polarities[0], *polarities[2:]) > 0.1
    straight = metered(blocks(delayed)).sensors()
    assert min(one["coherence"] for one in straight) > 0.5
    assert max(one["crosstalk"] for one in straight) < 0.3
    wired = delayed.copy()
    wired[3] = wired[2]
    assert [one["crosstalk"] > 0.9 for one in metered(blocks(wired)).sensors()] == [False, False, True, True]


def test_noises_have_nothing_in_common():
    for sensor in metered(blocks(noise(5))).sensors():
        assert sensor["coherence"] < 0.3
        assert sensor["polarity"] is None


def test_gain_is_compared_with_the_array():
    sound = noise(5) * np.array([1, 1, 1, 10 ** (-12 / 20)])[:, None]
    gains = [one["gain_db"] for one in metered(blocks(sound)).sensors()]
    assert gains[3] == pytest.approx(-12, abs=1.5)
    assert max(map(abs, gains[:3])) < 1.5


def decision(p_values: list[float], *, start: int = 0) -> Decision:
    everybody, numbers = np.ones(4, np.bool_), np.array(p_values)
    span = Span(start, start + RATE)
    nothing = np.zeros((4, 2), np.float32)
    features = Features(span, span, nothing, nothing, everybody, everybody)
    screened = Screened(features, numbers, numbers, numbers, numbers, ~everybody)
    verdicts = Verdicts(screened, np.zeros(4), np.zeros((4, 2)))
    outcome = Outcome("human", 0.9, 2.0)
    return Decision(verdicts, outcome, np.ones(4), (Role.USED,) * 4, (outcome,) * 4)


def state(sensor: int, now: State) -> StateChanged:
    return StateChanged(0, 0, sensor, State.UNKNOWN, now, Liveness.HEALTHY, ())


def test_p_values_are_counted_up_to_the_edges_of_their_bins():
    rng = np.random.default_rng(3)
    drawn = np.ceil(rng.uniform(0, 100, (500, 4))) / 100  # many of them lie on an edge
    drawn[::7, 2] = np.nan
    meters = Meters(4, RATE)
    meters.alpha = 0.05
    for row in drawn:
        meters.observe(decision(row.tolist()))
    for number, sensor in enumerate(meters.sensors()):
        known = drawn[~np.isnan(drawn[:, number]), number]
        up_to = [int((known <= edge).sum()) for edge in P_VALUE_EDGES]
        assert np.cumsum(sensor["p_values"]["counts"]).tolist() == up_to
        assert sum(sensor["p_values"]["counts"]) == sensor["windows"] == len(known)
        assert sensor["refused"] == (known <= 0.05).sum()
        assert sensor["p_values"]["sum"] == pytest.approx(known.sum(), abs=0.001)


def test_false_alarms_are_those_of_good_sensors_in_windows_that_do_not_overlap():
    meters = Meters(4, RATE)
    for sensor in range(3):
        meters.observe(state(sensor, State.GOOD))
    meters.observe(state(3, State.DEGRADED))
    for number in range(20):
        meters.observe(
            decision([0.5, 0.001 if number % 4 == 0 else 0.5, float("nan"), 0.001], start=number * RATE // 2)
        )
    ratios = [one["false_alarms"] for one in meters.sensors()]
    assert ratios == [0.0, pytest.approx(0.5), None, None]  # every other one counts, of which every other is refused


def test_lost_calibration_is_told_until_it_is_regained_or_another_recording_begins():
    meters = Meters(4, RATE)
    meters.observe(CalibrationChanged(0, 1, True, 0.01, 0.05, 0.03, 0.08))
    assert [one["calibration_lost"] for one in meters.sensors()] == [False, True, False, False]
    meters.observe(CalibrationChanged(0, 1, False, 0.01, 0.01, 0.005, 0.02))
    assert not meters.sensors()[1]["calibration_lost"]
    meters.observe(CalibrationChanged(0, 1, True, 0.01, 0.05, 0.03, 0.08))
    meters.observe(STARTED)
    assert not meters.sensors()[1]["calibration_lost"]


def test_the_rate_of_a_source_is_known_after_a_minute_and_not_of_a_recording_that_is_played():
    meters = Meters(4, RATE)
    for report in range(5):
        meters.observe(Paced(report, 10.0, round(10.04 * RATE)))
    assert meters.rate_error is None
    for report in range(5):
        meters.observe(Paced(report, 10.0, round(10.04 * RATE)))
    assert meters.rate_error == pytest.approx(0.004)
    for report in range(60):
        meters.observe(Paced(report, 10.0, 200 * RATE))
    assert meters.rate_error is None


def test_load_is_the_share_of_time_that_nineteen_of_twenty_blocks_stay_below():
    now = [0.0]
    load = Load(RATE, steady=lambda: now[0])
    assert load.factor is None
    sound = Block(0, np.zeros((4, RATE), np.float32), np.ones(4, np.bool_))
    for number in range(100):
        load.begin()
        now[0] += 0.9 if number % 25 == 0 else 0.1
        load.end(sound)
        now[0] += 5.0  # waiting for sound is no work
    assert load.factor == pytest.approx(0.1)
    for _ in range(10):
        load.begin()
        now[0] += 0.5
        load.end(Tick(0, 1.0))  # counts with the next sound
        load.begin()
        now[0] += 0.1
        load.end(sound)
    assert load.factor == pytest.approx(0.6)
