"""What a daemon does beside deciding: finish pieces of sound, keep within the budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, Queue
from threading import Thread

from pipeline.errors import StorageError
from pipeline.events import Block, Notice, NoticeKind, RecordingStarted
from pipeline.service.logs import log
from pipeline.service.state import StateDirectory
from pipeline.sinks.journal import Journal
from pipeline.sinks.retention import Retention
from pipeline.sinks.sound import Part, SoundStore, Spool

_MOST_PARTS = 32
_BUDGET_SECONDS = 30.0
_RETRY_SECONDS = 5.0


class Housekeeper:
    """A thread with a connection of its own to the journal; what it has to tell it leaves with `report`."""

    def __init__(
        self, state: StateDirectory, *, budget_bytes: int, least_free_bytes: int, report: Callable[[Notice], None]
    ) -> None:
        self._state, self._report = state, report
        self.budget_bytes, self.least_free_bytes = budget_bytes, least_free_bytes
        self._parts: Queue[Part | None] = Queue(_MOST_PARTS)
        self._failed: list[Part] = []
        self._budget_at = time.monotonic()
        self._low = False
        self._thread = Thread(target=self._work, name="housekeeping", daemon=True)
        self._thread.start()

    def hand_over(self, part: Part) -> None:
        """Waits while there is too much to do: whoever hears faster than can be stored must slow down."""
        self._parts.put(part)

    def finish(self, *, seconds: float = 3.0) -> None:
        """Do what is left; what is not done by then, the next start does."""
        self._parts.put(None)
        self._thread.join(seconds)

    def _work(self) -> None:
        self._recover()
        while True:
            try:
                with Journal(self._state.journal) as journal:
                    self._keep_house(journal)
                    return
            except (StorageError, OSError) as error:
                log.warning("sound cannot be stored; it is tried again", why=str(error))
                time.sleep(_RETRY_SECONDS)

    def _recover(self) -> None:
        """Pieces of runs that were killed; those of this one are not there yet."""
        try:
            with Journal(self._state.journal) as journal:
                self._failed = SoundStore(self._state.sound, journal).left_behind()
        except StorageError as error:
            log.warning("sound of earlier runs cannot be found", why=str(error))

    def _keep_house(self, journal: Journal) -> None:
        store = SoundStore(self._state.sound, journal)
        while True:
            while self._failed:
                store.keep(self._failed[0])
                self._failed.pop(0)
            try:
                part = self._parts.get(timeout=1.0)
            except Empty:
                pass
            else:
                if part is None:
                    return
                self._failed.append(part)
            if time.monotonic() - self._budget_at > _BUDGET_SECONDS:
                self._budget_at = time.monotonic()
                self._enforce(journal)

    def _enforce(self, journal: Journal) -> None:
        pruned = Retention(self._state.path, journal, self.budget_bytes, self.least_free_bytes).enforce()
        if pruned is None:
            self._low = False
            return
        if pruned.removed or pruned.events_removed:
            self._report(Notice(NoticeKind.STORAGE_PRUNED, pruned.as_dict()))
        if pruned.bytes_over and not self._low:
            self._low = True
            self._report(Notice(NoticeKind.STORAGE_LOW, pruned.as_dict()))


class SoundKeeper:
    """Puts sound on disk before it is decided about; if the disk refuses, sound is heard but not kept."""

    def __init__(self, state: StateDirectory, housekeeper: Housekeeper, *, piece_seconds: float) -> None:
        self._spool = Spool(state.sound, piece_seconds=piece_seconds, finished=housekeeper.hand_over)
        self._started: RecordingStarted | None = None
        self._refused_at: float | None = None
        self.lost = 0
        """Samples of every sensor that were heard but not kept."""

    def keep(self, fact: object) -> None:
        if isinstance(fact, RecordingStarted):
            self._started = fact
            self._try(lambda: self._begin(fact), 0)
        elif isinstance(fact, Block):
            self._try(lambda: self._spool.write(fact), fact.stop - fact.start)

    def _begin(self, started: RecordingStarted) -> None:
        self._spool.begin(started.recording, started.rate_hz)

    def _try(self, action: Callable[[], None], samples: int) -> None:
        if self._refused_at is not None:
            if time.monotonic() - self._refused_at < _RETRY_SECONDS:
                self.lost += samples
                return
            self._refused_at = None
        try:
            action()
        except OSError as error:
            log.warning("sound cannot be kept", why=str(error))
            self._refused_at = time.monotonic()
            self.lost += samples
            self._spool.abandon()

    def close(self) -> None:
        try:
            self._spool.finish()
        except OSError:
            self._spool.abandon()
