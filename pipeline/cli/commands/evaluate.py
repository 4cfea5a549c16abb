"""An evaluation as a user asks for it: replay if need be, tables, figure, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.core.atomic_write import write_whole
from pipeline.core.choices import Choices
from pipeline.core.errors import UsageError
from pipeline.model.model import Model
from pipeline.reports.evaluation import collect, evaluation
from pipeline.reports.evaluation_figure import write_evaluation_figure
from pipeline.reports.passage_evaluation import passage_evaluation, passage_tables
from pipeline.reports.replay import Replay, replay
from pipeline.reports.tables import interval, warnings_of
from pipeline.runtime.process_pool import Engine, progress_bar
from pipeline.sources.files import find_recordings
from pipeline.storage.decision_file import DecisionFile, read_events
from pipeline.training.ground_truth import Truth, read_truth
from pipeline.training.labels import Labels, read_labels


def run_evaluation(
    recordings: Sequence[Path],
    model: Path | None,
    labels: Path,
    *,
    truth: Path | None,
    out: Path,
    json_file: Path | None,
    pattern: str | None,
    resample: bool,
    engine: Engine,
    console: Console,
) -> None:
    known, failures = read_labels(labels), read_truth(truth) if truth else None
    if out.is_file():
        raise UsageError(f"--out={str(out)!r} is a file; give a directory")
    out.mkdir(parents=True, exist_ok=True)
    decisions = _decisions(recordings, model, out, pattern, resample, engine, console)
    loaded = Model.load(model) if model else None
    scores = passage_evaluation(read_events(decisions), known)
    told, alpha = _evaluated(decisions, known, loaded, failures, scores, console)
    if scores is not None:
        told["passages"] = scores
        for table in passage_tables(scores):
            console.print(table)
    troubles = [event for event in read_events(decisions) if event["type"] == "source_trouble"]
    notes = [f"{event['where']} {event['message']}" for event in troubles]
    for note in notes + (warnings_of(loaded, alpha) if loaded and alpha is not None else []):
        console.print(note, style="yellow", soft_wrap=True, highlight=False)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(json_file, (json.dumps(told, indent=1, allow_nan=False) + "\n").encode())
    try:
        figure = str(write_evaluation_figure(told, out / "evaluation.png"))
    except UsageError as error:
        figure = f"no figure: {error}"
    written = [str(place) for place in (json_file, figure) if place]
    console.print(f"written: {', '.join(written)}", soft_wrap=True, highlight=False)


def _evaluated(
    decisions: Path,
    labels: Labels,
    model: Model | None,
    failures: Truth | None,
    scores: dict[str, Any] | None,
    console: Console,
) -> tuple[dict[str, Any], float | None]:
    """Compare segments with labels, and show it; where only passages can be scored, say why."""
    try:
        evidence = collect(read_events(decisions), labels, model)
    except UsageError as error:
        if scores is None:
            raise
        console.print(f"segments are not scored: {error}", style="yellow", soft_wrap=True, highlight=False)
        return {}, None
    told = evaluation(evidence, failures)
    _show(told, console)
    return told, evidence.alpha


def _decisions(
    recordings: Sequence[Path],
    model: Path | None,
    out: Path,
    pattern: str | None,
    resample: bool,
    engine: Engine,
    console: Console,
) -> Path:
    """A file of decisions: the one that was given, or one that is made now or completed."""
    if any(path.suffix == ".jsonl" for path in recordings):
        if len(recordings) > 1:
            raise UsageError(f"{len(recordings)} paths were given; give one file of decisions (.jsonl), or sound")
        return recordings[0]
    if model is None:
        raise UsageError("sound needs a model to be decided about; give --model, or a file of decisions (.jsonl)")
    listing = find_recordings(recordings, pattern=pattern)
    task = Replay(model.resolve(), Choices(), resample)
    header = task.header(listing)
    place = out / f"decisions-{header['model'][:12]}.jsonl"
    with DecisionFile(place, header, restart=not _continues(place, header)) as file, progress_bar(console) as bar:
        replay(task, listing, file, engine=engine, bar=bar)
    return place


def _continues(place: Path, header: dict[str, Any]) -> bool:
    """Whether a file there belongs to the same replay; this command owns it and may begin anew."""
    try:
        return place.exists() and next(read_events(place)) == header
    except (UsageError, StopIteration):
        return False


def _show(told: dict[str, Any], console: Console) -> None:
    for names, what in (
        (told["held_out"], "were trained on; models that were trained without them decided"),
        (told["left_out"], "were trained on and are left out"),
    ):
        if names:
            console.print(f"{len(names)} recordings {what}", highlight=False)
    console.print(_confusion(told))
    console.print(_accuracies(told))
    console.print(_classes(told))
    if "anomalies" in told:
        console.print(_anomalies(told))


def _confusion(told: dict[str, Any]) -> Table:
    table = Table(title=f"{told['segments']} segments of {told['recordings']} recordings")
    table.add_column("true / decided")
    for name in (*told["classes"], "no decision"):
        table.add_column(name, justify="right")
    for name, row in zip(told["classes"], told["confusion"], strict=True):
        table.add_row(name, *map(str, row))
    return table


def _accuracies(told: dict[str, Any]) -> Table:
    table = Table(title="Right, % (95 % interval by recording)", caption=_calibration(told["calibration"]))
    table.add_column("who")
    table.add_column("right", justify="right")
    table.add_column(f"refused at {told['alpha']:g}", justify="right")
    for one in told["sensors"]:
        refused = one["refused"].get(f"{told['alpha']:g}")
        table.add_row(f"sensor {one['sensor']}", interval(one["accuracy"]), interval(refused))
    table.add_row("fused, no abstention", interval(told["accuracy_without_abstention"]), style="bold")
    table.add_row("fused, where decided", interval(told["accuracy"]), style="bold")
    table.add_row("fused, whole recordings", interval(told["accuracy_by_recording"]), style="bold")
    table.add_row("decided at all", interval(told["decided"]))
    return table


def _classes(told: dict[str, Any]) -> Table:
    table = Table(title="Classes, % (95 % interval by recording)")
    table.add_column("class")
    table.add_column("recall", justify="right")
    table.add_column("precision", justify="right")
    for one in told["by_class"]:
        table.add_row(one["class"], interval(one["recall"]), interval(one["precision"]))
    return table


def _calibration(found: dict[str, Any]) -> str:
    if found["expected_error"] is None:
        return ""
    return (
        f"probabilities are off by {100 * found['expected_error']:.1f} points on average; Brier score "
        f"{found['brier']:.3f}, log loss {found['log_loss']:.3f}"
    )


def _anomalies(told: dict[str, Any]) -> Table:
    found = told["anomalies"]
    table = Table(title=f"Failing sensors, refused at {told['alpha']:g}, %", caption="AUC 1: all failures stand out")
    for column in ("what", "AUC", "detected", "false alarms"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, row in (("all", found["all"]), *((f"sensor {one['sensor']}", one) for one in found["sensors"])):
        auc = "" if row["auc"] is None else f"{row['auc']:.3f}"
        table.add_row(name, auc, interval(row["detected"]), interval(row["false_alarms"]))
    table.add_section()
    for kind, rate in found["faults"].items():
        table.add_row(kind, "", interval(rate), "")
    return table
