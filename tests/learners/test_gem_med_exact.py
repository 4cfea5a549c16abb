"""GEM-MED against enumeration of all states: gradient, concavity, divergence, slackness, solvers, negative controls."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.learners._dual import GEMMEDProblem, entropy_budget, sigmoid
from pipeline.learners._gibbs import SampledDual, solve_gibbs
from pipeline.learners._kernels import DenseGram
from pipeline.learners._mean_field import solve_mean_field
from tests.learners.enumeration import Enumerated

PRIOR = 0.9


def small_problem(seed, n=10, *, C=1.0, amplitude=0.3, coverage=0.75, slack=0.1):
    """Two classes of n/2 samples, one far out, one on the wrong side; the same problem in both notations."""
    rng = np.random.default_rng(seed)
    y = np.repeat([-1.0, 1.0], n // 2)
    X = rng.standard_normal((n, 2)) + y[:, None]
    X[0] *= 4.0
    X[-1] *= -1.0
    D = np.sqrt(((X[:, None] - X) ** 2).sum(-1))
    K = np.exp(-0.5 * D**2).astype(np.float32)
    d = np.array([np.sort(D[i, y == y[i]])[1:3].mean() for i in range(n)])
    classes = (y > 0).astype(np.int64)
    for z in (0, 1):
        d[classes == z] /= np.median(d[classes == z])
    cover = np.full(2, coverage)
    box = max(1.2, C / amplitude)
    problem = GEMMEDProblem(
        y=y,
        weights=np.ones(n),
        distances=d,
        coverage=cover,
        budget=entropy_budget(d, classes, np.ones(n), cover, slack),
        prior_log_odds=float(np.log(PRIOR / (1 - PRIOR))),
        amplitude=amplitude,
        box=box,
        offset_variance=amplitude,
    )
    truth = Enumerated(amplitude * K.astype(float) + amplitude, y, d, cover, problem.budget, PRIOR, box)
    return problem, DenseGram(K), truth


def random_point(truth, rng):
    n = len(truth.y)
    return np.concatenate([rng.uniform(0, 0.9 * truth.c, n), rng.uniform(0, 3, 4)])


@pytest.mark.parametrize("seed", range(3))
def test_our_gradient_is_the_derivative_of_the_enumerated_dual(seed):
    """The solver's gradient formula, fed with exact moments, against central differences."""
    problem, _, truth = small_problem(seed, n=8)
    point = random_point(truth, np.random.default_rng(seed))
    ours = SampledDual(problem).gradient(point, *truth.moments(point))
    steps = 1e-5 * np.eye(len(point))
    differences = [(truth.dual(point + h) - truth.dual(point - h)) / 2e-5 for h in steps]
    np.testing.assert_allclose(ours, differences, atol=1e-6)


def test_our_fields_and_couplings_give_the_enumerated_posterior():
    """q(eta) proportional to exp(b'eta + eta'J eta / 2), state by state."""
    problem, gram, truth = small_problem(4, n=8)
    point = random_point(truth, np.random.default_rng(0))
    field, coupling = SampledDual(problem).field_and_coupling(point)
    Q = problem.amplitude * gram.matrix.astype(float) + problem.offset_variance
    J = np.outer(coupling, coupling) * Q
    eta = truth.states
    ours = eta @ field + 0.5 * np.einsum("si,ij,sj->s", eta, J, eta)
    theirs = truth._log_terms(point)
    np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_the_dual_is_concave(seed):
    """No segment between random points bends upwards."""
    _, _, truth = small_problem(seed, n=8)
    rng = np.random.default_rng(seed)
    for _ in range(60):
        a, b, t = random_point(truth, rng), random_point(truth, rng), rng.random()
        chord = t * truth.dual(a) + (1 - t) * truth.dual(b)
        assert truth.dual(t * a + (1 - t) * b) >= chord - 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_at_the_optimum_the_dual_is_the_divergence_and_slackness_holds(seed):
    """KL(q || p0) = D, every constraint is met, and a positive multiplier means an equality."""
    _, _, truth = small_problem(seed)
    point = truth.optimum()
    gradient = truth.gradient(point)
    assert truth.divergence(point) == pytest.approx(truth.dual(point), abs=1e-5)
    assert gradient.max() < 1e-4
    np.testing.assert_allclose((point * gradient)[point > 0], 0.0, atol=1e-4)


