"""Commands for the daemon: run, web, token, check, notify, status, label, clip, models, bundle."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.main import (
    Config,
    State,
    app,
    at_least,
    chosen_settings,
    errors_for_people,
    flowing,
    state_directory,
)
from pipeline.core.errors import UsageError

if TYPE_CHECKING:
    from pipeline.daemon.preflight import Finding

Who = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who says so; else who is logged in.", show_default=False)
]
Why = Annotated[str, typer.Option(metavar="TEXT", help="The reason, for whoever reads it later.")]


@app.command()
@flowing
def run(
    config: Config = None,
    state: State = None,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="S", help="Stop after so many seconds; else never.")
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Every event as a line of JSON on standard output, once it is stored.")
    ] = False,
) -> None:
    """Listen, decide, and learn, for as long as there is sound: the daemon.

    Without settings it hears a simulated array of four sensors that fail now and then, and trains a first model while
    it already tells how the sensors are. SIGTERM or Ctrl-C ends it cleanly, SIGHUP reads the settings again. Killed at
    any moment, it goes on at the next start. Exit code 0: it was stopped or the sound ended; 1: it could not start or
    go on; 2: the settings cannot be used, and trying again would not help.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.core.event_json import line
        from pipeline.daemon.daemon import Daemon
        from pipeline.runtime.logs import log, start_logging

        settings = chosen_settings(config, state)
        if seconds is not None and not seconds > 0:
            raise UsageError(f"--for={seconds:g} must be above 0; for example 60")
        start_logging(settings.log.level, settings.log.format)
        if settings.path is None and stat.S_ISFIFO(os.fstat(0).st_mode):
            log.warning("standard input is a pipe, but the simulated array is heard", cure='[source] kind = "pcm"')

        def write(event: dict[str, object]) -> None:
            try:
                sys.stdout.write(line(event))
                sys.stdout.flush()
            except BrokenPipeError as error:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise UsageError("whoever read the events is gone; run it without --events, or let him stay") from error

        Daemon(settings, show=[write if events else _told_to_people()], seconds=seconds).run()


def _told_to_people() -> Callable[[dict[str, object]], None]:
    from pipeline.daemon.console import ConsoleView, plain_console

    return ConsoleView(plain_console()).show


@app.command()
@flowing
def web(
    config: Config = None,
    state: State = None,
    show: Annotated[bool, typer.Option("--open", help="Also show it in a browser.")] = False,
) -> None:
    """Serve the dashboard where no daemon runs, to look at what was; until Ctrl-C.

    Labels may be given and models promoted: the next gemmed run follows. A daemon that runs serves the dashboard by
    itself; then its address is told.
    """
    with errors_for_people():
        from pipeline.runtime.endpoint import is_gemmed
        from pipeline.runtime.logs import start_logging
        from pipeline.runtime.packages import without_web
        from pipeline.runtime.state_dir import StateDirectory

        settings = chosen_settings(config, state)
        if missing := without_web():
            raise UsageError(missing)
        address = settings.web.url
        served = StateDirectory(settings.storage.directory).is_locked() and is_gemmed(settings.web)
        if show:
            typer.launch(address)
        if served:
            typer.echo(f"a daemon runs and serves it: {address}")
            return
        from pipeline.web.standalone import serve_alone

        start_logging(settings.log.level, settings.log.format)
        serve_alone(settings)


@app.command()
@flowing
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Whose it is; labels bear it.")],
    role: Annotated[str, typer.Option(metavar="ROLE", help="viewer: may look; operator: may also change.")] = "viewer",
) -> None:
    """Make a token for the dashboard: shown once, and then known only by its hash, which goes into the settings."""
    with errors_for_people():
        from pipeline.config.messages import as_toml_value
        from pipeline.web.tokens import hash_of, new_token

        if role not in ("viewer", "operator"):
            raise UsageError(f"--role={role!r} must be viewer or operator; for example viewer")
        if not name.strip() or not name.isprintable():
            raise UsageError(f"NAME={name!r} must be printable text; for example ada")
        made = new_token()
        line = as_toml_value({"name": name.strip(), "role": role, "hash": hash_of(made)})
        typer.echo(f"token (keep it, it is not shown again): {made}")
        typer.echo(f"for the settings: [web] tokens = [{line}]")


