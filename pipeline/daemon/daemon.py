"""`gemmed run`: a source that never ends, the chain, the journal; and what must be done in between."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pipeline import __version__
from pipeline.config.schema import (
    FolderSourceSettings,
    SettingChange,
    Settings,
    SimulatedSourceSettings,
    StreamSourceSettings,
    adopted,
    differences,
    effective,
    read_settings,
    without_secrets,
)
from pipeline.core.errors import GemmedError, StorageError
from pipeline.core.events import ModelChanged, Notice, NoticeKind, RecordingStarted, TrustChanged
from pipeline.core.protocols import Observer, Source
from pipeline.core.runner import run
from pipeline.daemon.board import Board
from pipeline.daemon.delivery import as_delivered, sound_time, usable_sensors
from pipeline.daemon.housekeeping import Housekeeper, SoundKeeper
from pipeline.daemon.meters import Load, Meters
from pipeline.daemon.recorder import Recorder, Show
from pipeline.daemon.rollup_writer import Summaries
from pipeline.model.hot_swap import ArrayInput, Switching
from pipeline.model.model import Model
from pipeline.outputs.notifier import Notifying, wording_of
from pipeline.outputs.targets import routes, services_warning
from pipeline.retraining.controller import LearningThread, Shadowed, Swap
from pipeline.runtime.child_process import ChildProcess
from pipeline.runtime.logs import log, start_logging
from pipeline.runtime.packages import without_web
from pipeline.runtime.state_dir import StateDirectory, new_run
from pipeline.runtime.systemd import Notifier
from pipeline.sources.factory import door, folder, retry_policy, source_name, streamed
from pipeline.sources.live_folder import WatchedFolder
from pipeline.sources.reconnecting import LiveSource
from pipeline.storage.cursors import store_heartbeat, stored_place
from pipeline.storage.journal import utc
from pipeline.storage.stored_events import runs_that_died

if TYPE_CHECKING:
    from pipeline.sources.jetstream import StreamedArray

_BEAT_SECONDS = 5.0
_TELL_SECONDS = 0.5
_RECENT = 1000


class Daemon:
    """One life of the service, from its start to its stop."""

    def __init__(
        self,
        settings: Settings,
        *,
        show: Sequence[Show] = (),
        seconds: float | None = None,
    ) -> None:
        self.settings, self._show = settings, tuple(show)
        self.state, self.run_name = StateDirectory(settings.storage.directory), new_run()
        self._in_file = read_settings(settings.path)
        self._until = None if seconds is None else time.monotonic() + seconds
        self._notifier = Notifier.from_environment()
        self._inbox: deque[Notice] = deque(maxlen=_RECENT)
        self._reload = False
        self._why_stopped = "the source ended"
        self._started = utc(datetime.now(UTC))
        self._beaten_at = self._fed_at = self._told_at = 0.0
        self._child_processes: list[ChildProcess] = []
        self._place: str | None = None
        self._models: dict[str, Model] = {}
        self._next: tuple[ArrayInput, Model | None] | None = None

    def run(self) -> None:
        """Until the source ends, or somebody wants it to stop."""
        self.state.create()
        with self.state.locked(), ExitStack() as stack:
            self._open(stack)
            self._handle_signals(stack)
            self._notifier.ready()
            log.info("listening", run=self.run_name, source=self.settings.source.kind, state=str(self.state.path))
            try:
                run(_Steered(self._source, self._before, self._between), self._chain, self._observers)
            except BaseException as error:
                self._why_stopped = f"{type(error).__name__}: {error}"
                raise
            finally:
                self._notifier.stopping()
                self._stop()

    def _open(self, stack: ExitStack) -> None:
        settings, state = self.settings, self.state
        self._recorder = Recorder(state.journal, self.run_name, show=self._show)
        stack.callback(self._recorder.close)
        self._notifying = Notifying(
            self._recorder, self.run_name, wording_of(settings), least_confidence=settings.decisions.confidence
        )
        self._recorder.watchers.append(self._notifying.see)
        self._tell_beginning()
        storage = settings.storage
        self._housekeeper = Housekeeper(
            state,
            budget_bytes=storage.budget_bytes,
            least_free_bytes=storage.least_free_bytes,
            report=self._inbox.append,
            routes=routes(settings),
        )
        stack.callback(self._housekeeper.finish)
        self._keeper: SoundKeeper | None = None
        if storage.sound == "all":
            self._keeper = SoundKeeper(
                state, self._housekeeper, piece_seconds=storage.piece_seconds, report=self._inbox.append
            )
            stack.callback(self._keeper.close)
        self._learning = LearningThread(state, settings, run=self.run_name)
        stack.callback(self._learning.stop)
        model = self._learning.first_model()
        hearing = ArrayInput.of(model) if model else ArrayInput.usual(settings.array.rate_hz, settings.array.sensors)
        if model:
            self._models = {model.name: model}
        self._chain = Switching(hearing, settings.choices(), model, load=self._models.__getitem__)
        self._source = self._pages()
        self._board = Board(settings.array.sensors)
        self._meters = Meters(settings.array.sensors, settings.array.rate_hz)
        self._load = Load(settings.array.rate_hz)
        self._summaries = Summaries(settings.array.sensors)
        self._observers: list[Observer] = [self._recorder, self._board, self._meters, self._summaries]
        self._child_processes = child_processes(settings, self.run_name)
        stack.callback(self._dismiss_companions)

    def _pages(self) -> LiveSource | WatchedFolder | StreamedArray:
        settings, source = self.settings, self.settings.source
        if isinstance(source, FolderSourceSettings):
            heard = self._recorder.journal.events(types=["file_heard"])
            known = {event.body["identity"] for event in heard}
            open_folder = partial(folder, settings, source)
            return WatchedFolder(open_folder, known=known, name=self._name, retry_policy=retry_policy(settings))
        if isinstance(source, StreamSourceSettings):
            place = stored_place(self._recorder.journal, source_name(settings))
            return streamed(settings, source, place=place, name=self._name)
        return LiveSource(
            door(settings),
            rate_hz=settings.array.rate_hz,
            n_sensors=settings.array.sensors,
            buffer_seconds=settings.buffer.seconds,
            drop_oldest=settings.overload == "drop_oldest",
            recording_seconds=settings.storage.recording_seconds,
            beat=self._chain.hearing.grid.stride,
            name=self._name,
            retry_policy=retry_policy(settings),
        )

    def _name(self, number: int) -> str:
        return f"{self.run_name}-{number:04d}"

    def _tell_beginning(self) -> None:
        for died in runs_that_died(self._recorder.journal):
            self._recorder.observe(Notice(NoticeKind.RUN_DIED, {"run_that_died": died}))
            log.warning("an earlier run ended without a word", run_that_died=died)
        settings = without_secrets(effective(self.settings))
        details = {"version": __version__, "pid": os.getpid(), "settings": settings}
        self._recorder.observe(Notice(NoticeKind.RUN_STARTED, json.loads(json.dumps(details, default=str))))
        self._recorder.commit()

    def _handle_signals(self, stack: ExitStack) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            self._why_stopped = signal.Signals(number).name
            self._source.stop()

        def reload(number: int, frame: FrameType | None) -> None:
            self._reload = True

        for number, handler in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, reload)):
            stack.callback(signal.signal, number, signal.signal(number, handler))

    def _before(self, fact: object) -> None:
        """Sound is on disk before anybody decides about it; what is chosen holds for a whole recording."""
        self._load.begin()
        self._meters.hear(fact)
        if isinstance(fact, RecordingStarted):
            self._chain.choices = self.settings.choices()
            self._recorder.choices = json.dumps(self._chain.choices.as_dict())
            self._meters.alpha = self._chain.choices.alpha
            if self._next is not None:
                self._chain.hearing, self._chain.model = self._next
                self._next = None
        if self._keeper is not None:
            self._keeper.keep(fact)

    def _between(self, fact: object) -> Iterator[object]:
        """After a fact went all the way: store what came of it, then whatever else must be done."""
        self._note_place()
        self._recorder.commit()
        self._notify()
        if isinstance(fact, RecordingStarted):
            yield ModelChanged(0, self._chain.model.name if self._chain.model else "")
        while self._inbox:
            yield self._inbox.popleft()
        if self._reload:
            self._reload = False
            yield from self._reloaded()
        yield from self._learned()
        self._load.end(fact)
        self._beat()
        if self._until is not None and time.monotonic() > self._until:
            self._why_stopped = "its time was over"
            self._source.stop()

    def _notify(self, *, stopping: bool = False) -> None:
        """A notification that cannot be stored now is made by a later call or by the next run."""
        if self._recorder.read_only:
            return
        try:
            self._notifying.step(stopping=stopping)
        except StorageError as error:
            log.warning("the journal cannot be read for notifications", why=str(error))

    def _note_place(self) -> None:
        """Where the next start goes on, if the source can do that."""
        if self._source.place is not None and self._source.place != self._place:
            self._place = self._source.place
            self._recorder.note_place(source_name(self.settings), self._place)

    def _learned(self) -> Iterator[object]:
        while (word := self._learning.word()) is not None:
            if isinstance(word, Swap):
                yield from self._swap(word.model)
            elif isinstance(word, Shadowed):
                self._chain.shadow(word.model, word.comparison)
            else:
                yield word

    def _swap(self, model: Model) -> Iterator[object]:
        self._models.clear()
        self._models[model.name] = model
        self._chain.shadow(None)
        if ArrayInput.of(model) == self._chain.hearing:
            yield ModelChanged(self._source.position, model.name)
        else:
            self._next = ArrayInput.of(model), model
            self._source.turn_page()
        log.info("another model decides", model=model.name)

    def _reloaded(self) -> Iterator[object]:
        self._notifier.reloading()
        try:
            fresh = read_settings(self.settings.path)
            settings = adopted(self.settings, self._in_file, fresh)
        except GemmedError as error:
            log.error("the settings stay as they were", why=str(error))
            yield Notice(NoticeKind.SETTINGS_RELOADED, {"error": str(error)}, self._source.position)
        else:
            found, self._in_file = differences(self._in_file, fresh), fresh
            yield from self._adopt(settings, found)
        self._notifier.ready()

    def _adopt(self, settings: Settings, found: list[SettingChange]) -> Iterator[object]:
        told = [
            {"setting": one.key, "before": one.before, "after": one.after, "takes_effect": one.takes_effect}
            for one in found
        ]
        yield Notice(NoticeKind.SETTINGS_RELOADED, {"changes": told}, self._source.position)
        for one in found:
            log.info("setting changed", setting=one.key, after=one.after, takes_effect=one.takes_effect)
        before, self.settings = self.settings, settings
        start_logging(settings.log.level, settings.log.format)
        self._housekeeper.budget_bytes = settings.storage.budget_bytes
        self._housekeeper.least_free_bytes = settings.storage.least_free_bytes
        self._housekeeper.routes = routes(settings)
        self._learning.settings = settings
        self._notifying.wording = wording_of(settings)
        self._notifying.least_confidence = settings.decisions.confidence
        if _outside(settings) != _outside(before):
            self._dismiss_companions()
            self._child_processes = child_processes(settings, self.run_name)
        if settings.array.mask != before.array.mask:
            trusted = [sensor + 1 not in settings.array.mask for sensor in range(settings.array.sensors)]
            yield TrustChanged(self._source.position, np.array(trusted))
        if any(one.takes_effect == "next recording" for one in found):
            self._source.turn_page()

    def _beat(self) -> None:
        """The watchdog is fed by what was processed; the status is for people."""
        now = time.monotonic()
        watched = self._notifier.watchdog_seconds
        if watched and now - self._fed_at > watched / 4:
            self._fed_at = now
            self._notifier.alive()
        if self._child_processes and now - self._told_at > _TELL_SECONDS:
            self._told_at = now
            self._tell_companions()
        if now - self._beaten_at < _BEAT_SECONDS or self._recorder.read_only:
            return
        self._beaten_at = now
        try:
            store_heartbeat(self._recorder.journal, self._status())
            self._summaries.write(self._recorder.journal)
        except StorageError as error:
            log.warning("the status cannot be stored", why=str(error))

    def _tell_companions(self) -> None:
        snapshot = json.dumps({"status": self._status(), "last_id": self._recorder.last_id}).encode()
        for child in self._child_processes:
            child.tell(snapshot)

    def _dismiss_companions(self) -> None:
        for child in self._child_processes:
            child.stop()

    def _status(self) -> dict[str, Any]:
        model, outlook = self._chain.model, self._housekeeper.outlook
        board, measured = self._board.as_dict(), self._meters.sensors()
        now = datetime.now(UTC)
        sensors = [
            as_delivered(known | numbers, now) for known, numbers in zip(board.pop("sensors"), measured, strict=True)
        ]
        return {
            "run": self.run_name,
            "started": self._started,
            "time": utc(now),
            "pid": os.getpid(),
            "version": __version__,
            "source": self.settings.source.kind,
            "simulated": isinstance(self.settings.source, SimulatedSourceSettings),
            "names": self.settings.labels.names,
            "sound_time": sound_time(sensors),
            "usable_sensors": usable_sensors(sensors),
            "rate_hz": self.settings.array.rate_hz,
            "sample": self._source.position,
            "backlog_seconds": round(self._source.backlog_seconds, 2),
            "buffer_seconds": self.settings.buffer.seconds,
            "samples_lost": self._source.lost,
            "samples_not_kept": self._keeper.lost if self._keeper else None,
            "source_restarts": max(self._source.openings - 1, 0),
            "real_time_factor": self._load.factor,
            "resident_mb": round(_resident_bytes() / 1e6, 1),
            "cpu_seconds": round(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), 2),
            "journal_writable": not self._recorder.read_only,
            "storage": outlook.as_dict() if outlook else None,
            "false_passages": self._housekeeper.false_passages,
            "outputs": self._housekeeper.backlogs,
            "alpha": self._meters.alpha,
            "contamination": model.notes["contamination"] if model else None,
            "reference_windows": model.reference_windows if model else None,
            "model_decides": model is not None and model.decides,
            **self._learning.as_dict(),
            **board,
            **self._notifying.as_dict(),
            "sensors": sensors,
        }

    def _stop(self) -> None:
        details = {"why": self._why_stopped, "decisions": self._board.decisions, "samples_lost": self._source.lost}
        self._recorder.commit()
        self._notify(stopping=True)
        self._recorder.observe(Notice(NoticeKind.RUN_STOPPED, details))
        self._recorder.commit()  # while there are child processes that forward it
        self._beaten_at = 0.0
        self._beat()
        log.info("stopped", **details)


def child_processes(settings: Settings, run: str) -> list[ChildProcess]:
    """Those that the settings ask for."""
    modules = []
    if settings.web.enabled:
        if missing := without_web():
            log.warning("there is no dashboard", why=missing)
        else:
            modules.append("pipeline.web")
    if warning := services_warning(settings):
        log.warning("notifications may not be sent", why=warning)
    if routes(settings):
        modules.append("pipeline.outputs.process")
    return [ChildProcess(module, settings, run) for module in modules]


def _outside(settings: Settings) -> tuple[object, ...]:
    """Return the settings that child processes read once, at their start."""
    return settings.web, settings.notifications, settings.mqtt, settings.webhook


class _Steered:
    """A source with somebody who acts before and after every fact of it, and has facts of his own."""

    def __init__(
        self, source: Source, before: Callable[[object], None], between: Callable[[object], Iterator[object]]
    ) -> None:
        self._source, self._before, self._between = source, before, between

    def __enter__(self) -> Self:
        self._source.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._source.__exit__(*exc)

    def __iter__(self) -> Iterator[object]:
        for fact in self._source:
            self._before(fact)
            yield fact
            yield from self._between(fact)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
