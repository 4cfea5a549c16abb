"""How a model and a user's choices become stages."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.choices import Choices
from pipeline.core.events import Block, RecordingStarted
from pipeline.core.framing import Grid
from pipeline.core.protocols import Stage
from pipeline.core.segment_views import TWO_VIEWS, Summary
from pipeline.health.baseline import Baseline
from pipeline.learners.array_presence import (
    LEAST_EVIDENCE,
    PROVISIONAL,
    THRESHOLDS,
    ArrayPresence,
    ProvisionalPresence,
    fused,
    sustained,
)
from pipeline.model.archive import identity_in
from pipeline.model.model import Model
from pipeline.stages import (
    AnomalyAlarms,
    Background,
    Chain,
    Classification,
    Fingerprint,
    Fusion,
    LabelAudit,
    Measure,
    Mfcc,
    OperatorMask,
    Passages,
    PhysicalFaults,
    Presence,
    Projection,
    SampleRate,
    Screening,
    SensorStates,
    Viewing,
    Windowing,
)
from pipeline.stages.features import LOWEST_HZ

_CEPSTRAL = ("n_coefficients", "n_mels", "f_min_hz", "f_max_hz")


def loaded(directory: Path) -> Model:
    """The model in a directory, read once for all recordings; a worker may outlive it, and find another there."""
    return _loaded(directory, identity_in(directory))


@lru_cache(maxsize=2)
def _loaded(directory: Path, identity: str) -> Model:
    return Model.load(directory)


def hearing_settings(grid: Grid, *, lowest_hz: float = LOWEST_HZ, features: str = TWO_VIEWS) -> dict[str, Any]:
    """Those of the cepstra and views, written out: defaults may change with a later version, a model must not."""
    cepstrum = Mfcc(grid, f_min_hz=lowest_hz).cepstrum
    return {"features": features} | {name: getattr(cepstrum, name) for name in _CEPSTRAL}


def listening(grid: Grid, settings: dict[str, Any]) -> list[Stage]:
    """From blocks to views."""
    mfcc = Mfcc(grid, **{name: settings[name] for name in _CEPSTRAL})
    return [
        Windowing(grid),
        mfcc,
        Viewing(grid, n_coefficients=settings["n_coefficients"], features=settings["features"]),
        Background(grid),
    ]


def hearing(
    grid: Grid, settings: dict[str, Any], choices: Choices, n_sensors: int, usual: Baseline | None = None
) -> list[Stage]:
    """From blocks to views, and what physics says of the sensors; nothing that was learned from labels."""
    masking = OperatorMask([sensor - 1 for sensor in choices.masked], n_sensors)
    physics: list[Stage] = (
        [Measure(grid.rate_hz), PhysicalFaults(usual), SampleRate(grid.rate_hz)] if choices.health else []
    )
    return [masking, Fingerprint(), *physics, *listening(grid, settings)]


def screening(model: Model, choices: Choices) -> list[Stage]:
    """From views to p-values, and what they say of the sensors."""
    suspicion = AnomalyAlarms(
        model.grid,
        alpha=choices.alpha,
        alarms_per_day=choices.alarms_per_day,
        contamination=model.notes["contamination"],
    )
    rule = presence_of(model, choices)
    stages: list[Stage] = [
        Projection(model.summary, model.timing),
        *([Presence(rule, fused, is_learned=model.presence is not None)] if rule else []),
        Screening(model.screen, model.reference),
    ]
    return [*stages, suspicion] if choices.health else stages


def states(rate_hz: int, choices: Choices) -> list[Stage]:
    """The state of each sensor, from all that is known of it."""
    return [SensorStates(rate_hz)] if choices.health else []


def voting(model: Model, choices: Choices) -> list[Stage]:
    """From p-values to decisions."""
    rule = model.votes if choices.fusion == "votes" else model.combined_features
    return [
        Classification(model.classifiers),
        Fusion(model.classes, rule, alpha=choices.alpha, least_confidence=choices.least_confidence, somebody=fused),
    ]


def presence_of(model: Model, choices: Choices) -> ArrayPresence | ProvisionalPresence | None:
    """The rule that says whether somebody is there; a provisional one if the model was learned without background."""
    if not choices.presence or model.settings["features"] != TWO_VIEWS:
        return None
    return model.presence or _provisional(model.grid, model.settings)


def _provisional(grid: Grid, settings: dict[str, Any]) -> ProvisionalPresence:
    decibels = 1 / sqrt(settings["n_mels"])
    coefficients = np.zeros(0)
    for part in Summary(grid, settings["n_coefficients"]).parts:
        key = part.statistic if part.band_hz is None else part.band_hz[0]
        weight = PROVISIONAL[key] * (decibels if part.band_hz is None else 1.0)
        coefficients = np.append(coefficients, weight if part.coefficient == 0 else 0.0)
    return ProvisionalPresence(coefficients)


def passing(model: Model, choices: Choices) -> list[Stage]:
    """From decisions to passages; none with published features."""
    presence = presence_of(model, choices)
    if presence is None:
        return []
    return [
        Passages(
            model.grid,
            threshold=presence.threshold(choices.false_passages_per_day),
            least=LEAST_EVIDENCE,
            sustained=sustained,
            n_mels=model.settings["n_mels"],
            least_confidence=choices.least_confidence,
            positions_m=choices.positions_m,
            audited=THRESHOLDS.tolist(),
        )
    ]


def deciding(model: Model, choices: Choices) -> list[Stage]:
    """From views to decisions."""
    return [*screening(model, choices), *states(model.grid.rate_hz, choices), *voting(model, choices)]


def whole_chain(model: Model, choices: Choices) -> Chain:
    """From blocks to decisions."""
    return Chain(
        *hearing(model.grid, model.settings, choices, model.n_sensors, model.usual),
        *deciding(model, choices),
        *passing(model, choices),
        LabelAudit(model.classes),
    )


def warmed_chain(model: Model, choices: Choices) -> Chain:
    """The whole chain after one decision, and as new again: the next one waits for no table, transform or import."""
    chain = whole_chain(model, choices)
    shape = model.n_sensors, model.grid.segment + model.grid.rate_hz  # some second in it is whole
    noise = np.random.default_rng(0).normal(0, 0.01, shape).astype(np.float32)
    chain.push(RecordingStarted("", model.grid.rate_hz, tuple(map(str, range(model.n_sensors)))))
    chain.push(Block(0, noise, np.ones(model.n_sensors, np.bool_)))
    chain.flush()
    return chain
