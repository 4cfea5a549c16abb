"""Which sensor is at fault when sensors that stand together do not hear the same, or hear too much of the same.

Every check looks at the relations of the last seconds, the oldest first, and gives evidence by sensor. A check that
cannot know, because nothing was heard in common, says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from itertools import combinations, takewhile
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.health.cross_sensor import (
    ALL_PAIRS_UP_TO,
    EVERY_SECONDS,
    HOP_SECONDS,
    Floats,
    Indices,
    Mask,
    Relations,
    blurring,
)

Numbers: TypeAlias = NDArray[np.float64]
Evidence: TypeAlias = dict[str, float]
Found: TypeAlias = dict[int, Evidence]
"""Evidence by sensor at fault."""
_Result = TypeVar("_Result")

HISTORY = 10
"""No check looks further back than so many windows."""
MOST_REFERENCES = 600
_NEIGHBOURS = 3
_NEAR = 0.15  # in parts of the delays across the array
_LEAST_SHARE = 0.01  # of all sounds come from near a place that is usual
_EVENTS_PER_WINDOW = 3
_HEARD_BY = 4  # sensors, or all of three: fewer delays fit too many places
_LEAK = 0.25  # correlation at once, of independent noise a few hundredths
_LEAK_WINDOWS = 4
_OFTEN, _MISFIT, _LARGE_MISFIT = 0.75, 0.2, 0.8  # what tells the victim of a leak from its source
_SIGN_WINDOWS = 3
_SIGN = 0.5
_DEAF_WINDOWS, _DEAF_LEAST, _DEAF_FRAMES, _DEAF_SHARE, _WITNESSED = 6, 4, 8, 0.1, 0.5
_FAINT = 0.6
_ACTIVE_DB = 5.0
_SWAP_SECONDS, _SWAP_EVENTS = 5, 6
_IMPROVEMENT, _AMBIGUOUS = 0.7, 0.5
_BLUR_OF_SWAPPED, _BLUR_OF_DRIFT = 0.2, 0.08
_STRETCH_WINDOWS, _STRETCH_LEAST, _LEAST_STRETCH, _STRETCH_ALIKE = 6, 3, 0.004, 0.0035
_RATE_WINDOWS = (4, 5, 6, 8)
_RATE_EVENTS, _RATE_LEAST = 6, 4  # sounds, and windows with sounds
_RATES = (1e-3, 15e-3)  # beyond, sound is too blurred to be heard as the same


def _once_a_window(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Keep what a function finds in a window with the window, which is looked back upon in many seconds."""

    @wraps(function)
    def find(window: Relations, *more: object) -> _Result:
        kept = vars(window).setdefault("kept", {})
        what = (function, *more)
        if what not in kept:
            kept[what] = function(window, *more)
        found: _Result = kept[what]
        return found

    return find


def forget(window: Relations) -> None:
    """Free what was found in a window that is not looked back upon any more."""
    vars(window).pop("kept", None)


