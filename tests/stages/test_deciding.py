"""Screening, classification, fusion: who is believed, what each says, what follows."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy.special import softmax

from pipeline.core.errors import SettingsError
from pipeline.core.events import Decision, Features, RecordingStarted, Role, Screened, Span, TrustChanged, Verdicts
from pipeline.stages import Classification, Fusion, OperatorMask, Screening

N = 4
EVERYONE = np.ones(N, bool)


def features(*, present=EVERYONE, trusted=EVERYONE) -> Features:
    """The summary counts upwards, the timing downwards."""
    summary = np.where(np.asarray(present)[:, None], np.arange(8.0).reshape(N, 2), np.nan).astype(np.float32)
    return Features(Span(0, 10), Span(1, 9), summary, -summary, np.asarray(present), np.asarray(trusted))


def verdicts(p_values=(1.0,) * N, log_odds=(2.0,) * N, calibrating=(False,) * N, **masks) -> Verdicts:
    p = np.asarray(p_values, float)
    screened = Screened(features(**masks), p, p, p, p, np.asarray(calibrating))
    return Verdicts(screened, np.asarray(log_odds, float), against_first(log_odds))


def against_first(log_odds) -> np.ndarray:
    """Of both classes against the first, (sensors, 2), from those of the second."""
    log_odds = np.asarray(log_odds, float)
    return np.column_stack([log_odds * 0, log_odds])


def mean_vote(log_odds, values, weights):
    """A rule that is easy to follow: the weighted sum."""
    heard = weights > 0
    return weights[heard] @ log_odds[heard]


def decide(given: Verdicts, **settings) -> Decision:
    (decision,) = Fusion(("a", "b"), mean_vote, **settings).push(given)
    return decision


class Odd:
    """A screen that refuses odd sensors, and notes what it was asked, and whom to compare with."""

    ready = np.array([True, True, True, False])

    def distances(self, X, present, compared):
        self.asked = X
        return [None] * len(X)

    def ranked(self, distances, present, partners, novelty):
        self.partners, self.novelty = partners, novelty
        p = np.where(present & self.ready, np.where(np.arange(N) % 2, 0.001, 0.5), np.nan)
        return type("P", (), {"own": p, "others": p, "both": p, "agree": np.ones((N, N), bool)})


class Known:
    """A reference to which the first half of the sensors is known, and which notes what it was asked."""

    def measured(self, X, present):
        self.asked = X
        return np.where(present, np.where(np.arange(N) < N / 2, 0.1, 500.0), np.nan)

    def p_values(self, measured):
        return np.where(np.isnan(measured), np.nan, np.where(measured < 1, 0.9, 0.002))


class Double:
    """Classifiers of two classes whose margin is the sum of the features, and whose log-odds are twice that."""

    def margins(self, X, present):
        return np.where(present, X.sum(axis=2), np.nan).astype(float)

    def log_odds(self, margins):
        return margins[:, :, None] * [0, 2]


def test_without_a_reference_there_is_no_p_value():
    """Calibrating, never a default score."""
    (screened,) = Screening(None, None).push(features())
    assert np.isnan([screened.p_own, screened.p_others, screened.p_values, screened.p_known]).all()
    assert screened.calibrating.all()
    decision = decide(Verdicts(screened, np.ones(N), against_first(np.ones(N))))
    assert decision.outcome.label is None
    assert decision.roles == (Role.CALIBRATING,) * N
    assert "calibrating 1 and 2 and 3 and 4" in decision.outcome.reason


def test_screening_compares_with_trusted_sensors_and_still_measures_the_others():
    """The mask of trust goes to the screen as partners; a masked sensor has a p-value all the same."""
    screen, trusted = Odd(), np.array([True, False, True, True])
    (screened,) = Screening(screen, Known()).push(features(trusted=trusted))
    assert (screen.partners == trusted).all()
    assert screened.p_values[1] == 0.001
    assert screened.calibrating.tolist() == [False, False, False, True]


def test_sensors_are_compared_by_their_timing_and_sounds_are_known_by_their_summary():
    """Each view goes to whom it is made for, and what they say is told apart; how far sounds are is told the screen."""
    screen, reference, given = Odd(), Known(), features(present=[True, True, False, True])
    (screened,) = Screening(screen, reference).push(given)
    assert np.array_equal(screen.asked, given.timing[None], equal_nan=True)
    assert np.array_equal(reference.asked, given.summary[None], equal_nan=True)
    assert np.array_equal(screen.novelty, [0.1, 0.1, np.nan, 500.0], equal_nan=True)
    assert np.array_equal(screened.p_values, [0.5, 0.001, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(screened.p_known, [0.9, 0.9, np.nan, 0.002], equal_nan=True)


def test_each_sensor_is_classified_alone():
    """Margins and log-odds of the summary by the sensor's own machine; NaN where it is absent."""
    (screened,) = Screening(Odd(), Known()).push(features(present=[True, True, False, True]))
    (given,) = Classification(Double()).push(screened)
    assert np.array_equal(given.margins, [1, 5, np.nan, 13], equal_nan=True)
    assert np.array_equal(given.log_odds, against_first([2, 10, np.nan, 26]), equal_nan=True)


