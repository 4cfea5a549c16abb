"""Work that is spread over processes of this machine."""

from __future__ import annotations

import os
import signal

import pytest

from pipeline.core.errors import UsageError
from pipeline.runtime.process_pool import LocalEngine
from tests.conftest import eventually


def whose(number: int) -> int:
    """Who does the work."""
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_processes_are_kept_for_the_next_work_and_end_with_the_engine():
    with LocalEngine(2) as engine:
        assert list(engine.finished(whose, [])) == []
        found = [dict(engine.finished(whose, range(5))) for _ in range(2)]
        assert set(found[0]) == {0, 1, 2, 3, 4}
    processes = {process for one in found for process in one.values()}
    assert 1 <= len(processes) <= 2
    assert os.getpid() not in processes
    assert all(map(is_gone, processes))


@pytest.mark.parametrize(("jobs", "n_tasks"), [(1, 3), (2, 1)])
def test_what_cannot_be_spread_is_done_here(jobs, n_tasks):
    """To start a process for it would take longer than most of it."""
    with LocalEngine(jobs) as engine:
        assert set(dict(engine.finished(whose, range(n_tasks))).values()) == {os.getpid()}


def test_whoever_was_killed_or_sent_away_is_replaced():
    with LocalEngine(2) as engine:
        with pytest.raises(UsageError, match="a worker was killed"):
            list(engine.finished(whose, [-1, -1]))
        left_early = engine.finished(whose, range(100))
        _, first = next(left_early)
        left_early.close()
        eventually(lambda: is_gone(first))
        assert first not in dict(engine.finished(whose, range(5))).values()
