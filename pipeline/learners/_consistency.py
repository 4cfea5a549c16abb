"""Did a sensor deliver the scene of the moment? Its neighbours say: kNN entropy ratios, calibrated by shuffling.

For a pair of sensors s, k the features of s are predicted from those of k by ridge regression, out of fold by
recording. The residual of a sensor that hears the same scene lies near the residuals of other recordings, compared with
how its own features lie near theirs:

    r_{s|k}(n) = log d(residual of n) - log d(features of n),        r_s(n) = min over k,

d being the mean distance to the nearest trusted samples of other recordings: a pointwise estimate of minus the mutual
information. Agreement with one other sensor is enough. What r looks like for a sensor that does *not* hear the scene is
learned without any clean data: predict from the other sensor at another recording's moment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.learners._arrays import Flags, Floats, Integers
from pipeline.learners._robust import robust_spread, rough_centre

N_NEIGHBORS = 10
_RIDGES = (0.1, 1.0)  # in parts of the total weight
_LARGEST_LLR = 8.0
_LEAST_SEPARATION = 1.2
_KNEE = 2.5  # robust standard deviations of the log distance from which own density speaks against a sample
_SAME = 0.02  # of a usual distance to the nearest segments of other recordings


@dataclass(frozen=True, slots=True)
class Mixture:
    """Consistent and inconsistent ratios as two normal densities; the second is known from shuffling."""

    consistent: tuple[float, float]
    inconsistent: tuple[float, float]
    contamination: float

    @property
    def separation(self) -> float:
        (m0, s0), (m1, s1) = self.consistent, self.inconsistent
        return (m1 - m0) / (s0 + s1)

    def log_likelihood_ratio(self, ratios: Floats) -> Floats:
        """Positive for consistent ratios; beyond either mean nothing more is learned."""
        x = np.clip(ratios, self.consistent[0], max(self.inconsistent[0], self.consistent[0]))
        llr = _log_normal(x, *self.consistent) - _log_normal(x, *self.inconsistent)
        clipped: Floats = np.clip(llr, -_LARGEST_LLR, _LARGEST_LLR)
        return clipped


@dataclass(frozen=True, slots=True)
class SensorEvidence:
    """What the distances say about each segment of one sensor."""

    log_odds: Floats
    """To be added to those of the prior that the sensor delivered the scene."""
    ratios: Floats
    mixture: Mixture | None
    """None where the ratios cannot tell, or there is no other sensor."""
    blame: float = 1.0
    """Share of the contradictions that are the sensor's own."""

    @property
    def contradicts(self) -> Flags:
        """Segments that do not fit what the other sensors heard."""
        known = np.isfinite(self.ratios)
        found = np.zeros(len(known), np.bool_)
        if self.mixture is not None:
            found[known] = self.mixture.log_likelihood_ratio(self.ratios[known]) < 0
        return found

    @property
    def contamination(self) -> float:
        return self.blame * self.mixture.contamination if self.mixture else 0.0


def evidence(
    X: Floats, present: Flags, groups: Integers, folds: Integers, *, prior: float, rng: np.random.RandomState
) -> list[SensorEvidence]:
    """Evidence for every sensor of X (segments, sensors, features); found twice, for the first tells who is trusted."""
    n_sensors = X.shape[1]
    shuffled = shuffle_groups(groups, rng)
    repeating = _repeating(X, present, groups)
    hearing = present & ~repeating
    weights = np.column_stack([_first_weights(X[:, s], hearing[:, s], groups) for s in range(n_sensors)])
    excuses = np.zeros(n_sensors)
    for last in (False, True):
        found = [
            _of_sensor(s, X, hearing, groups, folds, shuffled, weights, prior, float(excuses[s]), repeating[:, s].sum())
            for s in range(n_sensors)
        ]
        if last:
            break
        weights = np.column_stack([np.where(hearing[:, s], _posterior(found[s], prior), 0.0) for s in range(n_sensors)])
        excuses = _excuses(np.array([sensor.contamination for sensor in found]))
    return [_without_repeating(sensor, repeating[:, s]) for s, sensor in enumerate(found)]


