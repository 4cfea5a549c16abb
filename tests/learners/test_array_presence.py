"""Presence: the linear rule against scikit-learn, invariance to gain, one sensor alone, thresholds by rate."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from pipeline.learners.array_presence import (
    HIGHEST_EVIDENCE,
    LEAST_EVIDENCE,
    PROVISIONAL,
    THRESHOLDS,
    ArrayPresence,
    ProvisionalPresence,
    fused,
    n_starts,
    relative,
    sustained,
    tail_rate,
)

N_MEANS, N_VALUES, SENSORS = 3, 8, 4


def streams(seed: int = 0, minutes: int = 40, step: float = 2.0) -> dict:
    """Somebody in every fourth half minute: louder, and with more modulation."""
    rng = np.random.default_rng(seed)
    n = minutes * 120
    somebody = np.arange(n) // 60 % 4 == 3
    background = np.repeat(rng.normal(0, 1, (n // 60, 1, N_VALUES)), 60, axis=0) + np.zeros((n, SENSORS, 1))
    summary = (
        background
        + rng.normal(0, 0.5, (n, SENSORS, N_VALUES))
        + step * somebody[:, None, None] * np.linspace(0, 1, N_VALUES)
    )
    return {
        "summary": summary.astype(np.float32),
        "background": background.astype(np.float32),
        "seconds": np.full(n, 120.0),
        "somebody": somebody,
        "start_seconds": 0.5 * np.arange(n),
        "groups": np.zeros(n, np.int64),
    }


def learned(seed: int = 0, **options) -> ArrayPresence:
    found = ArrayPresence.learn(**streams(seed, **options), n_means=N_MEANS)
    assert found is not None
    return found


def scores(presence: ArrayPresence, data: dict) -> np.ndarray:
    rows = zip(data["summary"], data["background"], data["seconds"], strict=True)
    return np.array([presence.log_odds(summary, background, seconds) for summary, background, seconds in rows])


def test_it_is_the_logistic_regression_of_what_stands_out():
    """The same log-odds as scikit-learn's on the scaled values, every sensor a sample."""
    data, presence = streams(), learned()
    X = relative(data["summary"], data["background"], data["seconds"], presence.typical, N_MEANS)
    X = X.reshape(-1, X.shape[2])
    scaled = np.clip((X - X.mean(axis=0)) / (X.std(axis=0) + 1e-3), -6, 6)
    peer = LogisticRegression(C=12 / len(X), class_weight="balanced", max_iter=3000)
    peer.fit(scaled, np.repeat(data["somebody"], SENSORS))
    np.testing.assert_allclose(scores(presence, data).ravel(), peer.decision_function(scaled), atol=1e-9)


def test_it_tells_somebody_from_nobody_at_a_site_with_other_backgrounds():
    """Learned on one seed, another seed's segments are told apart."""
    data, presence = streams(seed=1), learned()
    found = np.array([fused(one, np.ones(SENSORS, bool)) for one in scores(presence, data)])
    assert np.mean((found > 0) == data["somebody"]) > 0.97


def test_gain_changes_nothing_once_the_background_has_followed():
    """A gain adds a constant to the means of summary and background alike."""
    data, presence = streams(), learned()
    louder = data | {
        name: data[name] + np.float32(20) * (np.arange(N_VALUES) < N_MEANS) for name in ("summary", "background")
    }
    np.testing.assert_allclose(scores(presence, louder), scores(presence, data), atol=1e-4)


def test_a_background_of_the_training_set_stands_in_for_one_not_heard_yet():
    """After 0 s the own background does not count, after 60 s nothing else; a sensor without one has the typical."""
    presence = learned()
    summary, own = np.ones((1, SENSORS, N_VALUES)), np.full((1, SENSORS, N_VALUES), 5.0)
    for seconds, floor in ((0.0, presence.typical), (30.0, 2.5 + presence.typical / 2), (60.0, 5.0), (500.0, 5.0)):
        found = relative(summary, own, np.array([seconds]), presence.typical, N_MEANS)
        np.testing.assert_allclose(found[0, 0, :N_VALUES], 1 - floor * np.ones(N_VALUES))
    unknown = relative(summary, np.full_like(own, np.nan), np.array([60.0]), presence.typical, N_MEANS)
    np.testing.assert_allclose(unknown[0, 0, :N_VALUES], 1 - presence.typical)


def test_absent_sensors_have_no_log_odds():
    presence, summary = learned(), np.ones((SENSORS, N_VALUES))
    summary[2] = np.nan
    found = presence.log_odds(summary, np.zeros((SENSORS, N_VALUES)), 120.0)
    np.testing.assert_array_equal(np.isnan(found), [False, False, True, False])


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=6), st.floats(-50, 1e9))
def test_one_sensor_alone_never_makes_somebody_be_there(others, failing):
    """Whatever a sensor says, with others that all say nobody nobody is there."""
    values = np.array([-abs(one) - 0.01 for one in others] + [failing])
    assert fused(values, np.ones(len(values), bool)) < 0


def test_one_sensor_is_enough_where_it_is_the_only_one_left():
    values = np.array([3.0, -5.0, np.nan])
    assert fused(values, np.array([True, False, True])) == 3.0
    assert fused(values, np.array([False, False, True])) is None


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=5))
def test_the_order_of_sensors_does_not_matter(values):
    found = {fused(np.array(order), np.ones(len(values), bool)) for order in permutations(values)}
    assert len(found) == 1


def test_sustained_is_the_fourth_largest_of_the_last_six():
    assert sustained([9, 9, 9, 9, 1, 2, 3, 4, 5, 6]) == 3
    assert sustained([5, 5, 5]) == -HIGHEST_EVIDENCE
    assert sustained([5, 5, 5, 2]) == 2


