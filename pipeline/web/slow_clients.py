"""Connections that cannot be held open by doing nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
STUCK_SECONDS = 30.0
MOST_CONNECTIONS = 500


class _Limit:
    """So long it may take; to begin anew what has begun changes nothing."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float, transport: asyncio.Transport) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, transport.abort)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connection(H11Protocol):
    """uvicorn's, which waits for ever for a request to be complete and for an answer to be read."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._until_asked, self._until_read = _Limit(), _Limit()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._until_read.start(STUCK_SECONDS, self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._until_read.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._until_asked.end()
        self._until_read.end()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def _watch(self) -> None:
        """A request that has begun must come to the end of its headers; between requests uvicorn watches."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._until_asked.end()
        else:
            self._until_asked.start(HEADER_SECONDS, self.transport)
