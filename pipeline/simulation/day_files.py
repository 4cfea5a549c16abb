"""A simulated day on disk: pieces of one continuous recording, its labels and all that is known about it.

The pieces are named by time, for example `day1_20260101_001000.flac`; the pattern in `PATTERN` joins them into one
recording, named `day` and the seed. `labels.csv` holds the audible spans of passages and the stretches labeled
`nobody`, `passages.csv` and `distractors.csv` all that was drawn, `truth.csv` the faults of sensors.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pipeline import __version__
from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import UsageError
from pipeline.runtime.process_pool import Engine, progress_bar
from pipeline.simulation.climate import PIECE_SECONDS
from pipeline.simulation.dataset import FORMATS, claim, write_table
from pipeline.simulation.day import Day, PassageTruth, quiet_stretches
from pipeline.simulation.faults import LSB
from pipeline.simulation.subjects import NOBODY

PATTERN = "{recording}_{time:%Y%m%d_%H%M%S}"
"""Of file names, without their suffix."""
MARGIN_SECONDS = 5.0
"""Around passages, without a label."""
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_LONGEST_FILE_SECONDS = 3600
_PASSAGES, _DISTRACTORS, _FILES = "passages", "distractors", "files"


@dataclass(frozen=True, slots=True)
class DayFiles:
    """A day as files of `piece_seconds` each; the sound does not depend on how it is cut."""

    day: Day
    piece_seconds: int = 600
    format: str = "flac"

    def __post_init__(self) -> None:
        if not PIECE_SECONDS <= self.piece_seconds <= _LONGEST_FILE_SECONDS:
            raise UsageError(
                f"pieces of {self.piece_seconds} s must be {PIECE_SECONDS} to {_LONGEST_FILE_SECONDS} s long; "
                "for example 600"
            )
        if self.format not in FORMATS:
            raise UsageError(f"format {self.format!r} is not known; choose one of {', '.join(FORMATS)}")
        site = self.day.site
        if self.format == "flac" and (len(site.sensors_m) > 8 or site.rate_hz > 65_535):
            raise UsageError(
                f"FLAC has at most 8 channels at 65535 Hz, not {len(site.sensors_m)} at {site.rate_hz} Hz; "
                "choose the format wav"
            )

    @property
    def recording(self) -> str:
        return f"day{self.day.site.seed}"

    @property
    def pattern(self) -> str:
        """Return the pattern that joins the files into one recording."""
        return f"{PATTERN}.{self.format}"

    @property
    def n_files(self) -> int:
        return int(-(-self.day.seconds // self.piece_seconds))

    def file(self, number: int) -> str:
        begin = _BEGIN + timedelta(hours=self.day.start_hour, seconds=number * self.piece_seconds)
        return f"{self.recording}_{begin:%Y%m%d_%H%M%S}.{self.format}"

    def span(self, number: int) -> tuple[int, int]:
        """Return the samples of a file."""
        length = self.piece_seconds * self.day.site.rate_hz
        return number * length, min((number + 1) * length, self.day.length)

    def as_dict(self) -> dict[str, Any]:
        """Return all that decides the bits."""
        day, site = self.day, self.day.site
        return {
            "gemmed": __version__,
            "kind": "day",
            "hours": day.hours,
            "passages_per_day": day.passages_per_day,
            "distractors_per_day": day.distractors_per_day,
            "classes": list(day.classes),
            "start_hour": day.start_hour,
            "first_passage_seconds": day.first_passage_seconds,
            "piece_seconds": self.piece_seconds,
            "format": self.format,
            "pattern": self.pattern,
            "seed": site.seed,
            "rate_hz": site.rate_hz,
            "surface": site.surface,
            "sensors": len(site.sensors_m),
            "sensors_m": site.sensors_m.tolist(),
            "faults": list(site.faults.kinds) if site.faults else [],
            "fault_shares": list(site.faults.shares) if site.faults else [],
            "fault_seconds": site.faults.mean_seconds if site.faults else None,
            "clips": None if site.clips is None else site.clips.digest,
        }


@dataclass(frozen=True, slots=True)
class DayTruth:
    """What is known about a day beside its sound."""

    passages: tuple[PassageTruth, ...]
    distractors_db: tuple[float, ...]
    """Peak signal-to-noise ratio of each distractor at the sensor where it is highest."""


def write_day(files: DayFiles, out: Path, *, engine: Engine, restart: bool, console: Console) -> DayTruth:
    """Write what is missing of a day; a file is there whole or not at all, tables are written at the end."""
    claim(out, files.as_dict(), restart=restart)
    missing = [number for number in range(files.n_files) if not _is_whole(files, out, number)]
    done = files.n_files - len(missing)
    if done and missing:
        console.print(f"continuing: {done} files are there, {len(missing)} to go")
    tasks = [(_FILES, number) for number in missing]
    tasks += [(_PASSAGES, number) for number in range(len(files.day.passages))]
    tasks += [(_DISTRACTORS, number) for number in range(len(files.day.distractors))]
    passages: dict[int, PassageTruth] = {}
    levels: dict[int, float] = {}
    with progress_bar(console) as progress:
        bar = progress.add_task("files", total=files.n_files, completed=done)
        more = progress.add_task("truth", total=len(tasks) - len(missing))
        for (kind, number), result in engine.finished(partial(_done, files, out), tasks):
            progress.advance(bar if kind == _FILES else more)
            if isinstance(result, PassageTruth):
                passages[number] = result
            elif isinstance(result, float):
                levels[number] = result
    truth = DayTruth(
        tuple(passages[number] for number in sorted(passages)), tuple(levels[number] for number in sorted(levels))
    )
    _write_tables(files, out, truth)
    console.print(_summary(files, truth))
    return truth


def label_rows(day: Day, passages: Sequence[PassageTruth]) -> list[tuple[float, float, str]]:
    """Return disjoint spans with their labels in the order of time: audible passages, and `nobody` between them."""
    rows = [(one.start_seconds, one.end_seconds, one.label) for one in passages if one.is_audible]
    rows += [
        (start, end, NOBODY)
        for start, end in quiet_stretches(day, margin_seconds=MARGIN_SECONDS, distractor_margin_seconds=None)
    ]
    return sorted(rows)


def _done(files: DayFiles, out: Path, task: tuple[str, int]) -> PassageTruth | float | None:
    kind, number = task
    if kind == _PASSAGES:
        return files.day.truth(number)
    if kind == _DISTRACTORS:
        return files.day.peak_db(number)
    _write_file(files, out, number)
    return None


def _is_whole(files: DayFiles, out: Path, number: int) -> bool:
    """Whether a file is there with its last sample; the header of FLAC tells a length that may not be there."""
    import soundfile

    start, stop = files.span(number)
    try:
        with soundfile.SoundFile(out / files.file(number)) as file:
            if (file.frames, file.channels) != (stop - start, len(files.day.site.sensors_m)):
                return False
            file.seek(file.frames - 1)
            return len(file.read(1)) == 1
    except soundfile.SoundFileError:
        return False


def _write_file(files: DayFiles, out: Path, number: int) -> None:
    import soundfile

    day, rate_hz = files.day, files.day.site.rate_hz
    start, stop = files.span(number)
    # Into memory first: Python, unlike libsndfile, says what is wrong with a disk.
    encoded = io.BytesIO()
    with soundfile.SoundFile(
        encoded, "w", rate_hz, len(day.site.sensors_m), subtype="PCM_16", format=files.format.upper()
    ) as file:
        for at in range(start, stop, PIECE_SECONDS * rate_hz):
            samples = day.read(at, min(at + PIECE_SECONDS * rate_hz, stop))
            file.write((samples.T / np.float32(LSB)).astype(np.int16))
    write_whole(out / files.file(number), encoded.getvalue())


def _write_tables(files: DayFiles, out: Path, truth: DayTruth) -> None:
    day, name = files.day, files.recording
    rate_hz = day.site.rate_hz
    write_table(
        out / "labels.csv",
        ("recording", "start_seconds", "end_seconds", "label"),
        [(name, *_rounded(row)) for row in label_rows(day, truth.passages)],
    )
    write_table(
        out / "truth.csv",
        ("recording", "sensor", "start_seconds", "end_seconds", "fault"),
        [
            (name, fault.sensor + 1, fault.start / rate_hz, fault.stop / rate_hz, fault.fault)
            for fault in sorted(day.episodes, key=lambda fault: (fault.sensor, fault.start))
        ],
    )
    write_table(
        out / "passages.csv",
        ("recording", *(column.name for column in fields(PassageTruth))),
        [(name, *_rounded(tuple(asdict(passage).values()))) for passage in truth.passages],
    )
    write_table(
        out / "distractors.csv",
        ("recording", "start_seconds", "end_seconds", "kind", "sensor", "peak_db"),
        [
            (name, *_rounded((one.start_seconds, one.end_seconds)), one.kind, _sensor(one.sensor), *_rounded((level,)))
            for one, level in zip(day.distractors, truth.distractors_db, strict=True)
        ],
    )


def _sensor(sensor: int | None) -> str:
    return "all" if sensor is None else str(sensor + 1)


def _rounded(values: Sequence[object]) -> list[object]:
    """Milliseconds, millimeters and thousandths of a decibel suffice."""
    return [round(value, 3) if isinstance(value, float) else value for value in values]


def _summary(files: DayFiles, truth: DayTruth) -> Table:
    """Passages by class, distractors by kind, time with nobody, and failing sensors."""
    day = files.day
    begin = _BEGIN + timedelta(hours=day.start_hour)
    table = Table(title=f"{day.seconds / 3600:g} h from {begin:%H:%M}, recording {files.recording}")
    for column in ("what", "number", "seconds", "median SNR, dB"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for label in day.classes:
        chosen = [one for one in truth.passages if one.label == label]
        seconds = sum(one.end_seconds - one.start_seconds for one in chosen)
        table.add_row(label, str(len(chosen)), f"{seconds:.0f}", _median([one.peak_db for one in chosen]))
    counted = Counter(one.kind for one in day.distractors)
    for kind in sorted(counted):
        chosen_db = [
            level for one, level in zip(day.distractors, truth.distractors_db, strict=True) if one.kind == kind
        ]
        seconds = sum(one.end_seconds - one.start_seconds for one in day.distractors if one.kind == kind)
        table.add_row(kind, str(counted[kind]), f"{seconds:.0f}", _median(chosen_db))
    quiet = quiet_stretches(day, margin_seconds=MARGIN_SECONDS, distractor_margin_seconds=None)
    table.add_row(NOBODY, str(len(quiet)), f"{sum(end - start for start, end in quiet):.0f}", "")
    for sensor in range(len(day.site.sensors_m)) if day.episodes else ():
        own = [fault for fault in day.episodes if fault.sensor == sensor]
        seconds = sum(fault.stop - fault.start for fault in own) / day.site.rate_hz
        table.add_row(f"faults of sensor {sensor + 1}", str(len(own)), f"{seconds:.0f}", "")
    return table


def _median(values: Sequence[float]) -> str:
    return f"{np.median(values):.0f}" if len(values) else ""
