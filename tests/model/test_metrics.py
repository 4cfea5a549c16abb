"""Intervals that know what is independent, and figures recomputed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binomtest, t
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, precision_score, recall_score

from pipeline.model.metrics import (
    Judged,
    against_first,
    by_class,
    calibration,
    confusion,
    fused_log_odds,
    rate,
    summary,
    wilson,
)


def judged(truth, label, log_odds, recording="r", sensor_log_odds=(1.0, None), p_values=(0.5, 0.005)) -> Judged:
    """A decision of two classes, by the log-odds of the second."""
    own, *sensors = (None if one is None else (0.0, one) for one in (log_odds, *sensor_log_odds))
    return Judged(recording, 0, truth, label, own, tuple(sensors), p_values)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (10, 10), (41, 97)])
def test_wilson_is_scipys(hits, n):
    """The interval of independent trials."""
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert wilson(hits / n, n) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_independent_segments_have_the_interval_of_independent_trials():
    """One segment a recording: Wilson's interval, but for the factor of an estimated spread."""
    hits = np.array([True] * 30 + [False] * 10)
    found = rate(hits, [str(n) for n in range(40)])
    low, high = wilson(0.75, 40 * 39 / 40, t.ppf(0.975, 39))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_copies_of_a_segment_are_worth_one():
    """Twenty equal segments a recording say no more than one of them."""
    hits = np.array([True] * 30 + [False] * 10)
    names = [str(n) for n in range(40)]
    once, often = rate(hits, names), rate(np.repeat(hits, 20), np.repeat(names, 20))
    assert (often.low, often.high) == pytest.approx((once.low, once.high), abs=1e-9)
    assert often.n == 800
    assert often.n_recordings == 40


