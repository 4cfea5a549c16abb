"""Is somebody there? What each sensor says of a segment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from pipeline.core.events import Features, Mask, Numbers


class PresenceRule(Protocol):
    """Log-odds that somebody is there, for each sensor; NaN where it is absent or nothing is known."""

    def log_odds(self, summary: Any, background: Any, seconds: float, /) -> Numbers: ...


class PresenceEvidence(Protocol):
    """Log-odds that somebody is there, of all usable sensors together; None if there is none."""

    def __call__(self, log_odds: Numbers, usable: Mask, /) -> float | None: ...


class Presence:
    """Adds to the features of a segment what each sensor says of presence, and whether nobody is there for sure.

    Sensors share no sound while nobody is there, so they cannot be compared with each other then. That is concluded
    only by a rule that was learned from background (`is_learned`).
    """

    accepts = Features
    remembers = ()

    def __init__(self, rule: PresenceRule, fused: PresenceEvidence, *, is_learned: bool) -> None:
        self._rule, self._fused, self._is_learned = rule, fused, is_learned

    def push(self, features: Features, /) -> list[object]:
        views = features.views
        if views is None:
            return [features]
        log_odds = self._rule.log_odds(views.summary, views.background, views.background_seconds)
        evidence = self._fused(log_odds, features.present & features.trusted)
        is_empty = self._is_learned and evidence is not None and evidence <= 0
        return [replace(features, presence=log_odds, is_empty=is_empty)]

    def flush(self) -> list[object]:
        return []
