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


@pytest.mark.parametrize("learner", [MEDClassifier, GEMMEDClassifier, GEMSVC, RODClassifier])
def test_weight_zero_is_the_same_as_absence(learner, two_blobs):
    """A sample of weight zero shapes neither kernel, graph nor classifier."""
    X, y = two_blobs
    gone = np.arange(len(X)) % 5 == 0
    X[gone] += 30.0
    weighted = learner().fit(X, y, sample_weight=(~gone).astype(float)).decision_function(X[~gone])
    removed = learner().fit(X[~gone], y[~gone]).decision_function(X[~gone])
    np.testing.assert_allclose(weighted, removed, atol=5e-3)


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
