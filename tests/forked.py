"""Commands as processes that have loaded everything already; to load it anew is most of what many of them do.

Each is forked off a process that does nothing else. What a command loads by itself, and when, `test_cli` sees to.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
_LOADED = (
    "pipeline.cli",
    "pipeline.fleet.status",
    "pipeline.fleet.teaching",
    "pipeline.plotting",
    "pipeline.reproduction.run",
    "pipeline.service.check",
    "pipeline.service.evaluate_command",
    "pipeline.service.explain",
    "pipeline.service.health_command",
    "pipeline.service.publish",
    "pipeline.service.replay_command",
    "pipeline.service.train",
    "pipeline.simulation.dataset",
    "matplotlib.figure",
    "nats.aio.client",
    "scipy.signal",
    "sklearn.base",
    "soundfile",
)


def gemmed(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """What a command says and how it ends."""
    with TemporaryDirectory() as place:
        said = {name: Path(place) / name for name in ("stdout", "stderr")}
        asked = {"arguments": arguments, "timeout": timeout, "environment": dict(os.environ)}
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked | {name: str(path) for name, path in said.items()}) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        told = [path.read_text() for path in said.values()]
    return subprocess.CompletedProcess(arguments, code, *told)


@lru_cache(maxsize=1)
def _server() -> subprocess.Popen[str]:
    """It ends with this process: without anybody who asks it stops."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forked"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    atexit.register(server.__exit__, None, None, None)
    return server


def _serve() -> None:
    for name in _LOADED:
        __import__(name)
    gc.freeze()  # or each child would go through all of it again at its end
    while line := sys.stdin.readline():
        asked = json.loads(line)
        if not (child := os.fork()):
            return _become(asked)
        print(_exit_code(child, asked["timeout"]), flush=True)


def _exit_code(child: int, seconds: float) -> int:
    ended = os.pidfd_open(child)
    if not select([ended], [], [], seconds)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(asked: dict[str, object]) -> None:
    """The command, from here on."""
    for number, path in enumerate((os.devnull, asked["stdout"], asked["stderr"])):
        os.dup2(os.open(str(path), os.O_RDWR | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(asked["environment"] | {"COLUMNS": "120", "NO_COLOR": "1"})  # type: ignore[operator]
    sys.argv[1:] = asked["arguments"]  # type: ignore[assignment]
    runpy.run_module("pipeline.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
