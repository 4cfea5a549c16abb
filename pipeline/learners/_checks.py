"""Checks at the door of every learner: what is wrong, its value, the rule, and the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_array, column_or_1d, validate_data

from pipeline.learners._arrays import Flags, Floats, Integers

_LARGEST_VALUE = 1e100


def number(
    value: object,
    name: str,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    cure: str,
) -> None:
    """Refuse anything but a finite real number inside the given bounds."""
    rule = " and ".join(
        f"{words} {bound:g}"
        for words, bound in (("above", above), ("at least", least), ("below", below), ("at most", most))
        if bound is not None
    )
    inside = isinstance(value, Real) and not isinstance(value, bool | np.bool_) and np.isfinite(float(value))
    if inside:
        x = float(value)  # type: ignore[arg-type]
        inside = (
            (above is None or x > above)
            and (least is None or x >= least)
            and (below is None or x < below)
            and (most is None or x <= most)
        )
    if not inside:
        raise ValueError(f"{name}={value!r} must be a number {rule}; {cure}")


def whole_number(value: object, name: str, *, least: int, most: int | None = None, cure: str) -> None:
    """Refuse anything but an integer inside the given bounds."""
    good = isinstance(value, Integral) and not isinstance(value, bool | np.bool_)
    if not good or int(value) < least or (most is not None and int(value) > most):  # type: ignore[call-overload]
        rule = f"at least {least}" + ("" if most is None else f" and at most {most}")
        raise ValueError(f"{name}={value!r} must be a whole number {rule}; {cure}")


def one_of(value: object, name: str, choices: Sequence[str]) -> None:
    """Refuse an option that does not exist."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not an option; choose one of {known}")


def coverage(value: object) -> None:
    """Refuse anything but "auto" or a share."""
    if isinstance(value, str):
        one_of(value, "coverage", ("auto",))
    else:
        number(value, "coverage", above=0, most=1, cure="give the share of good samples, or 'auto'")


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Checked samples of positive weight; what is learned of each is scattered back to the place it came from."""

    X: Floats
    y: Floats
    """-1 or +1."""
    weights: Floats
    groups: Integers
    class_names: Any
    used: Flags
    """Of all samples that were given, those of positive weight."""

    @property
    def classes(self) -> Integers:
        return (self.y > 0).astype(np.int64)

    def scatter(self, values: Any, absent: Any = np.nan) -> Any:
        """`values` of the samples that were used, in the order of those that were given."""
        out = np.full(
            len(self.used), absent, dtype=np.result_type(values, absent) if absent is np.nan else values.dtype
        )
        out[self.used] = values
        return out


def training_set(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, groups: Any, *, precomputed: bool = False
) -> TrainingSet:
    """Check what a binary classifier is given."""
    if y is None:
        raise ValueError(f"This {type(estimator).__name__} estimator requires y to be passed, but the target y is None")
    X = samples(estimator, X)
    if precomputed:
        _check_gram(X)
    signs, class_names = _binary_labels(y, len(X))
    weights = sample_weights(sample_weight, X)
    used = weights > 0
    for sign in (-1.0, 1.0):
        if not used[signs == sign].any():
            raise ValueError(
                "sample_weight is zero for every sample of one class, which leaves one class only; "
                "give some sample of each class a positive weight"
            )
    chosen = X[np.ix_(used, used)] if precomputed else X[used]
    if not precomputed and np.ptp(chosen, axis=0).max() == 0.0:
        raise ValueError(
            f"X holds {len(chosen)} samples that are all equal, so nothing tells the classes apart; "
            "check the features for a dead sensor or a constant column"
        )
    return TrainingSet(chosen, signs[used], weights[used], group_numbers(groups, len(X))[used], class_names, used)


def samples(estimator: BaseEstimator, X: Any) -> Floats:
    """Checked training samples, finite and small enough to be squared."""
    X = validate_data(estimator, X, dtype=np.float64, ensure_min_samples=2)
    largest = max(float(X.max()), -float(X.min()))
    if largest > _LARGEST_VALUE:
        raise ValueError(
            f"X holds the value {largest:.3g}, above {_LARGEST_VALUE:g} distances overflow; "
            "check the features for a broken sensor, or scale them"
        )
    return X


def _binary_labels(y: Any, n_samples: int) -> tuple[Floats, Any]:
    """Labels as -1 and +1, and the two class names in sorted order."""
    y = column_or_1d(y, warn=True)
    if len(y) != n_samples:
        raise ValueError(f"y has {len(y)} labels for {n_samples} samples; give one label per sample")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        check_array(y, ensure_2d=False, dtype=None, input_name="y")
    classes, index = np.unique(y, return_inverse=True)
    # Two whole or named labels are binary; anything else is for scikit-learn to name.
    plainly_binary = len(classes) == 2 and (y.dtype.kind in "biuUS" or _all_whole(classes))
    kind = "binary" if plainly_binary else type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        check_classification_targets(y)
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {kind}. "
            "Wrap the estimator in sklearn.multiclass.OneVsRestClassifier for more classes"
        )
    if len(classes) < 2:
        raise ValueError(f"y holds one class only, {classes[0]}; give samples of two classes")
    return np.where(index == 1, 1.0, -1.0), classes


def _all_whole(labels: Any) -> bool:
    return labels.dtype.kind == "f" and bool(np.all(labels == np.round(labels)))


def _check_gram(K: Floats) -> None:
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f"kernel='precomputed' needs a square matrix of the training samples in fit, got {K.shape}; "
            "give kernel(X, X)"
        )
    if not np.allclose(K, K.T, rtol=1e-6, atol=1e-8 * np.abs(K).max()):
        raise ValueError("kernel='precomputed' must be symmetric in fit; give kernel(X, X)")
    if np.diag(K).min() <= 0:
        raise ValueError("kernel='precomputed' must have a positive diagonal; drop samples of norm zero")


def sample_weights(sample_weight: Any, X: Floats) -> Floats:
    """Checked weights, none negative, not all zero."""
    weights = np.array(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    if not weights.any():
        raise ValueError("sample_weight is zero for every sample; give some sample a positive weight")
    return weights


def group_numbers(groups: Any, n_samples: int) -> Integers:
    """Groups as integers; without groups every sample is its own."""
    if groups is None:
        return np.arange(n_samples)
    groups = column_or_1d(groups)
    if groups.dtype.kind == "O":
        groups = groups.astype(str)
    if len(groups) != n_samples:
        raise ValueError(f"groups has {len(groups)} entries for {n_samples} samples; give one per sample")
    numbers: Integers = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    if numbers.max() == 0:
        raise ValueError(
            f"groups holds the single group {groups[0]}, nothing can be held against another group; "
            "leave groups out or give at least two"
        )
    return numbers


def neighbour_count(n_neighbors: int | None, available: int, what: str, *, usual: int = 5) -> int:
    """How many neighbours to use: what was asked for, or what there are up to `usual`."""
    if n_neighbors is not None and n_neighbors > available:
        raise ValueError(
            f"n_neighbors={n_neighbors} is more than the {available} neighbours that {what}; "
            "lower n_neighbors, leave it None, or give more samples"
        )
    if available < 1:
        raise ValueError(
            f"n_neighbors={n_neighbors} finds no neighbour: some class has one sample only, or one group only; "
            "give at least two samples of each class, and at least two groups of each if groups are given"
        )
    return min(usual, available) if n_neighbors is None else int(n_neighbors)
