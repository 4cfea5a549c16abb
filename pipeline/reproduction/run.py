"""Run a plan: in parallel, with a progress bar, resuming what an earlier run has left."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.reproduction.report import Results, write_tables
from pipeline.reproduction.ring import METHODS, Plan, Task, run_task
from pipeline.reproduction.store import TrialStore
from pipeline.workers import finished, progress_bar


def run_ring(plan: Plan, out: Path, *, jobs: int, restart: bool) -> None:
    """Measure what is missing, then write tables and figures and print the errors."""
    from pipeline.plotting import pyplot
    from pipeline.reproduction.figures import write_figures

    pyplot()  # fails now, not after the last trial
    console = Console()
    path = out / "trials.jsonl"
    if restart:
        path.unlink(missing_ok=True)
    with TrialStore(path, plan.as_dict()) as store:
        tasks = [task for task in plan.tasks() if task.key not in store.done]
        if store.done and tasks:
            console.print(f"continuing: {len(store.done)} tasks are done, {len(tasks)} to go")
        _measure(tasks, plan.seed, store, jobs, console)
        results = Results(plan, [record for records in store.done.values() for record in records])
    written = write_tables(results, out) + write_figures(results, out)
    console.print(_summary(results))
    console.print("written: " + ", ".join(str(item) for item in written), soft_wrap=True)


def _measure(tasks: list[Task], seed: int, store: TrialStore, jobs: int, console: Console) -> None:
    if not tasks:
        return
    with progress_bar(console) as progress:
        done = len(store.done)
        bar = progress.add_task("tasks", total=done + len(tasks), completed=done)
        for task, records in finished(partial(run_task, seed=seed), tasks, jobs=jobs):
            store.add(task.key, records)
            progress.advance(bar)


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
