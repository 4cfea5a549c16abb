"""Joint anomaly rejection and classification: maximum entropy discrimination under a GEM constraint."""

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
from pipeline.learners._conformal import LeaveOneOut, Scan
from pipeline.learners._contamination import Contamination, coverages
from pipeline.learners._discriminant import check_machine, discriminant, machine
from pipeline.learners._dual import GEMMEDProblem, JointSolution, entropy_budget, sigmoid
from pipeline.learners._geometry import Geometry, Neighbourhoods, check_graph, check_kernel, measure
from pipeline.learners._gibbs import solve_gibbs
from pipeline.learners._graphs import Graph
from pipeline.learners._mean_field import solve_mean_field


class GEMMEDClassifier(BinaryMixin, BaseEstimator):
    """Binary classifier that learns which training samples to refuse while it learns to classify.

    A posterior over the decision function f, the margins and an indicator eta_n per training sample
    ("this sample is nominal") is chosen closest to its prior in Kullback-Leibler divergence under

    * the expected margin of every kept sample is met, ``E[eta_n (xi_n - y_n f(x_n))] <= 0``;
    * the kept samples of each class have small geometric entropy,
      ``E[mean eta_n d_n] <= (1 + slack) *`` that of the class's minimal-entropy set, where d_n is
      the distance to the nearest neighbours of the own class;
    * at least `coverage` of each class is kept.

    A sample is refused for being far from its class, for contradicting the classifier, or for
    both together. The prediction is the sign of ``E f(x) = sum_n lambda_n E[eta_n] y_n K(x, x_n)``.

    Parameters
    ----------
    kernel : {"rbf", "linear", "cosine", "precomputed"}, default="rbf"
        Covariance of f. Linear kernels are centred on the median and scaled by the median norm.
    gamma : "median", "scale" or float, default="median"
        Width of the RBF kernel: one over the median squared distance, scikit-learn's "scale", or a
        number. "scale" follows the variance, which a few loud failures can inflate.
    C : float, default=1.0
        Bound on a sample's influence, as in a support vector machine.
    amplitude : float, default=0.3
        Prior variance of f in units of the kernel; at most C / 1.2, and lowered to that for smaller C. The smaller, the
        more readily a sample is refused for a margin violation r: its log-odds fall by about ``r^2 / (2 amplitude)``.
    coverage : "auto" or float in (0, 1], default="auto"
        Share of each class to keep. "auto" estimates it per class from the distances. It cannot see wrong labels of
        samples that are otherwise nominal: where those are to be refused, give the share. Where it differs between the
        classes, samples are weighted by one over it, so that refusing more of one class does not favour the other.
    slack : float, default=0.1
        Relative room above the minimal entropy. Towards 0 the method becomes screening, then training.
    prior : float, default=0.95
        Prior probability that a training sample is nominal.
    n_neighbors : int or None, default=None
        Neighbours in the graph; None means 5, or as many as a small class has.
    graph : {"bipartite", "leave-one-out"}, default="bipartite"
        Distances to the other half of the class, averaged over partitions, or to all other samples.
    n_partitions : int, default=5
        Random partitions of the bipartite graph, at most 10.
    solver : {"mean-field", "gibbs"}, default="mean-field"
        Deterministic and fast, or the sampling reference.
    step_sizes : (float, float, float), default=(0.05, 0.05, 0.05)
        Initial steps of the Gibbs solver for lambda, mu and kappa.
    kernel_rank : "auto", int or None, default="auto"
        Landmarks of a low-rank kernel; None keeps the full matrix, "auto" does up to 8,000 samples.
    tol : float or None, default=None
        Where to stop: relative gap of the mean-field solver (1e-4) or largest optimality residual of the
        Gibbs solver (0.02).
    max_iter : int or None, default=None
        Rounds of the mean-field solver (100) or sweeps of the Gibbs solver (6000).
    random_state : int, RandomState or None, default=0
        Seed of the partitions, the landmarks and the chains.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    posterior_ : ndarray of shape (n_samples,)
        E[eta_n]: how far each training sample is believed. NaN, like all that follows, for samples of weight zero.
    log_odds_ : ndarray of shape (n_samples,)
        Unsaturated log-odds of the same, for ranking; smaller is more anomalous.
    multipliers_ : ndarray of shape (n_samples,)
        lambda_n of the margin constraints.
    entropy_multipliers_, coverage_multipliers_ : ndarray of shape (2,)
        mu_z and kappa_z, per sample.
    distances_ : ndarray of shape (n_samples,)
        d_n in units of its class's median; beyond a thousand of them it grows with the logarithm.
    coverage_ : ndarray of shape (2,)
        Coverage used for each class.
    contamination_ : tuple of two, or None
        The estimate behind ``coverage="auto"``: fraction, evidence in nats, separation.
    dual_value_ : float
        Value of the dual (of its mean-field form), equal to the divergence from the prior.
    kkt_residuals_ : dict
        Violation of each optimality condition at the solution.
    converged_ : bool
    n_iter_ : int

    References
    ----------
    T. Xie, N. Nasrabadi, A. Hero: Learning to classify with possible sensor failures.

    Examples
    --------
    >>> import numpy as np
    >>> from pipeline.learners import GEMMEDClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(-2, 1, (60, 2)), rng.normal(2, 1, (60, 2)), rng.normal(0, 40, (20, 2))]
    >>> y = np.r_[np.zeros(60), np.ones(60), np.arange(20) % 2].astype(int)
    >>> model = GEMMEDClassifier(kernel="linear").fit(X, y)
    >>> refused = model.posterior_ < 0.5
    >>> bool(refused[120:].mean() > 0.9), bool(refused[:120].mean() < 0.02)
    (True, True)
    >>> model.predict([[-3, -3], [3, 3]])
    array([0, 1])
    """

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        gamma: str | float = "median",
        C: float = 1.0,
        amplitude: float = 0.3,
        coverage: str | float = "auto",
        slack: float = 0.1,
        prior: float = 0.95,
        n_neighbors: int | None = None,
        graph: str = "bipartite",
        n_partitions: int = 5,
        solver: str = "mean-field",
        step_sizes: tuple[float, float, float] = (0.05, 0.05, 0.05),
        kernel_rank: str | int | None = "auto",
        tol: float | None = None,
        max_iter: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.amplitude = amplitude
        self.coverage = coverage
        self.slack = slack
        self.prior = prior
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.n_partitions = n_partitions
        self.solver = solver
        self.step_sizes = step_sizes
        self.kernel_rank = kernel_rank
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    @one_thread
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Learn from possibly corrupted samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two classes.
        sample_weight : array-like of shape (n_samples,), optional
            A sample of weight w counts as w copies that are kept or refused together.
        groups : array-like of shape (n_samples,), optional
            Samples of one group (a recording) are never each other's neighbours.
        """
        self._check_parameters()
        training = _checks.training_set(self, X, y, sample_weight, groups, precomputed=self.kernel == "precomputed")
        self.classes_ = training.class_names
        rng = check_random_state(self.random_state)
        hoods = Neighbourhoods.choose(
            training.classes,
            training.groups,
            graph=self.graph,
            n_partitions=self.n_partitions,
            n_neighbors=self.n_neighbors,
            rng=rng,
        )
        geometry = measure(
            training.X,
            kernel=self.kernel,
            gamma=self.gamma,
            kernel_rank=self.kernel_rank,
            rng=rng,
            neighbourhoods=hoods,
        )
        assert geometry.graph is not None
        lengths, _ = hoods.edge_lengths(geometry.graph)
        problem = self._problem(training, lengths)
        solution = self._solve(geometry, problem, rng)
        self._report(training, problem, solution)
        self._nominal = self._retained(training, geometry.graph, solution.posterior > 0.5, hoods.n_neighbors)
        self._discriminant = discriminant(
            training,
            geometry,
            problem.med(solution.posterior, problem.self_coupling(geometry.gram.diagonal)),
            solution.multipliers,
            solution.offset,
            problem.weights * _nominal_by_distance(problem, solution),
            rng,
        )
        return self

    def _check_parameters(self) -> None:
        check_kernel(self.kernel, self.gamma, self.kernel_rank)
        check_machine(self.C, self.amplitude)
        _checks.coverage(self.coverage)
        _checks.number(self.slack, "slack", above=0, cure="0.1 is usual; small values mean plain screening")
        _checks.number(self.prior, "prior", above=0, below=1, cure="0.95 is usual; below 0.9 fits may collapse")
        check_graph(self.graph, self.n_partitions, self.n_neighbors)
        _checks.one_of(self.solver, "solver", ("mean-field", "gibbs"))
        if self.tol is not None:
            _checks.number(self.tol, "tol", above=0, cure="leave it None for the solver's own")
        if self.max_iter is not None:
            _checks.whole_number(self.max_iter, "max_iter", least=1, cure="leave it None for the solver's own")
        if np.shape(self.step_sizes) != (3,):
            raise ValueError(
                f"step_sizes={self.step_sizes!r} must hold three numbers, for lambda, mu and kappa; "
                "(0.05, 0.05, 0.05) is usual"
            )
        for size in self.step_sizes:
            _checks.number(size, "step_sizes", above=0, cure="give three positive steps; 0.05 is usual")

    def _problem(self, training: _checks.TrainingSet, lengths: Floats) -> GEMMEDProblem:
        """Distances in units of the class median, coverage and entropy budget of each class."""
        classes = training.classes
        distances = lengths.copy()
        for z in (0, 1):
            distances[classes == z] = _tamed(lengths[classes == z] / _unit(lengths[classes == z]))
        self.contamination_: tuple[Contamination, ...] | None = None
        if self.coverage == "auto":
            coverage, self.contamination_ = coverages(distances, classes, training.groups)
        else:
            coverage = np.full(2, float(self.coverage))
        # The last half sample of a class may always be doubted: a posterior is never exactly one.
        self.coverage_ = np.minimum(coverage, 1.0 - 0.5 / np.bincount(classes))
        # Refusing more of one class must not make the other one likelier.
        balance = self.coverage_.mean() / self.coverage_
        weights = training.weights * balance[classes]
        box, amplitude = machine(self.C, self.amplitude)
        return GEMMEDProblem(
            y=training.y,
            weights=weights,
            distances=distances,
            coverage=self.coverage_,
            budget=entropy_budget(distances, classes, weights, self.coverage_, self.slack),
            prior_log_odds=float(np.log(self.prior / (1.0 - self.prior))),
            amplitude=amplitude,
            box=box,
            offset_variance=amplitude,
        )

    def _report(self, training: _checks.TrainingSet, problem: GEMMEDProblem, solution: JointSolution) -> None:
        self.distances_ = training.scatter(problem.distances)
        self.posterior_ = training.scatter(solution.posterior)
        self.log_odds_ = training.scatter(solution.log_odds)
        self.multipliers_ = training.scatter(solution.multipliers)
        self.entropy_multipliers_ = solution.mu
        self.coverage_multipliers_ = solution.kappa
        self.dual_value_ = solution.dual_value
        self.kkt_residuals_ = solution.residuals
        self.n_iter_ = solution.n_iter
        self.converged_ = solution.converged
        self._warn(solution, problem)

    def _solve(self, geometry: Geometry, problem: GEMMEDProblem, rng: np.random.RandomState) -> JointSolution:
        if self.solver == "gibbs":
            return solve_gibbs(
                geometry.gram,
                problem,
                tolerance=self.tol or 0.02,
                max_iter=self.max_iter or 6000,
                step_sizes=self.step_sizes,
                rng=rng,
            )
        return solve_mean_field(geometry.gram, problem, tolerance=self.tol or 1e-4, max_iter=self.max_iter or 100)

    def _warn(self, solution: JointSolution, problem: GEMMEDProblem) -> None:
        """Say aloud when the fit is not what it should be."""
        if not solution.converged:
            worst = max(solution.residuals, key=lambda name: solution.residuals[name])
            warnings.warn(
                f"{self.solver} stopped after {solution.n_iter} iterations with the {worst} residual at "
                f"{solution.residuals[worst]:.2g} (C={self.C:g}, amplitude={self.amplitude:g}); "
                "raise max_iter or amplitude, or lower C",
                ConvergenceWarning,
                stacklevel=4,
            )
        kept = [int(((problem.classes == z) & (solution.posterior > 0.5)).sum()) for z in (0, 1)]
        if min(kept) < 2 or not np.any(solution.multipliers * solution.posterior > 1e-8):
            self.converged_ = False
            warnings.warn(
                f"the fit has collapsed: it keeps {kept[0]} and {kept[1]} samples of the two classes; "
                "raise prior or coverage, or lower C",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _retained(
        self, training: _checks.TrainingSet, graph: Graph, kept: Flags, n_neighbors: int
    ) -> list[LeaveOneOut]:
        """What `p_values` compares new samples with: per class, the samples not refused."""
        retained = []
        for z in (0, 1) if self.kernel != "precomputed" else ():
            members = kept & (training.classes == z)
            sizes = np.bincount(training.groups[members], minlength=int(training.groups.max()) + 1)
            others = int(members.sum()) - sizes[training.groups]
            # After refusals a sample may be left without any neighbour of another group: it cannot calibrate.
            members &= others > 0
            if members.any():
                k = min(n_neighbors, int(others[members].min()))
                lengths, radii = graph.leave_one_out(k, among=members)
                scan = Scan.of(training.X[members])
                retained.append(LeaveOneOut(scan, lengths[members], radii[members], k))
        return retained

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

    def p_values(self, X: Any) -> Floats:
        """Conformal p-value of each new sample against the retained training samples.

        The larger of the two classes' p-values: a nominal sample of either class falls to
        alpha or below with probability about alpha. Where nominal samples of the tail were refused it is a little more
        (measured: .06 for .05). A class of which nothing comparable was retained is left out.
        """
        X = self._checked(X)
        if self.kernel == "precomputed":
            raise ValueError(
                "kernel='precomputed' hides the samples that p_values must measure; "
                "fit with kernel='rbf', 'linear' or 'cosine', or use GEMDetector"
            )
        if not self._nominal:
            raise ValueError("p_values has nothing to compare with: the fit refused nearly every sample")
        return np.max([nominal.p_values(X) for nominal in self._nominal], axis=0)


def _nominal_by_distance(problem: GEMMEDProblem, solution: JointSolution) -> Floats:
    """Posterior without the margin's say.

    Calibration must not be told by the classifier itself which of its errors to overlook.
    """
    z = problem.classes
    evidence = problem.weights * (solution.kappa[z] - solution.mu[z] * problem.distances)
    return sigmoid(problem.prior_log_odds + evidence)


def _tamed(distances: Floats) -> Floats:
    """Grow with the logarithm beyond a thousand medians: still in order, but no solver has to square 1e40."""
    return np.where(distances > 1e3, 1e3 * (1.0 + np.log(np.maximum(distances, 1e3) / 1e3)), distances)


def _unit(lengths: Floats) -> float:
    """Median edge length; where most samples coincide, the mean of the others, or one."""
    median = float(np.median(lengths))
    if median > 0:
        return median
    positive = lengths[lengths > 0]
    return float(positive.mean()) if len(positive) else 1.0
