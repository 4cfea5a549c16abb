"""Where an array stands: publish."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.main import Config, Pattern, Resample, State, app, chosen_settings, errors_for_people, flowing
from pipeline.core.errors import UsageError

if TYPE_CHECKING:
    from pipeline.config.schema import Settings
    from pipeline.fleet.publisher import Progress


@app.command()
@flowing
def publish(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RECORDINGS", help="Sound files, or a directory; without them the source of the settings.",
            show_default=False,
        ),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="As which array; else as the settings say.", show_default=False),
    ] = None,
    config: Config = None,
    state: State = None,
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="nats://127.0.0.1:4222 or tls://host:4222; else as the settings say.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="S", help="Stop after so many seconds; else never.")
    ] = None,
    pattern: Pattern = None,
    resample: Resample = False,
    speed: Annotated[
        float | None,
        typer.Option(metavar="X", help="Play files at so many times real time; else as fast as possible."),
    ] = None,
) -> None:  # fmt: skip
    """Send what an array hears to a broker (NATS JetStream), from which other machines decide.

    Everything is on disk before it is sent. While the link is down it waits there, within publish.budget, and follows
    in order; what had to be dropped is told as a gap. Killed at any moment, the same command goes on: files exactly
    where they were, each once; a live source with a new recording, after a gap as long as nobody heard it.

    SIGTERM, Ctrl-C or the end of --for ends it; what waits then is sent by the next start. Exit code 0: it was stopped
    or all is sent; 1: it could not start or go on; 2: the settings cannot be used. Needs the extra fleet.
    """
    with errors_for_people(unusable_settings=2):
        from pipeline.fleet.publisher import Publisher
        from pipeline.runtime.logs import start_logging
        from pipeline.transport.nats import require_client

        for name, number in (("--for", seconds), ("--speed", speed)):
            if number is not None and not number > 0:
                raise UsageError(f"{name}={number:g} must be above 0; for example 60")
        settings = _with_broker(chosen_settings(config, state), broker)
        name = _array(settings, array)
        if not recordings and settings.path is None:
            raise UsageError("there is nothing to publish: give recordings, or a file of settings with the source "
                             "by --config")  # fmt: skip
        require_client()
        start_logging(settings.log.level, settings.log.format)
        what = f"{settings.source.kind} source" if not recordings else "files"
        typer.echo(f"publishing {what} as array {name} to {settings.broker.address}")
        publisher = Publisher(settings, name, seconds=seconds, show=_show)
        if recordings:
            from pipeline.sources.files import find_recordings

            publisher.recordings(find_recordings(recordings, pattern=pattern), resample=resample, speed=speed)
        else:
            publisher.live()


def _show(progress: Progress) -> None:
    where = " in the spool for the next start" if progress.is_last and progress.waiting else ""
    typer.echo(f"{progress.seconds:.1f} s of sound taken, {progress.waiting} messages wait{where}")


def _array(settings: Settings, given: str | None) -> str:
    name = given or settings.publish.array
    if name is None:
        raise UsageError('no array is named; give --array NAME, or write [publish] array = "NAME"')
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
        raise UsageError(f"--array={name!r} must be letters, digits, - and _; for example north")
    return name


def _with_broker(settings: Settings, address: str | None) -> Settings:
    """With another address, checked as the one in the file would be."""
    if address is None:
        return settings
    from pipeline.config.schema import effective, settings_of

    written = effective(settings)
    written["broker"]["address"] = address
    return settings_of(written, settings.path, given_by="--broker")
