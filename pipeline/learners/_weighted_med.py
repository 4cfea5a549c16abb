"""Weighted maximum entropy discrimination: the convex problem inside every learner here.

With margins ``r_n = 1 - y_n f(x_n)``, weights ``w_n`` and ``a_n = w_n lambda_n``:

    max_a  sum_n w_n (l_n + log(1 - l_n / c)) - 1/2 sum_nm a_n a_m y_n y_m s K_nm
           - B/2 (sum_n a_n y_n)^2 - 1/2 sum_n w_n k_n l_n^2              0 <= l_n = a_n / w_n < c

``s`` is the amplitude of the Gaussian process, ``B`` the prior variance of its offset, ``f = s K (a y) + offset``,
``k_n`` an extra curvature per sample (zero in plain MED).

Two solvers for the same problem. `solve_dense` moves pairs of multipliers (sequential minimal
optimisation, second-order pair choice): single coordinates creep on wide kernels. The offset is one
more coordinate, without bounds and with kernel row zero.
`solve_low_rank` takes Newton steps in the primal for ``K = Z Z'``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pipeline.learners._arrays import Flags, Floats, Integers
from pipeline.learners._compiled import compiled

NEGLIGIBLE_WEIGHT = 1e-6
"""A sample whose weight is a smaller share of the largest one cannot move f visibly; it is left out."""

OFFSET = -1
"""Index of the offset's coordinate in a pair."""
_BLOCK = 64
"""Samples whose best is found together before blocks are compared."""


@dataclass(frozen=True, slots=True)
class MEDSolution:
    """Multipliers per unit of weight, and what they imply on the training samples."""

    multipliers: Floats
    offset: float
    decision: Floats
    """f(x_n), offset included."""
    value: float
    """The objective at the solution."""
    n_steps: int
    converged: bool


@dataclass(frozen=True, slots=True)
class MEDProblem:
    """What both solvers are given, apart from the kernel."""

    y: Floats
    weights: Floats
    self_curvature: Floats
    """``k_n`` above."""
    amplitude: float
    box: float
    offset_variance: float

    @property
    def counts(self) -> Flags:
        """Which samples are heavy enough to take part."""
        return self.weights > NEGLIGIBLE_WEIGHT * self.weights.max()


@compiled
def best_multiplier(residual: float, curvature: float, box: float) -> float:
    """argmax over l in [0, box) of ``l*residual + log(1 - l/box) - curvature*l^2/2``."""
    if residual * box <= 1.0:
        return 0.0
    if curvature == 0.0:
        return box - 1.0 / residual
    half = 0.5 * (residual + curvature * box)
    root = np.sqrt(max(half * half - curvature * (residual * box - 1.0), 0.0))
    return (residual * box - 1.0) / (half + root)


@compiled
def best_multipliers(residuals: Floats, curvatures: Floats, box: float) -> Floats:
    """`best_multiplier` of each sample."""
    out = np.empty_like(residuals)
    for n in range(len(residuals)):
        out[n] = best_multiplier(residuals[n], curvatures[n], box)
    return out


@compiled
def _slope(sign: float, a: float, weight: float, ridge: float, box: float) -> float:
    return sign * (1.0 - 1.0 / (box - a / weight) - ridge * a)


@compiled
def _pair_step(
    gap: float,
    curvature: float,
    a_i: float,
    a_j: float,
    y_i: float,
    y_j: float,
    w_i: float,
    w_j: float,
    ridge_i: float,
    ridge_j: float,
    box: float,
) -> float:
    """Step d > 0 that maximises the objective along ``y_i a_i += d, y_j a_j -= d``.

    The derivative falls from `gap` at 0 and is driven to zero by Newton's method inside a
    bracket. A weight of zero marks the offset's coordinate, which has neither bound nor barrier.
    """
    high = np.inf
    if w_i > 0.0:
        high = min(high, w_i * box - a_i if y_i > 0 else a_i)
    if w_j > 0.0:
        high = min(high, a_j if y_j > 0 else w_j * box - a_j)
    start_i = _slope(y_i, a_i, w_i, ridge_i, box) if w_i > 0.0 else 0.0
    start_j = _slope(y_j, a_j, w_j, ridge_j, box) if w_j > 0.0 else 0.0
    low = 0.0
    upper = high
    step = min(gap / curvature, 0.5 * high)
    for _ in range(60):
        derivative = gap - curvature * step
        second = curvature
        if w_i > 0.0:
            room = box - (a_i + y_i * step) / w_i
            derivative += y_i * (1.0 - 1.0 / room - ridge_i * (a_i + y_i * step)) - start_i
            second += 1.0 / (w_i * room * room) + ridge_i
        if w_j > 0.0:
            room = box - (a_j - y_j * step) / w_j
            derivative -= y_j * (1.0 - 1.0 / room - ridge_j * (a_j - y_j * step)) - start_j
            second += 1.0 / (w_j * room * room) + ridge_j
        if derivative > 0.0:
            low = step
        else:
            upper = step
        if abs(derivative) <= 1e-6 * gap:
            break
        following = step + derivative / second
        if following >= high and derivative > 0.0 and _bound_is_zero(w_i, y_i, a_i, w_j, y_j, a_j, high):
            return high
        step = following if low < following < upper else 0.5 * (low + upper)
        if upper - low <= 1e-14 * upper:
            break
    return step


