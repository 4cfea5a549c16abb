"""Values of the summary that support a class: leave one value out and see how the log-odds of a sensor change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import Mask, Numbers
from pipeline.core.segment_views import PAPER, Summary, SummaryValue
from pipeline.learners.kernel_classifier import Discriminant
from pipeline.model.model import Model

LARGEST = 5
"""Number of values in a compact explanation."""
SMALLEST = 0.01
"""Effects on the log-odds below it are not listed."""
NO_SUMMARY = (
    'The model was trained with features="paper": it has no summary, so no value can be named. '
    'Train with features="views" for this part.'
)
NO_VALUE = f"no single value changes the log-odds by {SMALLEST:g} or more"
_SHAPES = {0: "loudness", 1: "spectral tilt", 2: "spectral curvature"}
_COARSE = 5
_RHYTHMS = {(1.0, 3.0): "rhythm", (3.0, 6.0): "fast rhythm", (6.0, 12.0): "fluctuation", (12.0, 25.0): "roughness"}


@dataclass(frozen=True, slots=True)
class DecidingValue:
    """One value of a sensor's summary, what is typical of it, and its share of the sensor's log-odds."""

    name: str
    unit: str
    value: float
    typical: tuple[float | None, float | None]
    """Median of the training segments of either of the two classes at this sensor."""
    log_odds: float
    """Log-odds of the segment minus log-odds with this value at the sensor's training median."""
    supports: str
    """The class that the value speaks for: the second if `log_odds` is positive."""


def has_summary(model: Model) -> bool:
    """Return whether the classifiers of a model use the summary, whose values have names."""
    return bool(model.settings["features"] != PAPER)


@dataclass(frozen=True, slots=True)
class SensorReasons:
    """What the classifier of one sensor for two classes goes by: single values, groups of values, and its log-odds."""

    values: list[DecidingValue]
    """Values with the largest shares, largest first."""
    groups: dict[str, float]
    """Shares of all means, all deviations and all modulations in each band."""
    neutral: float
    """Log-odds of a segment with all values at the sensor's training median."""
    own: float
    """Log-odds of the segment by the classifier of the two classes."""


def reasons(
    model: Model, values: NDArray[Any], sensor: int, n: int = LARGEST, *, pair: tuple[int, int] = (0, 1)
) -> SensorReasons | None:
    """Return the shares of a sensor's log-odds, with at most `n` single values; None without a classifier or a summary.

    The log-odds are those of the second class of the pair against the first.

    A share is the log-odds of the segment minus the log-odds with some values at the sensor's training median. Shares
    do not add up to the log-odds, because values act together.
    """
    if model.machines[sensor] is None or not has_summary(model) or not np.isfinite(values).all():
        return None
    parts = Summary(model.grid, model.settings["n_coefficients"]).parts
    groups = [_group(part) for part in parts]
    names = list(dict.fromkeys(groups))
    single, grouped = np.eye(len(parts), dtype=np.bool_), np.array([[one == name for one in groups] for name in names])
    replaced = np.vstack([single, grouped, np.ones(len(parts), np.bool_)])
    own, shares = left_out(model, values, sensor, replaced, pair=pair)
    named = dict(zip(names, shares[len(parts) : -1].tolist(), strict=True))
    largest = _largest(model, values, sensor, parts, shares[: len(parts)], n, pair)
    return SensorReasons(largest, named, own - float(shares[-1]), own)


def left_out(
    model: Model, values: NDArray[Any], sensor: int, replaced: Mask, *, pair: tuple[int, int] = (0, 1)
) -> tuple[float, Numbers]:
    """Return the log-odds of a sensor, and how much higher they are than with the values in each row of `replaced`
    (variants, values) at the training median."""
    machine, sign = _discriminant(model, sensor, pair)
    scaled = model.summary.scaled(values.astype(np.float64), sensor)
    variants = np.vstack([scaled, np.where(replaced, 0.0, scaled)])  # scaled values are relative to the median
    log_odds = sign * machine.log_odds(machine.decision(variants @ model.summary.axes[sensor].T.astype(np.float64)))
    return float(log_odds[0]), log_odds[0] - log_odds[1:]