@app.command()
@flowing
def check(config: Config = None, state: State = None) -> None:
    """Try what the daemon needs, for real: the disk, the journal, the model, the source, the label file, the dashboard
    and the outputs.

    Exit code 0: all is well; 1: something is not, and it is said what.
    """
    with errors_for_people():
        from pipeline.daemon.preflight import check as findings

        settings = chosen_settings(config, state)
        typer.echo(f"settings   fine  {settings.path or 'the defaults'}")
        fine = _printed(findings(settings))
    raise typer.Exit(0 if fine else 1)


@app.command()
@flowing
def notify(
    config: Config = None,
    state: State = None,
    test: Annotated[bool, typer.Option("--test", help="Send a test notification to every output.")] = False,
) -> None:
    """Send a test notification by MQTT, webhook, e-mail, push and chat, as far as they are configured.

    It is sent at once and does not wait in the queue of a running daemon. Exit code 0: every output took it; 1: at
    least one did not, with the reason.
    """
    with errors_for_people():
        from pipeline.cli.commands.notify import send_tests

        settings = chosen_settings(config, state)
        if not test:
            raise UsageError("notify sends nothing without --test, which sends to every output; add --test")
        fine = _printed(send_tests(settings))
    raise typer.Exit(0 if fine else 1)


def _printed(findings: Iterable[Finding]) -> bool:
    """Show findings as they come; return whether all are fine."""
    from pipeline.daemon.console import plain_console

    console, fine = plain_console(), True
    for finding in findings:
        fine &= finding.fine
        console.print(
            f"{finding.what:10} {'fine' if finding.fine else 'FAILS'}  {finding.told}",
            style=None if finding.fine else "red",
            soft_wrap=True,
            highlight=False,
        )
    return fine


