"""The GEM-MED problem, its dual, and the optimality conditions both solvers are judged by.

    min_q KL(q || p0)   over f ~ GP(0, s K + B), xi_n <= 1, eta_n in {0, 1}
    s.t. E[eta_n (xi_n - y_n f_n)] <= 0                        multiplier lambda_n in [0, c)
         (1/N_z) E sum_{y_n = z} eta_n d_n <= budget_z         multiplier N_z mu_z,    mu_z >= 0
         (1/N_z) E sum_{y_n = z} eta_n     >= coverage_z       multiplier N_z kappa_z, kappa_z >= 0

Its solution is a Boltzmann machine over eta with fields ``b`` and couplings ``J``:

    b_n  = logit p - lambda_n - log(1 - lambda_n / c) - mu_z d_n + kappa_z
    J_nm = lambda_n lambda_m y_n y_m (s K_nm + B)
    D    = sum_z N_z (coverage_z kappa_z - budget_z mu_z) - N log(1 - p)
           - log sum_eta exp(b'eta + eta'J eta / 2)                               (concave)

A sample of weight w stands for w copies that are kept or refused together: ``lambda``, ``mu`` and
``kappa`` enter its field, and ``lambda`` its couplings, multiplied by w, and it counts w times in N_z.
The multipliers of the two class constraints are kept per sample (divided by N_z), so that
their size does not depend on the size of the training set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.learners._arrays import Floats, Integers
from pipeline.learners._compiled import compiled
from pipeline.learners._graphs import minimal_entropy_set
from pipeline.learners._weighted_med import MEDProblem


@dataclass(frozen=True, slots=True)
class GEMMEDProblem:
    """Everything but the kernel. Classes are 0 (y = -1) and 1 (y = +1)."""

    y: Floats
    weights: Floats
    distances: Floats
    coverage: Floats
    """Per class: the share of samples that must be kept."""
    budget: Floats
    """Per class: the largest mean of eta * distance."""
    prior_log_odds: float
    amplitude: float
    box: float
    offset_variance: float

    @property
    def classes(self) -> Integers:
        return (self.y > 0).astype(np.int64)

    def self_coupling(self, kernel_diagonal: Floats) -> Floats:
        """``s K_nn + B``: the prior variance of f at each sample."""
        return self.amplitude * kernel_diagonal + self.offset_variance

    def med(self, posterior: Floats, self_coupling: Floats) -> MEDProblem:
        """The weighted MED that a posterior with independent eta leads to."""
        return MEDProblem(
            y=self.y,
            weights=self.weights * posterior,
            self_curvature=self.weights * self_coupling * (1.0 - posterior),
            amplitude=self.amplitude,
            box=self.box,
            offset_variance=self.offset_variance,
        )

    @property
    def class_weights(self) -> Floats:
        return np.bincount(self.classes, weights=self.weights, minlength=2).astype(np.float64)


def entropy_budget(distances: Floats, classes: Integers, weights: Floats, coverage: Floats, slack: float) -> Floats:
    """Mean distance of each class's minimal-entropy set at its coverage, widened by `slack`."""
    budget = np.empty(2)
    for z in (0, 1):
        d, w = distances[classes == z], weights[classes == z]
        inside = minimal_entropy_set(d, coverage[z], w)
        budget[z] = (1.0 + slack) * (w * d)[inside].sum() / w.sum()
    return budget


@compiled
def sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-x))


@compiled
def log_likelihood_of_keeping(multipliers: Floats, box: float) -> Floats:
    """``-lambda - log(1 - lambda/c)``: what the margin's slack variable leaves in the field of eta."""
    return -multipliers - np.log1p(-multipliers / box)


@compiled
def _class_potential(
    base: Floats, d: Floats, w: Floats, mu: float, kappa: float, budget: float, coverage: float
) -> tuple[float, float, float, float, float, float]:
    """Value, gradient and Hessian of ``sum softplus(base + w(kappa - mu d)) + N(mu budget - kappa coverage)``."""
    total = w.sum()
    value = total * (mu * budget - kappa * coverage)
    g_mu, g_kappa = total * budget, -total * coverage
    h_mm = h_mk = h_kk = 0.0
    for n in range(len(base)):
        x = base[n] + w[n] * (kappa - mu * d[n])
        p = 1.0 / (1.0 + np.exp(-x))
        value += max(x, 0.0) + np.log1p(np.exp(-abs(x)))
        g_mu -= w[n] * d[n] * p
        g_kappa += w[n] * p
        spread = w[n] * w[n] * p * (1.0 - p)
        h_mm += spread * d[n] * d[n]
        h_mk -= spread * d[n]
        h_kk += spread
    return value, g_mu, g_kappa, h_mm, h_mk, h_kk


