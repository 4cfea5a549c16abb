"""From examples to a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline import __version__
from pipeline.core.blas_threads import one_thread
from pipeline.core.errors import UsageError
from pipeline.core.events import Mask
from pipeline.core.framing import Grid
from pipeline.core.segment_views import PAPER, Summary
from pipeline.learners import ArrayGEMMEDClassifier
from pipeline.learners.array import ArraySensors, fit_machine, typical_sizes
from pipeline.learners.array_components import ArrayComponents
from pipeline.learners.array_fusion import CombinedFeatures, Expectation, WeightedVotes
from pipeline.learners.array_pairs import ArrayPairwiseClassifier, fit_pairwise
from pipeline.learners.array_presence import ArrayPresence
from pipeline.learners.array_reference import ArrayReference
from pipeline.learners.array_screen import ArrayScreen
from pipeline.learners.kernel_classifier import Machine
from pipeline.model.model import Model, Refusal, TrainingMemory
from pipeline.training.examples import NOBODY, Examples
from pipeline.training.labeled_spans import recording_of

_COMPONENTS = 50


@one_thread
def learn(
    examples: Examples, grid: Grid, settings: dict[str, Any], *, seed: int, n_components: int = _COMPONENTS
) -> Model:
    """Components, posteriors and classifiers of all sensors together, reference sets, and the rules of fusion."""
    examples = examples.walkers()
    examples.check()
    summary, timing = _components(examples, grid, settings, n_components)
    X, T = summary.transform(examples.summary), timing.transform(examples.timing)
    learner = (ArrayGEMMEDClassifier if len(examples.classes) == 2 else ArrayPairwiseClassifier)(random_state=seed)
    learner.fit(X, examples.label, groups=examples.unit, timing=T)
    if all(machine is None for machine in learner.discriminants_):
        raise UsageError(
            "training believes too little of every sensor to learn from any, at least 20 segments of each label are "
            "needed: they are few, silent, repeat themselves or contradict each other; check the recordings, label more"
        )
    X, T = X / learner.scales_[:, None], T / learner.timing_scales_[:, None]
    reference = ArrayReference.learn(X, learner.delivered_, examples.unit)
    return Model(
        grid=grid,
        settings=settings,
        classes=examples.classes,
        summary=summary.divided(learner.scales_),
        timing=timing.divided(learner.timing_scales_),
        screen=ArrayScreen.learn(T, learner.delivered_, examples.unit, learner.folds_, reference.distances),
        reference=reference,
        typical=_typical(examples, learner.posterior_),
        machines=tuple(learner.discriminants_),
        votes=_votes(examples, learner),
        combined=_combined(X, examples, learner),
        memory=_memory(examples, learner),
        notes=_notes(examples, learner, (summary, timing), seed),
    )


@one_thread
def learn_presence(examples: Examples, grid: Grid, settings: dict[str, Any]) -> ArrayPresence | None:
    """What tells somebody from nobody; None if there are too few segments of either, or only published features."""
    known = (examples.label >= 0) | (examples.label == NOBODY)
    if examples.background is None or examples.background_seconds is None or settings["features"] == PAPER:
        return None
    absent = ~examples.present[known, :, None]
    return ArrayPresence.learn(
        np.where(absent, np.nan, examples.summary[known]),
        np.where(absent, np.nan, examples.background[known]),
        examples.background_seconds[known],
        examples.label[known] >= 0,
        start_seconds=examples.start[known] / grid.rate_hz,
        groups=_stream(examples)[known],
        n_means=settings["n_coefficients"],
    )


def _stream(examples: Examples) -> NDArray[np.int64]:
    """(segments,): the recording that a segment was heard in, parts of one together."""
    names = [note.cut_from or recording_of(note.name) for note in examples.recordings]
    number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([number_of[name] for name in names], np.int64)[examples.recording]


@one_thread
def learn_unlabelled(
    examples: Examples, grid: Grid, settings: dict[str, Any], *, seed: int, n_components: int = _COMPONENTS
) -> Model:
    """A model without classifiers: it cannot tell classes apart, but how far each sensor can be believed.

    The labels of the examples are not looked at; their recordings are stretches that may judge each other.
    """
    summary, timing = _components(examples, grid, settings, n_components)
    X, T = summary.transform(examples.summary), timing.transform(examples.timing)
    sensors = ArraySensors.learn(T, examples.recording, random_state=seed)
    scales = typical_sizes(X, examples.present & np.isfinite(X).all(axis=2))
    reference = ArrayReference.learn(X / scales[:, None], sensors.delivered, examples.recording)
    nobody_doubts = np.ones(len(examples))
    contradicts = [sensor.contradicts for sensor in sensors.evidence]
    refusal = _refusals(examples.present, contradicts, sensors.delivered, nobody_doubts)
    return Model(
        grid=grid,
        settings=settings,
        classes=examples.classes,
        summary=summary.divided(scales),
        timing=timing.divided(sensors.scales),
        screen=ArrayScreen.learn(
            T / sensors.scales[:, None], sensors.delivered, examples.recording, sensors.folds, reference.distances
        ),
        reference=reference,
        typical=_typical(examples, np.zeros_like(sensors.delivered)),
        machines=(None,) * len(scales),
        votes=WeightedVotes(1.0),
        combined=None,
        memory=TrainingMemory(
            examples.recording, examples.start, examples.label, sensors.delivered, nobody_doubts, refusal
        ),
        notes=_origin(examples, (summary, timing), seed)
        | {
            "contamination": [float(sensor.contamination) for sensor in sensors.evidence],
            "refused": _refused_shares(sensors.delivered, examples.present),
            "wrong_labels": 0.0,
            "doubted_recordings": [],
            "validation": {"folds": 0},
        },
    )


def _components(
    examples: Examples, grid: Grid, settings: dict[str, Any], n_components: int
) -> tuple[ArrayComponents, ArrayComponents]:
    """Of the summary and of the timing; published features are one view, which serves for both."""
    try:
        timing = ArrayComponents.learn(examples.timing, examples.present, n_components)
        if settings["features"] == PAPER:
            return timing, timing
        weights = Summary(grid, settings["n_coefficients"]).weights
        return ArrayComponents.learn(examples.summary, examples.present, n_components, weights=weights), timing
    except ValueError as error:
        raise UsageError(f"{error}; label more sound") from error


def _typical(examples: Examples, posterior: NDArray[np.float64]) -> NDArray[np.float32]:
    """(classes, sensors, values): medians of the summaries that were learned from."""
    _, n_sensors, n_values = examples.summary.shape
    n_classes = len(examples.classes)
    typical = np.full((n_classes, n_sensors, n_values), np.nan, np.float32)
    for code, sensor in np.ndindex(n_classes, n_sensors):
        learned = (examples.label == code) & (posterior[:, sensor] > 0.5)
        if learned.any():
            typical[code, sensor] = np.median(examples.summary[learned, sensor], axis=0)
    return typical


def _votes(examples: Examples, learner: ArrayGEMMEDClassifier) -> WeightedVotes:
    if len(examples.classes) == 2:
        return WeightedVotes.learn(learner.out_of_fold_log_odds_, _signs(examples), learner.posterior_)
    return WeightedVotes.learn_classes(learner.out_of_fold_log_odds_, examples.label, learner.posterior_)


def _signs(examples: Examples) -> NDArray[np.float64]:
    return np.where(examples.label > 0, 1.0, -1.0)


def _combined(X: NDArray[np.float64], examples: Examples, learner: ArrayGEMMEDClassifier) -> CombinedFeatures | None:
    used = learner.delivered_ > 0.5
    X = np.nan_to_num(X)
    expectation = Expectation.learn(X, np.where(used, learner.delivered_, 0.0), learner.folds_)
    completed = X.reshape(len(X), -1).copy()
    for n in np.flatnonzero(~used.all(axis=1)):
        completed[n] = expectation.complete(X[n], used[n]).ravel()
    weights = np.where(used.any(axis=1), learner.label_right_, 0.0)
    machine: Machine | None
    if len(examples.classes) == 2:
        machine = fit_machine(completed, _signs(examples), weights, learner.folds_)
    else:
        machine = fit_pairwise(completed, examples.label, weights, learner.folds_)
    return None if machine is None else CombinedFeatures(machine, expectation)


def _memory(examples: Examples, learner: ArrayGEMMEDClassifier) -> TrainingMemory:
    return TrainingMemory(
        recording=examples.recording,
        start=examples.start,
        label=examples.label,
        delivered=learner.delivered_,
        label_right=learner.label_right_,
        refusal=_refusals(
            examples.present,
            [sensor.contradicts for sensor in learner.evidence_],
            learner.delivered_,
            learner.label_right_,
        ),
    )


def _refusals(
    present: Mask, contradicts: Sequence[Mask], delivered: NDArray[np.float64], label_right: NDArray[np.float64]
) -> NDArray[np.int8]:
    """Why a sensor's segment counts by half or less; the label comes first, for it concerns all sensors."""
    why = np.where(np.column_stack(contradicts), Refusal.OTHERS, Refusal.OWN)
    refusal = np.where(delivered <= 0.5, why, Refusal.NONE).astype(np.int8)
    refusal[label_right <= 0.5] = Refusal.LABEL
    refusal[~present] = Refusal.ABSENT
    return refusal


