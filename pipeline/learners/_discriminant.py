"""From multipliers to a discriminant function with honest probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.learners import _checks
from pipeline.learners._arrays import Floats, Integers
from pipeline.learners._calibration import fit_slopes
from pipeline.learners._checks import TrainingSet
from pipeline.learners._geometry import Geometry
from pipeline.learners._weighted_med import MEDProblem
from pipeline.learners.kernel_classifier import Discriminant

_FOLDS = 3
_SMALLEST_BOX = 1.2


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
