"""Activity: what happened, a fault and its recovery as one entry, open faults at the top."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline.daemon.recorder import Recorder
from pipeline.storage.journal import Journal, JournalEntry
from tests.conftest import component
from tests.passages import facts, passage
from tests.web.looks import check_looks
from tests.web.served import Served, served

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
ENTRY = ".activity .entry"
OLD_FAULTS = 300


def state(seconds: float, sensor: int, to: str, *causes: str) -> JournalEntry:
    body = {"type": "state_changed", "sensor": sensor, "to": to, "causes": list(causes)}
    return JournalEntry("run", body, recording="r", sample=0, time=START + timedelta(seconds=seconds))


def told(seconds: float, kind: str, **body: Any) -> JournalEntry:
    return JournalEntry("run", {"type": kind, **body}, time=START + timedelta(seconds=seconds))


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory) -> Iterator[Served]:
    """A journal made by hand: 300 faults of sensor 1, then one of sensor 3, two passages, a model, a broken link."""
    directory = tmp_path_factory.mktemp("activity")
    path = directory / "state" / "journal.sqlite"
    path.parent.mkdir()
    recorder = Recorder(path, "run")
    for fact in facts("r", passage("r", 20, 30), passage("r", 60, 95), started_at=START, seconds=3600.0):
        recorder.observe(fact)
    recorder.commit()
    recorder.close()
    old = [(-1000.0 * n, "bad", ("flat",)) for n in range(1, OLD_FAULTS + 1)]
    events = [state(begin + later, 1, to, *causes) for begin, _, _ in old[::-1]
              for later, to, causes in ((0, "bad", ("flat",)), (120, "good", ()))]  # fmt: skip
    events += [
        state(40, 3, "bad", "flat"),
        state(760, 3, "good"),
        told(800, "model_promoted", model="abc", why="better"),
    ]
    events += [
        told(900, "output_link_down", target="mqtt", why="refused"),
        told(990, "output_link_up", target="mqtt"),
    ]
    with Journal(path) as journal:
        journal.append(events)
    with served(directory) as made:
        yield made


@pytest.fixture
def activity(page):
    page.goto("/activity")
    page.wait_for_selector(ENTRY)
    return page


def test_a_fault_and_its_recovery_are_one_entry(activity):
    shown = [" ".join(text.split()) for text in activity.locator(f"{ENTRY} > div").all_inner_texts()[:5]]
    recovered, back = (f"{(START + timedelta(seconds=one)).astimezone():%H:%M:%S}" for one in (760, 990))
    assert shown == [
        f"Output mqtt not reachable (refused) for 2 min, back {back}",
        "Model abc decides from now on (better)",
        "Human 91 % 35 s",
        f"Sensor 3 was bad (flat) for 12 min, recovered {recovered}",
        "Human 91 % 10 s",
    ]


def test_entries_lead_to_their_page(activity):
    links = activity.locator(f"{ENTRY} a").evaluate_all(
        "(all) => all.slice(0, 4).map((one) => one.getAttribute('href'))"
    )
    assert links == ["/models", "/history?passage=r.p60000", "/sensors/3", "/history?passage=r.p20000"]


def test_kinds_are_chosen_by_keyboard(activity):
    expect = component("playwright.sync_api").expect
    activity.get_by_role("button", name="Passages").focus()
    activity.keyboard.press("Enter")
    expect(activity.locator(ENTRY)).to_have_count(2)
    activity.keyboard.press("Tab")
    activity.keyboard.press("Tab")
    activity.keyboard.press("Space")
    expect(activity.locator(ENTRY)).to_have_count(3)
    kinds = activity.locator(ENTRY).evaluate_all("(all) => all.map((one) => one.dataset.kind)")
    assert kinds == ["model", "passage", "passage"]


def test_older_entries_come_in_portions_and_each_once(activity):
    faults = activity.locator(f"{ENTRY} a[href='/sensors/1']")
    while activity.is_visible("button:text-is('Older')"):
        before = faults.count()
        with activity.expect_response("**/api/v1/activity?before=*"):
            activity.click("button:text-is('Older')")
        activity.wait_for_function(
            "(before) => document.querySelectorAll('.activity .entry a[href=\"/sensors/1\"]').length > before"
            " || document.querySelector('main button:last-child').hidden",
            arg=before,
        )
    times = activity.locator(f"{ENTRY} time").evaluate_all("(all) => all.map((one) => one.getAttribute('datetime'))")
    assert len(times) == len(set(times)) == OLD_FAULTS + 5
    assert times == sorted(times, reverse=True)


def test_without_a_daemon_open_faults_are_not_known(activity):
    assert "The daemon is not running" in activity.inner_text(".open-faults")


def test_it_can_be_seen_by_all(activity):
    check_looks(activity)
