"""What remains of a classifier: one sample or many, and no more in memory than that needs."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import pipeline.learners
from pipeline.learners.kernel_classifier import ArrayMachines, Discriminant, Kernel, PairwiseDiscriminants
from tests.forked import ROOT


def machine(n_basis: int, n_features: int) -> Discriminant:
    rng = np.random.default_rng(n_basis)
    basis, coefficients = rng.normal(size=(n_basis, n_features)), rng.normal(size=n_basis)
    return Discriminant(Kernel("rbf", gamma=0.03), basis, np.arange(n_basis), coefficients, 0.2, np.ones(2))


def by_plain_loops(one: Discriminant, x) -> float:
    total = one.offset
    for sample, coefficient in zip(one.basis.tolist(), one.coefficients.tolist(), strict=True):
        total += coefficient * math.exp(-one.kernel.gamma * math.dist(x.tolist(), sample) ** 2)
    return total


@pytest.mark.parametrize("n_basis", [0, 1, 7, 300])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_values_are_the_sums_they_stand_for(n_basis, scale):
    """By plain loops; the farther a sample is, the less its place matters."""
    one, X = machine(n_basis, 30), scale * np.random.default_rng(1).normal(size=(5, 30))
    expected = [by_plain_loops(one, x) for x in X]
    np.testing.assert_allclose(one.decision(X), expected, rtol=0, atol=1e-6 * max(1, np.abs(one.coefficients).sum()))


@pytest.mark.parametrize("n_basis", [0, 7, 300])
def test_a_sample_has_the_same_value_alone_and_among_others(n_basis):
    one, X = machine(n_basis, 30), np.random.default_rng(1).normal(size=(333, 30)).astype(np.float32)
    np.testing.assert_array_equal(one.decision(X), np.concatenate([one.decision(x[None]) for x in X]))


def pairs(seed: int) -> PairwiseDiscriminants:
    """Three classes whose machines share half of their bases."""
    basis = np.random.default_rng(seed).normal(size=(60, 30))
    made = []
    for number, rows in enumerate((slice(0, 40), slice(20, 60), slice(10, 50))):
        one = machine(40, 30)
        made.append(replace(one, basis=basis[rows], kernel=Kernel("rbf", gamma=0.01 * (number + 1))))
    return PairwiseDiscriminants(tuple(made), 3)


def test_the_machines_of_all_sensors_give_what_each_gives_alone():
    """Two and three classes, a sensor without machine, absent sensors."""
    X = np.random.default_rng(2).normal(size=(40, 3, 30)).astype(np.float32)
    present = np.random.default_rng(3).random((40, 3)) < 0.8
    for n_classes, machines in ((2, [machine(9, 30), None, machine(50, 30)]), (3, [pairs(0), None, pairs(1)])):
        together = ArrayMachines(machines, n_classes)
        margins = together.margins(np.where(present[:, :, None], X, np.nan), present)
        log_odds = together.log_odds(margins)
        for s, one in enumerate(machines):
            here = present[:, s] & (one is not None)
            assert np.isnan(margins[~here, s]).all()
            assert np.isnan(log_odds[~here, s]).all()
            if one is not None:
                np.testing.assert_array_equal(margins[here, s], one.decision(X[here, s]))
                np.testing.assert_array_equal(log_odds[here, s], one.class_log_odds(one.decision(X[here, s])))


def test_every_estimator_is_found_by_its_name():
    """Though none is loaded before it is asked for."""
    for name in pipeline.learners.__all__:
        assert getattr(pipeline.learners, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'SVC'"):
        _ = pipeline.learners.SVC


def test_a_machine_needs_neither_scikit_learn_nor_a_compiler():
    """In a process of its own, which has imported nothing else."""
    code = "import sys, pipeline.learners.kernel_classifier; print('sklearn' in sys.modules, 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "False"]