def _repeating(X: Floats, present: Flags, groups: Integers) -> Flags:
    """Segments that other recordings have many times, almost exactly: a dead sensor says the same whatever happens.

    They are nearest to each other, and would be the most nominal of all. What is usual is told by the sensor of which
    it is most: one that is always dead has nothing usual of its own.
    """
    nearest = np.full(present.shape, np.inf)
    for s in np.flatnonzero(present.sum(axis=0) > N_NEIGHBORS):
        here = present[:, s]
        nearest[here, s] = mean_distances(X[here, s], groups[here], X[here, s], groups[here])
    usual = [np.median(own[np.isfinite(own)]) for own in nearest.T if np.isfinite(own).any()]
    return present & (nearest < _SAME * max(usual, default=0.0))


def _without_repeating(found: SensorEvidence, repeating: Flags) -> SensorEvidence:
    return replace(found, log_odds=np.where(repeating, -2 * _LARGEST_LLR, found.log_odds))


def _excuses(contamination: Floats) -> Floats:
    """For each sensor the chance that all others failed, so that it contradicts them though it is right."""
    return np.array([np.prod(np.delete(contamination, s)) for s in range(len(contamination))])


def _of_sensor(
    sensor: int,
    X: Floats,
    present: Flags,
    groups: Integers,
    folds: Integers,
    shuffled: Integers,
    weights: Floats,
    prior: float,
    excuse: float,
    n_repeating: int,
) -> SensorEvidence:
    own, here = X[:, sensor], present[:, sensor]
    trusted = weights[:, sensor] > 0.5
    if trusted.sum() <= N_NEIGHBORS:
        return SensorEvidence(np.zeros(len(X)), np.full(len(X), np.nan), None)
    d_own = np.full(len(X), np.nan)
    d_own[here] = mean_distances(own[here], groups[here], own[trusted], groups[trusted])
    log_own = np.log(np.maximum(d_own, 1e-12))
    z = robust_z(log_own, trusted)
    ratios, inconsistent = np.full(len(X), np.inf), np.full(len(X), np.inf)
    for other in (k for k in range(X.shape[1]) if k != sensor):
        both = here & present[:, other]
        pair = weights[:, sensor] * weights[:, other]
        good = both & (pair > 0.5)
        if good.sum() <= N_NEIGHBORS:
            continue
        predicted, _ = predict_out_of_fold(X[:, other], own, np.where(both, pair, 0.0), folds)
        residual = own - predicted
        exchanged = own - predicted[shuffled]
        strange = here & present[shuffled, other] & (groups[shuffled] != groups)
        for target, values, rows in ((ratios, residual, both), (inconsistent, exchanged, strange)):
            d = mean_distances(values[rows], groups[rows], residual[good], groups[good])
            target[rows] = np.minimum(target[rows], np.log(np.maximum(d, 1e-12)) - log_own[rows])
    mixture = _mixture(ratios[np.isfinite(ratios)], inconsistent[np.isfinite(inconsistent)], n_repeating)
    blame = 1.0
    if X.shape[1] == 2 and mixture is not None:
        # Of two sensors alone nobody knows who is wrong: half of the contradictions are the other's.
        blame, excuse = 0.5, 0.5 * mixture.contamination
    return SensorEvidence(_log_odds(ratios, z, mixture, prior, blame, excuse), ratios, mixture, blame)


def _log_odds(ratios: Floats, z: Floats, mixture: Mixture | None, prior: float, blame: float, excuse: float) -> Floats:
    """Likelihood ratio of the mixture, a prior lowered to the contamination found, and own density for loud faults.

    A sensor that is right contradicts the others all the same if all of these failed, by the chance of the excuse.
    """
    from scipy.special import logit

    loud = np.maximum(0.0, np.nan_to_num(z, nan=0.0) - _KNEE)
    if mixture is None:
        return logit(0.999) - logit(prior) - loud
    known = np.isfinite(ratios)
    llr = np.zeros(len(ratios))
    llr[known] = np.logaddexp(mixture.log_likelihood_ratio(ratios[known]), np.log(max(excuse, 1e-9)))
    log_odds: Floats = logit(min(prior, 1 - blame * mixture.contamination)) - logit(prior) + llr - loud
    return log_odds


