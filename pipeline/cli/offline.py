"""Commands for recorded sound: simulate, train, replay, health, evaluate, explain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.main import (
    AlarmsPerDay,
    Alpha,
    Classes,
    Components,
    Config,
    EngineName,
    FeaturesName,
    Folds,
    Jobs,
    LowestHz,
    Mask,
    ModelDirectory,
    MostSegments,
    Overlap,
    Pattern,
    Recordings,
    Resample,
    Scheduler,
    Seed,
    SegmentSeconds,
    State,
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
    local_engine,
    state_directory,
)
from pipeline.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline.simulation.day_files import DayFiles
    from pipeline.simulation.scene import Site


@app.command()
@flowing
def simulate(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A directory of its own for recordings and tables.")],
    recordings: Annotated[
        int, typer.Option(parser=at_least(1, 150), metavar="N", help="How many; 44 % of them with an animal.")
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
    sensors: Annotated[int, typer.Option(parser=at_least(1, 4), metavar="N", help="Number of sensors.")] = 4,
    spacing: Annotated[float, typer.Option(metavar="M", help="Metres between sensors along the track.")] = 5.0,
    rate: Annotated[
        int, typer.Option(parser=at_least(2000, 16000, 96000), metavar="HZ", help="Samples per second, 2000 to 96000.")
    ] = 16000,
    surface: Annotated[str, typer.Option(metavar="NAME", help="gravel, grass, sand, soil or asphalt.")] = "gravel",
    clips: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Real sounds in DIR/steps, DIR/hooves, DIR/noise, in place of synthetic ones."
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="wav or flac; without it wav, with --day flac.", show_default=False
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            show_default=False,
            help="Classes with commas, equally often: human, human_animal, animal, two_humans, vehicle, and, without "
            "--day, nobody. Default: human and human_animal; with --day the five that can pass.",
        ),
    ] = None,
    day: Annotated[
        bool, typer.Option("--day", help="One continuous recording in which mostly nobody passes, as pieces by time.")
    ] = False,
    hours: Annotated[float, typer.Option(metavar="H", help="With --day: length.")] = 24.0,
    start_hour: Annotated[float, typer.Option(metavar="H", help="With --day: time of day at the beginning.")] = 0.0,
    passages: Annotated[float, typer.Option(metavar="N", help="With --day: mean number of passages in 24 h.")] = 40.0,
    distractors: Annotated[
        float, typer.Option(metavar="N", help="With --day: mean number of other sounds in 24 h.")
    ] = 60.0,
    piece_seconds: Annotated[
        int, typer.Option(parser=at_least(15, 600, 3600), metavar="S", help="With --day: length of a file.")
    ] = 600,
    jobs: Jobs = None,
    picture: Annotated[
        bool, typer.Option("--picture/--no-picture", help="Draw the contact sheet, or with --day the timeline.")
    ] = True,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard an earlier simulation in the same place.")
    ] = False,
) -> None:
    """Recordings of a simulated array: a human alone or leading an animal, with failing sensors.

    Writes one file per recording with a channel per sensor, labels.csv (who passed), truth.csv (which
    sensor failed when, sensors counted from 1), simulation.json (all settings) and contact_sheet.png (both classes and
    every fault to look at, also those not asked for). With --day it writes one continuous recording instead, as FLAC
    pieces named by time (about 190 MB per hour), labels.csv (passages, and nobody), passages.csv, distractors.csv,
    truth.csv and day.png; --recordings and --seconds are not used then.

    Faults: dead, flat, stuck, loud_bursts, clipping, hum, dc_drift,
    gain_loss, dropouts, spikes, polarity, crosstalk, swapped, stale, clock_drift, wind_roar. An interrupted run
    continues when started again with the same options.
    """
    with errors_for_people():
        from pipeline.daemon.console import plain_console
        from pipeline.simulation.dataset import Dataset, write_dataset
        from pipeline.simulation.options import classes_of, day_files_of, site_of

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
        console = plain_console()
        if out.is_file():
            raise UsageError(f"{out} is a file; give a directory of its own")
        if day:
            files = day_files_of(
                site,
                hours=hours,
                start_hour=start_hour,
                passages=passages,
                distractors=distractors,
                classes=classes,
                piece_seconds=piece_seconds,
                file_format=file_format or "flac",
            )
            _simulate_day(files, out, jobs=jobs, restart=restart, picture=picture, console=console)
            return
        dataset = Dataset(site, recordings, file_format or "wav", classes_of(classes))
        with local_engine(jobs) as engine:
            write_dataset(dataset, out, engine=engine, restart=restart, console=console)
        if site.clips:
            console.print(f"real sounds: {site.clips}", soft_wrap=True, highlight=False)
        told = f"written: {out}"
        if picture:
            told += f"; {_contact_sheet(site, out / 'contact_sheet.png')}"
        console.print(told, soft_wrap=True, highlight=False)


def _contact_sheet(site: Site, path: Path) -> str:
    """What became of it."""
    from pipeline.simulation.contact_sheet import write_contact_sheet

    try:
        return f"{path if path.exists() else write_contact_sheet(site, path)} to look at"
    except UsageError as error:
        return f"no contact sheet: {error}"


def _simulate_day(
    files: DayFiles, out: Path, *, jobs: int | None, restart: bool, picture: bool, console: Console
) -> None:
    from pipeline.simulation.day_files import write_day
    from pipeline.simulation.day_picture import write_day_picture

    with local_engine(jobs) as engine:
        truth = write_day(files, out, engine=engine, restart=restart, console=console)
    message = f"written: {out}; read it with --pattern '{files.pattern}'"
    if picture:
        try:
            message += f"; timeline: {write_day_picture(files, truth, out)}"
        except UsageError as error:
            message += f"; no timeline: {error}"
    console.print(message, soft_wrap=True, highlight=False)


@app.command()
@flowing
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
    classes: Classes = None,
    rate: Annotated[
        int | None,
        typer.Option(parser=at_least(2000, 16000, 96000), metavar="HZ", help="Resample to so many samples per second."),
    ] = None,
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
    """Learn a model from labelled recordings, some of which may come from failing sensors or have wrong labels.

    Segments that a sensor did not deliver, and labels that all sensors contradict, are recognised and refused. The
    model is validated on recordings that were left out, and stored in a new directory that is never changed.
    """
    with errors_for_people(continues=False):
        from pipeline.daemon.console import plain_console
        from pipeline.reports.tables import show_trained
        from pipeline.sources.files import find_recordings
        from pipeline.training.labels import read_labels
        from pipeline.training.offline import TrainingOptions
        from pipeline.training.offline import train as train_model

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
        console = plain_console()
        listing = find_recordings(recordings, pattern=pattern)
        with chosen_engine(engine, jobs, scheduler, tls_ca, tls_cert, tls_key) as workers:
            trained = train_model(
                listing, read_labels(labels), model, plan, rate_hz=rate, engine=workers, console=console
            )
        show_trained(trained, console)
        console.print(f"written: {model}, model {trained.name}", soft_wrap=True, highlight=False)


@app.command()
@flowing
def replay(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RECORDINGS", help="Sound files, or a directory of them.", show_default=False),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="DIR", help="Directory of the model.", show_default=False)
    ] = None,
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
    use_presence: Annotated[
        bool, typer.Option("--presence/--no-presence", help="Find passages; segments with nobody get no label.")
    ] = True,
    false_passages_per_day: Annotated[
        float, typer.Option(metavar="N", help="Target number of passages per day that background starts.")
    ] = 24.0,
    positions: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y;X,Y;...", help="Positions of the sensors in meters: direction and speed of passages."
        ),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="NAME=VALUE",
            help="Decide again with mask=2, alpha=0.005, confidence=0.8, fusion=features, health=off or presence=off, "
            "into a file beside, and show the difference; may be repeated.",
        ),
    ] = None,
    resample: Resample = False,
    block_samples: Annotated[
        int | None,
        typer.Option(
            parser=at_least(1, 4096), metavar="N", help="Read so many samples at a time; changes no decision."
        ),
    ] = None,
    jobs: Jobs = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard decisions of an earlier replay in FILE.")] = False,
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Instead: decide again what a gemmed run decided, by its name, last or all, and compare every event.",
        ),
    ] = None,
    config: Config = None,
    state: State = None,
) -> None:
    """Decide about recorded sound, and show who went by in each recording; the same bytes every time.

    An interrupted replay continues when started again with the same options. Exit code 0: all was replayed; 3: some
    sound could not be used; 4: nothing could be decided; 5: with --verify, something is decided otherwise; 1: nothing
    was replayed; 130: interrupted.
    """
    with errors_for_people():
        from pipeline.daemon.console import plain_console

        if verify is not None:
            if engine != "local":
                raise UsageError(f"--engine={engine!r}: --verify decides in the order of the run; leave --engine out")
            from pipeline.cli.commands.verify import run_verification

            raise typer.Exit(run_verification(state_directory(config, state), verify, plain_console()))
        if not recordings or model is None:
            raise UsageError(
                "recordings and --model are needed, or --verify RUN; for example: gemmed replay field --model model"
            )
        from pipeline.cli.commands.replay import run_replay
        from pipeline.core.choices import Choices, parsed_positions
        from pipeline.reports.what_if import changed

        choices = changed(
            Choices(
                alpha=alpha,
                least_confidence=confidence,
                fusion=fusion,
                health=use_health,
                alarms_per_day=alarms_per_day,
                presence=use_presence,
                false_passages_per_day=false_passages_per_day,
                positions_m=parsed_positions(positions),
            ),
            [f"mask={mask}"] if mask else [],
        )
        with chosen_engine(engine, jobs, scheduler, tls_ca, tls_cert, tls_key) as workers:
            code = run_replay(
                recordings,
                model,
                out,
                choices,
                what_if=what_if or [],
                pattern=pattern,
                resample=resample,
                block_samples=block_samples,
                engine=workers,
                restart=restart,
                console=plain_console(stderr=str(out) == "-"),
            )
    raise typer.Exit(code)


@app.command()
@flowing
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
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """How each sensor was: its states, what was the matter with it, since when, and what to do about it.

    Works without a model and without labels: what is usual in a recording is then learned from the others. Exit code
    0: all was examined; 3: some sound could not be used; 4: nothing could be examined; 1: nothing was written.
    """
    with errors_for_people(continues=False):
        from pipeline.cli.commands.health import run_health
        from pipeline.core.choices import Choices
        from pipeline.daemon.console import plain_console
        from pipeline.reports.what_if import changed

        choices = Choices(alpha=alpha, alarms_per_day=alarms_per_day)
        with chosen_engine(engine, jobs, scheduler, tls_ca, tls_cert, tls_key) as workers:
            code = run_health(
                recordings,
                changed(choices, [f"mask={mask}"] if mask else []),
                model=model,
                labels=labels,
                out=out,
                json_file=json_file,
                pattern=pattern,
                resample=resample,
                engine=workers,
                console=plain_console(),
            )
    raise typer.Exit(code)


@app.command()
@flowing
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
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Compare decisions with labels: confusion, accuracy, calibration, per sensor and fused; and passages.

    Intervals take recordings as the independent units. Recordings that the model was trained on are judged by models
    that were trained without them, or left out. With the truth about the sensors, also how often failures are noticed
    and sound segments refused. Passages: how many labeled ones are found, how many false ones there are per hour of
    background (labels nobody, background, noise, none, empty), errors of onset and end, and whether the class is right.
    """
    with errors_for_people():
        from pipeline.cli.commands.evaluate import run_evaluation
        from pipeline.daemon.console import plain_console

        if engine != "local" and any(path.suffix == ".jsonl" for path in recordings):
            raise UsageError(f"--engine={engine!r} spreads a replay, and {recordings[0]} is decided; leave it out")
        with chosen_engine(engine, jobs, scheduler, tls_ca, tls_cert, tls_key) as workers:
            run_evaluation(
                recordings,
                model,
                labels,
                truth=truth,
                out=out,
                json_file=json_file,
                pattern=pattern,
                resample=resample,
                engine=workers,
                console=plain_console(),
            )


@app.command()
@flowing
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
    with errors_for_people(continues=False):
        from pipeline.cli.commands.explain import run_explanation
        from pipeline.daemon.console import plain_console

        console = plain_console()
        run_explanation(decision, recordings, model, out=out, pattern=pattern, resample=resample, console=console)
