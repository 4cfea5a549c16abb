"""A `gemmed publish` in a process of its own, and what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from tests.conftest import TIMEOUT
from tests.forked import started


def settings(directory: Path, *, broker: str = "", source: str = 'kind = "pcm"', publish: str = "") -> Path:
    """A file of settings for array north of four sensors at 4 kHz, whose broker is tried again at once."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "gemmed.toml"
    file.write_text(
        f'[array]\nrate = "4 kHz"\n[source]\n{source}\n[storage]\ndirectory = "state"\n[buffer]\nlength = "10 min"\n'
        f'[publish]\narray = "north"\nretry_first = "50 ms"\nretry_most = "200 ms"\n{publish}\n[broker]\n{broker}\n'
    )
    return file


class Publishing:
    """Fed through its standard input; a test that failed leaves nothing behind."""

    def __init__(self, config: Path, *arguments: object, before: Sequence[str] = ()) -> None:
        self.process = started(
            ["publish", *map(str, arguments), "--config", str(config)],
            before=before,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
        )
        self.lines: list[str] = []
        self._ended = False
        self._said = Condition()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Publishing:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self._thread.join(TIMEOUT)
        for pipe in (self.process.stdin, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.lines.append(line.decode())
                self._said.notify_all()
        with self._said:
            self._ended = True
            self._said.notify_all()

    def feed(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end(self) -> int:
        """No more sound; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def logged(self, text: str) -> dict[str, Any]:
        """Wait until it has said so; the whole line."""
        deadline = time.monotonic() + TIMEOUT
        with self._said:
            while not (found := [line for line in self.lines if text in line]):
                assert not self._ended, self.lines
                assert self._said.wait(deadline - time.monotonic()), self.lines
        told: dict[str, Any] = json.loads(found[0])
        return told

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT)
        self._thread.join(TIMEOUT)
        return code
