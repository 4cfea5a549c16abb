"""From measures to findings: one small function for each cause.

A function looks at the last few seconds and gives one number for each sensor; NaN means "cannot tell". A `Check` says
from which number on something is the matter, and from which on it is over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from pipeline.core.events import Evidence, Mask, Numbers
from pipeline.core.sensor_state import Cause
from pipeline.health.baseline import Baseline
from pipeline.health.measures import COLUMNS, FLOORS, LOW, MANY_VALUES, MIDDLE, Measures

LONGEST_SECONDS = 10
"""No check looks further back."""


class Recent:
    """The last seconds, the newest last, as one table, and what is usual: what checks look at."""

    def __init__(self, seconds: Sequence[Measures], usual: Baseline) -> None:
        self.seconds, self.usual = seconds, usual
        self.waiting = [one.waited_seconds > 0 for one in seconds]
        self.table = np.array([one.table for one in seconds])  # (seconds, columns, sensors)

    def last(self, name: str, n: int) -> Numbers:
        """(seconds, sensors) of at most `n` seconds."""
        return np.asarray(self.table[-n:, COLUMNS[name]])

    def newest(self, name: str) -> Numbers:
        return np.asarray(self.table[-1, COLUMNS[name]])

    def unknown(self) -> Numbers:
        return np.full(self.table.shape[2], np.nan)

    def nothing(self) -> Numbers:
        return np.zeros(self.table.shape[2])

    def middle(self, name: str) -> Numbers:
        """The middle one of three seconds; of fewer their mean."""
        return np.asarray(self._middle[COLUMNS[name]])

    @cached_property
    def _middle(self) -> Numbers:
        if len(self.table) < 3:
            return np.asarray(self.table.mean(axis=0))
        a, b, c = self.table[-3:]
        return np.asarray(np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)))  # NaN if any of them is

    @cached_property
    def floors(self) -> Numbers:
        """(bands, sensors) the lowest of four seconds: what comes and goes is sound, not floor."""
        floors = self.table[-4:, FLOORS]
        return np.fmin.reduce(floors) if len(floors) == 4 else np.full(floors.shape[1:], np.nan)

    @cached_property
    def above_array(self) -> tuple[Numbers, Numbers]:
        """How far each floor lies above the lower and the upper one in the middle of the other sensors."""
        levelled = self.floors[MIDDLE] - self.usual.offset_db[:, MIDDLE]
        lower, upper = _of_others(levelled)
        return levelled - lower, levelled - upper


Value: TypeAlias = Callable[[Recent], Numbers]


@dataclass(frozen=True, slots=True)
class Check:
    """When something is the matter with a sensor, and when no more: two limits, so that it does not flicker."""

    cause: Cause
    evidence: str
    """What the number is called, with its unit."""
    value: Value
    enter: float
    leave: float
    below: bool = False
    """Whether it is small numbers that are bad."""
    blinds: bool = False
    """Whether its sound cannot be compared with that of others meanwhile."""
    counts_seconds: bool = False
    """Whether the number is that of seconds it has lasted already."""
    looks_back_seconds: int = 1
    """How many seconds the number speaks of."""
    confirm_seconds: int = 2
    clear_seconds: int = 3

    def out_of_limits(self, values: Numbers, active: Mask) -> Mask:
        """Which sensors are, those that already were by the laxer limit; who cannot be told stays as it was."""
        return np.asarray(Limits([self]).exceeded(values[None], active[None])[0])

    def began(self, seconds: Sequence[Measures], value: float) -> int:
        """The sample at which the trouble began, if it begins to show now."""
        back = max(int(value), 1) - 1 if self.counts_seconds else 0
        return seconds[max(len(seconds) - 1 - back, 0)].start

    def found(self, value: float) -> Evidence:
        return {self.evidence: value, "limit": self.enter}


class Limits:
    """The limits of several checks over all sensors."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self.sign = np.array([[-1.0 if check.below else 1.0] for check in checks])
        """What makes large numbers of those that are bad."""
        self._enter = self.sign * np.array([[check.enter] for check in checks])
        self._leave = self.sign * np.array([[check.leave] for check in checks])

    def exceeded(self, values: Numbers, active: Mask) -> Mask:
        """Where (checks, sensors) are out of limits, those that already were by the laxer limit.

        What cannot be told stays as it was.
        """
        out = self.sign * values >= np.where(active, self._leave, self._enter)
        return np.asarray(out | (active & np.isnan(values)))


