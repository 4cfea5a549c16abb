"""Shared by all tests."""

from __future__ import annotations

import importlib
import os
import shutil
from ctypes.util import find_library
from types import ModuleType

import pytest


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
