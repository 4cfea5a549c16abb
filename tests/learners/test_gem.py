"""GEM: conformal ranks against their definition, levels against the binomial, entropy against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from pipeline.learners import GEMDetector


def naive_lengths(X, k):
    D = cdist(X, X)
    np.fill_diagonal(D, np.inf)
    return np.sort(D, axis=1)[:, :k].mean(axis=1)


def test_leave_one_out_p_value_is_the_rank_in_the_completed_set():
    """Definition of full conformal: put the new sample in, recompute every length, take its rank."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(40, 3)), rng.normal(size=(25, 3)) * 1.5
    detector = GEMDetector(graph="leave-one-out", n_neighbors=4).fit(X)
    for x, p in zip(new, detector.p_values(new), strict=True):
        lengths = naive_lengths(np.vstack([X, x]), 4)
        assert p == pytest.approx(np.mean(lengths >= lengths[-1] * (1 - 1e-9)))


def test_bipartite_p_value_compares_each_sample_in_the_same_halves():
    """Definition of cross-conformal: against the halves that i was measured in, averaged over partitions."""
    from pipeline.learners._graphs import random_halves

    rng = np.random.default_rng(1)
    X, new = rng.normal(size=(40, 3)), rng.normal(size=(10, 3)) * 1.5
    detector = GEMDetector(n_neighbors=3, n_partitions=4, random_state=5).fit(X)
    halves = random_halves(np.arange(40), np.zeros(40, int), 4, np.random.RandomState(5))
    own, other = cdist(X, X), cdist(new, X)
    for m in range(len(new)):
        count = 1
        for i in range(40):
            mine = np.mean([np.sort(own[i, h == 1 - h[i]])[:3].mean() for h in halves])
            its = np.mean([np.sort(other[m, h == 1 - h[i]])[:3].mean() for h in halves])
            count += mine >= its * (1 - 1e-9)
        assert detector.p_values(new[m : m + 1])[0] == pytest.approx(count / 41)


@pytest.mark.parametrize("graph", ["leave-one-out", "bipartite"])
def test_false_alarm_rate_is_alpha(graph):
    """400 training sets, one new sample each: independent trials, so the count is binomial."""
    rng = np.random.default_rng(2)
    p = np.array(
        [
            GEMDetector(graph=graph, n_neighbors=3).fit(rng.normal(size=(59, 2))).p_values(rng.normal(size=(1, 2)))[0]
            for _ in range(400)
        ]
    )
    for alpha in (0.05, 0.1, 0.3):
        error = np.sqrt(alpha * (1 - alpha) / len(p))
        assert abs(np.mean(p <= alpha) - alpha) < 3.5 * error


def test_neighbours_of_the_same_recording_do_not_certify_an_anomaly():
    """A burst of near-identical anomalies hides without groups and is found with them."""
    rng = np.random.default_rng(3)
    X = np.vstack([rng.normal(size=(90, 3)), 6.0 + 0.01 * rng.normal(size=(10, 3))])
    groups = np.r_[np.arange(90) // 5, np.full(10, 99)]
    blind = GEMDetector(coverage=0.9, graph="leave-one-out").fit(X)
    aware = GEMDetector(coverage=0.9, graph="leave-one-out").fit(X, groups=groups)
    assert blind.minimal_entropy_set_[90:].all()
    assert not aware.minimal_entropy_set_[90:].any()


@pytest.mark.parametrize("graph", ["leave-one-out", "bipartite"])
def test_local_entropy_estimates_minus_log_density(graph):
    """Against the density of the Gaussian the samples come from."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(4000, 2))
    detector = GEMDetector(n_neighbors=20, n_partitions=1, graph=graph).fit(X)
    truth = -multivariate_normal(np.zeros(2)).logpdf(X)
    core = np.linalg.norm(X, axis=1) < 1.5
    assert np.mean((detector.local_entropy_ - truth)[core]) == pytest.approx(0.0, abs=0.05)
    assert np.corrcoef(detector.local_entropy_, truth)[0, 1] > 0.9


def test_local_entropy_of_one_neighbour_says_why_not():
    """log(k - 1) has no value at k = 1."""
    detector = GEMDetector(n_neighbors=1).fit(np.random.default_rng(0).normal(size=(20, 2)))
    with pytest.raises(ValueError, match="n_neighbors=1 must be at least 2 for local_entropy_"):
        _ = detector.local_entropy_


def test_scores_point_the_way_of_scikit_learn():
    """Higher is more normal; predict, decision and threshold agree."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 2))
    detector = GEMDetector(coverage=0.9).fit(X)
    near, far = detector.score_samples([[0.0, 0.0], [9.0, 9.0]])
    assert near > far
    new = rng.normal(size=(2000, 2))
    assert np.array_equal(detector.predict(new) == 1, detector.decision_function(new) >= 0)
    assert np.mean(detector.predict(new) == -1) == pytest.approx(0.1, abs=0.06)


def test_shift_rotation_and_scale_change_no_p_value():
    """The test sees distances only, and only their order."""
    rng = np.random.default_rng(6)
    X, new = rng.normal(size=(80, 3)), rng.normal(size=(30, 3)) * 2
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    expected = GEMDetector().fit(X).p_values(new)
    moved = GEMDetector().fit(X @ turn * 50 + 7).p_values(new @ turn * 50 + 7)
    np.testing.assert_array_equal(moved, expected)


def test_a_stream_of_p_values_does_not_depend_on_how_it_is_cut():
    """One at a time, in a list, as float32 or in a batch: the same p-values."""
    rng = np.random.default_rng(8)
    X, new = rng.normal(size=(100, 4)), rng.normal(size=(20, 4)).astype(np.float32)
    detector = GEMDetector().fit(X)
    batch = detector.p_values(new.astype(np.float64))
    single = [detector.p_values(x[None].astype(np.float64))[0] for x in new]
    assert batch.tolist() == single == detector.p_values(new.tolist()).tolist() == detector.p_values(new).tolist()
    with pytest.raises(ValueError, match="contains NaN"):
        detector.p_values(np.array([[np.nan, 0.0, 0.0, 0.0]]))


@pytest.mark.parametrize("graph", ["leave-one-out", "bipartite"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("loudest", [1.0, 1e5, 1e30])
def test_scanning_in_single_precision_decides_nothing(graph, offset, loudest):
    """Scores equal brute force in double precision, also far from the origin and beside absurdly loud samples."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(150, 6)) + offset
    X[:3] *= loudest
    new = np.vstack([rng.normal(size=(30, 6)) + offset, X[:3] * 1.1, X[10:12], X[:1] * 1e10])
    detector = GEMDetector(graph=graph, n_neighbors=4, n_partitions=1, random_state=1).fit(X)
    D = cdist(new, X)
    if graph == "leave-one-out":
        expected = np.sort(D, axis=1)[:, :4].mean(axis=1)
    else:
        from pipeline.learners._graphs import random_halves

        half = random_halves(np.arange(150), np.zeros(150, int), 1, np.random.RandomState(1))[0]
        expected = np.mean([np.sort(D[:, half == h], axis=1)[:, :4].mean(axis=1) for h in (0, 1)], axis=0)
    np.testing.assert_allclose(-detector.score_samples(new), expected, rtol=1e-9)
