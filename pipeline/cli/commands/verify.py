"""`gemmed replay --verify RUN`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from pipeline.reports.verify import Verification, chosen_run, verify
from pipeline.runtime.process_pool import progress_bar
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from pipeline.storage.recordings import recordings_of, stored_until

ALL_EQUAL, SOME_NOT_COMPARED, DIFFERENT = 0, 3, 5


def run_verification(state: StateDirectory, asked: str, console: Console) -> int:
    """Decide again about what runs heard; the exit code."""
    with Journal(state.journal, read_only=True) as journal:
        names = [name for run in chosen_run(journal, asked) for name in recordings_of(journal, run)]
        with progress_bar(console) as bar:
            shown = bar.add_task("samples of sound", total=sum(stored_until(journal, name) for name in names))
            verdicts = [
                verify(state, journal, name, progress=lambda samples: bar.advance(shown, samples)) for name in names
            ]
    _tell(verdicts, console)
    if any(verdict.different for verdict in verdicts):
        return DIFFERENT
    return ALL_EQUAL if all(verdict.equal for verdict in verdicts) else SOME_NOT_COMPARED


def _tell(verdicts: Sequence[Verification], console: Console) -> None:
    table = Table("recording", "events", "decisions", "different")
    for verdict in verdicts:
        found = "not compared" if verdict.why_not else str(verdict.different)
        table.add_row(verdict.recording, str(verdict.events), str(verdict.decisions), found)
    console.print(table)
    for verdict in verdicts:
        if verdict.why_not is not None:
            console.print(f"{verdict.recording}: {verdict.why_not}", style="yellow", soft_wrap=True, highlight=False)
        if verdict.first_difference is not None:
            console.print(
                f"{verdict.recording}: {verdict.first_difference}", style="red", soft_wrap=True, highlight=False
            )
    compared = [verdict for verdict in verdicts if verdict.why_not is None]
    decisions, different = sum(one.decisions for one in compared), sum(one.different for one in compared)
    told = "every event is the same" if not different else f"{different} events differ"
    console.print(f"{decisions} decisions in {len(compared)} recordings decided again: {told}", highlight=False)
