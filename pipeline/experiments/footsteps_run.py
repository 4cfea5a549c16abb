"""Run the footstep experiment: features first, then what is missing of the tasks, then tables and figures."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.experiments.corpus import features_of, split_is_possible
from pipeline.experiments.footsteps import FootstepPlan, run_task
from pipeline.experiments.footsteps_report import QUANTITIES, FootstepResults, write_tables
from pipeline.experiments.methods import JOINT, ORACLE, REFERENCE
from pipeline.experiments.peers import clean_learning
from pipeline.experiments.run import measured
from pipeline.runtime.process_pool import Engine


def run_footsteps(plan: FootstepPlan, out: Path, *, engine: Engine, restart: bool) -> FootstepResults:
    """Measure what is missing, then write tables and figures and print the grid."""
    from pipeline.experiments.footsteps_figures import write_figures
    from pipeline.runtime.plotting import pyplot

    pyplot()  # these fail now, not after the last task
    clean_learning()
    console = Console(markup=False, emoji=False)  # paths are the user's
    folder, entries = features_of(plan.origin(), out / "features", engine=engine, console=console)
    split_is_possible(entries, plan.n_train)
    work = partial(run_task, plan=plan, folder=folder, entries=tuple(entries))
    records = measured(plan.as_dict(), plan.tasks(), work, out, engine=engine, restart=restart, console=console)
    results = FootstepResults(plan, records)
    written = write_tables(results, out) + write_figures(results, out)
    console.print(summary(results))
    console.print("written: " + ", ".join(str(item) for item in written), soft_wrap=True)
    return results


def summary(results: FootstepResults, quantity: str = "affected") -> Table:
    """The joint learner between the best other method and the oracle, a line for each training set."""
    table = Table(title=f"Accuracy in %, {QUANTITIES[quantity]}, mean of {results.plan.splits} splits")
    for name in ("training set", "best other method"):
        table.add_column(name)
    for name in ("its", "SVC", "joint", "oracle", "joint - best"):
        table.add_column(name, justify="right", style="bold" if name == "joint" else None)
    for cell in results.cells:
        against, best = results.against_best(quantity, cell)
        shown = (results.mean(quantity, method, cell) for method in (best, REFERENCE, JOINT, ORACLE))
        table.add_row(cell, best, *(f"{100 * mean.value:.1f}" for mean in shown), against.points())
    return table