@pytest.mark.parametrize("n", [4, 8, 40])
def test_the_interval_covers_as_often_as_it_says(n):
    """Recordings with characters of their own, few or many: about 95 % of the intervals hold the true share."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(600):
        chance = rng.beta(8, 2, size=n)
        hits = rng.random((n, 20)) < chance[:, None]
        found = rate(hits.ravel(), np.repeat([str(place) for place in range(n)], 20))
        held += found.low <= 0.8 <= found.high
    assert held / 600 > 0.92


def test_equal_shares_count_as_recordings_whatever_the_rounding():
    """Eight of ten in each of two recordings: no spread to go by, so two trials, not twenty."""
    hits = np.array(([True] * 8 + [False] * 2) * 2)
    found = rate(hits, ["a"] * 10 + ["b"] * 10)
    assert (found.low, found.high) == pytest.approx(wilson(0.8, 2))


def test_all_right_is_not_certainty():
    """Ten recordings without an error: the lower end is that of ten trials, not of two hundred."""
    found = rate([True] * 200, np.repeat([str(n) for n in range(10)], 20))
    assert found.low == pytest.approx(wilson(1.0, 10)[0])
    assert found.high == pytest.approx(1.0)
    assert rate([], []) is None


def test_confusion_counts_abstentions_apart():
    """Rows the truth, the last column no decision."""
    cases = [judged(0, 0, -1.0), judged(0, 1, 1.0), judged(1, 1, 2.0), judged(1, None, 0.1), judged(1, None, None)]
    assert confusion(cases) == [[1, 1, 0], [0, 1, 2]]


def test_calibration_agrees_with_scikit_learn():
    """Brier score and log loss; and each bin holds what it should."""
    rng = np.random.default_rng(1)
    log_odds = rng.normal(0, 2, 500)
    truth = (rng.random(500) < 1 / (1 + np.exp(-log_odds))).astype(int)
    cases = [
        judged(int(t), None, float(v), recording=str(n % 50))
        for n, (t, v) in enumerate(zip(truth, log_odds, strict=True))
    ]
    found = calibration(cases)
    p = 1 / (1 + np.exp(-log_odds))
    assert found["brier"] == pytest.approx(brier_score_loss(truth, p), abs=1e-5)
    assert found["log_loss"] == pytest.approx(log_loss(truth, p), abs=1e-5)
    assert sum(one["right"]["segments"] for one in found["bins"]) == 500
    assert found["expected_error"] < 0.08
    assert calibration([])["bins"] == []


def test_the_summary_speaks_of_sensors_and_of_all():
    """Accuracy of each sensor that spoke, shares refused, whole recordings by their mean."""
    cases = [
        judged(1, 1, 2.0, "a", (1.0, -1.0), (0.5, 0.002)),
        judged(1, None, -0.1, "a", (2.0, -1.0), (0.5, 0.008)),
        judged(0, 0, -2.0, "b", (-1.0, None), (0.04, None)),
    ]
    found = summary(cases, ("human", "human_animal"))
    assert found["accuracy"]["value"] == 1.0
    assert found["accuracy_without_abstention"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert found["accuracy_by_recording"]["value"] == 1.0
    assert found["decided"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert found["sensors"][0]["accuracy"]["value"] == 1.0
    assert found["sensors"][1]["accuracy"] == found["sensors"][1]["accuracy"] | {"value": 0.0, "segments": 2}
    assert found["sensors"][1]["refused"]["0.005"]["value"] == 0.5
    assert found["sensors"][0]["refused"]["0.05"]["value"] == pytest.approx(1 / 3, abs=1e-6)


def four_classes(n: int = 400):
    """Decisions among four classes by log-odds that are calibrated; none where the best is below 0.5."""
    rng = np.random.default_rng(2)
    log_odds = rng.normal(0, 1.5, (n, 4))
    p = softmax(log_odds, axis=1)
    truth = np.array([rng.choice(4, p=row) for row in p])
    label = [int(row.argmax()) if row.max() > 0.5 else None for row in p]
    cases = [
        Judged(str(k % 40), k, int(truth[k]), label[k], tuple(log_odds[k] - log_odds[k, 0]), (None,), (0.5,))
        for k in range(n)
    ]
    return cases, truth, label, p


def test_figures_of_four_classes_are_those_of_scikit_learn():
    """Confusion with a column for no decision, recall, precision, accuracy, log loss, and half of their Brier score."""
    cases, truth, label, p = four_classes()
    assert (
        confusion(cases, 4)
        == confusion_matrix(truth, [4 if one is None else one for one in label], labels=range(5))[:4].tolist()
    )
    found = summary(cases, "abcd")
    assert found["accuracy_without_abstention"]["value"] == pytest.approx(np.mean(p.argmax(axis=1) == truth), abs=1e-6)
    assert found["calibration"]["log_loss"] == pytest.approx(log_loss(truth, p), abs=1e-6)
    brier = brier_score_loss(truth, p, labels=range(4), scale_by_half=True)
    assert found["calibration"]["brier"] == pytest.approx(brier, abs=1e-6)
    assert found["calibration"]["expected_error"] < 0.08
    assert sum(one["right"]["segments"] for one in found["calibration"]["bins"]) == 400
    named = [4 if one is None else one for one in label]
    for score, name in ((recall_score, "recall"), (precision_score, "precision")):
        theirs = score(truth, named, labels=range(4), average=None)
        assert [one[name]["value"] for one in by_class(cases, "abcd")] == pytest.approx(theirs, abs=1e-6)


def test_a_recording_of_several_classes_has_the_class_of_its_mean_log_odds():
    rows = [(0.0, 3.0, 0.0), (0.0, -1.0, 1.5), (0.0, -1.0, 1.0)]
    cases = [Judged("r", n, 2, None, one, (), ()) for n, one in enumerate(rows)]
    assert summary(cases, "abc")["accuracy_by_recording"]["value"] == 1.0
    cases = [Judged("r", n, 1, None, one, (), ()) for n, one in enumerate(rows)]
    assert summary(cases, "abc")["accuracy_by_recording"]["value"] == 0.0


def test_log_odds_come_from_what_is_known():
    """Those of the second of two classes, or the probabilities of more, which may be rounded to 0."""
    assert fused_log_odds(1.5, None) == (0.0, 1.5)
    assert fused_log_odds(None, None) is None
    assert fused_log_odds(None, (0.2, 0.8, 0.0)) == pytest.approx((0, np.log(4), np.log(5e-7 / 0.2)))
    assert against_first(np.float64("nan")) is None
    assert against_first(np.array([0.0, np.nan, np.nan])) is None
    assert against_first(np.float64(2)) == (0.0, 2.0)
    assert against_first(np.array([0.0, 1.0, 2.0])) == (0.0, 1.0, 2.0)
