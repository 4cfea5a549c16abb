"""Commands for many arrays, from `fleet init` to `fleet train`."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.daemon import Who, Why
from pipeline.cli.main import (
    Classes,
    Components,
    EngineName,
    FeaturesName,
    Folds,
    Jobs,
    LowestHz,
    MostSegments,
    Overlap,
    Scheduler,
    Seed,
    SegmentSeconds,
    TlsCa,
    TlsCert,
    TlsKey,
    WindowSeconds,
    app,
    at_least,
    chosen_engine,
    class_names,
    errors_for_people,
    flowing,
    require_fitting,
)
from pipeline.cli.passages import CsvFile, Labels, LeastProbability, Since, Until
from pipeline.core.errors import UsageError

if TYPE_CHECKING:
    from pipeline.fleet.config import Fleet
    from pipeline.fleet.worker_pool import WorkerPool

fleet = typer.Typer(help="Many arrays: decide for all of them, wherever there is a worker.", no_args_is_help=True)
app.add_typer(fleet, name="fleet")
FleetFile = Annotated[
    Path, typer.Argument(metavar="FLEET", show_default=False, help="The file of the fleet, for example fleet.toml.")
]


@fleet.command("init")
@flowing
def fleet_init(path: FleetFile) -> None:
    """Make the streams and buckets of a fleet with its broker; what is there stays as it is.

    gemmed fleet run does the same at its start. Publishers may send from then on.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.fleet.config import read_fleet
        from pipeline.transport.nats import Broker

        chosen = read_fleet(path)
        with Broker(chosen.broker.access(), name="gemmed fleet init") as broker:
            chosen.places.make(broker)
        typer.echo(f"ready: {chosen.broker.address}, streams and buckets {chosen.broker.name}-*")


@fleet.command("run")
@flowing
def fleet_run(
    path: FleetFile,
    engine: EngineName = "local",
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="S", help="Stop after so many seconds; else never.")
    ] = None,
) -> None:
    """Decide for all arrays of a fleet: one task per array, on this machine or on the workers of a Dask cluster.

    Whatever is killed, a worker, the scheduler, the broker or this command, each array goes on from its last checkpoint
    and decides what it would have decided, once. Arrays are spread anew when workers come and go. SIGHUP reads the file
    again, SIGTERM or Ctrl-C ends it, also while it waits whether another dispatcher of the fleet lives. Exit code 0: it
    was stopped; 1: it could not start, or the broker did not come within --for; 2: the file cannot be used.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.cli.commands.fleet_run import start
        from pipeline.fleet.config import read_fleet
        from pipeline.runtime.logs import start_logging

        require_fitting(engine, jobs, scheduler, tls_ca, tls_cert, tls_key)
        if seconds is not None and not seconds > 0:
            raise UsageError(f"--for={seconds:g} must be above 0; for example 60")
        log = read_fleet(path).log
        start_logging(log.level, log.format)
        if engine == "dask":
            from pipeline.runtime.dask_pool import checked_scheduler, checked_tls

            tls = checked_tls(tls_ca, tls_cert, tls_key)
            address = checked_scheduler(scheduler, tls)

        def pool(chosen: Fleet) -> WorkerPool:
            if engine == "local":
                from pipeline.fleet.worker_pool import LocalWorkerPool

                return LocalWorkerPool(jobs or os.cpu_count() or 1, log_level=chosen.log.level)
            from pipeline.fleet.dask_workers import DaskWorkerPool

            return DaskWorkerPool(address, tls)

        start(path, pool, seconds=seconds)


@fleet.command("status")
@flowing
def fleet_status(
    path: FleetFile,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every two seconds, until Ctrl-C.")] = False,
) -> None:
    """How all arrays are: the worst health first, then the longest lag and the greatest loss.

    Exit code 0: all is well; 1: the broker cannot be reached; 2: the file cannot be used; 3: an array failed, has
    nobody, or has bad or degraded sensors; 4: nobody dispatches.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.fleet import status
        from pipeline.fleet.config import read_fleet
        from pipeline.reports.tables import wide_console
        from pipeline.transport.nats import Broker

        chosen = read_fleet(path)
        with Broker(chosen.broker.access(), name="gemmed fleet status") as broker:
            if watch:
                status.watch(chosen, broker, wide_console())
            found = status.fleet_status(chosen, broker)
        if as_json:
            typer.echo(json.dumps(found))
        else:
            status.show_status(found, wide_console())
    raise typer.Exit(status.exit_code(found))


