"""Bad input gets a message that names the thing, its value, the rule and the cure."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.learners import GEMSVC, GEMDetector, GEMMEDClassifier, MEDClassifier, RODClassifier

CLASSIFIERS = [MEDClassifier, GEMMEDClassifier, RODClassifier, GEMSVC]
ALL = [GEMDetector, *CLASSIFIERS]

BAD_PARAMETERS = [
    (GEMDetector, {"coverage": 1.0}, "coverage=1.0 must be a number above 0 and below 1; 0.95"),
    (GEMDetector, {"coverage": "high"}, "coverage='high' must be a number"),
    (GEMDetector, {"n_neighbors": 0}, "n_neighbors=0 must be a whole number at least 1; 5 is usual"),
    (GEMDetector, {"n_neighbors": 2.5}, "n_neighbors=2.5 must be a whole number"),
    (GEMDetector, {"n_neighbors": 41}, "n_neighbors=41 is more than the 40 neighbours .* lower n_neighbors"),
    (GEMDetector, {"graph": "tree"}, "graph='tree' is not an option; choose one of 'bipartite', 'leave-one-out'"),
    (GEMDetector, {"n_partitions": 11}, "n_partitions=11 must be a whole number at least 1 and at most 10"),
    (MEDClassifier, {"kernel": "poly"}, "kernel='poly' is not an option; choose one of 'rbf', 'linear'"),
    (MEDClassifier, {"gamma": -1.0}, "gamma=-1.0 must be a number above 0; give a positive width"),
    (MEDClassifier, {"gamma": "wide"}, "gamma='wide' is not an option; choose one of 'median', 'scale'"),
    (MEDClassifier, {"C": 0}, "C=0 must be a number above 0; 1.0 is usual"),
    (MEDClassifier, {"amplitude": float("nan")}, "amplitude=nan must be a number above 0"),
    (MEDClassifier, {"kernel_rank": "low"}, "kernel_rank='low' is not an option"),
    (MEDClassifier, {"kernel_rank": 0}, "kernel_rank=0 must be a whole number at least 1; give the number"),
    (MEDClassifier, {"tol": 0.0}, "tol=0.0 must be a number above 0"),
    (GEMMEDClassifier, {"coverage": 0.0}, "coverage=0.0 must be a number above 0 and at most 1; give the share"),
    (GEMMEDClassifier, {"coverage": "guess"}, "coverage='guess' is not an option; choose one of 'auto'"),
    (GEMMEDClassifier, {"slack": 0.0}, "slack=0.0 must be a number above 0"),
    (GEMMEDClassifier, {"prior": 1.0}, "prior=1.0 must be a number above 0 and below 1; 0.95 is usual"),
    (GEMMEDClassifier, {"solver": "newton"}, "solver='newton' is not an option; choose one of 'mean-field', 'gibbs'"),
    (GEMMEDClassifier, {"step_sizes": (0.1, 0.1)}, "step_sizes=.* must hold three numbers, for lambda, mu and kappa"),
    (GEMMEDClassifier, {"step_sizes": (0.1, 0.1, -1)}, "step_sizes=-1 must be a number above 0"),
    (GEMMEDClassifier, {"max_iter": 0}, "max_iter=0 must be a whole number at least 1; leave it None"),
    (GEMMEDClassifier, {"n_neighbors": 21}, "n_neighbors=21 is more than the 20 neighbours .* of its class"),
    (RODClassifier, {"keep_fraction": 1.5}, "keep_fraction=1.5 must be a number above 0 and at most 1"),
    (RODClassifier, {"solver": "qp"}, "solver='qp' is not an option; choose one of 'alternating', 'sdp'"),
    (GEMSVC, {"coverage": 2}, "coverage=2 must be a number above 0 and at most 1"),
    (GEMSVC, {"C": True}, "C=True must be a number above 0"),
]


@pytest.mark.parametrize(("learner", "parameters", "message"), BAD_PARAMETERS)
def test_bad_parameter_is_named_with_its_rule_and_cure(learner, parameters, message, two_blobs):
    """The error says parameter=value, the rule, and what to do."""
    with pytest.raises(ValueError, match=message):
        learner(**parameters).fit(*two_blobs)


@pytest.mark.parametrize("learner", ALL)
def test_nan_is_refused_by_name(learner, two_blobs):
    """NaN is never imputed."""
    X, y = two_blobs
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        learner().fit(X, y)


@pytest.mark.parametrize("learner", CLASSIFIERS)
def test_more_than_two_classes_name_the_cure(learner, two_blobs):
    """The message points to the wrapper for more classes."""
    X, _ = two_blobs
    with pytest.raises(ValueError, match=r"Only binary classification .*OneVsRestClassifier"):
        learner().fit(X, np.arange(len(X)) % 3)


@pytest.mark.parametrize("learner", CLASSIFIERS)
def test_one_class_is_refused(learner, two_blobs):
    """There is nothing to tell apart."""
    X, y = two_blobs
    with pytest.raises(ValueError, match="y holds one class only"):
        learner().fit(X, np.zeros_like(y))


@pytest.mark.parametrize("learner", CLASSIFIERS)
def test_samples_without_any_variation_are_refused(learner):
    """All features constant: the message suspects a dead sensor."""
    with pytest.raises(ValueError, match=r"20 samples that are all equal.* dead sensor"):
        learner().fit(np.full((20, 3), 4.0), np.arange(20) % 2)


@pytest.mark.parametrize("learner", ALL)
def test_one_constant_feature_changes_nothing_of_substance(learner, two_blobs):
    """A dead column among live ones is harmless."""
    X, y = two_blobs
    dead = np.column_stack([X, np.full(len(X), 3.0)])
    expected = learner().fit(X, y).decision_function(X)
    np.testing.assert_allclose(learner().fit(dead, y).decision_function(dead), expected, atol=2e-3)


@pytest.mark.parametrize("learner", ALL)
def test_duplicates_are_accepted(learner, two_blobs):
    """Copies have distance zero; scores stay finite and classes are still told apart."""
    X, y = two_blobs
    model = learner().fit(np.repeat(X, 8, axis=0), np.repeat(y, 8))
    assert np.isfinite(model.decision_function(X)).all()
    if learner is not GEMDetector:
        assert model.score(X, y) > 0.85


@pytest.mark.parametrize("learner", [GEMDetector, GEMMEDClassifier, GEMSVC])
def test_too_few_groups_are_refused_by_name(learner, two_blobs):
    """One recording alone cannot calibrate itself."""
    X, y = two_blobs
    with pytest.raises(ValueError, match="groups holds the single group 5"):
        learner().fit(X, y, groups=np.full(len(X), 5))
    with pytest.raises(ValueError, match="groups has 3 entries for 80 samples"):
        learner().fit(X, y, groups=[1, 2, 3])


@pytest.mark.parametrize("learner", CLASSIFIERS)
def test_weights_of_zero_for_a_whole_class_are_refused(learner, two_blobs):
    """That would be training on one class."""
    X, y = two_blobs
    with pytest.raises(ValueError, match="sample_weight is zero for every sample of one class"):
        learner().fit(X, y, sample_weight=(y == 1).astype(float))


@pytest.mark.parametrize("learner", ALL)
def test_weight_zero_is_the_same_as_absence(learner, two_blobs):
    """A sample of weight zero shapes neither kernel, graph nor classifier."""
    X, y = two_blobs
    gone = np.arange(len(X)) % 5 == 0
    X[gone] += 30.0
    weighted = learner().fit(X, y, sample_weight=(~gone).astype(float))
    removed = learner().fit(X[~gone], y[~gone])
    np.testing.assert_array_equal(weighted.decision_function(X), removed.decision_function(X))
    if hasattr(learner, "p_values"):
        np.testing.assert_array_equal(weighted.p_values(X), removed.p_values(X))


def test_precomputed_kernel_must_be_a_gram_matrix(two_blobs):
    """Square, symmetric, positive diagonal, no negative eigenvalue."""
    X, y = two_blobs
    K = X @ X.T + 1.0
    cases = [
        (K[:, :40], "needs a square matrix"),
        (K + np.triu(np.ones_like(K)), "must be symmetric"),
        (K - 100 * np.eye(len(K)), "positive diagonal"),
    ]
    for kernel, message in cases:
        with pytest.raises(ValueError, match=message):
            GEMMEDClassifier(kernel="precomputed").fit(kernel, y)
    indefinite = np.eye(len(K)) + 0.9 * (np.outer(y - 0.5, y - 0.5) < 0)
    with pytest.raises(ValueError, match="has the eigenvalue"):
        GEMMEDClassifier(kernel="precomputed", solver="gibbs").fit(indefinite, y)


def test_p_values_of_a_precomputed_kernel_say_why_not(two_blobs):
    """The samples are not there to be measured."""
    X, y = two_blobs
    model = GEMMEDClassifier(kernel="precomputed").fit(X @ X.T + 1.0, y)
    with pytest.raises(ValueError, match="kernel='precomputed' hides the samples"):
        model.p_values(X @ X.T + 1.0)


def test_what_is_learned_of_a_sample_stays_at_its_place(two_blobs):
    """With weights of zero, per-sample results keep the length and order of the input."""
    X, y = two_blobs
    weights = (np.arange(len(X)) % 4 > 0).astype(float)
    absent = weights == 0
    model = GEMMEDClassifier().fit(X, y, sample_weight=weights)
    for values in (model.posterior_, model.log_odds_, model.multipliers_, model.distances_):
        assert np.array_equal(np.isnan(values), absent)
    detector = GEMDetector().fit(X, sample_weight=weights)
    assert np.array_equal(np.isnan(detector.edge_lengths_), absent)
    assert not detector.minimal_entropy_set_[absent].any()
    K = X @ X.T + 1.0
    handed = MEDClassifier(kernel="precomputed").fit(K, y, sample_weight=weights)
    there = ~absent
    alone = MEDClassifier(kernel="precomputed").fit(K[np.ix_(there, there)], y[there])
    np.testing.assert_allclose(handed.decision_function(K), alone.decision_function(K[:, there]))


def test_groups_and_weights_of_zero_together(two_blobs):
    """Two recordings, one with samples left out: everything stays finite."""
    X, y = two_blobs
    groups = np.tile([0, 1], 40)
    weights = np.ones(80)
    weights[[60, 61]] = 0
    model = GEMMEDClassifier().fit(X, y, sample_weight=weights, groups=groups)
    assert np.isfinite(model.decision_function(X)).all()
    assert np.isfinite(model.p_values(X)).all()


def test_refusals_that_leave_one_recording_do_not_spoil_p_values():
    """Samples left without a neighbour in another recording no longer calibrate; nominal samples stay nominal."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(-4, 1, (55, 2)), rng.normal(4, 1, (55, 2))])
    y = np.repeat([0, 1], 55)
    groups = np.tile(np.r_[np.zeros(50), np.ones(5)], 2).astype(int)
    X[50], X[105] = X[50] + 8, X[105] - 8
    model = GEMMEDClassifier(graph="leave-one-out", amplitude=0.1).fit(X, y, groups=groups)
    p = model.p_values(rng.normal(-4, 1, (200, 2)))
    assert np.median(p) > 0.2


