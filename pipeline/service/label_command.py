"""`gemmed label`."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from rich.console import Console
from rich.table import Table

from pipeline.errors import UsageError
from pipeline.service.labelling import (
    Given,
    Moment,
    give,
    known_labels,
    moment_at,
    moment_in,
    moment_of_event,
    parsed_time,
    somebody,
)
from pipeline.service.labelling import take_back as taken_back
from pipeline.service.state import StateDirectory
from pipeline.sinks.journal import Journal


@dataclass(frozen=True, slots=True)
class Place:
    """Where a user says that something was heard; one of three ways."""

    event: int | None
    at: str | None
    lasting_seconds: float
    recording: str | None
    begin: float | None
    end: float | None

    def moment(self, journal: Journal) -> Moment:
        ways = [self.event is not None, self.at is not None, self.begin is not None or self.end is not None]
        if sum(ways) != 1:
            raise UsageError("a label needs a place, and only one: give --event ID, or --at TIME, or --from S --to S")
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
    place: Place,
    *,
    take_back: int | None,
    show: bool,
    new: bool,
    who: str | None,
    why: str,
) -> None:
    console = Console()
    if not state.journal.exists():
        raise UsageError(f"{state.journal} is not there; start gemmed run first, or give --state")
    if show:
        with Journal(state.journal, read_only=True) as journal:
            console.print(_table(journal))
        return
    with Journal(state.journal, durable=True) as journal:
        said_by = who or somebody()
        if take_back is not None:
            number = taken_back(journal, take_back, Given(None, said_by, why))
            console.print(f"label {take_back} is taken back by {number}", highlight=False)
            return
        if not name:
            raise UsageError("LABEL is missing; say what was heard, for example: gemmed label human --at -60s")
        if not new:
            _check_word(name, known_labels(journal))
        moment = place.moment(journal)
        number = give(journal, moment, Given(name, said_by, why))
        console.print(
            f"label {number}: {name} in {moment.recording}, samples {moment.start} to {moment.stop}", highlight=False
        )


def _check_word(name: str, known: list[str]) -> None:
    """A misspelt label would be a class of its own."""
    if known and name not in known:
        likely = get_close_matches(name, known, n=1)
        hint = f"did you mean {likely[0]}? " if likely else ""
        raise UsageError(f"{name!r} is no label so far ({', '.join(known)}); {hint}add --new if it is meant so")


def _table(journal: Journal) -> Table:
    table = Table("label", "what", "recording", "from s", "to s", "who", "when", "why", "via")
    rows = journal.rows("SELECT l.*, r.rate_hz FROM labels l JOIN recordings r ON r.name = l.recording ORDER BY l.id")
    for row in rows:
        table.add_row(
            str(row["id"]),
            row["label"] or "taken back",
            row["recording"],
            f"{row['start'] / row['rate_hz']:.2f}",
            f"{row['stop'] / row['rate_hz']:.2f}",
            row["who"],
            row["time"],
            row["why"],
            row["via"],
        )
    return table
