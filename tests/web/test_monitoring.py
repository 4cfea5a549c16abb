"""Health and readiness: true only while it is so, and else with a reason and a cure."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from pipeline.daemon.readiness import NOTHING_HEARD
from tests.conftest import TIMEOUT, eventually
from tests.forked import gemmed
from tests.web.conftest import Dashboard


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
        assert (code, [reason["what"] for reason in body["reasons"]]) == (503, ["no model tells classes apart yet"])
    finally:
        lonely.close()


def test_an_array_without_a_usable_sensor_is_not_ready(tmp_path, model):
    """All are masked; /readyz and gemmed status give the same reason."""
    masked = Dashboard(tmp_path, model)
    masked.config.write_text(masked.config.read_text().replace("[array]", "[array]\nmask = [1, 2, 3, 4]"))
    try:
        masked.start()
        eventually(lambda: masked.status().get("sound_time"), "sound")
        code, body = eventually(lambda: refusal(masked), "its sensors are judged")
        assert (code, [reason["problem"] for reason in body["reasons"]]) == (503, ["no_usable_sensor"])
        found = eventually(lambda: nothing_heard(masked), "the status is stored")
        assert found["reasons"][0]["problem"] == "no_usable_sensor"
        assert found["reasons"][0]["cure"] == body["reasons"][0]["cure"]
    finally:
        masked.close()


def refusal(dashboard: Dashboard) -> tuple[int, dict[str, Any]] | None:
    """The answer of /readyz once it is not ready."""
    found = answer(f"{dashboard.url}/readyz")
    return found if found[0] == 503 else None


def nothing_heard(dashboard: Dashboard) -> dict[str, Any] | None:
    """What `gemmed status` says once nothing is heard."""
    done = gemmed("status", "--config", str(dashboard.config), "--json")
    return dict(json.loads(done.stdout)) if done.returncode == NOTHING_HEARD else None
