"""Shared by all tests."""

from __future__ import annotations

import importlib
import os
import shutil
import socket
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

ARRAY = Path(__file__).parents[1] / "fixtures" / "array"


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


def free_port() -> int:
    """One of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """One small model for all tests, trained as a user trains it on the eight recordings of the fixtures."""
    from tests.test_cli import gemmed

    out = tmp_path_factory.mktemp("models") / "first"
    done = gemmed("train", str(ARRAY), "--labels", str(ARRAY / "labels.csv"), "--model", str(out), "--folds", "2")
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
