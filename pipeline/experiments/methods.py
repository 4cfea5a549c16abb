"""The classifiers that compete: each learns from all sensors of a training set and gives margins of test segments."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.experiments.corruption import Flags, Integers
from pipeline.experiments.peers import boosted_margins, cleaned_margins, forest_margins, isolated
from pipeline.learners._discriminant import machine as box_and_amplitude
from pipeline.learners._kernels import DenseGram
from pipeline.learners._weighted_med import MEDProblem

Floats = NDArray[np.float64]

COSTS = (0.3, 1.0, 3.0, 10.0, 30.0)
WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)
"""Of kernels, in parts of one over the median squared distance."""
N_FOLDS = 4
MED_COSTS, MED_WIDTHS, AMPLITUDE = COSTS[1:], WIDTHS[:4], 0.3
"""Of plain MED: those that the joint learner chooses from."""
KEEP = 0.8
JOINT, ORACLE, REFERENCE = "GEM-MED, joint", "oracle", "SVC"
JOINT_PAPER = "joint, published features"


@dataclass(frozen=True, slots=True)
class Machine:
    """Settings of a kernel classifier."""

    C: float
    gamma: float


@dataclass(frozen=True, eq=False)
class SensorData:
    """What one sensor has to learn from and to judge; labels are -1 and 1, groups are recordings."""

    X: Floats
    timing: Floats
    """By which the joint learner compares sensors."""
    y: Floats
    groups: Integers
    X_test: Floats
    spoiled: Flags
    """For the oracle alone."""

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal content: sensors that a corruption did not touch are met again in other cells."""
        content = hashlib.blake2b(digest_size=16)
        for part in (self.X, self.timing, self.y, self.groups, self.X_test, self.spoiled):
            content.update(np.ascontiguousarray(part).tobytes())
        return content.digest()

    @cached_property
    def machine(self) -> Machine:
        """Tuned on all segments."""
        return tuned(self.X, self.y, self.groups)


