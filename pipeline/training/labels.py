"""Who passed when: labels from a table or from Audacity label tracks."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from pipeline.core.errors import UsageError

COLUMNS = ("recording", "start_seconds", "end_seconds", "label")
NOBODY_WORDS = frozenset({"nobody", "background", "noise", "none", "empty"})
"""Labels that say that nobody is there: they are no class."""
UNKNOWN, NOT_SURE = "unknown", "not sure"
"""Labels for somebody who is of no class, and for a passage about which not to ask again: they are no class either."""


def is_nobody(label: str) -> bool:
    """Return whether a label says that nobody is there, in upper or lower case."""
    return label.lower() in NOBODY_WORDS


def is_class(label: str) -> bool:
    """Return whether a label may be a class: it says who was there."""
    return not is_nobody(label) and label.lower() not in (UNKNOWN, NOT_SURE)


@dataclass(frozen=True, slots=True)
class Label:
    """A stretch of a recording, its label, and the place where it was written down."""

    recording: str
    start_seconds: float
    end_seconds: float
    label: str
    where: str = ""


class Labels:
    """Labels of many recordings; no moment of a recording has two."""

    def __init__(self, labels: Iterable[Label]) -> None:
        self._of: dict[str, list[Label]] = {}
        for label in sorted(labels, key=lambda label: (label.recording, label.start_seconds, label.end_seconds)):
            self._of.setdefault(label.recording, []).append(label)
        for stretches in self._of.values():
            _check_overlaps(stretches)

    def __iter__(self) -> Iterator[Label]:
        return (label for stretches in self._of.values() for label in stretches)

    @property
    def recordings(self) -> tuple[str, ...]:
        return tuple(self._of)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that occur."""
        return tuple(sorted({label.label for label in self}))

    def of(self, recording: str, start_seconds: float, end_seconds: float) -> str | None:
        """The label of all of a stretch; None where a part of it has none, or another."""
        reached, found = start_seconds, None
        for stretch in self._of.get(recording, ()):
            if stretch.end_seconds <= reached or stretch.start_seconds > reached:
                continue
            if found not in (None, stretch.label):
                return None
            found, reached = stretch.label, stretch.end_seconds
            if reached >= end_seconds:
                return found
        return None

    def touches(self, recording: str, start_seconds: float, end_seconds: float) -> bool:
        """Return whether a label covers any part of a stretch."""
        found = self._of.get(recording, ())
        return any(one.start_seconds < end_seconds and one.end_seconds > start_seconds for one in found)

    def groups(self, recording: str, apart_seconds: float, wanted: Callable[[str], bool]) -> list[tuple[float, float]]:
        """Return start and end of the wanted labels of a recording, those that are not far apart together."""
        found: list[tuple[float, float]] = []
        for one in self._of.get(recording, ()):
            if not wanted(one.label):
                continue
            if found and one.start_seconds - found[-1][1] <= apart_seconds:
                found[-1] = found[-1][0], max(found[-1][1], one.end_seconds)
            else:
                found.append((one.start_seconds, one.end_seconds))
        return found

    def check_recordings(self, known: Iterable[str]) -> None:
        """Refuse labels of recordings that do not exist: a misspelt name would be left out of training in silence."""
        known = set(known)
        for stretches in self._of.values():
            name = stretches[0].recording
            if name not in known:
                likely = get_close_matches(name, known, n=1)
                hint = f"did you mean {likely[0]}? " if likely else ""
                raise UsageError(
                    f"{stretches[0].where} labels recording {name!r}, which is not there; {hint}"
                    "write names as the files have them, without extension"
                )


def read_labels(path: Path) -> Labels:
    """Labels from a table with the columns recording, start_seconds, end_seconds, label; or from Audacity.

    An Audacity label track is a text file with a start, an end and a label in each line, between tabs; the recording
    has the name of the file. A directory stands for all label tracks (.txt) in it.
    """
    try:
        if path.is_dir():
            tracks = sorted(path.glob("*.txt"))
            if not tracks:
                raise UsageError(f"{path} holds no label tracks (.txt); give them, or a table (.csv)")
            return Labels(label for track in tracks for label in _audacity(track))
        found = list(_audacity(path) if path.suffix.lower() == ".txt" else _table(path))
    except UnicodeDecodeError as error:
        raise UsageError(f"{error.object!r:.20} in {path} is not UTF-8 text; save it as UTF-8") from error
    if not found:
        raise UsageError(f"{path} holds no labels; write at least one line")
    return Labels(found)


def _table(path: Path) -> Iterator[Label]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        header = tuple(rows.fieldnames or ())
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise UsageError(
                f"{path} has no column {missing[0]!r} in its first line ({', '.join(header) or 'which is empty'}); "
                f"it needs {','.join(COLUMNS)}"
            )
        for row in rows:
            where = f"{path} line {rows.line_num}"
            if any(row[name] is None for name in COLUMNS):
                raise UsageError(f"{where} has fewer values than the first line has columns; complete it")
            yield _label(where, *(row[name] for name in COLUMNS))


def _audacity(path: Path) -> Iterator[Label]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        # A line with a backslash holds the frequencies of the label above it.
        if not line.strip() or line.startswith("\\"):
            continue
        where, parts = f"{path} line {number}", line.split("\t")
        if len(parts) < 3:
            raise UsageError(f"{where}, {line!r}, must be a start, an end and a label between tabs; export it again")
        # Audacity writes numbers as the country does.
        start, end = (part.replace(",", ".") for part in parts[:2])
        yield _label(where, path.stem, start, end, "\t".join(parts[2:]))


def _label(where: str, recording: str, start: str, end: str, label: str) -> Label:
    recording, label = recording.strip(), label.strip()
    for name, value in (("recording", recording), ("label", label)):
        if not value:
            raise UsageError(f"{where} has no {name}; every line needs one")
    start_seconds, end_seconds = _seconds(where, "start", start), _seconds(where, "end", end)
    if not start_seconds < end_seconds:
        raise UsageError(
            f"{where}: end {end_seconds:g} must be after start {start_seconds:g}; label a stretch, not a point"
        )
    return Label(recording, start_seconds, end_seconds, label, where)


def _seconds(where: str, name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{where}: {name} {text.strip()!r} must be a number of seconds from 0 on; for example 1.5")
    return seconds


def _check_overlaps(stretches: list[Label]) -> None:
    """Two labels at one time are an error unless they agree."""
    latest = stretches[0]
    for one, other in pairwise(stretches):
        latest = max(latest, one, key=lambda label: label.end_seconds)
        if other.start_seconds < latest.end_seconds and other.label != latest.label:
            raise UsageError(
                f"{other.where} labels {other.recording!r} as {other.label!r} from {other.start_seconds:g} s on, "
                f"{latest.where} as {latest.label!r} until {latest.end_seconds:g} s; correct one of them"
            )
