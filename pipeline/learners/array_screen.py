"""Conformal screen of an array: is a sensor's segment like what it delivered before, and does it fit the others?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, nan
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.core.exact_sums import on_grid
from pipeline.learners._arrays import Flags, Floats, Integers, Singles
from pipeline.learners._consistency import predict_out_of_fold, ridge_map
from pipeline.learners.array_nearest import Nearest
from pipeline.learners.array_reference import (
    FEWEST_SEGMENTS,
    Spread,
    by_recording,
    log_distances,
    p_value,
    queries_of,
)

_REFUSED, _RAREST = 0.01, 4
"""A sensor whose p-value is no larger is not asked about others; nor one of the few lowest that there can be."""
_AGREEING = 0.1
"""p-value of a pair from which on two sensors agree."""
_MOST_TABLES = 256
"""A large array has more sets of partners than memory."""
_STORED = ("features", "residuals", "maps", "offsets", "own", "ratios")


@dataclass(frozen=True, slots=True)
class SensorPValues:
    """Conformal p-values of one segment, one for each sensor; NaN where there is nothing to go by."""

    own: Floats
    """Of the distance to what the sensor delivered before."""
    others: Floats
    """Of the distance to what the other sensors predict, relative to that."""
    both: Floats
    """Of the smaller of the two."""
    agree: Flags
    """(sensors, sensors): pairs of which each, or one, is what the other lets expect."""


@dataclass(frozen=True, slots=True)
class Distances:
    """How far one segment lies from the reference, whichever sensors are masked."""

    own: Floats
    """(sensors,): log d(x_s)."""
    ratios: Floats
    """(sensors, partners): r_s|k, infinite where a pair has no reference or was not compared."""
    compared: bool


@dataclass(frozen=True)
class ArrayScreen:
    """Reference segments of an array, and p-values of new segments against them.

    A sensor's features x_s have the mean distance d(x_s) to their nearest neighbours in the reference. A stale buffer
    or a swapped cable lies as near as any other sound; so the same is asked of what is left of x_s once another
    sensor k has predicted it. ``r_s|k = log d(residual) - log d(x_s)`` is small if both heard one scene. Agreement with
    one sensor is enough: ``r_s = min over k``.

    Every reference segment was measured against other recordings, by predictions that did not see its own. A new one is
    measured likewise, and its rank among them is its p-value, ``(1 + #{at least as far out}) / (n + 1)``, raised where
    recordings differ from each other (`by_recording`). Ranks are taken over the partners that a sensor has at the
    moment: where one is masked or absent, the others are judged by what is normal without it, and their false-alarm
    rate does not change.

    A sensor that roars or hums may still follow the scene, and its timing need not be unusual. So where distances in
    the summary view are given, a third measure is how far the sensor's sound is from that of all classes, relative to
    the median of its partners: a new kind of sound is far at all of them, a fault at one.

    A failing sensor agrees with no other, and that must not count against its neighbors. So a refused sensor is not
    used to judge others: first those unlike their own past, then one by one the one without which the rest agree best.
    """

    features: Singles  # (sensors, features, segments)
    residuals: Singles  # (sensors, partners, features, segments)
    maps: Floats  # (sensors, partners, features of the partner, features of the sensor)
    offsets: Floats  # (sensors, partners, features)
    own: Floats  # (segments, sensors): log d(x_s), NaN where the sensor is not believed
    ratios: Floats  # (segments, sensors, partners): r_s|k, NaN where one of them is not believed
    novelty: Floats  # (segments, sensors): log distances of `ArrayReference`, NaN where there is none
    groups: Integers  # (segments,): recordings
    _tables: dict[tuple[int, bytes], _Ranks] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def learn(
        cls, X: Floats, weights: Floats, groups: Integers, folds: Integers, novelty: Floats | None = None
    ) -> Self:
        """From features (segments, sensors, features) and how far each sensor is believed there (segments, sensors).

        A sensor that is believed by one half or less is no reference there for anybody; what it says may be NaN.
        `novelty` are the distances of the same segments in the summary view, if there is one.
        """
        n_segments, n_sensors, n_features = X.shape
        believed = weights > 0.5
        X = np.where(np.isnan(X), 0.0, X)
        screen = cls(
            features=np.ascontiguousarray(X.transpose(1, 2, 0), np.float32),
            residuals=np.zeros((n_sensors, n_sensors, n_features, n_segments), np.float32),
            maps=np.zeros((n_sensors, n_sensors, n_features, n_features)),
            offsets=np.zeros((n_sensors, n_sensors, n_features)),
            own=np.full((n_segments, n_sensors), np.nan),
            ratios=np.full((n_segments, n_sensors, n_sensors), np.nan),
            novelty=np.full((n_segments, n_sensors), np.nan) if novelty is None else novelty,
            groups=np.asarray(groups),
        )
        for s in np.flatnonzero(believed.sum(axis=0) >= FEWEST_SEGMENTS):
            screen.own[believed[:, s], s] = log_distances(X[:, s], believed[:, s], groups)
            for k in range(n_sensors):
                if k != s and (believed[:, s] & believed[:, k]).sum() >= FEWEST_SEGMENTS:
                    screen._learn_pair(int(s), k, X, np.where(believed, weights, 0.0), groups, folds)
        return screen

    def _learn_pair(self, s: int, k: int, X: Floats, weights: Floats, groups: Integers, folds: Integers) -> None:
        pair = weights[:, s] * weights[:, k]
        both = pair > 0
        predicted, ridge = predict_out_of_fold(X[:, k], X[:, s], pair, folds)
        expected = ridge_map(X[:, k], X[:, s], pair, ridge)
        left = X[:, s] - predicted
        self.maps[s, k], self.offsets[s, k], self.residuals[s, k] = expected.matrix, expected.offset, left.T
        self.ratios[both, s, k] = log_distances(left, both, groups) - self.own[both, s]

    @cached_property
    def ready(self) -> Flags:
        """Sensors that have a reference."""
        return np.asarray(np.isfinite(self.own).any(axis=0))

    def p_values(self, x: Floats, present: Flags, partners: Flags, novelty: Floats | None = None) -> SensorPValues:
        """Of one segment's features (sensors, features); each is measured against the others among `partners`.

        `novelty` are its distances in the summary view, (sensors,).
        """
        (distances,) = self.distances(x[None], present[None], np.ones(1, np.bool_))
        return self.ranked(distances, present, partners, np.full(len(x), np.nan) if novelty is None else novelty)

    def distances(self, X: Floats | Singles, present: Flags, compared: Flags) -> list[Distances]:
        """Measure segments (segments, sensors, features); sensors are compared with each other where `compared`."""
        queries = queries_of(X, present)
        own, ratios = self._own.log_means(queries).T, np.full((len(X), *self._paired.shape), np.inf)
        first, second = self._pairs
        among = np.flatnonzero(compared)
        if len(among) and len(first):
            left = self._nearest_left.log_means(self._left(queries[:, among]))
            with np.errstate(invalid="ignore"):  # both may be infinite
                ratios[among[:, None], first, second] = left.T - own[among][:, first]
        return [Distances(*one) for one in zip(own, ratios, compared.tolist(), strict=True)]

    def ranked(self, distances: Distances, present: Flags, partners: Flags, novelty: Floats) -> SensorPValues:
        """Return the p-values of one segment; sensors that were not compared have but those of their own sound."""
        judged, asked, own, ratios = self._asked(distances, present, partners)
        if not distances.compared:
            return self._alone(own, novelty, judged, asked)
        of_own, of_others, of_both = self._settled(own, ratios, novelty, judged, asked)[1]
        return SensorPValues(of_own, of_others, of_both, self._agreeing(ratios, asked))

    def standing(self, x: Floats, present: Flags, partners: Flags, sensor: int) -> list[tuple[float, Floats]]:
        """A sensor's two measures, each beside those of the reference: log d(x_s), and r_s if it has partners."""
        (distances,) = self.distances(x[None], present[None], np.ones(1, np.bool_))
        judged, asked, own, ratios = self._asked(distances, present, partners)
        if not judged[sensor]:
            return []
        asked = self._settled(own, ratios, np.full(len(own), np.nan), judged, asked)[0]
        table = self._table(sensor, asked[sensor])
        pairs = ((float(own[sensor]), table.own), (_least(ratios, asked)[sensor], table.ratios))
        return [(value, np.array(reference)) for value, reference in pairs if reference]

    def _asked(self, distances: Distances, present: Flags, partners: Flags) -> tuple[Flags, Flags, Floats, Floats]:
        """Return who is judged, by whom (sensors, partners), log d(x_s), and r_s|k."""
        judged = present & self.ready
        asked = (present & partners) & self._paired & judged[:, None]
        return judged, asked, np.where(judged, distances.own, np.nan), np.where(asked, distances.ratios, np.inf)

    def _left(self, queries: Singles) -> Singles:
        """Return what is left of features (sensors, segments, features) once a partner has predicted them, by pair."""
        first, second = self._pairs
        predicted = on_grid(queries)[second] @ self._maps + self.offsets[first, second][:, None]
        left: Singles = (queries[first] - predicted).astype(np.float32)
        return left

    @cached_property
    def _pairs(self) -> tuple[Integers, Integers]:
        """Sensors and their partners, of all pairs that have a reference."""
        first, second = np.nonzero(self._paired)
        return first, second

    @cached_property
    def _maps(self) -> Floats:
        return on_grid(self.maps[self._pairs].swapaxes(1, 2)).swapaxes(1, 2)

    @cached_property
    def _own(self) -> Nearest:
        return Nearest(self.features, np.isfinite(self.own.T))

    @cached_property
    def _nearest_left(self) -> Nearest:
        first, second = self._pairs
        return Nearest(self.residuals[first, second], np.isfinite(self.ratios[:, first, second].T))

    def _alone(self, own: Floats, novelty: Floats, judged: Flags, asked: Flags) -> SensorPValues:
        """Return p-values of the sensors' own sound, by the distances of those that are like their own past."""
        found = self._ranked_alone(own, novelty, judged, asked)
        unlike_itself = found <= self._refused_at
        if unlike_itself.any():
            found = self._ranked_alone(own, novelty, judged, asked & ~unlike_itself)
        return SensorPValues(found, np.full(len(found), np.nan), found, np.zeros(asked.shape, np.bool_))

    def _ranked_alone(self, own: Floats, novelty: Floats, judged: Flags, asked: Flags) -> Floats:
        far = relative(novelty, asked)
        return np.array(
            [
                self._table(s, asked[s]).unlike_itself(distance, far[s])[0] if is_judged else nan
                for s, (distance, is_judged) in enumerate(zip(own.tolist(), judged.tolist(), strict=True))
            ]
        )

    def _settled(
        self, own: Floats, ratios: Floats, novelty: Floats, judged: Flags, asked: Flags
    ) -> tuple[Flags, Floats]:
        """Return the partners of each sensor without refused sensors, and the p-values given these partners."""
        found = self._ranked(own, ratios, novelty, judged, asked)
        unlike_itself = found[0] <= self._refused_at
        if unlike_itself.any():
            asked = asked & ~unlike_itself
            found = self._ranked(own, ratios, novelty, judged, asked)
        while suspects := _suspects(found[2] <= self._refused_at, asked):
            trials = [asked & (np.arange(len(own)) != s) for s in suspects]
            results = [self._ranked(own, ratios, novelty, judged, trial) for trial in trials]
            best = int(np.argmax([_agreement(*pair) for pair in zip(results, trials, strict=True)]))
            asked, found = trials[best], results[best]
        return asked, found

    def _relative(self, sensor: int, partners: Flags) -> Floats:
        """`relative` of a sensor for all segments of the reference."""
        far = np.full(len(self.novelty), np.nan)
        others = np.where(np.isfinite(self.novelty), self.novelty, np.nan)[:, partners]
        known = np.isfinite(others).any(axis=1)
        far[known] = self.novelty[known, sensor] - np.nanmedian(others[known], axis=1)
        return far

    def _agreeing(self, ratios: Floats, asked: Flags) -> Flags:
        agree = np.zeros(asked.shape, np.bool_)
        for s, k in np.argwhere(asked).tolist():
            agree[s, k] = p_value(self._ordered_ratios[s][k], float(ratios[s, k])) > _AGREEING
        return agree | agree.T

    @cached_property
    def _ordered_ratios(self) -> list[list[list[float]]]:
        """Ratios of the reference of each pair, sorted."""
        n_sensors = len(self.ready)
        return [[_ordered(self.ratios[:, s, k]) for k in range(n_sensors)] for s in range(n_sensors)]

    def _ranked(self, own: Floats, ratios: Floats, novelty: Floats, judged: Flags, asked: Flags) -> Floats:
        """Own, others and both of every sensor, given whom each is compared with."""
        least, far = _least(ratios, asked), relative(novelty, asked)
        nothing = (np.nan, np.nan, np.nan)
        rows = [
            self._table(s, asked[s]).p_values(distance, least[s], far[s]) if is_judged else nothing
            for s, (distance, is_judged) in enumerate(zip(own.tolist(), judged.tolist(), strict=True))
        ]
        return np.array(rows).T

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in _STORED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], novelty: Floats, groups: Integers) -> Self:
        features, residuals, maps, offsets, own, ratios = (arrays[name] for name in _STORED)
        return cls(features, residuals, maps, offsets, own, ratios, novelty, groups)

    @cached_property
    def _refused_at(self) -> Floats:
        return np.maximum(_REFUSED, _RAREST / (1 + np.isfinite(self.own).sum(axis=0)))

    @cached_property
    def smallest_p_values(self) -> Floats:
        """Of each sensor, all others present: below it no segment can get; NaN without a reference."""
        smallest = np.full(len(self.ready), np.nan)
        for s in np.flatnonzero(self.ready):
            smallest[s] = self._table(int(s), self._paired[s]).p_values(np.inf, np.inf, np.inf)[2]
        return smallest

    @cached_property
    def _paired(self) -> Flags:
        return np.asarray(np.isfinite(self.ratios).any(axis=0))

    def _table(self, sensor: int, asked: Flags) -> _Ranks:
        """What is normal with these partners; looked up thereafter."""
        # Threads share a model: each step is one that cannot be seen half done, and nobody relies on the one before.
        key = sensor, asked.tobytes()
        table = self._tables.get(key)
        if table is None:
            ratios, far = self.ratios[:, sensor, asked], self._relative(sensor, asked)
            table = _Ranks.of(self.own[:, sensor], ratios, far, self.groups)
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            self._tables[key] = table
        return table


