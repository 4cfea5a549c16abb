"""The command `gemmed` itself, and what its commands have in common."""

from __future__ import annotations

import errno
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from pipeline import THREAD_VARIABLES, __version__
from pipeline.core.errors import GemmedError, SettingsError, UsageError

if TYPE_CHECKING:
    from pipeline.config.schema import Settings
    from pipeline.runtime.process_pool import Engine, LocalEngine
    from pipeline.runtime.state_dir import StateDirectory

app = typer.Typer(
    name="gemmed",
    help="Sensor fusion that learns safely while a sensor is failing.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gemmed {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Sensor fusion that learns safely while a sensor is failing."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # for this process and its children: the same bytes always


def flowing(command: Callable[..., None]) -> Callable[..., None]:
    """Join the lines of each paragraph of the help, so that a terminal of any width breaks them anew."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return command


def at_least(least: int, example: int, most: int | None = None) -> Callable[[str], int]:
    """Parser of a whole number whose error names the value, the rule and a cure."""
    rule = f"at least {least}" + (f" and at most {most}" if most else "")

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most and number > most):
            raise typer.BadParameter(f"{text!r} must be a whole number {rule}; for example {example}")
        return number

    return parse


def _folds(text: str) -> int:
    """One fold would leave nothing to learn from."""
    if text == "1":
        raise typer.BadParameter("'1' must be 0 or at least 2; for example 5")
    return at_least(0, 5)(text)


def class_names(classes: str | None) -> tuple[str, ...] | None:
    """The labels that --classes names."""
    return tuple(part.strip() for part in classes.split(",")) if classes else None


def one_of(*names: str) -> Callable[[str], str]:
    """Parser of one of a few names."""

    def parse(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(f"{text!r} must be one of {', '.join(names)}; for example {names[0]}")
        return text

    return parse


def local_engine(jobs: int | None) -> LocalEngine:
    from pipeline.runtime.process_pool import LocalEngine

    return LocalEngine(jobs or os.cpu_count() or 1)


@contextmanager
def chosen_engine(
    name: str, jobs: int | None, scheduler: str | None, ca: Path | None, cert: Path | None, key: Path | None
) -> Iterator[Engine]:
    """Who does the work; a cluster is left again at the end."""
    require_fitting(name, jobs, scheduler, ca, cert, key)
    if name == "local":
        with local_engine(jobs) as engine:
            yield engine
        return
    from pipeline.runtime.dask_pool import checked_scheduler, checked_tls, joined

    tls = checked_tls(ca, cert, key)
    address = checked_scheduler(scheduler, tls)
    typer.echo(f"dask: looking for {address}", err=True)
    with joined(address, tls) as cluster:
        typer.echo(f"dask: {cluster.describe()}", err=True)
        yield cluster


def require_fitting(
    name: str, jobs: int | None, scheduler: str | None, ca: Path | None, cert: Path | None, key: Path | None
) -> None:
    """Refuse options that belong to the other engine."""
    if name == "local":
        for option, value in (("scheduler", scheduler), ("tls-ca", ca), ("tls-cert", cert), ("tls-key", key)):
            if value is not None:
                raise UsageError(f"--{option}={str(value)!r} belongs to a cluster; add --engine dask, or leave it out")
    elif jobs is not None:
        raise UsageError(
            f"--jobs={jobs} counts processes of this machine, a cluster has its workers; leave --jobs out, or start "
            "more workers"
        )


_USUAL_FILE = Path("gemmed.toml")

Recordings = Annotated[
    list[Path], typer.Argument(metavar="RECORDINGS", help="Sound files, or a directory of them.", show_default=False)
]
Pattern = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="How file names are read: {recording}, {sensor}, {time:%Y%m%d_%H%M%S}; without it a file is a recording.",
    ),
]
ModelDirectory = Annotated[
    Path, typer.Option("--model", metavar="DIR", help="Directory of the model.", show_default=False)
]
Jobs = Annotated[int | None, typer.Option(parser=at_least(1, 2), metavar="N", help="Processes (one per core).")]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", parser=one_of("local", "dask"), metavar="NAME", help="local: this machine; dask: a cluster of many."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Of the Dask cluster: tls://host:8786, or tcp:// on this machine."),
]
TlsCa = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of the cluster's authority, for tls://.")]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of this machine, for tls://.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")]
Seed = Annotated[int, typer.Option(parser=at_least(0, 1), metavar="N", help="Seed of all draws.")]
Classes = Annotated[
    str | None,
    typer.Option(metavar="A,B,...", help="Classes: two or more of the labels (default: all of them)."),
]
SegmentSeconds = Annotated[float, typer.Option(metavar="S", help="Length of a segment.")]
WindowSeconds = Annotated[float, typer.Option(metavar="S", help="Length of its strongest part, which is looked at.")]
Overlap = Annotated[float, typer.Option(metavar="SHARE", help="How far segments overlap, 0 to 1.")]
FeaturesName = Annotated[
    Literal["views", "paper"],
    typer.Option(
        help="views: summary and timing of each segment; paper: all cepstra of its strongest window, as published."
    ),
]
LowestHz = Annotated[float, typer.Option(metavar="HZ", help="Listen from this frequency on; drift and wind are below.")]
Components = Annotated[
    int, typer.Option(parser=at_least(1, 50), metavar="N", help="Principal components of each sensor.")
]
MostSegments = Annotated[
    int, typer.Option(parser=at_least(40, 3000), metavar="N", help="Learn from so many at most, evenly chosen.")
]
Folds = Annotated[int, typer.Option(parser=_folds, metavar="N", help="Folds of the validation, 0 for none.")]
Mask = Annotated[str | None, typer.Option(metavar="N,...", help="Sensors to leave out, counted from 1.")]
Alpha = Annotated[float, typer.Option(metavar="P", help="A sensor whose p-value is at most this is not believed.")]
AlarmsPerDay = Annotated[
    float, typer.Option(metavar="N", help="So many false alarms p-values may give in a day, all sensors together.")
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings; gemmed.toml if that is here, else the defaults.", show_default=False),
]
State = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where the daemon keeps everything; else as the settings say.", show_default=False
    ),
]
Resample = Annotated[bool, typer.Option("--resample", help="Convert files of another sample rate.")]


def chosen_settings(config: Path | None, state: Path | None) -> Settings:
    from pipeline.config.schema import read_settings

    if config is None and _USUAL_FILE.exists():
        config = _USUAL_FILE
    settings = read_settings(config)
    if state is None:
        return settings
    chosen = settings.model_copy(
        update={"storage": settings.storage.model_copy(update={"directory": state.absolute()})}
    )
    chosen._path = settings.path
    return chosen


def state_directory(config: Path | None, state: Path | None) -> StateDirectory:
    from pipeline.runtime.state_dir import StateDirectory

    return StateDirectory(chosen_settings(config, state).storage.directory)


_CURES = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "give a file, not a directory",
    errno.EACCES: "check the permissions",
    errno.EPERM: "check the permissions",
    errno.EROFS: "give a directory that can be written to",
    errno.ENOSPC: "make space; what is finished is kept",
}


class errors_for_people:
    """One line on standard error and exit code 1 for what the user can cure; 130 for Ctrl-C, as for SIGTERM.

    `unusable` is the exit code instead of 1, `unusable_settings` that of settings that cannot be used.
    """

    def __init__(self, *, continues: bool = True, unusable: int = 1, unusable_settings: int | None = None) -> None:
        self._unusable = unusable
        self._unusable_settings = unusable if unusable_settings is None else unusable_settings
        self._after = "the same command continues" if continues else "nothing was stored"

    def __enter__(self) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BrokenPipeError):
            # Whoever reads along has seen enough; nothing more may be written, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from error
        if isinstance(error, OSError):
            place = f"{error.filename}: " if error.filename else ""
            cure = _CURES.get(error.errno or 0, "give a directory that can be written to")
            _complain(f"{place}{error.strerror}; {cure}", self._unusable)
        elif isinstance(error, SettingsError):
            _complain(str(error), self._unusable_settings)
        elif isinstance(error, GemmedError):
            _complain(str(error), self._unusable)
        elif isinstance(error, KeyboardInterrupt):
            typer.echo(f"gemmed: interrupted; {self._after}", err=True)
            raise typer.Exit(130) from error


def _complain(message: str, code: int) -> NoReturn:
    typer.echo(f"gemmed: {message}", err=True)
    raise typer.Exit(code)
