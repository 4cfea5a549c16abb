"""From the spool to JetStream: every record, in order, over a link that may be dead for days."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from threading import Event
from typing import Any

from pipeline.core.errors import LinkError
from pipeline.core.events import Notice, NoticeKind
from pipeline.fleet.spool import PublishSpool, Record
from pipeline.storage.outbox import Pauses
from pipeline.transport.nats import Access, Broker, Sent
from pipeline.transport.wire import StreamNames

_MOST_IN_FLIGHT = 32
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Where an array is published, and how long the broker keeps that."""

    log: StreamNames
    array: str
    keep_seconds: float
    keep_bytes: int | None = None


class Uplink:
    """Sends what is in the spool until it is stopped, whatever the link does meanwhile; `report` is told of that.

    Many messages are on their way at once, after a failure first one, then two, four and so on. When one fails, the
    link is opened again and all behind it are sent again: ids tell the broker which ones it has.
    """

    def __init__(
        self,
        spool: PublishSpool,
        access: Access,
        channel: Channel,
        *,
        pauses: Pauses,
        report: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        self._spool, self._access, self._channel = spool, access, channel
        self._pauses, self._report = pauses, report
        self._stopping = Event()
        self._until = inf
        self._down_since: float | None = None
        self._troubles: set[str] = set()
        self._series = ""
        self.sent = 0
        """Messages that the broker has acknowledged."""

    def stop(self, *, seconds: float = 0.0) -> None:
        """Send what waits if that takes no longer than so many seconds, then end."""
        self._until = time.monotonic() + seconds
        self._stopping.set()

    def run(self) -> None:
        while not self._is_over():
            opened_at = time.monotonic()
            try:
                with Broker(self._access, name=f"gemmed publish {self._channel.array}") as broker:
                    self._forward(broker)
            except LinkError as error:
                self._failed(str(error), time.monotonic() - opened_at)
            except OSError as error:
                told = f"{self._spool.path} cannot be read: {error.strerror}; check the disk"
                self._failed(told, time.monotonic() - opened_at)

    def _is_over(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._until

    def _forward(self, broker: Broker) -> None:
        missing = self._ensure_stream(broker)
        if not missing:
            self._tell_up()
        sent_until, window = self._spool.acknowledged, 1
        in_flight: deque[tuple[Record, Sent]] = deque()
        while not self._is_over():
            if len(in_flight) <= window // 2:
                for record in self._spool.read(sent_until, window - len(in_flight)):
                    in_flight.append((record, self._send(broker, record)))
                    sent_until = record.last
            if in_flight:
                self._await_first(in_flight, missing)
                window = min(2 * window, _MOST_IN_FLIGHT)
            elif self._stopping.is_set():
                self._until = -inf
            else:
                self._spool.wait(sent_until, _LOOK_SECONDS)

    def _ensure_stream(self, broker: Broker) -> str:
        """Why there may be none; who may not ask, or make one, may be allowed to send."""
        channel = self._channel
        try:
            broker.ensure_stream(
                channel.log.stream,
                channel.log.subject("*"),
                most_seconds=channel.keep_seconds,
                most_bytes=channel.keep_bytes,
            )
        except LinkError as error:
            return str(error)
        return ""

    def _send(self, broker: Broker, record: Record) -> Sent:
        if len(record.data) > broker.most_bytes:
            raise LinkError(
                f"broker {self._access.address} takes messages of at most {broker.most_bytes} bytes, one of "
                f"{len(record.data)} waits; raise max_payload there"
            )
        id = self._spool.message_id(record) + self._series
        log, array = self._channel.log, self._channel.array
        return broker.publish_soon(log.subject(array), record.data, stream=log.stream, id=id)

    def _await_first(self, in_flight: deque[tuple[Record, Sent]], missing: str) -> None:
        record, sent = in_flight.popleft()
        try:
            sent.result()
        except LinkError as error:
            if any(_is_stored(later) for _, later in in_flight):
                # It must not be taken for what is stored too early: all of it follows once more, in order.
                self._series = f"-{secrets.token_hex(4)}"
            if missing:
                raise LinkError(
                    f"stream {self._channel.log.stream} may be missing, or user = {self._access.user!r} may not use "
                    f"it: {error}; when it was asked for: {missing}"
                ) from error
            raise
        self._spool.acknowledge(record.last)
        self.sent += 1
        self._tell_up()

    def _failed(self, why: str, stood_seconds: float) -> None:
        if self._down_since is None:
            self._down_since = time.monotonic()
        if why not in self._troubles:
            self._troubles.add(why)
            self._tell(NoticeKind.OUTPUT_LINK_DOWN, why=why)
        if self._stopping.is_set():
            self._until = -inf
        self._stopping.wait(self._pauses.after(stood_seconds, 0.0))

    def _tell_up(self) -> None:
        if self._down_since is not None:
            seconds, self._down_since = round(time.monotonic() - self._down_since, 1), None
            self._troubles.clear()
            self._tell(NoticeKind.OUTPUT_LINK_UP, after_seconds=seconds)

    def _tell(self, kind: NoticeKind, **details: Any) -> None:
        self._report(Notice(kind, {**details, "messages_waiting": self._spool.waiting()}))


def _is_stored(sent: Sent) -> bool:
    try:
        sent.result()
    except LinkError:
        return False
    return True