class ResultCache:
    """The latest so many results, by what they were made from."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._results: OrderedDict[Any, Any] = OrderedDict()

    def recall(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._results:
            self._results[key] = make()
        self._results.move_to_end(key)
        while len(self._results) > self._most:
            self._results.popitem(last=False)
        return self._results[key]


Method = Callable[[Sequence[SensorData], ResultCache], Floats]
"""Margins of the test segments, (segments, sensors); positive for class 1."""


def folds_of(y: Floats, groups: Integers, n_folds: int = N_FOLDS) -> Integers:
    """Fold of every sample: whole recordings, dealt out in turn, class by class."""
    folds = np.zeros(len(y), np.int64)
    for sign in (-1.0, 1.0):
        own = y == sign
        folds[own] = np.unique(groups[own], return_inverse=True)[1] % n_folds
    return folds


def squared_distances(X: Floats) -> tuple[Floats, float]:
    """Of all pairs, and their median, or 1 where most samples are equal."""
    from sklearn.metrics import euclidean_distances

    squared: Floats = euclidean_distances(X, squared=True)
    return squared, float(np.median(squared[np.triu_indices(len(X), 1)])) or 1.0


def tuned(X: Floats, y: Floats, groups: Integers) -> Machine:
    """C and kernel width of the SVM that is right most often on recordings left out."""
    from sklearn.svm import SVC

    squared, median = squared_distances(X)
    folds = folds_of(y, groups)
    right = np.zeros((len(WIDTHS), len(COSTS)))
    for i, width in enumerate(WIDTHS):
        kernel = np.exp(-width / median * squared)
        for fold in np.unique(folds):
            away, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            among, across = kernel[np.ix_(rest, rest)], kernel[np.ix_(away, rest)]
            for j, C in enumerate(COSTS):
                guess = SVC(C=C, kernel="precomputed", tol=1e-2).fit(among, y[rest]).predict(across)
                right[i, j] += np.sum(guess == y[away])
    best_width, best_cost = np.unravel_index(right.argmax(), right.shape)
    return Machine(COSTS[best_cost], WIDTHS[best_width] / median)


def svc_margins(sensor: SensorData, kept: Flags | None = None) -> Floats:
    """Tuned and trained on the kept samples; on all if one class would be left with fewer than two recordings."""
    if kept is None or kept.all() or not _enough(sensor, kept):
        model = svc_of(sensor.machine).fit(sensor.X, sensor.y)
    else:
        X, y = sensor.X[kept], sensor.y[kept]
        model = svc_of(tuned(X, y, sensor.groups[kept])).fit(X, y)
    margins: Floats = model.decision_function(sensor.X_test)
    return margins


def svc_of(machine: Machine) -> Any:
    from sklearn.svm import SVC

    return SVC(C=machine.C, gamma=machine.gamma)


def _enough(sensor: SensorData, kept: Flags) -> bool:
    return all(len(np.unique(sensor.groups[kept & (sensor.y == sign)])) >= 2 for sign in (-1.0, 1.0))


def oracle_margins(sensor: SensorData) -> Floats:
    return svc_margins(sensor, ~sensor.spoiled)


def gem_svm_margins(sensor: SensorData) -> Floats:
    """An SVM on what GEM keeps of each class, the share estimated."""
    from pipeline.learners import GEMSVC

    screen = GEMSVC(coverage="auto").fit(sensor.X, sensor.y, groups=sensor.groups)
    return svc_margins(sensor, screen.kept_)


def isolation_margins(sensor: SensorData) -> Floats:
    return svc_margins(sensor, isolated(sensor.X, sensor.y))


def rod_margins(sensor: SensorData) -> Floats:
    from pipeline.learners import RODClassifier

    machine = sensor.machine
    model = RODClassifier(C=machine.C, gamma=machine.gamma, keep_fraction=KEEP).fit(sensor.X, sensor.y)
    return model.decision_function(sensor.X_test)


def cleanlab_margins(sensor: SensorData) -> Floats:
    """Label issues are judged by probabilities from classifiers that did not see the recording."""
    honest = np.empty(len(sensor.y))
    folds = folds_of(sensor.y, sensor.groups)
    for fold in np.unique(folds):
        away = folds == fold
        model = svc_of(sensor.machine).fit(sensor.X[~away], sensor.y[~away])
        honest[away] = model.decision_function(sensor.X[away])
    return cleaned_margins(sensor.X, sensor.y, honest, sensor.X_test, svc=svc_of(sensor.machine))


def random_forest_margins(sensor: SensorData) -> Floats:
    return forest_margins(sensor.X, sensor.y, sensor.X_test)


def boosting_margins(sensor: SensorData) -> Floats:
    return boosted_margins(sensor.X, sensor.y, sensor.X_test)


def each(name: str, fit: Callable[[SensorData], Floats]) -> Method:
    """Every sensor alone."""

    def method(sensors: Sequence[SensorData], memory: ResultCache) -> Floats:
        return np.column_stack([memory.recall((name, sensor.digest), partial(fit, sensor)) for sensor in sensors])

    return method


def med(sensors: Sequence[SensorData], memory: ResultCache) -> Floats:
    """Plain MED, tuned as the joint learner is: least clipped hinge loss, one width and C for all sensors."""
    from pipeline.learners import MEDClassifier

    losses = [memory.recall(("MED losses", s.digest), partial(med_losses, s.X, s.y, s.groups)) for s in sensors]
    i, j = np.unravel_index(np.sum([loss for loss, _ in losses], axis=0).argmin(), losses[0][0].shape)
    margins = []
    for sensor, (_, median) in zip(sensors, losses, strict=True):
        model = MEDClassifier(C=MED_COSTS[j], gamma=MED_WIDTHS[i] / median, amplitude=AMPLITUDE)
        margins.append(model.fit(sensor.X, sensor.y, groups=sensor.groups).decision_function(sensor.X_test))
    return np.column_stack(margins)


def med_losses(X: Floats, y: Floats, groups: Integers) -> tuple[Floats, float]:
    """Mean clipped hinge loss on recordings left out, by width and C, and the median squared distance.

    A weight of zero leaves a sample out, so one kernel matrix serves all folds.
    """
    squared, median = squared_distances(X)
    folds = folds_of(y, groups, 5)
    losses = np.zeros((len(MED_WIDTHS), len(MED_COSTS)))
    for i, width in enumerate(MED_WIDTHS):
        gram = DenseGram(np.exp(-width / median * squared).astype(np.float32))
        for j, C in enumerate(MED_COSTS):
            box, amplitude = box_and_amplitude(C, AMPLITUDE)
            for fold in np.unique(folds):
                away = folds == fold
                problem = MEDProblem(
                    y=y,
                    weights=np.where(away, 0.0, 1.0),
                    self_curvature=np.zeros(len(y)),
                    amplitude=amplitude,
                    box=box,
                    offset_variance=amplitude,
                )
                decision = gram.solve(problem, tolerance=1e-2).decision[away]
                losses[i, j] += float(np.clip(1 - y[away] * decision, 0.0, 2.0).sum()) / len(y)
    return losses, median


def joint(sensors: Sequence[SensorData], memory: ResultCache) -> Floats:
    """GEM-MED over all sensors."""
    from pipeline.learners import ArrayGEMMEDClassifier

    model = ArrayGEMMEDClassifier()
    model.fit(stacked(sensors, "X"), sensors[0].y, groups=sensors[0].groups, timing=stacked(sensors, "timing"))
    # A sensor that could not be trained has no opinion.
    return np.nan_to_num(model.sensor_margins(stacked(sensors, "X_test")), nan=0.0)


def stacked(sensors: Sequence[SensorData], name: str) -> Floats:
    """(segments, sensors, features) of the features of that name."""
    return np.stack([getattr(sensor, name) for sensor in sensors], axis=1)


METHODS: dict[str, Method] = {
    REFERENCE: each(REFERENCE, svc_margins),
    "MED": med,
    "GEM+SVM": each("GEM+SVM", gem_svm_margins),
    f"ROD keep {KEEP}": each("ROD", rod_margins),
    "IsolationForest+SVC": each("IsolationForest+SVC", isolation_margins),
    "cleanlab+SVC": each("cleanlab+SVC", cleanlab_margins),
    "random forest": each("random forest", random_forest_margins),
    "gradient boosting": each("gradient boosting", boosting_margins),
    JOINT: joint,
    ORACLE: each(ORACLE, oracle_margins),
}
COLUMNS = (*METHODS, JOINT_PAPER)
OTHERS = tuple(name for name in METHODS if name not in (JOINT, ORACLE))
