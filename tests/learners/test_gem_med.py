"""GEM-MED as a user meets it: what it refuses, what it reports, and when it warns."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from pipeline.experiments.ring import draw
from pipeline.learners import GEMMEDClassifier, MEDClassifier


@pytest.fixture(scope="module")
def ring():
    return draw(35, 0.3, seed=11)


def test_ring_anomalies_are_refused_and_the_classifier_is_not_fooled(ring):
    """Nearly every anomaly refused, nearly every nominal sample kept, error near the 24 % that is possible."""
    model = GEMMEDClassifier(kernel="linear").fit(ring.X, ring.y)
    refused = model.posterior_ < 0.5
    assert refused[ring.anomalous].mean() > 0.9
    assert refused[~ring.anomalous].mean() < 0.05
    assert 1 - model.score(ring.X_test, ring.y_test) < 0.26


def test_estimated_coverage_finds_the_contamination(ring):
    """30 % of each class is corrupted; the estimate says so, with evidence."""
    model = GEMMEDClassifier(kernel="linear").fit(ring.X, ring.y)
    np.testing.assert_allclose(model.coverage_, 0.7, atol=0.05)
    assert all(found.evidence > 5 for found in model.contamination_)
    told = GEMMEDClassifier(kernel="linear", coverage=0.7).fit(ring.X, ring.y)
    assert told.contamination_ is None


def test_one_polluted_class_does_not_shift_the_boundary():
    """Anomalies in one class only: mostly just its own coverage falls, and both classes stay equally likely."""
    untouched = 0
    for seed in range(10):
        ring = draw(55, 0.4, seed=seed, n_per_class=200)
        clean = draw(55, 0.0, seed=seed + 100, n_per_class=200)
        X = np.where(ring.y[:, None] > 0, clean.X, ring.X)
        model = GEMMEDClassifier(kernel="linear").fit(X, ring.y)
        assert model.coverage_[0] == pytest.approx(0.6, abs=0.05)
        untouched += model.coverage_[1] > 0.97
        predicted = model.predict(ring.X_test)
        assert abs(np.mean(predicted > 0) - 0.5) < 0.08
        assert np.mean(predicted != ring.y_test) < 0.27
    assert untouched >= 7


def test_clean_data_are_left_alone(two_blobs):
    """Nothing forces a rejection: few samples refused, and the decisions of plain MED nearly everywhere."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(-1, 1, (300, 5)), rng.normal(1, 1, (300, 5))])
    y = np.repeat([0, 1], 300)
    joint, plain = GEMMEDClassifier().fit(X, y), MEDClassifier().fit(X, y)
    assert (joint.posterior_ < 0.5).mean() < 0.03
    new = rng.normal(0, 1.5, (2000, 5))
    assert np.mean(joint.predict(new) == plain.predict(new)) > 0.98


def test_mislabelled_samples_are_refused_for_their_margin():
    """Flipped labels inside the other class are not far from anything; only the margin betrays them."""
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(-2, 1, (100, 2)), rng.normal(2, 1, (100, 2))])
    y = np.repeat([0, 1], 100)
    flipped = np.zeros(200, dtype=bool)
    flipped[[3, 30, 60, 90, 110, 130, 150, 170]] = True
    y_bad = np.where(flipped, 1 - y, y)
    model = GEMMEDClassifier(coverage=0.95, amplitude=0.1, n_neighbors=5).fit(X, y_bad)
    order = np.argsort(model.log_odds_)
    assert flipped[order[:8]].sum() >= 7


def test_eta_of_one_is_plain_med(two_blobs):
    """Coverage one with a certain prior: nothing can be refused, and the decisions are MED's."""
    X, y = two_blobs
    joint = GEMMEDClassifier(coverage=1.0, prior=1 - 1e-9, slack=10.0).fit(X, y)
    plain = MEDClassifier().fit(X, y)
    np.testing.assert_allclose(joint.decision_function(X), plain.decision_function(X), atol=5e-3)


def test_small_slack_pins_eta_to_the_minimal_entropy_set(ring):
    """slack towards 0: the method becomes screening, then training."""
    model = GEMMEDClassifier(kernel="linear", coverage=0.7, slack=1e-4).fit(ring.X, ring.y)
    for sign in (-1, 1):
        own = ring.y == sign
        nearest = np.argsort(model.distances_[own])[:70]
        assert (model.posterior_[own][nearest] > 0.5).mean() > 0.97


