"""Health and readiness: true only while it is so, and else with a reason and a cure."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline.sinks.journal import utc
from pipeline.web.health import FRESH_SECONDS, health_of, readiness_of
from tests.conftest import TIMEOUT, eventually
from tests.web.conftest import Dashboard

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def status(**changes: Any) -> dict[str, Any]:
    heard = (NOW - timedelta(seconds=0.5)).timestamp()
    return {
        "time": utc(NOW),
        "source": "soundcard",
        "journal_writable": True,
        "model_decides": True,
        "sensors": [{"last_frame": heard}, {"last_frame": None}],
    } | changes


def silent(seconds: float) -> dict[str, Any]:
    return {"sensors": [{"last_frame": (NOW - timedelta(seconds=seconds)).timestamp()}]}


def test_all_is_well():
    assert health_of(status(), 0.4).ok
    assert readiness_of(status(), 0.4).model_dump() == {"ok": True, "reasons": []}


@pytest.mark.parametrize(("told", "age"), [(None, None), (status(), FRESH_SECONDS), (status(), 4000.0)])
def test_a_daemon_that_tells_nothing_is_neither_healthy_nor_ready(told, age):
    for judge in (health_of, readiness_of):
        found = judge(told, age)
        assert not found.ok
        (reason,) = found.reasons
        assert "daemon" in reason.what
        assert reason.cure


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (silent(42), "no sound arrives for 42 s"),
        ({"sensors": [{"last_frame": None}]}, "no sound arrives yet"),
        ({"journal_writable": False}, "the journal cannot be written to"),
        ({"model_decides": False}, "no model decides yet"),
    ],
)
def test_what_is_lacking_is_told_and_the_daemon_lives_all_the_same(changes, what):
    assert health_of(status(**changes), 0.4).ok
    found = readiness_of(status(**changes), 0.4)
    assert not found.ok
    assert [reason.what for reason in found.reasons] == [what]
    assert found.reasons[0].cure


def test_all_reasons_are_told_at_once():
    found = readiness_of(status(journal_writable=False, model_decides=False, **silent(100)), 20.0)
    assert len(found.reasons) == 4


def test_files_may_take_their_time():
    assert readiness_of(status(source="folder", **silent(5000)), 0.4).ok


def answer(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_daemon_with_sound_and_a_model_is_ready(dashboard):
    assert answer(f"{dashboard.url}/healthz") == (200, {"ok": True, "reasons": []})
    assert answer(f"{dashboard.url}/readyz") == (200, {"ok": True, "reasons": []})


def test_a_daemon_without_a_model_lives_but_is_not_ready(tmp_path):
    lonely = Dashboard(tmp_path, None)
    try:
        lonely.start()
        eventually(lambda: lonely.status().get("sample", 0) > 0, "sound")
        assert answer(f"{lonely.url}/healthz")[0] == 200
        code, body = answer(f"{lonely.url}/readyz")
        assert (code, [reason["what"] for reason in body["reasons"]]) == (503, ["no model decides yet"])
    finally:
        lonely.close()
