"""The abstractions of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self


class Source(Protocol):
    """Gives facts in the order of time until it ends; owns its files, sockets and threads.

    Of every recording comes first `RecordingStarted`, then blocks and gaps that tile its time without overlap.
    """

    def __enter__(self) -> Self: ...
    def __iter__(self) -> Iterator[object]: ...
    def __exit__(self, *exc: object) -> None: ...


class Stage(Protocol):
    """Turns facts it accepts into later ones. Reads no clock, starts no thread, opens no file.

    However the sound is cut into blocks, the output is the same. After `flush` the stage is as new. A newly made one
    that is given what another one `remembers`, by the names of its attributes, goes on as that one would have.
    """

    @property
    def accepts(self) -> type | tuple[type, ...]: ...
    @property
    def remembers(self) -> tuple[str, ...]: ...
    def push(self, item: Any, /) -> list[object]: ...
    def flush(self) -> list[object]: ...


class BatchStage(Stage, Protocol):
    """A stage that takes many facts at once for less than one by one, with the same results; strangers pass it."""

    def push_all(self, items: list[object], /) -> list[object]: ...


class Observer(Protocol):
    """Sees every fact, changes none."""

    def observe(self, event: object, /) -> None: ...
    def close(self) -> None: ...
