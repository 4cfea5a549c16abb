"""False alarms at the chosen rate: theory against simulation, intervals against exact sums and peers."""

from __future__ import annotations

from math import exp, factorial, log

import numpy as np
import pytest
from river.drift import ADWIN

from pipeline.core.errors import SettingsError
from pipeline.health.sequential_tests import (
    Calibration,
    Cusum,
    Drift,
    combined,
    evidence_against,
    poisson_interval,
    threshold,
    wilson,
)


def test_evidence_is_the_ratio_of_two_densities():
    """Both integrate to 1, so that the mean of the ratio is 1 where small p-values are not common."""
    p = (np.arange(20_000) + 0.5) / 20_000
    ratio = np.exp([evidence_against(float(value)) for value in p])
    assert ratio.mean() == pytest.approx(1, abs=0.02)
    assert evidence_against(0.25) == pytest.approx(0)


@pytest.mark.parametrize("height", [3.0, 4.0])
def test_false_alarms_are_rarer_than_promised(height):
    """Tests until a false alarm, on average over 300 runs, against e to the height; the promise is a lower bound."""
    rng = np.random.default_rng(int(height))
    times = []
    for _ in range(300):
        cusum, n = Cusum(height), 0
        while not cusum.active:
            cusum.take(float(rng.uniform()))
            n += 1
        times.append(n)
    mean, error = np.mean(times), np.std(times) / np.sqrt(len(times))
    assert mean - 3 * error > exp(height)


def test_the_height_is_the_logarithm_of_tests_per_alarm():
    assert threshold(tests_per_day=43_200, alarms_per_day=1) == pytest.approx(log(43_200))
    assert threshold(tests_per_day=43_200, alarms_per_day=10) == pytest.approx(log(4320))
    for wrong in (0, -1, float("nan")):
        with pytest.raises(SettingsError, match="alarms_per_day"):
            threshold(tests_per_day=43_200, alarms_per_day=wrong)


def test_an_alarm_begins_with_small_p_values_and_ends_with_usual_ones():
    """p = 0.003 adds 2.2 each time; usual ones take about ten to end it; NaN says nothing."""
    cusum = Cusum(10.0)
    changes = [cusum.take(0.003) for _ in range(6)]
    assert changes == [False] * 4 + [True, False]
    assert not cusum.take(float("nan"))
    rng = np.random.default_rng(0)
    ended = next(n for n in range(1, 100) if cusum.take(float(rng.uniform())))
    assert 5 < ended < 40
    assert not cusum.active
    assert cusum.evidence == 0


def test_drift_is_noticed_and_forgotten():
    """p-values that were alike become small, and later usual again."""
    rng = np.random.default_rng(1)
    drift, changes = Drift(), []
    for n in range(3000):
        p = rng.uniform() ** (3 if 1000 <= n < 2000 else 1)
        if drift.take(float(p)):
            changes.append((n, drift.active))
    assert [active for _, active in changes] == [True, False]
    assert 1000 < changes[0][0] < 1300
    assert 2000 < changes[1][0] < 2900


def test_drift_is_that_of_the_public_class():
    """The same mean after every value, also after changes that begin a new window."""
    rng, drift, peer = np.random.default_rng(0), Drift(), ADWIN(delta=1e-4, clock=8)
    p_values = np.concatenate([rng.uniform(size=1500), rng.uniform(size=700) ** 4, rng.uniform(size=1500)])
    n_changes = 0
    for p in p_values.tolist():
        drift.take(p)
        peer.update(-log(p))
        n_changes += peer.drift_detected
        assert drift.mean == peer.estimation
    assert n_changes >= 2


def test_without_drift_there_is_none():
    """Ten streams of 4000 tests, two hours each."""
    for seed in range(10):
        rng, drift = np.random.default_rng(seed), Drift()
        assert not any(drift.take(float(rng.uniform())) for _ in range(4000))


def test_calibration_is_lost_when_the_rate_is_more_than_twice_too_high_and_regained():
    rng = np.random.default_rng(2)
    calibration, changes = Calibration(0.01), []
    for n in range(9000):
        p = rng.uniform(0, 0.2 if 2000 <= n < 3000 else 1.0)
        if calibration.take(float(p)):
            changes.append((n, calibration.lost))
    assert [lost for _, lost in changes] == [True, False]
    assert 2000 < changes[0][0] < 3000
    assert changes[1][0] > 3000
    low, high = calibration.interval
    assert low < 0.01 < high


def test_a_calibrated_sensor_stays_so():
    for seed in range(20):
        rng, calibration = np.random.default_rng(seed), Calibration(0.01)
        assert not any(calibration.take(float(rng.uniform())) for _ in range(3000))


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (5, 200), (200, 200)])
def test_the_score_interval_holds_shares_that_the_score_test_does_not_refuse(hits, trials):
    """At either bound the distance from the share is z standard errors of the bound."""
    z = 1.96
    for bound in wilson(hits, trials, z=z):
        if 0 < bound < 1:
            error = np.sqrt(bound * (1 - bound) / trials)
            assert abs(hits / trials - bound) == pytest.approx(z * error, rel=1e-9)
    assert wilson(0, 0, z=z) == (0.0, 1.0)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_the_poisson_interval_by_exact_sums(count):
    """2.5 % lie beyond either bound."""
    low, high = poisson_interval(count)

    def at_most(n, mean):
        return sum(exp(-mean) * mean**k / factorial(k) for k in range(n + 1))

    assert at_most(count, high) == pytest.approx(0.025)
    assert low == 0 if count == 0 else 1 - at_most(count - 1, low) == pytest.approx(0.025)


def test_combined_p_values_hold_their_rate_however_they_depend():
    """Equal, independent and opposed p-values: at most alpha of the combined ones are at most alpha."""
    rng = np.random.default_rng(3)
    u, v = rng.uniform(size=(2, 100_000))
    for pair in ([u, u], [u, v], [u, 1 - u], [u, np.where(u < 0.1, 0.1 - u, u)]):
        both = np.minimum(1, 2 * np.mean(pair, axis=0))
        for alpha in (0.01, 0.1, 0.5):
            assert np.mean(both <= alpha) <= alpha + 3 * np.sqrt(alpha / len(u))
    assert combined([0.01, 0.03]) == pytest.approx(0.04)
    assert combined([0.01, float("nan")]) == pytest.approx(0.02)
    assert np.isnan(combined([float("nan")]))
    assert np.isnan(combined([]))
