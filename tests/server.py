"""A real server of another project on this machine, which can be killed and started again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from threading import Thread
from typing import Self

from tests.conftest import TIMEOUT, free_port, program


class Server:
    """A program with a file of settings; it is up when a line of what it says ends so."""

    def __init__(self, name: str, config: Path, *, ready: str) -> None:
        self._program = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin") or program(name)
        config.parent.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._config, self._ready = config, ready
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        self.process = subprocess.Popen(
            [self._program, "-c", str(self._config)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.rstrip().endswith(self._ready):
                break
        else:
            self.process.wait(TIMEOUT)
            self.process.stderr.close()
            self.process = None
            raise AssertionError("".join(said))
        self._drain = Thread(target=self.process.stderr.read, daemon=True)
        self._drain.start()
        return self

    def kill(self) -> None:
        """Without a chance to say or keep anything."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(TIMEOUT)
            self._drain.join(TIMEOUT)
            assert self.process.stderr is not None
            self.process.stderr.close()
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.kill()
