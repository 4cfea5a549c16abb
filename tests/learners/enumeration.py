"""The GEM-MED dual by brute force: every state of eta is visited. For ten samples or so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Enumerated:
    """Written from the problem's statement alone; shares no code with the solvers."""

    K: Floats
    """Covariance of f, offset and amplitude included."""
    y: Floats
    d: Floats
    coverage: Floats
    budget: Floats
    prior: float
    c: float

    @cached_property
    def states(self) -> Floats:
        n = len(self.y)
        return np.array([[(code >> i) & 1 for i in range(n)] for code in range(2**n)], dtype=float)

    def split(self, point: Floats) -> tuple[Floats, Floats, Floats]:
        """lambda, mu, kappa; the last two per sample, negative class first."""
        return point[:-4], point[-4:-2], point[-2:]

    def _log_terms(self, point: Floats) -> Floats:
        """log p0(eta) plus the log of what f and xi integrate to, for each state."""
        l, mu, kappa = self.split(point)
        z = (self.y > 0).astype(int)
        eta = self.states
        log_prior = eta * np.log(self.prior) + (1 - eta) * np.log(1 - self.prior)
        # E over xi of exp(-l eta xi): with density c exp(-c(1 - xi)) on xi <= 1.
        log_xi = -eta * l - np.log1p(-eta * l / self.c)
        a = eta * l * self.y
        log_f = 0.5 * np.einsum("si,ij,sj->s", a, self.K, a)
        return (log_prior + log_xi + eta * (kappa[z] - mu[z] * self.d)).sum(axis=1) + log_f

    def dual(self, point: Floats) -> float:
        _, mu, kappa = self.split(point)
        sizes = np.array([(self.y < 0).sum(), (self.y > 0).sum()])
        linear = (sizes * (self.coverage * kappa - self.budget * mu)).sum()
        return float(linear - logsumexp(self._log_terms(point)))

    def moments(self, point: Floats) -> tuple[Floats, Floats]:
        """E[eta_n] and E[eta_n y_n f_n]."""
        l, _, _ = self.split(point)
        log_terms = self._log_terms(point)
        q = np.exp(log_terms - logsumexp(log_terms))
        eta = self.states
        mean_f = (eta * l * self.y) @ self.K
        return q @ eta, q @ (eta * self.y * mean_f)

    def gradient(self, point: Floats) -> Floats:
        l, _, _ = self.split(point)
        kept, margins = self.moments(point)
        negative, positive = self.y < 0, self.y > 0
        sizes = np.array([negative.sum(), positive.sum()])
        used = np.array([(kept * self.d)[negative].sum(), (kept * self.d)[positive].sum()])
        share = np.array([kept[negative].sum(), kept[positive].sum()])
        by_lambda = kept * (1 - 1 / (self.c - l)) - margins
        return np.concatenate([by_lambda, used - sizes * self.budget, sizes * self.coverage - share])

    def divergence(self, point: Floats) -> float:
        """KL(q || p0) from its definition: of eta, of f given eta, of xi given eta."""
        l, _, _ = self.split(point)
        log_terms = self._log_terms(point)
        log_q = log_terms - logsumexp(log_terms)
        q, eta = np.exp(log_q), self.states
        log_prior = (eta * np.log(self.prior) + (1 - eta) * np.log(1 - self.prior)).sum(axis=1)
        a = eta * l * self.y
        kl_f = 0.5 * np.einsum("si,ij,sj->s", a, self.K, a)  # mean K a, covariance unchanged
        rate = self.c - eta * l
        kl_xi = (np.log(rate / self.c) + self.c / rate - 1).sum(axis=1)
        return float(q @ (log_q - log_prior + kl_f + kl_xi))

    def optimum(self) -> Floats:
        """Maximise the dual; it is concave, so one start is enough."""
        n = len(self.y)
        bounds = [(0.0, self.c * (1 - 1e-9))] * n + [(0.0, None)] * 4
        found = minimize(
            lambda p: -self.dual(p),
            np.concatenate([np.full(n, 0.3), np.full(4, 0.5)]),
            jac=lambda p: -self.gradient(p),
            bounds=bounds,
            method="L-BFGS-B",
            options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
        )
        return np.asarray(found.x)
