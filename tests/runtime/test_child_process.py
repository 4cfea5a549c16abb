"""Processes beside the daemon: told what they need, started again, gone with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.schema import Settings, Storage, Token, Web
from pipeline.runtime import child_process as companion_module
from pipeline.runtime.child_process import ChildProcess
from tests.conftest import TIMEOUT, eventually

# Writes what it is told, a line each, and its own number; ends as it is told to.
LISTENER = """
import json, os, sys
from pipeline.runtime.child_process import Parent
parent = Parent.on_standard_input()
out = open(parent.state.path / "told", "a", buffering=1)
out.write(json.dumps({"pid": os.getpid(), "run": parent.run, "url": parent.settings.web.url}) + "\\n")
for snapshot in parent.snapshots():
    out.write(json.dumps(snapshot) + "\\n")
    if "exit" in snapshot:
        sys.exit(snapshot["exit"])
out.write(json.dumps("gone") + "\\n")
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    (tmp_path / "listener_of_tests.py").write_text(LISTENER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))
    token = Token(name="anna", hash="sha256:" + "0" * 64)
    settings = Settings(storage=Storage(directory=tmp_path), web=Web(address="127.0.0.1:9999", tokens=(token,)))
    monkeypatch.setattr(companion_module, "_STOP_SECONDS", TIMEOUT)
    made = ChildProcess("listener_of_tests", settings, "run-1")
    yield made
    made.stop()


def written(directory: Path) -> list:
    """Whole lines, as far as there are."""
    file = directory / "told"
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def told(directory: Path, child: ChildProcess, wanted, snapshot: dict | None = None) -> list:
    """Tell it something until it has written what is wanted."""

    def answered() -> list | None:
        child.tell(json.dumps(snapshot or {"n": 1}).encode())
        lines = written(directory)
        return lines if wanted(lines) else None

    return eventually(answered, "it writes what is wanted")


def started(lines: list) -> list[int]:
    return [line["pid"] for line in lines if "pid" in line]


def test_it_gets_the_settings_and_then_how_things_stand(child, tmp_path):
    lines = told(tmp_path, child, lambda lines: {"n": 1} in lines)
    assert lines[0]["run"] == "run-1"
    assert lines[0]["url"] == "http://127.0.0.1:9999"


def test_it_has_what_the_daemon_leaves_of_time_and_memory(child, tmp_path):
    (pid,) = started(told(tmp_path, child, lambda lines: {"n": 1} in lines))
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    own, other = (int(Path(f"/proc/{one}/oom_score_adj").read_text()) for one in ("self", pid))
    assert other > own


def test_one_that_is_killed_is_started_again(child, tmp_path):
    (first,) = started(told(tmp_path, child, lambda lines: {"n": 1} in lines))
    os.kill(first, signal.SIGKILL)
    lines = told(tmp_path, child, lambda lines: len(started(lines)) == 2 and lines[-1] == {"n": 1})
    assert started(lines)[1] != first


def test_one_that_cannot_be_started_costs_the_daemon_nothing(child, tmp_path, monkeypatch):
    """No program, no memory, no files left: it is tried again later, and nothing is left open meanwhile."""
    python = sys.executable
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    files = len(os.listdir("/proc/self/fd"))
    child.tell(b"{}")
    assert len(os.listdir("/proc/self/fd")) == files
    monkeypatch.setattr(sys, "executable", python)
    assert len(started(told(tmp_path, child, lambda lines: {"n": 1} in lines))) == 1


def test_whoever_does_not_listen_never_makes_the_daemon_wait(child, tmp_path):
    """A stopped process reads nothing; far more is told than a socket holds."""
    (pid,) = started(told(tmp_path, child, lambda lines: {"n": 1} in lines))
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(2000):
            child.tell(b'{"n": 3, "filler": "' + 4000 * b"x" + b'"}')
    finally:
        os.kill(pid, signal.SIGCONT)
    told(tmp_path, child, lambda lines: {"n": 4} in lines, {"n": 4})


def test_stopping_ends_it_with_a_word(child, tmp_path):
    told(tmp_path, child, lambda lines: {"n": 1} in lines)
    child.stop()
    assert written(tmp_path)[-1] == "gone"


def test_it_is_gone_when_its_daemon_was_killed(tmp_path, child):
    """However the daemon ends: here a process that has one child process, and is killed."""
    script = (
        "import sys, time; from pathlib import Path\n"
        "from pipeline.runtime.child_process import ChildProcess\n"
        "from pipeline.config.schema import Settings, Storage\n"
        f"settings = Settings(storage=Storage(directory=Path({str(tmp_path)!r})))\n"
        "one = ChildProcess('listener_of_tests', settings, 'run-2')\n"
        "while True:\n    one.tell(b'{}'); time.sleep(0.02)\n"
    )
    daemon = subprocess.Popen([sys.executable, "-c", script])
    eventually(lambda: {} in written(tmp_path), "it is told something")
    daemon.kill()
    daemon.wait()
    eventually(lambda: "gone" in written(tmp_path), "it is gone")
