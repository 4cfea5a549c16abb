"""The learner of an array: who did not deliver, whose label is wrong, and what is learned all the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import SVC

from pipeline.learners import ArrayGEMMEDClassifier
from pipeline.learners._consistency import (
    _mixture,
    group_folds,
    mean_distances,
    predict_out_of_fold,
    ridge_map,
    shuffle_groups,
)
from pipeline.learners._labels import _fitted, label_evidence
from pipeline.learners.array import SensorSamples, fit_machine, typical_sizes

RECORDINGS, SEGMENTS, SENSORS, FEATURES = 40, 10, 3, 8


def array(seed: int = 0, *, apart: float = 1.3):
    """Scenes of two classes, each recording with a character of its own, heard by three sensors."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(RECORDINGS), SEGMENTS)
    y = groups % 2
    scene = rng.normal(size=(len(y), 6)) + 0.6 * rng.normal(size=(RECORDINGS, 6))[groups]
    scene[:, :3] += apart * (y[:, None] - 0.5)
    mixing = np.random.default_rng(99).normal(size=(SENSORS, 6, FEATURES)) / 2
    X = np.einsum("nd,sdf->nsf", scene, mixing) + 0.15 * rng.normal(size=(len(y), SENSORS, FEATURES))
    return X, y, groups


def fitted(X, y, groups, **settings):
    return ArrayGEMMEDClassifier(**settings).fit(X, y, groups=groups)


def stale(X, groups, sensor: int, share: float, seed: int = 5):
    """Some recordings of a sensor replaced by those of another time."""
    rng = np.random.default_rng(seed)
    X = X.copy()
    hit = rng.permutation(RECORDINGS)[: round(share * RECORDINGS)]
    clean = X[:, sensor].reshape(RECORDINGS, SEGMENTS, FEATURES).copy()
    bad = np.isin(groups, hit)
    X[:, sensor].reshape(RECORDINGS, SEGMENTS, FEATURES)[hit] = clean[
        (hit + 1 + 2 * rng.integers(0, 9, len(hit))) % RECORDINGS
    ]
    return X, bad


@pytest.fixture(scope="module")
def test_set():
    return array(1)[:2]


@pytest.fixture(scope="module")
def clean():
    return fitted(*array())


def test_on_clean_data_nothing_is_refused_and_nothing_is_lost(clean, test_set):
    """Contamination near zero; as accurate as an SVC on all sensors' features side by side."""
    X, y, _ = array()
    assert clean.contamination_.max() < 0.02
    assert clean.wrong_labels_ < 0.05
    assert (clean.posterior_ < 0.5).mean() < 0.03
    svc = SVC(C=10, gamma=0.25 / (2 * SENSORS * FEATURES)).fit(X.reshape(len(X), -1), y)
    assert clean.score(*test_set) > svc.score(test_set[0].reshape(len(test_set[0]), -1), test_set[1]) - 0.02


@pytest.mark.parametrize("sensor", [0, 2])
def test_a_sensor_that_replays_another_time_is_found_though_its_sound_is_nominal(sensor, test_set):
    """A third of its recordings: found almost without error, counted right, and the other sensors left alone."""
    X, y, groups = array()
    X, bad = stale(X, groups, sensor, 0.35)
    model = fitted(X, y, groups)
    assert roc_auc_score(bad, -model.evidence_[sensor].log_odds) > 0.98
    assert model.contamination_[sensor] == pytest.approx(bad.mean(), abs=0.08)
    others = np.delete(np.arange(SENSORS), sensor)
    assert model.contamination_[others].max() < 0.05
    assert (model.delivered_[:, others] < 0.5).mean() < 0.05
    own_density = NearestNeighbors(n_neighbors=30).fit(X[:, sensor]).kneighbors(X[:, sensor])[0].mean(axis=1)
    assert roc_auc_score(bad, own_density) < 0.7  # negative control: its own density does not see it
    alone = SVC(C=10, gamma=0.25 / (2 * FEATURES)).fit(X[:, sensor], y)
    ours = np.mean((model.sensor_margins(test_set[0])[:, sensor] > 0) == test_set[1])
    assert ours > alone.score(test_set[0][:, sensor], test_set[1]) + 0.01