def test_both_solvers_agree_where_the_amplitude_is_small(ring):
    """At this amplitude the posterior is close to its mean-field form."""
    settings = {"kernel": "linear", "C": 1 / 30, "amplitude": 0.01, "coverage": 0.7}
    fast = GEMMEDClassifier(**settings).fit(ring.X, ring.y)
    slow = GEMMEDClassifier(**settings, solver="gibbs").fit(ring.X, ring.y)
    assert slow.converged_
    assert np.mean(fast.predict(ring.X_test) == slow.predict(ring.X_test)) > 0.98
    assert np.abs(fast.posterior_ - slow.posterior_).mean() < 0.02
    assert slow.dual_value_ == pytest.approx(fast.dual_value_, rel=0.05)


def test_everything_promised_is_there_after_fit(ring):
    """Multipliers, dual value, residuals, posterior, log-odds, convergence."""
    model = GEMMEDClassifier(kernel="linear").fit(ring.X, ring.y)
    n = len(ring.y)
    assert model.multipliers_.shape == model.posterior_.shape == model.log_odds_.shape == (n,)
    assert (model.multipliers_ >= 0).all()
    assert (model.entropy_multipliers_ >= 0).all()
    assert (model.coverage_multipliers_ >= 0).all()
    assert model.converged_
    assert set(model.kkt_residuals_) == {"margin", "entropy", "coverage", "posterior"}
    assert max(model.kkt_residuals_.values()) < 1e-3
    np.testing.assert_allclose(model.posterior_, 1 / (1 + np.exp(-model.log_odds_)), atol=1e-12)
    for z, sign in enumerate((-1, 1)):
        own = ring.y == sign
        assert model.posterior_[own].mean() >= model.coverage_[z] - 1e-6


def test_log_odds_do_not_saturate(ring):
    """Anomalies that are all at posterior zero are still ranked."""
    far = ring.X.copy()
    far[ring.anomalous] *= 30.0
    model = GEMMEDClassifier(kernel="linear", coverage=0.7, slack=0.01).fit(far, ring.y)
    worst = model.log_odds_[ring.anomalous]
    assert len(np.unique(worst)) == len(worst)


def test_running_out_of_iterations_is_said_aloud(ring):
    """ConvergenceWarning, and converged_ is False."""
    with pytest.warns(ConvergenceWarning, match="mean-field stopped after 1 iterations with the posterior residual"):
        model = GEMMEDClassifier(kernel="linear", max_iter=1, tol=1e-12).fit(ring.X, ring.y)
    assert not model.converged_
    with pytest.warns(ConvergenceWarning, match="gibbs stopped after 50 iterations"):
        GEMMEDClassifier(kernel="linear", solver="gibbs", max_iter=50, tol=1e-6).fit(ring.X, ring.y)


