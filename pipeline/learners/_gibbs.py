"""Stochastic solver, the reference: no approximation of the posterior but sampling error.

Persistent chains alternate the two conditionals of the joint posterior,

    f | eta ~ N(Q (lambda eta y), Q),   Q = s K + B = Z Z'
    eta_n | f ~ Bernoulli(sigmoid(b_n + lambda_n y_n f_n)),

one draw each (averaging the states of several draws before the next would bias the chain), and the
multipliers climb the Rao-Blackwellised gradient of the dual:

    dD/dlambda_n = E[eta_n] (1 - 1/(c - lambda_n)) - E[eta_n y_n f_n]
    dD/dmu_z     = sum E[eta_n] d_n - N_z budget_z
    dD/dkappa_z  = N_z coverage_z - sum E[eta_n]

The last half of each stretch is averaged; then the chains run on at fixed multipliers to measure
the optimality conditions there, and another stretch follows unless they hold.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from pipeline.learners._arrays import Floats
from pipeline.learners._dual import (
    GEMMEDProblem,
    JointSolution,
    constraint_residuals,
    log_likelihood_of_keeping,
    margin_residual,
    sigmoid,
)
from pipeline.learners._kernels import Gram

N_CHAINS = 48
_STRETCH = 600
_MEASURE = 150
_BURN_IN = 20
_TEMPERATURES = 8


class Chains:
    """The Markov chains, one column each."""

    def __init__(self, gram: Gram, problem: GEMMEDProblem, rng: np.random.RandomState) -> None:
        factor = np.sqrt(problem.amplitude) * gram.factor()
        offset = np.full(len(factor), np.sqrt(problem.offset_variance))
        self._factor = np.column_stack([factor, offset])
        self._rng = rng
        self.states = np.ones((len(factor), N_CHAINS))

    def sweep(self, field: Floats, coupling: Floats, temperature: float = 1.0) -> Floats:
        """Draw f, then eta, in every chain; returns the log-odds of eta given f.

        `coupling` is ``w lambda y``. A temperature t in (0, 1) multiplies all couplings J by t.
        """
        noise = self._rng.standard_normal((self._factor.shape[1], N_CHAINS))
        root = np.sqrt(temperature)
        latent = root * (self._factor.T @ (coupling[:, None] * self.states)) + noise
        log_odds: Floats = field[:, None] + coupling[:, None] * (root * (self._factor @ latent))
        self.states = (self._rng.random_sample(log_odds.shape) < sigmoid(log_odds)).astype(np.float64)
        return log_odds

    def kept_decision(self, coupling: Floats) -> Floats:
        """Mean over the chains of ``eta_n E[f_n | eta]``: the draw of f adds no noise to it."""
        mean = self._factor @ (self._factor.T @ (coupling[:, None] * self.states))
        kept: Floats = (self.states * mean).mean(axis=1)
        return kept

    def energy(self, coupling: Floats) -> float:
        """Mean over the chains of ``eta'J eta / 2``."""
        latent = self._factor.T @ (coupling[:, None] * self.states)
        return float(0.5 * np.einsum("ij,ij->j", latent, latent).mean())

    def mean_offset(self, coefficients: Floats) -> float:
        """Posterior mean of the offset, for ``coefficients = w lambda E[eta] y``."""
        return float(self._factor[0, -1] ** 2 * coefficients.sum())


class Ascent:
    """Adam's scaled steps with a 1/sqrt(t) decay, kept inside the feasible set."""

    def __init__(self, self_coupling: Floats, step_sizes: tuple[float, float, float], box: float) -> None:
        # A sample of large norm moves f much for a small lambda: its steps are shorter by as much.
        by_lambda = step_sizes[0] / np.maximum(self_coupling, 1.0)
        self._sizes = np.concatenate([by_lambda, np.repeat(step_sizes[1:], 2)])
        self._ceiling = np.concatenate([np.full(len(by_lambda), box * (1 - 1e-9)), np.full(4, np.inf)])
        start = np.concatenate([min(0.5, 0.5 * (box - 1.0)) / np.maximum(self_coupling, 1.0), np.zeros(4)])
        self.point = start
        self._first, self._second = np.zeros_like(start), np.zeros_like(start)
        self.n_steps = 0

    def step(self, gradient: Floats) -> None:
        self.n_steps += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.99 * self._second + 0.01 * gradient**2
        first = self._first / (1 - 0.9**self.n_steps)
        second = self._second / (1 - 0.99**self.n_steps)
        decay = 1.0 / np.sqrt(1.0 + self.n_steps / 100.0)
        moved = self.point + decay * self._sizes * first / (np.sqrt(second) + 1e-8)
        self.point = np.clip(moved, 0.0, self._ceiling)


