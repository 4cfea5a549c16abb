"""The page of this moment: it moves, says who decided, and can be used by keyboard."""

from __future__ import annotations

import re

import pytest

from tests.web.conftest import Dashboard
from tests.web.looks import check_looks, grounds

LOUD = """() => [...document.querySelectorAll('.sensor canvas')].map((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((_, place) => place % 4 === 3).some((opaque) => opaque === 255);
})"""
EVENT = "() => Number(document.querySelector('.headline').textContent.match(/event (\\d+)/)[1])"


@pytest.fixture
def now(page):
    page.goto("/")
    page.wait_for_selector(".headline .verdict")
    return page


def later(page, by: int = 2) -> None:
    """Wait until more was decided."""
    page.wait_for_function(f"(before) => ({EVENT})() >= before + {by}", arg=page.evaluate(EVENT))


def test_the_decision_says_who_made_it(now, dashboard):
    told, roles = now.evaluate(
        "[document.querySelector('.headline').textContent, "
        "[...document.querySelectorAll('.votes li')].map((one) => one.dataset.role)]"
    )
    event = dashboard.answer(f"/api/v1/events/{re.search(r'event ([0-9]+)', told)[1]}")
    assert told.startswith((event["label"] or "undecided").replace("_", " "))
    assert f"decided by {event['sensors_used']} of 4 sensors" in told
    assert roles == event["roles"]
    assert now.get_attribute(".headline a", "href") == f"/models?model={dashboard.status()['model']}"


def test_what_is_heard_is_seen_and_measured(now):
    now.wait_for_function(f"() => ({LOUD})().every(Boolean)")
    levels = now.locator(".level .number")
    before = levels.all_inner_texts()
    assert all(re.fullmatch(r"−?\d+\.\d dBFS|digital silence|delivers nothing", text) for text in before)
    now.wait_for_function(
        "(before) => [...document.querySelectorAll('.level .number')].some((one, n) => one.textContent !== before[n])",
        arg=before,
    )
    assert now.locator(".strip svg").get_attribute("aria-label").startswith("Decisions of the last 2 minutes:")


def test_a_state_has_a_shape_and_a_word(now):
    for badge in now.locator(".sensor .badge").all():
        assert badge.inner_text() in ("good", "degraded", "bad", "off", "unknown")
        assert badge.locator("svg").count() == 1


def test_pictures_rest_when_asked_to(now):
    now.wait_for_function(f"() => ({LOUD})().some(Boolean)")
    now.get_by_role("button", name="Pause pictures").click()
    picture = "document.querySelector('.sensor canvas').toDataURL()"
    before = now.evaluate(picture)
    later(now, 3)
    assert now.evaluate(picture) == before
    now.get_by_role("button", name="Go on").click()
    now.wait_for_function(f"(before) => {picture} !== before", arg=before)


def test_links_in_what_changes_can_be_followed_by_keyboard(now):
    link = now.locator(".votes a").nth(1)
    link.focus()
    later(now)
    assert now.evaluate("document.activeElement.textContent") == "Sensor 2"
    now.keyboard.press("Enter")
    now.wait_for_selector("main h1:has-text('Sensor 2')")
    assert re.search(r"/sensors/2\?event=\d+$", now.url)


def test_it_can_be_seen_by_all(now):
    light, dark = grounds(now)
    assert light != dark
    check_looks(now)


def test_who_wants_no_motion_sees_the_sound_all_the_same(page):
    page.emulate_media(reduced_motion="reduce")
    page.goto("/")
    page.wait_for_function(f"() => ({LOUD})().some(Boolean)")


@pytest.fixture
def fresh(tmp_path, browser):
    """Of a daemon that has no model."""
    made = Dashboard(tmp_path, None)
    made.start()
    context = browser.new_context(base_url=made.url)
    yield context.new_page()
    context.close()
    made.close()


def test_before_there_is_a_model_states_are_shown_and_it_is_said_why_nothing_is_decided(fresh):
    fresh.goto("/")
    fresh.wait_for_selector("text=No model decides yet")
    assert fresh.locator(".sensor .badge").count() == 4
    fresh.wait_for_function(f"() => ({LOUD})().some(Boolean)")