def test_starts_are_counted_as_the_stage_starts_them():
    """Two rises with a fall between them are two starts, a dip within one is none, a short rise none."""
    low, high = [-2.0] * 10, [2.0] * 10
    assert n_starts(np.array(low + high + low + high), 1.5) == 2
    assert n_starts(np.array(low + high + [0.0] + high), 1.5) == 1
    assert n_starts(np.array(low + high[:3] + low), 1.5) == 0
    assert n_starts(np.array(low + high + low), 2.5) == 0


def test_counts_fall_with_the_threshold_and_set_it():
    """The lowest threshold with at most the rate; what is guaranteed is one more in the same hours."""
    presence = learned(step=1.0)
    assert presence.hours[0] == pytest.approx(0.5, abs=0.1)
    for per_day in (1.0, 24.0, 240.0, 1e6):
        place = round((presence.threshold(per_day) - LEAST_EVIDENCE) / 0.1)
        allowed = per_day * presence.hours[0] / 24
        assert presence.counts[place] <= allowed or presence.threshold(per_day) == HIGHEST_EVIDENCE
        assert place == 0 or presence.counts[place - 1] > allowed
        assert presence.guaranteed_per_day(per_day) == pytest.approx(
            (presence.counts[place] + 1) * 24 / presence.hours[0]
        )


def test_too_little_of_either_side_is_no_rule():
    data = streams(minutes=4)
    for keep in (data["somebody"], ~data["somebody"]):
        part = {name: values[keep] for name, values in data.items()}
        assert ArrayPresence.learn(**part, n_means=N_MEANS) is None


def test_background_that_cannot_be_judged_without_itself_is_no_rule():
    """Walkers for half an hour, and nobody in five minutes of it only: any threshold would seem to start nothing."""
    data = streams()
    kept = data["somebody"] | (data["start_seconds"] < 300)
    part = {name: values[kept] for name, values in data.items()}
    assert (~part["somebody"]).sum() > 400
    assert ArrayPresence.learn(**part, n_means=N_MEANS) is None
    twice = kept | (data["start_seconds"] >= 2100)
    found = ArrayPresence.learn(**{name: values[twice] for name, values in data.items()}, n_means=N_MEANS)
    assert found is not None
    assert found.hours[0] > 0.1


def test_it_is_stored_and_read_to_the_bit_and_damaged_arrays_are_refused():
    presence, data = learned(), streams(seed=3)
    again = ArrayPresence.from_arrays(presence.as_arrays())
    assert scores(again, data).tobytes() == scores(presence, data).tobytes()
    with pytest.raises(ValueError, match="counts"):
        ArrayPresence.from_arrays(presence.as_arrays() | {"counts": np.zeros(3, np.int64)})


def test_the_realized_rate_keeps_to_the_configured_one_over_many_sites():
    """Sites are drawn anew: with a rate of 6 an hour, the mean of realized rates is not significantly above it."""
    per_hour, realized = 6.0, []
    for seed in range(12):
        presence = learned(seed, step=0.8)
        data = streams(seed + 100)
        evidence = np.array([fused(one, np.ones(SENSORS, bool)) for one in scores(presence, data)])
        stretches = np.split(evidence, np.flatnonzero(np.diff(data["somebody"].astype(int))) + 1)
        nobody = [one for number, one in enumerate(stretches) if number % 2 == 0]
        starts = sum(n_starts(one, presence.threshold(24 * per_hour)) for one in nobody)
        realized.append(starts / (sum(map(len, nobody)) / 7200))
    mean, error = np.mean(realized), np.std(realized, ddof=1) / np.sqrt(len(realized))
    assert mean <= per_hour + 2 * error


@pytest.mark.parametrize("scale", [0.15, 0.3])
def test_the_rate_beyond_a_threshold_follows_from_rises_to_lower_ones(scale):
    """Exponential rises: the interval covers the true rate at a threshold that hardly any of them reaches."""
    rng, hours, per_hour, threshold, covered = np.random.default_rng(0), 20.0, 4.0, 2.0, []
    true = per_hour * 24 * np.exp(-(threshold - LEAST_EVIDENCE) / scale)
    for _ in range(60):
        rises = LEAST_EVIDENCE + rng.exponential(scale, rng.poisson(per_hour * hours))
        rises = rises[rises < threshold]  # others would have been passages
        counts = [int((rises >= one).sum()) for one in THRESHOLDS]
        rate, low, high = tail_rate(counts, hours, threshold)
        assert low < rate < high
        covered.append(low <= true <= high)
    assert np.mean(covered) > 0.85


def test_no_rise_and_no_time_say_nothing():
    assert tail_rate([0] * len(THRESHOLDS), 5.0, 2.0) is None
    assert tail_rate([3] + [0] * (len(THRESHOLDS) - 1), 0.0, 2.0) is None


def test_the_provisional_rule_waits_for_a_background_and_does_not_depend_on_gain():
    coefficients = np.array([PROVISIONAL["mean"], 0.0, PROVISIONAL["deviation"], PROVISIONAL[1.0]])
    rule, rng = ProvisionalPresence(coefficients), np.random.default_rng(0)
    summary, background = rng.normal(size=(2, SENSORS, 4))
    assert np.isnan(rule.log_odds(summary, background, 59.0)).all()
    gain = np.array([20.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(
        rule.log_odds(summary + gain, background + gain, 60.0), rule.log_odds(summary, background, 60.0)
    )
    np.testing.assert_allclose(rule.log_odds(background, background, 60.0), -1.65)
    assert rule.guaranteed_per_day(2.0) is None
