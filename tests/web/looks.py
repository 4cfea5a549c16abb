"""What every page must be: usable by all, on a phone, by day and by night."""

from __future__ import annotations

from typing import Any

from tests.conftest import component

PHONE = {"width": 360, "height": 740}


def check_looks(page: Any) -> None:
    """In light and dark, on a desk and on a phone: nothing runs over the edge, nothing serious is found by axe."""
    axe = component("axe_playwright_python.sync_playwright").Axe()
    desk = page.viewport_size
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for size in (desk, PHONE):
            page.set_viewport_size(size)
            width = page.evaluate("document.scrollingElement.scrollWidth")
            assert width <= size["width"], f"{width} pixels in {scheme} at {size}"
            found = axe.run(page).response["violations"]
            serious = [
                (one["id"], node["html"], node["failureSummary"])
                for one in found
                if one["impact"] in ("serious", "critical")
                for node in one["nodes"]
            ]
            assert not serious, f"{scheme} at {size}"
    page.set_viewport_size(desk)


def grounds(page: Any) -> list[str]:
    """The colour behind everything, by day and by night."""
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    return found
