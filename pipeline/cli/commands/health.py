"""A health report as a user asks for it: files, progress, tables, exit code."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline import __version__
from pipeline.core.atomic_write import write_whole
from pipeline.core.choices import Choices
from pipeline.core.errors import UsageError
from pipeline.core.sensor_state import Cause, State
from pipeline.health.sequential_tests import SECONDS_PER_DAY, poisson_interval
from pipeline.model.model import Model
from pipeline.reports.health import Examination, RecordingHealth, examine, what_is_usual
from pipeline.reports.health_page.page import report_html
from pipeline.runtime.process_pool import Engine, progress_bar
from pipeline.sources.files import FileSource, Listing, files_of, find_recordings
from pipeline.training.extract import Format
from pipeline.training.labels import read_labels

ALL_EXAMINED, SOME_UNUSABLE, NOTHING_EXAMINED = 0, 3, 4
_MOST_SHOWN = 15
_STYLES = {State.GOOD: "green", State.DEGRADED: "yellow", State.BAD: "red"}


def run_health(
    recordings: Sequence[Path],
    choices: Choices,
    *,
    model: Path | None,
    labels: Path | None,
    out: Path,
    json_file: Path | None,
    pattern: str | None,
    resample: bool,
    engine: Engine,
    console: Console,
) -> int:
    """Examine all recordings and write the report; the exit code."""
    for option, path in (("--out", out), ("--json", json_file)):
        if path is not None and path.is_dir():
            raise UsageError(f"{option}={str(path)!r} is a directory; give a file in it")
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{option}={str(path)!r}: there is no directory {path.parent}; make it, or give another")
        if path is not None and not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
            raise UsageError(f"{option}={str(path)!r} cannot be written; check its permissions, or give another")
    if json_file is not None and json_file.resolve() == out.resolve() and out.is_file():
        raise UsageError(f"--out and --json are both {out}; give two files")
    if labels is not None and model is None:
        raise UsageError("--labels are compared with what a model decides; give --model, too")
    listing = find_recordings(recordings, pattern=pattern)
    _spare_recordings(listing, out, json_file)
    loaded = Model.load(model) if model else None
    sound = _format(listing, loaded, resample)
    told = read_labels(labels) if labels else None
    if told is not None:
        told.check_recordings(recording.name for recording in listing.recordings)
    engine.check_files([*files_of(listing.recordings), *(model.resolve().iterdir() if model else ())])
    with progress_bar(console) as bar:
        usual = {} if model else what_is_usual(listing.recordings, sound, engine=engine, bar=bar)
        task = Examination(sound, choices, model.resolve() if model else None, usual, told)
        task.chain()  # refuses choices that cannot be, before anything is examined
        found = examine(listing.recordings, task, engine=engine, bar=bar)
    facts = _facts(found, choices, loaded)
    write_whole(
        out, report_html(found, title=_title(recordings), facts=facts, alpha=choices.alpha if model else None).encode()
    )
    if json_file is not None:
        content = {"recordings": [one.as_dict() for one in found]}
        write_whole(json_file, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    _tell(found, listing, facts, console)
    for path in filter(None, (out, json_file)):
        console.print(f"written: {path}", soft_wrap=True, highlight=False)
    if not any(one.seconds for one in found):
        return NOTHING_EXAMINED
    return SOME_UNUSABLE if listing.troubles or any(one.troubles for one in found) else ALL_EXAMINED


def _spare_recordings(listing: Listing, *outputs: Path | None) -> None:
    sounds = {path.resolve() for path in files_of(listing.recordings)}
    for output in outputs:
        if output is not None and output.resolve() in sounds:
            raise UsageError(f"{output} is one of the recordings and would be lost; give another file")


def _format(listing: Listing, model: Model | None, resample: bool) -> Format:
    if model is not None:
        return Format(model.grid.rate_hz, model.n_sensors, resample)
    rate_hz, n_sensors = FileSource(listing).format()
    return Format(rate_hz, n_sensors, resample)


def _title(recordings: Sequence[Path]) -> str:
    names = [path.resolve().name for path in recordings]
    return f"Sensor health: {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _facts(found: Sequence[RecordingHealth], choices: Choices, model: Model | None) -> dict[str, str]:
    facts = {"recordings": str(len(found)), "sound": _duration(sum(one.seconds for one in found))}
    if model is not None:
        facts |= {"model": model.name, "alpha": f"{choices.alpha:g} per segment"}
        facts["false alarms from p-values"] = f"at most {choices.alarms_per_day:g} a day"
    if choices.masked:
        facts["switched off"] = ", ".join(f"sensor {sensor}" for sensor in choices.masked)
    facts["faults"] = _alarm_rate(found)
    return facts | {"gemmed": __version__}


def _alarm_rate(found: Sequence[RecordingHealth]) -> str:
    """How many faults opened, and what that is in a day; an interval says how little a short time tells."""
    count = sum(len(sensor.episodes) for one in found for sensor in one.sensors)
    seconds = sum(one.seconds for one in found)
    if seconds < SECONDS_PER_DAY / 24:
        return str(count)  # a rate per day says nothing of minutes
    low, high = (bound * SECONDS_PER_DAY / seconds for bound in poisson_interval(count))
    return f"{count}, or {count * SECONDS_PER_DAY / seconds:.3g} a day (95 %: {low:.3g} to {high:.3g})"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def _tell(found: Sequence[RecordingHealth], listing: Listing, facts: dict[str, str], console: Console) -> None:
    troubles = [f"{trouble.where} {trouble.message}" for trouble in listing.troubles]
    troubles += [trouble for one in found for trouble in one.troubles]
    for trouble in troubles[:_MOST_SHOWN]:
        console.print(trouble, style="yellow", soft_wrap=True, highlight=False)
    if len(troubles) > _MOST_SHOWN:
        console.print(f"... and {len(troubles) - _MOST_SHOWN} more troubles, see the report", style="yellow")
    console.print(sensors_table(found))
    for one in found:
        for verdict in one.verdicts:
            sensors = " and ".join(map(str, verdict.sensors))
            console.print(
                f"{one.recording} at {verdict.seconds:.0f} s: {verdict.pattern}, sensor {sensors}: {verdict.reason}",
                soft_wrap=True,
                highlight=False,
            )
    console.print(f"faults: {facts['faults']}", highlight=False)


def sensors_table(found: Sequence[RecordingHealth]) -> Table:
    """One row a sensor, all recordings together."""
    table = Table(title="Sensors", caption="availability: share of the time with sound that was not bad")
    for column in ("sensor", "worst", "availability %", "faults", "causes", "what to do"):
        table.add_column(column, justify="right" if column in ("availability %", "faults") else "left")
    for number in range(max((len(one.sensors) for one in found), default=0)):
        own = [(one.seconds, one.sensors[number]) for one in found if number < len(one.sensors)]
        causes = Counter(episode.cause for _, sensor in own for episode in sensor.episodes)
        known = [(seconds, sensor.availability) for seconds, sensor in own if sensor.availability is not None]
        total = sum(seconds for seconds, _ in known)
        share = sum(seconds * (available or 0.0) for seconds, available in known) / total if total else None
        worst = max((sensor.worst for _, sensor in own), key=_BADNESS.index)
        table.add_row(
            str(number + 1),
            Text(worst, style=_STYLES.get(worst, "dim")),
            "" if share is None else f"{100 * share:.1f}",
            str(causes.total()),
            ", ".join(f"{cause} {count}" for cause, count in causes.most_common()),
            _cure(causes),
        )
    return table


_BADNESS = (State.UNKNOWN, State.OFF, State.GOOD, State.DEGRADED, State.BAD)


def _cure(causes: Counter[Cause]) -> str:
    return causes.most_common(1)[0][0].cure if causes else ""
