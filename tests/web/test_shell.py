"""What all pages have in common."""

from __future__ import annotations

import re
import signal

import pytest

from tests.web.looks import check_looks

PAGES = {
    "/": "Now",
    "/history": "History",
    "/timeline": "Timeline",
    "/review": "Review",
    "/activity": "Activity",
    "/models": "Models",
    "/settings": "Settings",
}
MENU = ["Now", "History", "Timeline", "Review", "Activity", "Models", "Sensors", "Settings"]
PHONE = {"width": 390, "height": 780}


@pytest.mark.parametrize(("path", "title"), PAGES.items())
def test_every_page_loads_and_says_that_it_is_live(page, path, title):
    page.goto(path)
    page.wait_for_selector("#connection[data-state=live]")
    page.wait_for_selector(f"main h1:has-text('{title}')")
    assert page.title() == f"{title} · gemmed"
    assert re.fullmatch(title, page.inner_text("nav a[aria-current=page]"))


def test_an_address_that_is_none_is_told_to_people_and_to_programs(page, dashboard):
    assert page.goto("/nonsense").status == 404
    page.wait_for_selector("main h1:has-text('Not found')")
    page.click("main a:text-is('Now')")
    page.wait_for_selector("main h1:has-text('Now')")
    assert "Not Found" in page.request.get("/nonsense", headers={"Accept": "*/*"}).json()["error"]
    page.complaints[:] = [one for one in page.complaints if "404" not in one]  # the browser's own


@pytest.mark.parametrize("path", ["/settings", "/models"])
def test_a_page_that_was_left_before_it_was_loaded_does_not_come_back(page, path):
    held = []
    page.route(f"**/api/v1{path}", lambda route: held.append(route))
    page.goto(path)
    page.wait_for_selector("text=Loading the")
    page.click("nav a:text-is('Review')")
    page.wait_for_selector("main h1:text-is('Review')")
    with page.expect_response(f"**/api/v1{path}"):
        held[0].continue_()
    page.evaluate("fetch('/healthz').then((answer) => answer.text())")  # behind it, so the answer was taken up
    assert page.inner_text("main h1") == "Review"
    assert page.evaluate("location.pathname") == "/review"


def test_pages_that_were_opened_while_disconnected_load_by_themselves(page, dashboard):
    page.goto("/")
    page.wait_for_selector("#connection[data-state=live]")
    dashboard.stop(signal.SIGKILL)
    page.wait_for_selector("#connection[data-state=reconnecting]")
    page.click("nav a:text-is('Models')")
    page.wait_for_selector("text=The server does not answer; it may be restarting.")
    dashboard.start()
    page.wait_for_selector("text=Who decides")
    page.complaints[:] = [one for one in page.complaints if "ERR_CONNECTION" not in one and "ERR_INCOMPLETE" not in one]


def test_a_killed_daemon_shows_as_disconnected_and_comes_back(page, dashboard):
    page.goto("/")
    page.wait_for_selector("#connection[data-state=live]")
    dashboard.stop(signal.SIGKILL)
    page.wait_for_selector("#connection[data-state=reconnecting]")
    assert "disconnected" in page.inner_text("#connection")
    told = page.inner_text("#banner")
    assert re.fullmatch(r"Disconnected, trying again … What you see is from \d\d:\d\d:\d\d, \d+ s ago\.", told)
    assert page.evaluate("getComputedStyle(document.querySelector('.live')).opacity") != "1"
    dashboard.start()
    page.wait_for_selector("#connection[data-state=live]")
    page.wait_for_selector("#banner", state="hidden")
    assert page.evaluate("getComputedStyle(document.querySelector('.live')).opacity") == "1"
    # The browser itself tells of connections that were refused; nothing else may be wrong.
    page.complaints[:] = [one for one in page.complaints if "ERR_CONNECTION" not in one and "ERR_INCOMPLETE" not in one]


def test_every_page_says_that_the_array_is_simulated(page):
    """The note can be made small on one page, and is then a badge on all of them; it comes back by the badge."""
    page.goto("/")
    page.wait_for_selector("#simulated:visible")
    assert "connect a device" in page.inner_text("#simulated")
    assert "gemmed replay" in page.inner_text("#simulated")
    page.focus("#simulated button")
    page.keyboard.press("Enter")
    assert not page.is_visible("#simulated")
    assert page.evaluate("document.activeElement.id") == "simulated-badge"
    for path in PAGES:
        page.goto(path)
        page.wait_for_selector("#simulated-badge:visible")
        assert page.inner_text("#simulated-badge") == "simulated"
        assert not page.is_visible("#simulated")
    page.keyboard.press("Tab")
    page.focus("#simulated-badge")
    page.keyboard.press("Enter")
    assert page.is_visible("#simulated")
    assert page.get_attribute("#simulated-badge", "aria-expanded") == "true"


def test_the_menu_has_all_pages_in_order(page):
    page.goto("/")
    assert page.locator("nav a:visible").all_inner_texts() == MENU
    assert not page.is_visible("nav .more")


def test_on_a_phone_every_page_is_reached_by_keyboard(page):
    """Some pages are behind a button, which Escape and a page that was chosen close."""
    page.set_viewport_size(PHONE)
    page.goto("/")
    page.wait_for_selector("#connection[data-state=live]")
    assert page.locator("nav a:visible").all_inner_texts() == ["Now", "History", "Review", "Activity"]
    page.focus("nav .more")
    page.keyboard.press("Enter")
    assert page.locator("nav a:visible").all_inner_texts() == MENU
    page.keyboard.press("Escape")
    assert page.locator("nav a:visible").count() == 4
    assert page.evaluate("document.activeElement.className") == "more"
    page.keyboard.press("Enter")
    for _ in range(3):  # from the button back over Settings and Sensors to Models
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("main h1:text-is('Models')")
    assert page.get_attribute("nav .more", "aria-expanded") == "false"
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]


def test_the_shell_can_be_used_by_all(page):
    page.goto("/history")
    page.wait_for_selector("#simulated-badge:visible")
    check_looks(page)