@pytest.mark.parametrize(("amplitude", "C"), [(0.3, 1.0), (1.0, 3.0)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_gibbs_reaches_the_exact_optimum(seed, amplitude, C):
    """Dual gap below 1e-3 nats, multipliers within .02 of the exact ones, and the posterior with them."""
    problem, gram, truth = small_problem(seed, amplitude=amplitude, C=C)
    exact = truth.optimum()
    solution = solve_gibbs(
        gram,
        problem,
        tolerance=1e-9,  # below the sampling error: all steps are taken
        max_iter=9_000,
        step_sizes=(0.05, 0.05, 0.05),
        rng=np.random.RandomState(seed),
    )
    found = np.concatenate([solution.multipliers, solution.mu, solution.kappa])
    assert truth.dual(exact) - truth.dual(found) < 1e-3
    assert np.abs(solution.multipliers - exact[:-4]).max() < 0.02
    assert solution.dual_value == pytest.approx(truth.dual(found), abs=0.03)
    np.testing.assert_allclose(solution.posterior, truth.moments(found)[0], atol=0.02)


def test_gibbs_stops_by_itself_when_the_conditions_hold():
    """Long before its last step, and with every residual within the tolerance."""
    problem, gram, _ = small_problem(1)
    solution = solve_gibbs(
        gram, problem, tolerance=0.02, max_iter=9_000, step_sizes=(0.05, 0.05, 0.05), rng=np.random.RandomState(0)
    )
    assert solution.converged
    assert solution.n_iter < 9_000
    assert max(solution.residuals.values()) <= 0.02


@pytest.mark.parametrize(("amplitude", "C"), [(0.3, 1.0), (1.0, 3.0), (0.1, 0.3)])
@pytest.mark.parametrize("seed", range(4))
def test_mean_field_is_close_to_exact_and_bounds_the_dual_from_above(seed, amplitude, C):
    """The restricted divergence is no less than the free one; E[eta] is within .05 of exact."""
    problem, gram, truth = small_problem(seed, amplitude=amplitude, C=C)
    exact = truth.optimum()
    solution = solve_mean_field(gram, problem, tolerance=1e-6, max_iter=300)
    assert solution.converged
    assert solution.dual_value >= truth.dual(exact) - 1e-6
    assert np.abs(solution.posterior - truth.moments(exact)[0]).max() < 0.05


def test_mean_field_value_is_the_divergence_of_its_own_factorised_posterior():
    """KL of q(eta) prod, f and xi given eta, summed over all states: the same number as the solver reports."""
    problem, gram, truth = small_problem(2, n=8)
    solution = solve_mean_field(gram, problem, tolerance=1e-7, max_iter=300)
    eta, pi, l = truth.states, solution.posterior, solution.multipliers
    q = np.prod(np.where(eta == 1, pi, 1 - pi), axis=1)
    log_prior = (eta * np.log(PRIOR) + (1 - eta) * np.log(1 - PRIOR)).sum(axis=1)
    a = eta * l * truth.y
    kl_f = 0.5 * np.einsum("si,ij,sj->s", a, truth.K, a)
    rate = truth.c - eta * l
    kl_xi = (np.log(rate / truth.c) + truth.c / rate - 1).sum(axis=1)
    divergence = q @ (np.log(q) - log_prior + kl_f + kl_xi)
    assert solution.dual_value == pytest.approx(divergence, rel=1e-3)


# Negative controls: what the equations look like with an error in them must miss the optimum.


def ascend(truth, gradient, *, steps=2000):
    """Projected ascent with exact moments and a given gradient; the best of its late iterates."""
    point = np.concatenate([np.full(len(truth.y), 0.3), np.full(4, 0.5)])
    first, second = np.zeros_like(point), np.zeros_like(point)
    upper = np.concatenate([np.full(len(truth.y), truth.c * (1 - 1e-6)), np.full(4, 200.0)])
    total = np.zeros_like(point)
    for t in range(1, steps + 1):
        g = gradient(truth, point)
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g**2
        step = 0.1 / np.sqrt(1 + t / 50) * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.99**t)) + 1e-9)
        point = np.clip(point + step, 0.0, upper)
        if t > steps // 2:
            total += point
    return total / (steps - steps // 2)


def correct(truth, point):
    return truth.gradient(point)


def as_printed(truth, point):
    """1 - E[eta y f] + c / (c - lambda): wrong sign, c for 1, no E[eta]."""
    l, (_, margins) = point[:-4], truth.moments(point)
    return np.concatenate([1 - margins + truth.c / (truth.c - l), truth.gradient(point)[-4:]])


def without_posterior_factor(truth, point):
    """1 - 1/(c - lambda) - E[eta y f]."""
    l, (_, margins) = point[:-4], truth.moments(point)
    return np.concatenate([1 - 1 / (truth.c - l) - margins, truth.gradient(point)[-4:]])


def without_barrier_in_the_posterior(truth, point):
    """eta's field without -log(1 - lambda/c), i.e. xi and eta treated as independent."""
    l, mu, kappa = truth.split(point)
    z = (truth.y > 0).astype(int)
    eta = truth.states
    a = eta * l * truth.y
    field = np.log(PRIOR / (1 - PRIOR)) - l - mu[z] * truth.d + kappa[z]
    log_terms = eta @ field + 0.5 * np.einsum("si,ij,sj->s", a, truth.K, a)
    q = np.exp(log_terms - log_terms.max())
    q /= q.sum()
    kept, margins = q @ eta, q @ (eta * truth.y * (a @ truth.K))
    rest = SampledDual(small_problem(1, n=8)[0]).gradient(point, kept, margins)
    return rest


def test_the_ascent_used_for_the_controls_is_itself_good():
    """With the right gradient it reaches the optimum, so a miss below is the gradient's fault."""
    _, _, truth = small_problem(1, n=8)
    assert truth.dual(truth.optimum()) - truth.dual(ascend(truth, correct)) < 1e-3


@pytest.mark.parametrize(
    ("gradient", "least_gap"),
    [(as_printed, 1.0), (without_posterior_factor, 0.02), (without_barrier_in_the_posterior, 0.003)],
)
def test_a_wrong_equation_misses_the_optimum(gradient, least_gap):
    """Each known misprint leaves a dual gap far above the solver's."""
    _, _, truth = small_problem(1, n=8)
    gap = truth.dual(truth.optimum()) - truth.dual(ascend(truth, gradient))
    assert gap > least_gap


def test_a_chain_on_averaged_states_is_biased():
    """Feeding f the average of several draws of eta (the published N_r > 1) shifts E[eta]; single draws do not."""
    problem, _, truth = small_problem(2, n=8, amplitude=1.0, C=3.0)
    point = truth.optimum()
    # Stronger couplings than at the optimum make eta depend on f.
    point[:-4] = 0.3 * truth.c
    field, coupling = SampledDual(problem).field_and_coupling(point)
    factor = np.linalg.cholesky(truth.K + 1e-10 * np.eye(8))
    exact = truth.moments(point)[0]

    def measured(draws):
        rng = np.random.default_rng(5)
        states = np.ones((8, 400))
        total = np.zeros(8)
        for sweep in range(300):
            f = factor @ (factor.T @ (coupling[:, None] * states) + rng.standard_normal((8, 400)))
            kept = sigmoid(field[:, None] + coupling[:, None] * f)
            states = np.mean([rng.random(kept.shape) < kept for _ in range(draws)], axis=0)
            if sweep >= 50:
                total += kept.mean(axis=1) / 250
        return np.abs(total - exact).max()

    assert measured(1) < 0.01
    assert measured(8) > 3 * measured(1)
