"""How all arrays of a fleet are: the worst first."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.core.label_names import shown_name
from pipeline.core.passages import NO_LABEL, probability_text
from pipeline.core.sensor_state import State
from pipeline.daemon.console import COLOURS
from pipeline.fleet.config import RESERVED, Fleet
from pipeline.fleet.passages import last_passage
from pipeline.sources.reorder import arrays_in
from pipeline.transport.nats import Broker

_ORDER = ["failed", "nobody", State.BAD, State.DEGRADED, "never heard", State.UNKNOWN, State.OFF, State.GOOD]
"""What is worst of an array, and of its sensors."""
_COLUMNS = (
    "array", "site", "is", "sensors", "presence", "last passage", "lag s", "lost s", "decisions", "model", "heard",
    "worker",
)  # fmt: skip
_SILENT_SECONDS = 60.0
_LOOK_SECONDS = 2.0
ALL_WELL, SOME_ILL, NOT_RUN = 0, 3, 4


@dataclass(frozen=True, slots=True)
class ArrayStatus:
    """An array: `worst` is the worst that can be said of it."""

    array: str
    site: str
    worst: str
    known: Mapping[str, Any]
    owner: str | None
    last_passage: Mapping[str, Any] | None

    @property
    def lag_seconds(self) -> float:
        return float(self.known.get("lag_seconds") or 0.0)

    @property
    def lost_seconds(self) -> float:
        return float(self.known.get("samples_lost") or 0) / float(self.known.get("rate_hz") or 1)

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.known,  # first: its owner is who told it, and may be dead
            "array": self.array,
            "site": self.site,
            "worst": self.worst,
            "owner": self.owner,
            "last_passage": self.last_passage,
            "lost_seconds": round(self.lost_seconds, 1),
        }


def fleet_status(fleet: Fleet, broker: Broker) -> dict[str, Any]:
    """All of it, ready for JSON."""
    places = fleet.places
    leases, told = places.leases(broker).all(), places.status(broker).all()
    owners = {key: json.loads(entry.value)["owner"] for key, entry in leases.items()}
    arrays = [
        ArrayStatus(
            array.name, array.place, _worst(known, owner), known, owner, last_passage(fleet, broker, array.name)
        )
        for array in fleet.arrays
        for known in [json.loads(told[array.name].value) if array.name in told else {}]
        for owner in [owners.get(array.name)]
    ]
    arrays.sort(key=lambda one: (_ORDER.index(one.worst), -one.lag_seconds, -one.lost_seconds, one.array))
    published = arrays_in(broker, places.sound)
    known = {array.name for array in fleet.arrays}
    return {
        "fleet": fleet.broker.name,
        "dispatcher": owners.get(RESERVED),
        "arrays": [one.as_dict() for one in arrays],
        "not_in_the_fleet": [name for name in published if name not in known],
        "never_published": sorted(known - set(published)),
    }


def _worst(known: Mapping[str, Any], owner: str | None) -> str:
    if known.get("failed"):
        return "failed"
    if owner is None:
        return "nobody"
    if not known.get("recording"):
        return "never heard"
    states = [State(sensor["state"]) for sensor in known.get("sensors", ())]
    return min(states, key=_ORDER.index, default=State.UNKNOWN)


def exit_code(status: Mapping[str, Any]) -> int:
    if status["dispatcher"] is None:
        return NOT_RUN
    return SOME_ILL if any(one["worst"] in _ORDER[:4] for one in status["arrays"]) else ALL_WELL


def show_status(status: Mapping[str, Any], console: Console) -> None:
    table = Table(title=f"fleet {status['fleet']}: {len(status['arrays'])} arrays, the worst first")
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in ("lag s", "lost s", "decisions") else "left")
    for one in status["arrays"]:
        table.add_row(*_row(one))
    console.print(table)
    for one in status["arrays"]:
        if one.get("failed"):
            told = f"{one['array']}: {one['failed']}"
            console.print(told, style="red", soft_wrap=True, highlight=False, markup=False)
    if status["dispatcher"] is None:
        console.print("nobody dispatches: start gemmed fleet run", style="red")
    if status["not_in_the_fleet"]:
        names = ", ".join(status["not_in_the_fleet"])
        told = f"published, but not in the fleet: {names}; add them below [[arrays]]"
        console.print(told, style="yellow", markup=False)
    if status["never_published"]:
        names = ", ".join(status["never_published"])
        console.print(f"in the fleet, but not in the log: {names}; start gemmed publish there", style="yellow")


def watch(fleet: Fleet, broker: Broker, console: Console) -> None:
    """Show it again and again, until somebody has seen enough."""
    with suppress(KeyboardInterrupt):
        while True:
            found = fleet_status(fleet, broker)
            console.clear()
            show_status(found, console)
            time.sleep(_LOOK_SECONDS)


def _row(one: Mapping[str, Any]) -> list[str | Text]:
    worst = one["worst"]
    colour = COLOURS.get(worst, "red") if worst in list(State) else "red"
    ill = [s for s in one.get("sensors", ()) if State(s["state"]) is not State.GOOD]
    sensors = Text(", ").join(Text(f"{s['sensor']} {s['state']}", COLOURS[State(s["state"])]) for s in ill)
    trial = " (on trial)" if one.get("trial") else ""
    return [
        one["array"],
        Text(one["site"]),
        Text(worst, colour),
        sensors or ("all good" if one.get("sensors") else ""),
        Text(_presence(one)),
        Text(_passage(one["last_passage"])),
        f"{one.get('lag_seconds') or 0:.1f}",
        f"{one['lost_seconds']:.1f}",
        str(one.get("decisions", "")),
        f"{one.get('model') or ''}{trial}",
        _ago(one.get("heard_at")) or ("earlier" if one.get("recording") else "never"),
        Text((one["owner"] or "").rpartition(":")[0]),
    ]


def _presence(one: Mapping[str, Any]) -> str:
    """Say whether somebody is there; nobody knows without a worker, or while no sound arrives."""
    presence, heard_at = one.get("presence"), one.get("heard_at")
    if not presence or presence["somebody"] is None or one["owner"] is None or one.get("failed"):
        return "unknown"
    if heard_at is None or _seconds_since(heard_at) > _SILENT_SECONDS:
        return "no sound"
    passage = presence["passage"]
    if passage is None:
        return "nobody" if presence["since"] is None else f"nobody since {_minute(presence['since'])}"
    return f"somebody: {_label(passage)}"


def _passage(last: Mapping[str, Any] | None) -> str:
    if last is None:
        return ""
    return _label(last) if last["start_time"] is None else f"{_minute(last['start_time'])} {_label(last)}"


def _label(passage: Mapping[str, Any]) -> str:
    if passage["label"] is None:
        return NO_LABEL
    sure = passage["probability"]
    return shown_name(passage["label"]) + ("" if sure is None else f" {probability_text(sure)}")


def _minute(time: str) -> str:
    """Return a time of today without its date, in UTC."""
    moment = datetime.fromisoformat(time).astimezone(UTC)
    return f"{moment:%H:%M}" if moment.date() == datetime.now(UTC).date() else f"{moment:%Y-%m-%d %H:%M}"


def _seconds_since(time: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()


def _ago(time: str | None) -> str:
    if time is None:
        return ""
    seconds = _seconds_since(time)
    if seconds < 2:
        return "now"
    return f"{seconds:.0f} s ago" if seconds < 2 * _SILENT_SECONDS else f"{seconds / 60:.0f} min ago"
