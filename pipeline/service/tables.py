"""What commands show in the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from pipeline.training.model import Model

Event = dict[str, Any]


def training_table(model: Model) -> Table:
    """Per sensor: how much of it was refused, and how it did on recordings that were left out."""
    notes, validation = model.notes, model.notes["validation"]
    recordings = len(notes["recordings"])
    table = Table(
        title=f"{notes['segments']} segments of {recordings} recordings: {' and '.join(model.classes)}",
        caption=_validated(validation),
    )
    for column in ("sensor", "power kept %", "contaminated %", "refused %", "right %, left-out recordings"):
        table.add_column(column, justify="left" if column == "sensor" else "right")
    for s in range(model.n_sensors):
        accuracy = validation["sensors"][s]["accuracy"] if "sensors" in validation else None
        table.add_row(
            str(s + 1),
            percent(notes["components"]["retained_power"][s]),
            percent(notes["contamination"][s]),
            percent(notes["refused"][s]),
            interval(accuracy),
        )
    table.add_row("all", "", "", "", interval(validation.get("accuracy_without_abstention")), style="bold")
    return table


def screen_warning(model: Model, alpha: float) -> str | None:
    """What to say if the reference is too small for alpha."""
    if model.smallest_p_value <= alpha:
        return None
    return (
        f"the reference is too small to refuse anything at alpha {alpha:g}: no p-value is below "
        f"{model.smallest_p_value:.3f}; train on more recordings, or choose a larger alpha"
    )


def _validated(validation: Event) -> str:
    if "sensors" not in validation:
        return "not validated: too few recordings, or --folds 0"
    return f"{validation['folds']} folds of whole recordings; 95 % intervals with recordings as independent units"


def replay_table(summaries: Iterable[Event], classes: Iterable[str]) -> Table:
    """One row a recording."""
    classes = tuple(classes)
    table = Table(title="Decisions per recording")
    table.add_column("recording")
    table.add_column("mostly")
    for column in (*classes, "no decision", "degraded"):
        table.add_column(column, justify="right")
    for one in summaries:
        note = " (trained on)" if one["trained_on"] else ""
        mostly = one["label"] or ("not usable" if not one["samples"] else _why_none(one))
        counts = [str(one["labels"].get(name, 0)) for name in classes]
        table.add_row(one["recording"] + note, mostly, *counts, str(one["abstained"]), str(one["degraded"]))
    return table


def _why_none(summary: Event) -> str:
    return "undecided" if summary["decisions"] else "too short for a segment"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def interval(rate: Event | None) -> str:
    if rate is None:
        return ""
    return f"{100 * rate['value']:.1f} ({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"