@pytest.mark.parametrize("loudest", [1e9, 1e12, 1e40])
def test_one_absurd_reading_does_not_destroy_the_others(loudest):
    """A single huge sample is refused or outvoted; distances among the others keep their digits."""
    rng = np.random.default_rng(1)
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 3)) + 2.0 * (2 * y[:, None] - 1)
    X_new, y_new = rng.normal(size=(400, 3)) + 2.0 * (2 * np.arange(400)[:, None] % 4 - 1), np.arange(400) % 2
    X[0] = loudest
    for learner in CLASSIFIERS:
        assert learner().fit(X, y).score(X_new, y_new) > 0.9, learner
    detector = GEMDetector().fit(X)
    assert (detector.predict(X_new) == -1).mean() < 0.15
    assert (detector.edge_lengths_[1:] > 0).all()


def test_values_that_cannot_be_squared_are_refused_by_name(two_blobs):
    """1e160 overflows every distance."""
    X, y = two_blobs
    X[5, 1] = -1e160
    for learner in ALL:
        with pytest.raises(ValueError, match="X holds the value 1e\\+160, above 1e\\+100 distances overflow"):
            learner().fit(X, y)


def test_infinite_parameters_are_refused(two_blobs):
    """Infinity is a number to Python, not to a solver."""
    for parameter in ("C", "amplitude", "gamma"):
        with pytest.raises(ValueError, match=f"{parameter}=inf must be a number above 0"):
            MEDClassifier(**{parameter: float("inf")}).fit(*two_blobs)