def test_sensors_are_compared_by_their_timing_and_classes_told_apart_by_the_rest(test_set):
    """A sensor whose timing is of another time is found though its other features are right, and not the reverse."""
    X, y, groups = array()
    other, bad = stale(X, groups, 1, 0.35)
    model = ArrayGEMMEDClassifier().fit(X, y, groups=groups, timing=5 * other[:, :, :6])
    assert roc_auc_score(bad, -model.evidence_[1].log_odds) > 0.95
    assert model.contamination_[[0, 2]].max() < 0.05
    assert model.timing_scales_ == pytest.approx(5 * typical_sizes(other[:, :, :6], np.ones(X.shape[:2], bool)))
    unseen = ArrayGEMMEDClassifier().fit(other, y, groups=groups, timing=X)
    assert unseen.contamination_.max() < 0.02
    np.testing.assert_array_equal(unseen.delivered_, fitted(X, y, groups).delivered_)
    same = ArrayGEMMEDClassifier().fit(X, y, groups=groups, timing=X)
    np.testing.assert_array_equal(same.sensor_margins(test_set[0]), fitted(X, y, groups).sensor_margins(test_set[0]))


def test_a_sensor_is_present_where_it_has_both_views():
    """NaN in either of them is absence; views of other segments or sensors are refused."""
    X, y, groups = array()
    timing = X.copy()
    timing[:30, 1] = np.nan
    model = ArrayGEMMEDClassifier().fit(X, y, groups=groups, timing=timing)
    assert (model.delivered_[:30, 1] == 0).all()
    assert model.delivered_[30:, 1].mean() > 0.9
    for wrong in (timing[:-1], timing[:, :2]):
        with pytest.raises(ValueError, match=r"must have the segments and sensors of X, .400, 3.; give both views"):
            ArrayGEMMEDClassifier().fit(X, y, groups=groups, timing=wrong)


def test_wrong_labels_are_found_by_recording(test_set):
    """A fifth of the recordings: most are refused, few others, and the classifier is not worse for it."""
    X, y, groups = array()
    wrong = np.isin(groups, np.random.default_rng(3).permutation(RECORDINGS)[:8])
    given = np.where(wrong, 1 - y, y)
    model = fitted(X, given, groups)
    assert roc_auc_score(wrong, -model.label_right_) > 0.95
    assert (model.label_right_[wrong] < 0.5).mean() >= 0.75
    assert (model.label_right_[~wrong] > 0.5).mean() > 0.9
    assert model.wrong_labels_ == pytest.approx(0.2, abs=0.1)
    believing = np.zeros(len(test_set[0]))
    for s, scale in enumerate(model.scales_):
        machine = fit_machine(X[:, s] / scale, np.where(given, 1.0, -1.0), np.ones(len(X)), model.folds_)
        believing += machine.log_odds(machine.decision(test_set[0][:, s] / scale))
    assert model.score(*test_set) > np.mean((believing > 0) == test_set[1]) - 0.02


