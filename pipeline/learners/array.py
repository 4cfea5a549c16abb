"""GEM-MED over an array of sensors that observe the same events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pipeline.core.blas_threads import one_thread
from pipeline.learners import _checks
from pipeline.learners._arrays import Flags, Floats, Integers
from pipeline.learners._calibration import fit_slopes
from pipeline.learners._consistency import SensorEvidence, evidence, group_folds
from pipeline.learners._discriminant import machine
from pipeline.learners._graphs import EuclideanRows
from pipeline.learners._kernels import DenseGram
from pipeline.learners._labels import LabelEvidence, label_evidence
from pipeline.learners._weighted_med import MEDProblem, MEDSolution
from pipeline.learners.kernel_classifier import Discriminant, Kernel, log_odds, probability

_WIDTHS = (0.125, 0.25, 0.5)  # of the kernel, in parts of one over the median squared distance
_COSTS = (1.0, 3.0, 10.0)
_GRID = tuple(product(_WIDTHS, _COSTS))
_LABEL_MACHINES = ((0.125, 0.1), (0.125, 0.3), (0.125, 1.0))
"""Width and cost, one for each round of judging labels. The first is so smooth that it is little more than the mean of
each class, which many wrong labels hardly move; the others sharpen it once the worst labels count less."""
_NEARLY_CHANCE = 0.6
"""Log loss on left-out recordings from which on it chooses no machine: ln 2 is that of tossing a coin."""
LABEL_FOLDS = 20  # a label is best judged by classifiers that saw nearly all the others
_FLAT = 1e3  # prior variance of the offset: as good as none
_MARGIN_LIMIT = 2.0
_FEWEST_SEGMENTS = 20


class ArrayGEMMEDClassifier(ClassifierMixin, BaseEstimator):
    """Learn from an array while sensors fail and labels are wrong, and say which.

    A training segment n of sensor s is nominal, ``eta_ns = u_g v_ns``, if the label of its recording g is right and the
    sensor delivered the scene. Both are latent with Bernoulli priors; the classifier f_s of each sensor is the weighted
    maximum entropy discriminator with weights ``E[eta_ns]``.

    v_ns is judged by distances: of the sensor's features to those of other recordings, as GEM does, and of what is left
    of them once another sensor's are taken into account. A stale buffer or a swapped cable delivers nominal sound at
    the wrong time: its own density cannot see it, the other sensors can. u_g is judged by the margins of all sensors,
    from classifiers that did not see the recording. Both are calibrated on the corrupted training set itself: by what
    the distances look like when sensors are paired at different times, and by the mirror image of the margins.

    Parameters
    ----------
    delivered_prior : float in (0, 1), default=0.98
        Prior probability that a sensor delivered the scene of a segment.
    label_prior : float in (0, 1), default=0.95
        Prior probability that the label of a recording is right.
    n_folds : int, default=5
        Folds of whole recordings, for the sensors and the choice of the kernel. Labels are judged in up to 20.
    amplitude : float, default=0.3
        Prior variance of the decision functions, in units of the kernel.
    random_state : int, RandomState or None, default=0
        Seed of the folds and of the shuffling.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    delivered_ : ndarray of shape (n_segments, n_sensors)
        q(v): 0 where a sensor is absent.
    label_right_ : ndarray of shape (n_segments,)
        q(u) of each segment's recording.
    posterior_ : ndarray of shape (n_segments, n_sensors)
        E[eta], with which the segment counts.
    contamination_ : ndarray of shape (n_sensors,)
        Estimated share of segments that the sensor did not deliver.
    wrong_labels_ : float
        Estimated share of recordings with a wrong label.
    evidence_ : list of SensorEvidence
        Log odds, ratios and their mixture, for each sensor.
    folds_ : ndarray of shape (n_segments,)
    out_of_fold_log_odds_ : ndarray of shape (n_segments, n_sensors)
        Calibrated, by classifiers that did not see the fold; NaN where a sensor is absent or could not be trained.
    width_, C_ : float
        Kernel width, relative to one over the median squared distance, and cost; common to all sensors.

    Notes
    -----
    Segments of one recording never judge or validate each other. Needs at least two recordings of each class; with one
    sensor, or where the shuffled pairs look like the true ones, v has only the sensor's own density to go by. Assumes
    that most labels of each class are right. Cost: O(n^2) per pair of sensors, and some 300 fits to choose the kernel.

    References
    ----------
    T. Xie, N. Nasrabadi, A. Hero: Learning to classify with possible sensor failures; the prior of eta is richer here.

    Examples
    --------
    >>> import numpy as np
    >>> from pipeline.learners import ArrayGEMMEDClassifier
    >>> rng = np.random.default_rng(0)
    >>> recording = np.repeat(np.arange(24), 10)
    >>> y = recording % 2
    >>> scene = rng.normal(size=(240, 4)) + 1.5 * y[:, None]
    >>> X = scene[:, None] + 0.3 * rng.normal(size=(240, 3, 4))  # three sensors hear the same scene
    >>> X[:40, 2] = X[100:140, 2]  # the third repeats another time
    >>> model = ArrayGEMMEDClassifier().fit(X, y, groups=recording)
    >>> bool((model.delivered_[:40, 2] < 0.5).mean() > 0.9), bool((model.delivered_[:, :2] > 0.5).mean() > 0.95)
    (True, True)
    """

    def __init__(
        self,
        *,
        delivered_prior: float = 0.98,
        label_prior: float = 0.95,
        n_folds: int = 5,
        amplitude: float = 0.3,
        random_state: Any = 0,
    ) -> None:
        self.delivered_prior = delivered_prior
        self.label_prior = label_prior
        self.n_folds = n_folds
        self.amplitude = amplitude
        self.random_state = random_state

    @one_thread
    def fit(self, X: Any, y: Any, *, groups: Any, timing: Any = None) -> Self:
        """Learn from labelled segments.

        Parameters
        ----------
        X : array-like of shape (n_segments, n_sensors, n_features)
            Features that tell classes apart; NaN where a sensor is absent.
        y : array-like of shape (n_segments,)
            Two classes, one for each recording.
        groups : array-like of shape (n_segments,)
            Recordings.
        timing : array-like of shape (n_segments, n_sensors, n_timing_features), default=X
            Features that depend on when something is heard, by which sensors are compared with each other.
        """
        self._check_parameters()
        X, present = checked_array(X)
        T, present = checked_timing(X, present, timing)
        self.classes_, signs = _signs(y, len(X))
        names, groups = checked_recordings(groups, signs)
        rng = check_random_state(self.random_state)
        folds = group_folds(groups, signs, self.n_folds, rng)
        self.n_features_in_, self.scales_, self.timing_scales_ = (
            X.shape[2],
            typical_sizes(X, present),
            typical_sizes(T, present),
        )
        X, T = (
            np.where(present[:, :, None], values, 0.0) / scales[:, None]
            for values, scales in ((X, self.scales_), (T, self.timing_scales_))
        )
        self._judge_sensors(T, present, groups, folds, rng)
        sensors = [SensorSamples.of(X[:, s], signs, self.delivered_[:, s], self.amplitude) for s in range(X.shape[1])]
        label_folds = group_folds(groups, signs, LABEL_FOLDS, rng)
        labels = judged_labels(sensors, self.delivered_, groups, label_folds, len(names), self.label_prior)
        self.wrong_labels_, self.label_right_ = labels.wrong, expit(labels.log_odds)[groups]
        self.posterior_ = self.label_right_[:, None] * self.delivered_
        found = fitted_machines(sensors, self.delivered_, self.label_right_, present, folds)
        self.width_, self.C_ = found.tuning.width, found.tuning.C
        self.folds_, self.out_of_fold_log_odds_ = folds, found.out_of_fold_log_odds
        self.discriminants_: list[Discriminant | None] = found.discriminants
        return self

    def _check_parameters(self) -> None:
        for name in ("delivered_prior", "label_prior"):
            _checks.number(getattr(self, name), name, above=0, below=1, cure="0.95 is usual")
        _checks.whole_number(self.n_folds, "n_folds", least=2, cure="5 is usual")
        _checks.number(self.amplitude, "amplitude", above=0, cure="0.3 is usual")

    def _judge_sensors(
        self, X: Floats, present: Flags, groups: Integers, folds: Integers, rng: np.random.RandomState
    ) -> None:
        self.evidence_ = evidence(X, present, groups, folds, prior=self.delivered_prior, rng=rng)
        self.delivered_ = _delivered(self.evidence_, present, self.delivered_prior)
        self.contamination_ = np.array([sensor.contamination for sensor in self.evidence_])

    @one_thread
    def sensor_margins(self, X: Any) -> Floats:
        """f_s(x) for every sensor, (n_segments, n_sensors); NaN where it is absent or could not be trained."""
        check_is_fitted(self)
        X, present = checked_array(X, like=(len(self.scales_), self.n_features_in_))
        margins = np.full(present.shape, np.nan)
        for s, discriminant in enumerate(self.discriminants_):
            here = present[:, s]
            if discriminant is not None and here.any():
                margins[here, s] = discriminant.decision(X[here, s] / self.scales_[s])
        return margins

    def sensor_probabilities(self, X: Any) -> Floats:
        """P(classes_[1]) by every sensor alone, calibrated on recordings that were left out; NaN where it is absent."""
        margins = self.sensor_margins(X)
        slopes = [[1.0, 1.0] if d is None else d.slopes for d in self.discriminants_]
        return np.column_stack([probability(margins[:, s], np.asarray(slopes[s])) for s in range(len(slopes))])

    def decision_function(self, X: Any) -> Floats:
        """Sum of the margins of the sensors that are there; positive for ``classes_[1]``."""
        total: Floats = np.nansum(self.sensor_margins(X), axis=1)
        return total

    def predict(self, X: Any) -> Any:
        return self.classes_[(self.decision_function(X) > 0).astype(np.int64)]


@dataclass(frozen=True, slots=True)
class ArraySensors:
    """What can be learned of an array without labels: how far each sensor delivered the scene of every segment.

    The attributes are those of `ArrayGEMMEDClassifier`, which learns the same on its way.
    """

    scales: Floats
    folds: Integers
    evidence: list[SensorEvidence]
    delivered: Floats

    @classmethod
    def learn(
        cls, X: Any, groups: Any, *, delivered_prior: float = 0.98, n_folds: int = 5, random_state: Any = 0
    ) -> Self:
        """From features (segments, sensors, features), NaN where a sensor is absent; groups do not judge themselves."""
        X, present = checked_array(X)
        numbers = np.unique(np.asarray(groups), return_inverse=True)[1]
        rng = check_random_state(random_state)
        folds = group_folds(numbers, np.zeros(len(X)), n_folds, rng)
        scales = typical_sizes(X, present)
        X = np.where(present[:, :, None], X, 0.0) / scales[:, None]
        found = evidence(X, present, numbers, folds, prior=delivered_prior, rng=rng)
        return cls(scales, folds, found, _delivered(found, present, delivered_prior))


def _delivered(found: list[SensorEvidence], present: Flags, prior: float) -> Floats:
    """q(v): 0 where a sensor is absent."""
    log_odds = np.column_stack([sensor.log_odds for sensor in found])
    return np.where(present, expit(logit(prior) + log_odds), 0.0)


def judged_labels(
    sensors: Sequence[SensorSamples | None],
    delivered: Floats,
    groups: Integers,
    folds: Integers,
    n_recordings: int,
    prior: float,
) -> LabelEvidence:
    """Judge the label of each recording by classifiers that did not see its fold."""

    def margins(right: Floats, width: float, C: float) -> tuple[Floats, Flags]:
        return recording_margins(sensors, delivered, right[groups], groups, folds, width, C)

    return judged_by(margins, n_recordings, prior)


def judged_by(
    margins: Callable[[Floats, float, float], tuple[Floats, Flags]], n_recordings: int, prior: float
) -> LabelEvidence:
    """Judge the labels of recordings in rounds, by margins that each round makes anew.

    `margins` takes the probability that each label is right, a kernel width and a cost; it returns the mean margin of
    each recording, positive for its label, and where it is known.
    """
    found = LabelEvidence(np.full(n_recordings, logit(0.999)), 0.0, likelier=False)
    for width, C in _LABEL_MACHINES:
        mean, known = margins(expit(found.log_odds), width, C)
        found = label_evidence(mean, known, prior)
    if not found.likelier:
        # Left-out recordings show no wrong labels: refusing the least likely ones would only lose good examples.
        return LabelEvidence(np.full(n_recordings, logit(0.999)), 0.0, likelier=False)
    return found


def recording_margins(
    sensors: Sequence[SensorSamples | None],
    delivered: Floats,
    label_right: Floats,
    groups: Integers,
    folds: Integers,
    width: float,
    C: float,
) -> tuple[Floats, Flags]:
    """Return the mean margin of each recording by classifiers that did not see it, and where it is known."""
    margins = np.full((len(sensors), int(groups.max()) + 1), np.nan)
    for s, sensor in enumerate(sensors):
        if sensor:
            fit = sensor.cross_fitted(_balanced(label_right * delivered[:, s], sensor.y), folds, width, C)
            margins[s] = _mean_margins(sensor.y * fit.honest, delivered[:, s], groups)
    known = np.isfinite(margins)
    mean = np.where(known, margins, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return mean, known.any(axis=0)


@dataclass(frozen=True, slots=True)
class FittedMachines:
    """A discriminant for each sensor, None where too little is believed of it, and what was found on the way."""

    discriminants: list[Discriminant | None]
    out_of_fold_log_odds: Floats  # (segments, sensors), NaN where a sensor is absent or could not be trained
    tuning: Tuning


def fitted_machines(
    sensors: Sequence[SensorSamples | None], delivered: Floats, label_right: Floats, present: Flags, folds: Integers
) -> FittedMachines:
    """Fit the discriminants of all sensors, with kernel and cost chosen on left-out recordings."""
    posterior = label_right[:, None] * delivered
    weights, tuning = _weighted(sensors, delivered, label_right, present, folds)
    discriminants: list[Discriminant | None] = [None] * len(sensors)
    out_of_fold = np.full(present.shape, np.nan)
    for s, (sensor, fit) in enumerate(zip(sensors, tuning.fits, strict=True)):
        if sensor and fit:
            found = sensor.discriminant(weights[:, s], posterior[:, s], fit, tuning.width, tuning.C)
            discriminants[s] = found
            out_of_fold[present[:, s], s] = found.log_odds(fit.honest[present[:, s]])
    return FittedMachines(discriminants, out_of_fold, tuning)


def _weighted(
    sensors: Sequence[SensorSamples | None], delivered: Floats, label_right: Floats, present: Flags, folds: Integers
) -> tuple[Floats, Tuning]:
    """Weights of the segments in training, and the machine.

    Segments that a sensor did not deliver are refused only where that lowers the loss on left-out recordings. Loud
    or silent segments often do a classifier no harm, and some of them still hold the scene.
    """
    posterior = label_right[:, None] * delivered
    if (delivered[present] > 0.5).all():
        return posterior, _tuned(sensors, [posterior], posterior, folds)[0]
    all_present = label_right[:, None] * present
    refusing, keeping = _tuned(sensors, [posterior, all_present], posterior, folds)
    return (posterior, refusing) if refusing.loss <= keeping.loss else (all_present, keeping)


def fit_machine(
    X: Floats, signs: Floats, weights: Floats, folds: Integers, *, amplitude: float = 0.3
) -> Discriminant | None:
    """One weighted kernel MED, kernel and cost chosen on left-out recordings; None if too little is believed."""
    sensor = SensorSamples.of(X, signs, weights, amplitude)
    if sensor is None:
        return None
    (found,) = _tuned([sensor], [weights[:, None]], weights[:, None], folds)
    (fit,) = found.fits
    return None if fit is None else sensor.discriminant(weights, weights, fit, found.width, found.C)


@dataclass(frozen=True, slots=True)
class CrossFit:
    """A machine trained on all segments, and what machines that did not see their fold decide of them."""

    solution: MEDSolution
    honest: Floats


@dataclass(slots=True)
class SensorSamples:
    """Training samples of one sensor, and the kernel matrix of the width that was asked for last."""

    X: Floats
    y: Floats
    amplitude: float
    squared: NDArray[np.float32]
    median: float
    width: float = 0.0
    gram: DenseGram | None = None

    @classmethod
    def of(cls, X: Floats, y: Floats, delivered: Floats, amplitude: float) -> SensorSamples | None:
        """None if too little is believed of either class, or if all that is believed is equal."""
        believed = delivered > 0.5
        if min(np.sum(believed & (y > 0)), np.sum(believed & (y < 0))) < _FEWEST_SEGMENTS:
            return None
        squared = EuclideanRows(X).block(0, len(X)).astype(np.float32)
        median = _median_distance(squared[np.ix_(believed, believed)])
        return cls(X, y, amplitude, squared, median) if median > 0 else None

    def solve(self, weights: Floats, width: float, C: float, start: Floats | None = None) -> MEDSolution:
        """Multipliers per unit of weight, and decisions, of the machine of a kernel width and a cost."""
        if self.gram is None or self.width != width:
            matrix = np.empty_like(self.squared) if self.gram is None else self.gram.matrix
            np.multiply(self.squared, -np.float32(width / self.median), out=matrix)
            self.width, self.gram = width, DenseGram(np.exp(matrix, out=matrix))
        box, amplitude = machine(C, self.amplitude)
        problem = MEDProblem(
            y=self.y,
            weights=weights,
            self_curvature=np.zeros(len(self.y)),
            amplitude=amplitude,
            box=box,
            offset_variance=_FLAT,
        )
        return self.gram.solve(problem, start=start, tolerance=1e-2)

    def cross_fitted(self, weights: Floats, folds: Integers, width: float, C: float) -> CrossFit:
        """Solve for all, and for all but each fold; the search of the latter starts at the solution for all."""
        solution = self.solve(weights, width, C)
        honest = np.empty(len(self.y))
        for fold in np.unique(folds):
            away = folds == fold
            honest[away] = self.solve(np.where(away, 0.0, weights), width, C, solution.multipliers).decision[away]
        return CrossFit(solution, honest)

    def discriminant(self, weights: Floats, nominal: Floats, fit: CrossFit, width: float, C: float) -> Discriminant:
        """Trained with `weights`; calibrated on nominal segments by decisions of classifiers that had not seen them."""
        slopes = fit_slopes(fit.honest, self.y, nominal)
        coefficients = machine(C, self.amplitude)[1] * weights * fit.solution.multipliers * self.y
        used = np.flatnonzero(coefficients)
        kernel = Kernel("rbf", gamma=width / self.median)
        return Discriminant(kernel, self.X[used], used, coefficients[used], fit.solution.offset, slopes)


@dataclass(frozen=True, slots=True)
class Tuning:
    """A machine and its loss on left-out recordings."""

    width: float
    C: float
    loss: float
    fits: tuple[CrossFit | None, ...]
    """Of every sensor, None where too little is believed of it."""


def _tuned(
    sensors: Sequence[SensorSamples | None], weightings: Sequence[Floats], nominal: Floats, folds: Integers
) -> list[Tuning]:
    """For each weighting of the segments in training, the best machine; in the loss they count by `nominal`."""
    fits = [_on_grid(sensor, [w[:, s] for w in weightings], folds) for s, sensor in enumerate(sensors)]
    return [
        _best(sensors, [[row[n] for row in own] for own in fits], weights, nominal, folds)
        for n, weights in enumerate(weightings)
    ]


def _on_grid(sensor: SensorSamples | None, weightings: Sequence[Floats], folds: Integers) -> list[list[CrossFit]]:
    """For each machine and weighting. A kernel matrix serves all machines of its width before the next is made."""
    if sensor is None:
        return []
    return [[sensor.cross_fitted(weights, folds, *setting) for weights in weightings] for setting in _GRID]


def _best(
    sensors: Sequence[SensorSamples | None],
    fits: Sequence[Sequence[CrossFit]],
    weights: Floats,
    nominal: Floats,
    folds: Integers,
) -> Tuning:
    """Kernel width and cost with the least log loss of calibrated margins on left-out recordings, over all sensors.

    Accuracy is a noisier criterion, the hinge loss falls with the size of the margins and so prefers the largest cost,
    and one pair for all sensors is better than one each. Where left-out recordings are classified hardly better than by
    chance, as with very many wrong labels, all machines have about the same loss, and the smoothest is used.
    """
    loss = np.zeros(len(_GRID))
    for s, sensor in enumerate(sensors):
        if sensor:
            loss += [_log_loss(fit.honest, sensor.y, nominal[:, s]) for fit in fits[s]]
    least, place = float(loss.min()), int(loss.argmin())
    if least <= _NEARLY_CHANCE * sum(sensor is not None for sensor in sensors):
        return Tuning(*_GRID[place], least, tuple(own[place] if own else None for own in fits))
    smoothest = _LABEL_MACHINES[0]
    found = [
        sensor.cross_fitted(weights[:, s], folds, *smoothest) if sensor else None for s, sensor in enumerate(sensors)
    ]
    return Tuning(*smoothest, least, tuple(found))


def _log_loss(honest: Floats, y: Floats, weights: Floats) -> float:
    """Mean log loss of margins after calibration."""
    odds = log_odds(honest, fit_slopes(honest, y, weights))
    return float(weights @ np.logaddexp(0.0, -y * odds)) / float(weights.sum())


def _median_distance(squared: NDArray[np.float32]) -> float:
    """Of all pairs, or of those that differ where most are equal, as a dead sensor's are; 0 if all are."""
    pairs = squared[~np.tri(len(squared), dtype=np.bool_)]
    return float(np.median(pairs)) or float(np.median(pairs[pairs > 0])) if pairs.any() else 0.0


