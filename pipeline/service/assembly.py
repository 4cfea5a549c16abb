"""How a model and a user's choices become stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.errors import UsageError
from pipeline.grid import Grid
from pipeline.protocols import Stage
from pipeline.stages import (
    Chain,
    Classification,
    Fingerprint,
    Fusion,
    Masking,
    Mfcc,
    Projection,
    Screening,
    Windowing,
)
from pipeline.training.model import Model

FUSIONS = ("votes", "features")


@dataclass(frozen=True, slots=True)
class Choices:
    """What may be chosen without training anew; sensors are counted from 1."""

    alpha: float = 0.01
    least_confidence: float = 0.6
    fusion: str = "votes"
    masked: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.fusion not in FUSIONS:
            raise UsageError(f"fusion={self.fusion!r} must be one of {', '.join(FUSIONS)}")

    def as_dict(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "least_confidence": self.least_confidence,
            "fusion": self.fusion,
            "masked": list(self.masked),
        }


def listening(grid: Grid, settings: dict[str, Any]) -> list[Stage]:
    """From blocks to cepstra."""
    return [Fingerprint(), Windowing(grid), Mfcc(grid, **settings)]


def deciding(model: Model, choices: Choices) -> list[Stage]:
    """From cepstra to decisions."""
    rule = model.votes if choices.fusion == "votes" else model.combined_features
    return [
        Projection(model.means, model.axes),
        Screening(model.screen),
        Classification(model.machines),
        Fusion(model.classes, rule, alpha=choices.alpha, least_confidence=choices.least_confidence),
    ]


def whole_chain(model: Model, choices: Choices) -> Chain:
    """From blocks to decisions."""
    masking = Masking([sensor - 1 for sensor in choices.masked], model.n_sensors)
    return Chain(masking, *listening(model.grid, model.settings), *deciding(model, choices))
