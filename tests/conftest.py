"""Shared by all tests."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from ctypes.util import find_library
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import gettempdir
from types import ModuleType
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

import pipeline  # noqa: F401 (before numpy: tests do not need more BLAS threads either)
from tests.arrays import ALPHA, ARRAY
from tests.forked import fork_server, gemmed

T = TypeVar("T")
LONGEST = (
    "fleet/test_killed_fleet.py",
    "daemon/test_killed_daemon.py",
    "runtime/test_dask_pool.py",
    "fleet/test_dispatch.py",
    "fleet/test_rollout.py",
    "web/test_review.py",
    "web/test_address.py",
    "fleet/test_worker.py",
    "fleet/test_publish.py",
    "learners/test_contract.py",
    "experiments/test_footsteps.py",
    "model/test_hot_swap.py",
    "learners/test_gem_med_exact.py",
)
"""Begun last, one of them would be waited for by all. The first one changes the network, and browsers wait until it is
over.
"""
WAITING = (
    "cli",
    "daemon",
    "deploy",
    "fleet",
    "outputs",
    "reports",
    "retraining",
    "runtime",
    "sources",
    "storage",
    "transport",
    "web",
)
"""Tests that mostly wait for processes; the others compute."""
SOAK_FIGURE = "figure"

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("gemmed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gemmed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-processes", action="store_true", help="Skip tests that start a process.")


def pytest_configure(config: pytest.Config) -> None:
    """One process that forks commands, for all processes that share the tests of a run."""
    if config.getoption("--no-processes"):
        sys.addaudithook(_refuse_processes)
    elif not hasattr(config, "workerinput"):
        resources = ExitStack()
        resources.enter_context(fork_server())
        config.add_cleanup(resources.close)


def _refuse_processes(event: str, arguments: tuple[Any, ...]) -> None:
    """Only in the processes that run tests: the first one starts those."""
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn") and "PYTEST_CURRENT_TEST" in os.environ:
        pytest.skip("it starts a process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, and files that wait between files that compute, so that no core is idle."""
    here = Path(__file__).parent
    rank = {here / name: place for place, name in enumerate(LONGEST)}
    waiting = {path: any(path.is_relative_to(here / name) for name in WAITING) for path in {i.path for i in items}}
    order: dict[Path, float] = {}
    for waits in (True, False):
        files = sorted((path for path in waiting if waiting[path] is waits), key=lambda p: (rank.get(p, len(rank)), p))
        order |= {path: (place + 0.5) / len(files) for place, path in enumerate(files)}
    items.sort(key=lambda item: order[item.path])


def pytest_collection_finish() -> None:
    """Thousands of tests and modules never become garbage: nobody needs to look through them again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One table of all long tests: result, time, what was done."""
    rows = [("test", "result", "what was done"), *_soak_rows(terminalreporter)]
    if len(rows) == 1:
        return
    terminalreporter.section("soak")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        terminalreporter.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _soak_rows(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[str, str, str]]:
    """A row for every test and outcome; its cases together."""
    for outcome in ("passed", "failed", "error", "skipped"):
        found = [one for one in terminalreporter.getreports(outcome) if "soak" in getattr(one, "keywords", ())]
        for test, cases in groupby(sorted(found, key=_test_of), key=_test_of):
            own = list(cases)
            done = [value for one in own for name, value in one.user_properties if name == SOAK_FIGURE]
            number = f"{len(own)} cases " if len(own) > 1 else ""
            yield test, f"{number}{outcome} in {sum(one.duration for one in own):.0f} s", ", ".join(done)


def _test_of(found: pytest.TestReport) -> str:
    return found.nodeid.partition("[")[0].removeprefix("tests/").replace(".py::", ": ").replace("_", " ")


def component(name: str) -> ModuleType:
    """An optional package: missing, it fails the run under CI and skips the test elsewhere."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} is not installed ({error}); run make test")


def program(name: str) -> str:
    """A program of the machine: missing, it fails the run under CI, which installs it, and skips the test elsewhere."""
    found = shutil.which(name)
    if found is None and os.environ.get("CI"):
        pytest.fail(f"{name} is not installed; see .ci/run")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def library(name: str, package: str) -> None:
    """A shared library from a Debian package: missing, it fails the run under CI and skips the test elsewhere."""
    if find_library(name) is None:
        message = f"lib{name} is not installed; apt-get install {package}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


TIMEOUT = float(os.environ.get("GEMMED_TESTS_TIMEOUT", "300"))
"""Seconds after which a test gives up waiting for anything. Nothing takes as long unless it hangs."""


def eventually(found: Callable[[], Any], what: str = "it", *, every: float = 0.05) -> Any:
    """The answer to a question that is asked again and again until there is one."""
    deadline = time.monotonic() + TIMEOUT
    while not (answer := found()):
        assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT} s"
        time.sleep(every)  # between two questions, not instead of an answer
    return answer


def awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns, in a thread of its own: a browser that other tests use has a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result(TIMEOUT)


@contextmanager
def network(*, changes: bool = False) -> Iterator[None]:
    """Of this machine. Whoever changes it has it alone: browsers break off what they load when an interface comes."""
    with (Path(gettempdir()) / "gemmed-tests-network.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if changes else fcntl.LOCK_SH)
        yield


def free_port() -> int:
    """One of this machine that nobody listens at, and that nobody else is given as long as this process lives."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that sets it too may listen there
    probe.bind(("", 0))
    port = int(probe.getsockname()[1])
    probe.detach()  # it stays bound
    return port


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """One small model for all tests, trained as a user trains it on the eight recordings of the fixtures.

    Processes that share the tests of a run share the model: whoever needs it first trains it.
    """
    shared = tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else None
    out = (shared or tmp_path_factory.mktemp("models")) / "first-model"
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            labels = ARRAY / "labels.csv"
            done = gemmed("train", str(ARRAY), "--labels", str(labels), "--model", str(out), "--folds", "2")
            assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def other_models(model, tmp_path_factory) -> list[Path]:
    """Two more for the same array: one weighs its sensors as if each knew it all, one has never learned of sensor 1."""
    from pipeline.learners.array_fusion import WeightedVotes
    from pipeline.model.model import Model

    first, directory = Model.load(model), tmp_path_factory.mktemp("models")
    other = 1.0 if first.votes.dependence < 0.5 else 0.0
    replace(first, votes=WeightedVotes(other)).save(directory / "weighing")
    replace(first, machines=(None, *first.machines[1:])).save(directory / "deaf")
    return [directory / "weighing", directory / "deaf"]


@pytest.fixture(scope="session")
def unseen(tmp_path_factory) -> Path:
    """Six recordings of the same site that no model has seen, with faults."""
    out = tmp_path_factory.mktemp("unseen") / "array"
    shape = ("--rate", "4000", "--seconds", "6.5", "--recordings", "6", "--fault-share", "0.2", "--seed", "9")
    done = gemmed("simulate", str(out), "--no-picture", *shape, "--fault-seconds", "3")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def decisions(model, unseen, tmp_path_factory) -> Path:
    """What the model makes of the recordings it has not seen."""
    out = tmp_path_factory.mktemp("decisions") / "decisions.jsonl"
    done = gemmed("replay", str(unseen), "--model", str(model), "--out", str(out), "--alpha", str(ALPHA))
    assert done.returncode == 0, done.stderr
    return out
