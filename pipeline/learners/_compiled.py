"""The one door to numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile on first call and keep the result on disk, where there is a place that may be written to.

    A read-only installation whose user has no cache directory compiles anew in every process.
    """
    try:
        return njit(function, cache=True)
    except RuntimeError:
        return njit(function)
