"""Three and more classes: coupling of pairs, and an array that learns them while sensors fail and labels are wrong."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.svm import SVC

from pipeline.learners.array_pairs import ArrayPairwiseClassifier, fit_pairwise
from pipeline.learners.kernel_classifier import class_pairs, coupled

SENSORS, FEATURES, SEGMENTS = 3, 6, 12
finite = st.floats(-5, 5, allow_nan=False)


def pairwise(scores) -> np.ndarray:
    """Log-odds of all pairs that agree with one score for each class."""
    scores = np.atleast_2d(scores)
    return np.column_stack([scores[:, j] - scores[:, i] for i, j in combinations(range(scores.shape[1]), 2)])


@given(st.lists(st.floats(-2.5, 2.5), min_size=2, max_size=6))
def test_pairs_that_agree_are_met_exactly(scores):
    """Any number of classes: the scores themselves, against the first."""
    scores = np.array(scores)
    assert coupled(pairwise(scores), len(scores))[0] == pytest.approx(scores - scores[0], abs=1e-9)


@given(st.integers(3, 5).flatmap(lambda k: st.lists(finite, min_size=k * (k - 1) // 2, max_size=k * (k - 1) // 2)))
def test_pairs_that_contradict_each_other_are_met_in_least_squares(log_odds):
    """As numpy solves it."""
    n_classes = round((1 + np.sqrt(1 + 8 * len(log_odds))) / 2)
    pairs = class_pairs(n_classes)
    design = np.zeros((len(pairs), n_classes))
    for n, (i, j) in enumerate(pairs):
        design[n, i], design[n, j] = -1, 1
    expected = np.linalg.lstsq(design, np.array(log_odds), rcond=None)[0]
    found = coupled(np.array([log_odds]), n_classes)[0]
    assert found == pytest.approx(expected - expected[0], abs=1e-9)


@given(st.lists(finite, min_size=6, max_size=6), st.permutations(range(4)))
def test_another_order_of_classes_gives_the_same_probabilities(log_odds, order):
    """Pairs of the new order are the old ones, some of them turned."""
    places = dict(zip(class_pairs(4), log_odds, strict=True))
    places |= {(j, i): -value for (i, j), value in places.items()}
    turned = [places[order[i], order[j]] for i, j in class_pairs(4)]
    before, after = (softmax(coupled(np.array([one]), 4)[0]) for one in (log_odds, turned))
    assert after == pytest.approx(before[list(order)], abs=1e-12)


def test_two_classes_are_left_as_they_are_and_huge_log_odds_of_more_are_clipped():
    """Bits of two; six is the largest of a pair of more."""
    assert (coupled(np.array([[700.0]]), 2) == [[0, 700.0]]).all()
    assert coupled(np.array([[700.0, 700.0, 0.0]]), 3)[0] == pytest.approx([0, 6, 6])


def wu_lin_weng(r: np.ndarray) -> np.ndarray:
    """Probabilities from those of pairs, r[i, j] = P(i | i or j), by the second method of Wu, Lin and Weng (2004)."""
    k = len(r)
    q = np.zeros((k, k))
    for i, j in permutations(range(k), 2):
        q[i, j] = -r[j, i] * r[i, j]
        q[i, i] += r[j, i] ** 2
    system = np.block([[q, np.ones((k, 1))], [np.ones((1, k)), np.zeros((1, 1))]])
    return np.linalg.solve(system, np.append(np.zeros(k), 1))[:k]


def test_coupling_is_as_accurate_as_that_of_wu_lin_and_weng():
    """Noisy pairs of four classes: as often right, and the log loss is no worse."""
    rng, n = np.random.default_rng(0), 3000
    truth = rng.integers(4, size=n)
    scores = rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[truth]
    noisy = pairwise(1.5 * scores) + rng.normal(size=(n, 6))
    ours = softmax(coupled(noisy, 4), axis=1)
    theirs = np.empty_like(ours)
    for row, log_odds in enumerate(noisy):
        r = np.full((4, 4), 0.5)
        for (i, j), value in zip(class_pairs(4), log_odds, strict=True):
            r[i, j], r[j, i] = expit(-value), expit(value)
        theirs[row] = wu_lin_weng(r)
    right = [np.mean(p.argmax(axis=1) == truth) for p in (ours, theirs)]
    assert right[0] > right[1] - 0.005
    loss = [-np.mean(np.log(p[np.arange(n), truth])) for p in (ours, theirs)]
    assert loss[0] < loss[1] + 0.05


def array(seed: int = 0, *, n_classes: int = 3, recordings: int = 30, apart: float = 2.0):
    """Scenes of several classes, each recording with a character of its own, heard by three sensors."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(recordings), SEGMENTS)
    y = groups % n_classes
    scene = rng.normal(size=(len(y), 6)) + 0.5 * rng.normal(size=(recordings, 6))[groups]
    scene[:, :n_classes] += apart * np.eye(n_classes)[y]
    mixing = np.random.default_rng(99).normal(size=(SENSORS, 6, FEATURES)) / 2
    X = np.einsum("nd,sdf->nsf", scene, mixing) + 0.15 * rng.normal(size=(len(y), SENSORS, FEATURES))
    return X, y, groups


