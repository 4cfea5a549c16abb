"""p-values become alarms at a chosen rate, and the rate they have in truth is watched."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, log, sqrt
from typing import Any, ClassVar

from pipeline.core.errors import SettingsError

SECONDS_PER_DAY = 86_400.0
_SHAPE = 0.5
_LEAST_TRIALS = 200
_MOST_TRIALS = 1800
_Z = 2.5758  # of a two-sided interval of 99 %


def evidence_against(p_value: float) -> float:
    """Log-likelihood ratio of one p-value for "small ones are common" (density ½ p^-½) against "all are alike"."""
    return log(_SHAPE) + (_SHAPE - 1) * log(p_value)


def threshold(*, tests_per_day: float, alarms_per_day: float) -> float:
    """Height at which a sum of log-likelihood ratios, never below 0, gives at most so many alarms a day.

    Without a fault such a sum takes e to the height tests on average, or more, to get there.
    """
    if not 0 < alarms_per_day < inf:
        raise SettingsError(f"alarms_per_day={alarms_per_day} must be above 0 and finite; 1 is usual")
    return max(log(tests_per_day / alarms_per_day), 1.0)


@dataclass(slots=True)
class Cusum:
    """Sums of evidence for and against: an alarm begins at the height, and ends when as much speaks against it as
    would make it twenty times less likely."""

    remembers: ClassVar = ("active", "evidence", "relief")

    height: float
    active: bool = False
    evidence: float = 0.0
    relief: float = 0.0

    def take(self, p_value: float) -> bool:
        """Take a p-value into account; whether the alarm began or ended with it. NaN says nothing."""
        if isnan(p_value):
            return False
        step, before = evidence_against(p_value), self.active
        self.evidence = min(max(self.evidence + step, 0.0), self.height)
        self.relief = max(self.relief - step, 0.0) if self.active else 0.0
        if self.active and self.relief >= log(20):
            self.active, self.evidence = False, 0.0
        elif self.evidence >= self.height:
            self.active = True
        return self.active != before


class Drift:
    """Whether p-values get smaller in the long run: river's ADWIN over their logarithms, of which 1 is usual."""

    remembers = ("_buckets", "_drifts", "_changed", "active")

    def __init__(self) -> None:
        self._windows = _adaptive_windows()
        self._drifts = self._changed = self.active = False

    def take(self, p_value: float) -> bool:
        """Take a p-value into account; whether drift began or ended with it."""
        if isnan(p_value):
            return False
        before = self.active
        if self._drifts:  # what was before the change does not count any more
            self._windows = _adaptive_windows()
        self._drifts = self._windows.update(-log(p_value))
        self._changed |= self._drifts  # the mean follows in the next tests
        if self._changed and self.mean > 1.5:
            self.active = True
        elif self.active and self.mean < 1.25:
            self.active = self._changed = False
        return self.active != before

    @property
    def mean(self) -> float:
        """Of minus the logarithm, since the last change."""
        width = self._windows.get_width()
        return float(self._windows.get_total() / width) if width else 0.0

    @property
    def _buckets(self) -> bytes:
        """The windows as river itself would store them."""
        return bytes(self._windows.__getstate__())

    @_buckets.setter
    def _buckets(self, stored: bytes) -> None:
        self._windows.__setstate__(stored)


def _adaptive_windows() -> Any:
    """What river's ADWIN is made of; its package would import pandas and scikit-learn, 100 MB, for examples."""
    from river._river_rust.drift import AdaptiveWindowing

    return AdaptiveWindowing(delta=1e-4, clock=8, max_buckets=5, min_window_length=5, grace_period=10)


class Calibration:
    """How often a sensor is refused in truth, over the last tests in which nothing was the matter with it."""

    remembers = ("_refused", "_hits", "_trials", "lost")

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._refused = bytearray(_MOST_TRIALS)  # the last ones, in a ring
        self._hits = self._trials = 0
        self.lost = False

    def take(self, p_value: float) -> bool:
        """Take a p-value into account; whether calibration was lost or regained with it."""
        if isnan(p_value):
            return False
        place, refused = self._trials % _MOST_TRIALS, p_value <= self._alpha
        self._hits += refused - self._refused[place]
        self._refused[place] = refused
        self._trials += 1
        low, _ = self.interval
        before = self.lost
        if self._trials >= _LEAST_TRIALS:
            self.lost = low > (self._alpha if self.lost else 2 * self._alpha)
        return self.lost != before

    @property
    def realised(self) -> float:
        return self._hits / max(self.trials, 1)

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self._hits, self.trials, z=_Z)

    @property
    def trials(self) -> int:
        """How many of them count."""
        return min(self._trials, _MOST_TRIALS)


def wilson(hits: int, trials: int, *, z: float) -> tuple[float, float]:
    """Score interval of a share."""
    if trials == 0:
        return 0.0, 1.0
    share, spread = hits / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = z * sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def poisson_interval(count: int, *, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of the mean of a count."""
    from scipy.stats import chi2

    tail = (1 - level) / 2
    low = chi2.ppf(tail, 2 * count) / 2 if count else 0.0
    return float(low), float(chi2.ppf(1 - tail, 2 * count + 2) / 2)


def combined(p_values: list[float]) -> float:
    """One p-value of several that may depend on each other in any way: twice their mean, at most 1."""
    known = [p for p in p_values if not isnan(p)]
    return min(1.0, 2 * sum(known) / len(known)) if known else float("nan")