@compiled
def _bound_is_zero(w_i: float, y_i: float, a_i: float, w_j: float, y_j: float, a_j: float, high: float) -> bool:
    """Whether the step's limit takes a multiplier to zero (reachable), not to the box (a barrier)."""
    return (w_i > 0.0 and y_i < 0 and a_i == high) or (w_j > 0.0 and y_j > 0 and a_j == high)


@compiled
def _barrier(a: float, weight: float, ridge: float, box: float) -> float:
    """Curvature of the terms that are one sample's own."""
    room = box - a / weight
    return 1.0 / (weight * room * room) + ridge


@compiled
def _limits(active: bool, y: float, a: float) -> tuple[float, float]:
    """What is added to a slope that seeks to rise, and to fall: infinite where it may not, else 0."""
    rising = 0.0 if active and (y > 0 or a > 0.0) else -np.inf
    falling = 0.0 if active and (y < 0 or a > 0.0) else np.inf
    return rising, falling


@compiled
def _larger(x: float, y: float) -> float:
    """The larger of two numbers, without the branch that `max` is compiled to."""
    return x if x > y else y


@compiled
def _place_of_largest(values: Floats, tops: Integers) -> int:
    """The first place of the largest of values that are not negative; `OFFSET` if all are zero.

    Numbers that are not negative have the order of their bits, and many integers are compared in one instruction.
    """
    bits = values.view(np.int64)
    for block in range(len(tops)):
        part, top = bits[block * _BLOCK : (block + 1) * _BLOCK], 0
        for m in range(len(part)):
            top = max(top, part[m])
        tops[block] = top
    best = int(np.argmax(tops))
    if tops[best] == 0:
        return OFFSET
    m = best * _BLOCK
    while bits[m] != tops[best]:
        m += 1
    return m


@compiled
def _follow(
    slope: Floats,
    row_i: NDArray[np.float32],
    row_j: NDArray[np.float32],
    rise_by: float,
    fall_by: float,
    offset: float,
    rising: Floats,
    rises: Floats,
) -> None:
    """Bring all slopes up to date after a step, and how far those that may rise exceed the offset's."""
    for m in range(len(slope)):
        slope[m] -= rise_by * row_i[m] - fall_by * row_j[m]
        rises[m] = _larger(slope[m] + rising[m] - offset, 0.0)


@compiled
def _pair_gains(
    top: float,
    own: float,
    link: float,
    row: NDArray[np.float32],
    slope: Floats,
    bend: Floats,
    falling: Floats,
    drops: Floats,
    gains: Floats,
) -> None:
    """How far the slopes of those that may fall lie below the top, and what the quadratic model gains by each pair."""
    for m in range(len(slope)):
        drop = _larger(top - (slope[m] + falling[m]), 0.0)
        gains[m] = drop * drop / _larger(own + bend[m] - link * row[m], 1e-12)
        drops[m] = drop


@compiled
def _pair_curvature(
    i: int, j: int, kernel: NDArray[np.float32], diagonal: Floats, amplitude: float, offset_variance: float
) -> float:
    curvature = offset_variance if i == OFFSET or j == OFFSET else -2.0 * amplitude * kernel[i, j]
    curvature += 0.0 if i == OFFSET else amplitude * diagonal[i]
    curvature += 0.0 if j == OFFSET else amplitude * diagonal[j]
    return max(curvature, 1e-12)


@compiled
def _sample(m: int, a: Floats, y: Floats, w: Floats, ridge: Floats) -> tuple[float, float, float, float]:
    """Multiplier, sign, weight and ridge. The offset stands in with weight zero: it has no bound and no barrier."""
    if m == OFFSET:
        return 0.0, 1.0, 0.0, 0.0
    return a[m], y[m], w[m], ridge[m]


