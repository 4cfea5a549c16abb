"""A fitted discriminant function: what remains of the training samples at prediction time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.learners import _checks
from pipeline.learners._calibration import fit_slopes, log_odds, probability
from pipeline.learners._checks import TrainingSet
from pipeline.learners._compiled import compiled
from pipeline.learners._geometry import Geometry
from pipeline.learners._graphs import Floats, Integers
from pipeline.learners._kernels import Kernel
from pipeline.learners._weighted_med import MEDProblem

_BLOCK = 2_000
_FOLDS = 3
_SMALLEST_BOX = 1.2


@dataclass(frozen=True, slots=True)
class Discriminant:
    """``f(x) = sum_m coefficient_m K(x, basis_m) + offset`` and the slopes of its probabilities."""

    kernel: Kernel
    basis: Floats
    """Support samples or landmarks; for a precomputed kernel unused."""
    columns: Integers
    """Their places among the training samples."""
    coefficients: Floats
    offset: float
    slopes: Floats

    def decision(self, X: Floats) -> Floats:
        if len(X) == 1 and self.kernel.name == "rbf":
            return np.array([_rbf_sum(X[0], self.basis, self.coefficients, self.kernel.gamma) + self.offset])
        out = np.empty(len(X))
        for start in range(0, len(X), _BLOCK):
            block = X[start : start + _BLOCK]
            if self.kernel.name == "precomputed":
                block = block[:, self.columns]
            out[start : start + _BLOCK] = self.kernel(block, self.basis) @ self.coefficients + self.offset
        return out

    def log_odds(self, decision: Floats) -> Floats:
        """Of the second class, calibrated."""
        return log_odds(decision, self.slopes)

    def probabilities(self, X: Floats) -> Floats:
        """Shape (n_samples, 2)."""
        positive = probability(self.decision(X), self.slopes)
        return np.column_stack([1.0 - positive, positive])


@compiled
def _rbf_sum(x: Floats, basis: Floats, coefficients: Floats, gamma: float) -> float:
    """The same for one sample, as a stream brings them: in one pass, without the cost of many small calls."""
    total = 0.0
    for m in range(len(basis)):
        squared = 0.0
        for j in range(len(x)):
            squared += (x[j] - basis[m, j]) * (x[j] - basis[m, j])
        total += coefficients[m] * np.exp(-gamma * squared)
    return total


def discriminant(
    training: TrainingSet,
    geometry: Geometry,
    problem: MEDProblem,
    multipliers: Floats,
    offset: float,
    calibration_weights: Floats,
    rng: np.random.RandomState,
) -> Discriminant:
    """Assemble f from its multipliers, and calibrate it on margins of samples it has not seen."""
    weighted = problem.amplitude * problem.weights * multipliers * problem.y
    if geometry.nystroem is None:
        columns = np.flatnonzero(weighted)
        coefficients = weighted[columns]
    else:
        columns = geometry.nystroem.landmarks
        coefficients = geometry.nystroem.whitening @ (geometry.gram.factor().T @ weighted)
    honest = _cross_fitted_decision(geometry, problem, multipliers, training.groups, rng)
    slopes = fit_slopes(honest, problem.y, calibration_weights)
    basis = training.X[:0] if geometry.kernel.name == "precomputed" else training.X[columns]
    given = np.flatnonzero(training.used)[columns]
    return Discriminant(geometry.kernel, basis, given, coefficients, offset, slopes)


def _cross_fitted_decision(
    geometry: Geometry,
    problem: MEDProblem,
    multipliers: Floats,
    groups: Integers,
    rng: np.random.RandomState,
) -> Floats:
    """Decision of classifiers refitted without a third of the groups, on that third.

    A weight of zero leaves a sample out, so the kernel matrix serves all refits, and they start at the full solution.
    """
    names = np.unique(groups)
    order = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    order[names] = rng.permutation(len(names)) % _FOLDS
    fold = order[groups]
    honest = np.empty(len(groups))
    for left_out in range(min(_FOLDS, len(names))):
        away = fold == left_out
        rest = replace(problem, weights=np.where(away, 0.0, problem.weights))
        honest[away] = geometry.gram.solve(rest, start=multipliers, tolerance=1e-2).decision[away]
    return honest


def machine(C: float, amplitude: float) -> tuple[float, float]:
    """(box, amplitude): a kernel scaled by the amplitude s behaves as an SVM with ``C = c s``.

    With the box c at or below one no multiplier would ever leave zero, so a small C lowers the amplitude instead.
    """
    amplitude = min(amplitude, C / _SMALLEST_BOX)
    return C / amplitude, amplitude


def check_machine(C: Any, amplitude: Any) -> None:
    _checks.number(C, "C", above=0, cure="1.0 is usual; larger values follow the samples more closely")
    _checks.number(amplitude, "amplitude", above=0, cure="0.3 is usual")
