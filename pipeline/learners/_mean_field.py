"""Deterministic solver: the best posterior in which the eta are independent.

The restricted problem is ``min_pi P(pi) = KL(pi || p) + V(pi)`` under the two class constraints, where
``V(pi)`` is the value of a weighted MED (f integrated out exactly given eta). One round solves that MED,
linearises V at its solution, and minimises the linearised problem: the log-odds become

    base_n = logit p - w (l + log(1 - l/c)) + w l y f_without_n + w^2 l^2 k / 2,      k = s K_nn + B
    log_odds_n = base_n + w (kappa_z - mu_z d_n),

with (mu, kappa) such that both constraints hold. The direction from one posterior to the next descends on P, so a
step is shortened until P falls; Anderson's extrapolation makes most steps longer instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.learners._arrays import Floats
from pipeline.learners._dual import (
    GEMMEDProblem,
    JointSolution,
    constraint_residuals,
    log_likelihood_of_keeping,
    margin_residual,
    meet_constraints,
    sigmoid,
)
from pipeline.learners._kernels import Gram
from pipeline.learners._weighted_med import MEDSolution

_MEMORY = 3
_SHORTEST_STEP = 1 / 4096
_FINEST_MED = 1e-6


@dataclass(frozen=True, slots=True)
class _State:
    """A posterior, the MED fitted to it, and the value of both."""

    base: Floats
    log_odds: Floats
    posterior: Floats
    med: MEDSolution
    value: float


class _Rounds:
    """The two half-steps of a round, for one problem."""

    def __init__(self, gram: Gram, problem: GEMMEDProblem) -> None:
        self._gram, self._problem = gram, problem
        self._self_coupling = problem.self_coupling(gram.diagonal)
        self._classes = problem.classes
        self.med_tolerance = 1e-3
        self.mu, self.kappa = np.zeros(2), np.zeros(2)
        self.constraints_met = True

    def constrained(self, base: Floats) -> Floats:
        """Log-odds from `base` with the multipliers that make both constraints hold."""
        problem = self._problem
        log_odds, self.constraints_met = meet_constraints(
            base,
            problem.distances,
            problem.weights,
            self._classes,
            problem.budget,
            problem.coverage,
            self.mu,
            self.kappa,
        )
        return log_odds

    def state(self, base: Floats, log_odds: Floats, start: Floats | None) -> _State:
        """Fit the MED that belongs to these log-odds."""
        problem = self._problem
        posterior = sigmoid(log_odds)
        med = self._gram.solve(problem.med(posterior, self._self_coupling), start=start, tolerance=self.med_tolerance)
        prior = problem.prior_log_odds
        divergence = (posterior * (log_odds - prior) - np.logaddexp(0.0, log_odds) + np.logaddexp(0.0, prior)).sum()
        return _State(base, log_odds, posterior, med, float(divergence) + med.value)

    def response(self, state: _State) -> Floats:
        """The base log-odds that the state's MED asks for."""
        problem, w, l = self._problem, self._problem.weights, state.med.multipliers
        pull = w * l * self._self_coupling
        margin_without = problem.y * state.med.decision - state.posterior * pull
        return (
            problem.prior_log_odds
            + w * log_likelihood_of_keeping(l, problem.box)
            + w * l * margin_without
            + 0.5 * w * l * pull
        )


