"""Figures of the footstep experiment: the grid at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.experiments.footsteps_report import FootstepResults
from pipeline.experiments.methods import COLUMNS
from pipeline.runtime.plotting import pyplot

_PANELS = (("affected", "sensors concerned, each alone"), ("fused", "all sensors together"))


def write_figures(results: FootstepResults, out: Path) -> list[Path]:
    """grid.png."""
    return [_grid_figure(results, out / "grid.png")]


def _grid_figure(results: FootstepResults, path: Path) -> Path:
    """A row for each training set; accuracy of all methods, then the joint learner against the best other one."""
    plt = pyplot()
    height = 1.9 + 0.34 * len(results.cells)
    figure, panels = plt.subplots(
        1, 4, figsize=(17, height), layout="constrained", width_ratios=[len(COLUMNS), 2.0] * 2, sharey=True
    )
    for (quantity, meaning), accuracy, against in zip(_PANELS, panels[0::2], panels[1::2], strict=True):
        _accuracies(results, quantity, accuracy)
        accuracy.set_title(f"Accuracy in %: {meaning}", fontsize=11)
        _differences(results, quantity, against)
    panels[0].set_yticks(range(len(results.cells)), results.cells)
    figure.suptitle(f"Corrupted training sets, clean test segments, {results.plan.splits} splits")
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return path


def _accuracies(results: FootstepResults, quantity: str, axes: Any) -> None:
    values = 100 * np.array([[results.mean(quantity, m, cell).value for m in COLUMNS] for cell in results.cells])
    axes.imshow(values, aspect="auto", cmap="viridis", vmin=max(float(values.min()), 50.0), vmax=float(values.max()))
    middle = (max(float(values.min()), 50.0) + float(values.max())) / 2
    for (row, column), value in np.ndenumerate(values):
        _write(axes, row, column, f"{value:.1f}", "white" if value < middle else "black")
    axes.set_xticks(range(len(COLUMNS)), list(COLUMNS), rotation=40, ha="right")


def _differences(results: FootstepResults, quantity: str, axes: Any) -> None:
    found = [results.against_best(quantity, cell)[0] for cell in results.cells]
    values = 100 * np.array([[difference.value] for difference in found])
    axes.imshow(values, aspect="auto", cmap="RdBu", vmin=-5, vmax=5)
    for row, difference in enumerate(found):
        _write(axes, row, 0, difference.points(), "white" if abs(values[row, 0]) > 3.5 else "black")
    axes.set_xticks([0], ["joint learner\nminus best other\n(± standard error)"])


def _write(axes: Any, row: int, column: int, text: str, color: str) -> None:
    axes.text(column, row, text, ha="center", va="center", color=color, fontsize=8)
