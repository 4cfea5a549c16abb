"""`gemmed models`: which models there are, what they were learned from, and which one decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.errors import ModelError
from pipeline.events import NoticeKind
from pipeline.service.registry import Registered, Registry
from pipeline.sinks.journal import Journal
from pipeline.training.metrics import Judged
from pipeline.training.model import Model, Refusal


def list_models(state: Path, console: Console) -> None:
    """The newest first, and what became of each."""
    with _registry(state) as registry:
        models = registry.all()
        if not models:
            console.print("there is no model yet; gemmed run makes the first one")
            return
        table = Table(title="Models", caption="accuracy on passages that were left out; contamination by sensor, %")
        for column in ("model", "since", "from", "is", "passages", "accuracy %", "contamination %", "gate"):
            table.add_column(column, overflow="fold")
        for one in models:
            table.add_row(
                one.name,
                one.since[:16].replace("T", " "),
                one.origin,
                one.status,
                str(one.facts.get("passages", "")),
                _rate(one.facts.get("accuracy")),
                " ".join(f"{100 * share:.0f}" for share in one.facts.get("contamination", ())),
                _gate(one.facts.get("gate")),
            )
        console.print(table)


def show_model(state: Path, name: str, console: Console) -> None:
    """All that is known of one model, and what training refused to learn from."""
    with _registry(state) as registry:
        one = registry.named(name)
        for line in _described(one, registry):
            console.print(line, soft_wrap=True, highlight=False)
        try:
            console.print(_refusals(registry.load(one.name)))
        except ModelError as error:
            console.print(str(error), style="yellow", soft_wrap=True, highlight=False)


def promote_model(state: Path, name: str, console: Console, *, who: str, why: str) -> None:
    """Let a model decide; a daemon that runs takes it up by itself."""
    with _registry(state, write=True) as registry:
        new = registry.promote(name, who=who, why=why, told=NoticeKind.PROMOTION_ASKED)
        console.print(f"{new.name} is champion; gemmed run lets it decide within seconds", highlight=False)


def roll_back(state: Path, console: Console, *, who: str, why: str) -> None:
    """Let the champion before the present one decide again."""
    with _registry(state, write=True) as registry:
        before = registry.rollback(who=who, why=why)
        console.print(f"{before.name} is champion again; gemmed run lets it decide within seconds", highlight=False)


def diff_models(state: Path, first: str, second: str, console: Console) -> None:
    """Two models beside each other."""
    with _registry(state) as registry:
        entries = [registry.named(first), registry.named(second)]
        models = [registry.load(one.name) for one in entries]
    table = Table(title="Models beside each other")
    for column in ("", *(one.name for one in entries)):
        table.add_column(column, overflow="fold")
    for title, *values in _differences(entries, models):
        table.add_row(title, *values, style=None if values[0] == values[1] else "bold")
    console.print(table)
    for line in (*_recordings(entries, models), *_agreement(models)):
        console.print(line, soft_wrap=True, highlight=False)


@contextmanager
def _registry(state: Path, *, write: bool = False) -> Iterator[Registry]:
    with Journal(state / "journal.sqlite", read_only=not write) as journal:
        yield Registry(state / "models", journal)


def _rate(told: Mapping[str, float] | None) -> str:
    if told is None:
        return ""
    return f"{100 * told['value']:.1f} ({100 * told['low']:.1f} to {100 * told['high']:.1f})"


def _gate(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return ""
    return "passed" if verdict["passed"] else "; ".join(verdict["reasons"])


def _described(one: Registered, registry: Registry) -> Iterator[str]:
    yield f"{one.name}: {one.status} since {one.since}: {one.why}"
    after = f" after {one.parent}" if one.parent else ""
    yield f"learned {one.time}{after}, {one.origin}; {registry.path(one.name)}"
    facts = one.facts
    yield f"tells {' and '.join(facts['classes'])} apart; {facts['segments']} segments of {facts['passages']} passages"
    if facts["accuracy"]:
        yield f"accuracy on passages that were left out: {_rate(facts['accuracy'])} %"
    yield f"labels that seem wrong: {facts['wrong_labels']:.0%}{_doubted(facts['doubted'])}"
    for name in ("gate", "shadow"):
        if name in facts:
            yield f"{name}: {_gate(facts[name])}"
    compared = facts.get("gate", {}).get("compared")
    if compared:
        yield (
            f"score {_rate(compared['challenger'])}, of the champion {_rate(compared['champion'])}, difference "
            f"{_rate(compared['difference'])} on {compared['passages']} passages, p = {compared['p_worse']:.3f}"
        )


def _doubted(names: list[str]) -> str:
    return f", in {', '.join(names[:5])}{' and others' if len(names) > 5 else ''}" if names else ""


def _refusals(model: Model) -> Table:
    table = Table(title="What training did not learn from, in segments")
    for column in ("sensor", "contamination %", *(reason.told for reason in Refusal), "classifier"):
        table.add_column(column, overflow="fold")
    for s, machine in enumerate(model.machines):
        counts = [str(int((model.memory.refusal[:, s] == reason).sum())) for reason in Refusal]
        share = f"{100 * model.notes['contamination'][s]:.1f}"
        table.add_row(str(s + 1), share, *counts, "none" if machine is None else f"{len(machine.coefficients)} terms")
    return table


def _differences(entries: list[Registered], models: list[Model]) -> Iterator[tuple[str, ...]]:
    yield "is", *(one.status for one in entries)
    yield "from", *(one.origin for one in entries)
    yield "learned", *(one.time[:16].replace("T", " ") for one in entries)
    yield "classes", *(", ".join(one.classes) for one in models)
    yield "passages", *(str(len(one.notes["recordings"])) for one in models)
    yield "segments", *(str(one.notes["segments"]) for one in models)
    yield "accuracy %", *(_rate(one.notes["validation"].get("accuracy")) for one in models)
    yield "labels that seem wrong %", *(f"{100 * one.notes['wrong_labels']:.1f}" for one in models)
    for s in range(models[0].n_sensors):
        yield f"sensor {s + 1} contamination %", *(f"{100 * one.notes['contamination'][s]:.1f}" for one in models)
        yield f"sensor {s + 1} accuracy %", *(_sensor_rate(one, s) for one in models)


def _sensor_rate(model: Model, sensor: int) -> str:
    sensors = model.notes["validation"].get("sensors")
    return _rate(sensors[sensor]["accuracy"]) if sensors else ""


def _recordings(entries: list[Registered], models: list[Model]) -> Iterator[str]:
    """What one has learned from and the other has not."""
    known = [{note["fingerprint"]: note["recording"] for note in one.notes["recordings"]} for one in models]
    for one, own, other in zip(entries, known, reversed(known), strict=True):
        only = sorted(own[key] for key in own.keys() - other.keys())
        more = f" and {len(only) - 10} more" if len(only) > 10 else ""
        yield (
            f"only {one.name} has learned from {len(only)} passages: {', '.join(only[:10])}{more}"
            if only
            else (f"{one.name} has learned from nothing that the other has not")
        )


def _agreement(models: list[Model]) -> Iterator[str]:
    """About the segments that both have learned from, as models without them decided."""
    first, second = (_left_out(one) for one in models)
    pairs = [(first[place], second[place]) for place in first if place in second]
    if not pairs:
        return
    same = sum(a.label == b.label for a, b in pairs) / len(pairs)
    yield f"left-out decisions about {len(pairs)} segments of both: {same:.1%} the same"
    for s in range(models[0].n_sensors):
        odds = [(a.sensor_log_odds[s], b.sensor_log_odds[s]) for a, b in pairs]
        heard = [(x > 0) == (y > 0) for x, y in odds if x is not None and y is not None]
        if heard:
            yield f"sensor {s + 1} by itself: {sum(heard) / len(heard):.1%} of {len(heard)} the same"


def _left_out(model: Model) -> dict[tuple[str, int], Judged]:
    return {
        (note["fingerprint"], one.start_sample): one
        for note in model.notes["recordings"]
        for one in model.judged_without(note["fingerprint"], note["recording"])
    }
