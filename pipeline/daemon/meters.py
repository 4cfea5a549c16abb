"""What can be counted and measured of the array while it is heard, in few numbers for each sensor."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import (
    Block,
    CalibrationChanged,
    Decision,
    Gap,
    Mask,
    ModelChanged,
    Numbers,
    Paced,
    RecordingStarted,
    StateChanged,
)
from pipeline.core.sensor_state import Cause, State
from pipeline.health.checks import CHECKS
from pipeline.health.cross_sensor import Relations
from pipeline.health.measures import MIDDLE, Measures
from pipeline.health.sequential_tests import Calibration

P_VALUE_EDGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Upper ends of the bins in which p-values are counted, inclusive."""
_MINUTE, _FIVE_MINUTES, _HOUR = 60, 300, 3600
_LEAST_PACED_SECONDS = 60.0
_NOT_LIVE = 1.5  # times as fast as it should be: somebody plays a recording
_MOST_BLOCKS = 600
_LEAST_SENSORS = 3  # of two nobody knows which one is wrong
_SILENT = next(check for check in CHECKS if check.cause is Cause.SILENT)


class Meters:
    """An observer that counts since it was made, and remembers measures of the last minute, and shares of the hour.

    `hear` is told what the source gives, `observe` what came of it.
    """

    def __init__(self, n_sensors: int, rate_hz: int, *, wall: Callable[[], float] = time.time) -> None:
        self._n_sensors, self._rate_hz, self._wall = n_sensors, rate_hz, wall
        self.alpha = 0.01
        self._counts = {
            name: np.zeros(n_sensors, np.int64)
            for name in ("samples", "samples_lost", "gaps", "samples_clipped", "spikes", "windows", "refused")
        }
        self._p_counts = np.zeros((n_sensors, len(P_VALUE_EDGES)), np.int64)
        self._p_sums = np.zeros(n_sensors)
        self._delivered = np.ones(n_sensors, np.bool_)
        self._last_frame = np.full(n_sensors, np.nan)
        self._last: Measures | None = None
        self._waiting = False
        self._silent = np.zeros(n_sensors, np.bool_)
        self._silences: deque[Mask] = deque(maxlen=_FIVE_MINUTES)
        self._floors: deque[Numbers] = deque(maxlen=_MINUTE)
        self._shared: deque[Numbers] = deque(maxlen=_MINUTE)
        self._hour = _LastHour(n_sensors)
        self._measures: dict[str, list[Any]] | None = None
        self._paced: deque[Paced] = deque(maxlen=_MINUTE)
        self._states = [State.UNKNOWN] * n_sensors
        self._forget_model()

    def _forget_model(self) -> None:
        self._calibrations = [Calibration(self.alpha) for _ in range(self._n_sensors)]
        self._calibration_lost = [False] * self._n_sensors
        self._next = 0

    def hear(self, fact: object) -> None:
        if isinstance(fact, Block):
            self._arrived(fact.stop - fact.start, fact.delivered)
        elif isinstance(fact, Gap) and fact.recorded:
            self._counts["samples_lost"] += fact.stop - fact.start
            self._counts["gaps"] += 1

    def _arrived(self, length: int, delivered: Mask) -> None:
        self._counts["samples"] += length * delivered
        if not (delivered.all() and self._delivered.all()):
            self._counts["samples_lost"] += length * ~delivered
            self._counts["gaps"] += self._delivered & ~delivered
            self._delivered = delivered
        self._last_frame[delivered] = self._wall()

    def observe(self, event: object, /) -> None:
        if isinstance(event, Measures):
            self._measured(event)
        elif isinstance(event, Decision):
            self._decided(event)
        elif isinstance(event, StateChanged):
            self._states[event.sensor] = event.state
        elif isinstance(event, CalibrationChanged):
            self._calibration_lost[event.sensor] = event.lost
        elif isinstance(event, Paced):
            self._paced.append(event)
        elif isinstance(event, RecordingStarted):
            self._states = [State.UNKNOWN] * self._n_sensors
            self._forget_model()
        elif isinstance(event, ModelChanged):
            self._forget_model()

    def close(self) -> None:
        pass

    def _measured(self, second: Measures) -> None:
        self._measures = None
        seconds = (second.stop - second.start) / self._rate_hz + second.waited_seconds
        self._hour.add(seconds, (1 - second.missing) * seconds)
        if second.waited_seconds:
            # The gap that ends the wait is not counted again: it says that nothing was recorded.
            self._counts["samples_lost"] += round(second.waited_seconds * self._rate_hz)
            self._counts["gaps"] += not self._waiting
        self._waiting = second.waited_seconds > 0
        self._last = second
        heard = np.round((1 - second.missing) * (second.stop - second.start))
        self._counts["samples_clipped"] += np.rint(np.nan_to_num(second.clipped) * heard).astype(np.int64)
        self._counts["spikes"] += np.nan_to_num(second.spikes).astype(np.int64)
        self._silent = _SILENT.out_of_limits(second.level_db, self._silent)
        self._silences.append(self._silent)
        self._floors.append(second.floor_db)
        if second.relations is not None:
            self._shared.append(in_common(second.relations))

    def _decided(self, decision: Decision) -> None:
        p_values, span = decision.verdicts.screened.p_values, decision.features.span
        (known,) = np.nonzero(~np.isnan(p_values))
        self._counts["windows"][known] += 1
        self._counts["refused"][known] += p_values[known] <= self.alpha
        self._p_counts[known, np.searchsorted(P_VALUE_EDGES, p_values[known])] += 1
        self._p_sums[known] += p_values[known]
        if span.start >= self._next:  # else its sound is part of a segment that was counted
            self._next = span.stop
            for sensor in known.tolist():
                if self._states[sensor] is State.GOOD:
                    self._calibrations[sensor].take(float(p_values[sensor]))

    @property
    def rate_error(self) -> float | None:
        """By which share sound comes faster than it should, of a source with a clock of its own."""
        seconds, samples = sum(one.seconds for one in self._paced), sum(one.samples for one in self._paced)
        if seconds < _LEAST_PACED_SECONDS:
            return None
        ratio = samples / (seconds * self._rate_hz)
        return round(ratio - 1, 5) if ratio < _NOT_LIVE else None

    def sensors(self) -> list[dict[str, Any]]:
        """Ready for JSON; null where something cannot be told."""
        columns = self._columns()
        return [
            {name: column[sensor] for name, column in columns.items()}
            | {"p_values": {"counts": self._p_counts[sensor].tolist(), "sum": round(float(self._p_sums[sensor]), 3)}}
            for sensor in range(self._n_sensors)
        ]

    def _columns(self) -> dict[str, list[Any]]:
        if self._measures is None:  # they change once a second, and are asked for more often
            self._measures = self._measured_columns()
        return self._measures | {
            "rate_error": [self.rate_error] * self._n_sensors,
            "last_frame": _numbers(self._last_frame, 2),
            **{name: counts.tolist() for name, counts in self._counts.items()},
            "false_alarms": [round(one.realised, 5) if one.trials else None for one in self._calibrations],
            "calibration_lost": list(self._calibration_lost),
        }

    def _measured_columns(self) -> dict[str, list[Any]]:
        nothing = np.full(self._n_sensors, np.nan)
        last, floors = self._last, _lowest(self._floors, self._n_sensors)
        polarity, coherence, crosstalk = _means(self._shared, self._n_sensors)
        return {
            "level_dbfs": _numbers(last.level_db if last else nothing, 2),
            "silent": self._silent.tolist(),
            "silence_ratio": _numbers(np.mean(self._silences, axis=0) if self._silences else nothing, 3),
            "floor_dbfs": [_numbers(row, 2) for row in floors],
            "gain_db": _numbers(_above_median(floors[:, MIDDLE]), 2),
            "hum_to_rest": _numbers(last.hum if last else nothing, 5),
            "distinct_values": _numbers(last.values if last else nothing, 0),
            "offset_of_full_scale": _numbers(np.abs(last.offset) if last else nothing, 6),
            "polarity": _numbers(polarity, 3),
            "coherence": _numbers(coherence, 3),
            "crosstalk": _numbers(crosstalk, 3),
            "availability_1h": _numbers(self._hour.share, 5),
        }


