"""The reference of an array: distances to training segments, and ranks among them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats import t as student

from pipeline.learners.array_reference import FEWEST_SEGMENTS, ArrayReference, Spread
from tests.learners.test_array import FEATURES, RECORDINGS, SEGMENTS, SENSORS, array

EVERYONE = np.ones(SENSORS, bool)


def learned(X, groups, weights=None) -> ArrayReference:
    return ArrayReference.learn(X, np.ones(X.shape[:2]) if weights is None else weights, groups)


@pytest.fixture(scope="module")
def reference():
    X, _, groups = array()
    return learned(X, groups), X, groups


def p_values(found: ArrayReference, x, present):
    return found.p_values(found.measured(x[None], present[None])[0])


def nearest_ten(x, points) -> float:
    """Mean distance to the ten nearest."""
    return sum(sorted(math.dist(x, point) for point in points)[:10]) / 10


def tail_by_definition(values, groups, new) -> float:
    """Student's tail of a segment of a new recording: variances between and within recordings, by plain loops."""
    values, groups = np.asarray(values), np.asarray(groups)
    recordings = [values[groups == group] for group in np.unique(groups)]
    means = [np.mean(one) for one in recordings]
    within = sum(np.sum((one - np.mean(one)) ** 2) for one in recordings) / (len(values) - len(recordings))
    deviation = math.sqrt(np.var(means, ddof=1) * (1 + 1 / len(means)) + within)
    return float(student.sf((new - np.mean(means)) / deviation, len(means) - 1))


def test_p_values_are_ranks_by_enumeration(reference):
    """Every reference segment against all of the other recordings, the new one against all: its rank, by counting.

    Counted by recordings it may be larger, but no larger than Student's tail.
    """
    found, X, groups = reference
    fresh = [*array(7)[0][::57], *array(8)[0][::57]]
    for s in range(SENSORS):
        own = [nearest_ten(X[n, s], X[groups != groups[n], s]) for n in range(len(X))]
        np.testing.assert_allclose(found.distances[:, s], np.log(own), rtol=1e-9)
        for x in fresh:
            new = nearest_ten(x[s], X[:, s])
            # Only as far as single precision tells two distances apart.
            low, high = (sum(one >= new * (1 + error) for one in own) for error in (1e-6, -1e-6))
            p = p_values(found, x, EVERYONE)[s]
            tail = tail_by_definition(np.log(own), groups, math.log(new))
            bounds = [
                max((1 + n) / (len(X) + 1), min((1 + n / SEGMENTS) / (RECORDINGS + 1), tail * error))
                for n, error in ((low, 0.97), (high, 1.03))
            ]
            assert bounds[0] - 1e-9 <= p <= bounds[1] + 1e-9


def test_p_values_reach_from_one_over_all_to_one(reference):
    """Nothing is farther out than what is infinitely far, nothing nearer than what lies among its like."""
    found, X, _ = reference
    assert p_values(found, np.full((SENSORS, FEATURES), 1e30), EVERYONE) == pytest.approx([1 / (len(X) + 1)] * SENSORS)
    crowd = ArrayReference(np.zeros((1, 2, 30), np.float32), np.zeros((30, 1)), np.arange(30))
    assert p_values(crowd, np.zeros((1, 2)), np.ones(1, bool)) == 1


def test_false_alarms_come_as_often_as_promised():
    """References and new segment drawn alike, each a recording of its own: within the binomial interval of alpha.

    Each trial draws all of them anew, so trials are independent of each other.
    """
    rng = np.random.default_rng(4)
    trials, references = 1500, 60
    groups = np.arange(references)
    p = []
    for _ in range(trials):
        X = rng.normal(size=(references + 1, 1, 3)) * rng.gamma(2.0, size=(references + 1, 1, 1))
        p.append(p_values(learned(X[:-1], groups), X[-1], np.ones(1, bool))[0])
    for alpha in (0.05, 0.1, 0.3):
        promised = math.floor(alpha * (references + 1)) / (references + 1)
        low, high = binomtest(int(np.sum(np.array(p) <= alpha)), trials).proportion_ci(0.99)
        assert low <= promised <= high


def alarms_of_new_recordings(rng, *, between, alpha, n_recordings=30, n_segments=20, trials=400):
    """Share of the segments of new recordings at most alpha, by this reference and by plain ranks of segments."""
    groups = np.repeat(np.arange(n_recordings), n_segments)
    hits, by_rank = [], []
    for _ in range(trials):
        values = rng.normal(0, between, n_recordings + 1)[:, None] + rng.normal(size=(n_recordings + 1, n_segments))
        known = values[:-1].ravel()
        found = ArrayReference(np.zeros((1, 1, len(known)), np.float32), known[:, None], groups)
        hits += [found.p_values(np.array([value]))[0] <= alpha for value in values[-1]]
        by_rank += [(1 + np.sum(known >= value)) / (len(known) + 1) <= alpha for value in values[-1]]
    return np.mean(hits), np.mean(by_rank)


@pytest.mark.parametrize("between", [0.0, 1.0, 5.0])
def test_false_alarms_hold_where_recordings_differ(between):
    """Where recordings differ much, one in thirty lies beyond all known ones: plain ranks alarm three times too often.

    Trials are new recordings and new references, so they are independent: errors of their means are those of 400.
    """
    alpha, rng = 0.01, np.random.default_rng(5)
    found, by_rank = alarms_of_new_recordings(rng, between=between, alpha=alpha)
    error = math.sqrt(alpha * (1 - alpha) / 400)
    assert found <= alpha + 2 * error
    assert found >= 0.3 * alpha
    assert (by_rank > 2 * alpha) == (between == 5.0)


