"""Published experiments, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.main import (
    EngineName,
    Jobs,
    Scheduler,
    Seed,
    TlsCa,
    TlsCert,
    TlsKey,
    app,
    at_least,
    chosen_engine,
    errors_for_people,
    flowing,
)
from pipeline.core.errors import UsageError

reproduce = typer.Typer(help="Measure a published experiment again.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


@reproduce.command("ring")
@flowing
def reproduce_ring(
    trials: Annotated[
        int | None,
        typer.Option(parser=at_least(2, 50), metavar="N", help="Trials per setting (50, or 5 with --quick)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Four settings instead of sixteen, in a minute or two.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where tables and figures go (reproduction/ring, or ring-quick).")
    ] = None,
    seed: Seed = 1,
    jobs: Jobs = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard trials of an earlier run in the same place.")
    ] = False,
) -> None:
    """Two Gaussian classes with anomalies on a ring: error and anomaly ranking of all learners.

    Writes errors.csv, anomalies.csv, precision_recall.csv, step_sizes.csv, report.md and PNG figures.
    Finished tasks are kept in trials.jsonl: an interrupted run continues where it stopped when started again with the
    same options.
    """
    from pipeline.experiments.ring import full_plan, quick_plan
    from pipeline.experiments.run import run_ring

    default = Path("reproduction") / ("ring-quick" if quick else "ring")
    plan = quick_plan(trials or 5, seed) if quick else full_plan(trials or 50, seed)
    with errors_for_people():
        if out is not None and (str(out) == "." or out.is_file()):
            raise UsageError(f"--out={str(out)!r} must be a directory of its own; for example reproduction/ring")
        with chosen_engine(engine, jobs, scheduler, tls_ca, tls_cert, tls_key) as workers:
            run_ring(plan, out or default, engine=workers, restart=restart)


@reproduce.command("footsteps")
@flowing
def reproduce_footsteps(
    splits: Annotated[
        int | None,
        typer.Option(parser=at_least(2, 6), metavar="N", help="Random splits of the subjects (6, or 2 with --quick)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="50 subjects and five training sets, in two or three minutes.")
    ] = False,
    recordings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The grid on sound files in DIR, with labels.csv and perhaps sources.csv, not the tables.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where tables and figures go (reproduction/footsteps, or footsteps-quick).")
    ] = None,
    seed: Seed = 1,
    jobs: Jobs = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard trials of an earlier run in the same place.")
    ] = False,
) -> None:
    """A human passes the array, alone or with an animal, and sensors fail: nine classifiers on the same sound.

    Measures the two published tables, with the fourth sensor failing, and a grid of corrupted training sets: loud,
    dead and stale sensors, wrong labels, one class polluted. Writes classification.csv, anomalies.csv, grid.csv,
    report.md and PNG figures; the full run takes the better part of an hour on two cores. Finished tasks are kept in
    trials.jsonl, features in the folder features: an interrupted run continues where it stopped when started again
    with the same options. sources.csv (recording,source) names recordings that belong together: they never lie on both
    sides of a split.
    """
    from pipeline.experiments.footsteps import full_plan, quick_plan

    with errors_for_people():
        from pipeline.experiments.footsteps_run import run_footsteps

        own = str(recordings.resolve()) if recordings else ""
        plan = quick_plan(splits or 2, seed, own) if quick else full_plan(splits or 6, seed, own)
        name = "recordings" if recordings else "footsteps"
        if out is not None and (str(out) == "." or out.is_file()):
            raise UsageError(f"--out={str(out)!r} must be a directory of its own; for example reproduction/footsteps")
        place = out or Path("reproduction") / (f"{name}-quick" if quick else name)
        with chosen_engine(engine, jobs, scheduler, tls_ca, tls_cert, tls_key) as workers:
            run_footsteps(plan, place, engine=workers, restart=restart)
