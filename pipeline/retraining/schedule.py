"""When to learn again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Schedule:
    """By time, by labels, or because sensors deliver something else than before."""

    interval_seconds: float = 24 * 3600.0
    new_labels: int = 20
    on_drift: bool = True
    pause_seconds: float = 600.0
    """Between two rounds of learning, whatever happens: a storm of labels must not keep it busy."""

    def due(self, now: datetime, last_started: datetime | None, new_labels: int, *, drift: bool) -> str | None:
        """Why to learn now, if at all; `new_labels` and `drift` count from what the last round has learned from.

        Without a new label the same examples would give the same model. After a drift, few labels are enough.
        """
        if not new_labels:
            return None
        if last_started is None:
            return "nothing was learned yet"
        # A clock that was set back must not put learning off for years.
        waited = (now - last_started).total_seconds() if now >= last_started else self.interval_seconds
        if waited < self.pause_seconds:
            return None
        if new_labels >= self.new_labels:
            return f"{new_labels} new labels"
        if drift and self.on_drift:
            return f"a sensor has drifted, and there are new labels: {new_labels}"
        if waited >= self.interval_seconds:
            return f"{waited / 3600:.0f} hours have passed, and there are new labels: {new_labels}"
        return None