def seconds_without_sound(recent: Recent) -> Numbers:
    """How long nothing has come."""
    missing = recent.last("missing", LONGEST_SECONDS) >= 1
    return (
        np.asarray(np.cumprod(missing[::-1], axis=0).sum(axis=0), np.float64) if missing[-1].any() else recent.nothing()
    )


def delivered_share(recent: Recent) -> Numbers:
    """Share of the last ten seconds in which sound came, if the source waits again and again; one wait is no stall."""
    waiting = recent.waiting[-10:]
    waits = sum(before and not after for before, after in pairwise(waiting))
    return recent.nothing() + (1 - sum(waiting) / len(waiting) if waits >= 2 else 1.0)


def missing_share(recent: Recent) -> Numbers:
    """Share of the last seconds that is lost, or stands still in the midst of sound; while nothing comes, untold."""
    missing, pauses = recent.last("missing", 3), recent.last("pauses", 3)
    if not (missing.any() or pauses.any()):
        return recent.nothing()
    recorded = ~np.array(recent.waiting[-3:])
    if not recorded.any():
        return recent.unknown()
    moving = (recent.last("values", 3) >= MANY_VALUES) & (recent.last("level_db", 3) > -85)
    share = (missing + moving * np.nan_to_num(pauses))[recorded].mean(axis=0)
    return np.where(missing[-1] < 1, share, np.nan)


def distinct_values(recent: Recent) -> Numbers:
    """How many values occur."""
    return recent.newest("values")


def level_dbfs(recent: Recent) -> Numbers:
    """Level; -inf where nothing moves."""
    return recent.newest("level_db")


def hum_ratio(recent: Recent) -> Numbers:
    """Power of mains harmonics in parts of the rest, the middle one of three seconds."""
    return recent.middle("hum")


def offset(recent: Recent) -> Numbers:
    """How far the mean is from zero, in parts of full scale; what slow rumble explains is none."""
    mean = np.abs(recent.middle("offset"))
    rumble = 10 ** (np.maximum(recent.middle("level_db"), -200) / 20)
    return np.where(mean <= 0.2 * rumble, 0.0, mean)


def share_at_rail(recent: Recent) -> Numbers:
    """Share of samples at full scale."""
    return recent.newest("at_rail")


def clipped_share(recent: Recent) -> Numbers:
    """Share of samples at full scale in a row, in five seconds; a tenth of it where the floor is not raised, too.

    Somebody who treads on the ground beside a sensor overdrives it for a moment; too much gain is never gone.
    """
    clipped = recent.last("clipped", 5)
    if not clipped.any():
        return recent.nothing()
    raised = np.fmax(above_array_db(recent, upper=True), above_own_db(recent)) > 6
    return np.asarray(clipped.mean(axis=0) * np.where(raised, 1.0, 0.1))


def spikes_in_5_s(recent: Recent) -> Numbers:
    """Single samples far out, in five seconds."""
    return np.asarray(recent.last("spikes", 5).sum(axis=0))


def alone_share(recent: Recent) -> Numbers:
    """Share of four seconds in which it crackles and nobody else hears anything like it."""
    return np.asarray(recent.last("alone", 4).mean(axis=0))


def above_own_db(recent: Recent) -> Numbers:
    """How far the noise floor of four seconds lies above what is usual for the sensor."""
    return np.asarray(recent.floors[MIDDLE] - recent.usual.floor_db[:, MIDDLE])


def above_array_db(recent: Recent, *, upper: bool) -> Numbers:
    """How far the noise floor of four seconds lies above that of the other sensors, the usual difference removed.

    Of an even number of others the upper or the lower one in the middle counts: one that is wrong may be among them.
    """
    return recent.above_array[upper]


def louder_than_array_db(recent: Recent) -> Numbers:
    """How far its floor lies above that of the others; it must be louder than itself, too, or they are too quiet."""
    array, own = above_array_db(recent, upper=True), above_own_db(recent)
    return np.where(np.isnan(own), array, np.minimum(array, own + 9))


