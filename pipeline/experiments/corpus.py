"""Features of many recordings, made once and kept on disk."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from pipeline import __version__
from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import UsageError
from pipeline.core.events import Block, Cepstra, RecordingStarted, Samples, Segment, Span, Views
from pipeline.core.framing import Grid
from pipeline.core.segment_views import N_COEFFICIENTS, PAPER, TWO_VIEWS, Summary
from pipeline.runtime.process_pool import Engine, progress_bar
from pipeline.simulation import FAULTS, HUMAN, HUMAN_WITH_ANIMAL, FaultPlan, Site, record
from pipeline.simulation.faults import FaultContext, FaultEpisode
from pipeline.simulation.microphones import converted
from pipeline.sources.files import FileSource, find_recordings
from pipeline.stages import Mfcc, Viewing, Windowing
from pipeline.stages.features import LOWEST_HZ
from pipeline.training.labels import COLUMNS, read_labels

Arrays = dict[str, NDArray[Any]]

N_SEGMENTS = 24
INAUDIBLE = ("polarity", "clock_drift")
"""Faults that leave the features as they are: nothing that looks at these could find them."""
FAILING_SHARES = (0.03, 0.03, 0.03, 0.45)
FAULT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """A recording of one label; those that share a source never lie on both sides of a split."""

    name: str
    label: str
    source: str


class RecordingOrigin(Protocol):
    """Where recordings come from."""

    def files(self) -> list[Path]:
        """All that is read."""
        ...

    def entries(self) -> list[CorpusEntry]: ...
    def settings(self) -> dict[str, Any]:
        """All that the features depend on."""
        ...

    def measure(self, entry: CorpusEntry) -> Arrays:
        """At least `clean` and `loud`, (segments, sensors, values), of up to `N_SEGMENTS`, and `silence`, (values,)."""
        ...


@dataclass(frozen=True, slots=True)
class SimulatedSubjects:
    """Subjects who pass the simulated array, each once: so many humans alone, so many who lead an animal.

    `failing` has the same walks while sensors fail, mostly the fourth, and `failed` the share of the window of every
    segment in which a sensor failed.
    """

    n_human: int
    n_animal: int
    seed: int

    def files(self) -> list[Path]:
        return []

    def entries(self) -> list[CorpusEntry]:
        labels = [HUMAN] * self.n_human + [HUMAN_WITH_ANIMAL] * self.n_animal
        return [CorpusEntry(f"{number:03d}", label, f"{number:03d}") for number, label in enumerate(labels)]

    def settings(self) -> dict[str, Any]:
        return {**asdict(self), "shares": FAILING_SHARES, "kinds": self._faults().kinds, "seconds": FAULT_SECONDS}

    def measure(self, entry: CorpusEntry) -> Arrays:
        number = int(entry.name)
        nominal = record(Site(seed=self.seed), number, label=entry.label).samples
        rate_hz = Site(seed=self.seed).rate_hz
        failing = record(Site(seed=self.seed, faults=self._faults()), number, label=entry.label)
        segments = _segments(failing.samples, rate_hz)
        return {
            **_clean_and_loud(nominal, _segments(nominal, rate_hz), rate_hz, entry.name),
            "failing": _described(segments, rate_hz),
            "failed": np.stack([failed_share(failing.episodes, one.window, len(nominal)) for one in segments]),
        }

    @staticmethod
    def _faults() -> FaultPlan:
        kinds = tuple(kind for kind in FAULTS if kind not in INAUDIBLE)
        return FaultPlan(kinds, FAILING_SHARES, FAULT_SECONDS)


@dataclass(frozen=True, slots=True)
class OwnRecordings:
    """Sound files in a directory, with labels.csv beside them and, where recordings belong together, sources.csv."""

    directory: str

    def files(self) -> list[Path]:
        return sorted(path for path in Path(self.directory).iterdir() if path.is_file())

    def entries(self) -> list[CorpusEntry]:
        table = Path(self.directory) / "labels.csv"
        if not table.is_file():
            raise UsageError(f"{table} is not there; write one with the columns {','.join(COLUMNS)}")
        labels = read_labels(table)
        labels.check_recordings(recording.name for recording in find_recordings(self.directory).recordings)
        if len(labels.names) != 2:
            raise UsageError(
                f"{self.directory}/labels.csv has {len(labels.names)} labels ({', '.join(labels.names)}), "
                "here there must be two; leave the others out"
            )
        sources = read_sources(Path(self.directory) / "sources.csv")
        pairs = sorted({(label.recording, label.label) for label in labels})
        return [CorpusEntry(name, label, sources.get(name, name)) for name, label in pairs]

    def settings(self) -> dict[str, Any]:
        return {"files": [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in self.files()]}

    def measure(self, entry: CorpusEntry) -> Arrays:
        found = find_recordings(self.directory).recordings
        rate_hz, n_sensors = _format(FileSource(self.directory))
        own = [recording for recording in found if recording.name == entry.name]
        labels = read_labels(Path(self.directory) / "labels.csv")
        windowing, segments, blocks = Windowing(Grid(rate_hz=rate_hz)), list[Segment](), list[Block]()
        with FileSource(own, rate_hz=rate_hz, n_sensors=n_sensors, resample=True) as source:
            for block in (fact for fact in source if isinstance(fact, Block)):
                blocks.append(block)
                for segment in windowing.push(block):
                    assert isinstance(segment, Segment)
                    span = (segment.span.start / rate_hz, segment.span.stop / rate_hz)
                    if segment.present.all() and labels.of(entry.name, *span) == entry.label:
                        segments.append(segment)
                if len(segments) >= N_SEGMENTS:
                    break
        return _clean_and_loud(_joined(blocks), segments[:N_SEGMENTS], rate_hz, entry.name) if segments else {}


def read_sources(path: Path) -> dict[str, str]:
    """Source by recording, from a table with these two columns; nothing if there is none."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        if not {"recording", "source"} <= set(rows.fieldnames or ()):
            raise UsageError(
                f"{path} must have the columns recording,source in its first line; it has {rows.fieldnames}"
            )
        return {row["recording"].strip(): row["source"].strip() for row in rows}