def relative(novelty: Floats, partners: Flags) -> list[float]:
    """Log distance of each sensor in the summary view less the median of its partners'; NaN where there is none."""
    # Of so few numbers a plain median is faster than numpy's.
    values = novelty.tolist()
    found = []
    for own, row in zip(values, partners.tolist(), strict=True):
        others = sorted(value for value, is_partner in zip(values, row, strict=True) if is_partner and isfinite(value))
        middle = len(others) // 2
        found.append(own - (others[middle] + others[~middle]) / 2 if others else nan)
    return found


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Measures of the reference, sorted; the smallest of their ranks, likewise; and how measures spread.

    Plain lists: looking up one number in them takes a tenth of the time of an array.
    """

    own: list[float]
    novelty: list[float]
    unlike: list[float]
    """Smaller rank of the two above."""
    ratios: list[float]
    smaller: list[float]
    spreads: tuple[Spread, Spread, Spread]
    """Of own, novelty and ratios."""

    @classmethod
    def of(cls, own: Floats, ratios: Floats, novelty: Floats, groups: Integers) -> _Ranks:
        """`ratios` has a column for each partner, perhaps none; rows without a value of their own are no reference."""
        used = np.isfinite(own)
        own, ratios, novelty, groups = own[used], ratios[used], novelty[used], groups[used]
        unlike = np.fmin(_shares(own), _shares(novelty))
        known = np.isfinite(ratios).any(axis=1)
        least = np.full(len(own), np.nan)
        least[known] = np.nanmin(ratios[known], axis=1) if known.any() else np.nan
        smaller = np.fmin(unlike, _shares(least))[known]
        spreads = (Spread.of(own, groups), Spread.of(novelty, groups), Spread.of(least, groups))
        return cls(_ordered(own), _ordered(novelty), _ordered(unlike), _ordered(least), _ordered(smaller), spreads)

    def unlike_itself(self, own: float, novelty: float) -> tuple[float, float, list[float]]:
        """Return the p-value of the sensor's own sound, the smallest rank it is made of, and the tails of its parts."""
        of_own, of_novelty, _ = self.spreads
        unlike = p_own = p_value(self.own, own)
        tails = [of_own.tail(own)]
        if self.novelty and novelty == novelty:
            unlike = min(p_own, p_value(self.novelty, novelty))
            p_own = _joint(self.unlike, unlike)
            tails.append(of_novelty.tail(novelty))
        return by_recording(p_own, _smallest_of(tails), len(self.own), of_own.n_recordings), unlike, tails

    def p_values(self, own: float, ratio: float, novelty: float) -> tuple[float, float, float]:
        """Own, others and both, each by rank and by recording."""
        p_own, unlike, tails = self.unlike_itself(own, novelty)
        if not self.ratios:
            return p_own, np.nan, p_own
        of_ratio = self.spreads[2]
        p_others = p_value(self.ratios, ratio)
        both = _joint(self.smaller, min(unlike, p_others))
        tails.append(of_ratio.tail(ratio))
        return (
            p_own,
            by_recording(p_others, tails[-1], len(self.ratios), of_ratio.n_recordings),
            by_recording(both, _smallest_of(tails), len(self.smaller), of_ratio.n_recordings),
        )


