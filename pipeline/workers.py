"""Work on all cores, with a progress bar."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread, current_thread, main_thread
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pipeline.errors import UsageError

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


def finished(work: Callable[[Task], Result], tasks: Sequence[Task], *, jobs: int) -> Iterator[tuple[Task, Result]]:
    """Tasks with their results, as they are finished, from so many processes; left early, it ends them at once."""
    if not tasks:
        return
    # Spawned, not forked: a fork would inherit the threads and locks of this process.
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn"), initializer=_die_with_parent)
    try:
        with _interrupts_for_parent_only():
            futures = {pool.submit(work, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise UsageError("a worker was killed, perhaps for want of memory; start again with fewer jobs") from error
    except BaseException:
        # A second Ctrl-C while waiting for them to finish would leave them, and this process, hanging.
        for worker in active_children():
            worker.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


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