def failed_share(episodes: Sequence[FaultEpisode], window: Span, n_sensors: int) -> NDArray[np.float64]:
    """For each sensor the share of a window during which it failed; its episodes do not overlap each other."""
    share = np.zeros(n_sensors)
    for episode in episodes:
        overlap = min(episode.stop, window.stop) - max(episode.start, window.start)
        share[episode.sensor] += max(overlap, 0) / len(window)
    return share


def crackling(samples: Samples, rate_hz: int, name: str) -> Samples:
    """The sound of all sensors with bad contacts, all of the time; each recording has its own, by its name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rows = []
    for own in samples.astype(np.float64):
        moment = FaultContext(
            own=own, partner=own, elsewhere=own, rate_hz=rate_hz, severity=float(rng.random()), rng=rng
        )
        rows.append(FAULTS["loud_bursts"](moment))
    return converted(np.stack(rows))


def _clean_and_loud(samples: Samples, segments: Sequence[Segment], rate_hz: int, name: str) -> Arrays:
    """The loud ones lie in the windows of the clean ones: one failing sensor would not have moved them."""
    loud = crackling(samples, rate_hz, name)
    noisy = [replace(segment, samples=loud[:, segment.span.start : segment.span.stop]) for segment in segments]
    quiet = replace(segments[0], samples=np.zeros_like(segments[0].samples))
    return {
        "clean": _described(segments, rate_hz),
        "loud": _described(noisy, rate_hz),
        "silence": _described([quiet], rate_hz)[0, 0],
    }


def _segments(samples: Samples, rate_hz: int) -> list[Segment]:
    found = Windowing(Grid(rate_hz=rate_hz)).push(Block(0, samples, np.ones(len(samples), np.bool_)))
    return [segment for segment in found[:N_SEGMENTS] if isinstance(segment, Segment)]


def _described(segments: Sequence[Segment], rate_hz: int) -> NDArray[np.float32]:
    """(segments, sensors, values): summary, timing and published features of the same frames, side by side."""
    grid, mfcc = Grid(rate_hz=rate_hz), Mfcc(Grid(rate_hz=rate_hz), f_min_hz=LOWEST_HZ)
    views, paper = (Viewing(grid, n_coefficients=N_COEFFICIENTS, features=name) for name in (TWO_VIEWS, PAPER))
    rows = []
    for segment in segments:
        (cepstra,) = mfcc.push(segment)
        assert isinstance(cepstra, Cepstra)
        (both,), (published,) = views.push(cepstra), paper.push(cepstra)
        assert isinstance(both, Views)
        assert isinstance(published, Views)
        rows.append(np.concatenate([both.summary, both.timing, published.summary], axis=1))
    return np.stack(rows)


def view_slices(n_values: int) -> dict[str, slice]:
    """Where each view lies among all values."""
    grid = Grid(rate_hz=16_000)  # the numbers of frames are the same for all rates
    n_summary = len(Summary(grid, N_COEFFICIENTS).parts)
    n_paper = grid.window_frames * N_COEFFICIENTS
    return {
        "summary": slice(0, n_summary),
        "timing": slice(n_summary, n_values - n_paper),
        "paper": slice(n_values - n_paper, n_values),
    }


def _joined(blocks: Sequence[Block]) -> Samples:
    """Sound from sample 0 on; zeros where nothing came."""
    whole = np.zeros((len(blocks[0].samples), blocks[-1].stop), np.float32)
    for block in blocks:
        whole[:, block.start : block.stop] = block.samples
    return whole


def _format(source: FileSource) -> tuple[int, int]:
    """Rate and number of sensors of the first readable recording."""
    with source:
        started = next(fact for fact in source if isinstance(fact, RecordingStarted))
    return started.rate_hz, len(started.sensors)


# What is on disk


def features_of(
    origin: RecordingOrigin, folder: Path, *, engine: Engine, console: Console
) -> tuple[Path, list[CorpusEntry]]:
    """Make the features that are missing; where they are, and the recordings that are long enough."""
    folder = folder.absolute() / digest_of(origin)  # workers elsewhere start in another directory
    folder.mkdir(parents=True, exist_ok=True)
    entries = origin.entries()
    missing = [entry for entry in entries if not _path(folder, entry).exists()]
    if missing:
        engine.check_files(origin.files())
        with progress_bar(console) as progress:
            bar = progress.add_task("recordings", total=len(entries), completed=len(entries) - len(missing))
            for entry, content in engine.finished(partial(_content, origin), missing):
                write_whole(_path(folder, entry), content)
                progress.advance(bar)
    engine.check_files(_path(folder, entry) for entry in entries)
    return folder, _long_enough(folder, entries, console)


def digest_of(origin: RecordingOrigin) -> str:
    """Other settings, other features: they never share a folder."""
    settings = {"version": __version__, "grid": asdict(Grid(rate_hz=16_000)), "segments": N_SEGMENTS}
    settings |= {"origin": type(origin).__name__, **origin.settings()}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def loaded(folder: Path, entries: Sequence[CorpusEntry], name: str) -> NDArray[Any]:
    """One array of all recordings, (recordings, segments, ...)."""
    parts = []
    for entry in entries:
        with np.load(_path(folder, entry), allow_pickle=False) as arrays:
            parts.append(arrays[name])
    return np.stack(parts)


def _content(origin: RecordingOrigin, entry: CorpusEntry) -> bytes:
    """Of the file of an entry; written by whoever asked, so that workers need not write anything."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **origin.measure(entry))
    return content.getvalue()