def _smallest_of(p_values: list[float]) -> float:
    """p-value of the smallest of several that are independent, or depend on each other positively."""
    return 1 - (1 - min(p_values)) ** len(p_values)


def _ordered(values: Floats) -> list[float]:
    ordered: list[float] = np.sort(values[np.isfinite(values)]).tolist()
    return ordered


def _shares(values: Floats) -> Floats:
    """Of each value the share that is at least as large; NaN where it is."""
    ordered = np.sort(values[np.isfinite(values)])
    shares: Floats = (len(ordered) - np.searchsorted(ordered, values, side="left")) / (len(ordered) + 1)
    return np.where(np.isfinite(values), shares, np.nan)


def _joint(ordered: list[float], smallest: float) -> float:
    """p-value of the smallest of several, by its rank among those of the reference."""
    return (1 + bisect_right(ordered, smallest)) / (len(ordered) + 1)


def _suspects(refused: Flags, asked: Flags) -> list[int]:
    """Witnesses that are refused; none among the last two, for nobody could say which one of them is wrong."""
    if not refused.any():
        return []
    witnesses = np.flatnonzero(asked.any(axis=0))
    return [int(s) for s in witnesses if refused[s]] if len(witnesses) > 2 else []


def _agreement(found: Floats, asked: Flags) -> float:
    """How likely the p-values of the witnesses are, taken together."""
    return float(np.log(found[2, asked.any(axis=0)]).sum())


def _least(ratios: Floats, asked: Flags) -> list[float]:
    """r_s: agreement with one of those asked is enough."""
    least: list[float] = np.where(asked, ratios, np.inf).min(axis=1).tolist()
    return least