@dataclass(frozen=True, eq=False)
class ArrivalBaseline:
    """When the sensors of an array hear something, for sounds from where they usually come."""

    arrival_seconds: Floats
    """(sounds, sensors), around 0, NaN where one did not hear it."""
    radius_seconds: float
    """Sounds that differ by less come from about the same place."""

    @cached_property
    def factors(self) -> tuple[Numbers, Numbers, Numbers]:
        """What sounds are multiplied by for their distances from the usual ones."""
        return _factors(self.arrival_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class _Sounds:
    """What several sensors heard lately."""

    seconds: Numbers
    """When, from the first window on."""
    arrival_seconds: Floats
    """(sounds, sensors)"""
    blur: Floats
    """(sounds, sensors) how much less a sensor is like the others than they are like each other."""

    def __len__(self) -> int:
        return len(self.seconds)

    def since(self, second: float) -> _Sounds:
        """Those from a moment on, which is the new beginning."""
        first = int(np.searchsorted(self.seconds, second))
        return _Sounds(self.seconds[first:] - second, self.arrival_seconds[first:], self.blur[first:])

    @property
    def lasting_seconds(self) -> float:
        return float(self.seconds[-1] - self.seconds[0]) if len(self) else 0.0


def usual(windows: Iterable[Relations]) -> ArrivalBaseline:
    """Learn it from windows in most of which most sensors are well."""
    kept: list[Floats] = []
    every, n_seen, n_sensors = 1, 0, 0
    for window in windows:
        n_sensors = window.n_sensors
        for row in window.arrival_seconds[_clearest(window)]:
            n_seen += 1
            if n_seen % every == 0:
                kept.append(row)
            if len(kept) >= 2 * MOST_REFERENCES:  # every other one will do
                kept, every = kept[::2], 2 * every
    rows = np.array(kept, np.float32).reshape(len(kept), n_sensors)
    if not len(rows):
        return ArrivalBaseline(rows, 0.0)
    radius = _NEAR * float(np.median(np.nanstd(rows, axis=1)))
    neighbours = (_distances(rows, rows) < radius).sum(axis=1) - 1
    common = rows[neighbours >= max(_NEIGHBOURS, _LEAST_SHARE * len(rows))]
    return ArrivalBaseline(common[:: 1 + len(common) // (MOST_REFERENCES + 1)], radius)


def causes(
    history: Sequence[Relations],
    known: ArrivalBaseline | None = None,
    standing: Mapping[str, Collection[int]] | None = None,
) -> dict[str, Found]:
    """All checks, where one does not explain what another one found: evidence by cause and sensor.

    `standing` are the sensors by cause that were found before and have not recovered: what was decided when a fault
    began cannot always be decided again later.
    """
    standing = standing or {}
    found = {"crosstalk": crosstalk(history, known), "polarity": polarity(history)}
    found["rate_error"] = rate_error(history, known)
    moved = {*found["rate_error"], *standing.get("rate_error", ())}
    # Sounds that come late at one sensor seem to come from elsewhere.
    found["swapped"] = swapped(history, known, standing.get("swapped", ())) if known and not moved else {}
    found |= {"stale": {}, "incoherent": {}}
    for sensor, evidence in unrelated(history).items():
        if sensor in moved:  # so late by now that it has left all lags
            found["rate_error"].setdefault(sensor, evidence)
        elif evidence["activity_db"] > _ACTIVE_DB:
            found["stale"][sensor] = evidence
        elif evidence["others_heard"] >= 1.5 * _DEAF_FRAMES:  # it may be too far away, or in the wind
            found["incoherent"][sensor] = evidence
    return found


def crosstalk(history: Sequence[Relations], known: ArrivalBaseline | None = None) -> Found:
    """Two sensors hear the same at once, even in quiet: the one that fits the others worse is the victim."""
    found: Found = {}
    if len(history) < _LEAK_WINDOWS:
        return found
    for pair in sorted(set[int].intersection(*map(_leaking_pairs, history[-_LEAK_WINDOWS:]))):
        a, b = history[-1].pairs[pair].tolist()
        leaking = _leaking(history, pair)
        weaker, misfit = _weaker(leaking, a, b), _misfit(leaking, a, b, known)
        decided = _victim(weaker, misfit)
        if decided:
            victim, source = (a, b) if decided > 0 else (b, a)
            at_once = float(np.median([window.at_once[:, pair] for window in leaking]))
            found[victim] = {
                "with_sensor": source, "correlation": at_once, "weaker": abs(weaker), "misfit": abs(misfit)
            }  # fmt: skip
    return found


def polarity(history: Sequence[Relations]) -> Found:
    """A sensor is the negative of all that it hears together with others, which agree among themselves."""
    found: Found = {}
    agreement, weight = _agreement(history[-_SIGN_WINDOWS:])
    for sensor in range(len(agreement)):
        others = np.flatnonzero(weight[sensor] > 0.05)
        if len(others) < 2 or not (agreement[sensor, others] < -_SIGN).all():
            continue
        among = agreement[np.ix_(others, others)][np.triu_indices(len(others), 1)]
        if (among > _SIGN).all():
            found[sensor] = {"agreement": float(agreement[sensor, others].mean()), "with_sensors": len(others)}
    return found


def unrelated(history: Sequence[Relations]) -> Found:
    """A sensor hears nothing of what others hear together."""
    recent = history[-_DEAF_WINDOWS:]
    seen = [one for one in map(_witnessed, recent) if one is not None]
    if len(seen) < _DEAF_LEAST:
        return {}
    n_witnessed, n_heard, n_everyone = np.sum([(one.witnessed, one.heard, one.by_all) for one in seen], axis=0)
    n_windows = np.sum([one.witnessed > 0 for one in seen], axis=0)
    deaf = (n_windows >= _DEAF_LEAST) & (n_witnessed >= _DEAF_FRAMES) & (n_heard <= _DEAF_SHARE * n_witnessed)
    found: Found = {}
    for sensor in np.flatnonzero(deaf).tolist():
        activity_db = float(np.median([window.activity_db[:, sensor].max() for window in recent]))
        # Somebody who is far away is heard by those near him only: no wonder then.
        if activity_db > _ACTIVE_DB or n_everyone[sensor] >= _DEAF_FRAMES:
            others_heard, heard = int(n_witnessed[sensor]), int(n_heard[sensor])
            found[sensor] = {"others_heard": others_heard, "heard": heard, "activity_db": activity_db}
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Witnessed:
    """Frames in which the others clearly hear something, (sensors,) each."""

    witnessed: Indices
    heard: Indices
    """Of these, those in which the sensor does, too;"""
    by_all: Indices
    """and those in which all others do, with delays that add up."""


@_once_a_window
def _witnessed(window: Relations) -> _Witnessed | None:
    """None if nobody witnessed anything."""
    if np.abs(window.correlation).max(initial=0) <= _WITNESSED:
        return None
    mine = (window.pairs[:, :, None] == np.arange(window.n_sensors)).any(axis=1)  # (pairs, sensors)
    likeness = np.abs(window.correlation)[:, :, None]
    own, others = (np.where(which, likeness, 0).max(axis=1, initial=0) for which in (mine, ~mine))
    placed = np.isfinite(window.arrival_seconds)
    others_placed = placed.sum(axis=1, keepdims=True) - placed
    if window.n_sensors > 3:
        # Drops on two housings sound alike, too, but the delays between three of them do not add up.
        others = np.where(others_placed >= 3, others, 0)
    heard = (np.isfinite(window.lag_seconds)[:, :, None] & mine).any(axis=1)
    # At low rates chance alone makes noises alike: not heard then means little.
    witnessed = window.known & (others > _WITNESSED) & (heard | (own < _FAINT * others))
    by_all = witnessed & (others_placed == window.n_sensors - 1)
    if not witnessed.any():
        return None
    return _Witnessed(witnessed.sum(axis=0), (witnessed & heard).sum(axis=0), by_all.sum(axis=0))


def swapped(history: Sequence[Relations], known: ArrivalBaseline, standing: Collection[int] = ()) -> Found:
    """Sounds come from nowhere usual, unless two sensors change places.

    An array that looks the same when turned leaves two pairs to choose from. Then the walker tells: corrected, his
    way goes on as it was before the exchange, or the pair that stands is taken.
    """
    if not history or not _HEARD_BY <= history[-1].n_sensors <= ALL_PAIRS_UP_TO:
        return {}  # the delays of fewer fit too many places, and of more there are too many pairs to try
    windows = history[-HISTORY:]
    lately = _sounds(windows[-_SWAP_SECONDS:])
    if len(lately) < _SWAP_EVENTS or lately.lasting_seconds < 2 or len(known.arrival_seconds) < _NEIGHBOURS:
        return {}
    now = np.concatenate([_nearness_of(window, known) for window in windows])
    recent = np.arange(len(now)) >= len(now) - len(lately)
    if _median(now[recent]) < known.radius_seconds or lately.blur.mean(axis=0).max() > _BLUR_OF_SWAPPED:
        return {}
    sounds = _sounds(windows)
    improvements = _improvements(sounds, now, recent, known)
    best = max(improvements.values())
    rivals = [pair for pair, improvement in improvements.items() if improvement > best - _AMBIGUOUS]
    if best < _IMPROVEMENT:
        return {}
    pair = _consistent(rivals, sounds, now, known) or next((p for p in rivals if set(p) == set(standing)), None)
    if pair is None or improvements[pair] < _IMPROVEMENT:
        return {}
    a, b = pair
    evidence = {"improvement": improvements[pair], "events": int(recent.sum())}
    return {a: {"with_sensor": b, **evidence}, b: {"with_sensor": a, **evidence}}


def rate_error(history: Sequence[Relations], known: ArrivalBaseline | None = None) -> Found:
    """The sound of a sensor is stretched, or it comes later and later than the others let expect."""
    return _stretched(history[-_STRETCH_WINDOWS:]) or (_later_and_later(history, known) if known else {})


def _stretched(recent: Sequence[Relations]) -> Found:
    found: Found = {}
    if sum(map(_tells_stretch, recent)) < _STRETCH_LEAST:
        return found
    stretches = np.array([window.stretch for window in recent], np.float64)
    for sensor in np.flatnonzero(np.isfinite(stretches).sum(axis=0) >= _STRETCH_LEAST):
        told = stretches[np.isfinite(stretches[:, sensor]), sensor]
        middle = float(np.median(told))
        alike = np.abs(told - middle) < _STRETCH_ALIKE
        if abs(middle) > _LEAST_STRETCH and alike.sum() >= _STRETCH_LEAST:
            found[int(sensor)] = {"rate_error": middle, "windows": int(alike.sum())}
    return found


@_once_a_window
def _tells_stretch(window: Relations) -> bool:
    return bool(np.isfinite(window.stretch).any())


def _later_and_later(history: Sequence[Relations], known: ArrivalBaseline) -> Found:
    if len(known.arrival_seconds) < _NEIGHBOURS:
        return {}
    longest = history[-_RATE_WINDOWS[-1] :]
    sounds = _sounds(longest)
    for n_windows in _RATE_WINDOWS:
        lately = sounds.since(EVERY_SECONDS * max(len(longest) - n_windows, 0))
        enough = len(lately) >= _RATE_EVENTS and lately.lasting_seconds > 2
        if enough and (found := _drifting(longest[-n_windows:], lately, known)):
            return found
    return {}


def _drifting(windows: Sequence[Relations], sounds: _Sounds, known: ArrivalBaseline) -> Found:
    """The sensor that is most blurred, if its lateness grows along a line and nothing else explains it."""
    blur = sounds.blur.mean(axis=0)
    sensor, radius = int(np.argmax(blur)), known.radius_seconds
    if blur[sensor] < _BLUR_OF_DRIFT:
        return {}
    late, miss = np.concatenate([_lateness(window, sensor, known) for window in windows], axis=1)
    told = np.isfinite(late)
    n_windows = len({*(sounds.seconds[told] // EVERY_SECONDS).tolist()})
    if n_windows < _RATE_LEAST or _median(miss[told]) > radius:
        return {}
    slope, at_end, error = _line(sounds.seconds[told], late[told])
    grown = abs(slope) * float(np.ptp(sounds.seconds[told]))
    if not (_RATES[0] < abs(slope) < _RATES[1] and error < 2 * radius and min(grown, abs(at_end)) > 7 * radius):
        return {}
    if _exchange_explains(sounds.arrival_seconds, known):
        return {}
    return {sensor: {"rate_error": slope, "late_seconds": at_end, "events": int(told.sum())}}


def _line(seconds: Numbers, late: Numbers) -> tuple[float, float, float]:
    """Slope and value at the end of the line through most points, and the error that four of five do not exceed."""
    i, j = _every_two(len(seconds))
    far = seconds[j] - seconds[i] > 0.9 * EVERY_SECONDS
    slope = _median((late[j] - late[i])[far] / (seconds[j] - seconds[i])[far])
    at_end = _median(late + slope * (seconds[-1] - seconds))
    error = float(np.quantile(np.abs(late + slope * (seconds[-1] - seconds) - at_end), 0.8))
    return slope, at_end, error


@lru_cache(maxsize=64)
def _every_two(n: int) -> tuple[Indices, Indices]:
    first, second = np.triu_indices(n, 1)
    return first, second


def _median(values: Numbers) -> float:
    """Of few numbers, none of them NaN; that of numpy takes several times as long."""
    ordered = np.sort(values)
    return float((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)


@_once_a_window
def _lateness(window: Relations, sensor: int, known: ArrivalBaseline) -> Numbers:
    """(2, sounds) how late a sensor hears what the others hear from a usual place, NaN if they do not; how far off."""
    rows = _sounds_of(window).arrival_seconds
    references = known.arrival_seconds[np.isfinite(known.arrival_seconds[:, sensor])]
    if len(references) < _NEIGHBOURS:
        return np.array([np.full(len(rows), np.nan), np.full(len(rows), np.inf)])
    others, there = _without(rows, sensor), _without(references, sensor)
    distances = _distances(others, there)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :_NEIGHBOURS]
    miss = np.take_along_axis(distances, nearest, axis=1)[:, -1]
    told = np.isfinite(miss)
    late = np.full(len(rows), np.nan)
    began = np.nanmean(others[told, None] - there[nearest[told]], axis=2)
    late[told] = np.median(rows[told, None, sensor] - references[nearest[told], sensor] - began, axis=1)
    return np.array([late, miss])


def _exchange_explains(rows: Floats, known: ArrivalBaseline) -> bool:
    if rows.shape[1] > ALL_PAIRS_UP_TO:
        return False
    pairs = combinations(range(rows.shape[1]), 2)
    nearest = min(float(np.median(_nearness(_exchanged(rows, *pair), known))) for pair in pairs)
    return nearest < 1.5 * known.radius_seconds


def _improvements(sounds: _Sounds, now: Numbers, recent: Mask, known: ArrivalBaseline) -> dict[tuple[int, int], float]:
    """By how much, on a logarithmic scale, sounds come closer to usual places if two sensors are exchanged."""
    improvements = {}
    for pair in combinations(range(sounds.arrival_seconds.shape[1]), 2):
        there = _nearness(_exchanged(sounds.arrival_seconds, *pair), known)
        improvements[pair] = float(np.mean(np.log(_bounded(now, known) / _bounded(there, known))[recent]))
    return improvements


def _consistent(
    pairs: Sequence[tuple[int, int]], sounds: _Sounds, now: Numbers, known: ArrivalBaseline
) -> tuple[int, int] | None:
    """The pair whose exchange lets the walker go on straight; the only one if nothing is known of before."""
    bends = {}
    for pair in pairs:
        corrected = _exchanged(sounds.arrival_seconds, *pair)
        there = _nearness(corrected, known)
        began = _change(_bounded(now, known), _bounded(there, known))
        near = np.abs(sounds.seconds - sounds.seconds[min(began, len(sounds) - 1)]) < 3.5
        if (now[:began][near[:began]] < 2 * known.radius_seconds).sum() < 3:
            return pair if len(pairs) == 1 else None
        way = np.where(np.arange(len(sounds))[:, None] < began, sounds.arrival_seconds, corrected)
        bends[pair] = _bend(sounds.seconds[near], way[near])
        if bends[pair] > 0.85 * _bend(sounds.seconds[near], sounds.arrival_seconds[near]):
            del bends[pair]
    ordered = sorted(bends, key=lambda pair: bends[pair])
    if not ordered or (len(ordered) > 1 and bends[ordered[1]] < 1.3 * bends[ordered[0]]):
        return None
    return ordered[0]


def _change(before: Numbers, after: Numbers) -> int:
    """Where to go over from one list of costs to the other."""
    costs = np.concatenate([[0], np.cumsum(before)]) + np.concatenate([np.cumsum(after[::-1])[::-1], [0]])
    return int(np.argmin(costs))


def _bend(seconds: Numbers, rows: Floats) -> float:
    """Root mean square error of straight lines through the arrivals at all sensors that heard all sounds."""
    heard = np.isfinite(rows).all(axis=0)
    lines = np.column_stack([np.ones(len(seconds)), seconds])
    whole = rows[:, heard].astype(np.float64)
    error = whole - lines @ np.linalg.lstsq(lines, whole, rcond=None)[0]
    return float(np.sqrt(np.mean(error**2))) if error.size else np.inf


def _leaking(history: Sequence[Relations], pair: int) -> list[Relations]:
    """The last windows in all of which two sensors hear the same at once."""
    return [*takewhile(lambda window: pair in _leaking_pairs(window), reversed(history[-HISTORY:]))][::-1]


@_once_a_window
def _leaking_pairs(window: Relations) -> set[int]:
    middle = np.abs(_middle(np.sort(window.at_once, axis=0)))
    return set(np.flatnonzero(middle >= _LEAK).tolist())


def _middle(ordered: Floats) -> Floats:
    """Of ordered rows, the middle one, or the mean of the two in the middle."""
    n = len(ordered)
    return np.asarray(ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2)


def _misfit(leaking: Sequence[Relations], a: int, b: int, known: ArrivalBaseline | None) -> float:
    """How much better, on a logarithmic scale, the array does without a than without b."""
    rows = np.concatenate([window.arrival_seconds[_clearest(window)] for window in leaking])
    if known is None or len(known.arrival_seconds) < _NEIGHBOURS or not len(rows):
        return 0.0
    without_a, without_b = (_bounded(_nearness(_without(rows, sensor), known), known) for sensor in (a, b))
    return float(np.mean(np.log(without_b / without_a)))


def _weaker(windows: Sequence[Relations], a: int, b: int) -> float:
    """In how many windows the first is less like third sensors than the second, less those where the second is."""
    return float(np.mean([np.sign(_weakness(window, a, b)) for window in windows]))


def _weakness(window: Relations, a: int, b: int) -> float:
    """How much less the first is like third sensors than the second: a mixture is less like them than its source."""
    first, second = ((window.pairs == sensor).any(axis=1) for sensor in (a, b))
    alike = np.abs(window.correlation)
    return float(alike[:, second & ~first].sum() - alike[:, first & ~second].sum())


def _victim(weaker: float, misfit: float) -> float:
    """Above 0 for the first, below for the second, 0 if it cannot be told: two signs that agree, or one strong one."""
    if weaker * misfit > 0 and abs(misfit) > _MISFIT:
        return weaker
    if abs(weaker) > _OFTEN:
        return weaker
    return misfit if abs(misfit) > _LARGE_MISFIT else 0.0


def _agreement(recent: Sequence[Relations]) -> tuple[Numbers, Numbers]:
    """(sensors, sensors) mean sign of what pairs heard, from -1 to 1, the clearest first, and how clear it was."""
    told = [one for one in map(_signs, recent) if one is not None]
    if not told:
        return np.zeros((0, 0)), np.zeros((0, 0))
    signed, weight = (np.add.reduce(each) for each in zip(*told, strict=True))
    return signed / np.maximum(weight, 1e-12), weight


@_once_a_window
def _signs(window: Relations) -> tuple[Numbers, Numbers] | None:
    """Their sum, each weighed by how clear it is, and the sum of the weights; None if nothing was heard in common."""
    heard = np.isfinite(window.arrival_seconds)
    if not heard.any():
        return None
    first, second = window.pairs.T
    clear = np.where(heard[:, first] & heard[:, second], window.correlation, 0).astype(np.float64) ** 4
    signed, weight = np.zeros((window.n_sensors, window.n_sensors)), np.zeros((window.n_sensors, window.n_sensors))
    signed[first, second] = signed[second, first] = (clear * np.sign(window.correlation)).sum(axis=0)
    weight[first, second] = weight[second, first] = clear.sum(axis=0)
    return signed, weight


def _sounds(windows: Sequence[Relations]) -> _Sounds:
    """The clearest sounds of all windows, in the order of time, but for sensors into which others leak."""
    parts = [_sounds_of(window) for window in windows]
    return _Sounds(
        np.concatenate([number * EVERY_SECONDS + part.seconds for number, part in enumerate(parts)]),
        np.concatenate([part.arrival_seconds for part in parts]),
        np.concatenate([part.blur for part in parts]),
    )


@_once_a_window
def _sounds_of(window: Relations) -> _Sounds:
    """Those of one window, from its beginning on."""
    frames = _clearest(window)
    if not len(frames):
        nothing = np.empty((0, window.n_sensors), np.float32)
        return _Sounds(np.empty(0), nothing, nothing)
    rows = np.where(_leaks(window), np.float32(np.nan), window.arrival_seconds[frames])
    placed = np.isfinite(rows).sum(axis=1) >= _needed(window.n_sensors)
    blur = blurring(window.correlation[frames], window.pairs, window.n_sensors)[1]
    return _Sounds(np.asarray(frames[placed] * HOP_SECONDS, np.float64), rows[placed], blur[placed])


def _needed(n_sensors: int) -> int:
    """How many must hear a sound that is to tell a place."""
    return max(3, min(_HEARD_BY, n_sensors))


def _clearest(window: Relations) -> Indices:
    """Frames in which most sensors hear something, and most clearly."""
    heard = np.isfinite(window.arrival_seconds).sum(axis=1)
    if heard.max(initial=0) < _needed(window.n_sensors):
        return np.empty(0, np.intp)
    clear = heard + np.abs(window.correlation).sum(axis=1) / (len(window.pairs) + 1)
    best = np.argsort(-clear, kind="stable")[:_EVENTS_PER_WINDOW]
    return np.sort(best[heard[best] >= _needed(window.n_sensors)])


def _leaks(window: Relations) -> Mask:
    """Sensors that hear the same at once as another one, even in quiet."""
    many_frames = np.sort(np.abs(window.at_once), axis=0)[len(window.at_once) // 2]
    leaks = np.zeros(window.n_sensors, np.bool_)
    leaks[window.pairs[many_frames > _LEAK].ravel()] = True
    return leaks


def _exchanged(rows: Floats, a: int, b: int) -> Floats:
    changed = rows.copy()
    changed[:, [a, b]] = rows[:, [b, a]]
    return changed


def _without(rows: Floats, sensor: int) -> Floats:
    changed = rows.copy()
    changed[:, sensor] = np.nan
    return changed


def _distances(rows: Floats, others: Floats) -> Numbers:
    """(rows, others) root mean square of the differences of arrivals, whenever the sounds began."""
    return _differences(rows, _factors(others))


def _differences(rows: Floats, factors: tuple[Numbers, Numbers, Numbers]) -> Numbers:
    """Their sums over the sensors that heard both, and the sums of their squares, multiplied out."""
    row, there = _known(rows)
    n_both = there @ factors[0]
    n = np.maximum(n_both, 1)
    mean = np.hstack([row, there]) @ factors[1] / n
    square = np.hstack([row**2, -2 * row, there]) @ factors[2] / n - mean**2
    return np.where(n_both >= 3, np.sqrt(np.maximum(square, 0)), np.inf)


def _factors(others: Floats) -> tuple[Numbers, Numbers, Numbers]:
    """What rows are multiplied by for the number of sensors in common, the differences and their squares."""
    other, there = _known(others)
    return there.T, np.vstack([there.T, -other.T]), np.vstack([there.T, other.T, other.T**2])


def _known(arrivals: Floats) -> tuple[Numbers, Numbers]:
    """Arrivals, 0 where a sensor heard nothing, and 1 where it heard something."""
    heard = np.isfinite(arrivals)
    return np.where(heard, arrivals, 0).astype(np.float64), heard.astype(np.float64)


def _nearness(rows: Floats, known: ArrivalBaseline) -> Numbers:
    """How far each sound is from where some usual ones come from."""
    return np.partition(_differences(rows, known.factors), _NEIGHBOURS - 1, axis=1)[:, _NEIGHBOURS - 1]


@_once_a_window
def _nearness_of(window: Relations, known: ArrivalBaseline) -> Numbers:
    return _nearness(_sounds_of(window).arrival_seconds, known)


def _bounded(distances: Numbers, known: ArrivalBaseline) -> Numbers:
    """Closer than near is as good as near, and further than far as bad as far."""
    return np.clip(distances, known.radius_seconds / 2, 5 * known.radius_seconds)
