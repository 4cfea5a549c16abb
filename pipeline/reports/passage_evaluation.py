"""Passages of a replay beside labels: which recordings can be scored, and the scores as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from pipeline.core.event_json import SCHEMA
from pipeline.core.passages import NO_LABEL, PASSAGE_EVENTS, PassageRow, passages_of
from pipeline.reports.tables import interval
from pipeline.storage.decision_file import Event
from pipeline.training.labels import NOT_SURE, Label, Labels, is_nobody
from pipeline.training.passage_metrics import LEAST_IOU, TimedSpan, passage_scores


@dataclass(slots=True)
class _Replayed:
    """What a file of decisions says of passages."""

    classes: list[str] = field(default_factory=list)
    rate_hz: int = 1
    expected: list[str] = field(default_factory=list)
    finds_passages: bool = False
    passages: list[Event] = field(default_factory=list)
    segments: list[TimedSpan] = field(default_factory=list)
    finished: dict[str, Event] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        if event["type"] == "replay_started":
            self.classes, self.rate_hz, self.expected = event["classes"], event["rate_hz"], event["recordings"]
            self.finds_passages = event.get("finds_passages", False)
        elif event["type"] in PASSAGE_EVENTS:
            self.passages.append(event)
        elif event["type"] == "decision":
            span = event["start_sample"] / self.rate_hz, event["stop_sample"] / self.rate_hz
            self.segments.append(TimedSpan(event["recording"], *span, event["label"]))
        elif event["type"] == "recording_finished":
            self.finished[event["recording"]] = event


def passage_evaluation(events: Iterable[Event], labels: Labels) -> dict[str, Any] | None:
    """Score the passages of a finished replay; None if it looked for none, or labels no recording new to the model.

    Recordings without any label are not scored, nor those that the model was trained on: passages, unlike segments,
    are not decided about again by models that were trained without them.
    """
    replayed = _Replayed()
    for event in events:
        if event["type"] == "replay_started" and event.get("schema") != SCHEMA:
            return None
        replayed.take(event)
    if set(replayed.expected) - set(replayed.finished):
        return None
    seconds = {
        name: event["samples"] / replayed.rate_hz
        for name, event in replayed.finished.items()
        if name in labels.recordings and event["samples"] and not event["trained_on"]
    }
    if not (replayed.passages or replayed.finds_passages) or not seconds:
        return None
    spans = [_labeled(label, seconds[label.recording]) for label in labels if label.recording in seconds]
    spans = [span for span in spans if span.start < span.end and (span.label or "").lower() != NOT_SURE]
    scores = passage_scores(
        [_found(row) for row in passages_of(replayed.passages)],
        [span for span in spans if span.label is not None and not is_nobody(span.label)],
        [span for span in spans if span.label is not None and is_nobody(span.label)],
        seconds,
        classes=replayed.classes,
        segments=replayed.segments,
    )
    trained_on = [name for name, event in replayed.finished.items() if event["trained_on"]]
    return scores | {"left_out": trained_on}


def _labeled(label: Label, seconds: float) -> TimedSpan:
    return TimedSpan(label.recording, label.start_seconds, min(label.end_seconds, seconds), label.label)


def _found(row: PassageRow) -> TimedSpan:
    return TimedSpan(row.recording, row.start_seconds, row.end_seconds, row.label)


def passage_tables(scores: dict[str, Any]) -> Sequence[Table]:
    """Make the tables of passages: how well they are found and timed, and which class is taken for which."""
    return (_scores(scores), _confusion(scores)) if scores["matched"] else (_scores(scores),)


def _scores(scores: dict[str, Any]) -> Table:
    table = Table(
        title=f"{scores['passages']} passages found, {scores['true']} labeled, {scores['recordings']} recordings",
        caption=_caption(scores),
        caption_justify="left",
    )
    table.add_column("passages")
    table.add_column("value (95 % interval)", justify="right")
    for name, value in score_rows(scores):
        table.add_row(name, interval(value))
    table.add_section()
    table.add_row("false passages per hour of background", _number(scores["false_per_hour"]))
    share = scores["background_share"]
    table.add_row("background time inside passages, %", "" if share is None else f"{100 * share:.1f}")
    for name, key in (("onset", "onset_error_seconds"), ("end", "end_error_seconds")):
        error = scores[key]
        table.add_row(f"{name} error, median s", "" if error is None else f"{error['median']:+.1f}")
        table.add_row(f"{name} within 2 s, %", "" if error is None else interval(error["within_2_s"]))
    return table


def score_rows(scores: dict[str, Any]) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the shares with their names, in the order in which they are shown."""
    return [
        ("found, any overlap, %", scores["found"]),
        (f"found, IoU at least {LEAST_IOU:g}, %", scores["found_iou"]),
        ("class right, where decided, %", scores["class_right"]),
        ("segments of them right, %", scores["segments_right"]),
        ("no label, %", scores["abstained"]),
    ]


def _caption(scores: dict[str, Any]) -> str:
    told = f"{scores['false']} false passages in {scores['background_hours']:.2f} h of background"
    if scores["left_out"]:
        told += f"; {len(scores['left_out'])} recordings the model was trained on are left out"
    return told


def _number(rate: dict[str, Any] | None) -> str:
    return "" if rate is None else f"{rate['value']:.2f} ({rate['low']:.2f} to {rate['high']:.2f})"


def _confusion(scores: dict[str, Any]) -> Table:
    table = Table(title="Passages by class, % of each row (95 % interval by recording)")
    table.add_column("true / found")
    table.add_column("passages", justify="right")
    for name in (*scores["classes"], NO_LABEL):
        table.add_column(name, justify="right")
    for name, counts, shares in zip(scores["classes"], scores["confusion"], scores["confusion_shares"], strict=True):
        if sum(counts):
            table.add_row(name, str(sum(counts)), *map(interval, shares))
    return table
