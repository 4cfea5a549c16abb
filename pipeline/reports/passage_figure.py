"""The panels of passages in the figure of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np

from pipeline.core.passages import NO_LABEL
from pipeline.reports.passage_evaluation import score_rows

_COLOR, _OTHER = "#08306b", "#6baed6"
_WIDTH = 12
"""Characters of a class name on one line."""


def draw_scores(axes: Any, scores: dict[str, Any]) -> None:
    """Draw shares of passages with their intervals; where only background is labeled, the rate of false ones."""
    rows = [(name.removesuffix(", %"), value) for name, value in score_rows(scores)]
    for name, key in (("onset within 2 s", "onset_error_seconds"), ("end within 2 s", "end_error_seconds")):
        rows.append((name, None if scores[key] is None else scores[key]["within_2_s"]))
    shown = [(name, value) for name, value in rows if value is not None]
    if shown:
        _draw_rows(axes, shown, scale=100)
        axes.set(xlabel="share, %", title=_title(scores), xlim=(-3, 103))
    elif scores["false_per_hour"] is not None:
        _draw_rows(axes, [("false passages", scores["false_per_hour"])], scale=1)
        axes.set(xlabel="per hour of background", title=_title(scores))
        axes.set_xlim(left=0)


def _draw_rows(axes: Any, rows: Sequence[tuple[str, dict[str, Any]]], *, scale: float) -> None:
    for place, (name, value) in enumerate(rows):
        color = _OTHER if name.startswith(("segments", "no label")) else _COLOR
        low, high = scale * value["low"], scale * value["high"]
        axes.plot([low, high], [place, place], color=color, linewidth=4, alpha=0.4)
        axes.plot([scale * value["value"]], [place], "o", color=color)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)


def _title(scores: dict[str, Any]) -> str:
    rate = scores["false_per_hour"]
    if rate is None:
        return f"{scores['true']} labeled passages"
    return (
        f"{scores['true']} labeled passages; false per hour: {rate['value']:.2f}\n"
        f"({rate['low']:.2f} to {rate['high']:.2f}, {scores['background_hours']:.1f} h of background)"
    )


def draw_confusion(axes: Any, scores: dict[str, Any]) -> None:
    """Draw which class the found passages of each class are taken for."""
    rows = [number for number, counts in enumerate(scores["confusion"]) if sum(counts)]
    table = np.array([scores["confusion"][number] for number in rows])
    shares = table / table.sum(axis=1, keepdims=True)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), count in np.ndenumerate(table):
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, f"{count}\n{100 * shares[row, column]:.0f} %", ha="center", va="center", color=color)
    columns = [fill(name, _WIDTH) for name in (*scores["classes"], NO_LABEL)]
    axes.set_xticks(range(len(columns)), columns, fontsize=8)
    axes.set_yticks(range(len(rows)), [columns[number] for number in rows], fontsize=8)
    axes.set(xlabel="verdict", ylabel="true", title="Found passages by class")
