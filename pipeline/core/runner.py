"""The loop: a source, the stages, the observers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pipeline.core.events import Block, Gap
from pipeline.core.protocols import Observer, Source, Stage

Progress = Callable[[int], None]
"""Told how many samples went by."""


def run(source: Source, chain: Stage, observers: Iterable[Observer], *, progress: Progress | None = None) -> None:
    """Let every observer see every fact that leaves the stages, until the source ends."""
    observers = tuple(observers)
    try:
        with source:
            for item in source:
                _show(chain.push(item), observers)
                if progress is not None and isinstance(item, Block | Gap):
                    progress(item.stop - item.start)
    finally:
        # Also after an error: what was heard until then counts, and nothing of it may reach into what comes next.
        _show(chain.flush(), observers)


def _show(facts: list[Any], observers: Iterable[Observer]) -> None:
    for fact in facts:
        for observer in observers:
            observer.observe(fact)
