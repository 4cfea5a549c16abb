"""How good decisions are, with intervals that know that segments of one recording are not independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Z = 1.959964
_EDGES = np.linspace(0.5, 1.0, 11)
_EDGES_OF_MANY = np.linspace(0.0, 1.0, 21)
_LEAST_PROBABILITY = 5e-7
"""Probabilities are told with six digits."""
ALPHAS = (0.005, 0.01, 0.05, 0.1)
OTHER_CLASS = -1
"""Stands for a label that is none of the classes."""
LogOdds = tuple[float, ...]
"""Of each class against the first, so the first number is 0."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One decision beside the truth; classes are counted from 0, and `OTHER_CLASS` is none of them."""

    recording: str
    start_sample: int
    truth: int
    label: int | None
    log_odds: LogOdds | None
    """Fused."""
    sensor_log_odds: tuple[LogOdds | None, ...]
    p_values: tuple[float | None, ...]

    @property
    def leaning(self) -> int | None:
        """The most probable class, decided or not; None if no sensor had a say."""
        return None if self.log_odds is None else likeliest(self.log_odds)


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % interval, recordings being the independent units."""

    value: float
    low: float
    high: float
    n: int
    n_recordings: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "value": round(self.value, 6),
            "low": round(self.low, 6),
            "high": round(self.high, 6),
            "segments": self.n,
            "recordings": self.n_recordings,
        }

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"


def rate(hits: Sequence[bool] | NDArray[np.bool_], recordings: Sequence[str]) -> Rate | None:
    """Wilson's interval, for as many independent segments as vary as much as the recordings do; None of nothing.

    Where all are hits, or none, that cannot be told, and every recording counts as one.
    """
    if not len(hits):
        return None
    values = np.asarray(hits, dtype=np.float64)
    names, place = np.unique(np.asarray(recordings), return_inverse=True)
    n, n_recordings, share = len(values), len(names), float(values.mean())
    excess = np.bincount(place, values - share)
    spread = float(excess @ excess) / n**2 * n_recordings / max(n_recordings - 1, 1)
    if spread < 1e-12:
        low, high = wilson(share, n_recordings)
    else:
        from scipy.special import stdtrit

        # The spread itself is uncertain where recordings are few, as Student knew.
        low, high = wilson(share, min(share * (1 - share) / spread, n), float(stdtrit(n_recordings - 1, 0.975)))
    return Rate(share, low, high, n, n_recordings)


def wilson(share: float, n: float, z: float = _Z) -> tuple[float, float]:
    """95 % interval of a share among n independent trials."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def summary(judged: Sequence[Judged], classes: Sequence[str]) -> dict[str, Any]:
    """Everything that is told of decisions with known truth, ready for JSON."""
    n_sensors = len(judged[0].p_values)
    decided = [one for one in judged if one.label is not None]
    leaning = [one for one in judged if one.log_odds is not None]
    return {
        "segments": len(judged),
        "recordings": len({one.recording for one in judged}),
        "classes": list(classes),
        "confusion": confusion(judged, len(classes)),
        "decided": _told(judged, lambda one: one.label is not None),
        "accuracy": _told(decided, lambda one: one.label == one.truth),
        "accuracy_without_abstention": _told(leaning, lambda one: one.leaning == one.truth),
        "accuracy_by_recording": _told(*_by_recording(leaning)),
        "sensors": [_sensor(judged, s) for s in range(n_sensors)],
        "calibration": calibration(leaning, len(classes)),
    }


def confusion(judged: Sequence[Judged], n_classes: int = 2) -> list[list[int]]:
    """Rows: the truth. Columns: the classes, and no decision."""
    table = np.zeros((n_classes, n_classes + 1), np.int64)
    for one in judged:
        table[one.truth, n_classes if one.label is None else one.label] += 1
    return [[int(n) for n in row] for row in table]