def _balanced(weights: Floats, y: Floats) -> Floats:
    """Weights by which both classes count the same: a smooth machine would call everything the larger one."""
    positive = y > 0
    of_positive, of_negative = float(weights[positive].sum()), float(weights[~positive].sum())
    half = (of_positive + of_negative) / 2
    return weights * np.where(positive, half / max(of_positive, 1e-9), half / max(of_negative, 1e-9))


def _mean_margins(margins: Floats, delivered: Floats, groups: Integers) -> Floats:
    """Mean clipped margin of every recording over what was delivered of it; NaN where that is nothing.

    In units of the mean size of margins, which differs from machine to machine.
    """
    size = float(delivered @ np.abs(margins)) / max(float(delivered.sum()), 1e-9)
    clipped = np.clip(margins / max(size, 1e-9), -_MARGIN_LIMIT, _MARGIN_LIMIT)
    total = np.bincount(groups, delivered)
    mean = np.bincount(groups, delivered * clipped) / np.maximum(total, 1e-9)
    return np.where(total > 0.5, mean, np.nan)


def typical_sizes(X: Floats, present: Flags) -> Floats:
    """Typical size of each sensor's features, unmoved by a few huge ones."""
    typical = []
    for s in range(X.shape[1]):
        norms = np.sum(X[present[:, s], s] ** 2, axis=1)
        typical.append(np.sqrt(np.median(norms) / X.shape[2]) if len(norms) and np.median(norms) > 0 else 1.0)
    return np.array(typical)


