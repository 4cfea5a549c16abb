"""What remains of a classifier: one sample or many, and no more in memory than that needs."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

import pipeline.learners
from pipeline.learners.machine import Discriminant, Kernel
from tests.forked import ROOT


def machine(n_basis: int, n_features: int) -> Discriminant:
    rng = np.random.default_rng(n_basis)
    basis, coefficients = rng.normal(size=(n_basis, n_features)), rng.normal(size=n_basis)
    return Discriminant(Kernel("rbf", gamma=0.03), basis, np.arange(n_basis), coefficients, 0.2, np.ones(2))


@pytest.mark.parametrize("n_basis", [0, 1, 7, 300])
def test_one_sample_is_summed_term_after_term(n_basis):
    """By plain loops the same to the last bit, and by the kernel's matrix but for rounding."""
    one, X = machine(n_basis, 30), np.random.default_rng(1).normal(size=(2, 30)).astype(np.float32)
    total = 0.0
    for sample, coefficient in zip(one.basis.tolist(), one.coefficients.tolist(), strict=True):
        squared = 0.0
        for a, b in zip(X[0].tolist(), sample, strict=True):
            squared += (a - b) * (a - b)
        total += coefficient * math.exp(-0.03 * squared)
    assert one.decision(X[:1])[0] == total + 0.2
    assert one.decision(X)[0] == pytest.approx(total + 0.2, rel=1e-9)


def test_every_estimator_is_found_by_its_name():
    """Though none is loaded before it is asked for."""
    for name in pipeline.learners.__all__:
        assert getattr(pipeline.learners, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'SVC'"):
        _ = pipeline.learners.SVC


def test_a_machine_needs_neither_scikit_learn_nor_a_compiler():
    """In a process of its own, which has imported nothing else."""
    code = "import sys, pipeline.learners.machine; print('sklearn' in sys.modules, 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "False"]
