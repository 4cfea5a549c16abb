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