@pytest.mark.parametrize(
    ("p_value", "weight"),
    [(0.001, 0), (0.01, 0), (0.01 * 10**0.5, 0.5), (0.1, 1), (0.7, 1)],
)
def test_a_weight_rises_with_the_logarithm_of_the_p_value(p_value, weight):
    """Nothing at alpha, half a decade above it one half, a decade above it everything."""
    decision = decide(verdicts([p_value, 1, 1, 1]), alpha=0.01)
    assert decision.weights[0] == pytest.approx(weight, abs=1e-12)
    assert decision.roles[0] is (Role.USED if weight else Role.ANOMALOUS)
    assert decision.sensors_used == 4 - (weight == 0)
    assert decision.degraded == (weight == 0)


def test_every_reason_not_to_listen_is_named():
    """Absent, masked, calibrating, anomalous, untrained: each its own word, in this order of precedence."""
    given = verdicts(
        p_values=[0.5, 0.5, np.nan, 0.001],
        present=[False, True, True, True],
        trusted=[True, False, True, True],
        calibrating=[False, False, True, False],
    )
    decision = decide(given)
    assert decision.roles == (Role.ABSENT, Role.MASKED, Role.CALIBRATING, Role.ANOMALOUS)
    assert decision.outcome.label is None
    assert decision.outcome.probability is None
    assert decision.outcome.reason == "no sensor can be believed: absent 1, masked 2, calibrating 3, anomalous 4"
    assert decide(verdicts(log_odds=[np.nan, 1, 1, 1])).roles[0] is Role.UNTRAINED


def test_a_masked_sensor_never_shifts_the_others():
    """Whatever a masked or absent sensor says: the same weights and roles for the others, the same outcome."""
    for masks in ({"trusted": [True, False, True, True]}, {"present": [True, False, True, True]}):
        one = decide(verdicts(p_values=[0.05, 0.5, 0.02, 1], log_odds=[1, 99, -2, 0.5], **masks))
        other = decide(verdicts(p_values=[0.05, 0.001, 0.02, 1], log_odds=[1, -99, -2, 0.5], **masks))
        assert (one.weights == other.weights).all()
        assert one.weights[1] == 0
        assert one.roles == other.roles
        assert one.outcome == other.outcome
        whole = decide(verdicts(p_values=[0.05, 0.5, 0.02, 1], log_odds=[1, 99, -2, 0.5]))
        assert (np.delete(whole.weights, 1) == np.delete(one.weights, 1)).all()


def test_the_outcome_is_the_rule_and_its_sigmoid():
    """Log-odds of four sensors, the sign the label, the probability that of the label."""
    decision = decide(verdicts(log_odds=[-2, -2, 0.5, 1]))
    assert decision.outcome.label == "a"
    assert decision.outcome.log_odds == -2.5
    assert decision.outcome.probability == pytest.approx(1 / (1 + np.exp(-2.5)))
    assert decide(verdicts(log_odds=[2, 2, -0.5, -1])).outcome.label == "b"
    assert decide(verdicts(log_odds=[500, 500, 500, 500])).outcome.probability == 1.0


def test_the_rule_is_given_the_summary():
    """It is the summary that tells classes apart."""
    given, seen = verdicts(), []
    Fusion(("a", "b"), lambda log_odds, values, weights: seen.append(values) or (0.0, 1.0)).push(given)
    assert all(values is given.screened.features.summary for values in seen)
    assert len(seen) == 1 + N  # with everybody, and without each


