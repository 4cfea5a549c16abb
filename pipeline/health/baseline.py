"""What is usual for an array: how loud each sensor is between sounds, and how sound travels from one to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import Mask, Numbers
from pipeline.health import cross_sensor_checks
from pipeline.health.cross_sensor_checks import ArrivalBaseline as UsualRelations
from pipeline.health.measures import BANDS_HZ, Measures

_LEAST_SECONDS = 5
_MOST_OFFSET_DB = 6.0
_FIRST_SECONDS, _PART_SECONDS, _PARTS = 60, 600, 144  # a day of ten minutes each; sound has a daily cycle
_MOST_WINDOWS = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Learned from many seconds of mostly healthy sensors; a NaN stands for a sensor nobody knows."""

    floor_db: Numbers  # (sensors, bands)
    offset_db: Numbers  # (sensors, bands): how far each sensor's floor lies above the middle one
    relations: UsualRelations | None = None

    @classmethod
    def nothing(cls, n_sensors: int) -> Baseline:
        """Before anything was heard: no sensor is known, and all are taken to be alike."""
        shape = n_sensors, len(BANDS_HZ)
        return cls(np.full(shape, np.nan), np.zeros(shape))

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"floor_db": self.floor_db, "offset_db": self.offset_db}
        if self.relations is not None:
            arrays["arrival_seconds"] = self.relations.arrival_seconds
            arrays["radius_seconds"] = np.array([self.relations.radius_seconds])
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Baseline:
        relations = None
        if "arrival_seconds" in arrays:
            relations = UsualRelations(arrays["arrival_seconds"], float(arrays["radius_seconds"][0]))
        return cls(arrays["floor_db"], arrays["offset_db"], relations)


def learn_usual(seconds: Sequence[Measures]) -> Baseline | None:
    """Medians over all seconds, which failures of less than half of the time do not move; None if there are few."""
    if len(seconds) < _LEAST_SECONDS:
        return None
    floors = np.stack([one.floor_db for one in seconds])
    own, offsets = _alike(floors)
    relations = [one.relations for one in seconds if one.relations is not None]
    every = -(-len(relations) // _MOST_WINDOWS) or 1
    return Baseline(
        floor_db=own,
        offset_db=offsets,
        relations=cross_sensor_checks.usual(relations[::every]) if relations else None,
    )


def _alike(floors: Numbers) -> tuple[Numbers, Numbers]:
    """Each sensor's floor, and how far it lies above the middle one, from (seconds, sensors, bands).

    Sensors of an array are alike within a few decibels; one that is not was ill all the time, and that is not usual.
    """
    own = median(floors)
    middle = median(own, axis=-2, keepdims=True)
    offsets = np.clip(median(floors - median(floors, axis=-2, keepdims=True)), -_MOST_OFFSET_DB, _MOST_OFFSET_DB)
    return np.clip(own, middle - _MOST_OFFSET_DB, middle + _MOST_OFFSET_DB), np.nan_to_num(offsets)


def median(values: Numbers, axis: int = 0, *, keepdims: bool = False) -> Numbers:
    """Of what is there; NaN where there is nothing."""
    ordered = np.sort(values, axis=axis)  # NaN comes last
    n = np.isfinite(values).sum(axis=axis, keepdims=True)
    places = np.maximum((n - 1) // 2, 0), np.minimum(n // 2, values.shape[axis] - 1)
    low, high = (np.take_along_axis(ordered, place, axis=axis) for place in places)
    middle = np.where(n > 0, (low + high) / 2, np.nan)
    return middle if keepdims else np.squeeze(middle, axis=axis)


class RunningUsual:
    """What is usual, from what was learned before and from the last day, in bounded memory.

    What was learned before speaks for the day before the stream began. How far sensors differ from each other is then
    not learned again, or a slow loss of gain would become usual; only who was told nothing learns it from the stream.
    """

    remembers = ("_n_seconds", "_begun", "_day", "_settled")

    def __init__(self, given: Baseline | None, n_sensors: int) -> None:
        self.current = given or Baseline.nothing(n_sensors)
        self._given = given
        self._part = np.full((_PART_SECONDS, *self.current.floor_db.shape), np.nan)
        self._day = np.full((_PARTS, *self.current.floor_db.shape), np.nan)
        self._n_seconds = 0
        if given is not None:
            self._day[:] = given.floor_db

    def learn(self, second: Measures, well: Mask) -> None:
        """Take a second into account, of the sensors that are well."""
        part, place = divmod(self._n_seconds, _PART_SECONDS)
        self._part[place] = np.where(well[:, None], second.floor_db, np.nan)
        self._n_seconds += 1
        if place + 1 == _PART_SECONDS:
            self._day[part % _PARTS] = median(self._part)
            self._settle(self._day)
        elif self._n_seconds == _FIRST_SECONDS and self._given is None:
            self._settle(median(self._part[:_FIRST_SECONDS])[None])

    def _settle(self, floors: Numbers) -> None:
        own, offsets = _alike(floors)
        self._settled = own, self._given.offset_db if self._given else offsets

    @property
    def _settled(self) -> tuple[Numbers, Numbers]:
        return self.current.floor_db, self.current.offset_db

    @_settled.setter
    def _settled(self, levels: tuple[Numbers, Numbers]) -> None:
        self.current = Baseline(*levels, self.current.relations)

    @property
    def _begun(self) -> Numbers:
        """Of the part that is being filled, what is new."""
        return self._part[: self._n_seconds % _PART_SECONDS]

    @_begun.setter
    def _begun(self, seconds: Numbers) -> None:
        self._part[: len(seconds)] = seconds
