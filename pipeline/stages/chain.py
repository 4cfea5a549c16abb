"""Stages in a row, which is again a stage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.core.blas_threads import one_thread
from pipeline.core.checkpoint import restore, snapshot
from pipeline.core.events import FileHeard, RecordingEnded, RecordingStarted
from pipeline.core.protocols import Stage


class Chain:
    """Run stages in order; a fact that a stage does not accept travels past it.

    A new recording, and the end of one, flush all stages first: nothing of one recording reaches beyond it.
    """

    accepts: type | tuple[type, ...] = object
    remembers = ("stages",)

    def __init__(self, *stages: Stage) -> None:
        self.stages = stages

    @one_thread
    def push(self, item: object, /) -> list[object]:
        before = self.flush() if isinstance(item, RecordingStarted | RecordingEnded | FileHeard) else []
        return before + _run([item], self.stages)

    @one_thread
    def flush(self) -> list[object]:
        out: list[object] = []
        for position, stage in enumerate(self.stages, start=1):
            out += _run(stage.flush(), self.stages[position:])
        return out

    def snapshot(self) -> bytes:
        """What all stages know at the moment."""
        return snapshot(self)

    def restore(self, data: bytes) -> None:
        """Go on, newly made of the same stages, where the chain was of which the snapshot was taken."""
        restore(self, data)


def _run(items: list[object], stages: Sequence[Stage]) -> list[object]:
    for stage in stages:
        push_all = getattr(stage, "push_all", None) or partial(_one_by_one, stage)
        items = push_all(items)
    return items


def _one_by_one(stage: Stage, items: list[object]) -> list[object]:
    return [out for item in items for out in (stage.push(item) if isinstance(item, stage.accepts) else [item])]