def test_what_is_too_close_to_call_is_not_called():
    """Below the least confidence there is no label; the probability is told."""
    close = verdicts(log_odds=[0.1, 0.1, 0, 0])
    decision = decide(close)
    assert decision.outcome.label is None
    assert decision.outcome.reason == "too close to call"
    assert decision.outcome.probability == pytest.approx(0.5498, abs=1e-4)
    assert decide(close, least_confidence=0.5).outcome.label == "b"


def test_without_each_sensor_is_what_would_be_decided_without_its_vote():
    """Each alternative equals the decision in which the sensor's weight is taken away, also when nobody is left."""
    given = verdicts(p_values=[1, 0.05, 0.001, 1], log_odds=[3, -1, 7, -1])
    decision = decide(given)
    for s in range(N):
        weights = decision.weights * (np.arange(N) != s)
        assert decision.without[s].log_odds == pytest.approx(mean_vote(given.log_odds, None, weights)[1])
    assert decision.without[2] == decision.outcome  # it had no say
    alone = decide(verdicts(p_values=[1, 0.001, 0.001, 0.001]))
    assert alone.outcome.label == "b"
    assert alone.without[0].label is None
    assert "masked 1, anomalous 2 and 3 and 4" in alone.without[0].reason


@pytest.mark.parametrize("settings", [{"alpha": 0}, {"alpha": 1}, {"least_confidence": 0.4}, {"least_confidence": 1}])
def test_settings_out_of_range_are_named(settings):
    """Name, value, rule."""
    (name, value), *_ = settings.items()
    with pytest.raises(SettingsError, match=rf"{name}={value} must .* is usual"):
        Fusion(("a", "b"), mean_vote, **settings)


def test_masking_takes_trust_at_the_start_of_every_recording():
    """A fact like any other, so that a replay can repeat it."""
    started = RecordingStarted("r", 16_000, ("1", "2", "3"))
    first, change = OperatorMask([1], 3).push(started)
    assert first is started
    assert isinstance(change, TrustChanged)
    assert change.trusted.tolist() == [True, False, True]
    assert OperatorMask([], 3).push(started) == [started]
    with pytest.raises(SettingsError, match="mask=4 must name sensors from 1 to 3"):
        OperatorMask([3], 3)


def test_facts_of_decisions_are_read_only():
    """Nobody changes a decision afterwards."""
    decision = decide(verdicts())
    with pytest.raises(ValueError, match="read-only"):
        decision.weights[0] = 0
    with pytest.raises(AttributeError):
        replace(decision).outcome = None  # type: ignore[misc]


class Torn:
    """All sensors agree in the first segments; then two contradict the other two, and are believed by nobody."""

    ready = np.ones(N, bool)
    smallest_p_values = np.full(N, 1e-3)

    def __init__(self, calm):
        self.left, self.partners = calm, []

    def distances(self, X, present, compared):
        return [None] * len(X)

    def ranked(self, distances, present, partners, novelty):
        self.partners.append(partners.tolist())
        p, agree = np.full(N, 0.5), np.ones((N, N), bool)
        if self.left <= 0:
            agree[:2, 2:] = agree[2:, :2] = False
        self.left -= 1
        return type("P", (), {"own": p, "others": p, "both": p, "agree": agree})


def test_a_pair_that_departs_from_its_past_is_refused_and_bears_no_witness():
    """Two sensors jump: they have the smallest p-values there can be, and the others are judged without them."""
    screen = Torn(calm=3)
    screening = Screening(screen, Known())
    before, jumped = features(), features()
    jumped = replace(jumped, summary=jumped.summary + np.array([[9.0], [9.0], [0.0], [0.0]], np.float32))
    for _ in range(3):
        (screened,) = screening.push(before)
        assert (screened.p_values == 0.5).all()
    (screened,) = screening.push(jumped)
    assert screened.p_values.tolist() == [1e-3, 1e-3, 0.5, 0.5]
    assert screened.p_others.tolist() == [1e-3, 1e-3, 0.5, 0.5]
    assert screen.partners[-1] == [False, False, True, True]
    screening.flush()
    (screened,) = screening.push(jumped)
    assert (screened.p_values == 0.5).all()


