"""Run a plan: in parallel, with a progress bar, resuming what an earlier run has left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.table import Table

from pipeline.experiments.report import Results, write_tables
from pipeline.experiments.ring import METHODS, RingPlan, run_task
from pipeline.experiments.store import TrialStore
from pipeline.runtime.process_pool import Engine, progress_bar

Record = dict[str, Any]


class Keyed(Protocol):
    """A task whose key no other task of the plan has."""

    @property
    def key(self) -> str: ...


Task = TypeVar("Task", bound=Keyed)


def measured(
    plan: dict[str, Any],
    tasks: Iterable[Task],
    work: Callable[[Task], list[Record]],
    out: Path,
    *,
    engine: Engine,
    restart: bool,
    console: Console,
) -> list[Record]:
    """Records of all tasks of a plan; those that an earlier run has left in `out` are not measured again."""
    path = out / "trials.jsonl"
    if restart:
        path.unlink(missing_ok=True)
    with TrialStore(path, plan) as store:
        missing = [task for task in tasks if task.key not in store.done]
        if store.done and missing:
            console.print(f"continuing: {len(store.done)} tasks are done, {len(missing)} to go")
        _measure(missing, work, store, engine, console)
        return [record for records in store.done.values() for record in records]


def _measure(
    tasks: Sequence[Task], work: Callable[[Task], list[Record]], store: TrialStore, engine: Engine, console: Console
) -> None:
    if not tasks:
        return
    with progress_bar(console) as progress:
        done = len(store.done)
        bar = progress.add_task("tasks", total=done + len(tasks), completed=done)
        for task, records in engine.finished(work, tasks):
            store.add(task.key, records)
            progress.advance(bar)


def run_ring(plan: RingPlan, out: Path, *, engine: Engine, restart: bool) -> None:
    """Measure what is missing, then write tables and figures and print the errors."""
    from pipeline.experiments.figures import write_figures
    from pipeline.runtime.plotting import pyplot

    pyplot()  # fails now, not after the last trial
    console = Console(markup=False, emoji=False)  # paths are the user's
    work = partial(run_task, seed=plan.seed)
    records = measured(plan.as_dict(), plan.tasks(), work, out, engine=engine, restart=restart, console=console)
    results = Results(plan, records)
    written = write_tables(results, out) + write_figures(results, out)
    console.print(_summary(results))
    console.print("written: " + ", ".join(str(item) for item in written), soft_wrap=True)


def _summary(results: Results) -> Table:
    plan = results.plan
    table = Table(title=f"Test error in %, mean of {plan.trials} trials (± standard error)")
    table.add_column("method")
    shown = [(noise, rate) for noise in (plan.noise_levels[0], 55) for rate in (plan.rates[0], plan.rates[-1])]
    for noise_level, rate in shown:
        table.add_column(f"R {noise_level}, {rate:.0%}", justify="right")
    for method in METHODS:
        cells = (results.mean("error", method, *setting).percent() for setting in shown)
        table.add_row(method, *cells, style="bold" if method == "GEM-MED, auto" else None)
    return table