@compiled
def _smo(
    kernel: NDArray[np.float32],
    diagonal: Floats,
    active: Flags,
    y: Floats,
    w: Floats,
    ridge: Floats,
    amplitude: float,
    box: float,
    offset_variance: float,
    a: Floats,
    slope: Floats,
    tolerance: float,
    max_steps: int,
) -> tuple[float, float, int]:
    """Pairwise ascent in place on `a`, of active samples; `slope` is y times the gradient, offset excluded.

    Returns (offset, remaining violation, steps).
    """
    n = len(y)
    bend, rising, falling = np.empty(n), np.empty(n), np.empty(n)
    rises, drops, gains = np.empty(n), np.empty(n), np.empty(n)
    tops = np.empty((n + _BLOCK - 1) // _BLOCK, np.int64)
    total = 0.0
    for m in range(n):
        total += a[m] * y[m]
        bend[m] = amplitude * diagonal[m] + _barrier(a[m], w[m], ridge[m], box)
        rising[m], falling[m] = _limits(active[m], y[m], a[m])
    i = j = OFFSET
    d = 0.0
    for step_number in range(max_steps):
        offset = offset_variance * total
        rise_by, fall_by = 0.0 if i == OFFSET else amplitude * d, 0.0 if j == OFFSET else amplitude * d
        _follow(slope, kernel[max(i, 0)], kernel[max(j, 0)], rise_by, fall_by, offset, rising, rises)
        i = _place_of_largest(rises, tops)
        top, own, link = (offset, offset_variance, 0.0) if i == OFFSET else (slope[i], bend[i], 2.0 * amplitude)
        _pair_gains(top, own, link, kernel[max(i, 0)], slope, bend, falling, drops, gains)
        j = _place_of_largest(drops, tops)
        violation = max(0.0 if j == OFFSET else drops[j], top - offset)
        if violation <= tolerance:
            return offset, violation, step_number
        j = _place_of_largest(gains, tops)
        if i != OFFSET and (j == OFFSET or gains[j] <= (top - offset) ** 2 / (own + offset_variance)):
            j = OFFSET
        gap = top - (offset if j == OFFSET else slope[j])
        curvature = _pair_curvature(i, j, kernel, diagonal, amplitude, offset_variance)
        (a_i, y_i, w_i, ridge_i), (a_j, y_j, w_j, ridge_j) = _sample(i, a, y, w, ridge), _sample(j, a, y, w, ridge)
        d = _pair_step(gap, curvature, a_i, a_j, y_i, y_j, w_i, w_j, ridge_i, ridge_j, box)
        for m, step in ((i, d), (j, -d)):
            if m != OFFSET:
                before = _slope(y[m], a[m], w[m], ridge[m], box)
                a[m] = max(a[m] + y[m] * step, 0.0)
                slope[m] += _slope(y[m], a[m], w[m], ridge[m], box) - before
                bend[m] = amplitude * diagonal[m] + _barrier(a[m], w[m], ridge[m], box)
                rising[m], falling[m] = _limits(True, y[m], a[m])
                total += step
    return offset_variance * total, np.inf, max_steps


@compiled
def combine_rows(kernel: NDArray[np.float32], coefficients: Floats) -> Floats:
    """``kernel @ coefficients`` for a symmetric kernel, in double precision, zeros skipped."""
    out = np.zeros(kernel.shape[0])
    for m in range(len(coefficients)):
        if coefficients[m] != 0.0:
            row = kernel[m]
            for n in range(len(out)):
                out[n] += coefficients[m] * row[n]
    return out


def solve_dense(
    kernel: NDArray[np.float32],
    problem: MEDProblem,
    *,
    start: Floats | None = None,
    tolerance: float = 1e-3,
    max_steps: int | None = None,
) -> MEDSolution:
    """Solve for a full kernel matrix, from the multipliers `start` if given."""
    y, box, amplitude = problem.y, problem.box, problem.amplitude
    active = problem.counts
    w = np.where(active, problem.weights, 1.0)
    a = np.zeros(len(y)) if start is None else np.where(active, start * w, 0.0)
    field = amplitude * combine_rows(kernel, a * y) if start is not None else np.zeros(len(y))
    ridge = problem.self_curvature / w
    slope = y * (1.0 - 1.0 / (box - a / w) - ridge * a) - field
    offset, violation, n_steps = _smo(
        kernel,
        np.diag(kernel).astype(np.float64),
        active,
        y,
        w,
        ridge,
        amplitude,
        box,
        problem.offset_variance,
        a,
        slope,
        tolerance,
        max_steps or max(100 * len(y), 400_000_000 // len(y)),
    )
    decision = y * (1.0 - 1.0 / (box - a / w) - ridge * a) - slope + offset
    return _solution(problem, active, a, decision, offset, n_steps, bool(violation <= tolerance))


def _solution(
    problem: MEDProblem,
    active: Flags,
    a: Floats,
    decision: Floats,
    offset: float,
    n_steps: int,
    converged: bool,
) -> MEDSolution:
    """Complete the multipliers (also of samples too light to take part) and the objective."""
    y, box = problem.y, problem.box
    multipliers = np.where(active, a / np.where(active, problem.weights, 1.0), 0.0)
    idle = ~active
    multipliers[idle] = best_multipliers((1.0 - y * decision)[idle], problem.self_curvature[idle], box)
    gains = multipliers + np.log1p(-multipliers / box) - 0.5 * problem.self_curvature * multipliers**2
    value = float((problem.weights * gains)[active].sum() - 0.5 * (a @ (y * decision)))
    return MEDSolution(multipliers, offset, decision, value, n_steps, converged)


def solve_low_rank(
    factor: Floats,
    problem: MEDProblem,
    *,
    start: Floats | None = None,
    tolerance: float = 1e-3,
    max_steps: int = 60,
) -> MEDSolution:
    """Solve for ``K = factor @ factor.T`` by Newton steps on the primal, with a line search.

    The primal is ``1/2 |v|^2 + sum_n w_n loss_n(y_n phi_n v)`` with features
    ``phi = (sqrt(s) Z, sqrt(B))``; its loss has a continuous slope ``-l_n(r_n)`` and curvature
    ``dl/dr = 1 / ((c - l)^-2 + k)`` on the samples with ``l > 0``.
    """
    y, w = problem.y, problem.weights
    active = problem.counts
    scale = np.sqrt([problem.amplitude, problem.offset_variance])
    features = np.column_stack([scale[0] * factor, np.full(len(y), scale[1])])
    features_y = features * y[:, None]
    v = np.zeros(features.shape[1]) if start is None else features_y.T @ (np.where(active, w, 0.0) * start)
    cost, l, bend, dual_gain = _primal(v, features_y, problem, active)
    converged, n_steps = False, 0
    while n_steps < max_steps:
        n_steps += 1
        pull = features_y.T @ (w * l)
        # The multipliers of any v are dual feasible, so this gap bounds the distance to the optimum.
        duality_gap = cost - (w @ dual_gain - 0.5 * float(pull @ pull))
        if duality_gap <= 1e-3 * tolerance * cost:
            converged = True
            break
        gradient = v - pull
        chosen = features_y[bend > 0]
        hessian = (chosen * (w * bend)[bend > 0, None]).T @ chosen
        hessian[np.diag_indices_from(hessian)] += 1.0
        direction = -linalg.cho_solve(linalg.cho_factor(hessian, overwrite_a=True), gradient)
        decrement = float(gradient @ direction)
        length = 1.0
        while length > 1e-10:
            trial = v + length * direction
            trial_cost, *rest = _primal(trial, features_y, problem, active)
            if trial_cost <= cost + 1e-4 * length * decrement:
                break
            length *= 0.5
        v, cost, (l, bend, dual_gain) = trial, trial_cost, rest
    a = np.where(active, w * l, 0.0)
    offset = float(problem.offset_variance * (a @ y))
    decision = problem.amplitude * (factor @ (factor.T @ (a * y))) + offset
    return _solution(problem, active, a, decision, offset, n_steps, converged)


def _primal(v: Floats, features_y: Floats, problem: MEDProblem, active: Flags) -> tuple[float, Floats, Floats, Floats]:
    """Primal cost at `v`, the multipliers it implies, their derivative by the residual, their dual gain."""
    w = problem.weights
    residual = 1.0 - features_y @ v
    l, bend, loss, dual_gain = _losses(residual, problem.self_curvature, problem.box, active)
    return 0.5 * float(v @ v) + float(w @ loss), l, bend, dual_gain


@compiled
def _losses(residual: Floats, curvature: Floats, box: float, active: Flags) -> tuple[Floats, Floats, Floats, Floats]:
    multipliers = np.zeros_like(residual)
    bend = np.zeros_like(residual)
    loss = np.zeros_like(residual)
    dual_gain = np.zeros_like(residual)
    for n in range(len(residual)):
        l = best_multiplier(residual[n], curvature[n], box) if active[n] else 0.0
        if l > 0.0:
            room = box - l
            multipliers[n] = l
            bend[n] = 1.0 / (1.0 / (room * room) + curvature[n])
            dual_gain[n] = l + np.log1p(-l / box) - 0.5 * curvature[n] * l * l
            loss[n] = dual_gain[n] - l * (1.0 - residual[n])
    return multipliers, bend, loss, dual_gain
