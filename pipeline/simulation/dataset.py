"""Simulated recordings on disk, with their labels and the truth about their sensors."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pipeline import __version__
from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import UsageError
from pipeline.runtime.process_pool import Engine, progress_bar
from pipeline.simulation.faults import FaultEpisode
from pipeline.simulation.scene import ANIMAL_SHARE, Site, episodes_of, record
from pipeline.simulation.subjects import HUMAN, HUMAN_WITH_ANIMAL

FORMATS = ("wav", "flac")
_MOST_RECORDINGS = 100_000
_WRITTEN = (
    "r[0-9]*.wav",
    "r[0-9]*.flac",
    "day[0-9]*_[0-9]*_[0-9]*.wav",
    "day[0-9]*_[0-9]*_[0-9]*.flac",
    "labels.csv",
    "truth.csv",
    "passages.csv",
    "distractors.csv",
    "contact_sheet.png",
    "day.png",
    "*.partial",
)
"""Names of all that a simulation writes, but for `simulation.json`."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """So many recordings of a site, of which the published share shows a human leading an animal.

    If `classes` are given, all of them occur equally often instead.
    """

    site: Site
    n_recordings: int
    format: str = "wav"
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UsageError(f"format {self.format!r} is not known; choose one of {', '.join(FORMATS)}")
        if self.format == "flac" and (len(self.site.sensors_m) > 8 or self.site.rate_hz > 65_535):
            raise UsageError(
                f"FLAC has at most 8 channels at 65535 Hz, not {len(self.site.sensors_m)} at {self.site.rate_hz} Hz; "
                "choose the format wav"
            )
        if self.n_recordings > _MOST_RECORDINGS:
            raise UsageError(f"{self.n_recordings} recordings must be at most {_MOST_RECORDINGS}; for example 150")

    def labels(self) -> list[str]:
        n_animals = round(self.n_recordings * ANIMAL_SHARE)
        order = np.random.default_rng([self.site.seed, self.n_recordings, 6]).permutation(self.n_recordings)
        if self.classes is not None:
            return [self.classes[place % len(self.classes)] for place in order]
        return [HUMAN_WITH_ANIMAL if place < n_animals else HUMAN for place in order]

    def name(self, number: int) -> str:
        return f"r{number + 1:0{max(3, len(str(self.n_recordings)))}d}"

    def file(self, number: int) -> str:
        return f"{self.name(number)}.{self.format}"

    def as_dict(self) -> dict[str, Any]:
        """All that decides the bits."""
        site = self.site
        return ({} if self.classes is None else {"classes": list(self.classes)}) | {
            "gemmed": __version__,
            "recordings": self.n_recordings,
            "format": self.format,
            "seed": site.seed,
            "rate_hz": site.rate_hz,
            "seconds": site.duration_seconds,
            "surface": site.surface,
            "sensors": len(site.sensors_m),
            "sensors_m": site.sensors_m.tolist(),
            "faults": list(site.faults.kinds) if site.faults else [],
            "fault_shares": list(site.faults.shares) if site.faults else [],
            "fault_seconds": site.faults.mean_seconds if site.faults else None,
            "clips": None if site.clips is None else site.clips.digest,
        }


def write_dataset(dataset: Dataset, out: Path, *, engine: Engine, restart: bool, console: Console) -> None:
    """Write what is missing of a dataset; recordings are there whole or not at all, tables when all of them are."""
    claim(out, dataset.as_dict(), restart=restart)
    missing = [number for number in range(dataset.n_recordings) if not _is_whole(dataset, out / dataset.file(number))]
    done = dataset.n_recordings - len(missing)
    if done and missing:
        console.print(f"continuing: {done} recordings are there, {len(missing)} to go")
    labels = dataset.labels()
    with progress_bar(console) as progress:
        bar = progress.add_task("recordings", total=dataset.n_recordings, completed=done)
        work = partial(_write_recording, dataset, out, labels)
        for _ in engine.finished(work, missing):
            progress.advance(bar)
    episodes = [episodes_of(dataset.site, number) for number in range(dataset.n_recordings)]
    write_table(
        out / "labels.csv", ("recording", "start_seconds", "end_seconds", "label"), _label_rows(dataset, labels)
    )
    write_table(
        out / "truth.csv",
        ("recording", "sensor", "start_seconds", "end_seconds", "fault"),
        _truth_rows(dataset, episodes),
    )
    console.print(_summary(dataset, labels, episodes))


def _is_whole(dataset: Dataset, path: Path) -> bool:
    """Whether a recording is there; one that somebody has damaged since is not."""
    import soundfile

    try:
        found = soundfile.info(path)
    except soundfile.SoundFileError:
        return False
    return (found.frames, found.channels) == (dataset.site.length, len(dataset.site.sensors_m))


def claim(out: Path, wanted: dict[str, Any], *, restart: bool) -> None:
    """Make a directory that belongs to the simulation with these settings and no other."""
    note = out / "simulation.json"
    out.mkdir(parents=True, exist_ok=True)
    if not note.exists() and any(not path.name.endswith(".partial") for path in out.iterdir()):
        raise UsageError(f"{out} is not empty and holds no simulation; give a directory of its own")
    if note.exists() and restart:
        _forget(out)
    elif note.exists():
        _compare(note, wanted)
    write_whole(note, (json.dumps(wanted, indent=1) + "\n").encode())


def _forget(out: Path) -> None:
    """Remove an earlier simulation, and nothing but what it wrote."""
    for pattern in _WRITTEN:
        for path in out.glob(pattern):
            path.unlink()


def _compare(note: Path, wanted: dict[str, Any]) -> None:
    try:
        found = json.loads(note.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{note} is damaged; add --restart to write everything anew")
    differences = [name for name, value in json.loads(json.dumps(wanted)).items() if found.get(name) != value]
    if differences:
        told = ", ".join(f"{name} {_brief(found.get(name))} there, {_brief(wanted[name])} here" for name in differences)
        raise UsageError(
            f"{note.parent} holds another simulation ({told}); give another directory, or add --restart to discard it"
        )


def _brief(value: object) -> str:
    return shorten(str(value), 60, placeholder=" ...") if value is not None else "none"


def _write_recording(dataset: Dataset, out: Path, labels: Sequence[str], number: int) -> None:
    import soundfile

    samples = record(dataset.site, number, label=labels[number]).samples
    # Into memory first: Python, unlike libsndfile, tells what is wrong with a disk.
    encoded = io.BytesIO()
    soundfile.write(encoded, samples.T, dataset.site.rate_hz, subtype="PCM_16", format=dataset.format.upper())
    write_whole(out / dataset.file(number), encoded.getvalue())


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def _label_rows(dataset: Dataset, labels: Sequence[str]) -> list[Sequence[object]]:
    return [(dataset.name(number), 0.0, dataset.site.duration_seconds, label) for number, label in enumerate(labels)]


def _truth_rows(dataset: Dataset, episodes: Sequence[Sequence[FaultEpisode]]) -> list[Sequence[object]]:
    rate_hz = dataset.site.rate_hz
    return [
        (dataset.name(number), fault.sensor + 1, fault.start / rate_hz, fault.stop / rate_hz, fault.fault)
        for number, faults in enumerate(episodes)
        for fault in sorted(faults, key=lambda fault: (fault.sensor, fault.start))
    ]


def _summary(dataset: Dataset, labels: Sequence[str], episodes: Sequence[Sequence[FaultEpisode]]) -> Table:
    """Recordings per label, and how long each fault lasts at each sensor."""
    site = dataset.site
    counted = Counter(labels)
    what = ", ".join(f"{counted[label]} {label}" for label in dataset.classes or (HUMAN, HUMAN_WITH_ANIMAL))
    table = Table(title=f"{dataset.n_recordings} recordings of {site.duration_seconds:g} s: {what}")
    table.add_column("fault, seconds")
    for sensor in range(len(site.sensors_m)):
        table.add_column(f"sensor {sensor + 1}", justify="right")
    seconds: Counter[tuple[str, int]] = Counter()
    for fault in (fault for faults in episodes for fault in faults):
        seconds[fault.fault, fault.sensor] += fault.stop - fault.start
    sensors = range(len(site.sensors_m))
    for kind in sorted({kind for kind, _ in seconds}):
        table.add_row(kind, *(f"{seconds[kind, sensor] / site.rate_hz:.1f}" for sensor in sensors))
    total = dataset.n_recordings * site.length
    shares = [sum(seconds[key] for key in seconds if key[1] == sensor) / total for sensor in sensors]
    table.add_row("share of the time", *(f"{share:.1%}" for share in shares))
    return table
