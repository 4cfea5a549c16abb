"""The recordings of the fixtures, and what tests read from results."""

from __future__ import annotations

import csv
from pathlib import Path

ARRAY = Path(__file__).parents[1] / "fixtures" / "array"
ALPHA = 0.05  # below one over the eighty segments of the reference nothing could be refused


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))
