"""How good decisions are, with intervals that know that segments of one recording are not independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Z = 1.959964
_EDGES = np.linspace(0.5, 1.0, 11)
ALPHAS = (0.005, 0.01, 0.05, 0.1)


@dataclass(frozen=True, slots=True)
class Judged:
    """One decision beside the truth; classes are 0 and 1."""

    recording: str
    start_sample: int
    truth: int
    label: int | None
    log_odds: float | None
    """Fused, of class 1."""
    sensor_log_odds: tuple[float | None, ...]
    p_values: tuple[float | None, ...]


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
        "confusion": confusion(judged),
        "decided": _told(judged, lambda one: one.label is not None),
        "accuracy": _told(decided, lambda one: one.label == one.truth),
        "accuracy_without_abstention": _told(leaning, lambda one: _right(one.log_odds, one.truth)),
        "accuracy_by_recording": _told(*_by_recording(leaning)),
        "sensors": [_sensor(judged, s) for s in range(n_sensors)],
        "calibration": calibration(leaning),
    }


def confusion(judged: Sequence[Judged]) -> list[list[int]]:
    """Rows: the truth. Columns: the two classes, and no decision."""
    table = np.zeros((2, 3), np.int64)
    for one in judged:
        table[one.truth, 2 if one.label is None else one.label] += 1
    return [[int(n) for n in row] for row in table]


def calibration(judged: Sequence[Judged]) -> dict[str, Any]:
    """How often the likelier class is right, by its probability."""
    if not judged:
        return {"bins": [], "expected_error": None, "brier": None, "log_loss": None}
    log_odds = np.array([one.log_odds for one in judged], dtype=np.float64)
    signs = np.array([1.0 if one.truth else -1.0 for one in judged])
    confidence = 1 / (1 + np.exp(-np.minimum(np.abs(log_odds), 700)))
    right, names = signs * log_odds > 0, np.array([one.recording for one in judged])
    place = np.clip(np.searchsorted(_EDGES, confidence, side="right") - 1, 0, len(_EDGES) - 2)
    bins, error = [], 0.0
    for b in np.unique(place):
        here = place == b
        found = rate(right[here], list(names[here]))
        assert found is not None
        bins.append({"probability": round(float(confidence[here].mean()), 6), "right": found.as_dict()})
        error += float(here.mean()) * abs(found.value - float(confidence[here].mean()))
    wrong = 1 / (1 + np.exp(np.clip(signs * log_odds, -700, 700)))
    return {
        "bins": bins,
        "expected_error": round(error, 6),
        "brier": round(float(np.mean(wrong**2)), 6),
        "log_loss": round(float(np.mean(np.logaddexp(0.0, -signs * log_odds))), 6),
    }


def _sensor(judged: Sequence[Judged], s: int) -> dict[str, Any]:
    heard = [one for one in judged if one.sensor_log_odds[s] is not None]
    screened = [one for one in judged if one.p_values[s] is not None]
    return {
        "sensor": s + 1,
        "accuracy": _told(heard, lambda one: _right(one.sensor_log_odds[s], one.truth)),
        "refused": {f"{alpha:g}": _told(screened, partial(_refused, sensor=s, alpha=alpha)) for alpha in ALPHAS},
    }


def _right(log_odds: float | None, truth: int) -> bool:
    assert log_odds is not None
    return (log_odds > 0) == bool(truth)


def _refused(one: Judged, sensor: int, alpha: float) -> bool:
    p_value = one.p_values[sensor]
    assert p_value is not None
    return p_value <= alpha


def _by_recording(judged: Sequence[Judged]) -> tuple[list[tuple[str, bool]], Callable[[Any], bool]]:
    """Whether the mean log-odds of a recording, of one label throughout, are on the right side."""
    found = []
    for name in dict.fromkeys(one.recording for one in judged):
        own = [one for one in judged if one.recording == name]
        if len({one.truth for one in own}) == 1:
            found.append((name, _right(float(np.mean([one.log_odds for one in own])), own[0].truth)))
    return found, lambda pair: bool(pair[1])


def known(value: Any) -> float | None:
    """A number, or None in place of NaN."""
    return None if np.isnan(value) else float(value)


def _told(items: Sequence[Any], hit: Callable[[Any], bool]) -> dict[str, Any] | None:
    names = [item[0] if isinstance(item, tuple) else item.recording for item in items]
    found = rate([hit(item) for item in items], names)
    return None if found is None else found.as_dict()
