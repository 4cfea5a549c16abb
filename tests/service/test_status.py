"""What can be known of a daemon from outside."""

from __future__ import annotations

import json

from pipeline.service.state import StateDirectory
from pipeline.service.status import STOPPED, status
from pipeline.sinks.journal import Entry, Journal


def told(state: StateDirectory, run: str, *bodies: dict) -> list[int]:
    """The ids of events of a run, which also has a heart that beats."""
    with Journal(state.journal) as journal:
        beat = json.dumps({"run": run})
        journal.execute("INSERT OR REPLACE INTO heartbeat VALUES (1, '2026-05-01T10:00:00.000Z', ?)", (beat,))
        return journal.append([Entry(run, body) for body in bodies])


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
