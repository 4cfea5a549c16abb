"""From measures to findings: one small function for each cause.

A function looks at the last few seconds, the newest last, and gives one number for each sensor; NaN means "cannot
tell". A `Check` says from which number on something is the matter, and from which on it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from pipeline.conditions import Cause
from pipeline.events import Evidence, Mask, Numbers
from pipeline.health.measures import LOW, MANY_VALUES, MIDDLE, Measures
from pipeline.health.usual import Usual

LONGEST_SECONDS = 10
"""No check looks further back."""

History = Sequence[Measures]
Value = Callable[[History, Usual], Numbers]


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
        limit = np.where(active, self.leave, self.enter)
        out = values <= limit if self.below else values >= limit
        return np.where(np.isnan(values), active, out)

    def began(self, history: History, values: Numbers) -> Numbers:
        """The sample at which each sensor's trouble began, if it begins to show now."""
        back = np.zeros(len(values), np.int64)
        if self.counts_seconds:
            back = np.maximum(np.nan_to_num(values, nan=1), 1).astype(np.int64) - 1
        starts = np.array([one.start for one in history])
        return starts[np.clip(len(starts) - 1 - back, 0, len(starts) - 1)]

    def found(self, value: float) -> Evidence:
        return {self.evidence: value, "limit": self.enter}


def seconds_without_sound(history: History, usual: Usual) -> Numbers:
    """How long nothing has come."""
    missing = np.stack([one.missing for one in history]) >= 1
    return np.asarray(np.cumprod(missing[::-1], axis=0).sum(axis=0), np.float64)


def delivered_share(history: History, usual: Usual) -> Numbers:
    """Share of the last ten seconds in which sound came, if the source waits again and again; one wait is no stall."""
    waiting = [one.waited_seconds > 0 for one in history[-10:]]
    waits = sum(before and not after for before, after in pairwise(waiting))
    share = 1 - sum(waiting) / len(waiting) if waits >= 2 else 1.0
    return np.full(history[-1].n_sensors, share)


def missing_share(history: History, usual: Usual) -> Numbers:
    """Share of the last seconds that is lost, or stands still in the midst of sound; while nothing comes, untold."""
    recent = [one for one in history[-3:] if not one.waited_seconds]
    if not recent:
        return np.full(history[-1].n_sensors, np.nan)
    missing = np.stack([one.missing for one in recent])
    moving = np.stack([(one.values >= MANY_VALUES) & (one.level_db > -85) for one in recent])
    paused = np.stack([np.nan_to_num(one.pauses) for one in recent])
    share = (missing + moving * paused).mean(axis=0)
    return np.where(history[-1].missing < 1, share, np.nan)


def distinct_values(history: History, usual: Usual) -> Numbers:
    """How many values occur."""
    return history[-1].values


def level_dbfs(history: History, usual: Usual) -> Numbers:
    """Level; -inf where nothing moves."""
    return history[-1].level_db


def hum_ratio(history: History, usual: Usual) -> Numbers:
    """Power of mains harmonics in parts of the rest, the middle one of three seconds."""
    return _over(np.median, history[-3:], "hum")


def offset(history: History, usual: Usual) -> Numbers:
    """How far the mean is from zero, in parts of full scale; what slow rumble explains is none."""
    mean = np.abs(_over(np.median, history[-3:], "offset"))
    rumble = 10 ** (np.maximum(_over(np.median, history[-3:], "level_db"), -200) / 20)
    return np.where(mean <= 0.2 * rumble, 0.0, mean)


def share_at_rail(history: History, usual: Usual) -> Numbers:
    """Share of samples at full scale."""
    return history[-1].at_rail


def clipped_share(history: History, usual: Usual) -> Numbers:
    """Share of samples at full scale in a row, in five seconds; a tenth of it where the floor is not raised, too.

    Somebody who treads on the ground beside a sensor overdrives it for a moment; too much gain is never gone.
    """
    raised = np.fmax(above_array_db(history, usual, upper=True), above_own_db(history, usual)) > 6
    return _over(np.mean, history[-5:], "clipped") * np.where(raised, 1.0, 0.1)


def spikes_in_5_s(history: History, usual: Usual) -> Numbers:
    """Single samples far out, in five seconds."""
    return _over(np.sum, history[-5:], "spikes")


def alone_share(history: History, usual: Usual) -> Numbers:
    """Share of four seconds in which it crackles and nobody else hears anything like it."""
    return _over(np.mean, history[-4:], "alone")


def above_own_db(history: History, usual: Usual) -> Numbers:
    """How far the noise floor of four seconds lies above what is usual for the sensor."""
    return np.asarray((_floors(history) - usual.floor_db)[:, MIDDLE])


def above_array_db(history: History, usual: Usual, *, upper: bool) -> Numbers:
    """How far the noise floor of four seconds lies above that of the other sensors, the usual difference removed.

    Of an even number of others the upper or the lower one in the middle counts: one that is wrong may be among them.
    """
    levelled = (_floors(history) - usual.offset_db)[:, MIDDLE]
    return np.asarray(levelled - _of_others(levelled, upper=upper))


def louder_than_array_db(history: History, usual: Usual) -> Numbers:
    """How far its floor lies above that of the others; it must be louder than itself, too, or they are too quiet."""
    array, own = above_array_db(history, usual, upper=True), above_own_db(history, usual)
    return np.where(np.isnan(own), array, np.minimum(array, own + 9))


def softer_than_array_db(history: History, usual: Usual) -> Numbers:
    """Likewise below; it must be softer than itself, too, or they are too loud."""
    array, own = above_array_db(history, usual, upper=False), above_own_db(history, usual)
    return np.where(np.isnan(own), array, np.maximum(array, own - 5))


def rumble_above_array_db(history: History, usual: Usual) -> Numbers:
    """How far the least rumble of six seconds lies above the most at the other sensors: gusts come and go.

    It must have risen above its usual rumble, too, or the others are too quiet.
    """
    floors = np.stack([one.floor_db[:, LOW] for one in history[-6:]])
    least, most = floors.min(axis=0), np.fmax.reduce(floors)
    if len(floors) < 6:
        return np.full(len(least), np.nan)
    usually_more = usual.offset_db[:, LOW]
    above = least - usually_more - _of_others(most - usually_more, upper=True)
    own = least - usual.floor_db[:, LOW]
    return np.asarray(np.where(np.isnan(own), above, np.minimum(above, own + 3)))


def _of_others(values: Numbers, *, upper: bool) -> Numbers:
    """The middle one of the other sensors; NaN unless there are three in all: of two nobody knows which is wrong."""
    if np.isfinite(values).sum() < 3:
        return np.full(len(values), np.nan)
    table = np.tile(values, (len(values), 1))
    np.fill_diagonal(table, np.nan)
    n = np.isfinite(table).sum(axis=1)
    ordered = np.sort(table, axis=1)  # NaN comes last
    return np.asarray(ordered[np.arange(len(table)), n // 2 if upper else (n - 1) // 2])


def _floors(history: History) -> Numbers:
    """The lowest of four seconds: what comes and goes is sound, not floor."""
    if len(history) < 4:
        return np.full_like(history[-1].floor_db, np.nan)
    return np.asarray(np.fmin.reduce([one.floor_db for one in history[-4:]]))


def _over(summary: Callable[..., Numbers], history: History, name: str) -> Numbers:
    return np.asarray(summary([getattr(one, name) for one in history], axis=0), np.float64)


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
