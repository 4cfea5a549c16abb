"""A daemon in a process of its own, fed through its standard input, and what it tells."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Condition, Thread
from typing import Any

import numpy as np

from pipeline.simulation import Site, record
from pipeline.simulation.faults import FaultPlan, parse_kinds
from tests.conftest import TIMEOUT
from tests.forked import started

Event = dict[str, Any]
WALKS = 'kind = "simulated"\nscene = "walks"'
"""A simulated source in which somebody passes all the time."""


def settings(
    directory: Path, *, model: Path | None, rate_hz: int = 4000, source: str = 'kind = "pcm"', more: str = ""
) -> Path:
    """A file of settings for a daemon that keeps everything in a directory, and learns nothing unless asked to."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "gemmed.toml"
    training = f'enabled = false\nmodel = "{model}"' if model else "enabled = false"
    parts = [
        f'[array]\nrate = "{rate_hz} Hz"',
        f"[source]\n{source}",
        '[storage]\ndirectory = "state"\nleast_free = "1 MB"',
    ]
    if "[training]" not in more:
        parts.append(f"[training]\n{training}")
    if "[web]" not in more:
        parts.append("[web]\nenabled = false")
    if "[buffer]" not in more:
        parts.append('[buffer]\noverload = "wait"')
    file.write_text("\n".join([*parts, more]) + "\n")
    return file


def give_time_to_learning(parent: int) -> None:
    """It has the lowest priority, and on a busy machine would never end. Only root may change that."""
    for child in children(parent, "pipeline.retraining.worker"):
        with suppress(OSError):  # it has just ended, or this is not root
            for thread in Path(f"/proc/{child}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


def children(parent: int, module: str) -> Iterator[int]:
    """The processes that it has started to run a module."""
    for listed in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):  # a thread or a process has just ended
            for child in listed.read_text().split():
                if module.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                    yield int(child)


class Running:
    """A `gemmed run` and the events it has told so far, in order; `before` is a command that starts it."""

    def __init__(
        self, config: Path, *options: str, before: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.process = started(
            ["run", "--events", "--config", str(config), *options],
            before=before,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=config.parent,
            env={**os.environ, **(environment or {})},
        )
        self.events: list[Event] = []
        self.errors = b""
        self._waited = False
        self._said = Condition()
        self._queue: Queue[Event | None] = Queue()
        self._threads = [Thread(target=self._read, daemon=True), Thread(target=self._read_errors, daemon=True)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        """A test that failed leaves nothing behind."""
        if not self._waited:
            self.process.kill()
            self.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            # A kill may cut the last line; then nobody was told.
            if text.endswith(b"\n"):
                self._queue.put(json.loads(text))
        self._queue.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            with self._said:
                self.errors += text
                self._said.notify_all()

    def feed(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Wait for an event; fails if the daemon ends before, or takes too long, whatever else it tells meanwhile."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                event = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise AssertionError(f"not told within {TIMEOUT} s; {self.errors.decode()}") from None
            assert event is not None, f"the daemon ended; {self.errors.decode()}"
            self.events.append(event)
            if wanted(event):
                return event

    def told(self, kind: str) -> Event:
        return self.until(lambda event: event["type"] == kind)

    def feed_until_logged(self, text: str, data: bytes) -> int:
        """Go on feeding, slowly, until it has said so on standard error; how many bytes that took."""
        fed, deadline = 0, time.monotonic() + TIMEOUT
        with self._said:
            while text.encode() not in self.errors:
                assert time.monotonic() < deadline, self.errors.decode()
                self.feed(data)
                fed += len(data)
                self._said.wait(0.05)
        return fed

    def count(self, kind: str) -> int:
        return sum(event["type"] == kind for event in self.events)

    def logged(self, text: str) -> None:
        """Wait until it has said so on standard error."""
        deadline = time.monotonic() + TIMEOUT
        with self._said:
            while text.encode() not in self.errors:
                assert self._said.wait(deadline - time.monotonic()), self.errors.decode()

    def end(self) -> int:
        """No more sound; the exit code."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT)
        self._waited = True
        for thread in self._threads:
            thread.join(TIMEOUT)
        while (event := self._queue.get_nowait()) is not None:
            self.events.append(event)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return code


def simulated_sound(seconds: float, *, rate_hz: int = 4000, seed: int = 5) -> np.ndarray:
    """What four sensors hear that fail a tenth of the time, as 16-bit numbers, (samples, sensors)."""
    site = Site(
        seed=seed,
        rate_hz=rate_hz,
        duration_seconds=14.0,
        faults=FaultPlan(parse_kinds("all", n_sensors=4), (0.1,) * 4, 5.0),
    )
    scenes: Iterable[int] = range(int(seconds // 14) + 1)
    sound = np.concatenate([record(site, number).samples for number in scenes], axis=1)
    return np.rint(sound[:, : round(seconds * rate_hz)].T * 32768).astype("<i2")
