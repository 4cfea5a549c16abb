"""Ten thousand requests that nobody should send: the server answers the next one as if nothing had happened."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.web.asking import ask, connected, rest, status_of
from tests.web.conftest import Dashboard, web_process

WARM_UP = 500
BY_DESIGN = ("/healthz", "/readyz")
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "BREW", "get", "G" * 200]
VALUES = [
    "0", "-1", "1", "99999999999999999999", str(2**62), str(2**63), "1e9", "NaN", "null", "true", "", " ", "%00", "%",
    "..%2f..", "%c3%28", "%f0%9f%90%8e", "%e2%80%ae", "' OR 1=1 --", "%27%3B%20DROP%20TABLE%20events%3B", "a" * 5000,
    "[]", "%ed%a0%80", "2026-05-01T00:00:00Z", "9999999-99-99", "{{7*7}}",
]  # fmt: skip
BODIES = [
    b"", b"{", b"[]", b"null", b"1e999", b"NaN",
    b'{"token": "\\ud800"}', b'{"token": 1}', b'{"token": null}', b"\xff\xfe",
    b"[" * 30_000, b'{"a":' * 10_000, b'{"token": "' + b"x" * 60_000 + b'"}', b'{"label": "\\u0000", "event": -1}',
    b'{"event": 1, "label": "x", "why": "' + "🐎".encode() * 5000 + b'"}', b'{"who": {"who": {"who": []}}}',
    b"\0" * 500,
    b'{"start": 1e308, "stop": -1e308}', b'{"number": 123456789012345678901234567890}',
]  # fmt: skip


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    made = Dashboard(tmp_path_factory.mktemp("attacked"), None)
    made.start()
    eventually(lambda: made.status().get("sample"), "some sound")
    yield made
    made.close()


class Attack:
    """One of them after the other, the same ones in every run."""

    def __init__(self, port: int, described: dict[str, Any]) -> None:
        self._port = port
        self._paths = [*described["paths"], "/", "/static/app.js", "/login", "/nix"]

    def __call__(self, number: int) -> tuple[str, int | None]:
        """What was asked, and the code of the answer, if there was one."""
        chance = random.Random(number)
        kind = chance.choices(
            [self._asked, self._garbage, self._huge, self._given_up, self._stream_given_up], [70, 10, 5, 10, 5]
        )[0]
        return kind(chance)

    def _path(self, chance: random.Random) -> str:
        path = chance.choice(self._paths)
        while "{" in path:
            before, _, after = path.partition("{")
            path = before + chance.choice(VALUES).replace(" ", "+") + after.partition("}")[2]
        names = chance.sample(
            ["after", "most", "start", "stop", "types", "sensor", "from", "to", "x", "newest_first"], 3
        )
        return path + "?" + "&".join(f"{name}={chance.choice(VALUES).replace(' ', '+')}" for name in names)

    def _asked(self, chance: random.Random) -> tuple[str, int | None]:
        method, path = chance.choice(METHODS), self._path(chance)
        body = chance.choice(BODIES) if method not in ("GET", "HEAD") or chance.random() < 0.1 else b""
        headers = {
            "Host": chance.choice(["localhost"] * 20 + ["evil", "", "[", "localhost:x"]),
            "Connection": "close",
            "Content-Length": str(len(body)),
            "Content-Type": chance.choice(["application/json"] * 20 + ["text/plain", "", ";;;", "multipart/form-data"]),
            "X-Gemmed": "1",
        }
        odd = {
            "Authorization": chance.choice(["Bearer", "Bearer x", "Basic eA==", "\x80"]),
            "Cookie": chance.choice(["gemmed-1=x", ";;;=", "a" * 4000, '"', "=;\\"]),
            "Last-Event-ID": chance.choice(VALUES),
            "Range": chance.choice(["bytes=-1", "bytes=9-1", "x", "bytes=0-0,0-0,0-0"]),
            "Origin": chance.choice(["null", "http://[", "x"]),
            "If-Modified-Since": chance.choice(VALUES),
            "Transfer-Encoding": "chunked",
            "Expect": "100-continue",
            "Upgrade": "websocket",
        }
        headers |= dict(chance.sample(list(odd.items()), chance.choice([0, 0, 1, 2])))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if path.startswith("/api/v1/stream"):
            return self._aborted(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)
        return path, self._answered(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)

    def _garbage(self, chance: random.Random) -> tuple[str, int | None]:
        return "garbage", self._answered(chance.randbytes(chance.randint(1, 2000)) + b"\r\n\r\n", wait=False)

    def _huge(self, chance: random.Random) -> tuple[str, int | None]:
        long = b"x" * chance.choice([20_000, 70_000])
        return "huge", self._answered(
            chance.choice(
                [
                    b"GET /" + long + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " + long + b"\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
                ]
            )
        )

    def _given_up(self, chance: random.Random) -> tuple[str, int | None]:
        whole = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nX-Gemmed: 1\r\nContent-Length: 50\r\n\r\n{"
        return "given up", self._answered(whole[: chance.randint(0, len(whole))], wait=False)

    def _stream_given_up(self, chance: random.Random) -> tuple[str, int | None]:
        path = f"/api/v1/stream?spectrogram={chance.choice(['true', 'false'])}"
        return self._aborted(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def _aborted(self, request: bytes) -> tuple[str, int | None]:
        with connected(self._port) as peer:
            peer.sendall(request)
            begin = peer.recv(4096)
            # No goodbye: the other side is told by a reset.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return "stream", status_of(begin)

    def _answered(self, request: bytes, *, wait: bool = True) -> int | None:
        with connected(self._port) as peer:
            with suppress(ConnectionResetError, BrokenPipeError):  # refused before all was said
                peer.sendall(request)
            return status_of(rest(peer)) if wait else None


def burden(process: int) -> dict[str, int]:
    """What a process holds."""
    status = Path(f"/proc/{process}/status").read_text()
    numbers = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return {
        "files": len(list(Path(f"/proc/{process}/fd").iterdir())),
        "threads": int(numbers["Threads"]),
        "resident_kb": int(numbers["VmRSS"].split()[0]),
    }


@pytest.mark.parametrize("requests", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_thousands_of_malformed_requests_change_nothing(attacked, requests):
    port, process = attacked.port, web_process(attacked.pid)
    attack = Attack(port, ask(port, "/openapi.json").json)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(attack, range(WARM_UP)))
        eventually(lambda: burden(process)["files"] < 60, "connections have ended")
        before = burden(process)
        found += pool.map(attack, range(WARM_UP, requests))

    failed = [(asked, code) for asked, code in found if code is not None and code >= 500]
    assert not [one for one in failed if one[1] != 503 or not one[0].startswith(BY_DESIGN)]
    codes = Counter(code for _, code in found)
    assert {200, 400, 403, 404, 405, 415, 421, 422, 431} <= set(codes)

    assert web_process(attacked.pid) == process
    eventually(lambda: burden(process)["files"] <= before["files"] + 5, "every connection was let go")
    after = burden(process)
    assert after["threads"] <= before["threads"] + 5
    assert after["resident_kb"] <= before["resident_kb"] + 20_000
    assert ask(port, "/api/v1/status").json["running"]
    log = (attacked.config.parent / "daemon.log").read_text()
    assert "Traceback" not in log
    assert len(log) < 200_000
    print(json.dumps({"codes": {str(code): n for code, n in codes.items()}, "before": before, "after": after}))
