"""Processes that talk to the outside for the daemon: whatever a page, a broker or a slow link does, it decides on.

The daemon holds one end of a socket, the child process has the other as its standard input. It receives the settings
first, then the status of the daemon about twice a second. When the daemon is gone, however that happened, the socket
ends, and so does the child process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.config.schema import Settings, effective, settings_of
from pipeline.runtime.logs import log, start_logging
from pipeline.runtime.state_dir import StateDirectory

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_WELL_SECONDS = 60.0
"""Who has lived for so long is started again at once."""
_STOP_SECONDS = 5.0
"""Longer than the last words of any of them may take, also where the machine is busy."""
_LONGEST_MESSAGE = 1 << 20
_LESS_URGENT, _DIES_FIRST = 5, 500

Snapshot = dict[str, Any]


class ChildProcess:
    """One such process, started again if it dies."""

    def __init__(self, module: str, settings: Settings, run: str) -> None:
        self.module = module
        self._first = json.dumps(
            {"settings": effective(settings), "file": str(settings.path or ""), "run": run}
        ).encode()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._started_at = self._next_at = time.monotonic()
        self._pause = _FIRST_PAUSE_SECONDS

    def tell(self, snapshot: bytes) -> None:
        """How things stand; whoever is too busy to listen misses it."""
        self._look()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send(snapshot)

    def _look(self) -> None:
        now = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._bury(now, f"it ended with {code}")
        if now >= self._next_at:
            self._started_at = now
            try:
                self._start()
            except OSError as error:  # no memory, no files left: the daemon can do without
                self._bury(now, str(error))

    def _bury(self, now: float, why: str) -> None:
        self._close()
        lived = now - self._started_at
        self._pause = _FIRST_PAUSE_SECONDS if lived > _WELL_SECONDS else min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        self._next_at = now + self._pause
        log.warning("child process exited, restarting", module=self.module, why=why, seconds=self._pause)

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._socket.setblocking(False)
            self._socket.send(self._first)
            command = [sys.executable, "-m", self.module]
            self._process = subprocess.Popen(command, stdin=theirs.fileno())

    def stop(self) -> None:
        process = self._process
        self._close()
        if process is None:
            return
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._process = None


class Parent:
    """The daemon, as its child process knows it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        first = json.loads(connection.recv(_LONGEST_MESSAGE))
        self.settings: Settings = settings_of(first["settings"], Path(first["file"]) if first["file"] else None)
        self.run: str = first["run"]

    @classmethod
    def on_standard_input(cls) -> Parent:
        """For a process that the daemon has just started; who stops the daemon stops it, not others."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _step_back()
        parent = cls(socket.socket(fileno=0))
        start_logging(parent.settings.log.level, parent.settings.log.format)
        return parent

    @property
    def state(self) -> StateDirectory:
        return StateDirectory(self.settings.storage.directory)

    def snapshots(self) -> Iterator[Snapshot]:
        """How things stand, again and again, until the daemon is gone."""
        while True:
            try:
                message = self._socket.recv(_LONGEST_MESSAGE)
            except ConnectionResetError:
                return
            if not message:
                return
            yield json.loads(message)


def _step_back() -> None:
    """Where there is too little for both, of time or of memory, the daemon has it."""
    os.nice(_LESS_URGENT)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_DIES_FIRST))
