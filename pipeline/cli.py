"""The command `gemmed`. Everything heavy is imported inside the commands, so that help is instant."""

from __future__ import annotations

import errno
import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pipeline import __version__
from pipeline.errors import GemmedError, UsageError

app = typer.Typer(
    name="gemmed",
    help="Sensor fusion that learns safely while a sensor is failing.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(help="Measure a published experiment again.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


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


def _flowing(command: Callable[..., None]) -> Callable[..., None]:
    """Join the lines of each paragraph of the help, so that a terminal of any width breaks them anew."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return command


def _at_least(least: int, example: int, most: int | None = None) -> Callable[[str], int]:
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


def _processes(jobs: int | None) -> int:
    return jobs or os.cpu_count() or 1


def _folds(text: str) -> int:
    """One fold would leave nothing to learn from."""
    if text == "1":
        raise typer.BadParameter("'1' must be 0 or at least 2; for example 5")
    return _at_least(0, 5)(text)


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
Jobs = Annotated[int | None, typer.Option(parser=_at_least(1, 2), metavar="N", help="Processes (one per core).")]
Seed = Annotated[int, typer.Option(parser=_at_least(0, 1), metavar="N", help="Seed of all draws.")]
Mask = Annotated[str | None, typer.Option(metavar="N,...", help="Sensors to leave out, counted from 1.")]
Alpha = Annotated[float, typer.Option(metavar="P", help="A sensor whose p-value is at most this is not believed.")]
AlarmsPerDay = Annotated[
    float, typer.Option(metavar="N", help="So many false alarms p-values may give in a day, all sensors together.")
]
Resample = Annotated[bool, typer.Option("--resample", help="Convert files of another sample rate.")]


@reproduce.command("ring")
@_flowing
def reproduce_ring(
    trials: Annotated[
        int | None,
        typer.Option(parser=_at_least(2, 50), metavar="N", help="Trials per setting (50, or 5 with --quick)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Four settings instead of sixteen, in a minute or two.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where tables and figures go (reproduction/ring, or ring-quick).")
    ] = None,
    seed: Seed = 1,
    jobs: Jobs = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard trials of an earlier run in the same place.")
    ] = False,
) -> None:
    """Two Gaussian classes with anomalies on a ring: error and anomaly ranking of all learners.

    Writes errors.csv, anomalies.csv, precision_recall.csv, step_sizes.csv, report.md and PNG figures.
    Finished tasks are kept in trials.jsonl: an interrupted run continues where it stopped when started again with the
    same options.
    """
    from pipeline.reproduction.ring import full_plan, quick_plan
    from pipeline.reproduction.run import run_ring

    default = Path("reproduction") / ("ring-quick" if quick else "ring")
    plan = quick_plan(trials or 5, seed) if quick else full_plan(trials or 50, seed)
    with _errors_for_people():
        if out is not None and (str(out) == "." or out.is_file()):
            raise UsageError(f"--out={str(out)!r} must be a directory of its own; for example reproduction/ring")
        run_ring(plan, out or default, jobs=_processes(jobs), restart=restart)


@reproduce.command("footsteps")
@_flowing
def reproduce_footsteps(
    splits: Annotated[
        int | None,
        typer.Option(parser=_at_least(2, 6), metavar="N", help="Random splits of the subjects (6, or 2 with --quick)."),
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
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard trials of an earlier run in the same place.")
    ] = False,
) -> None:
    """A human passes the array, alone or with an animal, and sensors fail: nine classifiers on the same sound.

    Measures the two published tables, with the fourth sensor failing, and a grid of corrupted training sets: loud,
    dead and stale sensors, wrong labels, one class polluted. Writes classification.csv, anomalies.csv, grid.csv,
    report.md and PNG figures; the full run takes the better part of an hour on two cores. Finished tasks are kept in
    trials.jsonl, cepstra in features: an interrupted run continues where it stopped when started again with the same
    options. sources.csv (recording,source) names recordings that belong together: they never lie on both sides of a
    split.
    """
    from pipeline.reproduction.footsteps import full_plan, quick_plan

    with _errors_for_people():
        from pipeline.reproduction.footsteps_run import run_footsteps

        own = str(recordings.resolve()) if recordings else ""
        plan = quick_plan(splits or 2, seed, own) if quick else full_plan(splits or 6, seed, own)
        name = "recordings" if recordings else "footsteps"
        if out is not None and (str(out) == "." or out.is_file()):
            raise UsageError(f"--out={str(out)!r} must be a directory of its own; for example reproduction/footsteps")
        place = out or Path("reproduction") / (f"{name}-quick" if quick else name)
        run_footsteps(plan, place, jobs=_processes(jobs), restart=restart)


@app.command()
@_flowing
def simulate(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A directory of its own for recordings and tables.")],
    recordings: Annotated[
        int, typer.Option(parser=_at_least(1, 150), metavar="N", help="How many; 44 % of them with an animal.")
    ] = 150,
    faults: Annotated[
        str, typer.Option(metavar="LIST", help="all, none, or names with commas, for example stale,gain_loss.")
    ] = "all",
    fault_share: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of the time with a fault; one, or one for each sensor: .05,.4")
    ] = "0.1",
    fault_seconds: Annotated[float, typer.Option(metavar="S", help="Mean length of a fault.")] = 10.0,
    seed: Seed = 1,
    seconds: Annotated[float, typer.Option(metavar="S", help="Length of a recording.")] = 14.0,
    sensors: Annotated[int, typer.Option(parser=_at_least(1, 4), metavar="N", help="Number of sensors.")] = 4,
    spacing: Annotated[float, typer.Option(metavar="M", help="Metres between sensors along the track.")] = 5.0,
    rate: Annotated[
        int, typer.Option(parser=_at_least(2000, 16000, 96000), metavar="HZ", help="Samples per second, 2000 to 96000.")
    ] = 16000,
    surface: Annotated[str, typer.Option(metavar="NAME", help="gravel, grass, sand, soil or asphalt.")] = "gravel",
    clips: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Real sounds in DIR/steps, DIR/hooves, DIR/noise, in place of synthetic ones."
        ),
    ] = None,
    file_format: Annotated[str, typer.Option("--format", metavar="NAME", help="wav or flac.")] = "wav",
    jobs: Jobs = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an earlier simulation in the same place.")
    ] = False,
) -> None:
    """Recordings of a simulated array: a human alone or leading an animal, with failing sensors.

    Writes one file per recording with a channel per sensor, labels.csv (who passed), truth.csv (which
    sensor failed when, sensors counted from 1), simulation.json (all settings) and contact_sheet.png (both classes and
    every fault to look at, also those not asked for). Faults: dead, flat, stuck, loud_bursts, clipping, hum, dc_drift,
    gain_loss, dropouts, spikes, polarity, crosstalk, swapped, stale, clock_drift, wind_roar. An interrupted run
    continues when started again with the same options.
    """
    from rich.console import Console

    with _errors_for_people():
        from pipeline.simulation.contact_sheet import write_contact_sheet
        from pipeline.simulation.dataset import Dataset, write_dataset
        from pipeline.simulation.options import site_of

        site = site_of(
            seed=seed,
            rate_hz=rate,
            seconds=seconds,
            n_sensors=sensors,
            spacing_m=spacing,
            surface=surface,
            faults=faults,
            fault_share=fault_share,
            fault_seconds=fault_seconds,
            clips=clips,
        )
        console = Console()
        if out.is_file():
            raise UsageError(f"{out} is a file; give a directory of its own")
        write_dataset(
            Dataset(site, recordings, file_format),
            out,
            jobs=_processes(jobs),
            restart=restart,
            console=console,
        )
        if site.clips:
            console.print(f"real sounds: {site.clips}", soft_wrap=True, highlight=False)
        picture, told = out / "contact_sheet.png", ""
        try:
            told = f"{picture} to look at" if picture.exists() else f"{write_contact_sheet(site, picture)} to look at"
        except UsageError as error:
            told = f"no contact sheet: {error}"
        console.print(f"written: {out}; {told}", soft_wrap=True, highlight=False)


@app.command()
@_flowing
def train(
    recordings: Recordings,
    labels: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Table with the columns recording, start_seconds, end_seconds, label; or Audacity label tracks.",
        ),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", show_default=False, help="A new directory for the model.")],
    pattern: Pattern = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B", help="The two labels to tell apart, if there are more.")
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option(
            parser=_at_least(2000, 16000, 96000), metavar="HZ", help="Resample to so many samples per second."
        ),
    ] = None,
    segment_seconds: Annotated[float, typer.Option(metavar="S", help="Length of a segment.")] = 2.0,
    window_seconds: Annotated[
        float, typer.Option(metavar="S", help="Length of its strongest part, which is looked at.")
    ] = 1.5,
    overlap: Annotated[float, typer.Option(metavar="SHARE", help="How far segments overlap, 0 to 1.")] = 0.75,
    lowest_hz: Annotated[
        float, typer.Option(metavar="HZ", help="Listen from this frequency on; drift and wind are below.")
    ] = 30.0,
    components: Annotated[
        int, typer.Option(parser=_at_least(1, 50), metavar="N", help="Principal components of each sensor.")
    ] = 50,
    most_segments: Annotated[
        int,
        typer.Option(parser=_at_least(40, 3000), metavar="N", help="Learn from so many at most, evenly chosen."),
    ] = 3000,
    folds: Annotated[int, typer.Option(parser=_folds, metavar="N", help="Folds of the validation, 0 for none.")] = 5,
    seed: Seed = 0,
    jobs: Jobs = None,
) -> None:
    """Learn a model from labelled recordings, some of which may come from failing sensors or have wrong labels.

    Segments that a sensor did not deliver, and labels that all sensors contradict, are recognised and refused. The
    model is validated on recordings that were left out, and stored in a new directory that is never changed.
    """
    from rich.console import Console

    with _errors_for_people(continues=False):
        from pipeline.service.assembly import Choices
        from pipeline.service.tables import training_table, warnings_of
        from pipeline.service.train import Plan
        from pipeline.service.train import train as train_model
        from pipeline.sources.files import find_recordings
        from pipeline.training.labels import read_labels

        plan = Plan(
            classes=tuple(part.strip() for part in classes.split(",")) if classes else None,
            segment_seconds=segment_seconds,
            window_seconds=window_seconds,
            overlap=overlap,
            lowest_hz=lowest_hz,
            components=components,
            most_segments=most_segments,
            folds=folds,
            seed=seed,
        )
        console = Console()
        listing = find_recordings(recordings, pattern=pattern)
        trained = train_model(
            listing, read_labels(labels), model, plan, rate_hz=rate, jobs=_processes(jobs), console=console
        )
        console.print(training_table(trained))
        for name in trained.notes["doubted_recordings"]:
            console.print(f"not learned from {name}: what is heard there contradicts its label", highlight=False)
        for warning in warnings_of(trained, Choices().alpha):
            console.print(warning, style="yellow", soft_wrap=True, highlight=False)
        console.print(f"written: {model}, model {trained.name}", soft_wrap=True, highlight=False)


@app.command()
@_flowing
def replay(
    recordings: Recordings,
    model: ModelDirectory,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where decisions go, one JSON object a line; - for standard output.")
    ] = Path("decisions.jsonl"),
    pattern: Pattern = None,
    alpha: Alpha = 0.01,
    confidence: Annotated[float, typer.Option(metavar="P", help="No label below this probability, 0.5 to 1.")] = 0.6,
    fusion: Annotated[
        str,
        typer.Option(metavar="NAME", help="votes: sensors decide and are weighed; features: one classifier for all."),
    ] = "votes",
    mask: Mask = None,
    use_health: Annotated[
        bool, typer.Option("--health/--no-health", help="Whether sensors in bad health lose their say.")
    ] = True,
    alarms_per_day: AlarmsPerDay = 1.0,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="NAME=VALUE",
            help="Decide again with mask=2, alpha=0.005, confidence=0.8, fusion=features or health=off, into a file "
            "beside, and show the difference; may be repeated.",
        ),
    ] = None,
    resample: Resample = False,
    block_samples: Annotated[
        int | None,
        typer.Option(
            parser=_at_least(1, 4096), metavar="N", help="Read so many samples at a time; changes no decision."
        ),
    ] = None,
    jobs: Jobs = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard decisions of an earlier replay in FILE.")] = False,
) -> None:
    """Decide about recorded sound; the same bytes every time.

    An interrupted replay continues when started again with the same options. Exit code 0: all was replayed; 3: some
    sound could not be used; 4: nothing could be decided; 1: nothing was replayed; 130: interrupted.
    """
    from rich.console import Console

    with _errors_for_people():
        from pipeline.service.assembly import Choices
        from pipeline.service.replay_command import run_replay
        from pipeline.service.what_if import changed

        choices = changed(
            Choices(
                alpha=alpha,
                least_confidence=confidence,
                fusion=fusion,
                health=use_health,
                alarms_per_day=alarms_per_day,
            ),
            [f"mask={mask}"] if mask else [],
        )
        code = run_replay(
            recordings,
            model,
            out,
            choices,
            what_if=what_if or [],
            pattern=pattern,
            resample=resample,
            block_samples=block_samples,
            jobs=_processes(jobs),
            restart=restart,
            console=Console(stderr=str(out) == "-"),
        )
    raise typer.Exit(code)


@app.command()
@_flowing
def health(
    recordings: Recordings,
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of a model: its p-values and what is usual for it count, too."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels to be doubted where all sensors contradict them.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report, one HTML file.")] = Path("health.html"),
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="The findings as JSON.")] = None,
    pattern: Pattern = None,
    mask: Mask = None,
    alpha: Alpha = 0.01,
    alarms_per_day: AlarmsPerDay = 1.0,
    resample: Resample = False,
    jobs: Jobs = None,
) -> None:
    """How each sensor was: its states, what was the matter with it, since when, and what to do about it.

    Works without a model and without labels: what is usual in a recording is then learned from the others. Exit code
    0: all was examined; 3: some sound could not be used; 4: nothing could be examined; 1: nothing was written.
    """
    from rich.console import Console

    with _errors_for_people(continues=False):
        from pipeline.service.assembly import Choices
        from pipeline.service.health_command import run_health
        from pipeline.service.what_if import changed

        choices = Choices(alpha=alpha, alarms_per_day=alarms_per_day)
        code = run_health(
            recordings,
            changed(choices, [f"mask={mask}"] if mask else []),
            model=model,
            labels=labels,
            out=out,
            json_file=json_file,
            pattern=pattern,
            resample=resample,
            jobs=_processes(jobs),
            console=Console(),
        )
    raise typer.Exit(code)


@app.command()
@_flowing
def evaluate(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECORDINGS",
            show_default=False,
            help="Sound, which is replayed; or a file of decisions (.jsonl).",
        ),
    ],
    labels: Annotated[
        Path, typer.Option(metavar="FILE", show_default=False, help="Labels, as gemmed train reads them.")
    ],
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="DIR", show_default=False, help="Directory of the model; needed for sound."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Which sensor failed when: recording, sensor, start_seconds, end_seconds, fault."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the figure goes, and decisions if sound is replayed.")
    ] = Path("evaluation"),
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="All figures for programs.")] = None,
    pattern: Pattern = None,
    resample: Resample = False,
    jobs: Jobs = None,
) -> None:
    """Compare decisions with labels: confusion, accuracy, calibration, per sensor and fused.

    Intervals take recordings as the independent units. Recordings that the model was trained on are judged by models
    that were trained without them, or left out. With the truth about the sensors, also how often failures are noticed
    and sound segments refused.
    """
    from rich.console import Console

    with _errors_for_people():
        from pipeline.service.evaluate_command import run_evaluation

        run_evaluation(
            recordings,
            model,
            labels,
            truth=truth,
            out=out,
            json_file=json_file,
            pattern=pattern,
            resample=resample,
            jobs=_processes(jobs),
            console=Console(),
        )


@app.command()
@_flowing
def explain(
    decision: Annotated[
        str,
        typer.Argument(
            metavar="DECISION",
            show_default=False,
            help="A line of a file, as decisions.jsonl:17; or a recording and a time in seconds, as r001@3.5.",
        ),
    ],
    recordings: Annotated[
        list[Path],
        typer.Option("--recordings", metavar="PATH", show_default=False, help="Where the sound is; may be repeated."),
    ],
    model: ModelDirectory,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the figure goes.")] = Path("explanation.png"),
    pattern: Pattern = None,
    resample: Resample = False,
) -> None:
    """Say why a decision is what it is: which sensors, how unusual each was, what it resembles, what training refused.

    The sound is decided about again; for a line of a file also whether the decision is the same.
    """
    from rich.console import Console

    with _errors_for_people(continues=False):
        from pipeline.service.explain_command import run_explanation

        run_explanation(decision, recordings, model, out=out, pattern=pattern, resample=resample, console=Console())


_CURES = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "give a file, not a directory",
    errno.EACCES: "check the permissions",
    errno.EPERM: "check the permissions",
    errno.EROFS: "give a directory that can be written to",
    errno.ENOSPC: "make space; what is finished is kept",
}


class _errors_for_people:
    """One line on standard error and exit code 1 for what the user can cure; 130 for Ctrl-C, as for SIGTERM."""

    def __init__(self, *, continues: bool = True) -> None:
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
            _complain(f"{place}{error.strerror}; {cure}")
        elif isinstance(error, GemmedError):
            _complain(str(error))
        elif isinstance(error, KeyboardInterrupt):
            typer.echo(f"gemmed: interrupted; {self._after}", err=True)
            raise typer.Exit(130) from error


def _complain(message: str) -> NoReturn:
    typer.echo(f"gemmed: {message}", err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    sys.exit(app())
