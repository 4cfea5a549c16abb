"""Why a daemon is not ready: one list of reasons for `gemmed status` and `/readyz`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline.daemon.readiness import (
    EXIT_CODES,
    SOUND_SECONDS,
    STALLED_SECONDS,
    START_SECONDS,
    ReadinessProblem,
    exit_code,
    reasons_not_healthy,
    reasons_not_ready,
)
from pipeline.storage.journal import utc

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return utc(NOW - timedelta(seconds=seconds))


def status(**changes: Any) -> dict[str, Any]:
    return {
        "started": ago(3600),
        "time": utc(NOW),
        "source": "soundcard",
        "sound_time": ago(0.5),
        "usable_sensors": 4,
        "sensors": [{}, {}, {}, {}],
        "journal_writable": True,
        "model_decides": True,
    } | changes


def problems(given: dict[str, Any] | None, age: float | None = 0.4) -> list[ReadinessProblem]:
    return [reason.problem for reason in reasons_not_ready(given, age)]


def test_a_daemon_that_hears_and_decides_is_ready():
    assert reasons_not_healthy(status(), 0.4) == reasons_not_ready(status(), 0.4) == []
    assert exit_code([]) == 0


@pytest.mark.parametrize(
    ("given", "age", "problem", "code"),
    [
        (None, None, ReadinessProblem.NO_STATUS, 3),
        (status(), STALLED_SECONDS, ReadinessProblem.STALLED, 3),
        (status(running=False), 4000.0, ReadinessProblem.STOPPED, 4),
    ],
)
def test_a_daemon_that_processes_nothing_is_neither_healthy_nor_ready(given, age, problem, code):
    for judge in (reasons_not_healthy, reasons_not_ready):
        (reason,) = judge(given, age)
        assert (reason.problem, exit_code([reason])) == (problem, code)
        assert "the daemon" in reason.what
        assert reason.cure


@pytest.mark.parametrize(
    ("changes", "problem", "what", "code"),
    [
        (
            {"sound_time": ago(42), "usable_sensors": 0},
            ReadinessProblem.NO_SOUND,
            "no sound since 2026-05-01 11:59:18 UTC",
            5,
        ),
        (
            {"sound_time": None, "usable_sensors": 0},
            ReadinessProblem.NO_SOUND,
            "no sound has arrived since the start",
            5,
        ),
        ({"usable_sensors": 0}, ReadinessProblem.NO_USABLE_SENSOR, "none of 4 sensors is usable", 5),
        ({"journal_writable": False}, ReadinessProblem.JOURNAL_READ_ONLY, "the journal cannot be written", 6),
        ({"model_decides": False}, ReadinessProblem.NO_MODEL, "no model tells classes apart yet", 6),
    ],
)
def test_what_is_missing_is_named_with_its_cure_and_an_exit_code(changes, problem, what, code):
    """The daemon itself is healthy: a restart would not help."""
    assert reasons_not_healthy(status(**changes), 0.4) == []
    (reason,) = reasons_not_ready(status(**changes), 0.4)
    assert (reason.problem, exit_code([reason])) == (problem, code)
    assert what in reason.what
    assert reason.cure


def test_all_reasons_are_given_and_the_most_serious_one_is_the_exit_code():
    changes = {"journal_writable": False, "model_decides": False, "sound_time": ago(100), "usable_sensors": 0}
    found = reasons_not_ready(status(**changes), 40.0)
    assert [one.problem for one in found] == [
        ReadinessProblem.STALLED,
        ReadinessProblem.NO_SOUND,
        ReadinessProblem.JOURNAL_READ_ONLY,
        ReadinessProblem.NO_MODEL,
    ]
    assert exit_code(found) == exit_code(found[::-1]) == 3
    assert set(EXIT_CODES) == set(ReadinessProblem)


def test_the_first_sound_has_a_minute_to_arrive():
    """After that minute, and after sound that was interrupted, silence is a reason."""
    silent = {"sound_time": None, "usable_sensors": 0}
    assert problems(status(started=ago(START_SECONDS - 1), **silent)) == []
    assert problems(status(started=ago(START_SECONDS + 1), **silent)) == [ReadinessProblem.NO_SOUND]
    stopped = {"sound_time": ago(SOUND_SECONDS + 1), "usable_sensors": 0}
    assert problems(status(started=ago(START_SECONDS - 1), **stopped)) == [ReadinessProblem.NO_SOUND]


def test_a_source_that_reconnects_is_given_time():
    """Sensors that deliver nothing for a few seconds are not usable; that alone is no reason yet."""
    assert problems(status(sound_time=ago(SOUND_SECONDS - 1), usable_sensors=0)) == []


def test_files_of_a_folder_arrive_when_they_arrive():
    assert problems(status(source="folder", sound_time=ago(5000), usable_sensors=0)) == []
    assert problems(status(source="folder", sound_time=None, usable_sensors=0)) == []


def test_a_status_of_an_older_version_is_not_judged_by_what_it_does_not_have():
    assert problems({}, 0.4) == []
    assert problems({}, 4000.0) == [ReadinessProblem.STALLED]
