"""Who does the work: this process, or all cores of this machine; with a progress bar."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Protocol, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pipeline.core.errors import UsageError

Task = TypeVar("Task")
Result = TypeVar("Result")


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


class Engine(Protocol):
    """Spreads work over whatever it has. Work and tasks are values: whoever does them has copies of its own."""

    def finished(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
        """Tasks with their results, as they are finished; left early, what has not begun never begins."""

    def spreads(self, n_tasks: int) -> bool:
        """Whether so many tasks would be done beside each other, or far away."""

    def check_files(self, paths: Iterable[Path]) -> None:
        """Refuse to begin if somebody who is to read these files cannot see them."""


@dataclass(frozen=True, slots=True)
class ThisProcess:
    """One task after the other, here."""

    def finished(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
        return ((task, work(task)) for task in tasks)

    def spreads(self, n_tasks: int) -> bool:
        return False

    def check_files(self, paths: Iterable[Path]) -> None:
        """Whoever found them sees them."""


class LocalEngine:
    """`jobs` processes of this machine, started for the first work and kept for the next; one job needs no process."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def finished(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
        """As they are finished; left early, it ends the processes at once."""
        if not self.spreads(len(tasks)):
            yield from ThisProcess().finished(work, tasks)
            return
        if self._pool is None:
            # Spawned, not forked: a fork would inherit the threads and locks of this process.
            self._pool = ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"), initializer=_die_with_parent)
        try:
            with _interrupts_for_parent_only():
                futures = {self._pool.submit(work, task): task for task in tasks}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            # Waited for: what it clears away meanwhile must not meet the end of this process.
            self._pool.shutdown()
            self._pool = None
            raise UsageError("a worker was killed, perhaps for want of memory; start again with fewer jobs") from error
        except BaseException:
            # Killed, not asked to finish: a second Ctrl-C meanwhile would leave them, and this process, hanging.
            for worker in active_children():
                worker.kill()
            # Waited for: the pool's thread must not meet the end of this process.
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            raise

    def spreads(self, n_tasks: int) -> bool:
        return self.jobs > 1 and n_tasks > 1

    def check_files(self, paths: Iterable[Path]) -> None:
        """All processes of a machine see the same."""


@contextmanager
def _interrupts_for_parent_only() -> Iterator[None]:
    """Processes started meanwhile ignore Ctrl-C, which a terminal sends to all: who started them ends them."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _die_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
