"""What every benchmark prints: a table for people, and one JSON object as its last line for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Draw a table."""
    table = Table(title=title)
    for position, name in enumerate(header):
        table.add_column(name, justify="left" if position == 0 else "right")
    for row in rows:
        table.add_row(*(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row))
    Console().print(table)


def finish(figures: Mapping[str, Any]) -> None:
    """Print the figures as the last line."""
    print(json.dumps(dict(figures)), flush=True)


def interleaved(jobs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median CPU seconds of each job, in turns so that a slow minute of the machine slows all alike."""
    for job in jobs.values():
        job()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            seconds[name].append(time.process_time() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}
