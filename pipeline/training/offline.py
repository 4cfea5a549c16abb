"""`gemmed train`: recordings and labels in, a model directory out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from pipeline.core.errors import ModelError, UsageError
from pipeline.core.events import SourceTrouble, Span, Views
from pipeline.core.framing import Grid
from pipeline.core.segment_views import TWO_VIEWS
from pipeline.health.baseline import Baseline, learn_usual
from pipeline.model.build import hearing_settings
from pipeline.model.model import Model
from pipeline.runtime.process_pool import Engine, progress_bar
from pipeline.sources.files import FileSource, Listing, Recording, files_of, sound_seconds
from pipeline.stages.features import LOWEST_HZ
from pipeline.training.cross_validation import LearningPlan, learn_validated
from pipeline.training.examples import NOBODY, Examples, RecordingNote, classes_of, evenly, views_of
from pipeline.training.extract import Format, Heard, hear
from pipeline.training.labeled_spans import APART_SECONDS
from pipeline.training.labels import Labels, is_nobody

_MOST_BACKGROUND_SECONDS = 6 * 3600.0
_MINUTE_SECONDS = 60
_APART_SECONDS = 5.0
"""Nobody is presumed to be there where no label is nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What a user may choose about training."""

    classes: tuple[str, ...] | None = None
    segment_seconds: float = 2.0
    window_seconds: float = 1.5
    overlap: float = 0.75
    lowest_hz: float = LOWEST_HZ
    """Of the mel bands: below it are the drift of a converter and the wind, and little of a step."""
    features: str = TWO_VIEWS
    components: int = 50
    most_segments: int = 3000
    """Evenly thinned beyond: the time of training grows with the square."""
    folds: int = 5
    """Of the validation, 0 for none."""
    seed: int = 0

    def grid(self, rate_hz: int) -> Grid:
        return Grid(
            rate_hz=rate_hz,
            segment_seconds=self.segment_seconds,
            window_seconds=self.window_seconds,
            overlap=self.overlap,
        )


@dataclass(frozen=True, slots=True)
class ExtractionTask:
    """How to listen: the same for all recordings."""

    sound: Format
    grid: Grid
    settings: dict[str, Any]
    labels: Labels
    classes: tuple[str, ...]
    most_segments: int
    presumes_nobody: bool = False
    """Whether nobody is there where labeled recordings have no label: so if no label says nobody."""
    background_every: int = 1
    """Of the minutes without anybody, one in so many is learned from."""


@dataclass(frozen=True, slots=True)
class PreparedTraining:
    """What was heard, ready to learn from."""

    examples: Examples
    task: ExtractionTask
    usual: Baseline | None

    def learning(self, plan: TrainingOptions) -> LearningPlan:
        return LearningPlan(self.task.grid, self.task.settings, plan.seed, plan.components, plan.folds)


def train(
    listing: Listing,
    labels: Labels,
    directory: Path,
    plan: TrainingOptions,
    *,
    rate_hz: int | None,
    engine: Engine,
    console: Console,
) -> Model:
    """Learn from all labelled recordings, validate on recordings that were left out, and store."""
    require_new(directory)
    with progress_bar(console) as progress:
        lesson = listen(listing, labels, plan, rate_hz=rate_hz, engine=engine, progress=progress)
        model = learned(lesson, plan, engine=engine, progress=progress)
    return model.save(directory)


def require_new(directory: Path) -> None:
    """Before hours of work: there is no model yet, and one can be stored."""
    if directory.exists():
        raise ModelError(f"{directory} exists, and models are never changed; give another directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(directory.parent, os.W_OK):
        raise ModelError(f"{directory.parent} cannot be written to; give another place for the model")


def listen(
    listing: Listing,
    labels: Labels,
    plan: TrainingOptions,
    *,
    rate_hz: int | None = None,
    cut_from: Mapping[str, str] = MappingProxyType({}),
    engine: Engine,
    progress: Progress,
) -> PreparedTraining:
    """All labelled recordings; `cut_from` names those that are parts of another."""
    labels.check_recordings(recording.name for recording in listing.recordings)
    classes = classes_of(labels.names, plan.classes)
    wanted = [recording for recording in listing.recordings if recording.name in set(labels.recordings)]
    engine.check_files(files_of(wanted))
    sound = _format(wanted, rate_hz)
    grid = plan.grid(sound.rate_hz)
    settings = hearing_settings(grid, lowest_hz=plan.lowest_hz, features=plan.features)
    background = sum(map(sound_seconds, wanted))
    task = ExtractionTask(
        sound,
        grid,
        settings,
        labels,
        classes,
        plan.most_segments,
        presumes_nobody=not any(map(is_nobody, labels.names)),
        background_every=max(1, round(background / _MOST_BACKGROUND_SECONDS)),
    )
    heard = _hear(wanted, task, engine, progress)
    _tell([*listing.troubles, *(trouble for one in heard for trouble in one.troubles)], progress.console)
    usual = learn_usual([second for one in heard for second in one.measures])
    return PreparedTraining(gather(heard, task, cut_from), task, usual)


def learned(lesson: PreparedTraining, plan: TrainingOptions, *, engine: Engine, progress: Progress) -> Model:
    """The validated model of all that was heard; not yet stored."""
    bar = progress.add_task("learning", total=plan.folds + 1)
    model = learn_validated(
        lesson.examples,
        lesson.learning(plan),
        engine=engine,
        told=lambda n, of: progress.update(bar, completed=n, total=of),
    )
    notes = model.notes | {"plan": _plain(plan), "sound": asdict(lesson.task.sound)}
    return replace(model, notes=notes, usual=lesson.usual)


def _format(recordings: Sequence[Recording], rate_hz: int | None) -> Format:
    found, n_sensors = FileSource(Listing(tuple(recordings))).format()
    return Format(rate_hz or found, n_sensors, resample=rate_hz is not None)


def _plain(plan: TrainingOptions) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(plan).items()}


def _hear(recordings: Sequence[Recording], task: ExtractionTask, engine: Engine, progress: Progress) -> list[Heard]:
    bar = progress.add_task("listening", total=len(recordings))
    found: dict[str, Heard] = {}
    for recording, heard in engine.finished(partial(_labelled, task=task), recordings):
        found[recording.name] = heard
        progress.advance(bar)
    return [found[recording.name] for recording in recordings]


def _labelled(recording: Recording, task: ExtractionTask) -> Heard:
    """What may be learned from of a recording."""

    def keep(views: Views) -> bool:
        code = _label(recording.name, views.span, task)
        minute = views.span.start // (_MINUTE_SECONDS * task.grid.rate_hz)
        return code is not None and (code != NOBODY or minute % task.background_every == 0)

    heard = hear(recording, task.sound, task.grid, task.settings, keep=keep)
    codes = [_label(recording.name, fact.span, task) for fact in heard.segments]
    heard.segments = _thinned(heard.segments, codes, task.most_segments)
    return heard


def _thinned(facts: Sequence[Views], codes: Sequence[int | None], walkers: int) -> list[Views]:
    """Return at most so many segments of the classes, evenly spread, and all without anybody, in order of time."""
    own = [n for n, code in enumerate(codes) if code is not None and code >= 0]
    kept = [own[i] for i in evenly(len(own), walkers)] + [n for n, code in enumerate(codes) if code == NOBODY]
    return [facts[n] for n in sorted(kept)]


def _label(recording: str, span: Span, task: ExtractionTask) -> int | None:
    label = _word(recording, span, task)
    if label in task.classes:
        return task.classes.index(label)
    if label is None:
        rate_hz = task.grid.rate_hz
        apart = span.start / rate_hz - _APART_SECONDS, span.stop / rate_hz + _APART_SECONDS
        return NOBODY if task.presumes_nobody and not task.labels.touches(recording, *apart) else None
    return NOBODY if is_nobody(label) else None


def _word(recording: str, span: Span, task: ExtractionTask) -> str | None:
    rate_hz = task.grid.rate_hz
    return task.labels.of(recording, span.start / rate_hz, span.stop / rate_hz)


def _tell(troubles: Sequence[SourceTrouble], console: Console) -> None:
    for trouble in troubles:
        console.print(f"{trouble.where} {trouble.message}", style="yellow", soft_wrap=True, highlight=False)


def gather(
    heard: Sequence[Heard], task: ExtractionTask, cut_from: Mapping[str, str] = MappingProxyType({})
) -> Examples:
    """The labelled segments of all recordings, evenly thinned in each if there are too many.

    Labels of one recording that lie far apart are units of their own, as if it had been cut between them. Segments in
    which nobody is there are thinned by themselves: they take no room from the classes.
    """
    codes = {one.recording: [_label(one.recording, fact.span, task) for fact in one.segments] for one in heard}
    total = sum(len(own) - own.count(NOBODY) for own in codes.values())
    if not total:
        raise UsageError(
            f"no segment of {task.grid.segment_seconds:g} s lies inside a label; label longer stretches, or choose "
            "shorter segments"
        )
    _check_twins(heard)
    share = min(1.0, task.most_segments / total)
    kept = [
        part
        for one in heard
        if one.segments
        for part in _parts(one, _share_of(one, codes[one.recording], share), task, cut_from.get(one.recording, ""))
    ]
    rows = [(number, heard_in, fact) for number, (_, heard_in, facts) in enumerate(kept) for fact in facts]
    label = np.array([_label(name, fact.span, task) for _, name, fact in rows])
    return Examples(
        **views_of([fact for *_, fact in rows]),
        recording=np.array([number for number, *_ in rows]),
        label=label,
        recordings=tuple(note for note, *_ in kept),
        classes=task.classes,
    )


def _share_of(heard: Heard, codes: Sequence[int | None], share: float) -> list[Views]:
    walkers = len(codes) - codes.count(NOBODY)
    return _thinned(heard.segments, codes, max(1, round(share * walkers)))


def _parts(
    heard: Heard, facts: Sequence[Views], task: ExtractionTask, cut_from: str
) -> Iterator[tuple[RecordingNote, str, list[Views]]]:
    """The units of a recording, each with its segments: one, or one for each group of labels and one of background."""
    groups = task.labels.groups(heard.recording, APART_SECONDS, lambda label: label in task.classes)
    if len(groups) < 2:
        yield _note(heard, facts, task, cut_from, None), heard.recording, list(facts)
        return
    for start, end in groups:
        own = [fact for fact in facts if _inside(fact.span, start, end, task) and not _is_empty(heard, fact, task)]
        if own:
            yield _note(heard, own, task, cut_from, own[0].span.start), heard.recording, own
    empty = [fact for fact in facts if _is_empty(heard, fact, task)]
    if empty:
        yield _note(heard, empty, task, cut_from, None), heard.recording, empty


def _inside(span: Span, start: float, end: float, task: ExtractionTask) -> bool:
    return start <= span.start / task.grid.rate_hz and span.stop / task.grid.rate_hz <= end


def _is_empty(heard: Heard, fact: Views, task: ExtractionTask) -> bool:
    return _label(heard.recording, fact.span, task) == NOBODY


def _check_twins(heard: Sequence[Heard]) -> None:
    """The same sound under two names would judge itself."""
    names: dict[str, str] = {}
    for one in (one for one in heard if one.segments):
        other = names.setdefault(one.fingerprint, one.recording)
        if other != one.recording:
            raise UsageError(f"{one.recording} is the same sound as {other}; leave one of them out, and its labels")


def _note(
    heard: Heard, facts: Sequence[Views], task: ExtractionTask, cut_from: str, start: int | None
) -> RecordingNote:
    """Of a whole recording, or of the part that begins at `start`."""
    words = (_word(heard.recording, fact.span, task) for fact in facts)
    counts = Counter(word for word in words if word is not None)
    span = facts[0].span.start, facts[-1].span.stop
    part = "" if start is None else f"@{start}"
    return RecordingNote(
        heard.recording + part,
        dict(sorted(counts.items())),
        heard.samples,
        span,
        heard.fingerprint + part,
        cut_from=cut_from,
    )
