"""What open pages are told: how things stand, what happened, and how it sounds; encoded once for all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.errors import GemmedError
from pipeline.daemon.readiness import STALLED_SECONDS
from pipeline.runtime.child_process import Snapshot
from pipeline.runtime.logs import log
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from pipeline.web.live_audio import Listener

_STATUS_SECONDS = 1.0
_QUIET_SECONDS = 10.0
"""After so long without news a page is told that the connection is alive."""
_MOST_EVENTS = 500
_MOST_WAITING = 40


@dataclass(eq=False, slots=True)
class _Page:
    """A connection; who does not read for too long is cut off, and comes back by himself."""

    spectrogram: bool
    waiting: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))

    def tell(self, message: bytes | None) -> None:
        try:
            self.waiting.put_nowait(message)
        except asyncio.QueueFull:
            while not self.waiting.empty():
                self.waiting.get_nowait()
            self.waiting.put_nowait(None)


class Live:
    """The present of one array, for any number of pages."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self.status: dict[str, Any] | None = None
        self._seen_at = 0.0
        self._status_told_at = 0.0
        self._last_id: int | None = None
        self._trouble = ""
        self._pages: set[_Page] = set()
        self._news = asyncio.Event()
        self._listener = Listener(state.sound)

    @property
    def age_seconds(self) -> float | None:
        """How old the status is; none if the daemon never told one."""
        return None if self.status is None else time.monotonic() - self._seen_at

    @property
    def pages(self) -> int:
        return len(self._pages)

    @property
    def living_run(self) -> str | None:
        """The run that is alive."""
        status, age = self.status, self.age_seconds
        if status is None or age is None or age >= STALLED_SECONDS or not status.get("running", True):
            return None
        return str(status["run"])

    def tell(self, snapshot: Snapshot) -> None:
        """From the daemon."""
        age = snapshot.get("age_seconds", 0.0)
        self.status, self._seen_at = snapshot["status"], time.monotonic() - age
        if self._last_id is None or not self._pages:
            self._last_id = snapshot["last_id"]  # whoever comes now is told what comes behind it
        self._news.set()

    async def run(self) -> None:
        """Tell the pages, as long as somebody serves them."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._pages:
                try:
                    await self._tell_pages()
                    self._trouble = ""
                except (GemmedError, OSError) as error:
                    self._report_once(str(error))

    def _report_once(self, why: str) -> None:
        if why != self._trouble:
            self._trouble = why
            log.warning("pages are told nothing now", why=why)

    async def _tell_pages(self) -> None:
        assert self.status is not None
        now, parts = time.monotonic(), []
        if now - self._status_told_at >= _STATUS_SECONDS:
            self._status_told_at = now
            parts.append(message("status", self.status))
        events = await asyncio.to_thread(self._new_events)
        if events:
            parts.append(message("events", events, events[-1]["id"]))
        common = b"".join(parts)
        columns = b""
        if any(page.spectrogram for page in self._pages):
            heard = await asyncio.to_thread(self._heard, self.status)
            columns = message("columns", heard) if heard else b""
        for page in self._pages:
            told = common + columns if page.spectrogram else common
            if told:
                page.tell(told)

    def _heard(self, status: dict[str, Any]) -> dict[str, Any] | None:
        if status["recording"] is None:
            return None
        return self._listener.heard(status["recording"], status["rate_hz"], len(status["sensors"]))

    def _new_events(self) -> list[dict[str, Any]]:
        with Journal(self._state.journal, read_only=True) as journal:
            assert self._last_id is not None
            found = [event.as_dict() for event in journal.events(after=self._last_id, most=_MOST_EVENTS)]
            if found:
                self._last_id = found[-1]["id"]
            return found

    async def stream(self, *, after: int | None, spectrogram: bool) -> AsyncIterator[bytes]:
        """What one page reads: first what it missed, then what is new."""
        page = _Page(spectrogram)
        self._pages.add(page)
        try:
            # A browser that lost its connection tries again after so many milliseconds.
            yield b"retry: 1000\n\n"
            if self.status is not None:
                yield message("status", self.status)
            if after is not None and (missed := await asyncio.to_thread(self._missed, after)):
                yield message("events", missed, missed[-1]["id"])
            while True:
                try:
                    told = await asyncio.wait_for(page.waiting.get(), _QUIET_SECONDS)
                except TimeoutError:
                    told = b": alive\n\n"
                if told is None:
                    return
                yield told
        finally:
            self._pages.discard(page)

    def _missed(self, after: int) -> list[dict[str, Any]]:
        """The newest of what was told since; pages drop what they know already."""
        with Journal(self._state.journal, read_only=True) as journal:
            newest = journal.events(after=after, most=_MOST_EVENTS, newest_first=True)
            return [event.as_dict() for event in newest][::-1]


def message(kind: str, data: object, number: int | None = None) -> bytes:
    """A server-sent event."""
    body = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    mark = "" if number is None else f"id: {number}\n"
    return f"event: {kind}\n{mark}data: {body}\n\n".encode()