def _posterior(found: SensorEvidence, prior: float) -> Floats:
    from scipy.special import expit, logit

    posterior: Floats = expit(logit(prior) + found.log_odds)
    return posterior


def _first_weights(own: Floats, present: Flags, groups: Integers) -> Floats:
    """Before anything is known: distrust what is far from the others, or large."""
    from scipy.special import expit

    weights = np.zeros(len(own))
    if present.sum() <= N_NEIGHBORS:
        return weights
    d = mean_distances(own[present], groups[present], own[present], groups[present])
    everyone = np.ones(len(d), np.bool_)
    far = robust_z(np.log(np.maximum(d, 1e-12)), everyone)
    large = robust_z(np.log(np.maximum(np.linalg.norm(own[present], axis=1), 1e-12)), everyone)
    weights[present] = expit(-2 * (np.maximum(far, large) - 3))
    return weights


def _mixture(ratios: Floats, inconsistent: Floats, n_repeating: int = 0) -> Mixture | None:
    """Fit the consistent density and the share of inconsistent samples by EM; None where they are not told apart.

    Repeating samples count as inconsistent, whatever their ratios are: a sensor that is often dead is believed less.
    """
    if len(ratios) < 2 * N_NEIGHBORS or len(inconsistent) < 2 * N_NEIGHBORS:
        return None
    m1, s1 = float(np.median(inconsistent)), max(float(robust_spread(inconsistent)), 1e-3)
    low = ratios[ratios < m1 - s1]
    if len(low) < 0.2 * len(ratios):
        return None
    m0, s0, p1 = float(np.median(low)), float(robust_spread(low)), 0.1
    m0, s0 = min(m0, m1 - 0.1), float(np.clip(s0, 0.05, 0.5))
    strangeness = np.exp(_log_normal(ratios, m1, s1))
    for _ in range(60):
        bad = p1 * strangeness
        good = (1 - p1) * np.exp(_log_normal(ratios, m0, s0))
        strange = np.where(ratios > m1, 1.0, bad / np.maximum(bad + good, 1e-300))
        p1 = float(np.clip((strange.sum() + n_repeating) / (len(ratios) + n_repeating), 0.001, 0.6))
        kept = 1 - strange
        m0 = min(float(kept @ ratios / kept.sum()), m1 - 0.1)
        s0 = float(np.clip(np.sqrt(kept @ (ratios - m0) ** 2 / kept.sum()), 0.05, 0.5))
    mixture = Mixture((m0, s0), (m1, s1), p1)
    return mixture if mixture.separation > _LEAST_SEPARATION else None


def _log_normal(x: Floats, mean: float, spread: float) -> Floats:
    density: Floats = -0.5 * ((x - mean) / spread) ** 2 - np.log(spread * np.sqrt(2 * np.pi))
    return density


def robust_z(values: Floats, among: Flags) -> Floats:
    """Deviations from the median of some values, in their robust spreads."""
    z: Floats = (values - np.median(values[among])) / max(float(robust_spread(values[among])), 1e-12)
    return z


def mean_distances(A: Floats, groups_A: Integers, B: Floats, groups_B: Integers, k: int = N_NEIGHBORS) -> Floats:
    """Mean distance from each row of A to its k nearest rows of B in other groups; fewer where there are fewer.

    NaN where there is none: of few recordings one may have all that is to be compared with.
    """
    from pipeline.learners._nearest import mean_of_nearest  # loads a compiler, which deciding does not need

    return mean_of_nearest(A, groups_A, B, groups_B, k)