def _path(folder: Path, entry: CorpusEntry) -> Path:
    return folder / f"{entry.name}-{zlib.crc32(entry.label.encode()):08x}.npz"


def _long_enough(folder: Path, entries: Sequence[CorpusEntry], console: Console) -> list[CorpusEntry]:
    kept, short = list[CorpusEntry](), list[CorpusEntry]()
    for entry in entries:
        with np.load(_path(folder, entry), allow_pickle=False) as arrays:
            long = "clean" in arrays and len(arrays["clean"]) == N_SEGMENTS
        (kept if long else short).append(entry)
    if short:
        names = ", ".join(entry.name for entry in short[:5]) + (" ..." if len(short) > 5 else "")
        console.print(f"left out, for they have fewer than {N_SEGMENTS} labelled segments: {len(short)} ({names})")
    return kept


# Splits


def split(entries: Sequence[CorpusEntry], n_per_class: int, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Places of the training and the test recordings: so many of each class for training, all others for testing.

    Sources in random order go to the training side while they bring something that is still wanted, each no more than
    its share if half of the sources are to do; what they bring beyond that is used on neither side.
    """
    labels = sorted({entry.label for entry in entries})
    sources = sorted({entry.source for entry in entries})
    share = ceil(n_per_class / (len(sources) / 2))
    taken, train, test = Counter[str](), list[int](), list[int]()
    for source in rng.permutation(sources):
        own = [place for place, entry in enumerate(entries) if entry.source == source]
        order = rng.permutation(own).tolist()
        room = {label: min(share, n_per_class - taken[label]) for label in labels}
        wanted = [place for label in labels for place in _first(room[label], label, order, entries)]
        taken.update(entries[place].label for place in wanted)
        train += wanted
        test += [] if wanted else own
    tested = Counter(entries[place].label for place in test)
    for label in labels:
        if taken[label] < n_per_class or not tested[label]:
            raise UsageError(
                f"{sum(entry.label == label for entry in entries)} recordings of {label!r} give {taken[label]} for "
                f"training and {tested[label]} for testing, there must be {n_per_class} and at least 1; "
                "give more recordings, or more sources"
            )
    return sorted(train), sorted(test)


def _first(n: int, label: str, places: Sequence[int], entries: Sequence[CorpusEntry]) -> list[int]:
    return [place for place in places if entries[place].label == label][:n]


def split_is_possible(entries: Sequence[CorpusEntry], n_per_class: int) -> None:
    """Complain before anything is measured, not in the middle of it."""
    split(entries, n_per_class, np.random.default_rng(0))
