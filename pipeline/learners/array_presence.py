"""Is somebody there? One linear rule for all sensors, and thresholds by the rate of false passages they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.learners._arrays import Flags, Floats, Integers

SEGMENTS_NEEDED, SEGMENTS_LOOKED_AT = 4, 6
"""Somebody is there while the evidence of this many of the last segments exceeds a threshold."""
LEAST_EVIDENCE = 0.5
"""A passage goes on while its evidence exceeds this value; no threshold to start one is lower."""
HIGHEST_EVIDENCE = 4.0
THRESHOLDS = np.round(np.arange(LEAST_EVIDENCE, HIGHEST_EVIDENCE + 0.05, 0.1), 1)
_LIMIT = 6.0
_PRIOR_SEGMENTS = 12.0
"""Weight of the data against the prior of the coefficients, whatever the number of segments: chosen on real sound."""
_SETTLED_SECONDS = 60.0
_N_FOLDS = 5
_BLOCK_SECONDS = 600.0
_SECONDS_PER_DAY = 86_400.0
_FEWEST = 40
PROVISIONAL = {"mean": 0.17, "deviation": 0.18, 1.0: 0.165, 3.0: 0.17, 6.0: 0.2, 12.0: 0.275}
"""Log-odds for a decibel of mean level and of its deviation above the background, and for a unit of the logarithm of
its modulation in the bands that begin at these frequencies: fitted to simulated days, checked on real sound."""
_PROVISIONAL_OFFSET, _PROVISIONAL_THRESHOLD = -1.65, 1.0
_STORED = ("means", "scales", "coefficients", "offset", "typical", "counts", "hours")


@dataclass(frozen=True, eq=False)
class ArrayPresence:
    """Logistic regression of what stands out from the background, the same for every sensor.

    Its values are the summary less that of the sensor's background, and the summary's deviations and modulations
    themselves. Neither depends on the gain of a sensor. Until a background has been heard for a minute, that of the
    training set stands in for what is missing of it.
    """

    means: Floats  # (values,)
    scales: Floats
    coefficients: Floats
    offset: Floats  # (1,)
    typical: Floats  # (summary values,): background of the training set
    counts: Integers  # (thresholds,): passages that cross-fitted background would have started
    hours: Floats  # (1,): of that background

    @classmethod
    def learn(
        cls,
        summary: NDArray[Any],
        background: NDArray[Any],
        seconds: Floats,
        somebody: Flags,
        *,
        start_seconds: Floats,
        groups: Integers,
        n_means: int,
    ) -> Self | None:
        """From summaries and backgrounds (segments, sensors, values), NaN where a sensor is absent.

        `seconds` is how long each background had been heard, `somebody` whether somebody was there. `n_means` of the
        values are means, which depend on gains. Returns None if either side has too few segments, or if all background
        is so near in time that none of it can be judged by a rule that was fitted without it: no threshold would be
        known to keep any rate.
        """
        if min(int(somebody.sum()), int((~somebody).sum())) < _FEWEST:
            return None
        typical = np.nanmedian(summary[~somebody], axis=(0, 1)).astype(np.float64)
        X = relative(summary, background, seconds, typical, n_means)
        rule = _fitted(X, somebody)
        blocks = _blocks(groups, start_seconds)
        evidence = np.full(len(X), np.nan)
        for fold in range(_N_FOLDS):
            inside = blocks % _N_FOLDS == fold
            if inside.any() and _is_enough(somebody[~inside]):
                evidence[inside] = _evidence(X[inside], *_fitted(X[~inside], somebody[~inside]))
        stretches = _stretches(np.where(somebody, np.nan, evidence), groups, start_seconds)
        stride = float(np.median(np.diff(start_seconds)[np.diff(groups) == 0])) if len(groups) > 1 else 1.0
        counts = np.array([sum(n_starts(one, threshold) for one in stretches) for threshold in THRESHOLDS], np.int64)
        hours = np.array([sum(map(len, stretches)) * stride / 3600])
        if not hours[0]:
            return None
        return cls(*rule, typical, counts, hours)

    def log_odds(self, summary: NDArray[Any], background: NDArray[Any], seconds: float) -> Floats:
        """That somebody is there, for each sensor of one segment; NaN where it is absent."""
        n_means = 2 * len(self.typical) - len(self.means)
        X = relative(summary[None], background[None], np.array([seconds]), self.typical, n_means)[0]
        return _scores(X, self.means, self.scales, self.coefficients, self.offset)

    def threshold(self, per_day: float) -> float:
        """Evidence at which a passage starts, so that background starts no more than `per_day`."""
        allowed = self.counts <= per_day * self.hours[0] / 24
        return float(THRESHOLDS[np.argmax(allowed)]) if allowed.any() else HIGHEST_EVIDENCE

    def guaranteed_per_day(self, per_day: float) -> float:
        """Rate of false passages that the background of the training set can vouch for at that threshold.

        If n passages would have started in H hours, n + 1 are expected in the next H hours at most, as all stretches of
        background are equally likely to be the worst.
        """
        count = self.counts[np.searchsorted(THRESHOLDS, self.threshold(per_day) - 1e-9)]
        return float((count + 1) * 24 / self.hours[0])

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in _STORED}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        found = cls(*(arrays[name] for name in _STORED))
        n = len(found.typical)
        shapes = {"means": n, "scales": n, "coefficients": n, "counts": len(THRESHOLDS), "offset": 1, "hours": 1}
        for name, least in shapes.items():
            if getattr(found, name).ndim != 1 or len(getattr(found, name)) < least:
                raise ValueError(f"presence.{name} has the shape {getattr(found, name).shape}")
        return found


@dataclass(frozen=True, eq=False)
class ProvisionalPresence:
    """The rule of an array without background to learn from: whether level and rhythm exceed those of the last minutes.

    `coefficients` (summary values,) belong to what stands out from the background. Nothing is known until the
    background has been heard for a minute, and no rate of false passages is guaranteed.
    """

    coefficients: Floats

    def log_odds(self, summary: NDArray[Any], background: NDArray[Any], seconds: float) -> Floats:
        """That somebody is there, for each sensor of one segment; NaN where it is absent, or nothing is known yet."""
        if seconds < _SETTLED_SECONDS:
            return np.full(len(summary), np.nan)
        weighted = (summary.astype(np.float64) - background) * self.coefficients
        return np.asarray(np.cumsum(weighted, axis=1)[:, -1] + _PROVISIONAL_OFFSET)

    def threshold(self, per_day: float) -> float:
        """The same for every rate, as none is guaranteed."""
        return _PROVISIONAL_THRESHOLD

    def guaranteed_per_day(self, per_day: float) -> None:
        """No rate is."""


def relative(summary: NDArray[Any], background: NDArray[Any], seconds: Floats, typical: Floats, n_means: int) -> Floats:
    """What stands out, (segments, sensors, values), from summaries and backgrounds of the same shape."""
    share = np.minimum(1.0, seconds / _SETTLED_SECONDS)[:, None, None]
    known = np.where(np.isnan(background), typical, background)
    floor = share * known + (1 - share) * typical
    return np.concatenate([summary - floor, summary[:, :, n_means:]], axis=2, dtype=np.float64)


def fused(log_odds: Floats, usable: Flags) -> float | None:
    """Evidence of all usable sensors together; None if there is none.

    The sensor that is surest is left out where there are others: one sensor alone, because it fails or because a bird
    sits on it, makes nobody be there.
    """
    values = sorted(
        min(max(value, -HIGHEST_EVIDENCE), HIGHEST_EVIDENCE)
        for value, is_usable in zip(log_odds.tolist(), usable.tolist(), strict=True)
        if is_usable and value == value
    )
    if len(values) > 1:
        values = values[:-1]
    return sum(values) / len(values) if values else None


def sustained(recent: Sequence[float]) -> float:
    """Evidence that enough of the last segments exceed: the fourth largest of six."""
    last = sorted(recent[-SEGMENTS_LOOKED_AT:], reverse=True)
    return last[SEGMENTS_NEEDED - 1] if len(last) >= SEGMENTS_NEEDED else -HIGHEST_EVIDENCE


def n_starts(evidence: Floats, threshold: float) -> int:
    """Passages that a stretch of evidence would start: rises to the threshold after a fall below the lowest."""
    values, n, inside = evidence.tolist(), 0, False
    for place in range(len(values)):
        level = sustained(values[max(0, place + 1 - SEGMENTS_LOOKED_AT) : place + 1])
        if not inside and level >= threshold:
            n, inside = n + 1, True
        elif inside and level < LEAST_EVIDENCE:
            inside = False
    return n


def tail_rate(counts: Sequence[int], hours: float, threshold: float) -> tuple[float, float, float] | None:
    """Rate per day at which background reaches a threshold, with a 95 % interval, from its rises to lower ones.

    The rises above each lower threshold fall off exponentially, as extremes do; the slope is fitted by maximum
    likelihood to the rises between the lowest threshold and this one. None without any rise or time.
    """
    below = threshold - 1e-9 > THRESHOLDS
    exceeding = np.append(np.asarray(counts, np.float64)[below], 0.0)
    if not hours or len(exceeding) < 3 or exceeding[0] < 1:
        return None
    gone = np.maximum(-np.diff(exceeding), 0.0)  # rises that ended between a threshold and the next
    n, step = float(gone.sum()), 0.1
    mean = float(gone @ (np.arange(len(gone)) + 0.5)) * step / n
    # Maximum likelihood of an exponential on a grid; one more rise than seen keeps few from promising too much.
    scale = mean * (n + 1) / n
    height = threshold - float(THRESHOLDS[0])
    rate = (n + 1) * np.exp(-height / scale) / hours * 24
    # The logarithm of the rate is uncertain by the number of rises and by the slope.
    error = sqrt(1 / (n + 1) + (height / scale) ** 2 / (n + 1))
    return float(rate), float(rate * np.exp(-1.96 * error)), float(rate * np.exp(1.96 * error))


def _fitted(X: Floats, somebody: Flags) -> tuple[Floats, Floats, Floats, Floats]:
    """Means, scales, coefficients and offset; every sensor that is present is a sample."""
    from sklearn.linear_model import LogisticRegression

    present = ~np.isnan(X[:, :, 0])
    samples, labels = X[present], np.broadcast_to(somebody[:, None], present.shape)[present]
    means, scales = samples.mean(axis=0), samples.std(axis=0) + 1e-3
    scaled = np.clip((samples - means) / scales, -_LIMIT, _LIMIT)
    machine = LogisticRegression(C=_PRIOR_SEGMENTS / len(samples), class_weight="balanced", max_iter=3000)
    machine.fit(scaled, labels)
    return means, scales, machine.coef_[0].copy(), machine.intercept_.copy()


def _scores(X: Floats, means: Floats, scales: Floats, coefficients: Floats, offset: Floats) -> Floats:
    scaled = np.clip((X - means) / scales, -_LIMIT, _LIMIT)
    # One after the other, so that the processor does not decide how it is rounded.
    return np.asarray(np.cumsum(scaled * coefficients, axis=-1)[..., -1] + offset[0])


def _evidence(X: Floats, *rule: Floats) -> Floats:
    scores = _scores(X, *rule)
    found = [fused(one, ~np.isnan(one)) for one in scores]
    return np.array([np.nan if one is None else one for one in found])


def _blocks(groups: Integers, start_seconds: Floats) -> Integers:
    """Recordings, those that are long in parts: what lies near in time never judges itself."""
    parts = np.column_stack([groups, (start_seconds // _BLOCK_SECONDS).astype(np.int64)])
    return np.asarray(np.unique(parts, axis=0, return_inverse=True)[1].reshape(-1))


def _is_enough(somebody: Flags) -> bool:
    return bool(min(somebody.sum(), (~somebody).sum()) >= _FEWEST // 2)


def _stretches(evidence: Floats, groups: Integers, start_seconds: Floats) -> list[Floats]:
    """Runs of known evidence of one recording without holes."""
    steps = np.diff(start_seconds)
    usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    new = np.ones(len(evidence), np.bool_)
    new[1:] = (np.diff(groups) != 0) | (steps > 1.5 * usual) | np.isnan(evidence[:-1]) | np.isnan(evidence[1:])
    parts = np.split(evidence, np.flatnonzero(new)[1:]) if len(evidence) else []
    return [part for part in parts if len(part) >= SEGMENTS_LOOKED_AT and not np.isnan(part).any()]
