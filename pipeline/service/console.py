"""What somebody sees who starts the daemon by hand: changes, not every half second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.text import Text

from pipeline.conditions import State
from pipeline.events import AnomalyJudged, Decision, Gap, ModelChanged, RecordingStarted, SourceTrouble, StateChanged

_COLOURS = {State.GOOD: "green", State.DEGRADED: "yellow", State.BAD: "red", State.OFF: "dim", State.UNKNOWN: "dim"}
_SUSTAINED = 3
"""Decisions in a row that say the same are news; a single one may be a slip."""


class ConsoleView:
    """An observer that tells what changes, a line each."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_at, self._rate_hz = datetime.now(UTC), 1
        self._told: str | None = None
        self._row: list[str] = []

    def observe(self, event: object, /) -> None:
        if isinstance(event, RecordingStarted):
            self._started_at, self._rate_hz = event.started_at or datetime.now(UTC), event.rate_hz
            self._row = []
        elif isinstance(event, Decision):
            self._decided(event)
        elif isinstance(event, StateChanged) and event.state is not event.before:
            causes = f": {', '.join(event.causes)}; {'; '.join(event.cures)}" if event.causes else ""
            self._line(event.sample, f"sensor {event.sensor + 1} is {event.state}{causes}", _COLOURS[event.state])
        elif isinstance(event, AnomalyJudged):
            self._line(event.sample, f"{event.pattern}: {event.reason}", "magenta")
        elif isinstance(event, ModelChanged):
            self._line(event.sample, f"model {event.model} decides" if event.model else "no model decides yet", "cyan")
        elif isinstance(event, Gap):
            seconds = (event.stop - event.start) / self._rate_hz
            self._line(event.start, f"{seconds:.2f} s are missing: {event.reason}", "yellow")
        elif isinstance(event, SourceTrouble):
            self._line(None, f"{event.where} {event.message}", "yellow")

    def close(self) -> None:
        pass

    def _decided(self, decision: Decision) -> None:
        label = decision.outcome.label or "undecided"
        self._row = [*self._row, label] if self._row and self._row[-1] == label else [label]
        if len(self._row) != _SUSTAINED or label == self._told:
            return
        self._told = label
        weights = " ".join(f"{weight:.2f}" for weight in decision.weights.tolist())
        sure = "" if decision.outcome.probability is None else f" {decision.outcome.probability:.0%}"
        why = f" ({decision.outcome.reason})" if decision.outcome.label is None else ""
        self._line(decision.features.span.stop, f"{label}{sure}{why}, weights {weights}", "bold")

    def _line(self, sample: int | None, text: str, style: str) -> None:
        at = datetime.now(UTC) if sample is None else self._started_at + timedelta(seconds=sample / self._rate_hz)
        self._console.print(Text(f"{at:%H:%M:%S} ") + Text(text, style=style), soft_wrap=True)
