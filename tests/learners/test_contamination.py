"""The contamination estimate: near the truth where there is one, silent on clean classes of many shapes."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.learners import GEMDetector
from pipeline.learners._contamination import CLEAN_COVERAGE, contamination_of, coverages

CLEAN = {
    "normal, 2 features": lambda rng, n: rng.normal(size=(n, 2)),
    "normal, 50 features": lambda rng, n: rng.normal(size=(n, 50)),
    "uniform": lambda rng, n: rng.random((n, 3)),
    "exponential": lambda rng, n: rng.exponential(size=(n, 3)),
    "heavy tails": lambda rng, n: rng.standard_t(3, size=(n, 3)),
    "four clusters": lambda rng, n: rng.normal(size=(n, 5)) * 0.3 + 2 * rng.integers(0, 4, (n, 1)),
}


def lengths(X):
    return GEMDetector().fit(X).edge_lengths_


@pytest.mark.parametrize("shape", CLEAN)
def test_clean_classes_are_seldom_suspected(shape):
    """Of 30 clean classes of 300 samples at most three are (5 % of hundreds were)."""
    rng = np.random.default_rng(0)
    found = [contamination_of(lengths(CLEAN[shape](rng, 300)), np.arange(300)).found for _ in range(30)]
    assert sum(found) <= 3


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.3, 0.4])
def test_a_second_population_is_counted(rate):
    """Normal samples among wide noise: the share is found within 4 points, with evidence."""
    rng = np.random.default_rng(1)
    for _ in range(5):
        n_bad = round(300 * rate)
        X = np.vstack([rng.normal(size=(300 - n_bad, 4)), 25 * rng.normal(size=(n_bad, 4))])
        found = contamination_of(lengths(X), np.arange(300))
        assert found.found
        assert found.fraction == pytest.approx(rate, abs=0.04)


def test_evidence_does_not_count_every_sample_of_a_group():
    """Thirty samples of each recording are not thirty independent observations."""
    rng = np.random.default_rng(2)
    X = np.vstack([rng.normal(size=(240, 4)), 25 * rng.normal(size=(60, 4))])
    d = lengths(X)
    alone = contamination_of(d, np.arange(300)).evidence
    grouped = contamination_of(d, np.arange(300) // 30).evidence
    assert grouped < alone / 4


def test_weak_evidence_suffices_in_company():
    """A class that looks mildly mixed is believed to be so only when the other class certainly is."""
    rng = np.random.default_rng(3)
    bells = rng.normal(0, 0.35, 100)
    candidates = (np.exp(bells + np.where(np.arange(100) < 30, gap, 0.0)) for gap in np.arange(0.8, 2.0, 0.05))
    mild = next(d for d in candidates if 0 < contamination_of(d, np.arange(100)).evidence < 4)
    certain = lengths(np.vstack([rng.normal(size=(70, 2)), 40 * rng.normal(size=(30, 2))]))
    clean = lengths(rng.normal(size=(100, 2)))
    classes = np.repeat([0, 1], 100)
    alone, _ = coverages(np.r_[mild, clean], classes, np.arange(200))
    together, _ = coverages(np.r_[mild, certain], classes, np.arange(200))
    assert alone.tolist() == [CLEAN_COVERAGE, CLEAN_COVERAGE]
    assert together[0] == pytest.approx(0.7, abs=0.1)
    assert together[1] == pytest.approx(0.7, abs=0.05)


def test_a_handful_of_samples_proves_nothing():
    """Below ten positive lengths there is no estimate."""
    assert not contamination_of(np.array([1.0, 1.0, 50.0]), np.arange(3)).found
    assert not contamination_of(np.zeros(50), np.arange(50)).found


def test_loud_recordings_are_found_among_few():
    """Two of ten recordings of 15 samples are noise eight times as wide: found, with about the right share."""
    rng = np.random.default_rng(4)
    groups = np.arange(150) // 15
    found = []
    for _ in range(10):
        X = rng.normal(size=(150, 4))
        X[groups < 2] = 8 * rng.normal(size=(30, 4))
        found.append(contamination_of(GEMDetector().fit(X, groups=groups).edge_lengths_, groups))
    assert sum(one.found for one in found) >= 8
    assert np.mean([one.fraction for one in found]) == pytest.approx(0.2, abs=0.04)
