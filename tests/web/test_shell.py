"""What all pages have in common."""

from __future__ import annotations

import re

import pytest

PAGES = {"/": "Now", "/timeline": "Timeline", "/review": "Review", "/models": "Models", "/settings": "Settings"}


@pytest.mark.parametrize(("path", "title"), PAGES.items())
def test_every_page_loads_and_says_that_it_is_live(page, path, title):
    page.goto(path)
    page.wait_for_selector("#connection[data-state=live]")
    page.wait_for_selector(f"main h1:has-text('{title}')")
    assert page.title() == f"{title} · gemmed"
    assert re.fullmatch(title, page.inner_text("nav a[aria-current=page]"))
