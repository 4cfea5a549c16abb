"""Passages as text, tables, CSV and Audacity label tracks."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from rich.table import Table

from pipeline.core.events import PassageEnd, Role
from pipeline.core.passages import NO_LABEL, PassageRow, probability_text

_ROLES = {Role.MASKED: "bad health", Role.ABSENT: "no data"}
CSV_COLUMNS = (
    "passage", "recording", "start_time", "end_time", "start_seconds", "end_seconds", "duration_seconds", "label",
    "probability", "reason", "presence", "cadence_per_minute", "cadence_confidence", "sensors_used",
    "sensors_excluded", "segments", "decided", "p_known", "end", "model",
)  # fmt: skip


Leading = Mapping[str, Sequence[str]]
"""Columns before those of a passage, by name, with a value for each passage."""


def passages_table(rows: Sequence[PassageRow], leading: Leading | None = None) -> Table:
    """Make a table with a row for each passage; by time if that is known, otherwise by recording and seconds."""
    first = dict(leading or {})
    by_time = all(row.start_time is not None for row in rows)
    shows_end = any(end_text(row) for row in rows)
    table = Table(caption="times are UTC" if by_time else None, caption_justify="left")
    for name in (*first, "passage"):
        table.add_column(name, overflow="fold")
    table.add_column("time" if by_time else "recording, s", no_wrap=True)
    table.add_column("duration s", justify="right")
    for name in ("label", "cadence", "sensors", "excluded", *(["end"] if shows_end else [])):
        table.add_column(name, overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(
            *(values[number] for values in first.values()),
            row.passage,
            time_text(row) if by_time else f"{row.recording}, {span_text(row)}",
            f"{row.duration_seconds:.1f}",
            label_text(row),
            cadence_text(row),
            " ".join(map(str, row.sensors_used)),
            excluded_text(row),
            *([end_text(row)] if shows_end else []),
        )
    return table


def replay_table(summaries: Sequence[Mapping[str, Any]], passages: Iterable[PassageRow]) -> Table:
    """Make a table of the passages of each recording; one without any says so."""
    own: dict[str, list[PassageRow]] = {}
    for row in passages:
        own.setdefault(row.recording, []).append(row)
    trained_on = any(one["trained_on"] for one in summaries)
    table = Table(
        title="Passages per recording",
        caption="* the model was trained on it" if trained_on else None,
        caption_justify="left",
    )
    table.add_column("recording", overflow="fold")
    table.add_column("from-to s", justify="right")
    table.add_column("label", overflow="fold")
    table.add_column("probability", justify="right")
    table.add_column("cadence", justify="right")
    table.add_column("segments", style="dim")
    for one in summaries:
        found = own.get(one["recording"], [])
        lines = [_passage_cells(row) for row in found] or [("", _why_none(one), "", "")]
        for number, cells in enumerate(lines):
            name = one["recording"] + ("*" if one["trained_on"] else "") if number == 0 else ""
            table.add_row(name, *cells, _segments_text(one) if number == 0 else "")
    return table


def _passage_cells(row: PassageRow) -> tuple[str, str, str, str]:
    probability = "" if row.probability is None else probability_text(row.probability)
    label = row.label or (f"{NO_LABEL} ({row.reason})" if row.reason else NO_LABEL)
    return span_text(row), label, probability, cadence_text(row)


def _why_none(summary: Mapping[str, Any]) -> str:
    if not summary["samples"]:
        return "not usable"
    if not summary["decisions"]:
        return "too short for a segment"
    if summary.get("nobody", 0):
        return "nobody"
    return f"mostly {summary['label']}" if summary["label"] else "undecided"


def _segments_text(summary: Mapping[str, Any]) -> str:
    """Count the decisions of a recording by label: `12 human, 40 nobody, 3 no label, 2 degraded`."""
    nobody = summary.get("nobody", 0)
    without = {"nobody": nobody, NO_LABEL: summary["abstained"] - nobody, "degraded": summary["degraded"]}
    counts = {**summary["labels"], **without}
    return ", ".join(f"{n} {label}" for label, n in counts.items() if n)


def counts_text(rows: Iterable[PassageRow]) -> str:
    """Say how many passages there are, and of which labels: `3 passages: 2 human, 1 no label`."""
    counts = Counter(row.label or NO_LABEL for row in rows)
    total = sum(counts.values())
    labels = sorted(counts, key=lambda label: (label == NO_LABEL, -counts[label], label))
    told = f"{total} passage{'' if total == 1 else 's'}"
    return f"{told}: {', '.join(f'{counts[label]} {label}' for label in labels)}" if counts else told


def time_text(row: PassageRow) -> str:
    assert row.start_time is not None
    return row.start_time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def span_text(row: PassageRow) -> str:
    return f"{row.start_seconds:.1f}-{row.end_seconds:.1f}"


def label_text(row: PassageRow) -> str:
    """Say the label with its probability, or why there is none."""
    if row.label is None:
        return f"{NO_LABEL} ({row.reason})" if row.reason else NO_LABEL
    return row.label if row.probability is None else f"{row.label} {probability_text(row.probability)}"


def cadence_text(row: PassageRow) -> str:
    return "" if row.cadence_per_minute is None else f"{row.cadence_per_minute:.0f}/min"


def excluded_text(row: PassageRow) -> str:
    """Name excluded sensors with the reason, and the share of segments unless it is all of them."""
    return ", ".join(
        f"{one.sensor} {_reason(one.role)}{'' if one.share >= 1 else f' {100 * one.share:.0f} %'}"
        for one in row.sensors_excluded
    )


def _reason(role: str) -> str:
    return _ROLES[Role(role)] if role in _ROLES else role


def end_text(row: PassageRow) -> str:
    if row.end is None:
        return "going on"
    return "" if row.end == PassageEnd.QUIET else row.end


def as_csv(rows: Iterable[PassageRow], leading: Leading | None = None, *, header: bool = True) -> str:
    """Write passages as CSV; lists have spaces between their values."""
    first = dict(leading or {})
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow([*first, *CSV_COLUMNS])
    for number, row in enumerate(rows):
        values = row.as_dict() | {
            "sensors_used": " ".join(map(str, row.sensors_used)),
            "sensors_excluded": " ".join(f"{one.sensor}:{one.role}:{one.share:g}" for one in row.sensors_excluded),
        }
        own = ["" if values[name] is None else values[name] for name in CSV_COLUMNS]
        writer.writerow([*(one[number] for one in first.values()), *own])
    return text.getvalue()


def as_audacity(rows: Iterable[PassageRow], recording: str) -> str:
    """Write the passages of one recording as an Audacity label track: start, end and label between tabs."""
    return "".join(
        f"{part.start_seconds:.6f}\t{part.end_seconds:.6f}\t{row.label or NO_LABEL}\n"
        for row in rows
        for part in row.parts
        if part.recording == recording
    )