def predict_out_of_fold(source: Floats, target: Floats, weights: Floats, folds: Integers) -> tuple[Floats, float]:
    """Ridge prediction of the target from the source, by regressions that did not see the fold; and the ridge used."""
    used = weights > 0
    origin = _origin(source[used], target[used])
    parts = [folds == fold for fold in np.unique(folds)]
    moments = np.stack([_moments(source, target, weights * part, origin) for part in parts])
    # Sums over the other folds, not differences: one huge sample would leave nothing but its rounding errors.
    others = np.stack([moments[np.arange(len(parts)) != n].sum(axis=0) for n in range(len(parts))])
    best: Floats = np.full(target.shape, np.nan)
    best_error, best_ridge = np.inf, _RIDGES[0]
    for ridge in _RIDGES:
        predicted = np.empty(target.shape)
        for part, matrix, offset in zip(parts, *_solved(others, ridge, origin), strict=True):
            predicted[part] = source[part] @ matrix + offset
        error = float(weights[used] @ np.sum((target[used] - predicted[used]) ** 2, axis=1))
        if error < best_error:
            best, best_error, best_ridge = predicted, error, ridge
    return best, best_ridge


@dataclass(frozen=True, slots=True)
class RidgeMap:
    """A linear map with an offset."""

    matrix: Floats
    offset: Floats

    def __call__(self, source: Floats) -> Floats:
        predicted: Floats = source @ self.matrix + self.offset
        return predicted


def ridge_map(source: Floats, target: Floats, weights: Floats, ridge: float) -> RidgeMap:
    """Weighted ridge regression; the ridge in parts of the total weight."""
    origin = _origin(source[weights > 0], target[weights > 0])
    return RidgeMap(*_solved(_moments(source, target, weights, origin), ridge, origin))


def _origin(source: Floats, target: Floats) -> tuple[Floats, Floats]:
    """What moments are taken about: far from it they would lose digits."""
    if not len(source):
        return np.zeros(source.shape[1]), np.zeros(target.shape[1])
    return rough_centre(source), rough_centre(target)


def _moments(source: Floats, target: Floats, weights: Floats, origin: tuple[Floats, Floats]) -> Floats:
    """``[1, x]' W [1, x, t]`` of source and target about an origin: all that a regression needs, and a sum."""
    used = weights > 0
    left = np.column_stack([np.ones(int(used.sum())), source[used] - origin[0]])
    moments: Floats = (weights[used, None] * left).T @ np.column_stack([left, target[used] - origin[1]])
    return moments


def _solved(moments: Floats, ridge: float, origin: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Matrix and offset of the regression with these moments, or of each one of a stack."""
    n = moments.shape[-2] - 1
    total = np.maximum(moments[..., :1, :1], 1e-12)
    means = moments[..., :1, 1:] / total
    of_source, of_target = means[..., :n], means[..., n:]
    about_means = moments[..., 1:, 1:] - total * of_source.swapaxes(-1, -2) * means
    gram = about_means[..., :n] + ridge * total * np.eye(n)
    matrix = np.asarray(np.linalg.solve(gram, about_means[..., n:]), np.float64)
    offset: Floats = origin[1] + of_target - (origin[0] + of_source) @ matrix
    return matrix, offset[..., 0, :]


def group_folds(groups: Integers, y: Floats, n_folds: int, rng: np.random.RandomState) -> Integers:
    """Folds of whole groups, with the classes spread evenly over them."""
    names, first = np.unique(groups, return_index=True)
    order = rng.permutation(len(names))
    order = order[np.argsort(y[first][order], kind="stable")]
    fold_of = np.empty(len(names), np.int64)
    fold_of[order] = np.arange(len(names)) % min(n_folds, len(names))
    return fold_of[np.searchsorted(names, groups)]


def shuffle_groups(groups: Integers, rng: np.random.RandomState) -> Integers:
    """A permutation that takes every sample to one of another group, where no group holds more than half of them."""
    order = np.argsort(groups, kind="stable")
    # A turn of the sorted list by at least the largest group takes everyone into another group.
    largest = int(np.bincount(np.unique(groups, return_inverse=True)[1]).max())
    turn = int(rng.randint(largest, max(len(groups) - largest, largest + 1)))
    partner = np.empty(len(groups), np.int64)
    partner[order] = np.roll(order, turn)
    return partner
