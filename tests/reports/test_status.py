"""What can be known of a daemon from outside."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from pipeline.daemon.readiness import NO_DECISIONS, NOTHING_HEARD, READY, STALLED, STOPPED
from pipeline.reports.status import show_status, status
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal, JournalEntry, utc


def told(state: StateDirectory, run: str, *bodies: dict) -> list[int]:
    """The ids of events of a run, which also has a heart that beats."""
    with Journal(state.journal) as journal:
        beat = json.dumps({"run": run})
        journal.execute("INSERT OR REPLACE INTO heartbeat VALUES (1, '2026-05-01T10:00:00.000Z', ?)", (beat,))
        return journal.append([JournalEntry(run, body) for body in bodies])


def test_the_last_decision_is_one_of_the_run_and_has_its_own_id(tmp_path):
    """Label and id belong together; what an earlier run decided is not this one's."""
    state = StateDirectory(tmp_path)
    _, last = told(state, "one", {"type": "decision", "label": "human"}, {"type": "decision", "label": "dog"})
    found = status(state)
    assert (found["last_decision"]["id"], found["last_decision"]["label"], found["code"]) == (last, "dog", STOPPED)
    told(state, "two")
    assert status(state)["last_decision"] is None


def test_settings_that_could_be_used_are_no_trouble(tmp_path):
    state = StateDirectory(tmp_path)
    fine, wrong, other = (
        {"type": "settings_reloaded", "changes": []},
        {"type": "settings_reloaded", "error": "no"},
        {"type": "run_died"},
    )
    _, second, third = told(state, "one", fine, wrong, other)
    assert [trouble["id"] for trouble in status(state)["troubles"]] == [third, second]


def shown(found: dict[str, Any]) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        show_status(found, console)
    return capture.get()


def running(state: StateDirectory, seconds_ago: float = 0.0, **changes: Any) -> dict[str, Any]:
    """The status of a daemon that holds its lock and stored it so long ago."""
    now = datetime.now(UTC)
    sensors = [
        {"sensor": n, "state": "good", "causes": [], "cures": [], "weight": 0.5, "delivers": True} for n in (1, 2)
    ]
    body = {
        "run": "one", "pid": 17, "started": "2026-05-01T10:00:00.000Z", "time": utc(now), "source": "soundcard",
        "rate_hz": 4000, "sample": 8000, "recording": "one-0001", "model": "m", "labels": {"human": 3},
        "backlog_seconds": 0.0, "samples_lost": 0, "resident_mb": 100.0, "learning": None, "names": {},
        "journal_writable": True, "model_decides": True, "sound_time": utc(now), "usable_sensors": 2,
        "sensors": sensors, "presence": NOBODY,
    } | changes  # fmt: skip
    with Journal(state.journal) as journal:
        stored_at = utc(now - timedelta(seconds=seconds_ago))
        journal.execute("INSERT OR REPLACE INTO heartbeat VALUES (1, ?, ?)", (stored_at, json.dumps(body)))
        if not journal.rows("SELECT 1 FROM events WHERE type = 'run_started'"):
            journal.append([JournalEntry("one", {"type": "run_started"})])
    with state.locked():
        return status(state)


NOBODY = {"somebody": False, "probability": 0.01, "since": "2026-05-01T14:25:10.000Z", "passage": None}
PASSAGE = {"passage": "one-0001-p3", "label": "human_animal", "probability": 0.934, "reason": None}


@pytest.mark.parametrize(
    ("presence", "names", "text"),
    [
        (NOBODY, {}, "nobody since 2026-05-01 14:25:10 UTC"),
        (NOBODY | {"somebody": None, "since": None}, {}, "unknown: no decision yet"),
        (
            NOBODY | {"somebody": True, "passage": PASSAGE},
            {},
            "somebody: Human with animal, 93 %, since 2026-05-01 14:25:10 UTC",
        ),
        (NOBODY | {"somebody": True, "passage": PASSAGE}, {"human_animal": "rider"}, "somebody: rider, 93 %, since"),
        (
            NOBODY | {"somebody": True, "passage": PASSAGE | {"label": None, "reason": "too close to call"}},
            {},
            "somebody: no label (too close to call), since",
        ),
    ],
)
def test_whether_somebody_is_there_is_one_line(tmp_path, presence, names, text):
    found = running(StateDirectory(tmp_path), presence=presence, names=names)
    assert (found["code"], found["reasons"]) == (READY, [])
    assert text in shown(found)


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"sound_time": "2026-05-01T14:00:00.000Z", "usable_sensors": 0}, NOTHING_HEARD, "no sound since 2026-05-01"),
        ({"usable_sensors": 0}, NOTHING_HEARD, "none of 2 sensors is usable"),
    ],
)
def test_nobody_is_not_claimed_while_nothing_is_heard(tmp_path, changes, code, text):
    found = running(StateDirectory(tmp_path), **changes)
    assert found["code"] == code
    assert f"unknown: {text}" in shown(found)
    assert "nobody since" not in shown(found)
    assert found["reasons"][0]["cure"] in shown(found)


def test_a_status_that_is_old_is_of_a_daemon_that_processes_nothing(tmp_path):
    found = running(StateDirectory(tmp_path), 40.0)
    assert (found["code"], found["reasons"][0]["problem"]) == (STALLED, "stalled")
    assert "unknown: the daemon has processed nothing for 40 s" in shown(found)


def test_a_daemon_that_has_just_started_is_not_judged_by_the_status_of_the_run_before(tmp_path):
    """It has a minute until its own must be there."""
    state = StateDirectory(tmp_path)
    running(state, 4000.0)
    with Journal(state.journal) as journal:
        journal.append([JournalEntry("two", {"type": "run_started"})])
    with state.locked():
        found = status(state)
    assert found["code"] == READY
    assert "started 0 s ago, no status yet" in shown(found)
    with Journal(state.journal) as journal:
        journal.execute("UPDATE events SET time = ? WHERE run = 'two'", (utc(datetime.now(UTC) - timedelta(hours=1)),))
    with state.locked():
        found = status(state)
    assert (found["code"], found["reasons"][0]["problem"]) == (STALLED, "no_status")


def test_a_model_that_is_missing_does_not_hide_who_is_there(tmp_path):
    found = running(StateDirectory(tmp_path), model_decides=False)
    assert found["code"] == NO_DECISIONS
    assert "nobody since" in shown(found)