def fitted(X, y, groups) -> ArrayPairwiseClassifier:
    return ArrayPairwiseClassifier().fit(X, y, groups=groups)


@pytest.fixture(scope="module")
def clean() -> ArrayPairwiseClassifier:
    return fitted(*array())


def test_on_clean_data_it_is_as_accurate_as_an_svc_on_all_features(clean):
    """Whose probabilities libsvm couples; and nothing is refused."""
    X, y, _ = array()
    fresh, truth, _ = array(1)
    assert clean.contamination_.max() < 0.03
    assert clean.wrong_labels_ < 0.05
    assert (clean.posterior_ < 0.5).mean() < 0.03
    svc = SVC(C=10, gamma=0.25 / (2 * SENSORS * FEATURES)).fit(X.reshape(len(X), -1), y)
    theirs = svc.score(fresh.reshape(len(fresh), -1), truth)
    ours = np.mean(clean.predict(fresh) == truth)
    assert ours > 0.75
    assert ours > theirs - 0.04


def test_probabilities_of_each_sensor_are_calibrated(clean):
    """Of segments with a probability near 0.7, about so many are right; all sum up to one."""
    fresh, truth, _ = array(2, recordings=90)
    p = clean.sensor_probabilities(fresh)
    assert p.sum(axis=2) == pytest.approx(np.ones(p.shape[:2]))
    for s in range(SENSORS):
        confidence, right = p[:, s].max(axis=1), p[:, s].argmax(axis=1) == truth
        assert right.mean() == pytest.approx(confidence.mean(), abs=0.08)


def test_names_of_classes_do_not_matter(clean):
    """Sorted otherwise, the same segments get the same class under its other name, but for ties of folds."""
    X, y, groups = array()
    fresh = array(1)[0]
    turned = fitted(X, np.array(["c", "a", "b"])[y], groups)
    found = np.array(["c", "a", "b"])[clean.predict(fresh)]
    assert np.mean(turned.predict(fresh) == found) > 0.97


def test_a_sensor_that_repeats_another_time_is_recognized_once_for_all_classes():
    """Six recordings of one sensor are those of others."""
    X, y, groups = array()
    bad = groups < 6
    X[bad, 1] = X[np.isin(groups, range(10, 16)), 1]
    found = fitted(X, y, groups)
    assert np.mean(found.delivered_[bad, 1] < 0.5) > 0.9
    assert np.mean(found.delivered_[~bad, 1] > 0.5) > 0.95
    assert np.mean(found.delivered_[:, [0, 2]] > 0.5) > 0.95


@pytest.mark.parametrize("n_classes", [3, 4])
def test_wrong_labels_are_doubted_in_every_pair(n_classes):
    """One recording of each class under the name of the next one; the others are believed."""
    X, y, groups = array(4, n_classes=n_classes, recordings=12 * n_classes, apart=2.5)
    wrong = groups < n_classes
    y = np.where(wrong, (y + 1) % n_classes, y)
    found = fitted(X, y, groups)
    assert (found.label_right_[wrong] < 0.5).all()
    assert (found.label_right_[~wrong] > 0.5).all()
    assert 0.02 < found.wrong_labels_ < 0.15


def test_a_sensor_without_enough_of_one_class_has_no_classifier():
    """A class that it could never name would lose all its votes."""
    X, y, groups = array()
    X[y == 2, 0] = np.nan
    found = fitted(X, y, groups)
    assert found.discriminants_[0] is None
    assert np.isnan(found.sensor_margins(X)[:, 0]).all()
    assert np.isnan(found.out_of_fold_log_odds_[:, 0]).all()
    assert found.out_of_fold_log_odds_.shape == (len(X), SENSORS, 3)
    assert np.isfinite(found.out_of_fold_log_odds_[:, 1:]).all()
    assert np.mean(found.predict(X) == y) > 0.8


def test_out_of_fold_log_odds_tell_classes_apart_honestly(clean):
    """About as often right as on a fresh set, not as on the training set."""
    fresh, truth, _ = array(1)
    y = array()[1]
    honest = np.mean(clean.out_of_fold_log_odds_.sum(axis=1).argmax(axis=1) == y)
    assert honest == pytest.approx(np.mean(clean.predict(fresh) == truth), abs=0.08)


def test_classes_of_combined_features():
    """Pairs of machines on features side by side; none where a class has too few segments."""
    X, y, groups = array()
    folds = groups % 5
    machine = fit_pairwise(X.reshape(len(X), -1), y, np.ones(len(X)), folds)
    fresh, truth, _ = array(1)
    log_odds = machine.class_log_odds(machine.decision(fresh.reshape(len(fresh), -1)))
    assert np.mean(log_odds.argmax(axis=1) == truth) > 0.75
    assert (log_odds[:, 0] == 0).all()
    weights = np.where((y == 2) & (groups > 2), 0.0, 1.0)
    assert fit_pairwise(X.reshape(len(X), -1), y, weights, folds) is None


def test_two_classes_are_refused():
    X, y, groups = array()
    with pytest.raises(ValueError, match=r"with 2 classes must have .* labels of three or more classes; use Array"):
        fitted(X, np.minimum(y, 1), groups)
