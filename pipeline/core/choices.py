"""What a user may choose without training anew, and the arithmetic that decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any

from pipeline.core.errors import UsageError
from pipeline.core.fourier import LIBRARY

ARITHMETIC = f"2 {LIBRARY}"
"""Another one gives other bits for the same sound and model."""
FUSIONS = ("votes", "features")


@dataclass(frozen=True, slots=True)
class Choices:
    """What may be chosen without training anew; sensors are counted from 1."""

    alpha: float = 0.01
    least_confidence: float = 0.6
    fusion: str = "votes"
    masked: tuple[int, ...] = ()
    health: bool = True
    alarms_per_day: float = 1.0
    presence: bool = True
    """Whether segments with nobody get no label, and passages are found."""
    false_passages_per_day: float = 24.0
    positions_m: tuple[tuple[float, float], ...] = ()
    """Of the sensors, if they are known."""

    def __post_init__(self) -> None:
        if self.fusion not in FUSIONS:
            raise UsageError(f"fusion={self.fusion!r} must be one of {', '.join(FUSIONS)}")
        if not 0 < self.alpha < 1:
            raise UsageError(f"alpha={self.alpha} must lie between 0 and 1; 0.01 is usual")
        if not 0 < self.alarms_per_day < inf:
            raise UsageError(f"alarms_per_day={self.alarms_per_day} must be above 0 and finite; 1 is usual")
        if not 0 < self.false_passages_per_day < inf:
            raise UsageError(
                f"false_passages_per_day={self.false_passages_per_day} must be above 0 and finite; 24 is usual"
            )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Choices:
        """Return the choices among values that `as_dict` stored."""
        values = {field.name: stored[field.name] for field in fields(cls) if field.name in stored}
        # Decided before there was any.
        values.setdefault("health", False)
        values.setdefault("presence", False)
        positions = tuple((float(x), float(y)) for x, y in values.get("positions_m", ()))
        return cls(**values | {"masked": tuple(stored["masked"]), "positions_m": positions})

    def as_dict(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "least_confidence": self.least_confidence,
            "fusion": self.fusion,
            "masked": list(self.masked),
            "health": self.health,
            "alarms_per_day": self.alarms_per_day,
            "presence": self.presence,
            "false_passages_per_day": self.false_passages_per_day,
            "positions_m": [list(place) for place in self.positions_m],
            "arithmetic": ARITHMETIC,
        }


def parsed_positions(text: str | None) -> tuple[tuple[float, float], ...]:
    """Positions of sensors in meters, from `x,y;x,y;...`."""
    if not text:
        return ()
    try:
        pairs = [tuple(map(float, part.split(","))) for part in text.split(";")]
        return tuple((x, y) for x, y in pairs)
    except ValueError as error:
        raise UsageError(
            f"positions {text!r} must be x,y of every sensor in meters; for example 0,0;5,1;10,0"
        ) from error
