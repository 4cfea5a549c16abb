"""Which sensor failed when, for those who know it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import UsageError

COLUMNS = ("recording", "sensor", "start_seconds", "end_seconds", "fault")


@dataclass(frozen=True, slots=True)
class Failure:
    """A stretch of time in which a sensor, counted from 1, did not deliver what it should."""

    recording: str
    sensor: int
    start_seconds: float
    end_seconds: float
    fault: str


class Truth:
    """All failures of some recordings."""

    def __init__(self, failures: Iterable[Failure]) -> None:
        self._of: dict[tuple[str, int], list[Failure]] = {}
        for failure in failures:
            self._of.setdefault((failure.recording, failure.sensor), []).append(failure)

    @property
    def recordings(self) -> set[str]:
        return {recording for recording, _ in self._of}

    def check(self, recordings: set[str], n_sensors: int) -> None:
        """Refuse failures of sensors that are not there, and a table that belongs to other recordings."""
        strange = [(name, sensor) for name, sensor in self._of if sensor > n_sensors]
        if strange:
            raise UsageError(
                f"the table of failures names sensor {strange[0][1]} in {strange[0][0]!r}, the array has {n_sensors}; "
                "correct it"
            )
        if self._of and not self.recordings & recordings:
            raise UsageError(
                f"the table of failures names {min(self.recordings)!r}, and no recording that was decided about; "
                "give the table of these recordings"
            )

    def overlap(self, recording: str, sensor: int, start_seconds: float, end_seconds: float) -> tuple[float, str]:
        """Share of a stretch with a failure, and the one that takes most of it; "" if there is none."""
        shares: dict[str, float] = {}
        for failure in self._of.get((recording, sensor), ()):
            common = min(failure.end_seconds, end_seconds) - max(failure.start_seconds, start_seconds)
            if common > 0:
                shares[failure.fault] = shares.get(failure.fault, 0.0) + common / (end_seconds - start_seconds)
        longest = max(shares, key=lambda fault: shares[fault], default="")
        return min(1.0, sum(shares.values())), longest


def read_truth(path: Path) -> Truth:
    """A table recording,sensor,start_seconds,end_seconds,fault as the simulator writes it."""
    try:
        file = path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; give a table of failures") from error
    with file, _utf8(path):
        rows = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
        if missing:
            raise UsageError(f"{path} has no column {missing[0]!r} in its first line; it needs {','.join(COLUMNS)}")
        return Truth([_failure(row, f"{path} line {rows.line_num}") for row in rows])


@contextmanager
def _utf8(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text; save it as UTF-8") from error


def _failure(row: dict[str, str], where: str) -> Failure:
    try:
        found = Failure(
            row["recording"],
            int(row["sensor"]),
            float(row["start_seconds"]),
            float(row["end_seconds"]),
            row["fault"].strip(),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{where} must have a sensor number from 1 on and two times in seconds; correct it") from error
    if found.sensor < 1 or not 0 <= found.start_seconds < found.end_seconds:
        raise UsageError(f"{where}: sensor {found.sensor} must be 1 or more and the end after the start; correct it")
    return found