def test_a_collapse_is_detected():
    """A prior of near zero refuses whole classes; that is not passed off as a fit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.arange(60) % 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = GEMMEDClassifier(prior=1e-3, coverage=0.02).fit(X, y)
    assert any("the fit has collapsed: it keeps" in str(warning.message) for warning in caught)
    assert not model.converged_


def test_probabilities_are_calibrated():
    """On 4,000 new samples the predicted probability and the frequency agree in every tenth."""
    rng = np.random.default_rng(2)
    y = np.arange(400) % 2
    X = rng.normal(size=(400, 4)) + 0.8 * (2 * y[:, None] - 1)
    y_new = np.arange(4000) % 2
    X_new = rng.normal(size=(4000, 4)) + 0.8 * (2 * y_new[:, None] - 1)
    for model in (GEMMEDClassifier(), MEDClassifier()):
        p = model.fit(X, y).predict_proba(X_new)[:, 1]
        edges = np.quantile(p, np.linspace(0, 1, 11))
        for low, high in itertools.pairwise(edges):
            inside = (p >= low) & (p <= high)
            assert abs(p[inside].mean() - y_new[inside].mean()) < 0.1
        assert np.abs(p - y_new).mean() < 0.2


def test_probability_and_prediction_agree(ring):
    """One half is exactly where the decision changes."""
    model = GEMMEDClassifier(kernel="linear").fit(ring.X, ring.y)
    p = model.predict_proba(ring.X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(p[:, 1] > 0.5, model.decision_function(ring.X_test) > 0)


def test_p_values_of_new_samples(ring):
    """Nominal samples alarm at about alpha although the training set was corrupted; anomalies alarm."""
    model = GEMMEDClassifier(kernel="linear").fit(ring.X, ring.y)
    p = model.p_values(ring.X_test)
    assert np.mean(p <= 0.05) < 0.09
    assert (model.p_values(ring.X[ring.anomalous]) <= 0.05).mean() > 0.95


@pytest.mark.parametrize("kernel", ["rbf", "linear", "cosine"])
def test_precomputed_kernel_gives_the_same_classifier(two_blobs, kernel):
    """Handing over the Gram matrix changes nothing but where distances come from (so the coverage is given)."""
    from pipeline.learners._kernels import fitted_kernel

    X, y = two_blobs
    k = fitted_kernel(kernel, "median", X, np.random.RandomState(0))
    K = k(X, X)
    direct = MEDClassifier(kernel=kernel).fit(X, y)
    handed = MEDClassifier(kernel="precomputed").fit(K, y)
    np.testing.assert_allclose(handed.decision_function(K), direct.decision_function(X), atol=5e-3)


def test_low_rank_path_approaches_the_full_kernel():
    """With half of the samples as landmarks, the decisions agree on all but a few new samples."""
    rng = np.random.default_rng(4)
    y = np.arange(500) % 2
    X = rng.normal(size=(500, 3)) + 0.9 * (2 * y[:, None] - 1)
    new = rng.normal(size=(2000, 3)) * 1.5
    full = GEMMEDClassifier(kernel_rank=None).fit(X, y)
    low = GEMMEDClassifier(kernel_rank=250).fit(X, y)
    assert low.converged_
    assert np.mean(full.predict(new) == low.predict(new)) > 0.985
    np.testing.assert_allclose(low.posterior_, full.posterior_, atol=0.1)


def test_groups_keep_a_burst_from_certifying_itself():
    """Ten copies of one corrupted moment are refused once the learner knows they are one recording."""
    rng = np.random.default_rng(5)
    X = np.vstack(
        [rng.normal(-1.5, 1, (80, 2)), rng.normal(1.5, 1, (80, 2)), [8.0, -8.0] + 0.01 * rng.normal(size=(10, 2))]
    )
    y = np.r_[np.zeros(80), np.ones(90)].astype(int)
    groups = np.r_[np.arange(160) // 8, np.full(10, 99)]
    blind = GEMMEDClassifier(kernel="linear", coverage=0.88).fit(X, y)
    aware = GEMMEDClassifier(kernel="linear", coverage=0.88).fit(X, y, groups=groups)
    assert (aware.posterior_[160:] < 0.5).all()
    assert aware.log_odds_[160:].mean() < blind.log_odds_[160:].mean() - 1.0


def test_string_labels_and_their_order():
    """classes_ is sorted; a positive decision means classes_[1]."""
    rng = np.random.default_rng(6)
    X = np.vstack([rng.normal(-3, 1, (30, 2)), rng.normal(3, 1, (30, 2))])
    y = np.repeat(["walker", "animal"], 30)
    model = GEMMEDClassifier().fit(X, y)
    assert model.classes_.tolist() == ["animal", "walker"]
    assert model.predict([[-3, -3], [3, 3]]).tolist() == ["walker", "animal"]
    assert model.decision_function([[-3, -3]])[0] > 0


def test_med_follows_the_svm():
    """MED with box c and amplitude s is nearly an SVM with C = c s: decisions correlate above .99."""
    rng = np.random.default_rng(7)
    y = np.arange(400) % 2
    X = rng.normal(size=(400, 3)) + 0.7 * (2 * y[:, None] - 1)
    for C in (0.5, 5.0):
        med = MEDClassifier(C=C, gamma=0.2).fit(X, y)
        svm = SVC(C=C, gamma=0.2).fit(X, y)
        assert np.corrcoef(med.decision_function(X), svm.decision_function(X))[0, 1] > 0.99
