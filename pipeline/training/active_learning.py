"""Which moments somebody should label next: those that teach most, no two of one passage, and some drawn by chance.

What labelling a moment teaches is a product of three factors, each of which is told with the moment:

    teaches = uncertainty * (1 + disagreement) * (1 + anomaly) / 4

- uncertainty: 1 where all classes are equally likely or nobody had a say, 0 where the decision is certain; but never
  below 0.05, for a decision may be certain and wrong. Of two classes it falls linearly with the probability of the
  likelier one, of more it is the entropy of their probabilities in parts of the largest possible. Where presence is
  known, it counts by the probability that somebody is there, and doubt about that is added;
- disagreement: of the weight that the sensors have together, the part that is not for the class with most weight, in
  parts of the largest possible, so that 1 of two classes is as much for as against; or the share of sensors without
  which the decision would be another, if that is more;
- anomaly: the share of sensors that the screen refused, or 1 where an event was noticed, or where somebody is there
  who is unlike every class at all sensors.

Disagreement and anomaly double it at most. Who only looks at what is uncertain never finds what is wrong with
confidence: every eighth place is drawn by chance from all moments that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import UNUSABLE_ROLES, Role
from pipeline.training.labeled_spans import APART_SECONDS

LEAST_UNCERTAINTY = 0.05
BY_CHANCE_EVERY = 8
_UNKNOWN = 0.05
_DIGITS = 9
"""Beyond them a sum depends on the order of its terms."""

MOMENTS = np.dtype(
    [
        ("event", np.int64),
        ("recording", np.int64),  # by a number of its own
        ("begin", np.float64),  # in seconds
        ("end", np.float64),
        ("uncertainty", np.float64),
        ("disagreement", np.float64),
        ("anomaly", np.float64),
    ]
)
Moments = NDArray[Any]
"""Rows of `MOMENTS`."""


@dataclass(frozen=True, slots=True)
class LabelValue:
    """The factors of what a decision teaches."""

    uncertainty: float
    disagreement: float
    anomaly: float

    @property
    def teaches(self) -> float:
        return round(self.uncertainty * (1 + self.disagreement) * (1 + self.anomaly) / 4, _DIGITS)


def lesson(decision: Mapping[str, Any]) -> LabelValue | None:
    """From a decision as the journal tells it; none if no sensor was heard, for then there is nothing to learn."""
    roles = decision["roles"]
    if all(role in UNUSABLE_ROLES for role in roles):
        return None
    anomaly = 1.0 if _is_unknown(decision) else round(roles.count(Role.ANOMALOUS) / len(roles), _DIGITS)
    return LabelValue(_uncertainty(decision), _disagreement(decision), anomaly)


def _is_unknown(decision: Mapping[str, Any]) -> bool:
    """Whether somebody is there who is unlike every class at all sensors; events of earlier versions do not say."""
    known = [one for one in decision.get("p_known", ()) if one is not None]
    return (decision.get("presence") or 0.0) > 0.5 and bool(known) and max(known) <= _UNKNOWN


def _uncertainty(decision: Mapping[str, Any]) -> float:
    presence: float | None = decision.get("presence")
    about_class = _class_uncertainty(decision)
    if presence is None:
        return about_class
    return max(LEAST_UNCERTAINTY, round(min(1.0, presence * about_class + 1 - abs(2 * presence - 1)), _DIGITS))


def _class_uncertainty(decision: Mapping[str, Any]) -> float:
    probability: float | None = decision["probability"]
    if probability is None:
        return 1.0
    shares: list[float] = list((decision.get("probabilities") or {}).values())  # events of earlier versions have none
    if len(shares) > 2:
        entropy = -sum(share * log(share) for share in sorted(shares) if share > 0) / log(len(shares))
        return max(LEAST_UNCERTAINTY, round(min(entropy, 1.0), _DIGITS))
    return max(LEAST_UNCERTAINTY, round(2 - 2 * probability, _DIGITS))


def _disagreement(decision: Mapping[str, Any]) -> float:
    found = sides(decision)
    weights = decision["weights"]
    for_class = [sum(weights[sensor - 1] for sensor in sensors) for sensors in found]
    total, most = sum(for_class), max(for_class)
    largest = 1 - 1 / len(found)
    divided = (total - most) / (largest * total) if total > 0 else 0.0
    swayed = len(swaying(decision)) / max(sum(map(len, found)), 1)
    return round(max(divided, swayed), _DIGITS)


def sides(decision: Mapping[str, Any]) -> list[list[int]]:
    """The sensors that had a say, counted from 1, by the class that they are for."""
    shares = decision.get("sensor_probabilities") or []
    n_classes = max((len(one) for one in shares if one), default=2)
    said = [
        (sensor, place)
        for sensor, role in enumerate(decision["roles"], start=1)
        if role == Role.USED
        and (place := _leaning(decision["log_odds"][sensor - 1], shares[sensor - 1] if shares else None)) is not None
    ]
    return [[sensor for sensor, place in said if place == code] for code in range(n_classes)]


def _leaning(odds: float | None, shares: Mapping[str, float] | None) -> int | None:
    """The place of the class that a sensor is for; None if it is for none."""
    if odds is not None or shares is None:
        return int(odds > 0) if odds else None
    values = list(shares.values())
    return values.index(max(values)) if values.count(max(values)) == 1 else None


def swaying(decision: Mapping[str, Any]) -> list[int]:
    """The sensors, counted from 1, without which the decision would be another."""
    pairs = zip(decision["roles"], decision["without"], strict=True)
    return [
        sensor
        for sensor, (role, without) in enumerate(pairs, start=1)
        if role == Role.USED and without["label"] != decision["label"]
    ]


def teaches(moments: Moments) -> NDArray[np.float64]:
    """What labelling each of them teaches, from 0 to 1."""
    value = moments["uncertainty"] * (1 + moments["disagreement"]) * (1 + moments["anomaly"]) / 4
    rounded: NDArray[np.float64] = np.round(value, _DIGITS)
    return rounded


@dataclass(frozen=True, slots=True)
class Asked:
    """A moment to ask about, and whether only chance has chosen it."""

    event: int
    by_chance: bool


def queue(moments: Moments) -> list[Asked]:
    """What to ask, in this order; each passage once, by its most instructive moment or by one drawn by chance."""
    moments = _in_time(moments)
    lots = _lots(moments["event"])
    passages = _passages(moments)
    drawn = iter(sorted(range(len(passages)), key=lambda n: int(lots[passages[n][1]].min())))
    instructive = iter(range(len(passages)))
    found: list[Asked] = []
    asked: set[int] = set()
    while len(found) < len(passages):
        by_chance = len(found) % BY_CHANCE_EVERY == BY_CHANCE_EVERY - 1
        number = next(n for n in (drawn if by_chance else instructive) if n not in asked)
        asked.add(number)
        best, members = passages[number]
        moment = members[np.argmin(lots[members])] if by_chance else best
        found.append(Asked(int(moments["event"][moment]), by_chance))
    return found


def _passages(moments: Moments) -> list[tuple[int, NDArray[np.int64]]]:
    """The most instructive moment of each passage, and all moments that it speaks for; the best first.

    In a stream without pauses a passage has no edges of its own: it is what lies around its best moment.
    """
    free = np.ones(len(moments), np.bool_)
    found = []
    for best in np.lexsort((-moments["event"], -teaches(moments))).tolist():
        if free[best]:
            members = _around(moments, moments[best])
            members = members[free[members]]
            free[members] = False
            found.append((best, members))
    return found


def without(moments: Moments, stretches: Iterable[tuple[int, float, float]]) -> Moments:
    """Those that do not belong to the passage of any stretch, which is recording, begin and end."""
    moments = _in_time(moments)
    free = np.ones(len(moments), np.bool_)
    for recording, begin, end in stretches:
        free[_around(moments, {"recording": recording, "begin": begin, "end": end})] = False
    return moments[free]


def _in_time(moments: Moments) -> Moments:
    """By recording, and in that by time."""
    in_time: Moments = moments[np.lexsort((moments["begin"], moments["recording"]))]
    return in_time


def _around(moments: Moments, place: Any) -> NDArray[np.int64]:
    """The moments of the same passage as a place; `moments` are sorted."""
    first, last = np.searchsorted(moments["recording"], [place["recording"], place["recording"] + 1])
    begin, end = moments["begin"][first:last], moments["end"][first:last]
    stop = np.searchsorted(begin, place["end"] + APART_SECONDS)
    longest = float((end - begin).max(initial=0.0))
    start = np.searchsorted(begin, place["begin"] - APART_SECONDS - longest)
    near = np.flatnonzero(end[start:stop] > place["begin"] - APART_SECONDS)
    around: NDArray[np.int64] = near + (first + start)
    return around


def _lots(events: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A number for each event, as if drawn by chance, and the same every time (splitmix64)."""
    z = events.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    lots: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return lots


