"""`gemmed passages`: list passages, filter them, and write them as tables or sound."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import GemmedError, NotFound, UsageError
from pipeline.core.passages import NO_LABEL, PassageRow
from pipeline.reports.passage_tables import as_audacity, as_csv, counts_text, passages_table
from pipeline.reports.tables import wide_console
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.clips import write_sound
from pipeline.storage.passage_sources import PassageSource, ReplayedPassages, StoredPassages

FOUND, NONE_MATCH = 0, 1
_MOST_FLAC_CHANNELS = 8
STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which passages are wanted."""

    since: datetime | None = None
    until: datetime | None = None
    labels: Sequence[str] = ()
    least_probability: float | None = None
    recording: str | None = None
    ids: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError(f"--since={self.since} must be before --until={self.until}; exchange them")
        if self.least_probability is not None and not 0 <= self.least_probability <= 1:
            raise UsageError(f"--least-probability={self.least_probability:g} must be 0 to 1; for example 0.9")

    def chosen(self, rows: Sequence[PassageRow]) -> list[PassageRow]:
        """Return the rows that fit all conditions; a recording or an id that is not there is an error."""
        if (self.since or self.until) and any(row.start_time is None for row in rows):
            raise UsageError(
                "--since and --until need recordings with a start time, which these do not have; give the time in "
                "file names with gemmed replay --pattern, or use --recording"
            )
        recording = _recording_named(rows, self.recording) if self.recording is not None else None
        found = [passage_named(rows, name) for name in self.ids] if self.ids else rows
        return [row for row in found if self.fits(row) and (recording is None or recording in _recordings_of(row))]

    def fits(self, row: PassageRow) -> bool:
        """Return whether a passage fits time, label and probability."""
        if self.since is not None and row.end_time is not None and row.end_time <= self.since:
            return False
        if self.until is not None and row.start_time is not None and row.start_time >= self.until:
            return False
        if self.labels and (row.label or NO_LABEL) not in self.labels:
            return False
        return self.least_probability is None or (row.probability or 0.0) >= self.least_probability


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where passages go; a table on the console if nowhere else. `-` is standard output."""

    csv: Path | None = None
    audacity: Path | None = None
    as_json: bool = False
    clips: Path | None = None

    def __post_init__(self) -> None:
        to_standard_output = [
            name
            for name, chosen in (
                ("--json", self.as_json),
                ("--csv -", self.csv == STANDARD_OUTPUT),
                ("--audacity -", self.audacity == STANDARD_OUTPUT),
            )
            if chosen
        ]
        if len(to_standard_output) > 1:
            raise UsageError(f"{' and '.join(to_standard_output)} both write to standard output; give one a file")

    @property
    def any(self) -> bool:
        return self.as_json or any(place is not None for place in (self.csv, self.audacity, self.clips))


def source_at(where: Path, *, recordings: Sequence[Path] = (), pattern: str | None = None) -> PassageSource:
    """Return the passages of a place: a `.jsonl` file, a settings file or a state directory."""
    if where.suffix == ".jsonl":
        return ReplayedPassages(where, recordings, pattern)
    if recordings:
        raise UsageError(
            "--recordings belongs to a .jsonl of gemmed replay; a daemon's sound is in its state directory"
        )
    if where.suffix == ".toml":
        from pipeline.config.schema import read_settings

        return StoredPassages(StateDirectory(read_settings(where).storage.directory))
    if where.is_file():
        raise UsageError(
            f"{where} must be a state directory, settings (.toml) or decisions (.jsonl); for example state"
        )
    return StoredPassages(StateDirectory(where))


def run_passages(source: PassageSource, wanted: Filter, outputs: Outputs) -> int:
    """Show or write the passages that match; the exit code says whether there are any."""
    rows = wanted.chosen(source.passages(wanted.since, wanted.until))
    if outputs.as_json:
        print(json.dumps([row.as_dict() for row in rows], indent=1))
    if outputs.csv is not None:
        write_text(outputs.csv, as_csv(rows), f"{len(rows)} passages")
    if outputs.audacity is not None:
        write_text(outputs.audacity, as_audacity(rows, _one_recording(rows, wanted)), f"{len(rows)} passages")
    if outputs.clips is not None and rows:
        _write_clips(source, rows, outputs.clips)
    if not outputs.any:
        console = wide_console()
        if rows:
            console.print(passages_table(rows))
        console.print(counts_text(rows), highlight=False)
    return FOUND if rows else NONE_MATCH


def passage_named(rows: Sequence[PassageRow], name: str) -> PassageRow:
    """Return the passage of an id, or of an end of it that only one has."""
    ids = {part.passage: row for row in rows for part in row.parts}
    if name in ids:
        return ids[name]
    found = {row.passage: row for own, row in ids.items() if f"-{own}".endswith(f"-{name}")}
    if len(found) > 1:
        raise UsageError(f"{name!r} ends the ids of {len(found)} passages ({', '.join(found)}); write more of it")
    if not found:
        raise NotFound(f"there is no passage {name!r}; gemmed passages lists them")
    return next(iter(found.values()))


def _recordings_of(row: PassageRow) -> set[str]:
    return {part.recording for part in row.parts}


def _recording_named(rows: Sequence[PassageRow], name: str) -> str:
    """Return the full name of a recording; one without passages matches nothing."""
    known = {recording for row in rows for recording in _recordings_of(row)}
    found = sorted(one for one in known if f"-{one}".endswith(f"-{name}"))
    if name in known or not found:
        return name
    if len(found) > 1:
        raise UsageError(f"{name!r} ends the names of {len(found)} recordings ({', '.join(found)}); write more of it")
    return found[0]


def _one_recording(rows: Sequence[PassageRow], wanted: Filter) -> str:
    if wanted.recording is not None:
        return _recording_named(rows, wanted.recording)
    found = sorted({recording for row in rows for recording in _recordings_of(row)})
    if len(found) > 1:
        raise UsageError(
            f"--audacity writes the label track of one recording, and the passages lie in {len(found)}; "
            f"add --recording, for example --recording {found[0]}"
        )
    return found[0] if found else ""


def write_text(place: Path, text: str, what: str) -> None:
    """Write a file, or to standard output if the place is `-`."""
    if place == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, text.encode())
    _say(f"written: {place}, {what}")


def _write_clips(source: PassageSource, rows: Sequence[PassageRow], directory: Path) -> None:
    """Write a file for each passage; one whose sound is gone is named and left out."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"--clips={str(directory)!r} is a file; give a directory")
    directory.mkdir(parents=True, exist_ok=True)
    problems: list[GemmedError] = []
    for row in rows:
        try:
            sound = source.sound(row)
        except GemmedError as error:
            problems.append(error)
            continue
        ending = "flac" if sound.samples.shape[1] <= _MOST_FLAC_CHANNELS else "wav"
        out = directory / f"{row.passage.replace('/', '_')}.{ending}"
        write_sound(out, sound)
        _say(f"written: {out}, {sound.seconds:.1f} s")
    if len(problems) == len(rows):
        raise problems[0]
    for problem in problems:
        _say(str(problem))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
