"""GEM-MED over an array for three or more classes: one classifier for each pair of classes and each sensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import expit
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pipeline.core.blas_threads import one_thread
from pipeline.learners._arrays import Flags, Floats, Integers
from pipeline.learners._consistency import group_folds
from pipeline.learners.array import (
    LABEL_FOLDS,
    ArrayGEMMEDClassifier,
    FittedMachines,
    SensorSamples,
    checked_array,
    checked_recordings,
    checked_timing,
    fit_machine,
    fitted_machines,
    judged_by,
    recording_margins,
    typical_sizes,
)
from pipeline.learners.kernel_classifier import Discriminant, PairwiseDiscriminants, class_pairs, coupled


class ArrayPairwiseClassifier(ArrayGEMMEDClassifier):
    """Learn three or more classes from an array while sensors fail and labels are wrong, one pair of classes at a time.

    Whether a sensor delivered the scene of a segment is judged once, on the segments of all classes. Every pair of
    classes is then learned as `ArrayGEMMEDClassifier` learns two, and the calibrated log-odds of the pairs are coupled
    (`pipeline.learners.kernel_classifier.coupled`).

    A label must hold against every other class, so it is judged by the smallest of its margins: those of the labeled
    class against each other one, by classifiers that did not see the recording. Labels of all classes are judged
    together, and all pairs are fitted with these posteriors, so a recording of a third class under a wrong name spoils
    no pair.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    discriminants_ : list of PairwiseDiscriminants or None
        For each sensor; None if a pair of classes has too few usable segments.
    out_of_fold_log_odds_ : ndarray of shape (n_segments, n_sensors, n_classes)
        Of each class against the first, by classifiers that did not see the recording.
    width_, C_ : list of float
        For each pair of classes, common to all sensors.

    The other attributes and the parameters are those of `ArrayGEMMEDClassifier`.

    Notes
    -----
    Cost: about twice that of two classes with as many segments, whatever the number of classes.

    Examples
    --------
    >>> import numpy as np
    >>> from pipeline.learners import ArrayPairwiseClassifier
    >>> rng = np.random.default_rng(0)
    >>> recording = np.repeat(np.arange(18), 10)
    >>> y = recording % 3
    >>> scene = rng.normal(size=(180, 3)) + 2.0 * np.eye(3)[y]
    >>> X = scene[:, None] + 0.3 * rng.normal(size=(180, 2, 3))
    >>> model = ArrayPairwiseClassifier().fit(X, y, groups=recording)
    >>> bool(np.mean(model.predict(X) == y) > 0.8)
    True
    """

    @one_thread
    def fit(self, X: Any, y: Any, *, groups: Any, timing: Any = None) -> Self:
        """Learn from labeled segments of three or more classes; arguments as for `ArrayGEMMEDClassifier`."""
        self._check_parameters()
        X, present = checked_array(X)
        T, present = checked_timing(X, present, timing)
        self.classes_, codes = _codes(y, len(X))
        _, groups = checked_recordings(groups, codes)
        rng = check_random_state(self.random_state)
        folds = group_folds(groups, codes, self.n_folds, rng)
        self.n_features_in_ = X.shape[2]
        self.scales_, self.timing_scales_ = typical_sizes(X, present), typical_sizes(T, present)
        X, T = (
            np.where(present[:, :, None], values, 0.0) / scales[:, None]
            for values, scales in ((X, self.scales_), (T, self.timing_scales_))
        )
        self._judge_sensors(T, present, groups, folds, rng)
        label_folds = group_folds(groups, codes, LABEL_FOLDS, rng)
        pairs = [_Pair.of(X, codes, self.delivered_, i, j, self.amplitude) for i, j in class_pairs(len(self.classes_))]
        self._judge_labels(pairs, groups, codes, label_folds)
        self.posterior_ = self.label_right_[:, None] * self.delivered_
        found = [pair.fitted(self.label_right_, present, folds) for pair in pairs]
        self.width_: list[float] = [one.tuning.width for one in found]  # type: ignore[assignment]
        self.C_: list[float] = [one.tuning.C for one in found]  # type: ignore[assignment]
        self.folds_ = folds
        self.discriminants_: list[PairwiseDiscriminants | None] = [  # type: ignore[assignment]
            _paired([one.discriminants[s] for one in found], pairs, len(self.classes_)) for s in range(X.shape[1])
        ]
        self.out_of_fold_log_odds_ = self._out_of_fold(X, present, pairs, found)
        return self

    def _judge_labels(self, pairs: list[_Pair], groups: Integers, codes: Floats, folds: Integers) -> None:
        # A recording with several labels has one unit for each of them.
        _, units = np.unique(np.column_stack([groups, codes]), axis=0, return_inverse=True)
        units = units.ravel()
        n_units = int(units.max()) + 1

        def margins(right: Floats, width: float, C: float) -> tuple[Floats, Flags]:
            smallest = np.full(n_units, np.inf)
            for pair in pairs:
                pair.lower(smallest, right, units, folds, width, C)
            known = np.isfinite(smallest)
            return np.where(known, smallest, 0.0), known

        found = judged_by(margins, n_units, self.label_prior)
        self.wrong_labels_, self.label_right_ = found.wrong, expit(found.log_odds)[units]

    def _out_of_fold(self, X: Floats, present: Flags, pairs: list[_Pair], found: list[FittedMachines]) -> Floats:
        n_classes = len(self.classes_)
        log_odds = np.full((*present.shape, n_classes), np.nan)
        for s, machine in enumerate(self.discriminants_):
            if machine is None:
                continue
            columns = np.full((len(X), len(pairs)), np.nan)
            for n, (pair, one) in enumerate(zip(pairs, found, strict=True)):
                columns[pair.rows, n] = one.out_of_fold_log_odds[:, s]
                # Segments of other classes: the machine of this pair has never seen them.
                strange = present[:, s] & ~pair.mask
                columns[strange, n] = machine.pairs[n].log_odds(machine.pairs[n].decision(X[strange, s]))
            here = present[:, s]
            log_odds[here, s] = coupled(columns[here], n_classes)
        return log_odds

    @one_thread
    def sensor_margins(self, X: Any) -> Floats:
        """Return the margins of all pairs, (n_segments, n_sensors, n_pairs); NaN where absent or untrained."""
        check_is_fitted(self)
        X, present = checked_array(X, like=(len(self.scales_), self.n_features_in_))
        margins = np.full((*present.shape, len(class_pairs(len(self.classes_)))), np.nan)
        for s, machine in enumerate(self.discriminants_):
            here = present[:, s]
            if machine is not None and here.any():
                margins[here, s] = machine.decision(X[here, s] / self.scales_[s])
        return margins

    def sensor_log_odds(self, X: Any) -> Floats:
        """Return log-odds of each class against the first, (n_segments, n_sensors, n_classes); NaN as for margins."""
        margins = self.sensor_margins(X)
        found = np.full((*margins.shape[:2], len(self.classes_)), np.nan)
        for s, machine in enumerate(self.discriminants_):
            if machine is not None:
                found[:, s] = machine.class_log_odds(margins[:, s])
        return found

    def sensor_probabilities(self, X: Any) -> Floats:
        """Return the probability of each class by every sensor alone, (n_segments, n_sensors, n_classes)."""
        from scipy.special import softmax

        probabilities: Floats = softmax(self.sensor_log_odds(X), axis=2)
        return probabilities

    def decision_function(self, X: Any) -> Floats:
        """Return the sum of the log-odds of the sensors that are present, (n_segments, n_classes)."""
        total: Floats = np.nansum(self.sensor_log_odds(X), axis=1)
        return total

    def predict(self, X: Any) -> Any:
        """Return the class with the largest sum of log-odds."""
        return self.classes_[self.decision_function(X).argmax(axis=1)]


@dataclass(frozen=True, slots=True)
class _Pair:
    """The segments of two classes."""

    rows: Integers
    mask: Flags
    delivered: Floats
    sensors: list[SensorSamples | None]

    @classmethod
    def of(cls, X: Floats, codes: Floats, delivered: Floats, i: int, j: int, amplitude: float) -> _Pair:
        mask = (codes == i) | (codes == j)
        rows = np.flatnonzero(mask)
        signs, own = np.where(codes[rows] == j, 1.0, -1.0), delivered[rows]
        sensors = [SensorSamples.of(X[rows, s], signs, own[:, s], amplitude) for s in range(X.shape[1])]
        return cls(rows, mask, own, sensors)

    def lower(self, smallest: Floats, right: Floats, units: Integers, folds: Integers, width: float, C: float) -> None:
        """Lower the smallest margin of each unit to that of this pair, if it is less."""
        names, places = np.unique(units[self.rows], return_inverse=True)
        own, label_right = folds[self.rows], right[units[self.rows]]
        mean, known = recording_margins(self.sensors, self.delivered, label_right, places, own, width, C)
        smallest[names[known]] = np.minimum(smallest[names[known]], mean[known])

    def fitted(self, label_right: Floats, present: Flags, folds: Integers) -> FittedMachines:
        return fitted_machines(
            self.sensors, self.delivered, label_right[self.rows], present[self.rows], folds[self.rows]
        )


def _paired(found: list[Discriminant | None], pairs: list[_Pair], n_classes: int) -> PairwiseDiscriminants | None:
    """The machine of a sensor: it must know all pairs, or a class could never win."""
    machines = [
        replace(one, columns=pair.rows[one.columns]) for one, pair in zip(found, pairs, strict=True) if one is not None
    ]
    return PairwiseDiscriminants(tuple(machines), n_classes) if len(machines) == len(pairs) else None


def fit_pairwise(X: Floats, codes: Integers, weights: Floats, folds: Integers) -> PairwiseDiscriminants | None:
    """Fit one weighted kernel MED for each pair of classes; None if a pair has too few usable segments."""
    n_classes = int(codes.max()) + 1
    found = list(_fitted_pairs(X, codes, weights, folds, n_classes))
    machines = tuple(one for one in found if one is not None)
    return PairwiseDiscriminants(machines, n_classes) if len(machines) == len(found) else None


def _fitted_pairs(
    X: Floats, codes: Integers, weights: Floats, folds: Integers, n_classes: int
) -> Iterator[Discriminant | None]:
    for i, j in class_pairs(n_classes):
        rows = np.flatnonzero((codes == i) | (codes == j))
        one = fit_machine(X[rows], np.where(codes[rows] == j, 1.0, -1.0), weights[rows], folds[rows])
        yield None if one is None else replace(one, columns=rows[one.columns])


def _codes(y: Any, n_segments: int) -> tuple[Any, Floats]:
    y = np.asarray(y)
    classes, codes = np.unique(y, return_inverse=True)
    if y.shape != (n_segments,) or len(classes) < 3:
        raise ValueError(
            f"y of shape {y.shape} with {len(classes)} classes must have {n_segments} labels of three or more classes; "
            "use ArrayGEMMEDClassifier for two"
        )
    return classes, codes.astype(np.float64)
