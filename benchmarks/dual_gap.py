"""Both GEM-MED solvers on one problem, and how far each is from the optimum of the exact dual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.experiments.ring import MACHINES, RingSample
from pipeline.learners._dual import GEMMEDProblem, JointSolution, entropy_budget
from pipeline.learners._geometry import Neighbourhoods, measure
from pipeline.learners._gibbs import Ascent, Chains, SampledDual, average_of_stretch
from pipeline.learners._kernels import Gram
from pipeline.learners._mean_field import solve_mean_field

Floats = NDArray[np.float64]

_NODES = 6
_SWEEPS = 400
_BURN_IN = 50


@dataclass(frozen=True, slots=True)
class Arena:
    """One GEM-MED problem and its kernel."""

    problem: GEMMEDProblem
    gram: Gram

    @classmethod
    def of(cls, ring: RingSample, coverage: float) -> Arena:
        rng = np.random.RandomState(0)
        n, classes = len(ring.y), (ring.y > 0).astype(np.int64)
        hoods = Neighbourhoods.choose(classes, np.arange(n), graph="bipartite", n_partitions=5, n_neighbors=5, rng=rng)
        geometry = measure(ring.X, kernel="linear", gamma=1.0, kernel_rank=None, rng=rng, neighbourhoods=hoods)
        assert geometry.graph is not None
        distances, _ = hoods.edge_lengths(geometry.graph)
        for z in (0, 1):
            distances[classes == z] /= np.median(distances[classes == z])
        machine, share, weights = MACHINES["gibbs"], np.full(2, coverage), np.ones(n)
        problem = GEMMEDProblem(
            y=ring.y,
            weights=weights,
            distances=distances,
            coverage=share,
            budget=entropy_budget(distances, classes, weights, share, 0.1),
            prior_log_odds=float(np.log(0.95 / 0.05)),
            amplitude=machine["amplitude"],
            box=machine["C"] / machine["amplitude"],
            offset_variance=machine["amplitude"],
        )
        return cls(problem, geometry.gram)

    def mean_field(self) -> JointSolution:
        return solve_mean_field(self.gram, self.problem, tolerance=1e-4, max_iter=100)

    def gibbs(self, steps: int, seed: int = 0) -> Floats:
        """Multipliers after `steps` steps, the last half averaged."""
        dual, chains = SampledDual(self.problem), self.chains(seed)
        ascent = Ascent(self.problem.self_coupling(self.gram.diagonal), (0.05, 0.05, 0.05), self.problem.box)
        return average_of_stretch(dual, chains, ascent, steps)

    def chains(self, seed: int) -> Chains:
        return Chains(self.gram, self.problem, np.random.RandomState(seed))

    def dual_difference(self, start: Floats, end: Floats) -> float:
        """D(end) - D(start): the integral of the sampled gradient along the line between them."""
        dual, chains = SampledDual(self.problem), self.chains(1)
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        total = 0.0
        for node, weight in zip(0.5 * (nodes + 1.0), 0.5 * weights, strict=True):
            point = start + node * (end - start)
            slopes = []
            for sweep in range(_BURN_IN + _SWEEPS):
                moments = dual.sampled_moments(point, chains)
                if sweep >= _BURN_IN:
                    slopes.append(float(dual.gradient(point, *moments) @ (end - start)))
            total += weight * float(np.mean(slopes))
        return total


def point_of(solution: JointSolution) -> Floats:
    return np.concatenate([solution.multipliers, solution.mu, solution.kappa])