def by_class(judged: Sequence[Judged], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return recall (share of a class's segments that got its label) and precision (share of a label that is right)."""
    return [
        {
            "class": name,
            "recall": _told([one for one in judged if one.truth == code], lambda one: one.label == one.truth),
            "precision": _told([one for one in judged if one.label == code], lambda one: one.label == one.truth),
        }
        for code, name in enumerate(classes)
    ]


def calibration(judged: Sequence[Judged], n_classes: int = 2) -> dict[str, Any]:
    """How often the most probable class is right, by its probability."""
    if not judged:
        return {"bins": [], "expected_error": None, "brier": None, "log_loss": None}
    found = _two_classes(judged) if n_classes == 2 else _many_classes(judged)
    confidence, right, names = found.confidence, found.right, np.array([one.recording for one in judged])
    place = np.clip(np.searchsorted(found.edges, confidence, side="right") - 1, 0, len(found.edges) - 2)
    bins, error = [], 0.0
    for b in np.unique(place):
        here = place == b
        share = rate(right[here], list(names[here]))
        assert share is not None
        bins.append({"probability": round(float(confidence[here].mean()), 6), "right": share.as_dict()})
        error += float(here.mean()) * abs(share.value - float(confidence[here].mean()))
    return {
        "bins": bins,
        "expected_error": round(error, 6),
        "brier": round(float(np.mean(found.brier)), 6),
        "log_loss": round(float(np.mean(found.log_loss)), 6),
    }


@dataclass(frozen=True, slots=True)
class _Probabilities:
    """What calibration goes by, for each decision."""

    confidence: NDArray[np.float64]
    right: NDArray[np.bool_]
    brier: NDArray[np.float64]
    log_loss: NDArray[np.float64]
    edges: NDArray[np.float64]


def _two_classes(judged: Sequence[Judged]) -> _Probabilities:
    log_odds = np.array([one.log_odds[1] for one in judged if one.log_odds is not None])
    signs = np.array([1.0 if one.truth else -1.0 for one in judged])
    confidence = 1 / (1 + np.exp(-np.minimum(np.abs(log_odds), 700)))
    wrong = 1 / (1 + np.exp(np.clip(signs * log_odds, -700, 700)))
    return _Probabilities(confidence, signs * log_odds > 0, wrong**2, np.logaddexp(0.0, -signs * log_odds), _EDGES)


def _many_classes(judged: Sequence[Judged]) -> _Probabilities:
    """The Brier score is half of the squared distance to the truth, as it is for two classes."""
    log_odds = np.array([one.log_odds for one in judged if one.log_odds is not None], np.float64)
    truth = np.array([one.truth for one in judged])
    log_p = log_odds - np.logaddexp.reduce(log_odds, axis=1)[:, None]
    p, own = np.exp(log_p), np.arange(len(truth))
    right = np.array([one.leaning == one.truth for one in judged])
    distance = np.sum((p - np.eye(p.shape[1])[truth]) ** 2, axis=1)
    return _Probabilities(p.max(axis=1), right, distance / 2, -log_p[own, truth], _EDGES_OF_MANY)


def _sensor(judged: Sequence[Judged], s: int) -> dict[str, Any]:
    heard = [one for one in judged if one.sensor_log_odds[s] is not None]
    screened = [one for one in judged if one.p_values[s] is not None]
    return {
        "sensor": s + 1,
        "accuracy": _told(heard, lambda one: likeliest(one.sensor_log_odds[s]) == one.truth),
        "refused": {f"{alpha:g}": _told(screened, partial(_refused, sensor=s, alpha=alpha)) for alpha in ALPHAS},
    }


def _refused(one: Judged, sensor: int, alpha: float) -> bool:
    p_value = one.p_values[sensor]
    assert p_value is not None
    return p_value <= alpha


def _by_recording(judged: Sequence[Judged]) -> tuple[list[tuple[str, bool]], Callable[[Any], bool]]:
    """Whether the mean log-odds of a recording, of one label throughout, are largest for the right class."""
    found = []
    for name in dict.fromkeys(one.recording for one in judged):
        own = [one for one in judged if one.recording == name]
        if len({one.truth for one in own}) == 1:
            mean = [
                float(np.mean(column)) for column in zip(*(one.log_odds for one in own if one.log_odds), strict=True)
            ]
            found.append((name, likeliest(mean) == own[0].truth))
    return found, lambda pair: bool(pair[1])


def likeliest(log_odds: Sequence[float]) -> int:
    """Return the class with the largest log-odds, the first of several."""
    return max(range(len(log_odds)), key=log_odds.__getitem__)


def against_first(log_odds: Any) -> LogOdds | None:
    """Return log-odds of each class from a row of them, or from one number for the second class; None for NaN."""
    values = np.atleast_1d(log_odds)
    if np.isnan(values).any():
        return None
    return (0.0, float(values[0])) if len(values) == 1 else tuple(map(float, values))


def fused_log_odds(second: float | None, probabilities: Sequence[float] | None) -> LogOdds | None:
    """Return log-odds of each class: from those of the second of two, or from the probabilities of more.

    Probabilities may be rounded to 0; None if there are neither.
    """
    if second is not None:
        return 0.0, second
    if probabilities is None:
        return None
    logs = [log(max(one, _LEAST_PROBABILITY)) for one in probabilities]
    return tuple(one - logs[0] for one in logs)


def known(value: Any) -> float | None:
    """A number, or None in place of NaN."""
    return None if np.isnan(value) else float(value)


def _told(items: Sequence[Any], hit: Callable[[Any], bool]) -> dict[str, Any] | None:
    names = [item[0] if isinstance(item, tuple) else item.recording for item in items]
    found = rate([hit(item) for item in items], names)
    return None if found is None else found.as_dict()