def softer_than_array_db(recent: Recent) -> Numbers:
    """Likewise below; it must be softer than itself, too, or they are too loud."""
    array, own = above_array_db(recent, upper=False), above_own_db(recent)
    return np.where(np.isnan(own), array, np.maximum(array, own - 5))


def rumble_above_array_db(recent: Recent) -> Numbers:
    """How far the least rumble of six seconds lies above the most at the other sensors: gusts come and go.

    It must have risen above its usual rumble, too, or the others are too quiet.
    """
    floors = recent.table[-6:, FLOORS][:, LOW]
    if len(floors) < 6:
        return recent.unknown()
    least, usually_more = floors.min(axis=0), recent.usual.offset_db[:, LOW]
    above = least - usually_more - _of_others(np.fmax.reduce(floors) - usually_more)[1]
    own = least - recent.usual.floor_db[:, LOW]
    return np.asarray(np.where(np.isnan(own), above, np.minimum(above, own + 3)))


def _of_others(values: Numbers) -> tuple[Numbers, Numbers]:
    """The middle one of the other sensors, of two the lower one and the upper one.

    NaN unless there are three in all: of two nobody knows which is wrong.
    """
    told = values.tolist()
    ordered = sorted(value for value in told if value == value)
    if len(ordered) < 3:
        unknown = np.full(len(told), np.nan)
        return unknown, unknown
    places = [bisect_left(ordered, value) if value == value else len(ordered) for value in told]
    n_others = [len(ordered) - (place < len(ordered)) for place in places]
    lower, upper = (
        [ordered[middle + (middle >= place)] for middle, place in zip(middles, places, strict=True)]
        for middles in ([(n - 1) // 2 for n in n_others], [n // 2 for n in n_others])
    )
    return np.array(lower), np.array(upper)


_SPOILT = partial(Check, blinds=True)
_GAIN = partial(Check, looks_back_seconds=4)

CHECKS = (
    _SPOILT(
        Cause.NO_FRAMES, "seconds_without_sound", seconds_without_sound, 5, 1, confirm_seconds=1, counts_seconds=True
    ),
    Check(Cause.STALLED_RATE, "delivered_share", delivered_share, 0.7, 0.9, below=True, looks_back_seconds=10),
    _SPOILT(Cause.FLAT, "distinct_values", distinct_values, enter=2, leave=3, below=True),
    _SPOILT(Cause.SILENT, "level_dbfs", level_dbfs, enter=-95, leave=-80, below=True),
    _SPOILT(Cause.PEGGED, "share_at_rail", share_at_rail, enter=0.5, leave=0.25),
    _SPOILT(Cause.GAP, "missing_share", missing_share, 0.002, 0.001, confirm_seconds=1, looks_back_seconds=3),
    Check(Cause.DC_OFFSET, "offset_of_full_scale", offset, 0.01, 0.005, looks_back_seconds=3),
    _SPOILT(Cause.HUM_ONLY, "hum_to_rest", hum_ratio, 0.07, 0.03, confirm_seconds=1, looks_back_seconds=3),
    _SPOILT(Cause.CLIPPING, "clipped_share", clipped_share, 1e-4, 1e-4, looks_back_seconds=5),
    _SPOILT(Cause.SPIKES, "spikes_in_5_s", spikes_in_5_s, enter=6, leave=3, looks_back_seconds=5),
    _GAIN(Cause.LOW_GAIN, "above_array_db", softer_than_array_db, -10, -7, below=True, confirm_seconds=3),
    _GAIN(Cause.LOW_GAIN, "above_own_db", above_own_db, -20, -16, below=True, confirm_seconds=3),
    _GAIN(Cause.HIGH_GAIN, "above_array_db", louder_than_array_db, enter=15, leave=10),
    Check(
        Cause.HIGH_GAIN, "rumble_above_array_db", rumble_above_array_db, 12, 8, confirm_seconds=1, looks_back_seconds=6
    ),
    _GAIN(Cause.HIGH_GAIN, "above_own_db", above_own_db, enter=30, leave=25),
    _GAIN(Cause.HIGH_GAIN, "alone_share", alone_share, 0.05, 0.02, confirm_seconds=3, blinds=True),
)
