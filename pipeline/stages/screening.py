"""P-values of each sensor in a segment: sensor fault, and sound unlike every class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.core.events import Features, Mask, Numbers, Screened
from pipeline.stages.batches import replaced
from pipeline.stages.departure import Departures

_REFUSED = 0.01
"""Sensors that are unlike themselves take no part in the question which group departed from its past."""


class PValues(Protocol):
    """One p-value for each sensor, NaN where there is nothing to go by."""

    @property
    def own(self) -> Numbers: ...
    @property
    def others(self) -> Numbers: ...
    @property
    def both(self) -> Numbers: ...
    @property
    def agree(self) -> Mask: ...


class Screen(Protocol):
    """Reference segments of every sensor."""

    @property
    def ready(self) -> Mask: ...
    @property
    def smallest_p_values(self) -> Numbers: ...
    def distances(self, X: Any, present: Mask, compared: Mask, /) -> Sequence[Any]: ...
    def ranked(self, distances: Any, present: Mask, partners: Mask, novelty: Numbers, /) -> PValues: ...


class NoveltyReference(Protocol):
    """Training segments of all classes."""

    def measured(self, X: Any, present: Mask, /) -> Numbers: ...
    def p_values(self, measured: Numbers, /) -> Numbers: ...


class Screening:
    """Conformal p-values of each present sensor; a sensor without a reference has none, never a default.

    The reference measures how far the summary is from that of all classes: small p-values at all sensors are an unknown
    sound. The screen compares the timing of sensors with each other and with their past, and looks for a sensor whose
    summary alone is far: a small p-value is a sensor fault. Where two groups of sensors contradict each other, the one
    that departed from its own past is at fault.

    Sensors are compared with those that are trusted. A masked sensor is still measured, so that it can come back. While
    nobody is there, sensors have no sound in common: they are compared with their own past only.
    """

    accepts = Features
    remembers = ("_departures",)

    def __init__(self, screen: Screen | None, reference: NoveltyReference | None) -> None:
        self._screen, self._reference = screen, reference
        self._departures = Departures()

    def push(self, features: Features, /) -> list[object]:
        return self.push_all([features])

    def push_all(self, items: Sequence[object], /) -> list[object]:
        """Measure all segments at once; what they are compared with is decided one after the other."""
        return replaced(items, Features, self._screened)

    def _screened(self, segments: Sequence[Features]) -> Iterator[Screened]:
        screen, reference = self._screen, self._reference
        if screen is None or reference is None:
            yield from map(_unscreened, segments)
            return
        present = np.stack([one.present for one in segments])
        novelty = reference.measured(np.stack([one.summary for one in segments]), present)
        compared = np.array([not one.is_empty for one in segments])
        distances = screen.distances(np.stack([one.timing for one in segments]), present, compared)
        for measured in zip(segments, distances, novelty, strict=True):
            yield self._ranked(screen, reference, *measured)

    def _ranked(
        self, screen: Screen, reference: NoveltyReference, features: Features, distances: Any, novelty: Numbers
    ) -> Screened:
        p = screen.ranked(distances, features.present, features.trusted, novelty)
        others, both, known = p.others, p.both, reference.p_values(novelty)
        if not features.is_empty:
            like_itself = features.present & features.trusted & (p.own > _REFUSED)
            departed = self._departures.take(features.summary, p.agree, like_itself)
            if departed.any():
                p = screen.ranked(distances, features.present, features.trusted & ~departed, novelty)
                least = screen.smallest_p_values
                others, both = (np.where(departed, np.fmin(given, least), given) for given in (p.others, p.both))
        return Screened(features, p.own, others, both, known, ~screen.ready)

    def flush(self) -> list[object]:
        self._departures = Departures()
        return []


def _unscreened(features: Features) -> Screened:
    nothing = np.full(len(features.present), np.nan)
    return Screened(features, nothing, nothing, nothing, nothing, np.ones(len(nothing), np.bool_))