@pytest.mark.parametrize("n_rare", [4, 6])
def test_a_rare_class_is_not_taken_for_wrong_labels(n_rare, test_set):
    """Twenty recordings of one class, few of the other, all labels right."""
    X, y, groups = array()
    kept = np.where(groups % 2, groups // 2 < n_rare, groups // 2 < 20)
    model = ArrayGEMMEDClassifier().fit(X[kept], y[kept], groups=groups[kept])
    assert (model.label_right_ > 0.5).all()
    assert model.wrong_labels_ == 0
    X_test, y_test = test_set
    assert model.score(X_test, y_test) > 0.7


@pytest.mark.parametrize("wrong", [0.0, 0.45])
def test_where_labels_say_nothing_the_smoothest_machine_is_taken(wrong):
    """With nearly half of the labels wrong, all machines are as bad on left-out recordings: none can be chosen."""
    X, y, groups = array(apart=2.0)
    flipped = np.random.default_rng(3).permutation(RECORDINGS)[: round(wrong * RECORDINGS)]
    model = fitted(X, np.where(np.isin(groups, flipped), 1 - y, y), groups)
    assert ((model.width_, model.C_) == (0.125, 0.1)) == (wrong > 0)


def test_loud_failures_are_refused():
    """Segments ten times too large, in one sensor."""
    X, y, groups = array()
    bad = np.random.default_rng(7).random(len(y)) < 0.15
    X[bad, 1] *= 10
    model = fitted(X, y, groups)
    assert (model.delivered_[bad, 1] < 0.5).mean() > 0.9
    assert (model.delivered_[:, [0, 2]] < 0.5).mean() < 0.05


def test_absent_sensors_count_for_nothing_and_change_nobody():
    """NaN is not a value: what would have stood there makes no difference, and margins of others are there."""
    X, y, groups = array()
    X[groups < 10, 2] = np.nan
    model = fitted(X, y, groups)
    assert (model.posterior_[groups < 10, 2] == 0).all()
    new = array(1)[0][:20]
    margins = model.sensor_margins(new)
    new[:, 1] = np.nan
    without = model.sensor_margins(new)
    assert np.isnan(without[:, 1]).all()
    assert (without[:, [0, 2]] == margins[:, [0, 2]]).all()
    np.testing.assert_allclose(model.decision_function(new), margins[:, [0, 2]].sum(axis=1))
    assert np.isnan(model.sensor_probabilities(new)[:, 1]).all()


def test_a_sensor_that_was_never_there_is_not_trained():
    """And does not keep the others from deciding."""
    X, y, groups = array()
    X[:, 0] = np.nan
    model = fitted(X, y, groups)
    assert model.discriminants_[0] is None
    assert np.isnan(model.sensor_margins(array(1)[0])[:, 0]).all()
    assert model.score(*array(1)[:2]) > 0.8


def test_one_sensor_is_an_array_too():
    """There is nobody to compare with: only its own density speaks, and labels are judged all the same."""
    X, y, groups = array()
    model = fitted(X[:, :1], y, groups)
    assert model.evidence_[0].mixture is None
    assert model.score(array(1)[0][:, :1], array(1)[1]) > 0.75


def test_probabilities_agree_with_margins_and_are_calibrated(clean, test_set):
    """One half where the margin is zero; of the segments given 0.8 or more, at least 0.7 are right."""
    margins, probabilities = clean.sensor_margins(test_set[0]), clean.sensor_probabilities(test_set[0])
    assert ((probabilities > 0.5) == (margins > 0)).all()
    for s in range(SENSORS):
        sure = probabilities[:, s] > 0.8
        assert test_set[1][sure].mean() > 0.7


def test_repeats_to_the_bit_and_leaves_its_input_alone():
    """Also with other names for classes and recordings."""
    X, y, groups = array()
    X.flags.writeable = False
    one = fitted(X, y, groups)
    other = fitted(X, np.array(["human", "with animal"])[y], np.array([f"r{g:03d}" for g in groups]))
    assert one.posterior_.tobytes() == other.posterior_.tobytes()
    assert one.decision_function(X).tobytes() == other.decision_function(X).tobytes()
    assert set(other.predict(X)) == {"human", "with animal"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, g: (X[:, 0], y, g), "X of shape .400, 8. must be .segments, sensors, features."),
        (lambda X, y, g: (X, y[:5], g), "must have 400 labels of two classes"),
        (lambda X, y, g: (X, y * 0, g), "with 1 classes must have 400 labels of two classes"),
        (lambda X, y, g: (X, y, g[:7]), "groups of shape .7,. must have 400 entries"),
        (lambda X, y, g: (X, (g == 0).astype(int), g), "1 recording of one class must be at least 2"),
        (lambda X, y, g: (np.where(X > 3, np.inf, X), y, g), "infinite values; give NaN for a sensor that is absent"),
    ],
)
def test_wrong_input_is_named(change, message):
    """Shape, classes, groups, values."""
    X, y, groups = change(*array())
    with pytest.raises(ValueError, match=message):
        fitted(X, y, groups)


