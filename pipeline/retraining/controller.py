"""Learning beside deciding: labels from a file, retraining in a process of its own, a shadow run, and the swap."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from threading import Event, Lock, Thread
from typing import Any

from pipeline.config.schema import Settings, SimulatedSourceSettings
from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import GemmedError, ModelError
from pipeline.core.events import Notice, NoticeKind
from pipeline.model.build import warmed_chain
from pipeline.model.hot_swap import Comparison
from pipeline.model.model import Model
from pipeline.model.shadow import Shadow
from pipeline.model.starter import starter_model
from pipeline.retraining.history import Rounds
from pipeline.retraining.job import Job
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registered, Registry
from pipeline.retraining.schedule import Schedule
from pipeline.runtime.logs import log
from pipeline.runtime.state_dir import StateDirectory
from pipeline.sources.factory import simulated_site
from pipeline.storage.journal import Journal
from pipeline.storage.labels import WatchedLabels, learned_until, new_labels
from pipeline.storage.recordings import kept_seconds
from pipeline.storage.stored_events import has_drifted

_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 30.0
"""Between the beginnings of two attempts, at least: one may fail before it can tell of itself."""
_GATEKEEPER = "gemmed"


@dataclass(frozen=True, slots=True)
class Swap:
    """This model shall decide from now on."""

    model: Model


@dataclass(frozen=True, slots=True)
class Shadowed:
    """This model shall decide beside the other, without effect; none: no longer."""

    model: Model | None
    comparison: Comparison | None


Word = Swap | Shadowed | Notice


class LearningThread:
    """A thread with a connection of its own to the journal; what it wants it says by `word`, to be asked for.

    The champion of the registry is the model that should decide, whoever made it so. A challenger there has passed the
    gate; it decides in the shadow for a while, and becomes champion if nothing speaks against it.
    """

    def __init__(self, state: StateDirectory, settings: Settings, *, run: str) -> None:
        self._state, self.settings, self._run = state, settings, run
        self._words: deque[Word] = deque()
        self._deciding = ""
        self._champion: Registered | None = None
        self._rounds = Rounds()
        self._trial: _Trial | None = None
        self._retraining = RetrainingProcess(state, run)
        self._labels: WatchedLabels | None = None
        self._stopped = Event()
        self._thread = Thread(target=self._work, name="learning", daemon=True)

    def first_model(self) -> Model | None:
        """The champion, if there is one, or the model of the settings; from now on the registry is watched."""
        with Journal(self._state.journal) as journal:
            registry = Registry(self._state.models, journal, run=self._run)
            given = self.settings.training.model
            if registry.champion() is None and given is not None:
                added = registry.add(
                    Model.load(given),
                    origin=ModelOrigin.GIVEN,
                    status=ModelStatus.CHALLENGER,
                    why="given",
                    facts={},
                    told=None,
                )
                registry.promote(added.name, who="settings", why=f"training.model = {given}")
            elif registry.champion() is None and (starter := self._starter()) is not None:
                added = registry.add(
                    starter,
                    origin=ModelOrigin.STARTER,
                    status=ModelStatus.RETIRED,
                    why="it comes with gemmed",
                    told=None,
                )
                registry.promote(added.name, who="gemmed", why="the array is simulated, and nothing else is given")
            model = registry.load_champion()
            self._champion = registry.champion()
            self._rounds.look(journal)
        if model is not None and (why := self._unfit(model)):
            raise ModelError(
                f"model {model.name} in {self._state.path} cannot decide here: {why}; change array.sensors and "
                "array.rate, or give another storage.directory"
            )
        if model is not None:
            warmed_chain(model, self.settings.choices())
        self._deciding = model.name if model else ""
        self._thread.start()
        return model

    def _starter(self) -> Model | None:
        """The packaged model, if the array is a simulated day that it fits."""
        settings = self.settings
        is_day = isinstance(settings.source, SimulatedSourceSettings) and settings.source.scene == "day"
        if not is_day or settings.training.recordings is not None:
            return None
        return starter_model(settings.array.rate_hz, settings.array.sensors)

    def word(self) -> Word | None:
        return self._words.popleft() if self._words else None

    def stop(self) -> None:
        self._stopped.set()
        if self._retraining.running:
            log.info("learning is broken off; the next start begins it anew")
        self._retraining.stop()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def as_dict(self) -> dict[str, Any]:
        champion, training = self._champion, self.settings.training
        return {
            "learning": self._under_way(),
            "model_origin": str(champion.origin) if champion else None,
            "model_trained": champion.time if champion else None,
            "training_interval_seconds": training.interval_seconds if training.enabled else None,
            "rounds": self._rounds.as_dict(),
        }

    def _under_way(self) -> str | None:
        trial = self._trial
        if self._retraining.running:
            return "in progress"
        return f"{trial.name} decides in the shadow" if trial else None

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                with Journal(self._state.journal) as journal:
                    registry = Registry(self._state.models, journal, run=self._run)
                    while not self._stopped.wait(_LOOK_SECONDS) and journal.in_place:
                        self._look(journal, registry)
            except (GemmedError, OSError) as error:
                log.warning("learning waits", why=str(error))
                self._stopped.wait(10 * _LOOK_SECONDS)
            except Exception:
                # A mistake must be seen; but deciding goes on for months, and so must this.
                log.exception("learning failed; it is tried again")
                self._stopped.wait(10 * _LOOK_SECONDS)

    def _look(self, journal: Journal, registry: Registry) -> None:
        self._read_labels(journal)
        self._follow(registry)
        self._rounds.look(journal)
        self._try_challenger(registry)
        if self.settings.training.enabled:
            self._words.extend(self._retraining.look(journal, registry, self.settings))

    def _read_labels(self, journal: Journal) -> None:
        file = self.settings.labels.file
        if file is None:
            return
        if self._labels is None or self._labels.path != file:
            self._labels = WatchedLabels(file)
        if not self._labels.changed(journal):
            return
        given, wrong = self._labels.give_new(journal)
        if given:
            log.info("labels were read", file=str(file), labels=given)
        for trouble in wrong:
            log.warning("a label cannot be used", why=trouble)
            self._words.append(Notice(NoticeKind.LABEL_REFUSED, {"why": trouble}))

    def _follow(self, registry: Registry) -> None:
        """Whoever is champion shall decide."""
        champion = self._champion = registry.champion()
        if champion is None or champion.name == self._deciding:
            return
        model = registry.load_champion()
        if model is None or model.name == self._deciding:
            return
        if why := self._unfit(model):
            registry.refuse(model.name, why=why, facts={})
            raise ModelError(f"model {model.name} cannot decide here: {why}; promote another")
        warmed_chain(model, self.settings.choices())
        self._deciding, self._trial = model.name, None
        self._words.append(Swap(model))

    def _unfit(self, model: Model) -> str | None:
        """Why a model cannot decide about this array; None if it can."""
        array = self.settings.array
        if (model.grid.rate_hz, model.n_sensors) == (array.rate_hz, array.sensors):
            return None
        return (
            f"it is for {model.n_sensors} sensors at {model.grid.rate_hz} Hz, "
            f"the settings say {array.sensors} at {array.rate_hz} Hz"
        )

    def _try_challenger(self, registry: Registry) -> None:
        challenger = registry.challenger()
        if challenger is None:
            self._trial = None
        elif self._trial is None or self._trial.name != challenger.name:
            self._begin_trial(registry, challenger)
        elif self._trial.shadow.done:
            self._end_trial(registry, self._trial)

    def _begin_trial(self, registry: Registry, challenger: Registered) -> None:
        try:
            model = registry.load(challenger.name)
        except ModelError as error:
            registry.refuse(challenger.name, why=str(error), facts={})
            return
        seconds = self.settings.training.shadow_seconds
        segments = round(seconds / model.grid.segment_seconds)
        # Where nobody decides yet, there is nobody to be compared with.
        if not self._deciding or segments == 0:
            self._trial = None
            registry.promote(challenger.name, who=_GATEKEEPER, why="it passed the gate")
            return
        warmed_chain(model, self.settings.choices())
        self._trial = _Trial(challenger.name, Shadow(segments, self.settings.decisions.alpha))
        self._words.append(Shadowed(model, self._trial.shadow))
        self._words.append(Notice(NoticeKind.SHADOW_STARTED, {"model": challenger.name, "segments": segments}))

    def _end_trial(self, registry: Registry, trial: _Trial) -> None:
        verdict = trial.shadow.verdict()
        self._trial = None
        self._words.append(Shadowed(None, None))
        self._words.append(Notice(NoticeKind.SHADOW_FINISHED, {"model": trial.name, **verdict}))
        if verdict["passed"]:
            registry.promote(trial.name, who=_GATEKEEPER, why="it passed the gate and its shadow run")
        else:
            registry.refuse(trial.name, why="; ".join(verdict["reasons"]), facts={"shadow": verdict})


@dataclass(frozen=True, slots=True)
class _Trial:
    name: str
    shadow: Shadow


class RetrainingProcess:
    """The process that learns: when to start it, and what came of it."""

    def __init__(self, state: StateDirectory, run: str) -> None:
        self._state, self._run = state, run
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = -inf
        # Whoever stops is another thread than whoever looks: nothing may be started after it was stopped.
        self._lock, self._stopped = Lock(), False

    @property
    def running(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            process.kill()
            process.wait()
            _close_pipe(process)

    def look(self, journal: Journal, registry: Registry, settings: Settings) -> Iterator[Notice]:
        process = self._process
        if process is not None:
            code = process.poll()
            if code is None:
                return
            _close_pipe(process)
            self._process = None
            # Whoever was killed could not tell it himself.
            if code < 0:
                log.error("retraining was killed", signal=-code)
                yield Notice(NoticeKind.RETRAINING_FAILED, {"why": f"its process was ended by signal {-code}"})
            return
        if time.monotonic() - self._started_at < _RETRY_SECONDS:
            return
        if registry.champion() is None:
            self._begin(journal, settings)
        elif registry.challenger() is None and (why := self._due(journal, settings)):
            log.info("retraining", why=why)
            self._start(settings, starter=False)

    def _begin(self, journal: Journal, settings: Settings) -> None:
        """The first model of all, from what the settings give; else from what was heard by now."""
        training = settings.training
        starter = training.recordings is not None or isinstance(settings.source, SimulatedSourceSettings)
        if starter or kept_seconds(journal) >= training.seconds_unlabelled:
            log.info("a first model is made", unlabelled=not starter)
            self._start(settings, starter=starter)

    def _due(self, journal: Journal, settings: Settings) -> str | None:
        training = settings.training
        schedule = Schedule(training.interval_seconds, training.new_labels, training.on_drift, training.pause_seconds)
        started = next(journal.events(types=["retraining_started"], most=1, newest_first=True), None)
        drift = has_drifted(journal, after=learned_until(journal))
        last = datetime.fromisoformat(started.time) if started else None
        return schedule.due(datetime.now(UTC), last, new_labels(journal), drift=drift)

    def _start(self, settings: Settings, *, starter: bool) -> None:
        self._started_at = time.monotonic()
        job = self._state.path / "retraining.json"
        for leftover in job.parent.glob(f"{job.name}.*.partial"):
            leftover.unlink()
        write_whole(job, _job(settings, self._run).encode())
        command = [sys.executable, "-m", "pipeline.retraining.worker", "--state", str(self._state.path)]
        command += ["--job", str(job), "--background", *(["--starter"] if starter else [])]
        with self._lock:
            if not self._stopped:
                # It reads from the pipe until that ends: when the daemon is gone, however that happens, so is it.
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE)


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def _job(settings: Settings, run: str) -> str:
    training, source = settings.training, settings.source
    return Job(
        run=run,
        classes=training.classes,
        segments=training.segments,
        worse=training.worse,
        contamination=training.contamination,
        unlabelled_seconds=training.seconds_unlabelled,
        keep_models=training.keep_models,
        recordings=() if training.recordings is None else (training.recordings,),
        labels=training.labels,
        simulated=simulated_site(settings) if isinstance(source, SimulatedSourceSettings) else None,
    ).model_dump_json()
