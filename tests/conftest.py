"""Shared by all tests."""

from __future__ import annotations

import importlib
import os
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
