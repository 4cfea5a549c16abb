"""How far can each sensor be believed in this segment?"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pipeline.events import Features, Mask, Numbers, Screened


class PValues(Protocol):
    """One p-value for each sensor, NaN where there is nothing to go by."""

    @property
    def own(self) -> Numbers: ...
    @property
    def others(self) -> Numbers: ...
    @property
    def both(self) -> Numbers: ...


class Screen(Protocol):
    """Reference segments of every sensor."""

    @property
    def ready(self) -> Mask: ...
    def p_values(self, x: Any, present: Mask, partners: Mask, /) -> PValues: ...


class Screening:
    """Conformal p-values of each present sensor; a sensor without a reference has none, never a default.

    Sensors are compared with those that are trusted. A masked sensor is still measured, so that it can come back.
    """

    accepts = Features
    remembers = ()

    def __init__(self, screen: Screen | None) -> None:
        self._screen = screen

    def push(self, features: Features, /) -> list[object]:
        if self._screen is None:
            nothing = np.full(len(features.present), np.nan)
            return [Screened(features, nothing, nothing, nothing, np.ones(len(nothing), np.bool_))]
        p = self._screen.p_values(features.values, features.present, features.trusted)
        return [Screened(features, p.own, p.others, p.both, ~self._screen.ready)]

    def flush(self) -> list[object]:
        return []
