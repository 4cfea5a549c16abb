"""Work that is spread over processes of this machine."""

from __future__ import annotations

import os
import signal

import pytest

from pipeline.errors import UsageError
from pipeline.workers import LocalEngine
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
    with LocalEngine(1) as engine:
        assert list(engine.finished(whose, [])) == []
        first = dict(engine.finished(whose, range(3)))
        assert set(first) == {0, 1, 2}
        assert set(dict(engine.finished(whose, range(2))).values()) == set(first.values())
    (pid,) = set(first.values())
    assert pid != os.getpid()
    assert is_gone(pid)


def test_whoever_was_killed_or_sent_away_is_replaced():
    with LocalEngine(1) as engine:
        with pytest.raises(UsageError, match="a worker was killed"):
            list(engine.finished(whose, [-1]))
        left_early = engine.finished(whose, range(100))
        _, first = next(left_early)
        left_early.close()
        eventually(lambda: is_gone(first))
        ((_, second),) = engine.finished(whose, [0])
        assert second != first