class Load:
    """How much of the time that sound lasts is needed to decide about it and to store what was decided."""

    def __init__(self, rate_hz: int, *, steady: Callable[[], float] = time.perf_counter) -> None:
        self._rate_hz, self._steady = rate_hz, steady
        self._began = self._busy = 0.0
        self._factors: deque[float] = deque(maxlen=_MOST_BLOCKS)

    def begin(self) -> None:
        self._began = self._steady()

    def end(self, fact: object) -> None:
        self._busy += self._steady() - self._began
        if isinstance(fact, Block):
            self._factors.append(self._busy * self._rate_hz / (fact.stop - fact.start))
            self._busy = 0.0

    @property
    def factor(self) -> float | None:
        """That 95 of 100 blocks of the last minutes stay below; above 1 it does not keep up."""
        if not self._factors:
            return None
        return round(sorted(self._factors)[int(0.95 * (len(self._factors) - 1))], 5)


class _LastHour:
    """Which share of the last hour each sensor has delivered, by the minute."""

    def __init__(self, n_sensors: int) -> None:
        self._n_sensors = n_sensors
        self._minutes: deque[NDArray[np.float64]] = deque(maxlen=_HOUR // _MINUTE)

    def add(self, seconds: float, heard: Numbers) -> None:
        if not self._minutes or self._minutes[-1][0] >= _MINUTE:
            self._minutes.append(np.zeros(1 + self._n_sensors))
        self._minutes[-1][0] += seconds
        self._minutes[-1][1:] += heard

    @property
    def share(self) -> Numbers:
        if not self._minutes:
            return np.full(self._n_sensors, np.nan)
        total = np.sum(self._minutes, axis=0)
        return np.asarray(total[1:] / total[0])


def in_common(relations: Relations) -> Numbers:
    """(3, sensors) of one window: sign of what it shares with the others, how much that is, how much comes at once.

    The sign is the mean of the largest correlations with each other sensor, where there is something in common; how
    much, the mean of their magnitudes; at once, the largest magnitude at no delay. NaN where nothing can be told.
    """
    known = np.asarray(relations.known[relations.pairs].all(axis=1))
    mine = (relations.pairs[:, :, None] == np.arange(relations.n_sensors)).any(axis=1) & known[:, None]
    shared = np.isfinite(relations.lag_seconds)
    times = (shared @ mine.astype(np.float64)).sum(axis=0)
    signs = ((relations.correlation * shared) @ mine.astype(np.float64)).sum(axis=0)
    partners = mine.sum(axis=0)
    alike = np.abs(relations.correlation).mean(axis=0) @ mine
    at_once = (np.abs(relations.at_once).mean(axis=0)[:, None] * mine).max(axis=0, initial=0.0)
    return np.stack([
        np.where(times > 0, signs / np.maximum(times, 1), np.nan),
        np.where(partners > 0, alike / np.maximum(partners, 1), np.nan),
        np.where(partners > 0, at_once, np.nan),
    ])  # fmt: skip


def _means(rows: deque[Numbers], n_sensors: int) -> Numbers:
    """(3, sensors) over those rows that can tell."""
    if not rows:
        return np.full((3, n_sensors), np.nan)
    values = np.stack(rows)
    known = np.isfinite(values)
    n = known.sum(axis=0)
    return np.where(n > 0, np.where(known, values, 0).sum(axis=0) / np.maximum(n, 1), np.nan)


def _lowest(floors: deque[Numbers], n_sensors: int) -> Numbers:
    """(sensors, bands): what comes and goes is sound, not floor."""
    return np.asarray(np.fmin.reduce(floors)) if floors else np.full((n_sensors, 2), np.nan)


def _above_median(floors: Numbers) -> Numbers:
    known = floors[np.isfinite(floors)]
    return floors - np.median(known) if len(known) >= _LEAST_SENSORS else np.full(len(floors), np.nan)


def _numbers(values: Numbers, digits: int) -> list[float | None]:
    """As JSON knows them: the level of a sensor where nothing moves is null, never 0."""
    return [round(value, digits) if isfinite(value) else None for value in values.tolist()]