@pytest.mark.parametrize("n_recordings", [12, 20, 50, 400])
def test_the_tail_is_students(n_recordings):
    """Wallace's approximation against scipy, down to one in ten thousand."""
    spread = Spread(1.0, 2.0, n_recordings)
    for p in (0.9, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-4):
        value = 1.0 + 2.0 * student.isf(p, n_recordings - 1)
        assert spread.tail(value) == pytest.approx(p, rel=0.05)
    assert spread.tail(math.inf) == pytest.approx(0, abs=1e-9)


def test_the_spread_of_a_single_recording_is_unknown():
    """Then ranks are all that there is."""
    assert Spread.of(np.arange(30.0), np.zeros(30, int)).tail(100.0) == 0.0


def test_false_alarms_over_recordings_with_a_character_of_their_own():
    """One segment of each of 600 fresh recordings: within what 40 recordings to compare with can promise."""
    X, _, groups = array()
    found, rng, p = learned(X, groups), np.random.default_rng(3), []
    for seed in range(15):
        fresh = array(100 + seed)[0].reshape(RECORDINGS, SEGMENTS, SENSORS, FEATURES)
        p += [p_values(found, one[rng.integers(SEGMENTS)], EVERYONE) for one in fresh]
    for alpha in (0.05, 0.2):
        spread = np.sqrt(alpha * (1 - alpha) * (1 / RECORDINGS + 1 / len(p)))
        assert (np.abs(np.mean(np.array(p) <= alpha, axis=0) - alpha) < 3 * spread).all()


def test_a_sound_unlike_both_classes_is_found_and_the_classes_are_not(reference):
    """What lies far from either class has small p-values at every sensor."""
    found, *_ = reference
    fresh = array(11)[0]
    strange = fresh + 4 * np.sign(fresh)
    p, usual = (np.array([p_values(found, x, EVERYONE) for x in given[::5]]) for given in (strange, fresh))
    assert (p <= 0.01).mean() > 0.9
    assert (usual <= 0.01).mean() < 0.05


def test_neighbors_are_those_that_sorting_finds(reference):
    """A reference segment is its own neighbor; others follow by distance, of the reference or of what is given."""
    found, X, _ = reference
    x = array(12)[0][3]
    for s in range(SENSORS):
        by_hand = [math.dist(x[s], point) for point in X[:, s].astype(np.float32).astype(float)]
        places, distances = found.neighbors(x[s], s, 7)
        assert places.tolist() == sorted(range(len(X)), key=by_hand.__getitem__)[:7]
        np.testing.assert_allclose(distances, sorted(by_hand)[:7], rtol=1e-9)
        among = np.arange(len(X)) % 5 == 3
        places, distances = found.neighbors(x[s], s, 4, among=among)
        assert places.tolist() == sorted(np.flatnonzero(among), key=by_hand.__getitem__)[:4]
    places, distances = found.neighbors(X[5, 1], 1, 3)
    assert places[0] == 5
    assert distances[0] < 1e-5
    nobody, _ = found.neighbors(x[0], 0, 3, among=np.zeros(len(X), bool))
    assert len(nobody) == 0
    few, _ = found.neighbors(x[0], 0, 3, among=np.arange(len(X)) < 2)
    assert len(few) == 2


def test_what_has_no_weight_is_no_reference(reference):
    """It could be anything, also NaN: nothing changes; it is no neighbor unless asked for."""
    _, X, groups = reference
    weights = np.ones(X.shape[:2])
    weights[:60, 1] = 0.5
    spoilt = X.copy()
    spoilt[:30, 1], spoilt[30:60, 1] = 1e3, np.nan
    one, other = learned(X, groups, weights), learned(spoilt, groups, weights)
    for x in array(14)[0][::23]:
        np.testing.assert_array_equal(p_values(one, x, EVERYONE), p_values(other, x, EVERYONE))
    assert np.isnan(one.distances[:60, 1]).all()
    assert np.isfinite(one.distances[:, [0, 2]]).all()
    assert one.neighbors(X[5, 1], 1, 1)[0][0] >= 60
    assert one.neighbors(X[5, 1], 1, 1, among=np.arange(len(X)) < 60)[0][0] == 5


def test_absent_sensors_and_those_without_enough_segments_have_no_p_value(reference):
    """NaN, and nobody else is moved by it."""
    whole, X, groups = reference
    weights = np.ones(X.shape[:2])
    weights[FEWEST_SEGMENTS - 1 :, 2] = 0
    found = learned(X, groups, weights)
    assert found.ready.tolist() == [True, True, False]
    x = array(15)[0][0].copy()
    usual = p_values(whole, x, EVERYONE)
    x[0] = np.nan
    p = p_values(found, x, np.array([False, True, True]))
    assert np.isnan(p).tolist() == [True, False, True]
    assert p[1] == usual[1]
    weights[FEWEST_SEGMENTS - 1, 2] = 1
    assert learned(X, groups, weights).ready.all()


def test_stored_and_loaded_it_says_the_same(reference):
    """All that decides is in the arrays."""
    found, *_ = reference
    again = ArrayReference.from_arrays({name: array.copy() for name, array in found.as_arrays().items()})
    x = array(16)[0][0]
    np.testing.assert_array_equal(p_values(again, x, EVERYONE), p_values(found, x, EVERYONE))
    for one, other in zip(again.neighbors(x[1], 1, 5), found.neighbors(x[1], 1, 5), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.as_arrays().keys() == {"features", "distances", "groups"}
