"""From examples to a model."""

from __future__ import annotations

from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline import __version__
from pipeline.errors import UsageError
from pipeline.grid import Grid
from pipeline.learners import ArrayGEMMEDClassifier, RobustPCA
from pipeline.learners.array import fit_machine
from pipeline.learners.array_fusion import WeightedVotes, complete
from pipeline.learners.array_screen import FEWEST_SEGMENTS, ArrayScreen
from pipeline.training.examples import Examples, evenly
from pipeline.training.model import Memory, Model, Refusal

_COMPONENTS = 50
_MOST_ROWS = 5000
"""Of which principal components are found; more would cost minutes and change nothing."""


def learn(
    examples: Examples, grid: Grid, settings: dict[str, Any], *, seed: int, n_components: int = _COMPONENTS
) -> Model:
    """Components, posteriors and classifiers of all sensors together, reference sets, and the rules of fusion."""
    examples.check()
    means, axes, power = _components(examples, n_components)
    X = _projected(examples.cepstra, means, axes)
    learner = ArrayGEMMEDClassifier(random_state=seed)
    learner.fit(X, examples.label, groups=examples.recording)
    X = X / learner.scales_[:, None]
    screen = ArrayScreen.learn(X, learner.delivered_, examples.recording, learner.folds_)
    signs = np.where(examples.label > 0, 1.0, -1.0)
    return Model(
        grid=grid,
        settings=settings,
        classes=examples.classes,
        means=means.astype(np.float32),
        axes=(axes / learner.scales_[:, None, None]).astype(np.float32),
        screen=screen,
        machines=tuple(learner.discriminants_),
        votes=WeightedVotes.learn(learner.out_of_fold_log_odds_, signs, learner.posterior_),
        combined=_combined(X, signs, screen, learner),
        memory=_memory(examples, learner),
        notes=_notes(examples, learner, power, seed),
    )


def _components(
    examples: Examples, n_components: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[float | None]]:
    """Middle, axes and typical share of the power in them for each sensor; zeros for one that was hardly ever there.

    The axes are those of all sensors together, each about its own middle: a sensor that fails half of the time would
    own its axes, here the sound ones outvote it.
    """
    n_segments, n_sensors, n_values = examples.cepstra.shape
    there = examples.present & (examples.present.sum(axis=0) >= FEWEST_SEGMENTS)
    n_components = min(n_components, n_values, int(there.sum()) - 1)
    if n_components < 1:
        raise UsageError(f"{n_segments} segments are too few to learn from; label more sound")
    means, axes = np.zeros((n_sensors, n_values)), np.zeros((n_sensors, n_components, n_values))
    for s in np.flatnonzero(there.any(axis=0)):
        means[s] = np.median(examples.cepstra[there[:, s], s], axis=0)
    rows, columns = np.nonzero(there)
    chosen = evenly(len(rows), _MOST_ROWS)
    about = examples.cepstra[rows[chosen], columns[chosen]] - means[columns[chosen]]
    pca = RobustPCA(n_components=n_components).fit(about)
    axes[there.any(axis=0)] = pca.components_
    return means, axes, [_power_kept(examples.cepstra[there[:, s], s] - means[s], axes[s]) for s in range(n_sensors)]


def _power_kept(about: NDArray[np.float64], axes: NDArray[np.float64]) -> float | None:
    if not len(about):
        return None
    kept, whole = (np.einsum("ij,ij->i", x, x) for x in (about @ axes.T, about))
    return float(np.median(kept / np.maximum(whole, 1e-12)))


def _projected(
    cepstra: NDArray[np.float32], means: NDArray[np.float64], axes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(segments, sensors, components), NaN where a sensor is absent or has no components."""
    X = np.stack([(cepstra[:, s] - means[s]) @ axes[s].T for s in range(len(means))], axis=1)
    X[:, ~axes.any(axis=(1, 2))] = np.nan
    return X


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
        refusal=_refusals(examples, learner),
    )


def _refusals(examples: Examples, learner: ArrayGEMMEDClassifier) -> NDArray[np.int8]:
    """Why a sensor's segment counts by half or less; the label comes first, for it concerns all sensors."""
    refusal = np.full(examples.present.shape, Refusal.NONE, np.int8)
    for s, evidence in enumerate(learner.evidence_):
        contradicts = np.zeros(len(refusal), np.bool_)
        known = np.isfinite(evidence.ratios)
        if evidence.mixture is not None:
            contradicts[known] = evidence.mixture.log_likelihood_ratio(evidence.ratios[known]) < 0
        refused = learner.delivered_[:, s] <= 0.5
        refusal[refused, s] = np.where(contradicts, Refusal.OTHERS, Refusal.OWN)[refused]
    refusal[learner.label_right_ <= 0.5] = Refusal.LABEL
    refusal[~examples.present] = Refusal.ABSENT
    return refusal


def _notes(examples: Examples, learner: ArrayGEMMEDClassifier, power: list[float | None], seed: int) -> dict[str, Any]:
    doubted = np.unique(examples.recording[learner.label_right_ <= 0.5])
    return {
        "versions": {"gemmed": __version__, "python": python_version()}
        | {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "librosa", "numba")},
        "seed": seed,
        "components": {"kept": int(learner.n_features_in_), "retained_power": power},
        "learner": {name: value for name, value in learner.get_params().items() if name != "random_state"}
        | {"kernel_width": learner.width_, "cost": learner.C_},
        "segments": len(examples),
        "recordings": [note.as_dict() for note in examples.recordings],
        "contamination": [float(share) for share in learner.contamination_],
        "refused": [float(np.mean(learner.posterior_[examples.present[:, s], s] <= 0.5)) if examples.present[:, s].any()
                    else None for s in range(examples.present.shape[1])],
        "wrong_labels": float(learner.wrong_labels_),
        "doubted_recordings": [examples.recordings[r].name for r in doubted],
    }  # fmt: skip