def in_words(decision: Mapping[str, Any], classes: Sequence[str]) -> list[str]:
    """Why a decision is worth asking about, each reason in a few words."""
    probability = decision["probability"]
    sure = "" if probability is None else f", probability {probability:.2f}"
    why = f" ({decision['reason']})" if decision["reason"] else ""
    told = [f"{decision['label'] or 'undecided'}{why}{sure}"]
    found = sides(decision)
    if sum(map(bool, found)) > 1 and len(classes) == len(found):
        pairs = zip(found, classes, strict=True)
        told.append(", ".join(f"{named(sensors)} {_say(sensors)} {name}" for sensors, name in pairs if sensors))
    if swayed := swaying(decision):
        told.append(f"without {named(swayed, 'or')} it would be decided otherwise")
    if refused := [n for n, role in enumerate(decision["roles"], start=1) if role == Role.ANOMALOUS]:
        told.append(f"the sound of {named(refused)} is unusual")
    return told


def _say(sensors: Sequence[int]) -> str:
    return "says" if len(sensors) == 1 else "say"


def named(sensors: Sequence[int], word: str = "and") -> str:
    """Sensor 2; sensors 1, 2 and 4."""
    if len(sensors) == 1:
        return f"sensor {sensors[0]}"
    return f"sensors {', '.join(map(str, sensors[:-1]))} {word} {sensors[-1]}"
