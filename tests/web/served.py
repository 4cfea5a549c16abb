"""The server of the dashboard over a state directory that a test has made, without a daemon."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from pipeline.config.schema import read_settings
from pipeline.runtime.child_process import Snapshot
from pipeline.runtime.state_dir import StateDirectory
from pipeline.web.server import serve
from tests.conftest import TIMEOUT, eventually, free_port
from tests.daemon.live import settings


class Served:
    """Asks a server, and gives what it answers with its code."""

    def __init__(self, url: str, state: StateDirectory, news: Queue[Snapshot | None]) -> None:
        self.url, self.state, self._news = url, state, news

    def tell_pages(self, status: dict[str, Any], last_id: int) -> None:
        """Say that a daemon is alive, and which event was its last: open pages get the events up to it."""
        self._news.put({"status": status, "last_id": last_id})

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "X-Gemmed": "dashboard"}
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@contextmanager
def served(directory: Path, *, more: str = "") -> Iterator[Served]:
    """Until the end of the block; `more` are other settings."""
    port = free_port()
    config = settings(directory, model=None, more=f'[web]\naddress = "127.0.0.1:{port}"\n{more}')
    news: Queue[Snapshot | None] = Queue()

    def snapshots() -> Iterator[Snapshot]:
        while (snapshot := news.get()) is not None:
            yield snapshot

    server = Thread(target=serve, args=(read_settings(config), snapshots()))
    server.start()
    made = Served(f"http://127.0.0.1:{port}", StateDirectory(directory / "state"), news)
    try:
        eventually(lambda: _answers(made), "the server is up")
        yield made
    finally:
        news.put(None)
        server.join(TIMEOUT)


def _answers(made: Served) -> bool:
    try:
        return made.ask("/api/v1/status")[0] == 200
    except OSError:
        return False
