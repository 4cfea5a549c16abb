"""One model from the labels of many arrays, and how it does at each site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from pipeline.core.errors import UsageError
from pipeline.fleet.labels import Row, Taught
from pipeline.model.metrics import Judged, summary
from pipeline.model.model import Model, Refusal
from pipeline.reports.tables import interval, listed, percent
from pipeline.runtime.process_pool import Engine, progress_bar
from pipeline.sources.files import Listing, Piece, Recording
from pipeline.training.cross_validation import by_unit, judged_by_others
from pipeline.training.labels import read_labels
from pipeline.training.offline import PreparedTraining, TrainingOptions, learned, listen, require_new

_FEWEST_SITES = 3


@dataclass(frozen=True, slots=True)
class Lessons:
    """Where each piece of sound comes from, by its name."""

    rows: tuple[Row, ...]

    @property
    def site_of(self) -> dict[str, str]:
        return {row.recording: row.site for row in self.rows}

    @property
    def cut_from(self) -> dict[str, str]:
        """Arrays may call their recordings alike."""
        return {row.recording: f"{row.array}/{row.cut_from}" for row in self.rows}

    @property
    def sites(self) -> dict[str, list[str]]:
        """Sites with their arrays."""
        pairs = sorted({(row.site, row.array) for row in self.rows})
        return {site: [array for other, array in pairs if other == site] for site, _ in pairs}

    def listing(self, directory: Path) -> Listing:
        names = dict.fromkeys(row.recording for row in self.rows)
        return Listing(tuple(Recording(name, (Piece(((directory / name).absolute(),)),)) for name in names))


def teach(
    examples: Taught, directory: Path, plan: TrainingOptions, *, leave_sites_out: bool, engine: Engine, console: Console
) -> Model:
    """Learn from the labels of all arrays, validate on recordings that were left out, and store with each site's part.

    With `leave_sites_out`, also on whole sites that were left out.
    """
    require_new(directory)
    lessons = Lessons(tuple(examples.rows()))
    if not lessons.rows:
        raise UsageError(f"{examples.table} holds no labels; say what was heard with gemmed fleet label")
    if leave_sites_out and len(lessons.sites) < _FEWEST_SITES:
        raise UsageError(
            f"--leave-sites-out needs labels of at least {_FEWEST_SITES} sites, there are {len(lessons.sites)}; label "
            "at other sites, or leave it out"
        )
    _require_one_kind(examples, lessons)
    with progress_bar(console) as progress:
        lesson = listen(
            lessons.listing(examples.directory),
            read_labels(examples.table),
            plan,
            cut_from=lessons.cut_from,
            engine=engine,
            progress=progress,
        )
        model = learned(lesson, plan, engine=engine, progress=progress)
        strangers = _judged_by_strangers(lesson, plan, lessons, engine, progress) if leave_sites_out else {}
    notes = model.notes | {"sites": sites_notes(model, lessons, strangers)}
    return replace(model, notes=notes).save(directory)


def _require_one_kind(examples: Taught, lessons: Lessons) -> None:
    """All arrays have one rate and one number of sensors; the error names the odd one."""
    kinds = {row.array: _kind(examples, row) for row in lessons.rows}
    usual = Counter(kinds.values()).most_common(1)[0][0]
    for array, kind in kinds.items():
        if kind != usual:
            raise UsageError(
                f"array {array!r} has {kind[1]} sensors at {kind[0]} Hz, others have {usual[1]} at {usual[0]} Hz, and "
                "one model is for one kind of array; keep its examples in a directory of their own (--examples)"
            )


def _kind(examples: Taught, row: Row) -> tuple[int, int]:
    import soundfile

    try:
        info = soundfile.info(examples.directory / row.recording)
    except (OSError, soundfile.LibsndfileError) as error:
        raise UsageError(
            f"the sound of label {row.number}, {examples.directory / row.recording}, cannot be read: {error}; bring it "
            f"back, or remove the label with --take-back {row.number}"
        ) from error
    return int(info.samplerate), int(info.channels)


def _judged_by_strangers(
    lesson: PreparedTraining, plan: TrainingOptions, lessons: Lessons, engine: Engine, progress: Progress
) -> dict[str, list[Judged]]:
    """What models that have never heard a site decide about it."""
    examples, site_of = lesson.examples, lessons.site_of
    sites = sorted({site_of[note.name] for note in examples.recordings})
    of_recording = np.array([sites.index(site_of[note.name]) for note in examples.recordings])
    bar = progress.add_task("leaving sites out", total=len(sites))
    found = judged_by_others(
        examples,
        lesson.learning(plan),
        of_recording[examples.recording],
        engine=engine,
        told=lambda n, of: progress.update(bar, completed=n, total=of),
    )
    return {sites[number]: by_unit(judged, examples.recordings) for number, judged in found.items()}


def sites_notes(model: Model, lessons: Lessons, strangers: Mapping[str, Sequence[Judged]]) -> dict[str, Any]:
    """The figures of every site, their mean and the worst; ready for JSON."""
    sites = [_site(model, site, arrays, lessons, strangers.get(site, ())) for site, arrays in lessons.sites.items()]
    return {
        "sites": sites,
        **{name: _over_sites(sites, name) for name in ("accuracy", "accuracy_of_strangers")},
    }


def _site(model: Model, site: str, arrays: list[str], lessons: Lessons, strangers: Sequence[Judged]) -> dict[str, Any]:
    """What was learned from a site, and how models without a recording of it, or without all of it, decide there."""
    site_of, memory = lessons.site_of, model.memory
    notes = [note if site_of[note["recording"]] == site else None for note in model.notes["recordings"]]
    own = np.isin(memory.recording, [place for place, note in enumerate(notes) if note])
    here = memory.refusal[own] != Refusal.ABSENT
    judged = [
        replace(one, recording=note["cut_from"])
        for note in notes
        if note
        for one in model.judged_without(note["fingerprint"], note["recording"])
    ]
    return {
        "site": site,
        "arrays": arrays,
        "recordings": len({note["cut_from"] for note in notes if note}),
        "segments": {name: int((memory.label[own] == code).sum()) for code, name in enumerate(model.classes)},
        "contamination": _mean(1 - memory.delivered[own][here]),
        "refused": _mean(memory.refusal[own][here] != Refusal.NONE),
        "accuracy": _accuracy(judged, model.classes),
        "accuracy_of_strangers": _accuracy(strangers, model.classes),
    }


def _mean(values: Any) -> float | None:
    return round(float(np.mean(values)), 6) if len(values) else None


def _accuracy(judged: Sequence[Judged], classes: Sequence[str]) -> dict[str, Any] | None:
    return summary(judged, classes)["accuracy_without_abstention"] if judged else None


def _over_sites(sites: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """Every site counts as one, however much was labelled there."""
    values = {one["site"]: one[name]["value"] for one in sites if one[name] is not None}
    if not values:
        return None
    worst = min(values, key=lambda site: values[site])
    return {"mean": round(float(np.mean(list(values.values()))), 6), "worst": worst, "worst_value": values[worst]}


def sites_table(model: Model) -> Table:
    """One row a site; below it the mean and the worst."""
    noted, classes = model.notes["sites"], model.classes
    strangers = noted["accuracy_of_strangers"] is not None
    told = "\nleft-out sites: by models that have never heard the site" if strangers else ""
    table = Table(
        title=f"{len(noted['sites'])} sites",
        caption=f"right: on left-out recordings, 95 % intervals with recordings as independent units{told}",
    )
    columns = ["site", "recordings", *classes, "contaminated %", "refused %", "right %, left-out recordings"]
    for name in columns + ["right %, left-out sites"] * strangers:
        table.add_column(Text(name), justify="left" if name == "site" else "right")
    for one in noted["sites"]:
        counts = [str(one["recordings"]), *(str(one["segments"][name]) for name in classes)]
        shares = [percent(one["contamination"]), percent(one["refused"])]
        left_out = [interval(one["accuracy_of_strangers"])] * strangers
        table.add_row(Text(one["site"]), *counts, *shares, interval(one["accuracy"]), *left_out)
    names = ["accuracy", *["accuracy_of_strangers"] * strangers]
    for row in ("mean", "worst"):
        table.add_row(
            row, *[""] * (3 + len(classes)), *(Text(_summed_up(noted[name], row)) for name in names), style="bold"
        )
    return table


def _summed_up(figure: Mapping[str, Any] | None, row: str) -> str:
    if figure is None:
        return ""
    return percent(figure["mean"]) if row == "mean" else f"{figure['worst']}: {percent(figure['worst_value'])}"


def sites_warnings(model: Model) -> list[str]:
    """Sites of which the figures say little."""
    told = []
    for one in model.notes["sites"]["sites"]:
        heard = [name for name, count in one["segments"].items() if count]
        if not heard:
            told.append(f"nothing was learned at {one['site']}: no segment lies inside a label; label longer stretches")
        elif len(heard) < len(one["segments"]):
            others, all_of = ("the other", "both") if len(one["segments"]) == 2 else ("the others", "all classes")
            told.append(
                f"at {one['site']} only {listed(heard)} is labelled, so its figures say nothing of {others}; "
                f"label {all_of}"
            )
    if model.notes["sites"]["accuracy_of_strangers"] is not None:
        needed = [one["site"] for one in model.notes["sites"]["sites"] if one["accuracy_of_strangers"] is None]
        told += [f"without {site} there is too little to learn from; label more at other sites" for site in needed]
    return told