class SampledDual:
    """Fields, couplings and gradient of the dual at a point (lambda, mu, kappa)."""

    def __init__(self, problem: GEMMEDProblem) -> None:
        self.problem = problem
        self._classes = problem.classes

    def split(self, point: Floats) -> tuple[Floats, Floats, Floats]:
        return point[:-4], point[-4:-2], point[-2:]

    def field_and_coupling(self, point: Floats) -> tuple[Floats, Floats]:
        problem, (l, mu, kappa) = self.problem, self.split(point)
        z = self._classes
        evidence = log_likelihood_of_keeping(l, problem.box) - mu[z] * problem.distances + kappa[z]
        return problem.prior_log_odds + problem.weights * evidence, problem.weights * l * problem.y

    def gradient(self, point: Floats, kept: Floats, margins: Floats) -> Floats:
        """Gradient from ``E[eta]`` and ``E[eta y f]``."""
        problem, (l, _, _) = self.problem, self.split(point)
        w, z, totals = problem.weights, self._classes, problem.class_weights
        by_lambda = w * (kept * (1.0 - 1.0 / (problem.box - l)) - margins)
        used = np.bincount(z, weights=w * kept * problem.distances, minlength=2)
        share = np.bincount(z, weights=w * kept, minlength=2)
        return np.concatenate([by_lambda, used - totals * problem.budget, totals * problem.coverage - share])

    def sampled_moments(self, point: Floats, chains: Chains) -> tuple[Floats, Floats]:
        """``E[eta]`` and ``E[eta y f]`` over the chains, after one sweep."""
        field, coupling = self.field_and_coupling(point)
        kept = sigmoid(chains.sweep(field, coupling))
        return kept.mean(axis=1), self.problem.y * chains.kept_decision(coupling)

    def value(self, point: Floats, chains: Chains) -> float:
        """The dual by thermodynamic integration: ``d log Z_t / dt = E_t[eta'J eta] / 2`` from t = 0 to 1.

        At t = 0 the eta are independent and log Z is a sum; Gauss-Legendre nodes do the rest.
        """
        problem, (_, mu, kappa) = self.problem, self.split(point)
        field, coupling = self.field_and_coupling(point)
        log_z = float(np.logaddexp(0.0, field).sum())
        nodes, weights = np.polynomial.legendre.leggauss(_TEMPERATURES)
        for node, weight in zip(0.5 * (nodes + 1.0), 0.5 * weights, strict=True):
            energies = []
            for sweep in range(_BURN_IN + _MEASURE // 3):
                chains.sweep(field, coupling, temperature=float(node))
                if sweep >= _BURN_IN:
                    energies.append(chains.energy(coupling))
            log_z += weight * float(np.mean(energies))
        linear = float((problem.class_weights * (problem.coverage * kappa - problem.budget * mu)).sum())
        return linear + len(field) * float(np.logaddexp(0.0, problem.prior_log_odds)) - log_z


def solve_gibbs(
    gram: Gram,
    problem: GEMMEDProblem,
    *,
    tolerance: float,
    max_iter: int,
    step_sizes: tuple[float, float, float],
    rng: np.random.RandomState,
) -> JointSolution:
    """Projected stochastic ascent in stretches until the optimality conditions hold to `tolerance`."""
    dual, chains = SampledDual(problem), Chains(gram, problem, rng)
    ascent = Ascent(problem.self_coupling(gram.diagonal), step_sizes, problem.box)
    converged = False
    while not converged and ascent.n_steps < max_iter:
        point = average_of_stretch(dual, chains, ascent, min(_STRETCH, max_iter - ascent.n_steps))
        posterior, log_odds, residuals = _measure(dual, chains, point)
        converged = max(residuals.values()) <= tolerance
    l, mu, kappa = dual.split(point)
    return JointSolution(
        multipliers=l,
        mu=mu,
        kappa=kappa,
        log_odds=log_odds,
        posterior=posterior,
        offset=chains.mean_offset(problem.weights * l * posterior * problem.y),
        dual_value=dual.value(point, chains),
        residuals=residuals,
        n_iter=ascent.n_steps,
        converged=converged,
    )


def average_of_stretch(dual: SampledDual, chains: Chains, ascent: Ascent, n_steps: int) -> Floats:
    total, counted = np.zeros_like(ascent.point), 0
    for step in range(n_steps):
        ascent.step(dual.gradient(ascent.point, *dual.sampled_moments(ascent.point, chains)))
        if step >= n_steps // 2:
            total += ascent.point
            counted += 1
    return total / counted


def _measure(dual: SampledDual, chains: Chains, point: Floats) -> tuple[Floats, Floats, dict[str, float]]:
    """Posterior, log-odds and optimality conditions with the multipliers held still."""
    field, coupling = dual.field_and_coupling(point)
    for _ in range(_BURN_IN):
        chains.sweep(field, coupling)
    margins = np.zeros(len(field))
    log_kept, log_refused = np.full(len(field), -np.inf), np.full(len(field), -np.inf)
    for _ in range(_MEASURE):
        given_f = chains.sweep(field, coupling)
        margins += dual.problem.y * chains.kept_decision(coupling) / _MEASURE
        # Averaged as logarithms: the posterior saturates, the ranking of anomalies must not.
        log_kept = np.logaddexp(log_kept, logsumexp(-np.logaddexp(0.0, -given_f), axis=1))
        log_refused = np.logaddexp(log_refused, logsumexp(-np.logaddexp(0.0, given_f), axis=1))
    log_odds = log_kept - log_refused
    kept = sigmoid(log_odds)
    l, mu, kappa = dual.split(point)
    gradient = dual.gradient(point, kept, margins)
    residuals = {
        "margin": margin_residual(gradient[:-4], l, dual.problem.box),
        **constraint_residuals(dual.problem, kept, mu, kappa),
    }
    return kept, log_odds, residuals
