"""What a daemon does beside deciding: finish pieces of sound, keep within the budget."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from threading import Condition, Thread
from typing import Any

from pipeline.core.errors import StorageError
from pipeline.core.events import Block, Notice, NoticeKind, RecordingStarted
from pipeline.runtime.logs import log
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.audio import AudioPart, AudioSpool, SoundStore
from pipeline.storage.journal import Journal, Row
from pipeline.storage.outbox import Route, backlog, forget_others
from pipeline.storage.presence_audit import presence_audit
from pipeline.storage.retention import Outlook, Retention

_MOST_PARTS = 32
_BUDGET_SECONDS = 30.0
_RETRY_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_COUNT_SECONDS = 5.0


class Housekeeper:
    """A thread with a connection of its own to the journal; what it has to tell it leaves with `report`."""

    def __init__(
        self,
        state: StateDirectory,
        *,
        budget_bytes: int,
        least_free_bytes: int,
        report: Callable[[Notice], None],
        routes: Sequence[Route] = (),
    ) -> None:
        self._state, self._report = state, report
        self.budget_bytes, self.least_free_bytes, self.routes = budget_bytes, least_free_bytes, routes
        self.outlook: Outlook | None = None
        """As it was when the budget was last looked at."""
        self.false_passages: dict[str, Any] | None = None
        """The rates of false passages, as they were when events were last counted."""
        self._changed = Condition()
        self._parts = deque(self._left_behind())
        self._troubled = self._finishing = self._low = False
        self._budget_at = -inf  # at once: who dies young again and again must not fill the disk
        self._counted_at = -inf
        self.backlogs: list[Row] = []
        """What waits for other machines, as of when there was time to count."""
        self._thread = Thread(target=self._work, name="housekeeping", daemon=True)
        self._thread.start()

    def _left_behind(self) -> list[AudioPart]:
        """Pieces of runs that were killed; those of this one are not there yet."""
        try:
            with Journal(self._state.journal) as journal:
                return SoundStore(self._state.sound, journal).left_behind()
        except StorageError as error:
            log.warning("sound of earlier runs cannot be found", why=str(error))
            return []

    def hand_over(self, part: AudioPart) -> None:
        """Waits while there is too much to do: whoever hears faster than can be stored must slow down.

        But not while the disk refuses: deciding goes on, and the piece is safe as it is.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._troubled or len(self._parts) < _MOST_PARTS)
            self._parts.append(part)
            self._changed.notify_all()

    def finish(self, *, seconds: float = 3.0) -> None:
        """Do what is left; what is not done by then, the next start does."""
        with self._changed:
            self._finishing = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            is_last_try = self._finishing
            try:
                with Journal(self._state.journal) as journal:
                    self._keep_house(journal)
                    return
            except (StorageError, OSError) as error:
                log.warning("sound cannot be stored; it is tried again", why=str(error))
            except Exception:
                # A mistake must be seen; but if nobody kept house any more, hearing would come to a stop.
                log.exception("keeping house failed; it is tried again")
            if is_last_try:
                return
            self._wait_for_better_times()

    def _wait_for_better_times(self) -> None:
        with self._changed:
            self._troubled = True
            self._changed.notify_all()
            self._budget_at = -inf  # perhaps there is something to remove
            self._changed.wait_for(lambda: self._finishing, _RETRY_SECONDS)

    def _keep_house(self, journal: Journal) -> None:
        store = SoundStore(self._state.sound, journal)
        self._retention(journal).finish_removals()
        while True:
            if time.monotonic() - self._budget_at > _BUDGET_SECONDS:
                self._enforce(journal)
                self._budget_at = time.monotonic()
            part = self._next_part()
            if part is not None:
                store.keep(part)
                self._done()
            elif self._finishing:
                return
            elif time.monotonic() - self._counted_at > _COUNT_SECONDS:
                self._count(journal)

    def _count(self, journal: Journal) -> None:
        """Only when there is nothing else to do."""
        forget_others(journal, self.routes)
        self.backlogs = [backlog(journal, route) for route in self.routes]
        self.false_passages = presence_audit(journal)
        self._counted_at = time.monotonic()

    def _next_part(self) -> AudioPart | None:
        with self._changed:
            self._changed.wait_for(lambda: self._parts or self._finishing, _LOOK_SECONDS)
            return self._parts[0] if self._parts else None

    def _done(self) -> None:
        with self._changed:
            self._parts.popleft()
            self._troubled = False
            self._changed.notify_all()

    def _enforce(self, journal: Journal) -> None:
        retention = self._retention(journal)
        pruned = retention.enforce()
        self.outlook = retention.outlook()
        if pruned is None:
            self._low = False
            return
        if pruned.removed or pruned.events_removed:
            self._report(Notice(NoticeKind.STORAGE_PRUNED, pruned.as_dict()))
        if pruned.bytes_over and not self._low:
            self._low = True
            self._report(Notice(NoticeKind.STORAGE_LOW, pruned.as_dict()))

    def _retention(self, journal: Journal) -> Retention:
        return Retention(self._state.path, journal, self.budget_bytes, self.least_free_bytes, self.routes)


class SoundKeeper:
    """Puts sound on disk before it is decided about; if the disk refuses, sound is heard but not kept."""

    def __init__(
        self,
        state: StateDirectory,
        housekeeper: Housekeeper,
        *,
        piece_seconds: float,
        report: Callable[[Notice], None],
    ) -> None:
        self._spool = AudioSpool(state.sound, piece_seconds=piece_seconds, finished=housekeeper.hand_over)
        self._report = report
        self._refused_since: float | None = None
        self._tried_at = 0.0
        self._lost_before = 0
        self.lost = 0
        """Samples of every sensor that were heard but not kept."""

    def keep(self, fact: object) -> None:
        if isinstance(fact, RecordingStarted):
            self._begin(fact)
        elif isinstance(fact, Block):
            self._write(fact)

    def _begin(self, started: RecordingStarted) -> None:
        try:
            self._spool.begin(started.recording, started.rate_hz)
        except OSError as error:
            self._refused(error)

    def _write(self, block: Block) -> None:
        now, length = time.monotonic(), block.stop - block.start
        if self._refused_since is not None and now - self._tried_at < _RETRY_SECONDS:
            self.lost += length
            return
        self._tried_at = now
        try:
            self._spool.write(block)
        except OSError as error:
            self.lost += block.stop - max(block.start, self._spool.position)
            self._refused(error)
        else:
            self._recovered(now)

    def _refused(self, error: OSError) -> None:
        """What there is of the piece is handed over all the same."""
        self.close()
        if self._refused_since is None:
            self._refused_since = time.monotonic()
            log.error("sound cannot be kept", why=str(error))
            self._report(Notice(NoticeKind.STORAGE_READ_ONLY, {"of": "sound", "why": str(error)}))

    def _recovered(self, now: float) -> None:
        if self._refused_since is None:
            return
        details = {"of": "sound", "after_seconds": round(now - self._refused_since, 1)}
        details |= {"samples_lost": self.lost - self._lost_before}
        self._refused_since, self._lost_before = None, self.lost
        log.info("sound can be kept again", **details)
        self._report(Notice(NoticeKind.STORAGE_RECOVERED, details))

    def close(self) -> None:
        with suppress(OSError):
            self._spool.finish()
