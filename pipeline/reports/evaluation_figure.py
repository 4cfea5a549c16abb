"""An evaluation to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from pipeline.reports.passage_figure import draw_confusion, draw_scores
from pipeline.runtime.plotting import pyplot

_MOST_COLUMNS = 4
_FUSED, _SENSOR, _CLASS, _FAULT, _LINE = "#08306b", "#6baed6", "#238b45", "#b2182b", "#888888"


def write_evaluation_figure(told: dict[str, Any], path: Path) -> Path:
    """Draw confusion, accuracy and calibration of segments; with known truth detection of failures; passages."""
    plt = pyplot()
    panels = _panels(told)
    n_columns = len(panels) if len(panels) <= _MOST_COLUMNS else -(-len(panels) // 2)
    n_rows = -(-len(panels) // n_columns)
    n_classes = len(told.get("classes", ()))
    # A column of a confusion needs about 1.2 inches for its numbers.
    wider = 1.2 * max(0, n_classes - 2)
    widths = [4.6 + wider, *[4.6] * (n_columns - 1)]
    height = 4.4 + 0.6 * max(0, n_classes - 3)
    size = (sum(widths), height * n_rows)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=size, layout="constrained", squeeze=False, width_ratios=widths
    )
    for place, axis in enumerate(axes.flat):
        if place < len(panels):
            draw, found = panels[place]
            draw(axis, found)
        else:
            axis.set_visible(False)
    figure.suptitle(_title(told) if n_columns > 1 else fill(_title(told), 50))
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _panels(told: dict[str, Any]) -> list[tuple[Callable[[Any, dict[str, Any]], None], dict[str, Any]]]:
    panels: list[tuple[Callable[[Any, dict[str, Any]], None], dict[str, Any]]] = []
    if "segments" in told:
        panels += [(_confusion, told), (_accuracy, told), (_calibration, told)]
    if "anomalies" in told:
        panels.append((_anomalies, told))
    if "passages" in told:
        panels.append((draw_scores, told["passages"]))
        if told["passages"]["matched"]:
            panels.append((draw_confusion, told["passages"]))
    return panels


def _title(told: dict[str, Any]) -> str:
    whiskers = "bars and whiskers are 95 % intervals with recordings as independent units"
    if "segments" not in told:
        return f"{told['passages']['recordings']} recordings; {whiskers}"
    return f"{told['segments']} segments of {told['recordings']} recordings; {whiskers}"


def _confusion(axes: Any, told: dict[str, Any]) -> None:
    table = np.array(told["confusion"])
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), count in np.ndenumerate(table):
        colour = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, f"{count}\n{100 * shares[row, column]:.1f} %", ha="center", va="center", color=colour)
    n_classes = len(told["classes"])
    axes.set_xticks(range(n_classes + 1), [*told["classes"], "no decision"])
    axes.set_yticks(range(n_classes), told["classes"], rotation=90, va="center")
    axes.set(xlabel="decided", ylabel="true", title="Decisions")


def _accuracy(axes: Any, told: dict[str, Any]) -> None:
    rows = [(f"sensor {one['sensor']}", one["accuracy"], _SENSOR) for one in told["sensors"]]
    rows += [("fused", told["accuracy_without_abstention"], _FUSED), ("where decided", told["accuracy"], _FUSED)]
    if len(told["classes"]) > 2:
        rows += [(f"recall, {one['class']}", one["recall"], _CLASS) for one in told.get("by_class", [])]
    shown = [(name, rate, colour) for name, rate, colour in rows if rate is not None]
    for place, (_, rate, colour) in enumerate(shown):
        _whisker(axes, place, rate, colour)
    axes.set_yticks(range(len(shown)), [name for name, *_ in shown])
    axes.invert_yaxis()
    axes.set(xlabel="right, %", title="Accuracy" if len(told["classes"]) == 2 else "Accuracy and recall")
    axes.grid(axis="x", alpha=0.3)


def _calibration(axes: Any, told: dict[str, Any]) -> None:
    least = 50 if len(told["classes"]) == 2 else 100 / len(told["classes"])
    axes.plot([least, 100], [least, 100], color=_LINE, linewidth=1)
    for one in told["calibration"]["bins"]:
        rate, x = one["right"], 100 * one["probability"]
        axes.plot([x, x], [100 * rate["low"], 100 * rate["high"]], color=_FUSED, alpha=0.5)
        axes.scatter([x], [100 * rate["value"]], s=8 + 60 * np.sqrt(rate["segments"] / told["segments"]), color=_FUSED)
    error = told["calibration"]["expected_error"]
    axes.set(
        xlabel="probability of the most probable class, %",
        ylabel="right, %",
        title="Calibration" if error is None else f"Calibration, off by {100 * error:.1f} points",
        ylim=(0, 102),
    )
    axes.grid(alpha=0.3)


def _anomalies(axes: Any, told: dict[str, Any]) -> None:
    found = told["anomalies"]
    rows = [(kind, rate, _FAULT) for kind, rate in found["faults"].items()]
    rows += [(f"clean, sensor {one['sensor']}", one["false_alarms"], _SENSOR) for one in found["sensors"]]
    shown = [(name, rate, colour) for name, rate, colour in rows if rate is not None]
    for place, (_, rate, colour) in enumerate(shown):
        _whisker(axes, place, rate, colour)
    axes.axvline(100 * told["alpha"], color=_LINE, linewidth=1)
    axes.set_yticks(range(len(shown)), [name for name, *_ in shown], fontsize=8)
    axes.invert_yaxis()
    auc = found["all"]["auc"]
    ranked = "" if auc is None else f", ranked right {100 * auc:.0f} %"
    axes.set(xlabel=f"refused at {told['alpha']:g} (line), %", title=f"Failing sensors{ranked}", xlim=(-3, 103))
    axes.grid(axis="x", alpha=0.3)


def _whisker(axes: Any, place: int, rate: dict[str, Any], colour: str) -> None:
    axes.plot([100 * rate["low"], 100 * rate["high"]], [place, place], color=colour, linewidth=4, alpha=0.4)
    axes.plot([100 * rate["value"]], [place], "o", color=colour)
