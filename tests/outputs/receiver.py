"""A real web server with moods, as the receiver of a webhook."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from time import monotonic

from tests.conftest import TIMEOUT

Mood = Callable[["_Handler"], None]


def answer(status: int, **headers: str) -> Mood:
    def mood(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": "2", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(b"ok")

    return mood


def hang(handler: _Handler) -> None:
    handler.server.gate.wait(TIMEOUT)
    handler.close_connection = True


def reset(handler: _Handler) -> None:
    """Not even a farewell."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def hang_up_after(handler: _Handler) -> None:
    """As a server does that does not keep connections it has not heard of for a while: without saying so."""
    answer(204, Content_Length="0")(handler)
    handler.close_connection = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.changed:
            mood = self.server.moods.pop(0) if self.server.moods else answer(200)
            self.server.asked.append((self.path, dict(self.headers), body, self.client_address, monotonic()))
            self.server.changed.notify_all()
        mood(self)

    def log_message(self, *args: object) -> None:
        pass

    def handle(self) -> None:
        with suppress(OSError):  # whoever waited for an answer has given up
            super().handle()


class Server(ThreadingHTTPServer):
    """Has a mood for each of the next requests, then it is friendly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.moods: list[Mood] = []
        self.asked: list[tuple[str, dict[str, str], bytes, tuple[str, int], float]] = []
        self.changed, self.gate = Condition(), Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?key=hidden"

    @property
    def ids(self) -> list[int]:
        return [json.loads(body)["id"] for _, _, body, _, _ in self.asked]

    def until(self, done: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(done, TIMEOUT), self.ids

    def handle_error(self, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.gate.set()
        server.shutdown()
        thread.join(TIMEOUT)
