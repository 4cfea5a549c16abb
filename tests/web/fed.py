"""A daemon with a dashboard that is fed over TCP with simulated sound, and is told when to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from pipeline.model.starter import STARTER
from pipeline.simulation.day import Day, Site
from tests.conftest import TIMEOUT, eventually
from tests.web.conftest import Dashboard

RATE = 16_000
_CHUNK = RATE // 4
_FASTER = 8
"""How fast sound is fed that nobody looks at. The status is told every second: neither a passage nor the pause after it
may go by between two of them, and no sound may wait that would go by later.
"""
_SOURCE = 'kind = "pcm"\naddress = "tcp://127.0.0.1:{port}"\nretry_first = "0.1 s"\ntick = "0.5 s"'


class FedArray(Dashboard):
    """An array that hears the same minute again and again.

    A passage of a human with an animal is found in its seconds 10 to 50, and has that class from second 16 on.
    """

    def __init__(self, directory: Path, *, more: str = "") -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(TIMEOUT)
        source = _SOURCE.format(port=self._server.getsockname()[1])
        super().__init__(directory, STARTER, source=source, more=more, rate_hz=RATE)
        day = Day(
            Site(seed=4),
            hours=0.05,
            passages_per_day=960,
            distractors_per_day=0,
            start_hour=8,
            first_passage_seconds=6.0,
            classes=("human_animal",),
        )
        sound = np.rint(day.read(0, 60 * RATE).T * 32768).clip(-32768, 32767).astype("<i2")
        self._chunks = [sound[start : start + _CHUNK].tobytes() for start in range(0, len(sound), _CHUNK)]
        self._fast, self._flows, self._closed = Event(), Event(), Event()
        self._feeder = Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def close(self) -> None:
        self._closed.set()
        self._flows.set()
        super().close()
        self._server.close()
        self._feeder.join(TIMEOUT)

    def _feed(self) -> None:
        with suppress(OSError):
            peer, _ = self._server.accept()
            with peer:
                self._send(peer)

    def _send(self, peer: socket.socket) -> None:
        for chunk in cycle(self._chunks):
            self._flows.wait()
            if self._closed.is_set():
                return
            peer.sendall(chunk)
            self._closed.wait(_CHUNK / RATE / (_FASTER if self._fast.is_set() else 1))

    def hold(self) -> None:
        """Let no sound through; the connection stays."""
        self._flows.clear()

    def go_on(self, until: Callable[[dict[str, Any]], Any], what: str) -> None:
        """Feed faster until the status is as wanted, then as fast as time passes."""
        self._fast.set()
        self._flows.set()
        eventually(lambda: (status := self.status()) and until(status), what)
        self._fast.clear()

    def until_nobody(self) -> None:
        """Go on to the pause after a passage."""

        def has_passed(status: dict[str, Any]) -> bool:
            return bool(status["passages_total"]) and status["presence"]["somebody"] is False

        self.go_on(has_passed, "somebody has passed")

    def until_passage(self) -> None:
        """Go on to a passage that has a class."""
        self.go_on(lambda status: (status["presence"]["passage"] or {}).get("label"), "somebody passes")
