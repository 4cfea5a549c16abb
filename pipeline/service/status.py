"""`gemmed status`: is it running, what does it hear, whom does it believe."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from pipeline.conditions import State
from pipeline.errors import StorageError
from pipeline.service.console import COLOURS, TROUBLES, in_words, is_trouble
from pipeline.service.presence_audit import audit_words, presence_audit, recent_passages
from pipeline.service.state import StateDirectory
from pipeline.sinks.journal import Journal

RUNNING, STALE, STOPPED = 0, 3, 4
_STALE_SECONDS = 30.0
_MOST_TROUBLES = 8


def status(state: StateDirectory) -> dict[str, Any]:
    """All that can be known from outside; `code` is the exit code that says it in short."""
    running = state.is_locked()
    try:
        with Journal(state.journal, read_only=True) as journal:
            beats = journal.rows("SELECT time, body FROM heartbeat")
            told = journal.events(types=[*TROUBLES, "settings_reloaded"], newest_first=True)
            troubles = [event.as_dict() for event in islice((e for e in told if is_trouble(e.body)), _MOST_TROUBLES)]
            last = next(journal.events(types=["decision"], most=1, newest_first=True), None)
            run = json.loads(beats[0]["body"]).get("run") if beats and running else None
            passages, audit = recent_passages(journal, run), presence_audit(journal)
    except StorageError as error:
        return {"running": running, "code": STALE if running else STOPPED, "error": str(error)}
    found: dict[str, Any] = {
        "running": running,
        "state_directory": str(state.path),
        "troubles": troubles,
        "passages": passages,
        "false_passages": audit,
    }
    if beats:
        age = (datetime.now(UTC) - datetime.fromisoformat(beats[0]["time"])).total_seconds()
        found |= {"beat_seconds_ago": round(age, 1), **json.loads(beats[0]["body"])}
    found["last_decision"] = last.as_dict() if last is not None and last.run == found.get("run") else None
    fresh = running and found.get("beat_seconds_ago", 0.0) < _STALE_SECONDS
    return found | {"code": RUNNING if fresh else STALE if running else STOPPED}


def show_status(found: dict[str, Any], console: Console) -> None:
    """For people."""
    if "error" in found:
        console.print(found["error"], style="yellow", soft_wrap=True, highlight=False)
        return
    console.print(Group(_headline(found), *([_sensors(found), _numbers(found)] if "run" in found else [])))
    for trouble in found["troubles"]:
        told = f"{trouble['time']} {trouble['id']} {in_words(trouble)}"
        console.print(told, style="yellow", highlight=False, soft_wrap=True)


def _headline(found: dict[str, Any]) -> Text:
    if found["code"] == RUNNING:
        age = found.get("beat_seconds_ago", 0.0)
        told = f"running, process {found.get('pid', '?')}, run {found.get('run', '?')}, as of {age:.0f} s ago"
        return Text(told, style="green")
    if found["code"] == STALE:
        return Text(f"running, but it has told nothing for {found.get('beat_seconds_ago', '?')} s", style="red")
    return Text("not running; start it with gemmed run. This is how it was:", style="yellow")


def _sensors(found: dict[str, Any]) -> Table:
    table = Table("sensor", "state", "what is the matter", "weight", "what to do")
    for sensor in found["sensors"]:
        state = State(sensor["state"])
        table.add_row(
            str(sensor["sensor"]),
            Text(state, style=COLOURS[state]),
            ", ".join(sensor["causes"]),
            "" if sensor["weight"] is None else f"{sensor['weight']:.2f}",
            "; ".join(sensor["cures"]),
        )
    return table


def _numbers(found: dict[str, Any]) -> Table:
    seconds = found["sample"] / found["rate_hz"]
    last = found["last_decision"]
    rows = {
        "source": f"{found['source']}, {found['rate_hz']} Hz",
        "recording": f"{found['recording']}, {seconds:.0f} s",
        "model": found["model"] or "none yet: states of the sensors, no decisions",
        "last decision": "none" if last is None else _decision(last),
        "passages, last 24 h": _counted(found["passages"]["last_24_h"]),
        "last passage": _passage(found["passages"]["last"]),
        "false passages": audit_words(found["false_passages"]),
        "decisions": ", ".join(f"{count} {label}" for label, count in found["labels"].items()) or "none",
        "behind": f"{found['backlog_seconds']:.2f} s, {found['samples_lost']} samples lost",
        "memory": f"{found['resident_mb']:.0f} MB",
        "learning": _learning(found),
    }
    for output in found.get("outputs", []):
        rows[output["target"]] = f"{output['queued']} events wait, {output['dropped']} were dropped"
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {label}" for label, count in counts.items()) or "none"


def _passage(last: dict[str, Any] | None) -> str:
    if last is None:
        return "none"
    label = last["label"] or f"no label ({last['reason']})"
    return f"{last['passage']}, {label}, {last['end_seconds'] - last['start_seconds']:.0f} s"


def _learning(found: dict[str, Any]) -> str:
    under_way = found.get("learning")
    return under_way or "waits" if found["code"] == RUNNING else "broken off" if under_way else "none"


def _decision(last: dict[str, Any]) -> str:
    mark = f"{last['time']} {last['id']} "
    if last["label"] is None:
        return mark + ("nobody" if last["reason"] == "nobody" else f"undecided, {last['reason']}")
    return f"{mark}{last['label']}, probability {last['probability']:.2f}, {last['sensors_used']} sensors"
