"""What is labelled now: labels are only ever added, later ones override earlier ones, or take them back.

In a stream of hours the independent unit is not the recording but the passage: stretches shortly after each other are
one event, and never judge each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

APART_SECONDS = 30.0
"""Stretches of one recording that are no further apart belong to one passage."""


@dataclass(frozen=True, slots=True)
class LabeledSpan:
    """Samples of a recording that have one label throughout."""

    start: int
    stop: int
    label: str


@dataclass(frozen=True, slots=True)
class LabeledPassage:
    """Labelled stretches of a recording that belong together, in the order of time."""

    recording: str
    stretches: tuple[LabeledSpan, ...]

    @property
    def start(self) -> int:
        return self.stretches[0].start

    @property
    def stop(self) -> int:
        return self.stretches[-1].stop

    @property
    def name(self) -> str:
        return f"{self.recording}@{self.start}"

    def label_of(self, start: int, stop: int) -> str | None:
        """The label of all of a range of samples, if it has one."""
        inside = (one.label for one in self.stretches if one.start <= start and stop <= one.stop)
        return next(inside, None)


def recording_of(name: str) -> str:
    """The recording in which the passage of this name lies."""
    recording, at, start = name.rpartition("@")
    return recording if at and start.isdigit() else name


def current_labels(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[LabeledSpan]]:
    """The stretches of each recording that was ever labelled, from rows in the order in which they were given.

    A row has `recording`, `start`, `stop` and `label`, which is None where nothing shall be labelled; a `void` one does
    not count.
    """
    given: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        own = given.setdefault(row["recording"], [])
        if not row.get("void"):
            own.append(row)
    return {recording: _folded(own) for recording, own in given.items()}


def _folded(rows: Sequence[Mapping[str, Any]]) -> list[LabeledSpan]:
    """Between any two edges the last row that holds there decides."""
    begins: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        begins.setdefault(row["start"], []).append(number)
    edges = sorted({edge for row in rows for edge in (row["start"], row["stop"])})
    latest: list[int] = []  # minus the numbers of rows that have begun: the last one given comes first
    found: list[LabeledSpan] = []
    for start, stop in pairwise(edges):
        for number in begins.get(start, ()):
            heappush(latest, -number)
        while latest and rows[-latest[0]]["stop"] <= start:
            heappop(latest)
        label = rows[-latest[0]]["label"] if latest else None
        if label is not None:
            _append(found, LabeledSpan(start, stop, label))
    return found


def _append(stretches: list[LabeledSpan], new: LabeledSpan) -> None:
    """Stretches that touch and say the same are one."""
    if stretches and (stretches[-1].stop, stretches[-1].label) == (new.start, new.label):
        new = LabeledSpan(stretches.pop().start, new.stop, new.label)
    stretches.append(new)


def passages(labels: Mapping[str, Sequence[LabeledSpan]], *, rate_hz: int) -> list[LabeledPassage]:
    """Stretches in the order of time, gathered where they follow each other shortly."""
    apart = round(APART_SECONDS * rate_hz)
    found: list[LabeledPassage] = []
    for recording, stretches in labels.items():
        if not stretches:
            continue
        ends = [n for n, (one, other) in enumerate(pairwise(stretches), start=1) if other.start - one.stop >= apart]
        for first, last in pairwise((0, *ends, len(stretches))):
            found.append(LabeledPassage(recording, tuple(stretches[first:last])))
    return found