def _discriminant(model: Model, sensor: int, pair: tuple[int, int]) -> tuple[Discriminant, float]:
    """Return the classifier of a sensor for two classes, and the factor that makes it positive for the second."""
    machine = model.machines[sensor]
    assert machine is not None
    return (machine, 1.0) if isinstance(machine, Discriminant) else machine.of_pair(*pair)


def _largest(
    model: Model,
    values: NDArray[Any],
    sensor: int,
    parts: list[SummaryValue],
    shares: Numbers,
    n: int,
    pair: tuple[int, int],
) -> list[DecidingValue]:
    order = np.argsort(-np.abs(shares), kind="stable")[:n]
    units = [_unit(part, model.settings["n_mels"]) for part in parts]
    typical = model.typical[:, sensor] * [factor for _, factor in units]
    return [
        DecidingValue(
            name=in_words(parts[place]),
            unit=units[place][0],
            value=float(values[place]) * units[place][1],
            typical=(_known(typical[pair[0], place]), _known(typical[pair[1], place])),
            log_odds=float(shares[place]),
            supports=model.classes[pair[int(shares[place] > 0)]],
        )
        for place in order.tolist()
        if abs(shares[place]) >= SMALLEST
    ]


def _unit(part: SummaryValue, n_mels: int) -> tuple[str, float]:
    """Return the unit of a value, and the factor to it: c0 is shown as the mean level of the mel bands."""
    if part.band_hz is not None:
        return "ln dB²", 1.0
    return "dB", n_mels**-0.5 if part.coefficient == 0 else 1.0


def in_words(part: SummaryValue) -> str:
    """Name a value for a signal engineer: "modulation of c0 at 1 to 3 Hz (loudness rhythm)"."""
    shape = _SHAPES.get(part.coefficient, "coarse spectral shape" if part.coefficient <= _COARSE else "spectral detail")
    if part.band_hz is not None:
        return f"{part} ({shape} {_RHYTHMS.get(part.band_hz, 'modulation')})"
    return f"{part} ({shape} variation)" if part.statistic == "deviation" else f"{part} ({shape})"


def _group(part: SummaryValue) -> str:
    if part.band_hz is None:
        return "means (average spectrum)" if part.statistic == "mean" else "deviations (variation)"
    low, high = part.band_hz
    return f"modulation at {low:g} to {high:g} Hz ({_RHYTHMS.get(part.band_hz, 'modulation')})"


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def fault_in_words(p_value: float, alpha: float) -> str | None:
    """Put the p-value of the timing in words: a small one is a sensor fault. None without a p-value."""
    if np.isnan(p_value):
        return None
    return f"{'sensor fault' if p_value <= alpha else 'no sensor fault'} ({written(p_value)})"


def known_in_words(p_known: float, alpha: float) -> str | None:
    """Put the p-value of the summary in words: a small one is a sound unlike every class. None without a p-value."""
    if np.isnan(p_known):
        return None
    return f"{'unlike every class' if p_known <= alpha else 'fits the classes'} ({written(p_known)})"


def sound_in_words(p_known: Sequence[float], alpha: float) -> str:
    """Say at how many sensors, given the p-value of the summary at each, the sound is unlike every class."""
    unlike, n = sum(p <= alpha for p in p_known), sum(p == p for p in p_known)
    if not n:
        return "no p-value"
    if not unlike:
        return "fits the classes"
    return f"unlike every class at {unlike} of {n} sensors" + ("; do not rely on the label" if unlike == n else "")


def written(p_value: float) -> str:
    """Write a p-value with two digits: "p 0.43", "p 0.0021"."""
    return f"p {p_value:.2f}" if p_value >= 0.1 else f"p {p_value:.2g}"
