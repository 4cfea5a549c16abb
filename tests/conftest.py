"""Shared by all tests."""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from types import ModuleType
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

import pipeline  # noqa: F401 (numpy has one thread if this comes first, whichever tests are collected first)

T = TypeVar("T")
LONGEST = (
    "fleet/test_killed_fleet.py",
    "test_dask_engine.py",
    "service/test_train.py",
    "simulation/test_simulate_command.py",
    "service/test_killed_daemon.py",
    "service/test_replay.py",
    "web/test_review.py",
    "web/test_address.py",
    "web/test_login.py",
)
"""Minutes each: begun last, one of them would be waited for by all. The first one changes the network, and browsers
wait until it is over.
"""
ARRAY = Path(__file__).parents[1] / "fixtures" / "array"

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("gemmed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gemmed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, where several processes share the tests."""
    rank = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


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


PATIENCE = 120.0


def eventually(found: Callable[[], Any], what: str = "it", *, within: float = PATIENCE, every: float = 0.05) -> Any:
    """The answer to a question that is asked again and again until there is one."""
    deadline = time.monotonic() + within
    while not (answer := found()):
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(every)  # between two questions, not instead of an answer
    return answer


def awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns, in a thread of its own: a browser that other tests use has a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result(PATIENCE)


@contextmanager
def network(*, changes: bool = False) -> Iterator[None]:
    """Of this machine. Whoever changes it has it alone: browsers break off what they load when an interface comes."""
    with (Path(gettempdir()) / "gemmed-tests-network.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if changes else fcntl.LOCK_SH)
        yield


def heed_interrupts() -> None:
    """For children: tests may run where Ctrl-C is ignored, and they would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    from tests.forked import gemmed

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
    from pipeline.training.model import Model

    first, directory = Model.load(model), tmp_path_factory.mktemp("models")
    other = 1.0 if first.votes.dependence < 0.5 else 0.0
    replace(first, votes=WeightedVotes(other)).save(directory / "weighing")
    replace(first, machines=(None, *first.machines[1:])).save(directory / "deaf")
    return [directory / "weighing", directory / "deaf"]