def checked_array(X: Any, like: tuple[int, int] | None = None) -> tuple[Floats, Flags]:
    """The array and which sensors are present in it."""
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 3 or (like is not None and X.shape[1:] != like):
        expected = "(segments, sensors, features)" if like is None else f"(segments, {like[0]}, {like[1]})"
        raise ValueError(f"X of shape {X.shape} must be {expected}; stack the features of all sensors")
    if np.isinf(X).any():
        raise ValueError("X holds infinite values; give NaN for a sensor that is absent")
    return X, ~np.isnan(X).any(axis=2)


def checked_timing(X: Floats, present: Flags, timing: Any) -> tuple[Floats, Flags]:
    """The timing features, and which sensors are present in both."""
    if timing is None:
        return X, present
    T, there = checked_array(timing)
    if T.shape[:2] != X.shape[:2]:
        raise ValueError(
            f"timing of shape {T.shape} must have the segments and sensors of X, {X.shape[:2]}; give both views of the "
            "same segments"
        )
    return T, present & there


def _signs(y: Any, n_segments: int) -> tuple[Any, Floats]:
    y = np.asarray(y)
    classes, codes = np.unique(y, return_inverse=True)
    if y.shape != (n_segments,) or len(classes) != 2:
        raise ValueError(
            f"y of shape {y.shape} with {len(classes)} classes must have {n_segments} labels of two classes; "
            "label every segment, and leave other classes out"
        )
    return classes, np.where(codes > 0, 1.0, -1.0)


def checked_recordings(groups: Any, signs: Floats) -> tuple[Any, Integers]:
    """Names of the recordings and their numbers, after a check that there are enough of them."""
    names, numbers = np.unique(np.asarray(groups), return_inverse=True)
    if numbers.shape != signs.shape:
        raise ValueError(
            f"groups of shape {numbers.shape} must have {len(signs)} entries; name every segment's recording"
        )
    for sign in np.unique(signs):
        n = len(np.unique(numbers[signs == sign]))
        if n < 2:
            raise ValueError(f"{n} recording of one class must be at least 2; record more, nothing judges itself")
    return names, numbers
