"""A replay as a user asks for it: files, progress, summary, difference, exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pipeline.core.choices import Choices
from pipeline.core.errors import UsageError
from pipeline.core.passages import passages_of
from pipeline.reports.passage_tables import counts_text, replay_table
from pipeline.reports.replay import Replay
from pipeline.reports.replay import replay as replay_into
from pipeline.reports.tables import warnings_of
from pipeline.reports.what_if import DecisionChanges, changed, variant_path
from pipeline.runtime.process_pool import Engine, progress_bar
from pipeline.sources.files import Listing, find_recordings
from pipeline.storage.decision_file import SHOWN, DecisionFile, Event, StandardOutput, read_events, totals

ALL_DECIDED, SOME_UNUSABLE, NOTHING_DECIDED = 0, 3, 4


def run_replay(
    recordings: Sequence[Path],
    model: Path,
    out: Path,
    choices: Choices,
    *,
    what_if: Sequence[str],
    pattern: str | None,
    resample: bool,
    block_samples: int | None,
    engine: Engine,
    restart: bool,
    console: Console,
) -> int:
    """Replay, and once more with what would be otherwise; the exit code."""
    if out.is_dir():
        raise UsageError(f"--out={str(out)!r} is a directory; give a file, for example decisions.jsonl")
    listing = find_recordings(recordings, pattern=pattern)
    task = Replay(model.resolve(), choices, resample, block_samples)
    if what_if and str(out) == "-":
        raise UsageError("--what-if compares two files; give --out a file")
    changed_task = replace(task, choices=changed(choices, what_if))
    for one in (task, changed_task):
        one.check()
    code = _replay(task, listing, out, engine=engine, restart=restart, console=console)
    if what_if:
        other = variant_path(out, what_if)
        _replay(changed_task, listing, other, engine=engine, restart=restart, console=console, told=False)
        difference = DecisionChanges.of(read_events(out), read_events(other))
        if difference.changed:
            console.print(difference.table(task.model.grid.rate_hz))
        console.print(f"with {', '.join(what_if)}: {len(difference.changed)} of {len(difference.pairs)} decisions have "
                      "another label", highlight=False)  # fmt: skip
        for sentence in difference.sentences():
            console.print(f"  {sentence}", highlight=False)
        console.print(f"written: {other}", soft_wrap=True, highlight=False)
    return code


def _replay(
    task: Replay, listing: Listing, out: Path, *, engine: Engine, restart: bool, console: Console, told: bool = True
) -> int:
    header = task.header(listing)
    if str(out) == "-":
        sink: DecisionFile | StandardOutput = StandardOutput(header)
    else:
        sink = DecisionFile(out, header, restart=restart)
    with sink, progress_bar(console) as bar:
        if sink.finished and told:
            console.print(f"continuing: {len(sink.finished)} of {len(listing.recordings)} recordings are decided")
        replay_into(task, listing, sink, engine=engine, bar=bar)
    summaries = [sink.finished[recording.name] for recording in listing.recordings]
    if told:
        shown = sink.shown if isinstance(sink, StandardOutput) else _shown(out)
        _tell(summaries, shown, task, listing, out, console)
    counted = totals(summaries)
    # That nobody was there is a decision, too.
    nobody = sum(one.get("nobody", 0) for one in summaries)
    if counted["decisions"] == counted["abstained"] - nobody:
        return NOTHING_DECIDED
    return SOME_UNUSABLE if counted["troubles"] or listing.troubles else ALL_DECIDED


def _shown(out: Path) -> list[Event]:
    return [event for event in read_events(out) if event["type"] in SHOWN]


def _tell(
    summaries: Sequence[Event], shown: Sequence[Event], task: Replay, listing: Listing, out: Path, console: Console
) -> None:
    troubles = [f"{trouble.where} {trouble.message}" for trouble in listing.troubles]
    troubles += [f"{event['where']} {event['message']}" for event in shown if event["type"] == "source_trouble"]
    for trouble in troubles:
        console.print(trouble, style="yellow", soft_wrap=True, highlight=False)
    passages = passages_of(shown)
    console.print(replay_table(summaries, passages))
    for warning in warnings_of(task.model, task.choices.alpha):
        console.print(warning, style="yellow", soft_wrap=True, highlight=False)
    n = totals(list(summaries))["decisions"]
    console.print(f"{counts_text(passages)}; written: {out}, {n} decisions", soft_wrap=True, highlight=False)
