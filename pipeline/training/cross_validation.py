"""Learning, and what models that were learned without a recording make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.choices import Choices
from pipeline.core.errors import UsageError
from pipeline.core.events import Decision, Span, Views
from pipeline.core.framing import Grid
from pipeline.model.build import deciding
from pipeline.model.metrics import OTHER_CLASS, Judged, against_first, fused_log_odds, known, summary
from pipeline.model.model import HeldOut, Model
from pipeline.runtime.process_pool import Engine
from pipeline.stages import Chain
from pipeline.training.examples import Examples, RecordingNote
from pipeline.training.labeled_spans import recording_of


@dataclass(frozen=True, slots=True)
class LearningPlan:
    """How to learn: the same with all examples and without some."""

    grid: Grid
    settings: dict[str, Any]
    seed: int
    components: int
    folds: int
    """Of the validation, 0 for none."""


def learn_validated(
    examples: Examples,
    learning: LearningPlan,
    *,
    engine: Engine,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Model:
    """The model of all examples, with what models without a fold of the recordings decided about that fold.

    `told` hears how many fits are done, and of how many.
    """
    examples.check()
    folds = folds_of(examples, n_folds=learning.folds, seed=learning.seed)
    n_folds = int(folds.max()) + 1
    work = partial(_learn_without, examples=examples, learning=learning, folds=folds)
    found = _finished(work, range(-1, n_folds), engine, told)
    model: Model = found[-1]
    if not n_folds:
        return replace(model, notes=model.notes | {"validation": {"folds": 0}})
    judged = _in_order_of(examples.walkers(), [one for fold in range(n_folds) for one in found[fold]])
    validation = {"folds": n_folds, **summary(by_unit(judged, examples.recordings), examples.classes)}
    return replace(
        model, held_out=HeldOut.of(judged, len(examples.classes)), notes=model.notes | {"validation": validation}
    )


def judged_by_others(
    examples: Examples,
    learning: LearningPlan,
    folds: NDArray[np.int64],
    *,
    engine: Engine,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> dict[int, list[Judged]]:
    """What models that were learned without a fold decide about it, for every fold without which one can learn."""
    work = partial(_judge_if_possible, examples=examples, learning=learning, folds=folds)
    found = _finished(work, range(int(folds.max()) + 1), engine, told)
    return {fold: judged for fold, judged in found.items() if judged is not None}


def _judge_if_possible(
    fold: int, examples: Examples, learning: LearningPlan, folds: NDArray[np.int64]
) -> list[Judged] | None:
    """None where too little is left to learn from, which must not cost what was learned from all."""
    try:
        judged: list[Judged] = _learn_without(fold, examples, learning, folds)
    except UsageError:
        return None
    return judged


def _finished(
    work: Callable[[int], Any], folds: Sequence[int], engine: Engine, told: Callable[[int, int], None]
) -> dict[int, Any]:
    found: dict[int, Any] = {}
    told(0, len(folds))
    for fold, result in engine.finished(work, folds):
        found[fold] = result
        told(len(found), len(folds))
    return found


def by_unit(judged: Iterable[Judged], notes: Iterable[RecordingNote]) -> list[Judged]:
    """The same decisions under the names of the recordings that theirs were cut from, for those are independent."""
    whole = {note.name: note.cut_from or note.name for note in notes}
    return [replace(one, recording=whole[one.recording]) for one in judged]


def _in_order_of(examples: Examples, judged: Sequence[Judged]) -> list[Judged]:
    by_place = {(one.recording, one.start_sample): one for one in judged}
    names = [examples.recordings[number].name for number in examples.recording]
    return [by_place[place] for place in zip(names, examples.start.tolist(), strict=True)]


def folds_of(examples: Examples, *, n_folds: int, seed: int) -> NDArray[np.int64]:
    """A fold for every segment, whole recordings, classes evenly; -1 throughout if there is too little to validate.

    All parts that were cut from one recording are in one fold. Every fold leaves at least two recordings of
    each class to learn from. Recordings of no class, in which nobody is there, are in no fold (-1).
    """
    if n_folds == 0:
        return np.full(len(examples), -1)
    rng, unit = np.random.default_rng([seed, 7]), examples.unit
    codes = range(len(examples.classes))
    fold_of = np.full(len(examples.recordings), -1, np.int64)
    fewest = len(fold_of)
    for code in codes:
        own = rng.permutation(np.unique(unit[examples.label == code]))
        fewest = min(fewest, len(own))
        fold_of[own] = np.arange(len(own))
    n_folds = min(n_folds, fewest)
    folds = np.where(fold_of < 0, -1, fold_of % n_folds)[unit]
    # A recording may have several labels, so it is looked at, not reckoned, what each fold leaves.
    left = [
        len(np.unique(unit[(folds != fold) & (examples.label == code)])) for fold in range(n_folds) for code in codes
    ]
    return folds if min(left) >= 2 else np.full(len(examples), -1)


def _learn_without(fold: int, examples: Examples, learning: LearningPlan, folds: NDArray[np.int64]) -> Any:
    """The model of all examples, for fold -1; else what a model without the fold decides about it."""
    rest = examples if fold < 0 else examples.part(folds != fold)
    # By the process that learns: the one that waits for it needs nothing of it.
    from pipeline.training.fit import learn, learn_presence

    model = learn(rest, learning.grid, learning.settings, seed=learning.seed, n_components=learning.components)
    if fold < 0:
        return replace(model, presence=learn_presence(examples, learning.grid, learning.settings))
    return judge(examples.part(folds == fold).walkers(), model)


def judge_honestly(examples: Examples, model: Model) -> list[Judged]:
    """What a model makes of passages; of those it has learned from, what models that were learned without them made.

    Where that was never tried, a passage is left out. Passages are recognised by their place in the recording, for they
    grow with the labels; the truth is that of the examples, for labels are corrected.
    """
    learned, examples = _learned_places(model), examples.walkers()
    judged = []
    for number, note in enumerate(examples.recordings):
        own = examples.part(examples.recording == number)
        recording, (start, stop) = recording_of(note.name), note.span
        before = {at: one for (name, at), one in learned.items() if name == recording and start <= at < stop}
        for one in judge(own, model) if not before else [before.get(int(at)) for at in own.start]:
            if one is not None:
                truth = own.label[own.start == one.start_sample][0]
                judged.append(replace(one, recording=note.name, truth=int(truth)))
    return judged


def _learned_places(model: Model) -> dict[tuple[str, int], Judged | None]:
    """Recording and first sample of all that a model has learned from, with what models without it decided."""
    memory, notes = model.memory, model.notes["recordings"]
    names = [recording_of(note["recording"]) for note in notes]
    held_out = {
        (names[place], one.start_sample): one
        for place, note in enumerate(notes)
        for one in model.judged_without(note["fingerprint"], note["recording"])
    }
    places = zip((names[place] for place in memory.recording), memory.start.tolist(), strict=True)
    return {place: held_out.get(place) for place in places}


def judge(examples: Examples, model: Model) -> list[Judged]:
    """What the stages make of examples that the model has not seen."""
    chain = Chain(*deciding(model, Choices(health=False, presence=False)))
    judged = []
    recording = -1
    for n in range(len(examples)):
        if examples.recording[n] != recording:
            chain.flush()
            recording = int(examples.recording[n])
        span = Span(int(examples.start[n]), int(examples.start[n]) + model.grid.segment)
        everyone = np.ones(model.n_sensors, np.bool_)
        views = Views(span, span, examples.summary[n], examples.timing[n], examples.present[n], everyone)
        (decision,) = chain.push(views)
        assert isinstance(decision, Decision)
        name = examples.recordings[examples.recording[n]].name
        judged.append(_beside_the_truth(decision, name, int(examples.label[n]), examples.classes))
    return judged


def _beside_the_truth(decision: Decision, recording: str, truth: int, classes: tuple[str, ...]) -> Judged:
    label, verdicts = decision.outcome.label, decision.verdicts
    return Judged(
        recording=recording,
        start_sample=decision.features.span.start,
        truth=truth,
        label=None if label is None else classes.index(label) if label in classes else OTHER_CLASS,
        log_odds=fused_log_odds(decision.outcome.log_odds, decision.outcome.probabilities),
        sensor_log_odds=tuple(map(against_first, verdicts.log_odds)),
        p_values=tuple(map(known, verdicts.screened.p_values)),
    )