def test_small_C_keeps_its_meaning(two_blobs):
    """Below amplitude times 1.2 the amplitude gives way: a smaller C still means a flatter function."""
    X, y = two_blobs
    spreads = [np.ptp(MEDClassifier(C=C).fit(X, y).decision_function(X)) for C in (1e-3, 1e-2, 1e-1, 1.0)]
    assert spreads == sorted(spreads)
    assert spreads[0] < spreads[1] / 5


def test_the_scale_of_weights_does_not_matter_to_probabilities(two_blobs):
    """Weights of 1/1000 with a thousandfold C: the same decisions and, nearly, the same probabilities."""
    X, y = two_blobs
    plain = MEDClassifier(C=10).fit(X, y).predict_proba(X)
    scaled = MEDClassifier(C=10_000).fit(X, y, sample_weight=np.full(len(X), 1e-3)).predict_proba(X)
    np.testing.assert_allclose(scaled, plain, atol=0.1)


def test_rod_says_when_it_is_still_changing(two_blobs):
    """One round is not enough, and that is said."""
    from sklearn.exceptions import ConvergenceWarning

    with pytest.warns(ConvergenceWarning, match="still changing its choice after max_iter=1"):
        model = RODClassifier(max_iter=1).fit(*two_blobs)
    assert not model.converged_


def test_step_sizes_of_the_wrong_kind_are_named(two_blobs):
    """Not a TypeError from inside."""
    with pytest.raises(ValueError, match=r"step_sizes=0.05 must hold three numbers"):
        GEMMEDClassifier(step_sizes=0.05).fit(*two_blobs)


def test_landmarks_without_kernel_are_named():
    """A linear kernel vanishes at its centre; one landmark there spans nothing."""
    X = np.zeros((20, 1))
    X[0], X[1] = 1.0, -1.0
    with pytest.raises(ValueError, match="kernel_rank=1 drew landmarks whose kernel is zero"):
        MEDClassifier(kernel="linear", kernel_rank=1, random_state=2).fit(X, np.arange(20) % 2)