@compiled
def meet_constraints(
    base: Floats,
    d: Floats,
    w: Floats,
    classes: Integers,
    budget: Floats,
    coverage: Floats,
    mu: Floats,
    kappa: Floats,
) -> tuple[Floats, bool]:
    """Log-odds ``base + w(kappa - mu d)`` whose multipliers, updated in place, meet all class constraints."""
    log_odds = np.empty_like(base)
    all_met = True
    for z in range(2):
        own = np.flatnonzero(classes == z)
        mu[z], kappa[z], met = _meet_constraints_of_class(
            base[own], d[own], w[own], budget[z], coverage[z], mu[z], kappa[z]
        )
        all_met = all_met and met
        for n in own:
            log_odds[n] = base[n] + w[n] * (kappa[z] - mu[z] * d[n])
    return log_odds, all_met


@compiled
def _meet_constraints_of_class(
    base: Floats,
    d: Floats,
    w: Floats,
    budget: float,
    coverage: float,
    mu: float,
    kappa: float,
) -> tuple[float, float, bool]:
    """(mu, kappa) >= 0 of one class such that ``sigmoid(base + w(kappa - mu d))`` meets both constraints.

    Minimises the convex potential above by projected Newton steps with a line search.
    """
    tolerance = 1e-7 * w.sum()
    value, g_mu, g_kappa, h_mm, h_mk, h_kk = _class_potential(base, d, w, mu, kappa, budget, coverage)
    for _ in range(200):
        mu_free = mu > 0.0 or g_mu < 0.0
        kappa_free = kappa > 0.0 or g_kappa < 0.0
        left = max(abs(g_mu) if mu_free else 0.0, abs(g_kappa) if kappa_free else 0.0)
        if left <= tolerance:
            return mu, kappa, True
        ridge = 1e-10 * (h_mm + h_kk) + 1e-12
        step_mu = step_kappa = 0.0
        if mu_free and kappa_free:
            det = (h_mm + ridge) * (h_kk + ridge) - h_mk * h_mk
            step_mu = -((h_kk + ridge) * g_mu - h_mk * g_kappa) / det
            step_kappa = -((h_mm + ridge) * g_kappa - h_mk * g_mu) / det
        if not (mu_free and kappa_free) or step_mu * g_mu + step_kappa * g_kappa >= 0.0:
            step_mu = -g_mu / (h_mm + ridge) if mu_free else 0.0
            step_kappa = -g_kappa / (h_kk + ridge) if kappa_free else 0.0
        length = 1.0
        moved = False
        for _ in range(60):
            new_mu, new_kappa = max(mu + length * step_mu, 0.0), max(kappa + length * step_kappa, 0.0)
            terms = _class_potential(base, d, w, new_mu, new_kappa, budget, coverage)
            fall = 1e-4 * (g_mu * (new_mu - mu) + g_kappa * (new_kappa - kappa))
            if terms[0] <= value + fall and (new_mu != mu or new_kappa != kappa):
                moved = True
                break
            length *= 0.5
        if not moved:
            return mu, kappa, left <= 1e-4 * w.sum()
        mu, kappa = new_mu, new_kappa
        value, g_mu, g_kappa, h_mm, h_mk, h_kk = terms
    return mu, kappa, False


@dataclass(frozen=True, slots=True)
class JointSolution:
    """What either solver returns."""

    multipliers: Floats
    """lambda_n."""
    mu: Floats
    kappa: Floats
    log_odds: Floats
    """log q(eta_n = 1) / q(eta_n = 0), unsaturated."""
    posterior: Floats
    """E[eta_n]."""
    offset: float
    dual_value: float
    residuals: dict[str, float]
    """Largest violation of each optimality condition."""
    n_iter: int
    converged: bool


def constraint_residuals(problem: GEMMEDProblem, posterior: Floats, mu: Floats, kappa: Floats) -> dict[str, float]:
    """Violation of the two class constraints, or of complementary slackness where they hold."""
    classes, totals = problem.classes, problem.class_weights
    kept = np.bincount(classes, weights=problem.weights * posterior, minlength=2) / totals
    used = np.bincount(classes, weights=problem.weights * posterior * problem.distances, minlength=2) / totals
    short, over = problem.coverage - kept, used - problem.budget
    return {
        "entropy": float(np.max(np.where(mu > 0, np.abs(over), np.maximum(over, 0.0)))),
        "coverage": float(np.max(np.where(kappa > 0, np.abs(short), np.maximum(short, 0.0)))),
    }


def margin_residual(gradient: Floats, multipliers: Floats, box: float) -> float:
    """Root mean square of how far a unit step along the gradient by lambda would move inside ``[0, box]``."""
    moved = np.clip(multipliers + gradient, 0.0, box) - multipliers
    return float(np.sqrt(np.mean(moved**2)))
