"""What came of the rounds of learning, as the journal tells it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from datetime import datetime
from math import inf
from typing import Any

from pipeline.retraining.registry import ModelStatus
from pipeline.storage.journal import Journal

DURATION_EDGES = (10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, inf)
"""Upper ends of the bins in which rounds are counted by how many seconds they took."""
RESULTS = ("passed", "refused", "nothing", "failed")
_STARTED, _FAILED = "retraining_started", "retraining_failed"
_ENDED = ("retraining_finished", _FAILED)
_RESULT_OF = {ModelStatus.CHAMPION: "passed", ModelStatus.CHALLENGER: "passed", ModelStatus.REFUSED: "refused"}


class Rounds:
    """Counts every round of a journal that came to its end; looks again only where something was added."""

    def __init__(self) -> None:
        self._after = 0
        self._started: str | None = None
        self._results = Counter(dict.fromkeys(RESULTS, 0))
        self._counts = [0] * len(DURATION_EDGES)
        self._seconds = 0.0

    def look(self, journal: Journal) -> None:
        for event in journal.events(after=self._after, types=[_STARTED, *_ENDED]):
            self._after = event.id
            if event.type == _STARTED:
                self._started = event.time
                continue
            result = "failed" if event.type == _FAILED else _RESULT_OF.get(event.body["status"], "nothing")
            self._results[result] += 1
            self._ended(event.time)

    def _ended(self, at: str) -> None:
        if self._started is not None:
            seconds = (datetime.fromisoformat(at) - datetime.fromisoformat(self._started)).total_seconds()
            self._counts[bisect_left(DURATION_EDGES, seconds)] += 1
            self._seconds += max(seconds, 0.0)
        self._started = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "results": {result: self._results[result] for result in RESULTS},
            "seconds": {"counts": list(self._counts), "sum": round(self._seconds, 1)},
        }
