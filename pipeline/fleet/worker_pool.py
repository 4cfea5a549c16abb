"""Those who decide for arrays: workers by name, each of whom may have many arrays at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Lock, Thread
from typing import Protocol

from pipeline.core.errors import GemmedError
from pipeline.fleet.array_state import Assignment
from pipeline.fleet.worker import host

_LAST_WORDS_SECONDS = 5.0


class ArrayTask(Protocol):
    """An array that was given to a worker."""

    def outcome(self) -> TaskResult | None:
        """What became of it; None while he has it."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Why a task ended; `failed` if it should not have."""

    why: str
    failed: bool = False


class WorkerPool(Protocol):
    """All workers. A worker that dies takes his arrays with him, and is no longer among them."""

    @property
    def is_lost(self) -> bool:
        """Whether none of them can be spoken to any more, and others must be found."""

    def workers(self) -> list[str]: ...
    def start(self, assignment: Assignment, worker: str) -> ArrayTask: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Given:
    """A task that somebody else does; whoever hears of its end says so here."""

    ended: TaskResult | None = None

    def outcome(self) -> TaskResult | None:
        return self.ended


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    wire: Connection
    tasks: dict[str, _Given] = field(default_factory=dict)


class LocalWorkerPool:
    """So many processes of this machine; one that dies is replaced. They die with the process that started them."""

    is_lost = False

    def __init__(self, processes: int, *, log_level: str = "info") -> None:
        self._context, self._log_level = get_context("spawn"), log_level
        self._workers: dict[str, _Worker] = {}
        self._count, self._processes = 0, processes

    def workers(self) -> list[str]:
        for name in [name for name, worker in self._workers.items() if not worker.process.is_alive()]:
            self._listen(self._workers[name])
            del self._workers[name]
        while len(self._workers) < self._processes:
            self._hire()
        for worker in self._workers.values():
            self._listen(worker)
        return list(self._workers)

    def _hire(self) -> None:
        self._count += 1
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_work, args=(theirs, self._log_level), name=f"gemmed worker {self._count}", daemon=True
        )
        process.start()
        theirs.close()
        self._workers[f"process {process.pid}"] = _Worker(process, ours)

    def _listen(self, worker: _Worker) -> None:
        try:
            while worker.wire.poll():
                ticket, outcome = worker.wire.recv()
                worker.tasks.pop(ticket).ended = outcome
        except (EOFError, OSError):
            pass  # he is dead, and will be missed

    def start(self, assignment: Assignment, worker: str) -> ArrayTask:
        task = _Given()
        self._workers[worker].tasks[assignment.ticket] = task
        with suppress(OSError):  # he died just now, and will be missed
            self._workers[worker].wire.send(assignment)
        return task

    def close(self) -> None:
        """Without a wire a worker stops."""
        for worker in self._workers.values():
            worker.wire.close()
        for worker in self._workers.values():
            worker.process.join(_LAST_WORDS_SECONDS)
            worker.process.kill()


def _work(wire: Connection, log_level: str) -> None:
    """The life of a worker: a thread for every array, until nobody speaks to him any more."""
    import signal

    from pipeline.runtime.logs import start_logging

    # Ctrl-C is for whoever started him.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_logging(log_level, "auto")
    speaking, gone = Lock(), False

    def decide(assignment: Assignment) -> None:
        outcome = outcome_of(assignment, lambda: gone)
        with speaking, suppress(OSError):
            wire.send((assignment.ticket, outcome))

    threads: list[Thread] = []
    try:
        while True:
            assignment = wire.recv()
            threads = [thread for thread in threads if thread.is_alive()]
            threads.append(Thread(target=decide, args=(assignment,), name=assignment.array, daemon=True))
            threads[-1].start()
    except (EOFError, OSError):  # the latter if something he said was never heard
        gone = True
    for thread in threads:
        thread.join(_LAST_WORDS_SECONDS)
    os._exit(0)


def outcome_of(assignment: Assignment, stopping: Callable[[], bool]) -> TaskResult:
    """Decide for an array for as long as one may; whatever goes wrong concerns this array alone."""
    try:
        return TaskResult(host(assignment, stopping))
    except GemmedError as error:
        return TaskResult(str(error), failed=True)
    except Exception as error:
        return TaskResult(f"{type(error).__name__}: {error}", failed=True)
