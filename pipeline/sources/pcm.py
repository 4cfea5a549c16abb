"""Raw PCM or WAV as arecord, sox and ffmpeg write it, on standard input or over TCP."""

from __future__ import annotations

import math
import os
import select
import socket
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from datetime import datetime
from ipaddress import ip_address
from typing import Protocol, Self, TypedDict, TypeGuard, Unpack
from urllib.parse import urlsplit

from pipeline.core.errors import SettingsError, SourceError
from pipeline.core.events import SourceTrouble, Tick
from pipeline.sources._chunks import require
from pipeline.sources._decoder import Decoder
from pipeline.sources._wav import SAMPLE_BYTES

_READ_BYTES = 1 << 16
_CONNECT_SECONDS = 10.0
_PAUSE_MILLISECONDS = 100


class Stream(Protocol):
    """Anything with a file descriptor to read from: a pipe, a file, a socket."""

    def fileno(self) -> int: ...


class PcmOptions(TypedDict, total=False):
    """What `open_pcm` hands on to `PcmSource`."""

    rate_hz: int | None
    n_sensors: int | None
    sample_format: str
    recording: str
    started_at: datetime | None
    block_samples: int
    gather_samples: int | None
    tick_seconds: float | None


class PcmSource:
    """Plays one stream, once, as it arrives; while nothing arrives it yields a `Tick` every `tick_seconds`.

    A stream that begins with a WAV header is read as that says; any other needs `rate_hz` and `n_sensors`. If these
    are not given, ticks may come before `RecordingStarted`. With `gather_samples`, what trickles in is gathered up to
    the next multiple of so many, or until the stream pauses for a moment: that saves work. Of a listening socket the
    first caller is heard. What the source opens it closes; a stream that it was given it closes only if `owns_stream`.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        rate_hz: int | None = None,
        n_sensors: int | None = None,
        sample_format: str = "s16le",
        recording: str = "stream",
        started_at: datetime | None = None,
        block_samples: int = 16384,
        gather_samples: int | None = None,
        tick_seconds: float | None = 1.0,
        owns_stream: bool = False,
    ) -> None:
        require("rate_hz", rate_hz, least=1)
        require("n_sensors", n_sensors, least=1)
        require("block_samples", block_samples, least=1)
        require("gather_samples", gather_samples, least=1)
        require("tick_seconds", tick_seconds, least=0.001)
        if sample_format not in SAMPLE_BYTES:
            raise SettingsError(f"sample_format={sample_format!r} is unknown; choose one of {', '.join(SAMPLE_BYTES)}")
        self._stream, self._owns_stream, self._tick_seconds = stream, owns_stream, tick_seconds
        self._gather_samples = gather_samples
        self._decoder = Decoder(
            recording,
            rate_hz=rate_hz,
            n_sensors=n_sensors,
            sample_format=sample_format,
            started_at=started_at,
            block_samples=block_samples,
        )
        # The local port, so that one can listen on port 0 and ask which it became.
        self.port: int | None = stream.getsockname()[1] if _is_tcp(stream) else None
        self._arrived_at = 0.0
        self._opened = ExitStack()
        self._facts = self._play()

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[object]:
        return self._facts

    def __exit__(self, *exc: object) -> None:
        self._facts.close()
        self._opened.close()
        if self._owns_stream and isinstance(self._stream, socket.socket):
            self._stream.close()

    def _play(self) -> Generator[object, None, None]:
        self._arrived_at = time.monotonic()
        yield from self._decoder.begin()
        stream = yield from self._connected()
        while not self._decoder.complete:
            yield from self._wait(stream)
            try:
                data = self._read(stream)
            except OSError as error:
                message = f"broke off: {error.strerror}; what had arrived is used, check the writer and the line to it"
                yield SourceTrouble(self._decoder.recording, message)
                break
            if not data:
                break
            self._arrived_at = time.monotonic()
            yield from self._decoder.push(data)
        yield from self._decoder.finish()
        if self._decoder.position == 0:
            raise SourceError(f"{self._decoder.recording} ended before its first sample; check that the writer runs")

    def _read(self, stream: Stream) -> bytes:
        """What is there, and what follows at once, up to where a block is complete."""
        data = os.read(stream.fileno(), _READ_BYTES)
        wanted = 0 if self._gather_samples is None else self._decoder.bytes_until(self._gather_samples)
        if not data or len(data) >= wanted:
            return data
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLIN)
        while len(data) < wanted and poll.poll(_PAUSE_MILLISECONDS):
            more = os.read(stream.fileno(), wanted - len(data))
            if not more:
                break
            data += more
        return data

    def _connected(self) -> Generator[Tick, None, Stream]:
        stream = self._stream
        if not isinstance(stream, socket.socket) or not stream.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return stream
        yield from self._wait(stream)
        connection, _ = stream.accept()
        self._opened.enter_context(connection)
        if self._owns_stream:
            # A second caller shall be refused, not left waiting.
            stream.close()
        return connection

    def _wait(self, stream: Stream) -> Iterator[Tick]:
        """Returns when there is something to read, and until then tells that time passes."""
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLIN)
        asked_at = self._arrived_at
        while not poll.poll(self._milliseconds_until_tick(asked_at)):
            asked_at = time.monotonic()
            yield Tick(self._decoder.position, asked_at - self._arrived_at)

    def _milliseconds_until_tick(self, asked_at: float) -> int | None:
        if self._tick_seconds is None:
            return None
        return max(0, math.ceil(1000 * (asked_at + self._tick_seconds - time.monotonic())))


def open_pcm(address: str, *, allow_remote: bool = False, **options: Unpack[PcmOptions]) -> PcmSource:
    """The stream at an address, as ffmpeg spells it.

    `-` is standard input, `tcp://host:port` connects, `tcp://host:port?listen` waits for one caller. Others than this
    machine may call only if `allow_remote`.
    """
    if address == "-":
        return PcmSource(sys.stdin.buffer, **options)
    host, port, listen = _parse(address)
    try:
        stream = _listen(host, port, allow_remote=allow_remote) if listen else _connect(host, port)
    except OSError as error:
        cure = "choose a free port of this machine" if listen else "start the other side first, check host and port"
        raise SourceError(f"{address} cannot be opened: {error.strerror or error}; {cure}") from error
    return PcmSource(stream, owns_stream=True, **options)


def _parse(address: str) -> tuple[str, int, bool]:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or port is None or parts.scheme != "tcp" or parts.path or parts.query not in ("", "listen", "listen=1"):
        known = "-, tcp://host:port and tcp://host:port?listen"
        raise SettingsError(f"address={address!r} is not one of {known}; write it like one of them")
    return host, port, bool(parts.query)


def _connect(host: str, port: int) -> socket.socket:
    stream = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
    stream.settimeout(None)
    return stream


def _listen(host: str, port: int, *, allow_remote: bool) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # Of localhost callers mean the older address first.
    family, _, _, _, target = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    if not allow_remote and not ip_address(target[0]).is_loopback:
        raise SettingsError(
            f"tcp://{host}:{port}?listen would hear other machines, without encryption or password; "
            "listen on 127.0.0.1 or allow it with allow_remote"
        )
    return socket.create_server((str(target[0]), port), family=family, backlog=1)


def _is_tcp(stream: Stream) -> TypeGuard[socket.socket]:
    return isinstance(stream, socket.socket) and stream.family in (socket.AF_INET, socket.AF_INET6)