def test_wrong_parameters_and_shapes_are_named(clean):
    """At fit, and for new segments."""
    for settings_, message in [
        ({"label_prior": 1.0}, "label_prior=1.0 must be a number above 0 and below 1"),
        ({"n_folds": 1}, "n_folds=1 must be a whole number at least 2"),
        ({"amplitude": 0}, "amplitude=0 must be a number above 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            fitted(*array(), **settings_)
    with pytest.raises(ValueError, match=r"X of shape .5, 2, 8. must be .segments, 3, 8."):
        clean.predict(np.zeros((5, 2, 8)))


# Parts


@given(st.integers(0, 1000), st.integers(1, 12))
@settings(max_examples=30)
def test_mean_distances_equal_brute_force(seed, k):
    """To the nearest of other groups only."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(17, 3)), rng.normal(size=(40, 3))
    a, b = rng.integers(0, 4, 17), rng.integers(0, 4, 40)
    expected = [np.sort(np.linalg.norm(B[b != a[i]] - A[i], axis=1))[:k].mean() for i in range(17)]
    np.testing.assert_allclose(mean_distances(A, a, B, b, k), expected, rtol=1e-6)


def test_distances_to_nobody_are_not_known():
    """All that is to be compared with may be of one recording; others keep their numbers to the bit, silently."""
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(600, 3)), rng.normal(size=(12, 3))
    a = rng.integers(0, 3, 600)
    found = mean_distances(A, a, B, np.zeros(12, np.int64))
    assert np.isnan(found[a == 0]).all()
    others = a != 0
    assert np.array_equal(found[others], mean_distances(A, np.ones(600, np.int64), B, np.zeros(12, np.int64))[others])


def test_a_sensor_that_delivered_in_one_recording_only_is_no_evidence():
    """It has nobody to be compared with, and nothing is warned of: a small training set may be so."""
    X, y, groups = array()
    groups = groups // 4 * 2 + y  # two recordings are one, so that it alone has more segments than neighbours are asked
    X[groups != 0, 2] = np.nan
    model = fitted(X, y, groups)
    assert not np.isfinite(model.evidence_[2].ratios).any()
    assert model.evidence_[2].mixture is None
    assert np.isfinite(model.posterior_).all()


def test_ridge_is_scikit_learns():
    """With weights, an offset, and the ridge in parts of the total weight."""
    rng = np.random.default_rng(0)
    x, t, w = rng.normal(size=(60, 5)) + 3, rng.normal(size=(60, 4)), rng.random(60)
    peer = Ridge(alpha=0.1 * w.sum()).fit(x, t, sample_weight=w)
    np.testing.assert_allclose(ridge_map(x, t, w, 0.1)(x), peer.predict(x), atol=1e-9)


def test_no_recording_takes_part_in_its_own_prediction():
    """What is predicted for a fold is one of the two ridges learned from the others, whatever the fold itself holds."""
    X, y, groups = array()
    folds = group_folds(groups, 2.0 * y - 1, 5, np.random.RandomState(0))
    away, weights = folds == 2, np.random.default_rng(0).random(len(y))
    expected = [ridge_map(X[~away, 0], X[~away, 1], weights[~away], ridge)(X[away, 0]) for ridge in (0.1, 1.0)]
    for change in (0.0, 100.0):
        target = X[:, 1] + change * away[:, None]
        found = predict_out_of_fold(X[:, 0], target, weights, folds)[0][away]
        assert min(np.abs(found - prediction).max() for prediction in expected) < 1e-12


def test_a_huge_sample_leaves_no_rounding_errors_in_the_predictions_for_its_fold():
    """Other folds are added up, not subtracted from all: what is learned from them is the same to many digits."""
    X, y, groups = array()
    folds = group_folds(groups, 2.0 * y - 1, 5, np.random.RandomState(0))
    away, weights = folds == 1, np.ones(len(y))
    X[np.flatnonzero(away)[0], :2] *= 1e6
    found = predict_out_of_fold(X[:, 0], X[:, 1], weights, folds)[0][away]
    expected = [ridge_map(X[~away, 0], X[~away, 1], weights[~away], ridge)(X[away, 0]) for ridge in (0.1, 1.0)]
    assert min(np.abs(found / prediction - 1).max() for prediction in expected) < 1e-6


def test_the_machine_that_is_kept_is_the_one_that_was_tuned():
    """Fitted again with the width and the cost that were chosen, it is the same to the bit."""
    X, y, groups = array()
    signs, weights = 2.0 * y - 1, np.random.default_rng(2).random(len(y))
    folds = group_folds(groups, signs, 5, np.random.RandomState(0))
    kept, sensor = fit_machine(X[:, 0], signs, weights, folds), SensorSamples.of(X[:, 0], signs, weights, 0.3)
    width = kept.kernel.gamma * sensor.median
    again = [
        sensor.discriminant(weights, weights, sensor.cross_fitted(weights, folds, width, C), width, C)
        for C in (0.1, 1.0, 3.0, 10.0)
    ]
    assert [np.array_equal(one.coefficients, kept.coefficients) for one in again].count(True) == 1
    assert [np.array_equal(one.slopes, kept.slopes) for one in again].count(True) == 1


@given(st.lists(st.integers(2, 9), min_size=4, max_size=12), st.integers(0, 50))
@settings(max_examples=50)
def test_folds_keep_recordings_whole_and_shuffling_leaves_them(sizes, seed):
    """Every fold has whole recordings of both classes; no sample is paired with its own recording."""
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = np.where(groups % 2 == 0, 1.0, -1.0)
    folds = group_folds(groups, y, 2, np.random.RandomState(seed))
    assert all(len(np.unique(folds[groups == g])) == 1 for g in np.unique(groups))
    assert all(len(np.unique(y[folds == f])) == 2 for f in np.unique(folds))
    partner = shuffle_groups(groups, np.random.RandomState(seed))
    if 2 * max(sizes) <= len(groups):
        assert (groups[partner] != groups).all()
        assert sorted(partner) == list(range(len(groups)))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.35])
def test_the_share_of_inconsistent_ratios_is_found(share):
    """Two normal densities of which one is known; and None where they cannot be told apart."""
    rng = np.random.default_rng(0)
    bad = rng.random(2000) < share
    ratios = np.where(bad, rng.normal(0.1, 0.15, 2000), rng.normal(-0.7, 0.12, 2000))
    mixture = _mixture(ratios, rng.normal(0.1, 0.15, 2000))
    assert mixture.contamination == pytest.approx(share, abs=0.02)
    assert mixture.consistent[0] == pytest.approx(-0.7, abs=0.02)
    assert (mixture.log_likelihood_ratio(ratios)[bad] < 0).mean() > 0.98 if share else True
    assert _mixture(rng.normal(0.1, 0.15, 500), rng.normal(0.1, 0.15, 500)) is None


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_the_share_of_wrong_labels_is_found(share):
    """Margins and their mirror image; difficult recordings of a clean set are not refused."""
    rng = np.random.default_rng(1)
    wrong = rng.random(400) < share
    margins = np.where(wrong, -1, 1) * rng.normal(0.8, 0.4, 400)
    found = label_evidence(margins, np.ones(400, bool), 0.95)
    assert found.wrong == pytest.approx(wrong.mean(), abs=0.03)
    assert found.likelier == (share > 0)
    assert (found.log_odds[~wrong] > 0).mean() > 0.96
    assert (found.log_odds[wrong] < 0).mean() > 0.9 if share else True


def test_many_wrong_labels_are_not_taken_for_one_wide_population():
    """Fourteen of 40 labels wrong: beginning with few, EM stays with one wide density and refuses nobody."""
    margins = np.concatenate([np.linspace(0.05, 1.6, 26), -np.linspace(0.05, 1.6, 14)])
    found = label_evidence(margins, np.ones(40, bool), 0.95)
    assert found.wrong == pytest.approx(0.35, abs=0.08)
    assert ((found.log_odds < 0) == (margins < -0.2)).mean() > 0.9


@given(st.integers(0, 1000), st.floats(0, 0.35))
@settings(max_examples=15)
def test_no_mirrored_pair_is_likelier_than_the_one_found(seed, share):
    """Against a brute search over share, mean and spread, with the density written out."""
    rng = np.random.default_rng(seed)
    m = np.where(rng.random(40) < share, -1, 1) * rng.normal(0.6, 0.5, 40)
    wrong, mean, spread = np.meshgrid(
        np.linspace(0.005, 0.4, 15), np.linspace(0.05, 1.2, 15), np.linspace(0.1, 1.2, 15)
    )

    def log_posterior(wrong, mean, spread):
        density = (1 - wrong) * norm.pdf(m, mean, spread) + wrong * norm.pdf(m, -mean, spread)
        return np.log(density).sum(axis=-1) + np.squeeze(2 * (0.05 * np.log(wrong) + 0.95 * np.log1p(-wrong)))

    best = log_posterior(*(grid.reshape(-1, 1) for grid in (wrong, mean, spread))).max()
    found = _fitted(m, 0.95)
    assert log_posterior(*np.array([[found.wrong], [found.mean], [found.spread]])[:, None]) > best - 0.1


def test_recordings_nobody_heard_keep_the_odds_of_all():
    """Neither refused nor vouched for."""
    margins = np.append(np.random.default_rng(1).normal(0.8, 0.3, 50), np.nan)
    found = label_evidence(margins, np.isfinite(margins), 0.95)
    assert found.log_odds[-1] == pytest.approx(np.log((1 - found.wrong) / found.wrong))


def test_a_sensor_that_is_dead_most_of_the_time_does_not_stop_the_others():
    """Nearly all distances are zero: no kernel width of zero, and the other sensors learn as ever."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(16), 10)
    y = groups % 2
    scene = rng.normal(size=(160, 3)) + 2 * y[:, None]
    X = scene[:, None] + 0.1 * rng.normal(size=(160, 3, 3))
    X[rng.random(160) < 0.9, 2] = -100.0
    model = ArrayGEMMEDClassifier().fit(X, y, groups=groups)
    assert ((model.sensor_margins(X)[:, :2] > 0) == y[:, None]).mean() > 0.9
    X[:, 2] = -100.0
    assert np.isnan(ArrayGEMMEDClassifier().fit(X, y, groups=groups).sensor_margins(X)[:, 2]).all()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.95])
