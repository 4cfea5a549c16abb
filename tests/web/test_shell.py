"""What all pages have in common."""

from __future__ import annotations

import re
import signal

import pytest

PAGES = {"/": "Now", "/timeline": "Timeline", "/review": "Review", "/models": "Models", "/settings": "Settings"}


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
