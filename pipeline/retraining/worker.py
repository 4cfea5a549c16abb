"""Learn from what was labelled since, in a process of its own: `python -m pipeline.retraining.worker --state DIR`.

What it learns goes into the registry as a challenger, or refused with the reasons; it never decides anything by itself.
Killed at any moment it leaves nothing half-done that anybody would see, and the next run goes on from there.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from threading import Thread
from typing import Any

from pipeline.core.errors import GemmedError, UsageError
from pipeline.core.events import NoticeKind, RecordingStarted, Views
from pipeline.model.build import listening
from pipeline.model.hot_swap import ArrayInput
from pipeline.model.metrics import Judged
from pipeline.model.model import Model
from pipeline.model.starter import is_starter
from pipeline.retraining.background import is_presumed, presumed_background
from pipeline.retraining.bootstrap import References, from_files, from_simulation, from_stream, latest_sound
from pipeline.retraining.example_store import ExampleStore
from pipeline.retraining.gate import Gate
from pipeline.retraining.job import Job
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry
from pipeline.runtime.logs import log, start_logging
from pipeline.runtime.process_pool import ThisProcess
from pipeline.stages import Chain
from pipeline.stages.background import BACKGROUND_SECONDS
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal, JournalEntry
from pipeline.storage.label_table import current_stretches
from pipeline.storage.recordings import stored_ends
from pipeline.training.cross_validation import LearningPlan, judge_honestly, learn_validated
from pipeline.training.examples import Examples
from pipeline.training.fit import learn_unlabelled
from pipeline.training.labeled_spans import LabeledPassage, LabeledSpan, passages
from pipeline.training.labels import is_class, is_nobody

CLASSES = ("human", "human_animal")


class TrainingOutcome(IntEnum):
    """What came of it; the exit code of the process."""

    PASSED = 0
    FAILED = 1
    REFUSED = 3
    NOTHING = 4  # to learn from yet


class Workshop:
    """A state directory while somebody learns in it: what was heard and labelled, the examples, the models."""

    def __init__(self, state: Path, journal: Journal, job: Job) -> None:
        self.job, self.journal = job, journal
        self.gate = Gate(job.worse, job.contamination, job.passages)
        self.registry = Registry(state / "models", journal, run=job.run)
        self.sound = SoundStore(state / "sound", journal)
        self.examples = ExampleStore(state / "examples", most_segments=job.segments, trouble=log.warning)
        self.champion = self.registry.load_champion()

    @property
    def classes(self) -> tuple[str, ...]:
        """Those of the job, else those of the champion and all others of which enough passages are labeled.

        The classes of the model that comes with gemmed give way to two or more that are labeled.
        """
        if self.job.classes or self.champion is None:
            return self.job.classes or CLASSES
        enough = {name for name, n in self._labeled_passages().items() if n >= self.gate.least_passages}
        if self._is_with_starter and len(enough) > 1:
            return tuple(sorted(enough))
        return self.champion.classes + (() if self._is_with_starter else self._new(enough))

    def _new(self, classes: set[str]) -> tuple[str, ...]:
        assert self.champion is not None
        return tuple(sorted(classes - set(self.champion.classes)))

    @property
    def _is_with_starter(self) -> bool:
        """Whether the packaged model decides; its classes give way to those that are labeled."""
        return self.champion is not None and is_starter(self.champion)

    def _labeled_passages(self) -> Counter[str]:
        """Count the labeled passages of each class."""
        assert self.champion is not None
        labels = {
            recording: [one for one in stretches if is_class(one.label)]
            for recording, stretches in current_stretches(self.journal).items()
        }
        found = passages(labels, rate_hz=self.champion.grid.rate_hz)
        return Counter(label for one in found for label in {stretch.label for stretch in one.stretches})

    def learn(self) -> TrainingOutcome:
        """Bring the examples up to date, learn from them, and let the gate judge what was learned."""
        if self.champion is None:
            return self._start_unlabelled()
        new = self._update(ArrayInput.of(self.champion))
        try:
            examples = self.examples.load(self.classes)
            if missing := self.gate.missing(examples):
                return self._nothing(self._few_labels() if self._is_with_starter else "; ".join(missing))
            log.info("learning", segments=len(examples), passages=len(examples.recordings), new_passages=new)
            model = self._learned(examples, ArrayInput.of(self.champion))
        except UsageError as error:
            return self._nothing(str(error))
        return self._judged(replace(model, usual=self.champion.usual), examples)

    def _few_labels(self) -> str:
        """Say what replaces the packaged model, which has classes that nobody has to label."""
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self._labeled_passages().items()))
        return (
            f"passages labeled so far: {counts or 'none'}; label {self.gate.least_passages} of each of at least two "
            "classes to replace the starter model"
        )

    def _not_learned(self) -> str:
        """Say which labels are of no class: nobody would see otherwise that they change nothing."""
        counts = [f"{name} {n}" for name, n in sorted(self._labeled_passages().items()) if name not in self.classes]
        if not counts:
            return ""
        cure = (
            "name all classes in training.classes to learn them, too, and start gemmed run again"
            if self.job.classes
            else f"label {self.gate.least_passages} of each to learn them, too"
        )
        return f"; labeled passages that it does not learn from: {', '.join(counts)}; {cure}"

    def start(self) -> TrainingOutcome:
        """The first model, from recordings or a simulated site; they stay among the examples as references."""
        job = self.job
        if self.champion is not None:
            return self._nothing("there is a model already")
        if job.simulated is not None:
            given = from_simulation(job.simulated, classes=self.classes)
        elif job.recordings and job.labels:
            given = from_files(job.recordings, job.labels, job.classes)
        else:
            raise UsageError("a starter needs recordings and labels, or a simulated site; give either in the job")
        return self._started(given)

    def _started(self, given: References) -> TrainingOutcome:
        self.examples.forget_references()
        for passage, heard in given.passages():
            self.examples.add_reference(passage, heard, segment=given.hearing.grid.segment)
        self.examples.thin()
        for trouble in given.troubles:
            log.warning(trouble.message, where=trouble.where)
        examples = self.examples.load(given.classes)
        model = replace(self._learned(examples, given.hearing), usual=given.usual())
        return self._first(model, ModelOrigin.STARTER, "the first model")

    def _start_unlabelled(self) -> TrainingOutcome:
        """Without a model and labels enough: at least know how far each sensor can be believed."""
        places = latest_sound(self.journal, self.job.unlabelled_seconds)
        if not places:
            return self._nothing(f"less than {self.job.unlabelled_seconds:g} s were heard; wait")
        heard = from_stream(places, self.sound, self.journal, self.classes)
        try:
            model = learn_unlabelled(
                heard.examples,
                heard.hearing.grid,
                heard.hearing.settings,
                seed=self.job.seed,
                n_components=self.job.components,
            )
        except UsageError as error:
            return self._nothing(str(error))
        return self._first(replace(model, usual=heard.usual), ModelOrigin.UNLABELLED, "nothing is labelled yet")

    def _first(self, model: Model, origin: ModelOrigin, why: str) -> TrainingOutcome:
        """Nothing is there that it could be worse than.

        Never a challenger, not for a moment: the daemon would try it, and promote it at the same time.
        """
        added = self.registry.add(model, origin=origin, status=ModelStatus.RETIRED, why=why)
        if added.status is not ModelStatus.CHAMPION:
            self.registry.promote(added.name, who="gemmed", why=why)
        _tell(
            self.journal,
            self.job,
            NoticeKind.RETRAINING_FINISHED,
            status=ModelStatus.CHAMPION,
            model=added.name,
            why=why,
        )
        return TrainingOutcome.PASSED

    def _learned(self, examples: Examples, hearing: ArrayInput) -> Model:
        learning = LearningPlan(hearing.grid, hearing.settings, self.job.seed, self.job.components, self.job.folds)
        return learn_validated(
            examples, learning, engine=ThisProcess(), told=lambda done, of: log.info("learned", fits=done, of=of)
        )

    def _judged(self, model: Model, examples: Examples) -> TrainingOutcome:
        honest = judge_honestly(examples, model)
        opposed = self._opposed(model, examples)
        verdict = self.gate.judge(model, honest, self.champion, opposed, classes_may_change=self._may_replace(model))
        status = ModelStatus.CHALLENGER if verdict["passed"] else ModelStatus.REFUSED
        why = "; ".join(verdict["reasons"]) or "nothing says that it is worse than the champion"
        known = {one.name for one in self.registry.all()}
        added = self.registry.add(
            model,
            origin=ModelOrigin.RETRAINED,
            status=status,
            why=why,
            facts={"gate": verdict},
            told=NoticeKind.RETRAINING_FINISHED,
        )
        self.registry.prune(self.job.keep_models)
        if added.name in known:
            why = f"what is labelled gives the model {added.name} again, which is {added.status}"
            return self._nothing(why + self._not_learned())
        log.info("judged", model=added.name, status=status, why=why)
        return TrainingOutcome.PASSED if verdict["passed"] else TrainingOutcome.REFUSED

    def _opposed(self, challenger: Model, examples: Examples) -> list[Judged]:
        """Judge the examples by the champion, if the challenger has its classes or may have others."""
        if self.champion is None or not self.champion.decides:
            return []
        if self.champion.classes != challenger.classes and not self._may_replace(challenger):
            return []
        return judge_honestly(examples, self.champion)

    def _may_replace(self, challenger: Model) -> bool:
        """Whether it may have other classes than the champion: more of them, or those that are labeled."""
        return self.champion is not None and (
            self._is_with_starter or set(self.champion.classes) < set(challenger.classes)
        )

    def _update(self, hearing: ArrayInput) -> int:
        labels = current_stretches(self.journal)
        wanted = self._wanted(labels, hearing)
        background = presumed_background(self.journal, labels, hearing)
        return self.examples.update(
            [*wanted, *background],
            self._hear(hearing),
            segment=hearing.grid.segment,
            labelled={*labels, *(one.recording for one in background), *self._presumed()},
        )

    def _presumed(self) -> set[str]:
        """Recordings of which background is stored that may have to go."""
        return {one.recording for one in self.examples.passages() if is_presumed(one)}

    def _wanted(self, labels: Mapping[str, Sequence[LabeledSpan]], hearing: ArrayInput) -> list[LabeledPassage]:
        """Passages of the classes, and of nobody, as far as their sound is kept by now."""
        until = stored_ends(self.journal, hearing.grid.rate_hz, hearing.n_sensors)
        known = {
            recording: [
                LabeledSpan(one.start, min(one.stop, until[recording]), one.label)
                for one in stretches
                if (one.label in self.classes or is_nobody(one.label)) and one.start < until[recording]
            ]
            for recording, stretches in labels.items()
            if recording in until
        }
        return passages(known, rate_hz=hearing.grid.rate_hz)

    def _hear(self, hearing: ArrayInput) -> Callable[[LabeledPassage], Iterator[Views]]:
        sensors = tuple(map(str, range(1, hearing.n_sensors + 1)))

        def hear(passage: LabeledPassage) -> Iterator[Views]:
            chain = Chain(*listening(hearing.grid, hearing.settings))
            chain.push(RecordingStarted(passage.recording, hearing.grid.rate_hz, sensors))
            # What came before is the background that the passage stands out from.
            lead = max(0, passage.start - round(BACKGROUND_SECONDS * hearing.grid.rate_hz))
            for item in self.sound.read(passage.recording, lead, passage.stop):
                yield from (
                    fact for fact in chain.push(item) if isinstance(fact, Views) and fact.span.start >= passage.start
                )

        return hear

    def _nothing(self, why: str) -> TrainingOutcome:
        log.info("nothing to learn", why=why)
        _tell(self.journal, self.job, NoticeKind.RETRAINING_FINISHED, status="nothing", why=why)
        return TrainingOutcome.NOTHING


@contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Two would undo each other's work; the lock goes with its process, however that ends."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "retraining.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"somebody else is learning in {state}; wait until it is done") from error
        yield


def run(state: Path, job: Job, *, starter: bool = False) -> TrainingOutcome:
    """One round of learning, told in the journal from beginning to end."""
    with _alone(state), Journal(state / "journal.sqlite") as journal:
        _tell(journal, job, NoticeKind.RETRAINING_STARTED, starter=starter)
        try:
            workshop = Workshop(state, journal, job)
            workshop.registry.clean()
            return workshop.start() if starter else workshop.learn()
        except Exception as error:
            told = str(error) if isinstance(error, GemmedError) else f"{type(error).__name__}: {error}"
            _tell(journal, job, NoticeKind.RETRAINING_FAILED, why=told)
            raise


def _tell(journal: Journal, job: Job, kind: NoticeKind, **details: Any) -> None:
    journal.append([JournalEntry(job.run, {"type": kind.value, **details})])


def _stay_behind() -> None:
    """Whatever else this machine does comes first; and whoever started this must not be outlived."""
    os.nice(19)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(TrainingOutcome.FAILED)

    Thread(target=watch, daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.retraining.worker", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="the directory that gemmed run uses")
    parser.add_argument("--job", type=Path, metavar="FILE", help="what is chosen about it, in JSON")
    parser.add_argument("--starter", action="store_true", help="make the first model, from what the job gives")
    parser.add_argument("--background", action="store_true", help="at low priority, until standard input ends")
    given = parser.parse_args(arguments)
    start_logging("info", "auto")
    if given.background:
        _stay_behind()
    try:
        job = Job.read(given.job) if given.job else Job()
        return run(given.state, job, starter=given.starter)
    except GemmedError as error:
        log.error(str(error))
    except Exception:
        log.exception("learning failed")
    return TrainingOutcome.FAILED


if __name__ == "__main__":
    sys.exit(main())