def test_dead_segments_do_not_certify_each_other(share, test_set):
    """All equal, and nearest to each other: refused all the same, and the others of the sensor believed."""
    X, y, groups = array()
    dead = np.isin(groups, np.random.default_rng(8).permutation(RECORDINGS)[: round(share * RECORDINGS)])
    X[dead, 1] = 3.0
    model = fitted(X, y, groups)
    assert (model.delivered_[dead, 1] < 0.05).all()
    assert share > 0.9 or (model.delivered_[~dead, 1] > 0.5).mean() > 0.9
    assert (model.delivered_[:, [0, 2]] > 0.5).mean() > 0.97
    assert model.score(*test_set) > 0.75


def test_of_two_sensors_neither_is_blamed_alone():
    """Where they contradict each other both may be wrong: neither is believed as before, neither is thrown away."""
    X, y, groups = array()
    X, bad = stale(X, groups, 1, 0.3)
    model = fitted(X[:, :2], y, groups)
    assert model.contamination_ == pytest.approx([bad.mean() / 2] * 2, abs=0.06)
    for sensor in (0, 1):
        doubted = model.delivered_[bad, sensor]
        assert 0.1 < np.median(doubted) < 0.6
        assert np.median(model.delivered_[~bad, sensor]) > 0.9
    alone = fitted(X, y, groups)
    assert np.median(alone.delivered_[bad, 1]) < 0.01  # with a third the case is clear
    assert np.median(alone.delivered_[bad, 0]) > 0.9
