"""One sensor: its health, its history, and why it is believed or not; from the API and on the page."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import soundfile

from pipeline.core.sensor_state import Cause
from pipeline.model.model import Model
from pipeline.storage.journal import Journal, utc
from tests.conftest import eventually
from tests.web.conftest import SIMULATED, TIMEOUT, Dashboard
from tests.web.looks import check_looks


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory, model):
    """Five times as fast as real, so that some pieces of sound are kept soon."""
    made = Dashboard(tmp_path_factory.mktemp("sensor"), model, source=f"{SIMULATED}\nspeed = 5")
    made.start()
    try:
        eventually(lambda: explainable(made, 20), "twenty decisions of which the sound is kept")
        eventually(lambda: known(made, 1), "a minute of history")
        yield made
    finally:
        made.close()


def explainable(dashboard: Dashboard, most: int) -> list[int] | None:
    """Decisions of which the sound is kept; none while there are fewer."""
    with dashboard.journal() as journal:
        (row,) = journal.rows("SELECT coalesce(max(stop), 0) AS stop FROM pieces")
        found = [e.id for e in journal.events(types=["decision"]) if e.body["stop_sample"] <= row["stop"]]
    return found[-most:] if len(found) >= most else None


def history(dashboard: Dashboard, sensor: int, begin: datetime, end: datetime) -> dict[str, Any]:
    return dashboard.answer(f"/api/v1/sensors/{sensor}/history?begin={utc(begin)}&end={utc(end)}")


def known(dashboard: Dashboard, sensor: int) -> list[dict[str, Any]]:
    """Bins of its last hours."""
    now = datetime.now(UTC)
    return history(dashboard, sensor, now - timedelta(hours=6), now).get("bins", [])


def refused(dashboard: Dashboard, path: str) -> tuple[int, str]:
    try:
        urllib.request.urlopen(dashboard.url + path, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]
    raise AssertionError(f"{path} was answered")


def fetched(dashboard: Dashboard, path: str) -> tuple[np.ndarray, int]:
    with urllib.request.urlopen(dashboard.url + path, timeout=TIMEOUT) as answer:
        assert answer.headers["Content-Type"] == "audio/wav"
        return soundfile.read(io.BytesIO(answer.read()), dtype="float32", always_2d=True)


def explanation(dashboard: Dashboard, number: int) -> dict[str, Any]:
    return dashboard.answer(f"/api/v1/events/{number}/explanation")


def test_an_explanation_finds_what_was_decided_by(dashboard, model):
    """P-values made again from the kept sound are those of the event to the last digit, also while one is masked."""
    learned = Model.load(model)

    def some() -> list[int] | None:
        numbers = explainable(dashboard, 60)
        roles = [dashboard.answer(f"/api/v1/events/{number}")["roles"] for number in numbers or []]
        return numbers if any("masked" in one for one in roles) else None

    numbers = eventually(some, "decisions without a sensor that is ill")
    found = [explanation(dashboard, number) for number in numbers]
    assert [one["event"]["id"] for one in found] == numbers
    assert all(one["same"] is True and one["why_not"] is None for one in found)
    for one in found:
        for s, say in enumerate(one["sensors"]):
            assert (say["weight"], say["role"]) == (one["event"]["weights"][s], one["event"]["roles"][s])
            assert say["without"] == one["event"]["without"][s]
            distances = [neighbour["distance"] for neighbour in say["nearest"]]
            assert distances == sorted(distances)
            for neighbour in say["nearest"]:
                assert learned.memory.start[neighbour["index"]] == neighbour["start_sample"]
                assert learned.classes[learned.memory.label[neighbour["index"]]] == neighbour["label"]
        if one["event"]["fused_log_odds"] is not None:
            contributions = sum(say["contribution"] for say in one["sensors"])
            assert contributions == pytest.approx(one["event"]["fused_log_odds"], abs=1e-4)


def test_an_explanation_names_values_rhythm_and_p_values(dashboard, model):
    learned = Model.load(model)
    for number in explainable(dashboard, 20):
        told = explanation(dashboard, number)
        assert told["why_no_values"] is None
        assert told["rhythm"]["is_clear"] == told["rhythm"]["words"].startswith("steps at ")
        for s, own in enumerate(told["sensors"]):
            assert own["p_known"] == told["event"]["p_known"][s]
            if own["role"] == "absent":
                assert (own["values"], own["median_log_odds"], own["fault"], own["known"]) == ([], None, None, None)
                continue
            effects = [abs(value["log_odds"]) for value in own["values"]]
            assert effects == sorted(effects, reverse=True)
            assert all(value["supports"] == learned.classes[value["log_odds"] > 0] for value in own["values"])
            assert len(own["groups"]) == 6
            assert own["known"].startswith(
                "unlike every class (p " if own["p_known"] <= told["alpha"] else "fits the classes (p "
            )
            assert own["fault"].startswith("sensor fault" if own["p_value"] <= told["alpha"] else "no sensor fault")


def test_what_cannot_be_explained_is_said_in_words(dashboard):
    with dashboard.journal() as journal:
        other = next(journal.events(types=["recording_started"])).id
    code, told = refused(dashboard, f"/api/v1/events/{other}/explanation")
    assert (code, "recording_started" in told) == (400, True)
    assert refused(dashboard, f"/api/v1/events/{2**61}/explanation")[0] == 404
    with Journal(dashboard.state.journal) as journal:
        row = journal.rows("SELECT body, recording FROM events WHERE type = 'decision' ORDER BY id DESC LIMIT 1")[0]
        far = json.loads(row["body"]) | {"start_sample": 10**12, "stop_sample": 10**12 + 8000}
        number = journal.insert(
            "INSERT INTO events (run, recording, sample, time, type, body) VALUES ('', ?, 0, ?, 'decision', ?)",
            (row["recording"], utc(datetime.now(UTC)), json.dumps(far)),
        )
    told = explanation(dashboard, number)
    assert told["same"] is None
    assert "not kept" in told["why_not"]
    assert all(say["nearest"] == [] and say["contribution"] is not None for say in told["sensors"])
    assert told["rhythm"] is None
    assert all(say["values"] == [] and say["known"] for say in told["sensors"] if say["p_known"] is not None)


def test_a_reference_that_was_heard_here_can_be_heard_again(dashboard, model, tmp_path):
    """A model that was learned from this stream: its segments are in the store."""
    learned = Model.load(model)
    index = int(np.argmin(learned.memory.start))
    event = dashboard.answer(f"/api/v1/events/{explainable(dashboard, 20)[0]}")
    notes = json.loads(json.dumps(learned.notes))
    notes["recordings"][learned.memory.recording[index]]["recording"] = f"{event['recording']}@0"
    start = learned.memory.start.copy()
    start[index] = event["start_sample"]
    replace(learned, notes=notes, memory=replace(learned.memory, start=start)).save(tmp_path / "heard here")
    (name,) = dashboard.register(tmp_path / "heard here")
    samples, rate_hz = fetched(dashboard, f"/api/v1/references/{name}/{index}/sound?sensor=2")
    place = f"start={event['start_sample']}&stop={event['stop_sample']}&sensor=2&normalise=true"
    expected, _ = fetched(dashboard, f"/api/v1/sound/{event['recording']}?{place}")
    assert (rate_hz, samples.tolist()) == (learned.grid.rate_hz, expected.tolist())
    picture = dashboard.answer(f"/api/v1/references/{name}/{index}/spectrogram?sensor=2")
    assert (picture["sensors"], picture["start_sample"]) == ([2], event["start_sample"])


def test_a_reference_from_elsewhere_is_refused_in_words(dashboard, model):
    name = Model.load(model).name
    code, told = refused(dashboard, f"/api/v1/references/{name}/0/sound")
    assert (code, "heard elsewhere" in told) == (404, True)
    assert refused(dashboard, f"/api/v1/references/{name}/999999/sound")[0] == 404
    assert refused(dashboard, "/api/v1/references/0123456789ab/0/sound")[0] == 404
    assert refused(dashboard, "/api/v1/references/..%2F..%2Fetc/0/sound")[0] in (404, 422)


def test_the_state_of_a_sensor_is_that_of_its_last_event(dashboard):
    found = dashboard.answer("/api/v1/sensors/1")
    event = dashboard.answer(f"/api/v1/events/{found['event']}")
    assert (event["sensor"], event["to"], event["liveness"]) == (1, found["state"], found["liveness"])
    assert [one["cause"] for one in found["causes"]] == event["causes"]
    assert [one["cure"] for one in found["causes"]] == event["cures"]
    assert refused(dashboard, "/api/v1/sensors/5") == (404, "there is no sensor 5; the array has 1 to 4")


def test_causes_are_explained(dashboard):
    told = dashboard.answer("/api/v1/causes")["causes"]
    assert set(told) == {str(cause) for cause in Cause}
    assert told["flat"] == {"state": "bad", "meaning": Cause.FLAT.meaning, "cure": Cause.FLAT.cure}


def test_history_tells_every_fault_that_is_over(dashboard):
    def closed() -> list[dict[str, Any]]:
        with dashboard.journal() as journal:
            return [e.as_dict() for e in journal.events(types=["fault_closed"])]

    (first, *_) = eventually(closed, "a fault that is over")
    now = datetime.now(UTC)
    found = history(dashboard, first["sensor"], now - timedelta(hours=6), now + timedelta(hours=6))
    (fault,) = [one for one in found["faults"] if one["event"] == first["id"]]
    lasted = datetime.fromisoformat(fault["end"]) - datetime.fromisoformat(fault["begin"])
    rate_hz = dashboard.status()["rate_hz"]
    assert fault["cause"] == first["cause"]
    assert lasted.total_seconds() == pytest.approx((first["until_sample"] - first["since_sample"]) / rate_hz, abs=0.01)


def test_history_has_seconds_in_states_and_levels(dashboard):
    bins = known(dashboard, 3)
    assert sum(sum(one["states"].values()) for one in bins) > 1
    assert all(-120 < one["level_dbfs"]["mean"] < 0 for one in bins if one["level_dbfs"]["mean"] is not None)


def test_history_of_no_time_at_all_is_refused(dashboard):
    now = datetime.now(UTC)
    for begin, end in ((now, now), (now, now - timedelta(days=1)), (now - timedelta(days=1000), now)):
        path = f"/api/v1/sensors/1/history?begin={utc(begin)}&end={utc(end)}"
        assert refused(dashboard, path)[0] == 400
    assert (
        refused(dashboard, "/api/v1/sensors/1/history?begin=0001-01-01T00:00:00%2B14:00&end=9999-12-31T00:00:00Z")[0]
        == 400
    )
    assert refused(dashboard, "/api/v1/sensors/1/history?begin=yesterday&end=today")[0] == 422


def test_the_page_shows_a_decision_with_its_neighbours(page, dashboard):
    number = explainable(dashboard, 20)[0]
    told = explanation(dashboard, number)
    page.goto(f"/sensors/1?event={number}")
    page.wait_for_selector(".says")
    assert f"event {number}" in page.inner_text(".headline")
    assert page.locator(".says tbody tr").count() == 4
    shown = page.locator(".neighbours figure").count()
    assert shown == 1 + len(told["sensors"][0]["nearest"]) + (told["sensors"][0]["nearest_refused"] is not None)
    page.wait_for_selector(".neighbours figure:first-child canvas")
    assert f"Rhythm of the array: {told['rhythm']['words']}." in page.inner_text(".rhythm")
    if values := told["sensors"][0]["values"]:
        rows = page.locator(".values > table tbody tr")
        assert rows.count() == len(values)
        assert values[0]["name"] in rows.first.inner_text()
        assert page.locator(".values details tbody tr").count() == 6
    for near, shown in zip(
        told["sensors"][0]["nearest"], page.locator(".neighbours figcaption").all()[1:], strict=False
    ):
        if told["sensors"][0]["nearest_refused"] is None:
            assert f"distance {near['distance']:.2f}" in shown.inner_text()
            assert near["label"].replace("_", " ") in shown.inner_text()
    for silent in page.locator(".neighbours figure:not(:first-child) .missing").all():
        assert "heard elsewhere" in silent.inner_text()


def test_the_segment_is_played_and_stopped(page, dashboard):
    page.goto(f"/sensors/2?event={explainable(dashboard, 20)[0]}")
    play = page.locator(".neighbours button.play").first
    play.focus()
    with page.expect_response(lambda answer: "/api/v1/sound/" in answer.url) as heard:
        page.keyboard.press("Enter")
    assert heard.value.headers["content-type"] == "audio/wav"
    page.wait_for_selector(".neighbours button.play[aria-pressed=true]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".neighbours button.play[aria-pressed=false]")


def test_another_decision_is_asked_for_by_keyboard(page, dashboard):
    first, *_, last = explainable(dashboard, 20)
    page.goto(f"/sensors/2?event={last}")
    page.wait_for_selector(f".headline:has-text('event {last}')")
    page.fill("#event", str(first))
    page.keyboard.press("Enter")
    page.wait_for_selector(f".headline:has-text('event {first}')")
    assert page.url.endswith(f"/sensors/2?event={first}")
    page.get_by_role("button", name="The last one").click()
    page.wait_for_function("(last) => Number(document.querySelector('#event').value) >= last", arg=last)
    assert page.url.endswith("/sensors/2")


def test_sensors_are_one_step_apart_and_ranges_a_click(page):
    page.goto("/sensors/1")
    page.wait_for_selector(".past .chart")
    page.get_by_role("button", name="7 d").click()
    page.wait_for_selector("button[aria-pressed=true]:has-text('7 d')")
    page.wait_for_selector(".past .chart")
    page.locator(".choices a", has_text="Sensor 3").click()
    page.wait_for_selector("main h1:has-text('Sensor 3')")
    assert page.title() == "Sensor 3 · gemmed"


def test_it_can_be_seen_by_all(page, dashboard):
    page.goto(f"/sensors/1?event={explainable(dashboard, 20)[0]}")
    page.wait_for_selector(".neighbours canvas")
    page.wait_for_selector(".past .chart")
    check_looks(page)


def test_a_sensor_that_is_not_there_is_said_in_words(page):
    page.goto("/sensors/9")
    page.wait_for_selector("text=there is no sensor 9; the array has 1 to 4")
    page.complaints.clear()  # the browser tells of the refusal, too
