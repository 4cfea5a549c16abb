"""What can be wrong with a training set of recordings x segments x sensors, done to their features, with the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.simulation.faults import bursts

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Values = NDArray[np.float32]

BURST_SEGMENTS = 8.0
"""Mean length of a fault: 8 segments of 2 s with 75 % overlap touch 5.5 s."""


@dataclass(frozen=True, slots=True, eq=False)
class CorruptedSet:
    """Features (recordings, segments, sensors, values), labels as 0 and 1, and what is wrong with them."""

    values: Values
    labels: Integers
    anomalous: Flags
    """(recordings, segments, sensors): the sensor did not deliver the scene."""
    mislabelled: Flags
    """(recordings,)"""

    @classmethod
    def clean(cls, values: Values, labels: Integers) -> CorruptedSet:
        return cls(values, labels, np.zeros(values.shape[:3], np.bool_), np.zeros(len(labels), np.bool_))

    def spoiled(self) -> Flags:
        """Segments of sensors that a classifier should not learn from."""
        return self.anomalous | self.mislabelled[:, None, None]


@dataclass(frozen=True, slots=True, eq=False)
class Supplies:
    """What failing sensors deliver instead: the same recordings with a crackling contact, and silence."""

    loud: Values
    silence: Values


Corruption = Callable[[CorruptedSet, Supplies, float, Sequence[int], np.random.Generator], CorruptedSet]
"""Training set, supplies, rate, sensors concerned, chance -> the corrupted one; the given one is not touched."""


def nothing(
    clean: CorruptedSet, supplies: Supplies, rate: float, sensors: Sequence[int], rng: np.random.Generator
) -> CorruptedSet:
    """As it was."""
    return clean


def loud(
    clean: CorruptedSet, supplies: Supplies, rate: float, sensors: Sequence[int], rng: np.random.Generator
) -> CorruptedSet:
    """Bursts of loud crackling."""
    return _replaced(clean, _in_bursts(clean, rate, sensors, rng), supplies.loud)


def dead(
    clean: CorruptedSet, supplies: Supplies, rate: float, sensors: Sequence[int], rng: np.random.Generator
) -> CorruptedSet:
    """Bursts of silence."""
    return _replaced(
        clean, _in_bursts(clean, rate, sensors, rng), np.broadcast_to(supplies.silence, clean.values.shape)
    )


def stale(
    clean: CorruptedSet, supplies: Supplies, rate: float, sensors: Sequence[int], rng: np.random.Generator
) -> CorruptedSet:
    """Bursts in which a sensor plays what it heard in another recording, of either class."""
    bad = _in_bursts(clean, rate, sensors, rng)
    n = len(clean.labels)
    others = (np.arange(n)[:, None] + rng.integers(1, n, (n, clean.values.shape[2]))) % n
    elsewhere = clean.values.copy()
    for sensor in sensors:
        elsewhere[:, :, sensor] = clean.values[others[:, sensor], :, sensor]
    return _replaced(clean, bad, elsewhere)


def mislabelled(
    clean: CorruptedSet, supplies: Supplies, rate: float, sensors: Sequence[int], rng: np.random.Generator
) -> CorruptedSet:
    """The share of each class's recordings has the label of the other."""
    wrong = np.zeros(len(clean.labels), np.bool_)
    for label in (0, 1):
        wrong[_some(np.flatnonzero(clean.labels == label), rate, rng)] = True
    labels = np.where(wrong, 1 - clean.labels, clean.labels)
    return replace(clean, labels=labels, mislabelled=clean.mislabelled | wrong)


def polluted(
    clean: CorruptedSet, supplies: Supplies, rate: float, sensors: Sequence[int], rng: np.random.Generator
) -> CorruptedSet:
    """In the share of the recordings of class 1, a sensor plays a whole recording of class 0."""
    bad, elsewhere = np.zeros_like(clean.anomalous), clean.values.copy()
    donors = np.flatnonzero(clean.labels == 0)
    for sensor in sensors:
        victims = _some(np.flatnonzero(clean.labels == 1), rate, rng)
        elsewhere[victims, :, sensor] = clean.values[rng.choice(donors, len(victims)), :, sensor]
        bad[victims, :, sensor] = True
    return _replaced(clean, bad, elsewhere)


def mixed(
    clean: CorruptedSet, supplies: Supplies, rate: float, sensors: Sequence[int], rng: np.random.Generator
) -> CorruptedSet:
    """The sensors are loud and stale in turn, and half of the share of the recordings is mislabelled as well."""
    noisy = loud(clean, supplies, rate, sensors[0::2], rng)
    repeating = stale(noisy, supplies, rate, sensors[1::2], rng)
    return mislabelled(repeating, supplies, rate / 2, sensors, rng)


KINDS: dict[str, Corruption] = {
    kind.__name__: kind for kind in (nothing, loud, dead, stale, mislabelled, polluted, mixed)
}
ON_LABELS = ("mislabelled", "mixed")
"""Kinds that concern every sensor."""


def _in_bursts(clean: CorruptedSet, rate: float, sensors: Sequence[int], rng: np.random.Generator) -> Flags:
    """Stretches of consecutive segments; each recording and sensor has its own."""
    bad = np.zeros_like(clean.anomalous)
    for recording in range(len(bad)):
        for sensor in sensors:
            for start, stop in bursts(rng, bad.shape[1], share=rate, mean_steps=BURST_SEGMENTS):
                bad[recording, start:stop, sensor] = True
    return bad


def _some(recordings: NDArray[np.intp], rate: float, rng: np.random.Generator) -> NDArray[np.intp]:
    return rng.permutation(recordings)[: round(rate * len(recordings))]


def _replaced(clean: CorruptedSet, bad: Flags, by: Values) -> CorruptedSet:
    return replace(clean, values=np.where(bad[..., None], by, clean.values), anomalous=clean.anomalous | bad)
