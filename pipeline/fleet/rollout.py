"""A model for a fleet: to a share of the arrays first, each of which goes back by itself where it is worse."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, inf
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.core.errors import UsageError
from pipeline.fleet.config import Fleet
from pipeline.fleet.model_assignment import ModelAssignment, wanted_of
from pipeline.fleet.model_cache import ModelStore, usual_cache
from pipeline.storage.journal import utc
from pipeline.transport.nats import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What somebody wants: which arrays, how long the trial is, who says so."""

    share: float = 1.0
    arrays: tuple[str, ...] = ()
    trial_seconds: float = 600.0
    again: bool = False
    """Also where the model was tried before and went back."""
    who: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"--share={self.share:g} must be above 0 and at most 1; for example 0.1")
        if not 0 <= self.trial_seconds < inf:
            raise UsageError(f"--trial={self.trial_seconds:g} must be 0 or more seconds, and finite; for example 600")


def chosen_arrays(names: Sequence[str], model: str, share: float) -> list[str]:
    """A share of the arrays, the same whenever it is asked, and all of a smaller share among a larger one."""
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"{model} {name}".encode()).digest())
    return sorted(ranked[: ceil(share * len(names))])


def roll_out(fleet: Fleet, broker: Broker, directory: Path, rollout: Rollout) -> tuple[str, list[str]]:
    """Hand in a model and want it for some arrays; its name, and for which."""
    store = ModelStore(fleet.places.models(broker), fleet.fleet.cache or usual_cache())
    model = store.add(directory)
    named = [fleet.array(name).name for name in rollout.arrays]
    arrays = named or chosen_arrays([array.name for array in fleet.arrays], model.name, rollout.share)
    segments = ceil(rollout.trial_seconds / model.grid.segment_seconds)
    now = utc(datetime.now(UTC))
    wanted = ModelAssignment(
        model=model.name,
        rollout=f"{model.name} {now}" if rollout.again else model.name,
        trial_segments=segments,
        who=rollout.who,
        why=rollout.why,
        time=now,
    )
    bucket = fleet.places.wanted(broker)
    for array in arrays:
        bucket.put(array, wanted.as_bytes())
    return model.name, arrays


def refused_before(fleet: Fleet, broker: Broker, model: str, arrays: Sequence[str]) -> list[str]:
    """Those of some arrays that have refused a model, and ignore it unless it is wanted again."""
    status = fleet.places.status(broker).all()
    known = {array: json.loads(status[array].value) for array in arrays if array in status}
    return [array for array, one in known.items() if model in one.get("refused", ()) and one.get("model") != model]


def roll_back(fleet: Fleet, broker: Broker, arrays: Sequence[str], *, who: str, why: str) -> dict[str, str]:
    """One step back for some arrays, or all that had another model or shall get one; for each what it does."""
    chosen = [fleet.array(name).name for name in arrays] or [array.name for array in fleet.arrays]
    status, bucket = fleet.places.status(broker).all(), fleet.places.wanted(broker)
    now, back = utc(datetime.now(UTC)), {}
    for array in chosen:
        known = json.loads(status[array].value) if array in status else {}
        told, model = _step_back(known, wanted_of(bucket, array))
        if model:
            wanted = ModelAssignment(model=model, rollout=f"back {now}", is_back=True, who=who, why=why, time=now)
            bucket.put(array, wanted.as_bytes())
        elif told:
            bucket.delete(array)
        if told:
            back[array] = told
    if not back:
        raise UsageError("no array has a model before its present one; gemmed fleet rollout chooses another")
    return back


def _step_back(known: Mapping[str, Any], wanted: ModelAssignment | None) -> tuple[str, str | None]:
    """What an array does and the model that is wanted for it; None if that is whatever it begins with."""
    decides, before = known.get("model"), known.get("before")
    if wanted is None or _is(known, wanted) != "waits":
        return (f"goes back to {before}", before) if before else ("", None)
    if wanted.is_back:  # asked twice before it did it the first time
        return f"goes back to {wanted.model}", wanted.model
    # What it has not taken up it must not take up later; the model before the present one has nothing to do with that.
    return (f"stays with {decides}", decides) if decides else ("begins with the model of its settings", None)


def rollout_status(fleet: Fleet, broker: Broker) -> list[dict[str, Any]]:
    """For every array what is wanted and what is, ready for JSON."""
    status, bucket = fleet.places.status(broker).all(), fleet.places.wanted(broker)
    found = []
    for array in fleet.arrays:
        known = json.loads(status[array.name].value) if array.name in status else {}
        wanted = wanted_of(bucket, array.name)
        found.append({
            "array": array.name,
            "site": array.place,
            "decides": known.get("model"),
            "wanted": wanted.model if wanted else None,
            "is": _is(known, wanted),
            "who": wanted.who if wanted else None,
            "why": wanted.why if wanted else None,
            "time": wanted.time if wanted else None,
        })  # fmt: skip
    return found


def _is(known: Mapping[str, Any], wanted: ModelAssignment | None) -> str:
    if wanted is None:
        return "as it began"
    if wanted.rollout in known.get("refused", ()):
        return "went back"
    if known.get("model") != wanted.model:
        return "waits"
    return "on trial" if known.get("trial") else "decides"


def show_rollout(found: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = Table(title="models of the fleet")
    for name in ("array", "site", "decides", "wanted", "is", "who", "why", "since"):
        table.add_column(name)
    colours = {"went back": "red", "on trial": "yellow", "decides": "green"}
    for one in found:
        known = [Text(one[name] or "") for name in ("array", "site", "decides", "wanted", "is", "who", "why", "time")]
        known[4].stylize(colours.get(one["is"], ""))
        table.add_row(*known)
    console.print(table)
