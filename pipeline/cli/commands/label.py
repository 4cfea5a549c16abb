"""`gemmed label`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from pipeline.cli.commands.passages import passage_named
from pipeline.core.errors import UsageError
from pipeline.reports.tables import wide_console
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from pipeline.storage.label_table import LabelRow, label_row, labels_of_known_recordings
from pipeline.storage.labels import (
    LabelSpan,
    LabelSubmission,
    check_word,
    give,
    moment_at,
    moment_in,
    moment_of_event,
    parsed_time,
    require_finite,
    somebody,
)
from pipeline.storage.labels import take_back as taken_back
from pipeline.storage.passage_sources import StoredPassages


@dataclass(frozen=True, slots=True)
class LabelPlace:
    """Where a user says that something was heard; one of four ways."""

    event: int | None
    at: str | None
    lasting_seconds: float
    recording: str | None
    begin: float | None
    end: float | None
    passage: str | None = None

    def moments(self, state: StateDirectory, journal: Journal) -> list[LabelSpan]:
        """Return the stretches to label: one; of a passage one for each recording that it lies in."""
        if self.passage is not None:
            self._check()
            row = passage_named(StoredPassages(state).passages(), self.passage)
            return [LabelSpan(part.recording, part.start_sample, part.stop_sample) for part in row.parts]
        return [self.moment(journal)]

    def _check(self) -> None:
        ways = [self.event, self.at, self.passage, self.end if self.begin is None else self.begin]
        if sum(way is not None for way in ways) != 1:
            raise UsageError(
                "a label needs a place, and only one: give --passage ID, or --event ID, or --at TIME, or "
                "--from S --to S"
            )

    def moment(self, journal: Journal) -> LabelSpan:
        self._check()
        require_finite("--for", self.lasting_seconds)
        require_finite("--from", self.begin)
        require_finite("--to", self.end)
        if self.event is not None:
            return moment_of_event(journal, self.event)
        if self.at is not None:
            return moment_at(journal, parsed_time(self.at), self.lasting_seconds)
        if self.begin is None or self.end is None:
            raise UsageError("--from and --to belong together; give both, in seconds into the recording")
        return moment_in(journal, self.recording, self.begin, self.end)


def run_label(
    state: StateDirectory,
    name: str | None,
    place: LabelPlace,
    *,
    take_back: int | None,
    show: bool,
    new: bool,
    who: str | None,
    why: str,
) -> None:
    console = wide_console()
    if not state.journal.exists():
        raise UsageError(f"{state.journal} is not there; start gemmed run first, or give --state")
    if show:
        with Journal(state.journal, read_only=True) as journal:
            console.print(_table(journal))
        return
    with Journal(state.journal, durable=True) as journal:
        said_by = who or somebody()
        if take_back is not None and name:
            raise UsageError(f"--take-back {take_back} and a new label, {name!r}, are two things; say one at a time")
        if take_back is not None:
            number = taken_back(journal, take_back, LabelSubmission(None, said_by, why))
            console.print(f"label {take_back} is taken back by {number}", highlight=False)
            return
        if not name:
            raise UsageError("LABEL is missing; say what was heard, for example: gemmed label human --at -60s")
        if not new:
            check_word(journal, name)
        for moment in place.moments(state, journal):
            number = give(journal, moment, LabelSubmission(name, said_by, why))
            console.print(_given(journal, number), highlight=False, soft_wrap=True)


def _given(journal: Journal, number: int) -> str:
    """Say what a label says, and of how much: it reaches only as far as was heard."""
    row = label_row(journal, number)
    assert row is not None
    begin, end = row.seconds
    return f"label {number}: {row.label} in {row.recording}, {begin:.2f} to {end:.2f} s"


def _table(journal: Journal) -> Table:
    table = Table()
    for name in ("label", "what", "recording", "from s", "to s", "who", "when", "why", "via"):
        table.add_column(name, overflow="fold")
    for row in labels_of_known_recordings(journal):
        times = [f"{seconds:.2f}" for seconds in row.seconds]
        table.add_row(str(row.number), _what(row), row.recording, *times, row.who, row.time, row.why, row.via)
    return table


def _what(row: LabelRow) -> str:
    if row.takes_back is not None:
        return f"takes back {row.takes_back}"
    return f"{row.label or 'nothing'}{', void' if row.void else ''}"
