"""`gemmed status`: whether the daemon works, who is there, and how each sensor is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from pipeline.core.errors import StorageError
from pipeline.core.label_names import shown_name
from pipeline.core.passages import NO_LABEL, probability_text
from pipeline.core.sensor_state import State
from pipeline.daemon.console import COLOURS, TROUBLES, in_words, is_trouble
from pipeline.daemon.readiness import (
    DECIDING,
    READY,
    START_SECONDS,
    STOPPED,
    ReadinessReason,
    exit_code,
    reasons_not_ready,
)
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.cursors import last_heartbeat
from pipeline.storage.journal import Journal
from pipeline.storage.presence_audit import audit_words, presence_audit, recent_passages

_MOST_TROUBLES = 8


def status(state: StateDirectory) -> dict[str, Any]:
    """Return what the state directory says about its daemon, with `reasons` why it is not ready and its exit `code`."""
    running = state.is_locked()
    try:
        with Journal(state.journal, read_only=True) as journal:
            found = _stored(journal, running=running)
    except StorageError as error:
        # A daemon that has just started has no journal yet.
        found = {"running": running, "error": str(error)}
    reasons = _reasons(found)
    return found | {"reasons": [asdict(one) for one in reasons], "code": exit_code(reasons)}


def _stored(journal: Journal, *, running: bool) -> dict[str, Any]:
    beat = last_heartbeat(journal)
    events = journal.events(types=[*TROUBLES, "settings_reloaded"], newest_first=True)
    troubles = [event.as_dict() for event in islice((e for e in events if is_trouble(e.body)), _MOST_TROUBLES)]
    last = next(journal.events(types=["decision"], most=1, newest_first=True), None)
    run = None if beat is None else beat.status.get("run")
    return {
        **({} if beat is None else beat.status),
        "running": running,
        **({} if beat is None else {"beat_seconds_ago": round(beat.age_seconds, 1)}),
        "seconds_since_start": _seconds_since_start(journal, run) if running else None,
        "state_directory": str(journal.path.parent),
        "troubles": troubles,
        "passages": recent_passages(journal, run if running else None),
        "false_passages": presence_audit(journal),
        "last_decision": last.as_dict() if last is not None and last.run == run else None,
    }


def _seconds_since_start(journal: Journal, run: str | None) -> float | None:
    """Return how long ago a run started that has not stored its status yet; None if the status is its own."""
    started = next(journal.events(types=["run_started"], most=1, newest_first=True), None)
    return None if started is None or started.run == run else round(_age(started.time), 1)


def _age(time: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()


def _reasons(found: Mapping[str, Any]) -> list[ReadinessReason]:
    """Return why the daemon is not ready; one that started within the last minute may have no status yet."""
    if not found["running"]:
        return reasons_not_ready(found, 0.0)
    starting = found.get("seconds_since_start")
    if starting is None:
        return reasons_not_ready(found, found.get("beat_seconds_ago"))
    return [] if starting < START_SECONDS else reasons_not_ready(None, None)


def show_status(found: Mapping[str, Any], console: Console) -> None:
    """Print it for people."""
    if "error" in found:
        console.print(found["error"], style="yellow", soft_wrap=True, highlight=False)
        return
    console.print(_headline(found))
    for reason in found["reasons"]:
        console.print(f"{reason['what']}; {reason['cure']}", style="red", highlight=False, soft_wrap=True)
    if "run" in found and found["seconds_since_start"] is None:
        console.print(Group(_sensors(found["sensors"]), _numbers(found)))
    if found["troubles"]:
        console.print("recent problems:")
    for trouble in found["troubles"]:
        console.print(
            f"{trouble['time']} {trouble['id']} {in_words(trouble)}", style="yellow", highlight=False, soft_wrap=True
        )


def _headline(found: Mapping[str, Any]) -> Text:
    if found["code"] == STOPPED:
        return Text("not running; this is its last status", style="yellow")
    if found.get("seconds_since_start") is not None:
        return Text(f"started {found['seconds_since_start']:.0f} s ago, no status yet", style="yellow")
    style = "green" if found["code"] == READY else "red"
    process = f"process {found.get('pid', '?')}, run {found.get('run', '?')}"
    return Text(f"running, {process}, status {found.get('beat_seconds_ago', 0.0):.0f} s old", style=style)


def _sensors(sensors: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("sensor", "state", "faults", "weight", "cure")
    for sensor in sensors:
        state = State(sensor["state"])
        table.add_row(
            str(sensor["sensor"]),
            Text(state, style=COLOURS[state]),
            ", ".join(sensor["causes"]) or ("" if sensor.get("delivers", True) else "no sound"),
            "" if sensor["weight"] is None else f"{sensor['weight']:.2f}",
            "; ".join(sensor["cures"]),
        )
    return table


def _numbers(found: Mapping[str, Any]) -> Table:
    rows = {
        "presence": presence_text(found),
        "passages, last 24 h": _counted(found["passages"]["last_24_h"]),
        "last passage": _passage(found["passages"]["last"]),
        "false passages": audit_words(found["false_passages"]),
        "last decision": _decision(found["last_decision"]),
        "decisions": _counted(found["labels"]),
        "source": f"{found['source']}, {found['rate_hz']} Hz",
        "recording": f"{found['recording']}, {found['sample'] / found['rate_hz']:.0f} s",
        "model": found["model"] or "none yet: sensor health only, no decisions",
        "behind": f"{found['backlog_seconds']:.2f} s, {found['samples_lost']} samples lost",
        "memory": f"{found['resident_mb']:.0f} MB",
        "training": _training(found),
    }
    for output in found.get("outputs", []):
        rows[output["target"]] = f"{output['queued']} events queued, {output['dropped']} dropped"
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def presence_text(found: Mapping[str, Any]) -> str:
    """Say whether somebody is there: `nobody since 14:25:10 UTC`; unknown while nothing is heard."""
    presence = found.get("presence")
    if presence is None or presence["somebody"] is None:
        return "unknown: no decision yet"
    for reason in found["reasons"]:
        if reason["problem"] not in DECIDING:
            return f"unknown: {reason['what']}"
    since = "" if presence["since"] is None else f" since {_moment(presence['since'])}"
    passage = presence["passage"]
    if passage is None:
        return f"nobody{since}"
    if passage["label"] is None:
        return f"somebody: {NO_LABEL} ({passage['reason']}),{since}"
    name, probability = shown_name(passage["label"], found.get("names")), passage["probability"]
    return f"somebody: {name}, {'' if probability is None else f'{probability_text(probability)},'}{since}"


def _moment(time: str) -> str:
    """Return a time of today without its date."""
    moment = datetime.fromisoformat(time)
    return f"{moment:%H:%M:%S} UTC" if moment.date() == datetime.now(UTC).date() else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {label}" for label, count in counts.items()) or "none"


def _passage(last: Mapping[str, Any] | None) -> str:
    if last is None:
        return "none"
    label = last["label"] or f"{NO_LABEL} ({last['reason']})"
    return f"{last['passage']}, {label}, {last['end_seconds'] - last['start_seconds']:.0f} s"


def _training(found: Mapping[str, Any]) -> str:
    if found["code"] == STOPPED:
        return "interrupted" if found.get("learning") else "none"
    return found.get("learning") or "not running"


def _decision(last: Mapping[str, Any] | None) -> str:
    if last is None:
        return "none"
    mark = f"{last['time']} {last['id']} "
    if last["label"] is None:
        return mark + ("nobody" if last["reason"] == "nobody" else f"{NO_LABEL}, {last['reason']}")
    return f"{mark}{last['label']}, probability {last['probability']:.2f}, {last['sensors_used']} sensors"
