"""Run the footstep experiment: cepstra first, then what is missing of the tasks, then tables and figures."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.reproduction.corpus import features_of, split_is_possible
from pipeline.reproduction.footsteps import Plan, run_task
from pipeline.reproduction.footsteps_report import FootstepResults, write_tables
from pipeline.reproduction.methods import JOINT, METHODS
from pipeline.reproduction.peers import clean_learning
from pipeline.reproduction.run import measured


def run_footsteps(plan: Plan, out: Path, *, jobs: int, restart: bool) -> FootstepResults:
    """Measure what is missing, then write tables and figures and print the grid."""
    from pipeline.plotting import pyplot
    from pipeline.reproduction.footsteps_figures import write_figures

    pyplot()  # these fail now, not after the last task
    clean_learning()
    console = Console()
    folder, entries = features_of(plan.origin(), out / "features", jobs=jobs, console=console)
    split_is_possible(entries, plan.n_train)
    work = partial(run_task, plan=plan, folder=folder, entries=tuple(entries))
    records = measured(plan.as_dict(), plan.tasks(), work, out, jobs=jobs, restart=restart, console=console)
    results = FootstepResults(plan, records)
    written = write_tables(results, out) + write_figures(results, out)
    console.print(summary(results))
    console.print("written: " + ", ".join(str(item) for item in written), soft_wrap=True)
    return results


def summary(results: FootstepResults) -> Table:
    """Accuracy of the sensors concerned, a line for each cell."""
    title = f"Accuracy in % of the sensors concerned, clean test segments, mean of {results.plan.splits} splits"
    table = Table(title=title)
    table.add_column("training set")
    for method in METHODS:
        table.add_column(method, justify="right", style="bold" if method == JOINT else None)
    table.add_column("joint - best other", justify="right")
    for cell in results.cells:
        shown = [f"{100 * results.mean('affected', method, cell).value:.1f}" for method in METHODS]
        table.add_row(cell, *shown, results.against_best("affected", cell)[0].points())
    return table
