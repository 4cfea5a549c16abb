"""What does the array make of a segment, and who had a say?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, isnan, log
from typing import Any, Protocol

import numpy as np

from pipeline.core.errors import SettingsError
from pipeline.core.events import (
    UNUSABLE_ROLES,
    Authority,
    Decision,
    Mask,
    Numbers,
    Outcome,
    Role,
    StateChanged,
    TrustChanged,
    Verdicts,
    class_probabilities,
)
from pipeline.core.sensor_state import State
from pipeline.stages.presence import PresenceEvidence

_FULL_WEIGHT = 10.0
"""A p-value so many times alpha, or more, is no reason to believe a sensor less."""
_DEGRADED_WEIGHT = 0.5
NOBODY = "nobody"


class Rule(Protocol):
    """Log-odds of each class against the first, from those of the sensors, (sensors, classes).

    Sensors of weight 0 take no part, and at least one has more.
    """

    def __call__(self, log_odds: Numbers, features: Any, weights: Numbers, /) -> Sequence[float]: ...


class Fusion:
    """One decision for a segment from one to all sensors.

    The weight of a sensor is 0 if it is absent, off, in bad health, without reference or classifier, or if its p-value
    is at most `alpha`; from there it rises with the logarithm of the p-value to 1 at ten times alpha. A sensor whose
    health is degraded has half of that. Nothing else about a sensor counts, so leaving one out never shifts the others.
    Where nobody is there, the most probable class is less probable than `least_confidence`, or no sensor is left, there
    is no label, and the decision says why. `somebody` fuses what the sensors say of presence; all that deliver and are
    in no bad health take part, whatever their sound resembles.
    """

    accepts = (Verdicts, StateChanged, TrustChanged)
    remembers = ("_states", "_off")

    def __init__(
        self,
        classes: Sequence[str],
        rule: Rule,
        *,
        alpha: float = 0.01,
        least_confidence: float = 0.6,
        somebody: PresenceEvidence | None = None,
    ) -> None:
        if not 0 < alpha < 1:
            raise SettingsError(f"alpha={alpha} must lie between 0 and 1; 0.01 is usual")
        if not 0.5 <= least_confidence < 1:
            raise SettingsError(f"least_confidence={least_confidence} must be at least 0.5 and below 1; 0.6 is usual")
        self._classes, self._rule = tuple(classes), rule
        self._alpha, self._least_confidence, self._somebody = alpha, least_confidence, somebody
        self._states: dict[int, State] = {}
        self._off: set[int] = set()

    def push(self, item: Verdicts | StateChanged | TrustChanged, /) -> list[object]:
        if isinstance(item, Verdicts):
            return [self._decide(item)]
        if isinstance(item, StateChanged):
            self._states[item.sensor] = item.state
        elif item.by is Authority.OPERATOR:
            self._off = set(np.flatnonzero(~item.trusted).tolist())
        return [item]

    def flush(self) -> list[object]:
        self._states, self._off = {}, set()
        return []

    def _decide(self, verdicts: Verdicts) -> Decision:
        weights, roles = self._weigh(verdicts)
        outcome = self._outcome(verdicts, weights, roles)
        without = tuple(self._without(s, verdicts, weights, roles, outcome) for s in range(len(weights)))
        return Decision(verdicts, outcome, weights, roles, without, self._classes, self._presence(verdicts, roles))

    def _presence(self, verdicts: Verdicts, roles: Sequence[Role]) -> float | None:
        if self._somebody is None or verdicts.presence is None:
            return None
        usable = np.array([role not in UNUSABLE_ROLES for role in roles])
        if not usable.any():
            # What spoils all sensors at once may be a sound: an engine is taken for mains hum.
            usable = np.array([role is Role.MASKED for role in roles])
        return self._somebody(verdicts.presence, usable)

    def _weigh(self, verdicts: Verdicts) -> tuple[Numbers, tuple[Role, ...]]:
        screened = verdicts.screened
        weights, roles = np.zeros(len(verdicts.log_odds)), []
        for s, (present, trusted, calibrating, p_value, log_odds) in enumerate(
            zip(
                screened.features.present.tolist(),
                screened.features.trusted.tolist(),
                screened.calibrating.tolist(),
                screened.p_values.tolist(),
                verdicts.log_odds[:, -1].tolist(),
                strict=True,
            )
        ):
            state = self._states.get(s, State.UNKNOWN)
            if not present:
                roles.append(Role.ABSENT)
            elif not trusted and s in self._off:
                roles.append(Role.OFF)
            elif not trusted or state is State.BAD:
                roles.append(Role.MASKED)
            elif calibrating:
                roles.append(Role.CALIBRATING)
            elif isnan(log_odds):
                roles.append(Role.UNTRAINED)
            elif p_value <= self._alpha:
                roles.append(Role.ANOMALOUS)
            else:
                roles.append(Role.USED)
                weights[s] = min(1.0, log(p_value / self._alpha) / log(_FULL_WEIGHT))
                weights[s] *= _DEGRADED_WEIGHT if state is State.DEGRADED else 1.0
        return weights, tuple(roles)

    def _outcome(self, verdicts: Verdicts, weights: Numbers, roles: Sequence[Role]) -> Outcome:
        presence = self._presence(verdicts, roles)
        if not weights.any():
            if presence is not None and presence <= 0:
                return Outcome(None, None, None, NOBODY)
            return Outcome(None, None, None, f"no sensor can be believed: {', '.join(_told(roles))}")
        fused = self._rule(verdicts.log_odds, verdicts.screened.features.summary, weights)
        place, log_odds, probabilities = _two(fused[1]) if len(fused) == 2 else _many(fused)
        confidence = probabilities[place]
        if presence is not None and presence <= 0:
            return Outcome(None, confidence, log_odds, NOBODY, probabilities)
        if confidence < self._least_confidence:
            return Outcome(None, confidence, log_odds, "too close to call", probabilities)
        return Outcome(self._classes[place], confidence, log_odds, None, probabilities)

    def _without(
        self, sensor: int, verdicts: Verdicts, weights: Numbers, roles: Sequence[Role], outcome: Outcome
    ) -> Outcome:
        if roles[sensor] is not Role.USED:
            return outcome
        rest: Mask = np.arange(len(weights)) != sensor
        left = [Role.MASKED if s == sensor else role for s, role in enumerate(roles)]
        return self._outcome(verdicts, weights * rest, left)


def _two(log_odds: float) -> tuple[int, float | None, tuple[float, ...]]:
    """Return the more probable of two classes, the log-odds of the second, and both probabilities."""
    log_odds = float(log_odds)
    confidence = 1 / (1 + exp(-min(abs(log_odds), 700.0)))
    first = log_odds <= 0
    return int(not first), log_odds, (confidence, 1 - confidence) if first else (1 - confidence, confidence)


def _many(log_odds: Sequence[float]) -> tuple[int, float | None, tuple[float, ...]]:
    """Return the most probable of several classes, no log-odds, and all probabilities."""
    probabilities = class_probabilities(log_odds)
    return probabilities.index(max(probabilities)), None, probabilities


def _told(roles: Sequence[Role]) -> Iterator[str]:
    """Each reason with its sensors, counted from 1."""
    for reason in dict.fromkeys(roles):
        sensors = " and ".join(str(s) for s, role in enumerate(roles, start=1) if role is reason)
        yield f"{reason} {sensors}"
