"""What others make of the same measures: an outlier factor, half-space trees, and limits of the level.

They say that something is unusual, not what. Each learns one sensor from seconds in which it was well, and all alarm
when two seconds in a row are further out than any of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from sklearn.neighbors import LocalOutlierFactor

from pipeline.core.events import Mask, Numbers
from pipeline.health.measures import Measures

CONFIRM_SECONDS = 2
SILENT_DBFS, LEVEL_MARGIN_DB = -95.0, 6.0
_SHARES = ("missing", "offset", "at_rail", "clipped", "pauses", "spikes", "hum", "alone")
_LEAST_DB, _LEAST_SHARE = -200.0, 1e-5
_LEAST_SPREAD = 0.1


def features_of(seconds: Sequence[Measures]) -> Numbers:
    """(seconds, sensors, features): decibels, and logarithms of shares and counts; what is not there is very little."""
    decibels = [[one.level_db, *one.floor_db.T] for one in seconds]
    shares = [[np.abs(getattr(one, name)) for name in _SHARES] for one in seconds]
    levels = np.maximum(np.nan_to_num(np.array(decibels), nan=_LEAST_DB), _LEAST_DB)
    rest = np.log10(np.nan_to_num(np.array(shares)) + _LEAST_SHARE)
    values = np.array([[one.values] for one in seconds])
    return np.concatenate([levels, rest, np.nan_to_num(values)], axis=1).transpose(0, 2, 1)


class Peer(Protocol):
    """Learns rows of features, gives how unusual others are, larger being more so, and how unusual those it learned."""

    learned: Numbers

    def fit(self, rows: Numbers) -> None: ...

    def unusual(self, rows: Numbers) -> Numbers: ...


class OutlierFactor:
    """scikit-learn's LocalOutlierFactor at its defaults, on standardised features."""

    def fit(self, rows: Numbers) -> None:
        self._middle, self._spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), _LEAST_SPREAD)
        self._model: Any = LocalOutlierFactor(novelty=True).fit(self._scaled(rows))
        self.learned: Numbers = -self._model.negative_outlier_factor_

    def unusual(self, rows: Numbers) -> Numbers:
        return np.asarray(-self._model.score_samples(self._scaled(rows)))

    def _scaled(self, rows: Numbers) -> Numbers:
        return np.asarray((rows - self._middle) / self._spread)


class HalfSpaces:
    """river's HalfSpaceTrees with 25 trees of height 8, features scaled to the range of what was learned and a margin.

    What comes is learned only if `streaming`; in a recording shorter than its window that makes no difference.
    """

    def __init__(self, *, window_seconds: int = 120, streaming: bool = False) -> None:
        self._window_seconds, self._streaming = window_seconds, streaming

    def fit(self, rows: Numbers) -> None:
        from river.anomaly import HalfSpaceTrees

        low, high = rows.min(axis=0), rows.max(axis=0)
        margin = np.maximum(0.5 * (high - low), _LEAST_SPREAD)
        self._low, self._range = low - margin, high - low + 2 * margin
        window = min(self._window_seconds, len(rows) // 2)
        self._model: Any = HalfSpaceTrees(n_trees=25, height=8, window_size=window, seed=0)
        scores = [self._taken(row, learn=True) for row in self._dictionaries(rows)]
        self.learned: Numbers = np.array(scores[window:])  # before, it has no opinion

    def unusual(self, rows: Numbers) -> Numbers:
        return np.array([self._taken(row, learn=self._streaming) for row in self._dictionaries(rows)])

    def _taken(self, row: dict[int, float], *, learn: bool) -> float:
        score = float(self._model.score_one(row))
        if learn:
            self._model.learn_one(row)
        return score

    def _dictionaries(self, rows: Numbers) -> list[dict[int, float]]:
        inside = np.clip((rows - self._low) / self._range, 0, 1)
        return [dict(enumerate(row)) for row in inside.tolist()]


class LevelLimits:
    """Decibels beyond the range of what was learned; below -95 dB of full scale always. The level is feature 0."""

    def fit(self, rows: Numbers) -> None:
        self._low, self._high = rows[:, 0].min() - LEVEL_MARGIN_DB, rows[:, 0].max() + LEVEL_MARGIN_DB
        self.learned: Numbers = np.zeros(1)

    def unusual(self, rows: Numbers) -> Numbers:
        level = rows[:, 0]
        beyond = np.maximum(level - self._high, self._low - level)
        return np.where(level < SILENT_DBFS, np.inf, beyond)


PEERS: dict[str, Callable[[], Peer]] = {
    "LocalOutlierFactor": OutlierFactor,
    "HalfSpaceTrees": HalfSpaces,
    "limits of the level": LevelLimits,
}


@dataclass(slots=True)
class Watch:
    """One peer over an array: a model and a limit, the largest score of what was learned, for every sensor."""

    make: Callable[[], Peer]
    models: list[Peer] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def fit(self, features: Numbers, well: Mask) -> Watch:
        """(seconds, sensors, features) of which those of a sensor count in which it was well."""
        for sensor in range(features.shape[1]):
            model = self.make()
            model.fit(features[well[:, sensor], sensor])
            self.models.append(model)
            self.limits.append(float(model.learned.max()))
        return self

    def alarms(self, features: Numbers) -> Mask:
        """(seconds, sensors) in which an alarm is on."""
        beyond = [model.unusual(features[:, n]) > self.limits[n] for n, model in enumerate(self.models)]
        return confirmed(np.stack(beyond, axis=1))


def confirmed(beyond: Mask) -> Mask:
    """(times, sensors) at which it was so for the second time in a row at least."""
    on = beyond.copy()
    for back in range(1, CONFIRM_SECONDS):
        on[back:] &= beyond[:-back]
        on[:back] = False
    return on


def onsets(on: Mask) -> Mask:
    """Where alarms begin."""
    begins = on.copy()
    begins[1:] &= ~on[:-1]
    return begins
