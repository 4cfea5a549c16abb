"""The examples that training learns from: labelled passages, one file each, bounded and balanced.

    examples/1f0c9e...npz    the segments of a passage: both views, who was present, first samples, labels; and a note

A file is named by its passage with its labels. So a label that is corrected makes another file, and the old one goes;
what was heard of it stays, even if the sound itself is no longer kept.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import SourceError, UsageError
from pipeline.core.events import Mask, Samples, Views
from pipeline.training.examples import NOBODY, Examples, RecordingNote, evenly
from pipeline.training.labeled_spans import LabeledPassage, LabeledSpan
from pipeline.training.labels import is_nobody

_REFERENCE = "reference-"
_MOST_BACKGROUND = 4
"""Segments without anybody for each of the classes' segments that there is room for."""
_ROWS = ("summary", "timing", "present", "start", "label", "background", "background_seconds")
_DAMAGED = (ValueError, OSError, EOFError, BadZipFile, KeyError, TypeError, AttributeError, IndexError)
Counts = NDArray[np.int64]
Hear = Callable[[LabeledPassage], Iterable[Views]]
"""All segments of a passage's sound."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredExamples:
    """The segments of a passage, each inside one of its stretches."""

    passage: LabeledPassage
    reference: bool
    """Given with the first model rather than labelled in the stream."""
    fingerprint: str
    summary: Samples  # (segments, sensors, values)
    timing: Samples  # likewise
    present: Mask  # (segments, sensors)
    start: NDArray[np.int64]  # (segments,)
    label: NDArray[np.str_]  # (segments,)
    background: Samples  # (segments, sensors, values)
    background_seconds: NDArray[np.float64]  # (segments,)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """Of one segment: what was made with other settings has another."""
        return self.summary.shape[1:], self.timing.shape[1:]

    def part(self, chosen: NDArray[Any]) -> StoredExamples:
        rows = {name: getattr(self, name)[chosen] for name in _ROWS}
        return replace(self, **rows)


class ExampleStore:
    """Passages and their segments, at most `most_segments` of them; `trouble` hears what cannot be used, and why."""

    def __init__(self, directory: Path, *, most_segments: int, trouble: Callable[[str], None]) -> None:
        self._directory, self._most_segments, self._trouble = directory, most_segments, trouble
        directory.mkdir(parents=True, exist_ok=True)

    def update(self, wanted: Sequence[LabeledPassage], hear: Hear, *, segment: int, labelled: Collection[str]) -> int:
        """Hold exactly these passages of the recordings that were ever labelled; how many are new.

        What is stored of other recordings stays: labels are never deleted, so it is the journal that was lost. The
        length of a segment is `segment`.
        """
        for leftover in self._directory.glob("*.partial"):
            leftover.unlink()
        files = {_file_name(passage): passage for passage in wanted}
        present = {path.name: path for path in self._directory.glob("*.npz") if not path.name.startswith(_REFERENCE)}
        others = self._read([path for name, path in present.items() if name not in files])
        outdated = [one for one in others if one.passage.recording in labelled]
        new = 0
        for name in files.keys() - present.keys():
            kept = [one for one in outdated if one.passage.recording == files[name].recording]
            stored = _gathered(files[name], self._heard(files[name], hear), kept, segment)
            if len(stored):
                write_whole(self._directory / name, _packed(stored))
                new += 1
        for one in outdated:
            (self._directory / _file_name(one.passage)).unlink(missing_ok=True)
        self.thin()
        return new

    def _heard(self, passage: LabeledPassage, hear: Hear) -> list[Views]:
        try:
            return list(hear(passage))
        except SourceError as error:
            self._trouble(f"{passage.name}: {error}")
            return []

    def forget_references(self) -> None:
        for path in self._directory.glob(f"{_REFERENCE}*.npz"):
            path.unlink()

    def add_reference(self, passage: LabeledPassage, heard: Iterable[Views], *, segment: int) -> None:
        """A passage that stays, whatever is labelled in the stream."""
        stored = replace(_gathered(passage, heard, (), segment), reference=True)
        if len(stored):
            write_whole(self._directory / f"{_REFERENCE}{_file_name(passage)}", _packed(stored))

    def passages(self) -> list[LabeledPassage]:
        """Return the passages of the stream that are stored."""
        return [one.passage for one in self._all() if not one.reference]

    def load(self, classes: tuple[str, ...]) -> Examples:
        """All segments of these classes, and those in which nobody is there."""
        found = [one.part(np.isin(one.label, classes) | _nobody(one.label)) for one in self._all()]
        # What was made with other settings does not fit.
        usual = Counter(one.shape for one in found if len(one)).most_common(1)
        found = [one for one in found if len(one) and one.shape == usual[0][0]]
        label = np.concatenate([_codes(one.label, classes) for one in found]) if found else np.zeros(0, np.int64)
        if not (label >= 0).any():
            named = " or ".join(map(repr, classes))
            raise UsageError(f"nothing is labelled {named}; label some passages of each")
        return Examples(
            summary=np.concatenate([one.summary for one in found]),
            timing=np.concatenate([one.timing for one in found]),
            present=np.concatenate([one.present for one in found]),
            recording=np.repeat(np.arange(len(found)), [len(one) for one in found]),
            start=np.concatenate([one.start for one in found]),
            label=label,
            recordings=tuple(_note(one) for one in found),
            classes=classes,
            background=np.concatenate([one.background for one in found]),
            background_seconds=np.concatenate([one.background_seconds for one in found]),
        )

    def thin(self) -> None:
        """Remove segments until there are no more than allowed."""
        found = self._all()
        if not found:
            return
        labels = sorted({str(label) for one in found for label in one.label})
        counts = np.array([[int((one.label == label).sum()) for label in labels] for one in found], np.int64)
        # Segments in which nobody is there take no room from the classes, and are kept in whole passages: how often
        # background starts a passage can only be counted where none are missing.
        empty = np.array([is_nobody(label) for label in labels], np.bool_)
        keep = counts.copy()
        if counts[:, ~empty].sum() > self._most_segments:
            keep[:, ~empty] = balanced(counts[:, ~empty], self._most_segments)
        up_to_newest = np.cumsum(counts[::-1, empty].sum(axis=1))[::-1]
        keep[np.ix_(up_to_newest > _MOST_BACKGROUND * self._most_segments, empty)] = 0
        for one, before, after in zip(found, counts, keep, strict=True):
            if (before != after).any():
                name = f"{_REFERENCE if one.reference else ''}{_file_name(one.passage)}"
                write_whole(self._directory / name, _packed(one.part(_evenly_of_each(one.label, labels, after))))

    def _all(self) -> list[StoredExamples]:
        """In the order of time; references come last, for the first ones go when there is no room."""
        found = self._read(sorted(self._directory.glob("*.npz")))
        return sorted(found, key=lambda one: (one.reference, one.passage.recording, one.passage.start))

    def _read(self, paths: Iterable[Path]) -> list[StoredExamples]:
        """All that can be read; a damaged file is told and removed, so that it is made again if its sound is kept."""
        found = []
        for path in paths:
            try:
                found.append(_unpacked(path.read_bytes()))
            except _DAMAGED as error:
                self._trouble(f"{path.name} cannot be used ({error}) and is left out")
                path.unlink(missing_ok=True)
        return found


def balanced(counts: Counts, most: int) -> Counts:
    """How many segments to keep of every passage and class (both as `counts` has them), at most so many in all.

    Large classes lose first, and in each the passages with most segments. Where there is not room for one segment of
    every passage, the first ones, which are the oldest, go.
    """
    of_class = _levelled(counts.sum(axis=0), most)
    return np.column_stack([_levelled(own, int(room)) for own, room in zip(counts.T, of_class, strict=True)])


def _levelled(counts: Counts, most: int) -> Counts:
    """Counts cut at one level, so that they sum up to at most `most`; what is left over goes to the last ones."""
    if counts.sum() <= most:
        return counts
    level = 0
    while np.minimum(counts, level + 1).sum() <= most:
        level += 1
    kept = np.minimum(counts, level)
    larger = np.flatnonzero(counts > level)
    kept[larger[len(larger) - (most - int(kept.sum())) :]] += 1
    return kept


def _evenly_of_each(label: NDArray[np.str_], labels: Sequence[str], keep: Counts) -> NDArray[np.int64]:
    rows = [np.flatnonzero(label == name) for name in labels]
    chosen = [own[evenly(len(own), int(n))] for own, n in zip(rows, keep, strict=True)]
    return np.sort(np.concatenate(chosen))


def _gathered(
    passage: LabeledPassage, heard: Iterable[Views], kept: Sequence[StoredExamples], segment: int
) -> StoredExamples:
    """The labelled segments of a passage: what is heard of it, and what was stored of it under other labels."""
    rows: dict[int, tuple[Samples, Samples, Mask, Samples, float]] = {
        int(start): (summary, timing, present, background, seconds)
        for one in kept
        for start, summary, timing, present, background, seconds in zip(
            one.start, one.summary, one.timing, one.present, one.background, one.background_seconds, strict=True
        )
    }
    rows |= {
        fact.span.start: (fact.summary, fact.timing, fact.present, fact.background, fact.background_seconds)
        for fact in heard
    }
    labels = {start: passage.label_of(start, start + segment) for start in sorted(rows)}
    starts = [start for start, label in labels.items() if label is not None]
    summary, timing, background = (np.array([rows[start][view] for start in starts], np.float32) for view in (0, 1, 3))
    content = summary.tobytes() + timing.tobytes() + passage.name.encode()
    return StoredExamples(
        passage=passage,
        reference=False,
        fingerprint=hashlib.sha256(content).hexdigest(),
        summary=summary,
        timing=timing,
        present=np.array([rows[start][2] for start in starts], np.bool_),
        start=np.array(starts, np.int64),
        label=np.array([labels[start] for start in starts], np.str_),
        background=background,
        background_seconds=np.array([rows[start][4] for start in starts], np.float64),
    )


def _nobody(labels: NDArray[np.str_]) -> Mask:
    return np.array([is_nobody(str(label)) for label in labels], np.bool_)


def _codes(labels: NDArray[np.str_], classes: Sequence[str]) -> NDArray[np.int64]:
    """Places of labels among the classes; NOBODY where nobody is there."""
    place = {name: code for code, name in enumerate(classes)}
    return np.array([place.get(str(label), NOBODY) for label in labels], np.int64)


def _note(stored: StoredExamples) -> RecordingNote:
    passage, counts = stored.passage, Counter(str(label) for label in stored.label)
    span = passage.start, passage.stop
    return RecordingNote(
        passage.name, dict(sorted(counts.items())), span[1] - span[0], span, stored.fingerprint, stored.reference
    )


def _file_name(passage: LabeledPassage) -> str:
    return f"{hashlib.sha256(json.dumps(_described(passage)).encode()).hexdigest()[:24]}.npz"


def _described(passage: LabeledPassage) -> dict[str, Any]:
    return {
        "recording": passage.recording,
        "stretches": [[one.start, one.stop, one.label] for one in passage.stretches],
    }


def _packed(stored: StoredExamples) -> bytes:
    note = _described(stored.passage) | {"reference": stored.reference, "fingerprint": stored.fingerprint}
    packed = io.BytesIO()
    np.savez(
        packed,
        allow_pickle=False,
        note=np.array(json.dumps(note)),
        **{name: getattr(stored, name) for name in _ROWS},
    )
    return packed.getvalue()


def _unpacked(content: bytes) -> StoredExamples:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        if "cepstra" in arrays.files:
            raise ValueError("an earlier version stored it")
        note = json.loads(str(arrays["note"]))
        rows = {name: arrays[name] for name in _ROWS}
    stretches = tuple(LabeledSpan(int(start), int(stop), str(label)) for start, stop, label in note["stretches"])
    if len({len(row) for row in rows.values()}) != 1:
        raise ValueError("its arrays differ in length")
    return StoredExamples(
        passage=LabeledPassage(note["recording"], stretches),
        reference=bool(note["reference"]),
        fingerprint=str(note["fingerprint"]),
        **rows,
    )
