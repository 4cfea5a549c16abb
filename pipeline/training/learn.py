"""From examples to a model."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline import __version__
from pipeline.errors import UsageError
from pipeline.events import Mask
from pipeline.grid import Grid
from pipeline.learners import ArrayGEMMEDClassifier
from pipeline.learners.array import ArraySensors, fit_machine
from pipeline.learners.array_components import ArrayComponents
from pipeline.learners.array_fusion import WeightedVotes, complete
from pipeline.learners.array_screen import ArrayScreen
from pipeline.threads import one_thread
from pipeline.training.examples import Examples
from pipeline.training.model import Memory, Model, Refusal

_COMPONENTS = 50


@one_thread
def learn(
    examples: Examples, grid: Grid, settings: dict[str, Any], *, seed: int, n_components: int = _COMPONENTS
) -> Model:
    """Components, posteriors and classifiers of all sensors together, reference sets, and the rules of fusion."""
    examples.check()
    components = _components(examples, n_components)
    X = components.transform(examples.cepstra)
    learner = ArrayGEMMEDClassifier(random_state=seed)
    learner.fit(X, examples.label, groups=examples.unit)
    if all(machine is None for machine in learner.discriminants_):
        raise UsageError(
            "training believes too little of every sensor to learn from any, at least 20 segments of each label are "
            "needed: they are few, silent, repeat themselves or contradict each other; check the recordings, label more"
        )
    X = X / learner.scales_[:, None]
    screen = ArrayScreen.learn(X, learner.delivered_, examples.unit, learner.folds_)
    signs = np.where(examples.label > 0, 1.0, -1.0)
    return Model(
        grid=grid,
        settings=settings,
        classes=examples.classes,
        means=components.means.astype(np.float32),
        axes=(components.axes / learner.scales_[:, None, None]).astype(np.float32),
        screen=screen,
        machines=tuple(learner.discriminants_),
        votes=WeightedVotes.learn(learner.out_of_fold_log_odds_, signs, learner.posterior_),
        combined=_combined(X, signs, screen, learner),
        memory=_memory(examples, learner),
        notes=_notes(examples, learner, components, seed),
    )


@one_thread
def learn_unlabelled(
    examples: Examples, grid: Grid, settings: dict[str, Any], *, seed: int, n_components: int = _COMPONENTS
) -> Model:
    """A model without classifiers: it cannot tell classes apart, but how far each sensor can be believed.

    The labels of the examples are not looked at; their recordings are stretches that may judge each other.
    """
    components = _components(examples, n_components)
    X = components.transform(examples.cepstra)
    sensors = ArraySensors.learn(X, examples.recording, random_state=seed)
    screen = ArrayScreen.learn(X / sensors.scales[:, None], sensors.delivered, examples.recording, sensors.folds)
    nobody_doubts = np.ones(len(examples))
    contradicts = [sensor.contradicts for sensor in sensors.evidence]
    refusal = _refusals(examples.present, contradicts, sensors.delivered, nobody_doubts)
    return Model(
        grid=grid,
        settings=settings,
        classes=examples.classes,
        means=components.means.astype(np.float32),
        axes=(components.axes / sensors.scales[:, None, None]).astype(np.float32),
        screen=screen,
        machines=(None,) * len(components.means),
        votes=WeightedVotes(1.0),
        combined=None,
        memory=Memory(examples.recording, examples.start, examples.label, sensors.delivered, nobody_doubts, refusal),
        notes=_origin(examples, components, seed)
        | {
            "contamination": [float(sensor.contamination) for sensor in sensors.evidence],
            "refused": _refused_shares(sensors.delivered, examples.present),
            "wrong_labels": 0.0,
            "doubted_recordings": [],
            "validation": {"folds": 0},
        },
    )


def _components(examples: Examples, n_components: int) -> ArrayComponents:
    try:
        return ArrayComponents.learn(examples.cepstra, examples.present, n_components)
    except ValueError as error:
        raise UsageError(f"{error}; label more sound") from error


def _combined(X: NDArray[np.float64], signs: Any, screen: ArrayScreen, learner: ArrayGEMMEDClassifier) -> Any:
    believed = learner.delivered_ > 0.5
    completed = np.stack([complete(screen, x, b).ravel() for x, b in zip(X, believed, strict=True)])
    weights = np.where(believed.any(axis=1), learner.label_right_, 0.0)
    return fit_machine(completed, signs, weights, learner.folds_)


def _memory(examples: Examples, learner: ArrayGEMMEDClassifier) -> Memory:
    return Memory(
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
    examples: Examples, learner: ArrayGEMMEDClassifier, components: ArrayComponents, seed: int
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


def _origin(examples: Examples, components: ArrayComponents, seed: int) -> dict[str, Any]:
    """Of what and with what a model was made."""
    power = components.power_kept(examples.cepstra, examples.present)
    return {
        "versions": {"gemmed": __version__, "python": python_version()}
        | {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")},
        "seed": seed,
        "components": {"kept": int(components.axes.shape[1]), "retained_power": power},
        "segments": len(examples),
        "recordings": [note.as_dict() for note in examples.recordings],
    }


def _refused_shares(posterior: NDArray[np.float64], present: NDArray[np.bool_]) -> list[float | None]:
    """Of each sensor's segments, those that count by half or less; None if there are none."""
    pairs = zip(posterior.T, present.T, strict=True)
    return [float(np.mean(own[there] <= 0.5)) if there.any() else None for own, there in pairs]
