"""What commands show in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pipeline.core.choices import Choices
from pipeline.daemon.console import plain_console
from pipeline.model.model import Model

_WIDE = 200

Event = dict[str, Any]


def wide_console() -> Console:
    """As wide as the terminal; where there is none, wide enough for names and times to be copied."""
    console = plain_console()
    return console if console.is_terminal else plain_console(width=max(_WIDE, console.width))


def training_table(model: Model) -> Table:
    """Per sensor: how much of it was refused, and how it did on recordings that were left out."""
    notes, validation = model.notes, model.notes["validation"]
    recordings = len(np.unique(model.memory.recording))
    table = Table(
        title=f"{notes['segments']} segments of {recordings} recordings: {listed(model.classes)}",
        caption=f"contaminated: estimated share that the sensor did not deliver; refused: not learned from, also for a "
        f"doubted label\n{_validated(validation)}",
    )
    for column in ("sensor", "power kept %", "contaminated %", "refused %", "right %, left-out recordings"):
        table.add_column(column, justify="left" if column == "sensor" else "right")
    for s in range(model.n_sensors):
        accuracy = validation["sensors"][s]["accuracy"] if "sensors" in validation else None
        table.add_row(
            str(s + 1),
            percent(notes["components"]["retained_power"][s]),
            percent(notes["contamination"][s]),
            percent(notes["refused"][s]),
            interval(accuracy),
        )
    table.add_row("all", "", "", "", interval(validation.get("accuracy_without_abstention")), style="bold")
    return table


def show_trained(model: Model, console: Console) -> None:
    """What training found, and what is to be said of it."""
    console.print(training_table(model))
    console.print(presence_words(model), soft_wrap=True, highlight=False)
    for name in model.notes["doubted_recordings"]:
        console.print(f"not learned from {name}: what is heard there contradicts its label", highlight=False)
    for warning in warnings_of(model, Choices().alpha):
        console.print(warning, style="yellow", soft_wrap=True, highlight=False)


def presence_words(model: Model) -> str:
    """Say what is known about presence, and which rate of false passages it can guarantee."""
    if model.presence is None:
        return (
            "presence: provisional, as there was too little background to learn from; label stretches without anybody "
            "as nobody, at least some minutes"
        )
    per_day = Choices().false_passages_per_day
    return (
        f"presence: learned from {model.presence.hours[0]:.1f} h of background, which guarantees at most "
        f"{model.presence.guaranteed_per_day(per_day):.1f} false passages a day at the usual {per_day:g}"
    )


def warnings_of(model: Model, alpha: float) -> list[str]:
    """What to say of a reference that is too small for alpha, and of sensors that cannot be used."""
    told = []
    smallest = model.screen.smallest_p_values
    blind = [s for s in range(model.n_sensors) if smallest[s] > alpha]
    if blind:
        told.append(
            f"the reference of sensor {_counted(blind)} is too small to refuse anything at alpha {alpha:g}: no p-value "
            f"is below {max(smallest[s] for s in blind):.3f}; train on more recordings, or choose a larger alpha"
        )
    useless = [s for s, machine in enumerate(model.machines) if machine is None or not model.screen.ready[s]]
    if useless:
        told.append(f"sensor {_counted(useless)} is not used: training believed too little of what it delivered")
    return told


def _counted(sensors: list[int]) -> str:
    return " and ".join(str(s + 1) for s in sensors)


def _validated(validation: Event) -> str:
    if "sensors" not in validation:
        return "not validated: too few recordings, or --folds 0"
    return f"{validation['folds']} folds of whole recordings; 95 % intervals with recordings as independent units"


def listed(names: Sequence[str]) -> str:
    """Return names as in a sentence: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def interval(rate: Event | None) -> str:
    if rate is None:
        return ""
    return f"{100 * rate['value']:.1f} ({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"