@fleet.command("events")
@flowing
def fleet_events(
    path: FleetFile,
    arrays: Annotated[
        list[str] | None, typer.Argument(metavar="ARRAY...", show_default=False, help="Of these; else of all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more, until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="What was told since then, 2026-05-01T04:30:00Z, or -10min: so long ago."),
    ] = None,
) -> None:
    """What was decided, as lines of JSON: every event once, with its array and its number there, in order per array."""
    with errors_for_people(unusable_settings=2):
        from pipeline.fleet.config import read_fleet
        from pipeline.fleet.event_log import events
        from pipeline.storage.labels import parsed_time
        from pipeline.transport.nats import Broker

        chosen = read_fleet(path)
        names = [chosen.array(name).name for name in arrays or ()]
        begin = parsed_time(since) if since else None
        # Whoever follows ends it by Ctrl-C, as the help says.
        with (
            suppress(KeyboardInterrupt) if follow else nullcontext(),
            Broker(chosen.broker.access(), name="gemmed fleet events") as broker,
        ):
            for text in events(broker, chosen.places, names, since=begin, follow=follow):
                sys.stdout.write(text)
        sys.stdout.flush()


Arrays = Annotated[
    list[str] | None,
    typer.Option("--array", metavar="NAME", show_default=False, help="For this array; may be given several times."),
]


@fleet.command("passages")
@flowing
def fleet_passages(
    path: FleetFile,
    arrays: Arrays = None,
    since: Since = None,
    until: Until = None,
    labels: Labels = None,
    least_probability: LeastProbability = None,
    csv: CsvFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list; with --follow an object per line.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Print each passage once it is over, until Ctrl-C.")] = False,
) -> None:
    """List the passages of all arrays of a fleet, by time, with array and site.

    A passage that a recording border cut in two is one passage. Exit code 0: passages were found, or --follow was
    interrupted; 1: none match, or the broker cannot be reached; 2: wrong usage.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.cli.commands.fleet_passages import PassageListing
        from pipeline.cli.commands.passages import Filter, Outputs
        from pipeline.fleet.config import read_fleet
        from pipeline.storage.labels import parsed_time
        from pipeline.transport.nats import Broker

        if follow and until:
            raise UsageError(f"--until={until!r} and --follow contradict each other; leave one out")
        wanted = Filter(
            since=parsed_time(since) if since else None,
            until=parsed_time(until) if until else None,
            labels=labels or [],
            least_probability=least_probability,
        )
        outputs, chosen = Outputs(csv=csv, as_json=as_json), read_fleet(path)
        names = [chosen.array(name).name for name in arrays or ()]
        with Broker(chosen.broker.access(), name="gemmed fleet passages") as broker:
            listing = PassageListing(chosen, broker, names, wanted, outputs)
            if not follow:
                raise typer.Exit(listing.run())
            # Ctrl-C ends it, as the help says.
            with suppress(KeyboardInterrupt):
                listing.follow()


@fleet.command("notify")
@flowing
def fleet_notify(
    path: FleetFile,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Position and queue; notify beside FLEET.", show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="S", help="Stop after S seconds (default: run until stopped).")
    ] = None,
) -> None:
    """Notify people of the passages of all arrays: by webhook, MQTT, e-mail, push and chat, by the same rules.

    Outputs and rules are the tables [notifications], [webhook] and [mqtt] of FLEET, as in gemmed.toml. Passages that
    ended before the first start are not notified. Killed at any moment, it goes on where it was. Run one per fleet.
    Exit code 0: it was stopped; 1: it could not start; 2: the file cannot be used.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.cli.commands.fleet_notify import FleetNotify
        from pipeline.fleet.config import read_fleet
        from pipeline.runtime.logs import start_logging
        from pipeline.runtime.state_dir import StateDirectory

        if seconds is not None and not seconds > 0:
            raise UsageError(f"--for={seconds:g} must be above 0; for example 60")
        chosen = read_fleet(path)
        start_logging(chosen.log.level, chosen.log.format)
        FleetNotify(chosen, StateDirectory(state or path.absolute().parent / "notify"), seconds=seconds).run()


@fleet.command("rollout")
@flowing
def fleet_rollout(
    path: FleetFile,
    model: Annotated[Path, typer.Argument(metavar="MODEL", show_default=False, help="Directory of the model.")],
    share: Annotated[float, typer.Option(metavar="SHARE", help="Of the arrays; 0.1 is a tenth of them.")] = 1.0,
    arrays: Arrays = None,
    trial: Annotated[float, typer.Option(metavar="S", help="Seconds of sound of the trial; 0 for none.")] = 600.0,
    again: Annotated[bool, typer.Option("--again", help="Also where the model was tried and went back.")] = False,
    who: Who = None,
    why: Why = "asked for",
) -> None:
    """Let a model decide for a share of the arrays, or for all.

    It is delivered by the hash of its content. On each array the model before it decides beside it for the time of the
    trial: where the new one refuses more of a healthy sensor, or decides nothing more often, this array goes back by
    itself. The same command with a larger share goes on to more arrays.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.fleet.config import read_fleet
        from pipeline.fleet.rollout import Rollout, refused_before, roll_out
        from pipeline.storage.labels import somebody
        from pipeline.transport.nats import Broker

        chosen = read_fleet(path)
        rollout = Rollout(share=share, arrays=tuple(arrays or ()), trial_seconds=trial, again=again,
                          who=who or somebody(), why=why)  # fmt: skip
        with Broker(chosen.broker.access(), name="gemmed fleet rollout") as broker:
            chosen.places.make(broker)
            name, found = roll_out(chosen, broker, model, rollout)
            ignoring = [] if again else refused_before(chosen, broker, name, found)
        typer.echo(f"model {name} is wanted for {len(found)} of {len(chosen.arrays)} arrays: {', '.join(found)}")
        if ignoring:
            typer.echo(f"it was refused before, and is ignored, by {', '.join(ignoring)}; --again tries it there, too")


@fleet.command("rollback")
@flowing
def fleet_rollback(path: FleetFile, arrays: Arrays = None, who: Who = None, why: Why = "asked for") -> None:
    """Let the model before the present one decide again, for some arrays or for all that had another.

    Where a rollout was not taken up yet, it is called off, and the present model stays.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.fleet.config import read_fleet
        from pipeline.fleet.rollout import roll_back
        from pipeline.storage.labels import somebody
        from pipeline.transport.nats import Broker

        chosen = read_fleet(path)
        with Broker(chosen.broker.access(), name="gemmed fleet rollback") as broker:
            for array, told in roll_back(chosen, broker, arrays or (), who=who or somebody(), why=why).items():
                typer.echo(f"{array} {told}")


@fleet.command("models")
@flowing
def fleet_models(
    path: FleetFile, as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False
) -> None:
    """Which model decides for which array, which one is wanted, and what became of it."""
    with errors_for_people(unusable_settings=2):
        from pipeline.fleet.config import read_fleet
        from pipeline.fleet.rollout import rollout_status, show_rollout
        from pipeline.reports.tables import wide_console
        from pipeline.transport.nats import Broker

        chosen = read_fleet(path)
        with Broker(chosen.broker.access(), name="gemmed fleet models") as broker:
            found = rollout_status(chosen, broker)
        if as_json:
            typer.echo(json.dumps(found))
        else:
            show_rollout(found, wide_console())


@fleet.command("forget")
@flowing
def fleet_forget(
    path: FleetFile,
    array: Annotated[str, typer.Argument(metavar="ARRAY", help="As which it was published, also if by mistake.")],
    recording: Annotated[
        str | None, typer.Option(metavar="NAME", show_default=False, help="Only this recording; else all of the array.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove sound from the log: what was published by mistake, under a wrong name, or cannot be decided about.

    An array that waits for a model that hears it goes on behind what was removed. Decisions and labels stay.
    """
    with errors_for_people(continues=False, unusable_settings=2):
        from pipeline.fleet.config import read_fleet
        from pipeline.fleet.purge import forget
        from pipeline.transport.nats import Broker

        chosen = read_fleet(path)
        with Broker(chosen.broker.access(), name="gemmed fleet forget") as broker:
            removed = forget(
                broker,
                chosen.places.sound,
                array,
                recording,
                agreed=lambda what: yes or typer.confirm(f"Remove {what}, for ever?", err=True),
            )
        typer.echo(f"removed: {removed} messages")


ExamplesDirectory = Annotated[
    Path | None,
    typer.Option(
        "--examples", metavar="DIR", help="Labels and their sound; examples beside FLEET.", show_default=False
    ),
]


@fleet.command("label")
@flowing
def fleet_label(
    path: FleetFile,
    array: Annotated[str | None, typer.Argument(metavar="ARRAY", show_default=False, help="Who heard it.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="LABEL", show_default=False, help="What was heard.")] = None,
    event: Annotated[
        int | None, typer.Option(parser=at_least(1, 1), metavar="ID", help="In the segment of this decision.")
    ] = None,
    recording: Annotated[str | None, typer.Option(metavar="NAME", help="In this recording, --from and --to.")] = None,
    begin: Annotated[float | None, typer.Option("--from", metavar="S", help="Seconds into the recording.")] = None,
    end: Annotated[float | None, typer.Option("--to", metavar="S", help="Seconds into the recording.")] = None,
    examples: ExamplesDirectory = None,
    new: Annotated[bool, typer.Option("--new", help="The label is meant so, though it resembles another.")] = False,
    who: Annotated[str | None, typer.Option(metavar="NAME", help="Who says so; else the user.")] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="A remark.")] = "",
    show: Annotated[bool, typer.Option("--list", help="Instead: show all labels.")] = False,
    take_back: Annotated[
        int | None, typer.Option(parser=at_least(1, 1), metavar="N", help="Instead: remove a wrong label.")
    ] = None,
) -> None:
    """Say what an array heard; its sound is cut out of the log at once, for the log forgets.

    The label goes to labels.csv in the directory of the examples, the sound of all sensors with a few seconds on either
    side to a file below it. gemmed fleet train learns from them.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.fleet import labels as labelling
        from pipeline.fleet.config import read_fleet
        from pipeline.reports.tables import wide_console
        from pipeline.storage.labels import LabelSubmission, somebody
        from pipeline.transport.nats import Broker

        chosen = read_fleet(path)
        taught = labelling.Taught(examples or path.absolute().parent / "examples")
        if show:
            wide_console().print(labelling.labels_table(taught.rows()))
            return
        if take_back is not None:
            row = taught.take_back(take_back)
            typer.echo(f"label {row.number}, {row.label}, is taken back; its sound stays in {row.recording}")
            return
        if not array or not name or not name.strip():
            raise UsageError(
                "ARRAY or LABEL is missing; say who heard what, for example: gemmed fleet label fleet.toml north human "
                "--event 17"
            )
        place = labelling.FleetLabelPlace(event, recording, begin, end)
        place.check()
        one = chosen.array(array)
        if not new:
            taught.check_word(name.strip())
        given = LabelSubmission(name.strip(), who or somebody(), why)
        with Broker(chosen.broker.access(), name="gemmed fleet label") as broker:
            row = labelling.give(chosen, one, broker, taught, place, given)
        first, last = row.span_seconds
        typer.echo(f"label {row.number}: {row.label} in {row.cut_from} of {row.array}, {first:.2f} to {last:.2f} s; "
                   f"its sound is {taught.directory / row.recording}")  # fmt: skip


@fleet.command("train")
@flowing
def fleet_train(
    path: FleetFile,
    model: Annotated[Path, typer.Option(metavar="DIR", show_default=False, help="A new directory for the model.")],
    examples: ExamplesDirectory = None,
    leave_sites_out: Annotated[
        bool,
        typer.Option("--leave-sites-out", help="Also fit once without each site: how it does where nobody labelled."),
    ] = False,
    classes: Classes = None,
    segment_seconds: SegmentSeconds = 2.0,
    window_seconds: WindowSeconds = 1.5,
    overlap: Overlap = 0.75,
    lowest_hz: LowestHz = 30.0,
    features: FeaturesName = "views",
    components: Components = 50,
    most_segments: MostSegments = 3000,
    folds: Folds = 5,
    seed: Seed = 0,
    jobs: Jobs = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Learn one model from the labels of all arrays; how it does is told for each site.

    As gemmed train does it. Pieces that were cut from one recording of an array are validated together, by models that
    have heard none of them. All arrays must have the same rate and number of sensors.
    """
    with errors_for_people(continues=False, unusable_settings=2):
        from pipeline.daemon.console import plain_console
        from pipeline.fleet import train as teaching
        from pipeline.fleet.config import read_fleet
        from pipeline.fleet.labels import Taught
        from pipeline.reports.tables import show_trained
        from pipeline.training.offline import TrainingOptions

        read_fleet(path)
        plan = TrainingOptions(
            classes=class_names(classes),
            segment_seconds=segment_seconds,
            window_seconds=window_seconds,
            overlap=overlap,
            lowest_hz=lowest_hz,
            features=features,
            components=components,
            most_segments=most_segments,
            folds=folds,
            seed=seed,
        )
        console, taught = plain_console(), Taught(examples or path.absolute().parent / "examples")
        with chosen_engine(engine, jobs, scheduler, tls_ca, tls_cert, tls_key) as workers:
            trained = teaching.teach(
                taught, model, plan, leave_sites_out=leave_sites_out, engine=workers, console=console
            )
        show_trained(trained, console)
        console.print(teaching.sites_table(trained))
        for warning in teaching.sites_warnings(trained):
            console.print(warning, style="yellow", soft_wrap=True, highlight=False)
        console.print(f"written: {model}, model {trained.name}", soft_wrap=True, highlight=False)
