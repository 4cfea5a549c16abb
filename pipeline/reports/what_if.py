"""What would have been decided otherwise?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from pipeline.core.choices import Choices
from pipeline.core.errors import UsageError

Event = dict[str, Any]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(part) for part in text.split(",")}))


def _on_or_off(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError(text)
    return text == "on"


_CHANGES: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "mask": ("masked", _numbers, "sensors counted from 1, for example mask=2 or mask=2,3"),
    "alpha": ("alpha", float, "a number between 0 and 1, for example alpha=0.005"),
    "confidence": ("least_confidence", float, "a number from 0.5 to 1, for example confidence=0.8"),
    "fusion": ("fusion", str, "votes or features"),
    "health": ("health", _on_or_off, "on or off"),
    "presence": ("presence", _on_or_off, "on or off"),
    "false_passages_per_day": ("false_passages_per_day", float, "a number above 0, for example 24"),
}


def changed(choices: Choices, changes: Sequence[str]) -> Choices:
    """Choices with some of them changed, each given as name=value."""
    for change in changes:
        name, _, value = change.partition("=")
        if name not in _CHANGES or not value:
            raise UsageError(f"--what-if {change!r} must be name=value with one of {', '.join(_CHANGES)}")
        field, parse, rule = _CHANGES[name]
        try:
            choices = replace(choices, **{field: parse(value)})
        except ValueError as error:
            raise UsageError(f"--what-if {change!r} must be {rule}") from error
    return choices


def variant_path(out: Path, changes: Sequence[str]) -> Path:
    """Beside the decisions that were really taken."""
    return out.with_name(f"{out.stem}.{','.join(sorted(changes))}{out.suffix}")


@dataclass(frozen=True, slots=True)
class DecisionChanges:
    """Decisions that two replays of the same recordings have in common, side by side."""

    pairs: tuple[tuple[Event, Event], ...]

    @classmethod
    def of(cls, before: Iterable[Event], after: Iterable[Event]) -> DecisionChanges:
        one, other = _by_place(before), _by_place(after)
        return cls(tuple((one[place], other[place]) for place in one if place in other))

    @property
    def changed(self) -> list[tuple[Event, Event]]:
        return [pair for pair in self.pairs if pair[0]["label"] != pair[1]["label"]]

    def table(self, rate_hz: int, most: int = 20) -> Table:
        """The decisions with another label, the first of them if there are many."""
        shown = self.changed[:most]
        more = f", the first {most}" if len(self.changed) > most else ""
        table = Table(title=f"{len(self.changed)} of {len(self.pairs)} decisions have another label{more}")
        for column in ("recording", "from s", "label", "p", "instead", "p", "sensors"):
            table.add_column(column)
        for before, after in shown:
            table.add_row(
                before["recording"],
                f"{before['start_sample'] / rate_hz:g}",
                *_outcome(before),
                *_outcome(after),
                f"{before['sensors_used']} → {after['sensors_used']}",
            )
        return table

    def sentences(self) -> list[str]:
        """The difference in words."""
        moves = Counter((_label(a), _label(b)) for a, b in self.changed)
        told = [f"{count} from {before} to {after}" for (before, after), count in sorted(moves.items())]
        kept = [
            abs(b["probability"] - a["probability"]) for a, b in self.pairs if a["label"] and a["label"] == b["label"]
        ]
        if kept:
            told.append(
                f"where the label stays, the probability moves by {sum(kept) / len(kept):.4f} on average and "
                f"{max(kept):.4f} at most"
            )
        degraded = [sum(pair[place]["degraded"] for pair in self.pairs) for place in (0, 1)]
        return [*told, f"degraded: {degraded[0]} before, {degraded[1]} after"]


def _by_place(events: Iterable[Event]) -> dict[tuple[str, int], Event]:
    return {(e["recording"], e["start_sample"]): e for e in events if e["type"] == "decision"}


def _label(event: Event) -> str:
    return event["label"] or "none"


def _outcome(event: Event) -> tuple[str, str]:
    probability = event["probability"]
    return _label(event), "" if probability is None else f"{probability:.3f}"
