"""What all reports are made of: means with their errors, CSV for programs, Markdown for people."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MOMENTS = ("mean", "standard_error", "trials")


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over trials and its standard error."""

    value: float
    standard_error: float
    trials: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
        return cls(float(np.mean(values)), spread / np.sqrt(len(values)), len(values))

    def percent(self) -> str:
        return f"{100 * self.value:.1f} ± {100 * self.standard_error:.1f}"

    def points(self) -> str:
        """For a difference: with its sign, and a digit more."""
        return f"{100 * self.value:+.2f} ± {100 * self.standard_error:.2f}"

    def cells(self) -> tuple[float, float, int]:
        """For a row of a CSV file, in the order of `MOMENTS`."""
        return round(self.value, 6), round(self.standard_error, 6), self.trials


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
