"""The screen of an array: ranks among the reference, by own sound and by what the other sensors say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import Ridge

from pipeline.learners._consistency import group_folds
from pipeline.learners.array_screen import ArrayScreen
from tests.learners.test_array import FEATURES, RECORDINGS, SEGMENTS, SENSORS, array
from tests.learners.test_array_reference import tail_by_definition

EVERYONE = np.ones(SENSORS, bool)


def learned(X, groups, weights=None, sensors=slice(None)):
    y = np.where(groups % 2, 1.0, -1.0)
    folds = group_folds(groups, y, 5, np.random.RandomState(0))
    weights = np.ones(X.shape[:2]) if weights is None else weights
    return ArrayScreen.learn(X[:, sensors], weights[:, sensors], groups, folds), folds


@pytest.fixture(scope="module")
def reference():
    X, _, groups = array()
    return *learned(X, groups), X, groups


def naive_distance(x, points) -> float:
    return float(np.log(np.sort(np.linalg.norm(points - x, axis=1))[:10].mean()))


def test_what_a_partner_leaves_is_what_its_map_does_not_predict(reference):
    """To single precision, and to the same bit whatever is asked with it."""
    screen, *_ = reference
    X = array(5)[0][:9].astype(np.float32).swapaxes(0, 1)
    left = screen._left(X)
    for pair, (s, k) in enumerate(zip(*np.nonzero(~np.eye(SENSORS, dtype=bool)), strict=True)):
        expected = X[s] - (X[k].astype(float) @ screen.maps[s, k] + screen.offsets[s, k])
        np.testing.assert_allclose(left[pair], expected, rtol=0, atol=1e-6 * np.abs(X).max())
    np.testing.assert_array_equal(left, np.concatenate([screen._left(X[:, n : n + 1]) for n in range(9)], axis=1))


def test_many_segments_have_the_distances_that_each_has_alone(reference):
    screen, X, present = reference[0], array(6)[0][:40], np.random.default_rng(0).random((40, SENSORS)) < 0.8
    compared = np.arange(40) % 3 > 0
    together = screen.distances(np.where(present[:, :, None], X, np.nan), present, compared)
    for n, one in enumerate(together):
        (alone,) = screen.distances(X[n : n + 1], present[n : n + 1], compared[n : n + 1])
        np.testing.assert_array_equal(one.own, alone.own)
        np.testing.assert_array_equal(one.ratios, alone.ratios)


def test_while_nobody_is_there_a_sensor_has_the_p_value_of_its_own_sound(reference):
    """The same as in an array of which nobody contradicts anybody, and none by the other sensors."""
    screen, X = reference[0], array(6)[0][:40]
    for x in X:
        (distances,) = screen.distances(x[None], EVERYONE[None], np.zeros(1, bool))
        found = screen.ranked(distances, EVERYONE, EVERYONE, np.full(SENSORS, np.nan))
        np.testing.assert_array_equal(found.own, screen.p_values(x, EVERYONE, EVERYONE).own)
        np.testing.assert_array_equal(found.both, found.own)
        assert np.isnan(found.others).all()


def test_p_values_are_ranks_by_the_definition(reference):
    """Ridge regression by scikit-learn, distances and ranks by plain loops: the same p-values."""
    screen, folds, X, groups = reference
    x = array(7)[0][3]
    s, k, ridge = 0, 2, None
    for candidate in (0.1, 1.0):
        out = np.empty_like(X[:, s])
        for fold in np.unique(folds):
            away = folds == fold
            model = Ridge(alpha=candidate * (~away).sum()).fit(X[~away, k], X[~away, s])
            out[away] = model.predict(X[away, k])
        error = np.sum((X[:, s] - out) ** 2)
        if ridge is None or error < ridge[0]:
            ridge = error, candidate, out
    left = X[:, s] - ridge[2]
    own = np.array([naive_distance(X[n, s], X[groups != groups[n], s]) for n in range(len(X))])
    ratio = np.array([naive_distance(left[n], left[groups != groups[n]]) for n in range(len(X))]) - own
    full = Ridge(alpha=ridge[1] * len(X)).fit(X[:, k], X[:, s])
    new_own = naive_distance(x[s], X[:, s])
    new_ratio = naive_distance(x[s] - full.predict(x[k][None])[0], left) - new_own
    only = np.isin(np.arange(SENSORS), [s, k])
    found = screen.p_values(x, EVERYONE, only)
    tails = [tail_by_definition(own, groups, new_own), tail_by_definition(ratio, groups, new_ratio)]
    smaller = [min(np.sum(own >= own[i]), np.sum(ratio >= ratio[i])) for i in range(len(X))]
    new = 1 + min(np.sum(own >= new_own), np.sum(ratio >= new_ratio))
    expected = {
        "own": (np.sum(own >= new_own), tails[0]),
        "others": (np.sum(ratio >= new_ratio), tails[1]),
        "both": (np.sum(np.array(smaller) <= new), 1 - (1 - min(tails)) ** 2),
    }
    for name, (beyond, tail) in expected.items():
        by_rank, by_recording = (1 + beyond) / (len(X) + 1), (1 + beyond / SEGMENTS) / (RECORDINGS + 1)
        p = max(by_rank, min(by_recording, tail))
        assert getattr(found, name)[s] == pytest.approx(p, abs=2.5 / len(X), rel=0.05)


def test_false_alarms_come_as_often_as_promised():
    """One segment of each of 600 fresh recordings, independent of each other: within the binomial interval of alpha."""
    X, _, groups = array()
    screen, _ = learned(X, groups)
    rng = np.random.default_rng(3)
    p = []
    for seed in range(15):
        fresh = array(100 + seed)[0].reshape(RECORDINGS, SEGMENTS, SENSORS, FEATURES)
        p += [screen.p_values(one[rng.integers(SEGMENTS)], EVERYONE, EVERYONE).both for one in fresh]
    p = np.array(p)
    for alpha in (0.05, 0.2):
        for sensor in range(SENSORS):
            hits = int((p[:, sensor] <= alpha).sum())
            # The reference is one draw of 40 recordings: its own error is as large as that of 40 trials.
            spread = np.sqrt(alpha * (1 - alpha) * (1 / RECORDINGS + 1 / len(p)))
            assert abs(hits / len(p) - alpha) < 3 * spread
        low, high = binomtest(int((p <= alpha).sum()) // SENSORS, len(p)).proportion_ci(0.999)
        assert low < alpha + 0.03
        assert high > alpha - 0.03


def test_another_time_is_noticed_by_the_others_and_not_by_itself(reference):
    """A stale buffer is nominal for its own density and contradicts the others; these are left alone."""
    screen, *_ = reference
    fresh = array(11)[0]
    stale = fresh.copy()
    stale[:, 1] = np.roll(fresh[:, 1], 7 * SEGMENTS, axis=0)
    before = np.array([screen.p_values(x, EVERYONE, EVERYONE).both for x in fresh])
    found = [screen.p_values(x, EVERYONE, EVERYONE) for x in stale]
    own, both = np.array([f.own for f in found]), np.array([f.both for f in found])
    assert abs((own[:, 1] <= 0.05).mean() - 0.05) < 0.05
    assert (both[:, 1] <= 0.05).mean() > 0.85
    assert abs((both[:, [0, 2]] <= 0.05).mean() - (before[:, [0, 2]] <= 0.05).mean()) < 0.03


def test_a_masked_sensor_does_not_exist_for_the_others(reference):
    """With the third masked, the others have the p-values of an array of two, and the third is still measured."""
    screen, _, X, groups = reference
    pair, _ = learned(X, groups, sensors=slice(0, 2))
    masked = np.array([True, True, False])
    for x in array(12)[0][::17]:
        found = screen.p_values(x, EVERYONE, masked)
        alone = pair.p_values(x[:2], EVERYONE[:2], EVERYONE[:2])
        for name in ("own", "others", "both"):
            assert np.array_equal(getattr(found, name)[:2], getattr(alone, name), equal_nan=True)
        assert np.isfinite(found.both[2])
        rubbish = np.where(np.arange(SENSORS)[:, None] == 2, 1e6, x)
        assert (screen.p_values(rubbish, EVERYONE, masked).both[:2] == found.both[:2]).all()


def test_absent_sensors_say_nothing_and_one_alone_has_only_itself(reference):
    """NaN for the absent, whatever stands in its row; without partners the p-value is that of its own density."""
    screen, *_ = reference
    x = array(13)[0][0].copy()
    x[1] = np.nan
    found = screen.p_values(x, np.array([True, False, False]), EVERYONE)
    assert np.isnan(found.both[1:]).all()
    assert np.isnan(found.others[0])
    assert found.both[0] == found.own[0]


def test_what_is_not_believed_is_no_reference(reference):
    """Segments of weight zero could be anything, also NaN: nothing changes."""
    _, _, X, groups = reference
    weights = np.ones(X.shape[:2])
    weights[:60, 1] = 0
    spoilt = X.copy()
    spoilt[:30, 1], spoilt[30:60, 1] = 1e3, np.nan
    one, other = learned(X, groups, weights)[0], learned(spoilt, groups, weights)[0]
    for x in array(14)[0][::23]:
        assert (one.p_values(x, EVERYONE, EVERYONE).both == other.p_values(x, EVERYONE, EVERYONE).both).all()
    assert (one.own[:60, 1] != one.own[:60, 1]).all()


def test_without_enough_segments_a_sensor_is_not_ready():
    """No reference, no p-value; the others do without it."""
    X, _, groups = array()
    weights = np.ones(X.shape[:2])
    weights[15:, 2] = 0
    screen, _ = learned(X, groups, weights)
    assert screen.ready.tolist() == [True, True, False]
    found = screen.p_values(array(15)[0][0], EVERYONE, EVERYONE)
    assert np.isfinite(found.both[:2]).all()
    assert np.isnan(found.both[2])


def test_stored_and_loaded_it_says_the_same(reference):
    """All that decides is in the arrays."""
    screen, *_ = reference
    again = ArrayScreen.from_arrays(
        {name: array.copy() for name, array in screen.as_arrays().items()}, screen.novelty.copy(), screen.groups.copy()
    )
    x = array(16)[0][0]
    assert (again.p_values(x, EVERYONE, EVERYONE).both == screen.p_values(x, EVERYONE, EVERYONE).both).all()


def test_a_sound_that_is_far_at_one_sensor_alone_is_its_fault():
    """The timing says nothing here; the summary of one sensor is far from all classes, or that of all sensors."""
    X, _, groups = array()
    rng = np.random.default_rng(0)
    novelty = rng.normal(0, 0.3, (len(X), 1)) + rng.normal(0, 0.1, (len(X), SENSORS))
    y = np.where(groups % 2, 1.0, -1.0)
    folds = group_folds(groups, y, 5, np.random.RandomState(0))
    screen = ArrayScreen.learn(X, np.ones(X.shape[:2]), groups, folds, novelty)
    x = array(9)[0][3]
    usual = screen.p_values(x, EVERYONE, EVERYONE, np.zeros(SENSORS))
    at_one = screen.p_values(x, EVERYONE, EVERYONE, np.where(np.arange(SENSORS) == 1, 2.0, 0.0))
    at_all = screen.p_values(x, EVERYONE, EVERYONE, np.full(SENSORS, 2.0))
    assert at_one.both[1] <= 0.01
    assert (np.delete(at_one.both, 1) > 0.01).all()
    np.testing.assert_array_equal(at_all.both, usual.both)
    np.testing.assert_array_equal(
        screen.p_values(x, EVERYONE, EVERYONE).others, screen.p_values(x, EVERYONE, EVERYONE, usual.own * np.nan).others
    )


def test_false_alarms_come_as_often_as_promised_with_distances_of_the_summary():
    """Fresh segments of the same kind: p-values at most alpha in a share alpha, with three measures as with two."""
    X, _, groups = array()
    rng = np.random.default_rng(1)

    def far(n):
        return rng.normal(0, 0.3, (n, 1)) + rng.normal(0, 0.1, (n, SENSORS))

    folds = group_folds(groups, np.where(groups % 2, 1.0, -1.0), 5, np.random.RandomState(0))
    screen = ArrayScreen.learn(X, np.ones(X.shape[:2]), groups, folds, far(len(X)))
    p_values = []
    for seed in range(20, 26):
        fresh = array(seed)[0][:: SEGMENTS // 2]
        novelty = far(len(fresh))
        p_values += [screen.p_values(x, EVERYONE, EVERYONE, d).both for x, d in zip(fresh, novelty, strict=True)]
    for alpha in (0.05, 0.2):
        hits = np.array(p_values) <= alpha
        found = binomtest(int(hits[:, 0].sum()), len(hits)).proportion_ci(0.999)
        assert found.low <= alpha, alpha
