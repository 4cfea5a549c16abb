"""Questions to a server as programs, browsers and attackers ask them."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from typing import Any

from tests.conftest import TIMEOUT

CHANGE = {"X-Gemmed": "test", "Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def cookie(self) -> str:
        """As a browser sends it back."""
        return self.headers["set-cookie"].partition(";")[0]


def ask(
    port: int,
    path: str,
    method: str = "GET",
    *,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    token: str | None = None,
    sender: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """One question, from any address of this machine; a body that is no bytes is sent as JSON."""
    given = {"Authorization": f"Bearer {token}"} if token else {}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    options: Any = {"timeout": TIMEOUT, "source_address": (sender, 0)}
    made = HTTPConnection("127.0.0.1", port, **options)
    if tls is not None:
        made = HTTPSConnection("127.0.0.1", port, context=tls, **options)
    try:
        made.request(method, path, data, {**given, **(headers or {})})
        answer = made.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        made.close()


def raw(port: int, request: bytes) -> bytes:
    """Exactly these bytes, and whatever comes back until the other side closes."""
    with connected(port) as peer:
        peer.sendall(request)
        return rest(peer)


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as peer:
        yield peer


def rest(peer: socket.socket) -> bytes:
    """Until the end, however it comes."""
    found = b""
    try:
        while piece := peer.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def status_of(answer: bytes) -> int | None:
    """The code of the first line; none if there was no answer."""
    parts = answer.split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[0].startswith(b"HTTP/1.") else None
