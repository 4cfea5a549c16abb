"""Robust outlier detection: a large-margin classifier that may leave out the samples it fits worst."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from pipeline.core.blas_threads import one_thread
from pipeline.learners import _checks
from pipeline.learners._arrays import Flags, Floats
from pipeline.learners._binary import BinaryMixin
from pipeline.learners._geometry import check_kernel
from pipeline.learners._kernels import fitted_kernel
from pipeline.learners._svm import KernelSVM
from pipeline.learners.kernel_classifier import Kernel

_LARGEST_RELAXATION = 400


class RODClassifier(BinaryMixin, BaseEstimator):
    """Minimise the hinge loss over the classifier and over which samples count.

    ``min_{f, 0 <= eta <= 1} |f|^2 / 2 + C sum_n eta_n max(0, 1 - y_n f(x_n))`` subject to
    ``sum eta >= keep_fraction * n``. Anomalies are judged by their margin alone.

    Parameters
    ----------
    keep_fraction : float in (0, 1], default=0.8
        Share of the samples that must count (of each class, in the alternating form).
    solver : {"alternating", "sdp"}, default="alternating"
        Fit and trim in turn until nothing changes, or the semidefinite relaxation (convex; up to 400 samples,
        about 20 s at 200; needs the extra ``rod``).
    kernel : {"cosine", "rbf", "linear", "precomputed"}, default="rbf"
    gamma : "median", "scale" or float, default="median"
    C : float, default=1.0
    max_iter : int, default=50
        Rounds of the alternating form.
    random_state : int, RandomState or None, default=0
        Seed of the sample behind ``gamma="median"``.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    eta_ : ndarray of shape (n_samples,)
        How far each sample counts; small is anomalous.
    margin_loss_ : ndarray of shape (n_samples,)
        Hinge loss at the solution, a finer ranking where eta is zero or one.
    objective_ : float
        Value of the problem above (of its relaxation, a lower bound, with ``solver="sdp"``).
    converged_ : bool
    n_iter_ : int

    References
    ----------
    L. Xu, K. Crammer, D. Schuurmans: Robust support vector machine training via convex outlier ablation.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from pipeline.learners import RODClassifier
    >>> X, y = make_blobs(100, centers=2, random_state=0)
    >>> float(RODClassifier(keep_fraction=0.8).fit(X, y).eta_.sum())
    80.0
    """

    def __init__(
        self,
        *,
        keep_fraction: float = 0.8,
        solver: str = "alternating",
        kernel: str = "rbf",
        gamma: str | float = "median",
        C: float = 1.0,
        max_iter: int = 50,
        random_state: Any = 0,
    ) -> None:
        self.keep_fraction = keep_fraction
        self.solver = solver
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.max_iter = max_iter
        self.random_state = random_state

    @one_thread
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn which samples to count.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes.
        sample_weight : array-like of shape (n_samples,), optional
            Multiplies a sample's loss; only the alternating form takes it.
        """
        check_kernel(self.kernel, self.gamma, None)
        _checks.one_of(self.solver, "solver", ("alternating", "sdp"))
        _checks.number(self.C, "C", above=0, cure="1.0 is usual")
        _checks.number(self.keep_fraction, "keep_fraction", above=0, most=1, cure="0.8 leaves a fifth out")
        _checks.whole_number(self.max_iter, "max_iter", least=1, cure="50 is usual")
        precomputed = self.kernel == "precomputed"
        training = _checks.training_set(self, X, y, sample_weight, None, precomputed=precomputed)
        self.classes_ = training.class_names
        kernel = fitted_kernel(self.kernel, self.gamma, training.X, check_random_state(self.random_state))
        if self.solver == "sdp":
            if sample_weight is not None:
                raise ValueError("solver='sdp' takes no sample_weight; use solver='alternating'")
            eta, self.objective_ = relaxation(kernel(training.X, training.X), training.y, self.keep_fraction, self.C)
            self.n_iter_, self.converged_ = 1, True
        else:
            eta = self._alternate(training, kernel)
        self._svm = KernelSVM(kernel, self.C).fit(training, training.weights * np.maximum(eta, 1e-8))
        self.eta_ = training.scatter(eta)
        losses = self._losses(training)
        self.margin_loss_ = training.scatter(losses)
        if self.solver == "alternating":
            self.objective_ = 0.5 * self._svm.squared_norm() + self.C * float((training.weights * eta) @ losses)
        return self

    def _losses(self, training: _checks.TrainingSet) -> Floats:
        return np.maximum(0.0, 1.0 - training.y * self._svm.training_decision(training))

    def _alternate(self, training: _checks.TrainingSet, kernel: Kernel) -> Floats:
        """Fit on what counts, then count what fits best; the objective falls until nothing changes."""
        kept: Flags = np.ones(len(training.y), dtype=bool)
        self.n_iter_, self.converged_ = 0, False
        while not self.converged_ and self.n_iter_ < self.max_iter:
            self.n_iter_ += 1
            self._svm = KernelSVM(kernel, self.C).fit(training, np.where(kept, training.weights, 0.0))
            before, kept = kept, _best_fitting(self._losses(training), training.y, self.keep_fraction)
            self.converged_ = bool(np.array_equal(before, kept))
        if not self.converged_:
            warnings.warn(
                f"ROD was still changing its choice after max_iter={self.max_iter} rounds; raise max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )
        return kept.astype(np.float64)

    @one_thread
    def decision_function(self, X: Any) -> Floats:
        """Signed distance to the boundary: positive for ``classes_[1]``."""
        X = self._checked(X)
        return self._svm.decision(X)


def _best_fitting(loss: Floats, signs: Floats, keep_fraction: float) -> Flags:
    """The samples of smallest loss, `keep_fraction` of each class (never fewer than one)."""
    kept = np.zeros(len(loss), dtype=bool)
    for sign in (-1.0, 1.0):
        members = np.flatnonzero(signs == sign)
        count = max(1, int(np.ceil(keep_fraction * len(members) - 1e-9)))
        kept[members[np.argsort(loss[members], kind="stable")[:count]]] = True
    return kept


def relaxation(kernel: Floats, y: Floats, keep_fraction: float, C: float) -> tuple[Floats, float]:
    """Semidefinite relaxation: (eta, lower bound on the objective).

    The inner maximum over ``0 <= alpha <= C`` of ``eta'alpha - alpha'(G o M)alpha / 2``, with ``G = yy' o K`` and M in
    place of ``eta eta'``, is a Schur complement. ``diag(M) = eta`` (true of zeros and ones) ties M to eta; without it
    the relaxation keeps everything at no cost.
    """
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("solver='sdp' needs cvxpy; install gemmed[rod] or use solver='alternating'") from error
    n = len(y)
    if n > _LARGEST_RELAXATION:
        raise ValueError(
            f"solver='sdp' got {n} samples, it takes at most {_LARGEST_RELAXATION}; use solver='alternating'"
        )
    G = np.outer(y, y) * kernel
    outer = cvxpy.Variable((n + 1, n + 1), PSD=True)
    M, eta = outer[:n, :n], outer[:n, n]
    low, high = cvxpy.Variable(n, nonneg=True), cvxpy.Variable(n, nonneg=True)
    bound = cvxpy.Variable()
    column = cvxpy.reshape(eta + low - high, (n, 1), order="C")
    corner = cvxpy.reshape(2.0 * (bound - C * cvxpy.sum(high)), (1, 1), order="C")
    schur = cvxpy.bmat([[cvxpy.multiply(G, M), column], [column.T, corner]])
    problem = cvxpy.Problem(
        cvxpy.Minimize(bound),
        [
            outer[n, n] == 1,
            cvxpy.diag(M) == eta,
            eta >= 0,
            eta <= 1,
            cvxpy.sum(eta) >= keep_fraction * n,
            schur >> 0,
        ],
    )
    problem.solve(solver=cvxpy.SCS, eps=1e-5, max_iters=20_000)
    if eta.value is None:
        raise RuntimeError(f"solver='sdp' ended with status {problem.status}; use solver='alternating'")
    if problem.status != "optimal":
        warnings.warn(
            f"solver='sdp' ended with status {problem.status}: its eta and bound are rough",
            ConvergenceWarning,
            stacklevel=3,
        )
    return np.clip(np.asarray(eta.value), 0.0, 1.0), float(bound.value)
