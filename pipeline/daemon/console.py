"""What somebody sees who starts the daemon by hand: changes, not every half second."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from pipeline.core.passages import probability_text
from pipeline.core.sensor_state import State

COLOURS = {State.GOOD: "green", State.DEGRADED: "yellow", State.BAD: "red", State.OFF: "dim", State.UNKNOWN: "dim"}
_SUSTAINED = 3
"""Decisions in a row that say the same are news; a single one may be a slip."""
_ANOMALIES = {"fault_suspected", "event_noticed", "common_fault", "label_doubted"}
TROUBLES = {
    "source_trouble", "clock_jumped", "storage_low", "storage_read_only", "journal_replaced", "model_unusable",
    "retraining_failed", "challenger_refused", "label_refused", "run_died", "output_link_down", "output_dropped",
}  # fmt: skip
_NEWS = {"retraining_started", "retraining_finished", "shadow_started", "storage_recovered", "settings_reloaded"}


def plain_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """In which text is shown as it is: names, paths and remarks of people may hold brackets, which are no commands."""
    return Console(stderr=stderr, width=width, markup=False, emoji=False)


def is_trouble(event: dict[str, Any]) -> bool:
    """Settings that were reloaded are only if they could not be used."""
    return event["type"] in TROUBLES or (event["type"] == "settings_reloaded" and "error" in event)


class ConsoleView:
    """Tells what changes, a line each, with the id by which `gemmed clip` and `gemmed label --event` know it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rate_hz = 1
        self._told: str | None = None
        self._row: list[str] = []

    def show(self, event: dict[str, Any]) -> None:
        """An event that is stored."""
        kind = event["type"]
        if kind == "recording_started":
            self._rate_hz, self._row = event["rate_hz"], []
        elif kind == "decision":
            if event.get("presence") is None:
                self._decided(event)
        elif kind in ("passage_started", "passage_ended"):
            self._line(event, passage_in_words(event), "bold")
        elif kind == "state_changed" and event["to"] != event["from"]:
            causes = f": {', '.join(event['causes'])}; {'; '.join(event['cures'])}" if event["causes"] else ""
            self._line(event, f"sensor {event['sensor']} is {event['to']}{causes}", COLOURS[State(event["to"])])
        elif kind in _ANOMALIES:
            self._line(event, f"{kind.replace('_', ' ')}: {event['reason']}", "magenta")
        elif kind == "model_changed":
            told = f"model {event['model']} decides" if event["model"] else "no model decides yet"
            self._line(event, told, "cyan")
        elif kind == "gap":
            seconds = (event["stop_sample"] - event["start_sample"]) / self._rate_hz
            self._line(event, f"{seconds:.2f} s are missing: {event['reason']}", "yellow")
        elif kind in TROUBLES | _NEWS:
            self._line(event, in_words(event), "yellow" if is_trouble(event) else "cyan")

    def _decided(self, event: dict[str, Any]) -> None:
        label = event["label"] or "undecided"
        self._row = [*self._row, label] if self._row and self._row[-1] == label else [label]
        if len(self._row) != _SUSTAINED or label == self._told:
            return
        self._told = label
        weights = " ".join(f"{weight:.2f}" for weight in event["weights"])
        sure = "" if event["probability"] is None else f" {probability_text(event['probability'])}"
        why = f" ({event['reason']})" if event["label"] is None else ""
        self._line(event, f"{label}{sure}{why}, weights {weights}", "bold")

    def _line(self, event: dict[str, Any], text: str, style: str) -> None:
        mark = f"{event['time'][11:19]} {event['id']:>7} "
        self._console.print(Text(mark, style="dim") + Text(text, style=style), soft_wrap=True)


def passage_in_words(event: dict[str, Any]) -> str:
    """Say who passes, or passed, with what is known of it."""
    label = event["label"] or f"no label ({event['reason']})"
    sure = "" if event["probability"] is None else f" {probability_text(event['probability'])}"
    if event["type"] == "passage_started":
        return f"somebody is there: {label}{sure}"
    cadence = event["cadence_per_minute"]
    more = [
        f"{event['end_seconds'] - event['start_seconds']:.0f} s",
        *([f"{cadence:.0f} steps per minute"] if cadence is not None else []),
        f"sensors {' '.join(map(str, event['sensors_used'])) or 'none'}",
        *(f"sensor {one['sensor']} {one['role']} {one['share']:.0%}" for one in event["sensors_excluded"]),
    ]
    return f"passed: {label}{sure}, {', '.join(more)}"


_SAID = ("where", "message", "why", "error", "status", "run_that_died", "model", "seconds", "reasons")


def in_words(event: dict[str, Any]) -> str:
    """What an event of the service says, in a line."""
    said = [str(event[name]) for name in _SAID if event.get(name)]
    return f"{event['type'].replace('_', ' ')}: {' '.join(said)}" if said else event["type"].replace("_", " ")
