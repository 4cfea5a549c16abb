"""Whoever listens: drops what it has by number and sample, and notices holes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pipeline.core.events import Block, Gap, RecordingStarted, Samples
from pipeline.transport.wire import Parcel


def heard(parcels: Iterable[Parcel], *, ignore_early: bool = False) -> dict[str, list[Parcel]]:
    """By recording, each number once, without holes; of a gap only what was not heard.

    What comes too early follows once more.
    """
    found: dict[str, list[Parcel]] = {}
    numbers: dict[str, int] = {}
    samples: dict[str, int] = {}
    for parcel in parcels:
        name = parcel.recording.recording
        have = numbers.get(name, 0)
        stop = parcel.number + parcel.stands_for
        if stop <= have or (ignore_early and parcel.number > have):
            continue
        assert parcel.number <= have, f"{name}: number {parcel.number} came, {have} is missing"
        fact = parcel.fact
        if isinstance(fact, Gap):
            fact = replace(fact, start=max(fact.start, samples.get(name, 0)))
        if isinstance(fact, Block | Gap):
            assert fact.start == samples.get(name, 0), (
                f"{name}: sample {fact.start} came, {samples.get(name, 0)} is due"
            )
            samples[name] = fact.stop
        numbers[name] = stop
        found.setdefault(name, []).append(Parcel(parcel.recording, have, fact, stop - have))
    assert all(isinstance(one[0].fact, RecordingStarted) for one in found.values())
    return found


def sound_of(parcels: Iterable[Parcel]) -> Samples:
    return np.concatenate([parcel.fact.samples for parcel in parcels if isinstance(parcel.fact, Block)], axis=1)
