"""The command `gemmed passages`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.main import Config, Pattern, State, app, errors_for_people, flowing, state_directory
from pipeline.core.errors import UsageError

_FILES = (".jsonl", ".toml")
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From this time on: 2026-05-01T04:30:00Z, or -90min: 90 minutes ago."),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="LABEL", help="Only this label, or 'no label'; may be repeated."),
]
LeastProbability = Annotated[
    float | None, typer.Option(metavar="P", help="Only labels with at least this probability, 0 to 1.")
]
CsvFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write CSV; - for standard output.")]


@app.command()
@flowing
def passages(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHERE ID",
            show_default=False,
            help="WHERE: a state directory, settings (gemmed.toml) or decisions of gemmed replay (.jsonl); otherwise "
            "--config and --state. ID: only these passages, by id or the end of it.",
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    labels: Labels = None,
    least_probability: LeastProbability = None,
    recording: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this recording, by name or the end of it.")
    ] = None,
    csv: CsvFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    audacity: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an Audacity label track of one recording; - for standard output."),
    ] = None,
    clips: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the sound of each passage to DIR/ID.flac, all sensors.")
    ] = None,
    recordings: Annotated[
        list[Path] | None,
        typer.Option("--recordings", metavar="PATH", help="With --clips and a .jsonl: the sound; may be repeated."),
    ] = None,
    pattern: Pattern = None,
    config: Config = None,
    state: State = None,
) -> None:
    """List passages: when somebody went by, who, with which probability, cadence and sensors.

    A passage that a recording border cut in two is one passage. Exit code 0: passages were found; 1: none match;
    2: wrong usage.
    """
    with errors_for_people(continues=False, unusable=2):
        from pipeline.cli.commands.passages import Filter, Outputs, run_passages, source_at
        from pipeline.storage.labels import parsed_time

        where, ids = _split(arguments or [])
        wanted = Filter(
            since=parsed_time(since) if since else None,
            until=parsed_time(until) if until else None,
            labels=labels or [],
            least_probability=least_probability,
            recording=recording,
            ids=ids,
        )
        if where is not None and (config or state):
            raise UsageError(f"WHERE={str(where)!r} and --config or --state name two places; give one")
        outputs = Outputs(csv, audacity, as_json, clips)
        place = where or state_directory(config, state).path
        code = run_passages(source_at(place, recordings=recordings or [], pattern=pattern), wanted, outputs)
    raise typer.Exit(code)


def _split(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """Tell WHERE, which is a path, from the ids behind it."""
    if arguments and (Path(arguments[0]).suffix in _FILES or "/" in arguments[0] or Path(arguments[0]).exists()):
        return Path(arguments[0]), arguments[1:]
    return None, arguments