def solve_mean_field(gram: Gram, problem: GEMMEDProblem, *, tolerance: float, max_iter: int) -> JointSolution:
    """Iterate rounds until the posterior is stationary: gap <= tolerance * P.

    The gap ``sum (log_odds - target)(pi - pi_target)`` is the symmetric divergence between a
    posterior and its own response; it bounds what any further step can gain to first order.
    """
    rounds = _Rounds(gram, problem)
    prior = np.full(len(problem.y), problem.prior_log_odds)
    state = rounds.state(prior, rounds.constrained(prior), None)
    extrapolation = _Extrapolation()
    step, n_iter = 1.0, 0
    while True:
        response = rounds.response(state)
        target = rounds.constrained(response)
        gap = float(((state.log_odds - target) * (state.posterior - sigmoid(target))).sum())
        stationary = gap <= tolerance * max(1.0, abs(state.value))
        if stationary or n_iter == max_iter:
            break
        n_iter += 1
        if step == 1.0:
            bold_base = extrapolation.next(state, response)
            bold = rounds.state(bold_base, rounds.constrained(bold_base), state.med.multipliers)
            if bold.value <= state.value:
                state = bold
                continue
            extrapolation.forget()
        following, step = _shortened(rounds, state, response, sigmoid(target), min(1.0, 2.0 * step))
        if following is None:
            # The gain is below the accuracy of the inner solver: sharpen it, or admit to be stuck.
            if rounds.med_tolerance <= _FINEST_MED:
                rounds.constrained(response)  # the multipliers that belong to the state
                break
            rounds.med_tolerance *= 0.1
            state = rounds.state(state.base, state.log_odds, state.med.multipliers)
            continue
        state = following
    return _solution(rounds, gram, problem, state, gap, stationary, n_iter)


def _shortened(
    rounds: _Rounds, state: _State, response: Floats, target: Floats, step: float
) -> tuple[_State | None, float]:
    """The longest step towards the target posterior on which P falls, from `step` down by halves; None if none."""
    while step >= _SHORTEST_STEP:
        mixed = np.clip(state.posterior + step * (target - state.posterior), 1e-200, 1 - 1e-16)
        log_odds = np.log(mixed) - np.log1p(-mixed)
        base = state.base + step * (response - state.base)
        trial = rounds.state(base, log_odds, state.med.multipliers)
        if trial.value <= state.value:
            return trial, step
        step *= 0.5
    return None, 2.0 * step


class _Extrapolation:
    """Anderson's mixing of the last rounds' responses."""

    def __init__(self) -> None:
        self._bases: list[Floats] = []
        self._responses: list[Floats] = []

    def forget(self) -> None:
        self._bases.clear()
        self._responses.clear()

    def next(self, state: _State, response: Floats) -> Floats:
        self._bases = [*self._bases[-_MEMORY:], state.base]
        self._responses = [*self._responses[-_MEMORY:], response]
        if len(self._bases) < 2:
            return response
        # Samples that are certain either way do not matter: weigh by the variance of eta.
        weight = np.sqrt(state.posterior * (1.0 - state.posterior) + 1e-6)
        moves = np.diff(self._responses, axis=0)
        changes = (moves - np.diff(self._bases, axis=0)) * weight
        shares = np.linalg.lstsq(changes.T, (response - state.base) * weight, rcond=1e-8)[0]
        extrapolated: Floats = response - shares @ moves
        return extrapolated


def _solution(
    rounds: _Rounds,
    gram: Gram,
    problem: GEMMEDProblem,
    state: _State,
    gap: float,
    stationary: bool,
    n_iter: int,
) -> JointSolution:
    med = state.med
    l, w = med.multipliers, problem.weights
    # d/dlambda of the mean-field dual: the same condition the pairs of multipliers were driven to.
    coupling = problem.self_coupling(gram.diagonal)
    gradient = (
        w
        * state.posterior
        * (1.0 - 1.0 / (problem.box - l) - problem.y * med.decision - w * l * coupling * (1.0 - state.posterior))
    )
    residuals = {
        "margin": margin_residual(gradient, l, problem.box),
        **constraint_residuals(problem, state.posterior, rounds.mu, rounds.kappa),
        "posterior": gap / max(1.0, abs(state.value)),
    }
    converged = bool(stationary and med.converged and rounds.constraints_met)
    return JointSolution(
        multipliers=l,
        mu=rounds.mu.copy(),
        kappa=rounds.kappa.copy(),
        log_odds=state.log_odds,
        posterior=state.posterior,
        offset=med.offset,
        dual_value=state.value,
        residuals=residuals,
        n_iter=max(n_iter, 1),
        converged=converged,
    )
