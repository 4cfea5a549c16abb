"""`gemmed fleet passages`: list and follow the passages of all arrays of a fleet."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress, TaskID

from pipeline.cli.commands.passages import FOUND, NONE_MATCH, STANDARD_OUTPUT, Filter, Outputs, write_text
from pipeline.daemon.console import plain_console
from pipeline.fleet.config import Fleet
from pipeline.fleet.passages import FleetPassage, FleetPassages
from pipeline.reports.passage_tables import (
    as_csv,
    cadence_text,
    counts_text,
    excluded_text,
    label_text,
    passages_table,
    span_text,
    time_text,
)
from pipeline.reports.tables import wide_console
from pipeline.runtime.process_pool import progress_bar
from pipeline.transport.nats import Broker

_WORTH_A_BAR = 2000


@dataclass(frozen=True, slots=True)
class PassageListing:
    """A listing of the passages that match, in one of the output formats."""

    fleet: Fleet
    broker: Broker
    arrays: Sequence[str]
    wanted: Filter
    outputs: Outputs

    def run(self) -> int:
        """Write the passages that are there; the exit code says whether there are any."""
        passages = self._passages()
        with _progress() as progress:
            passages.read(progress)
        found = self._chosen(passages.found())
        self._write(found)
        return FOUND if found else NONE_MATCH

    def follow(self) -> None:
        """Write each passage once it is complete, first those that are there; until interrupted."""
        passages, place = self._passages(), self.outputs.csv
        with _progress() as progress:
            passages.read(progress)
        if place is not None:
            _append(place, as_csv([], _columns([])), mode="w")
        for one in passages.follow():
            if not self.wanted.fits(one.row):
                continue
            if place is not None:
                _append(place, as_csv([one.row], _columns([one]), header=False))
            if self.outputs.as_json:
                print(json.dumps(one.as_dict()), flush=True)
            if not self.outputs.any:
                print(line_text(one), flush=True)

    def _passages(self) -> FleetPassages:
        return FleetPassages(self.fleet, self.broker, self.arrays, since=self.wanted.since)

    def _chosen(self, found: Sequence[FleetPassage]) -> list[FleetPassage]:
        fitting = {id(row) for row in self.wanted.chosen([one.row for one in found])}
        return [one for one in found if id(one.row) in fitting]

    def _write(self, found: Sequence[FleetPassage]) -> None:
        rows = [one.row for one in found]
        if self.outputs.as_json:
            print(json.dumps([one.as_dict() for one in found], indent=1))
        if self.outputs.csv is not None:
            write_text(self.outputs.csv, as_csv(rows, _columns(found)), f"{len(rows)} passages")
        if self.outputs.any:
            return
        console = wide_console()
        if rows:
            console.print(passages_table(rows, _columns(found)))
        console.print(counts_text(rows), highlight=False)


def line_text(one: FleetPassage) -> str:
    """Return a passage in one line: time, array, site, label, duration, cadence, sensors."""
    row = one.row
    place = one.array if one.site == one.array else f"{one.array} ({one.site})"
    details = [
        f"{time_text(row)} UTC" if row.start_time is not None else f"{row.recording} {span_text(row)} s",
        place,
        label_text(row),
        f"{row.duration_seconds:.0f} s",
        cadence_text(row),
        f"sensors {' '.join(map(str, row.sensors_used)) or 'none'}",
        f"excluded {excluded_text(row)}" if row.sensors_excluded else "",
    ]
    return ", ".join(filter(None, details))


def _columns(found: Sequence[FleetPassage]) -> dict[str, list[str]]:
    return {"array": [one.array for one in found], "site": [one.site for one in found]}


def _append(place: Path, text: str, *, mode: str = "a") -> None:
    if place == STANDARD_OUTPUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with place.open(mode, encoding="utf-8", newline="") as file:
        file.write(text)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error if there is much to read."""
    with ExitStack() as stack:
        shown: list[tuple[Progress, TaskID]] = []

        def show(done: int, left: int) -> None:
            if not shown and left > _WORTH_A_BAR:
                bar = stack.enter_context(progress_bar(plain_console(stderr=True)))
                shown.append((bar, bar.add_task("reading passages", total=done + left)))
            for bar, task in shown:
                bar.update(task, completed=done, total=done + left)

        yield show