def _notes(
    examples: Examples, learner: ArrayGEMMEDClassifier, components: tuple[ArrayComponents, ArrayComponents], seed: int
) -> dict[str, Any]:
    doubted = np.unique(examples.recording[learner.label_right_ <= 0.5])
    parameters = {name: value for name, value in learner.get_params().items() if name != "random_state"}
    return _origin(examples, components, seed) | {
        "learner": {**parameters, "kernel_width": learner.width_, "cost": learner.C_},
        "contamination": [float(share) for share in learner.contamination_],
        "refused": _refused_shares(learner.posterior_, examples.present),
        "wrong_labels": float(learner.wrong_labels_),
        "doubted_recordings": [examples.recordings[r].name for r in doubted],
    }


def _origin(examples: Examples, components: tuple[ArrayComponents, ArrayComponents], seed: int) -> dict[str, Any]:
    """Of what and with what a model was made."""
    summary, timing = components
    return {
        "versions": {"gemmed": __version__, "python": python_version()} | _versions(),
        "seed": seed,
        "components": {
            "kept": int(summary.axes.shape[1]),
            "retained_power": summary.power_kept(examples.summary, examples.present),
            "timing_kept": int(timing.axes.shape[1]),
            "timing_retained_power": timing.power_kept(examples.timing, examples.present),
        },
        "segments": len(examples),
        "recordings": [note.as_dict() for note in examples.recordings],
    }


@cache
def _versions() -> dict[str, str]:
    """Of the libraries a model was made with; finding them takes 20 ms, and they stay."""
    return {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")}


def _refused_shares(posterior: NDArray[np.float64], present: NDArray[np.bool_]) -> list[float | None]:
    """Of each sensor's segments, those that count by half or less; None if there are none."""
    pairs = zip(posterior.T, present.T, strict=True)
    return [float(np.mean(own[there] <= 0.5)) if there.any() else None for own, there in pairs]