@app.command()
@flowing
def status(
    config: Config = None,
    state: State = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show whether the daemon works, whether somebody is there, the health of each sensor, and recent problems.

    Exit code 0: ready; 1: the status cannot be read; 2: wrong usage; 3: it runs, but has processed nothing for 30 s;
    4: it does not run; 5: no sound for 30 s (60 s after the start; not for folders), or no usable sensor; 6: the
    journal cannot be written, or no model tells classes apart. The same reasons make /readyz answer 503.
    """
    with errors_for_people():
        from pipeline.daemon.console import plain_console
        from pipeline.reports.status import show_status
        from pipeline.reports.status import status as found_status

        found = found_status(state_directory(config, state))
        if as_json:
            typer.echo(json.dumps(found))
        else:
            show_status(found, plain_console())
    raise typer.Exit(found["code"])


@app.command()
@flowing
def label(
    name: Annotated[
        str | None,
        typer.Argument(metavar="LABEL", show_default=False, help="What was heard, or nobody."),
    ] = None,
    passage_id: Annotated[
        str | None, typer.Argument(metavar="ID", show_default=False, help="The same as --passage ID.")
    ] = None,
    passage: Annotated[
        str | None, typer.Option(metavar="ID", help="The whole span of this passage; gemmed passages lists them.")
    ] = None,
    event: Annotated[
        int | None, typer.Option(parser=at_least(1, 17), metavar="ID", help="In the segment of this decision.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on, 2026-05-01T04:30:00Z, or -90s: so long ago.")
    ] = None,
    lasting: Annotated[float, typer.Option("--for", metavar="S", help="With --at: so many seconds.")] = 10.0,
    recording: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --from and --to: in this recording; else the last one.")
    ] = None,
    begin: Annotated[float | None, typer.Option("--from", metavar="S", help="Seconds into the recording.")] = None,
    end: Annotated[float | None, typer.Option("--to", metavar="S", help="Seconds into the recording.")] = None,
    take_back: Annotated[
        int | None, typer.Option("--take-back", parser=at_least(1, 3), metavar="N", help="Label N was wrong.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the labels given so far.")] = False,
    new: Annotated[bool, typer.Option("--new", help="LABEL is a word that was never used before.")] = False,
    who: Who = None,
    why: Why = "",
    config: Config = None,
    state: State = None,
) -> None:
    """Say what was heard, so that the next training knows; or correct what was said.

    The latest word about a moment counts, and all of them are kept. It works whether the daemon runs or not.
    """
    with errors_for_people():
        from pipeline.cli.commands import label as label_command

        if passage_id is not None and passage is not None:
            raise UsageError(f"ID={passage_id!r} and --passage={passage!r} name two passages; label one at a time")
        place = label_command.LabelPlace(event, at, lasting, recording, begin, end, passage or passage_id)
        label_command.run_label(
            state_directory(config, state), name, place, take_back=take_back, show=show, new=new, who=who, why=why
        )


@app.command()
@flowing
def clip(
    event: Annotated[
        int, typer.Argument(parser=at_least(1, 17), metavar="ID", show_default=False, help="Of a decision or a fault.")
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the sound goes (event-ID.flac).")] = None,
    before: Annotated[float, typer.Option(metavar="S", help="Seconds before it.")] = 2.0,
    after: Annotated[float, typer.Option(metavar="S", help="Seconds after it.")] = 2.0,
    config: Config = None,
    state: State = None,
) -> None:
    """The sound of an event as a file with all sensors, to be listened to."""
    with errors_for_people(continues=False):
        from pipeline.storage.clips import write_clip

        if not (before >= 0 and after >= 0):
            raise UsageError(f"--before={before} and --after={after} must be 0 or more; for example 2")
        place = out or Path(f"event-{event}.flac")
        seconds, of = write_clip(state_directory(config, state), event, place, before=before, after=after)
        typer.echo(f"written: {place}, {seconds:.1f} s, {of}")


@app.command()
@flowing
def bundle(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The zip file to write.")] = Path("gemmed-support.zip"),
    config: Config = None,
    state: State = None,
) -> None:
    """Pack what somebody needs who helps you: settings, versions, status, the last events.

    Without sound, without names of people and machines, without passwords; manifest.json in it says what was replaced.
    """
    with errors_for_people(continues=False):
        from pipeline.cli.commands.bundle import run_bundle

        if out.is_dir():
            raise UsageError(f"--out={str(out)!r} is a directory; give a file, for example gemmed-support.zip")
        run_bundle(chosen_settings(config, state), out)
        typer.echo(f"written: {out}")


models = typer.Typer(help="Which models there are, and which one decides.", no_args_is_help=True)
app.add_typer(models, name="models")
ModelName = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Its name, or how that begins.")]


@models.command("list")
@flowing
def models_list(config: Config = None, state: State = None) -> None:
    """All models, the newest first: where each comes from, what it is now, and what the gate found."""
    with errors_for_people():
        from pipeline.cli.commands.models import list_models
        from pipeline.reports.tables import wide_console

        list_models(state_directory(config, state).path, wide_console())


@models.command("show")
@flowing
def models_show(name: ModelName, config: Config = None, state: State = None) -> None:
    """Everything about a model: what it was learned from, what it refused to learn from, and why it is what it is."""
    with errors_for_people():
        from pipeline.cli.commands.models import show_model
        from pipeline.reports.tables import wide_console

        show_model(state_directory(config, state).path, name, wide_console())


@models.command("promote")
@flowing
def models_promote(
    name: ModelName, who: Who = None, why: Why = "asked for", config: Config = None, state: State = None
) -> None:
    """Let a model decide; a daemon that runs takes it up between two segments."""
    with errors_for_people():
        from pipeline.cli.commands.models import promote_model
        from pipeline.reports.tables import wide_console
        from pipeline.storage.labels import somebody

        promote_model(state_directory(config, state).path, name, wide_console(), who=who or somebody(), why=why)


@models.command("rollback")
@flowing
def models_rollback(who: Who = None, why: Why = "asked for", config: Config = None, state: State = None) -> None:
    """Let the model decide again that decided before the present one."""
    with errors_for_people():
        from pipeline.cli.commands.models import roll_back
        from pipeline.reports.tables import wide_console
        from pipeline.storage.labels import somebody

        roll_back(state_directory(config, state).path, wide_console(), who=who or somebody(), why=why)


@models.command("diff")
@flowing
def models_diff(
    first: Annotated[str, typer.Argument(metavar="A", show_default=False, help="A model.")],
    second: Annotated[str, typer.Argument(metavar="B", show_default=False, help="Another one.")],
    config: Config = None,
    state: State = None,
) -> None:
    """In what two models differ: what they learned from, how dirty it was, and how well they did."""
    with errors_for_people():
        from pipeline.cli.commands.models import diff_models
        from pipeline.reports.tables import wide_console

        diff_models(state_directory(config, state).path, first, second, wide_console())