def many_verdicts(log_odds, **masks) -> Verdicts:
    """Of three classes: log-odds against the first, (sensors, 3)."""
    p = np.ones(N)
    screened = Screened(features(**masks), p, p, p, p, ~EVERYONE)
    log_odds = np.asarray(log_odds, float)
    return Verdicts(screened, np.zeros((N, 3)), log_odds - log_odds[:, :1])


def decide_among(classes, given: Verdicts, **settings) -> Decision:
    (decision,) = Fusion(classes, mean_vote, **settings).push(given)
    return decision


def test_of_several_classes_the_most_probable_is_decided_for():
    """Probabilities are the softmax of the fused log-odds; there are no log-odds of a second class."""
    log_odds = np.array([[0.0, 1.0, 0.5], [0, 2, -1], [0, 0, 1], [0, -1, 0.2]])
    decision = decide_among(("a", "b", "c"), many_verdicts(log_odds))
    expected = softmax(log_odds.sum(axis=0))
    assert decision.outcome.probabilities == pytest.approx(expected)
    assert decision.outcome.label == "b"
    assert decision.outcome.probability == max(decision.outcome.probabilities)
    assert decision.outcome.log_odds is None
    assert decision.classes == ("a", "b", "c")
    for s, outcome in enumerate(decision.without):
        assert outcome.probabilities == pytest.approx(softmax(np.delete(log_odds, s, axis=0).sum(axis=0)))
    assert decision.verdicts.probabilities()[1] == pytest.approx(softmax(log_odds[1]))


def test_several_classes_may_be_too_close_to_call():
    """The most probable one must reach the confidence, which no class does where two are as likely."""
    close = many_verdicts([[0.0, 2, 2], [0, 2, 2], [0, 0, 0], [0, 0, 0]])
    decision = decide_among(("a", "b", "c"), close)
    assert (decision.outcome.label, decision.outcome.reason) == (None, "too close to call")
    assert decision.outcome.probability == pytest.approx(decision.outcome.probabilities[1])
    even = many_verdicts(np.zeros((N, 3)))
    assert decide_among(("a", "b", "c"), even).outcome.probability == pytest.approx(1 / 3)
    sure = many_verdicts([[0.0, 900, 0]] * N)
    assert decide_among(("a", "b", "c"), sure).outcome.probabilities == pytest.approx((0, 1, 0), abs=1e-300)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_another_order_of_classes_decides_the_same(order):
    """Names go with their columns."""
    log_odds = np.array([[0.0, 1.0, 0.5], [0, 2, -1], [0, 0, 1], [0, -1, 0.2]])
    names = ("a", "b", "c")
    before = decide_among(names, many_verdicts(log_odds))
    after = decide_among([names[k] for k in order], many_verdicts(log_odds[:, order]))
    assert after.outcome.label == before.outcome.label
    assert after.outcome.probabilities == pytest.approx([before.outcome.probabilities[k] for k in order])


def test_two_classes_have_probabilities_that_mirror_each_other():
    """That of the label is the probability, to the bit."""
    for log_odds in (-2.5, 0.0, 2.5):
        outcome = decide(verdicts(log_odds=[log_odds, 0, 0, 0]), least_confidence=0.5).outcome
        assert outcome.probabilities[log_odds > 0] == outcome.probability
        assert sum(outcome.probabilities) == pytest.approx(1)


class Three:
    """Classifiers of three classes: a margin for each pair, and log-odds that are multiples of the first one.

    The second sensor has none.
    """

    def margins(self, X, present):
        margins = X.sum(axis=2, dtype=float)[:, :, None] * [1, 2, 3]
        margins[:, 1] = np.nan
        return margins

    def log_odds(self, margins):
        return margins[:, :, :1] * [0, 1, 2]


def test_each_sensor_tells_all_classes_apart():
    (screened,) = Screening(Odd(), Known()).push(features(present=[True, True, False, True]))
    (given,) = Classification(Three()).push(screened)
    nothing = [np.nan] * 3
    assert np.array_equal(given.margins, [[1, 2, 3], nothing, nothing, [13, 26, 39]], equal_nan=True)
    assert np.array_equal(given.log_odds, [[0, 1, 2], nothing, nothing, [0, 13, 26]], equal_nan=True)
    assert given.probabilities()[1] is None
