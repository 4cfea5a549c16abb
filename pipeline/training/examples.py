"""Labelled segments to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import UsageError
from pipeline.core.events import Mask, Samples, Views
from pipeline.training.labels import is_class, is_nobody

NOBODY = -2
"""Label of segments in which nobody is there; -1 are segments without a label."""
_ROWS = ("summary", "timing", "present", "recording", "start", "label", "background", "background_seconds")


@dataclass(frozen=True, slots=True)
class RecordingNote:
    """What is kept of a recording that was learned from."""

    name: str
    label_counts: dict[str, int]
    samples: int
    span: tuple[int, int]
    """First sample learned from, and the one after the last."""
    fingerprint: str
    """Of its sound, by which it is recognised under any name."""
    reference: bool = False
    """Whether it was given with the first model, by somebody who knew what is heard."""
    cut_from: str = ""
    """Of which longer one it is a part, if it is: parts of one recording never judge each other."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "recording": self.name,
            "segments": self.label_counts,
            "samples": self.samples,
            "span": list(self.span),
            "fingerprint": self.fingerprint,
            **({"reference": True} if self.reference else {}),
            **({"cut_from": self.cut_from} if self.cut_from else {}),
        }


@dataclass(frozen=True, slots=True)
class Examples:
    """Segments of several recordings with their labels: one row each, a column for each sensor of the array."""

    summary: Samples  # (segments, sensors, values), NaN where a sensor is not present
    timing: Samples  # likewise
    present: Mask  # (segments, sensors)
    recording: NDArray[np.int64]  # (segments,): place among `recordings`
    start: NDArray[np.int64]  # (segments,): first sample
    label: NDArray[np.int64]  # (segments,): place among `classes`; -1 without a label, NOBODY if nobody is there
    recordings: tuple[RecordingNote, ...]
    classes: tuple[str, ...]
    background: Samples | None = None  # (segments, sensors, values): what the summary stands out from
    background_seconds: NDArray[np.float64] | None = None  # (segments,): how long that had been heard

    def __len__(self) -> int:
        return len(self.start)

    def part(self, chosen: NDArray[Any]) -> Examples:
        """Some of the segments; recordings keep their places."""
        given = {name: getattr(self, name) for name in _ROWS}
        return replace(self, **{name: rows[chosen] for name, rows in given.items() if rows is not None})

    def walkers(self) -> Examples:
        """Return the segments of the classes, from which classes are learned; recordings keep their places."""
        return self if (self.label >= 0).all() else self.part(self.label >= 0)

    def nobody(self) -> Examples:
        """Return the segments in which nobody is there; recordings keep their places."""
        return self.part(self.label == NOBODY)

    @property
    def unit(self) -> NDArray[np.int64]:
        """(segments,): what is judged by others only, a recording or the longer one it was cut from."""
        wholes = [note.cut_from or place for place, note in enumerate(self.recordings)]
        number_of = {whole: number for number, whole in enumerate(dict.fromkeys(wholes))}
        return np.array([number_of[whole] for whole in wholes], np.int64)[self.recording]

    def check(self) -> None:
        """At least two recordings of each class, or nothing could be judged by another one."""
        for code, name in enumerate(self.classes):
            n = len(np.unique(self.unit[self.label == code]))
            if n < 2:
                raise UsageError(
                    f"{n} recording{'' if n == 1 else 's'} with segments labelled {name!r} must be at least 2; "
                    "label more recordings, nothing is judged by itself"
                )


def views_of(facts: Sequence[Views]) -> dict[str, Any]:
    """The rows of `Examples` that come from what was heard."""
    return {
        "summary": np.stack([fact.summary for fact in facts]),
        "timing": np.stack([fact.timing for fact in facts]),
        "present": np.stack([fact.present for fact in facts]),
        "start": np.array([fact.span.start for fact in facts]),
        "background": np.stack([fact.background for fact in facts]),
        "background_seconds": np.array([fact.background_seconds for fact in facts]),
    }


def classes_of(found: Sequence[str], wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the labels to tell apart, two or more, in alphabetical order unless given.

    Words that say that nobody is there, `unknown` and `not sure` are no classes.
    """
    known = sorted({name for name in found if is_class(name)})
    classes = tuple(wanted or known)
    reserved = [name for name in classes if not is_class(name)]
    if reserved:
        meaning = "says that nobody is there, which" if is_nobody(reserved[0]) else "does not say who is there and"
        raise UsageError(f"class {reserved[0]!r} {meaning} is not a class; leave it out of --classes")
    missing = [name for name in classes if name not in known]
    if missing:
        raise UsageError(f"nothing is labelled {missing[0]!r}; the labels are {', '.join(known)}")
    if len(known) < 2:
        only = ", ".join(known) or "none"
        raise UsageError(
            f"{len(known)} labels ({only}) must be at least two, to be told apart; label some of another class, too"
        )
    if len(classes) < 2 or len(set(classes)) != len(classes):
        raise UsageError(
            f"classes {', '.join(classes)} must be at least two different labels; choose with --classes, for example "
            "--classes human,human_animal"
        )
    return classes


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """At most so many of n places, evenly spread from the first to the last."""
    if n <= most:
        return np.arange(n)
    return np.round(np.linspace(0, n - 1, most)).astype(np.int64)
