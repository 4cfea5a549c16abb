"""The page Timeline in a browser, with a daemon that is killed and started again."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from pipeline.storage.journal import Journal, JournalEntry
from tests.conftest import component, eventually
from tests.web.conftest import Dashboard

CHART = ".timeline-chart"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory, model) -> Iterator[Dashboard]:
    """One that began just now, and that nobody else has killed."""
    made = Dashboard(tmp_path_factory.mktemp("timeline"), model)
    try:
        made.start()
        eventually(lambda: made.status().get("decisions"), "the first decision")
        yield made
    finally:
        made.close()


@pytest.fixture
def expect():
    return component("playwright.sync_api").expect


@pytest.fixture
def timeline(page):
    """Ten minutes up to now, drawn."""
    page.goto("/timeline")
    page.wait_for_selector(f"{CHART} .decisions .item")
    page.click("text=10 min")
    return page


def _asked_seconds(url: str) -> float:
    """Return the length of the time that a request for the timeline asks for."""
    query = parse_qs(urlsplit(url).query)
    begin, end = (datetime.fromisoformat(query[name][0]) for name in ("begin", "end"))
    return (end - begin).total_seconds()


def test_decisions_appear_as_they_are_made_without_asking_again(page, expect):
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/timeline?" in request.url else None)
    page.goto("/timeline")
    page.wait_for_selector(f"{CHART} .decisions .item")
    # Twice ten minutes; an answer to what the page asked for before may still be on its way.
    with page.expect_response(lambda answer: "/timeline?" in answer.url and abs(_asked_seconds(answer.url) - 1200) < 5):
        page.click("text=10 min")
    decisions = page.locator(f"{CHART} .decisions .item, {CHART} .undecided .item")
    expect(decisions.nth(3)).to_be_attached()
    before, questions = decisions.count(), len(asked)
    expect(decisions.nth(before + 3)).to_be_attached()
    assert len(asked) == questions


@pytest.mark.parametrize("width", [320, 1200])
def test_what_is_newest_is_not_cut_off(timeline, expect, width):
    page = timeline
    page.set_viewport_size({"width": width, "height": 800})
    canvas = page.locator(".timeline .canvas")
    expect(canvas).to_have_js_property("scrollWidth", canvas.evaluate("element => element.clientWidth"))


def test_keys_zoom_and_move_and_now_comes_back(timeline, expect):
    page = timeline
    page.focus(".timeline .canvas")
    ten, now = page.locator("button:has-text('10 min')"), page.locator("button:text-is('Now')")
    expect(ten).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("+")
    expect(ten).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("-")
    expect(ten).to_have_attribute("aria-pressed", "true")
    expect(now).to_have_attribute("aria-pressed", "true")
    here = page.inner_text(".timeline .range")
    page.keyboard.press("ArrowLeft")
    expect(now).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".timeline .range")).not_to_have_text(here)
    page.keyboard.press("Home")
    expect(page.locator(f"{CHART} .band.not_listening").first).to_be_attached()
    page.keyboard.press("End")
    expect(now).to_have_attribute("aria-pressed", "true")


def test_everything_can_be_reached_and_read_by_keyboard(timeline, expect):
    page = timeline
    page.focus(".timeline .canvas")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#timeline-spoken")).to_contain_text("Passages")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#timeline-spoken")).to_contain_text("Decisions")
    page.keyboard.press("p")
    expect(page.locator(f"{CHART} .item.chosen")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".details h2")).to_be_focused()
    expect(page.locator(".details")).to_contain_text("decided by")
    event = re.search(r"event (\d+)", page.inner_text(".details"))
    assert event
    expect(page.locator(".details a:has-text('Label it')")).to_have_attribute("href", f"/review?event={event[1]}")
    page.keyboard.press("Escape")
    expect(page.locator(".details")).to_have_count(0)
    expect(page.locator(".timeline .canvas")).to_be_focused()


def test_dragging_moves_and_the_wheel_zooms(timeline, expect):
    page = timeline
    box = page.locator(".timeline .canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 100
    before = page.inner_text(".timeline .range")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 200, y, steps=4)
    page.mouse.up()
    expect(page.locator(".timeline .range")).not_to_have_text(before)
    expect(page.locator("button:text-is('Now')")).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".details")).to_have_count(0)
    page.mouse.wheel(0, -200)
    expect(page.locator("button:has-text('10 min')")).to_have_attribute("aria-pressed", "false")


def test_a_kill_shows_as_a_time_in_which_nobody_listened(page, dashboard, expect):
    killed = dashboard.status()["run"]
    dashboard.stop(signal.SIGKILL)
    dashboard.start()
    # The process that served the pages of the killed one may have answered once more.
    eventually(lambda: dashboard.status().get("run", killed) != killed, "the new one serves its pages")
    eventually(lambda: dashboard.status().get("decisions"), "it decides again")
    page.goto("/timeline")
    page.click("text=10 min")
    page.wait_for_selector(f"{CHART} .listening .item")
    page.focus(".timeline .canvas")
    for _ in range(3):
        page.keyboard.press("+")  # until a start takes longer than a pixel is wide
    expect(page.locator(f"{CHART} .absences .not_listening").last).to_be_visible()
    missed = page.locator(f"{CHART} .listening .not_listening")
    assert missed.count() <= 2  # the kill, and before the first start if that is in view
    missed.last.click()
    expect(page.locator(".details")).to_contain_text("it was killed, or the power failed")
    expect(page.locator(".details")).to_contain_text("event ")


def test_missing_sound_shows_as_a_gap_and_differs_from_not_listening(timeline, dashboard, expect):
    page = timeline
    heard = eventually(
        lambda: (now := dashboard.status()) and now["sample"] > 7 * now["rate_hz"] and now, "some seconds"
    )
    status, stop = heard, heard["sample"] - heard["rate_hz"]
    place = {"recording": status["recording"], "start_sample": stop - 5 * status["rate_hz"], "stop_sample": stop}
    with Journal(dashboard.state.journal) as journal:
        (found,) = journal.rows("SELECT started_at FROM recordings WHERE name = ?", (status["recording"],))
        since = datetime.fromisoformat(found["started_at"])
        moment = since + timedelta(seconds=stop / status["rate_hz"])
        body = {"type": "gap", "reason": "the buffer was full", "recorded": True, **place}
        journal.append([JournalEntry(status["run"], body, status["recording"], stop, moment)])
    gap = page.locator(f"{CHART} .listening .gap")
    expect(gap).to_have_count(1)
    gap.click()
    expect(page.locator(".details")).to_contain_text("the buffer was full")
    assert page.evaluate(f"getComputedStyle(document.querySelector('{CHART} .listening .gap')).fill") == 'url("#dots")'


def test_the_list_tells_the_same_and_opens_the_same_details(timeline, expect):
    page = timeline
    page.click("text=List")
    rows = page.locator(".timeline table tbody tr")
    expect(rows.filter(has_text="not listening").first).to_be_visible()
    rows.filter(has_text="Sensor 1").first.locator("button").press("Enter")
    expect(page.locator(".details h2")).to_contain_text("sensor 1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_everybody_can_read_it(timeline, expect, scheme):
    page = timeline
    page.emulate_media(color_scheme=scheme)
    axe = component("axe_playwright_python.sync_playwright").Axe()
    for view in ("chart", "list"):
        if view == "list":
            page.click("text=List")
        found = axe.run(page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    page.click("text=List")
    page.set_viewport_size({"width": 360, "height": 740})
    expect(page.locator(f"{CHART} .row-title").first).to_have_attribute("text-anchor", "start")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
