"""`gemmed models`: which models there are, what they were learned from, and which one decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.core.errors import ModelError
from pipeline.core.events import NoticeKind
from pipeline.model.model import Model, Refusal
from pipeline.reports.model_text import agreement, differences, learned_apart, rate, verdict
from pipeline.reports.tables import listed
from pipeline.retraining.registry import Registered, Registry
from pipeline.storage.journal import Journal


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
                rate(one.facts.get("accuracy")),
                " ".join(f"{100 * share:.0f}" for share in one.facts.get("contamination", ())),
                verdict(one.facts.get("gate")),
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
    for one in differences(entries, models):
        table.add_row(one.what, *one.values, style=None if one.same else "bold")
    console.print(table)
    for line in (*learned_apart(entries, models), *agreement(models)):
        console.print(line, soft_wrap=True, highlight=False)


@contextmanager
def _registry(state: Path, *, write: bool = False) -> Iterator[Registry]:
    with Journal(state / "journal.sqlite", read_only=not write) as journal:
        yield Registry(state / "models", journal)


def _described(one: Registered, registry: Registry) -> Iterator[str]:
    yield f"{one.name}: {one.status} since {one.since}: {one.why}"
    after = f" after {one.parent}" if one.parent else ""
    yield f"learned {one.time}{after}, {one.origin}; {registry.path(one.name)}"
    facts = one.facts
    yield f"tells {listed(facts['classes'])} apart; {facts['segments']} segments of {facts['passages']} passages"
    if facts["accuracy"]:
        yield f"accuracy on passages that were left out: {rate(facts['accuracy'])} %"
    yield f"labels that seem wrong: {facts['wrong_labels']:.0%}{_doubted(facts['doubted'])}"
    for name in ("gate", "shadow"):
        if name in facts:
            yield f"{name}: {verdict(facts[name])}"
    compared = facts.get("gate", {}).get("compared")
    if compared:
        yield (
            f"score {rate(compared['challenger'])}, of the champion {rate(compared['champion'])}, difference "
            f"{rate(compared['difference'])} on {compared['passages']} passages, p = {compared['p_worse']:.3f}"
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
        table.add_row(str(s + 1), share, *counts, "none" if machine is None else f"{machine.n_terms} terms")
    return table
