"""Passages as text, tables, CSV and Audacity label tracks."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC

from rich.table import Table

from pipeline.events import PassageEnd, Role
from pipeline.passages import NO_LABEL, PassageRow

_ROLES = {Role.MASKED: "bad health", Role.ABSENT: "no data"}
CSV_COLUMNS = (
    "passage", "recording", "start_time", "end_time", "start_seconds", "end_seconds", "duration_seconds", "label",
    "probability", "reason", "presence", "cadence_per_minute", "cadence_confidence", "sensors_used",
    "sensors_excluded", "segments", "decided", "p_known", "end", "model",
)  # fmt: skip


def passages_table(rows: Sequence[PassageRow]) -> Table:
    """Make a table with a row for each passage; by time if that is known, otherwise by recording and seconds."""
    by_time = all(row.start_time is not None for row in rows)
    shows_end = any(end_text(row) for row in rows)
    table = Table(caption="times are UTC" if by_time else None, caption_justify="left")
    table.add_column("passage", overflow="fold")
    table.add_column("time" if by_time else "recording, s", no_wrap=True)
    table.add_column("duration s", justify="right")
    for name in ("label", "cadence", "sensors", "excluded", *(["end"] if shows_end else [])):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(
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


def probability_text(probability: float) -> str:
    """Write a probability in percent; never 100 %, which would claim too much."""
    return ">99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


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


def as_csv(rows: Iterable[PassageRow]) -> str:
    """Write passages as CSV with a header; lists have spaces between their values."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        values = row.as_dict() | {
            "sensors_used": " ".join(map(str, row.sensors_used)),
            "sensors_excluded": " ".join(f"{one.sensor}:{one.role}:{one.share:g}" for one in row.sensors_excluded),
        }
        writer.writerow(["" if values[name] is None else values[name] for name in CSV_COLUMNS])
    return text.getvalue()


def as_audacity(rows: Iterable[PassageRow], recording: str) -> str:
    """Write the passages of one recording as an Audacity label track: start, end and label between tabs."""
    return "".join(
        f"{part.start_seconds:.6f}\t{part.end_seconds:.6f}\t{row.label or NO_LABEL}\n"
        for row in rows
        for part in row.parts
        if part.recording == recording
    )
