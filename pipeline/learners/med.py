"""Kernel maximum entropy discrimination."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from pipeline.core.blas_threads import one_thread
from pipeline.learners import _checks
from pipeline.learners._arrays import Floats
from pipeline.learners._binary import BinaryMixin
from pipeline.learners._discriminant import check_machine, discriminant, machine
from pipeline.learners._geometry import check_kernel, measure
from pipeline.learners._weighted_med import MEDProblem


class MEDClassifier(BinaryMixin, BaseEstimator):
    """Binary large-margin classifier as the posterior closest to its prior that meets the margins.

    With ``f ~ GP(0, s (K + 1))`` and margins ``xi_n`` of density ``c exp(-c (1 - xi))`` below 1, the expected
    constraints ``E[xi_n - y_n f(x_n)] <= 0`` lead to

        max_lambda  sum_n lambda_n + log(1 - lambda_n / c) - 1/2 lambda' (yy' o s (K + 1)) lambda,

    a support vector machine with ``C = c s`` whose box has soft walls.

    Parameters
    ----------
    kernel : {"rbf", "linear", "cosine", "precomputed"}, default="rbf"
        Covariance of f. Linear kernels are centred on the median and scaled by the median norm.
    gamma : "median", "scale" or float, default="median"
        Width of the RBF kernel: one over the median squared distance, scikit-learn's "scale", or a number.
    C : float, default=1.0
        Bound on a sample's influence, as in a support vector machine.
    amplitude : float, default=0.3
        s, the prior variance of f in units of the kernel; at most C / 1.2, and lowered to that for smaller C.
    kernel_rank : "auto", int or None, default="auto"
        Landmarks of a low-rank kernel; None keeps the full matrix, "auto" does up to 8,000 samples.
    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of the margin.
    random_state : int, RandomState or None, default=0
        Seed of the landmarks and the calibration folds.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    multipliers_ : ndarray of shape (n_samples,)
        lambda_n, per unit of sample weight; NaN for samples of weight zero.
    dual_value_ : float
        Value of the dual, equal to the divergence from the prior.
    converged_ : bool
    n_iter_ : int

    References
    ----------
    T. Jaakkola, M. Meila, T. Jebara: Maximum entropy discrimination.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from pipeline.learners import MEDClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> bool(MEDClassifier(C=10).fit(X, y).score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        gamma: str | float = "median",
        C: float = 1.0,
        amplitude: float = 0.3,
        kernel_rank: str | int | None = "auto",
        tol: float = 1e-3,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.amplitude = amplitude
        self.kernel_rank = kernel_rank
        self.tol = tol
        self.random_state = random_state

    @one_thread
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Learn from samples that are all believed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes.
        sample_weight : array-like of shape (n_samples,), optional
            A sample of weight w counts as w copies.
        groups : array-like of shape (n_samples,), optional
            Calibration leaves whole groups (recordings) out.
        """
        check_kernel(self.kernel, self.gamma, self.kernel_rank)
        check_machine(self.C, self.amplitude)
        _checks.number(self.tol, "tol", above=0, cure="1e-3 is usual")
        training = _checks.training_set(self, X, y, sample_weight, groups, precomputed=self.kernel == "precomputed")
        self.classes_ = training.class_names
        rng = check_random_state(self.random_state)
        geometry = measure(training.X, kernel=self.kernel, gamma=self.gamma, kernel_rank=self.kernel_rank, rng=rng)
        box, amplitude = machine(self.C, self.amplitude)
        problem = MEDProblem(
            y=training.y,
            weights=training.weights,
            self_curvature=np.zeros(len(training.y)),
            amplitude=amplitude,
            box=box,
            offset_variance=amplitude,
        )
        solution = geometry.gram.solve(problem, tolerance=self.tol)
        if not solution.converged:
            warnings.warn(
                f"MED stopped after {solution.n_steps} steps above tol={self.tol}; "
                "raise tol, lower C, or scale the features",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.multipliers_ = training.scatter(solution.multipliers)
        self.dual_value_ = solution.value
        self.converged_ = solution.converged
        self.n_iter_ = max(solution.n_steps, 1)
        self._discriminant = discriminant(
            training, geometry, problem, solution.multipliers, solution.offset, training.weights, rng
        )
        return self

    @one_thread
    def decision_function(self, X: Any) -> Floats:
        """E f(x): positive for ``classes_[1]``."""
        X = self._checked(X)
        return self._discriminant.decision(X)

    @one_thread
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities, calibrated on margins of training samples (groups) that were left out."""
        X = self._checked(X)
        return self._discriminant.probabilities(X)
