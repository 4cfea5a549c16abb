"""The page Models in a browser: it changes who decides."""

from __future__ import annotations

import re

import pytest

from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from tests.conftest import component, eventually
from tests.web.served import served


@pytest.fixture
def expect():
    return component("playwright.sync_api").expect


@pytest.fixture
def models(page):
    page.goto("/models")
    page.wait_for_selector(".models table tbody tr")
    return page


def champion(dashboard) -> str:
    return dashboard.answer("/api/v1/models")["champion"]


def decides(dashboard, name: str) -> bool:
    """By the journal: decisions that carry its name."""
    with dashboard.journal() as journal:
        last = next(journal.events(types=["decision"], most=1, newest_first=True))
    return last.body["model"] == name


def test_promotion_and_rollback_really_change_who_decides_by_keyboard_alone(models, dashboard, expect):
    page, before = models, champion(dashboard)
    other = page.locator(".models table tbody tr", has_text="retired").first.locator("button").inner_text()
    page.locator(f".models table button:has-text('{other}')").press("Enter")
    expect(page.locator("h2", has_text=f"Model {other}")).to_be_visible()
    page.locator("button:has-text('Let it decide')").press("Enter")
    expect(page.locator("dialog")).to_contain_text(f"decides instead of {before}")
    expect(page.locator("dialog input")).to_be_focused()
    page.keyboard.press("Enter")  # without a reason nothing happens
    expect(page.locator("dialog")).to_be_visible()
    assert champion(dashboard) == before
    page.keyboard.type("it hears better")
    page.keyboard.press("Enter")
    expect(page.locator(".deciding .big strong")).to_have_text(other)
    expect(page.locator(".models > .note")).to_contain_text(f"Model {other} decides now")
    eventually(lambda: decides(dashboard, other), "the daemon decides by the new model")

    page.locator(f"button:has-text('Roll back to {before}')").press("Enter")
    page.keyboard.type("it does not")
    page.keyboard.press("Enter")
    expect(page.locator(".deciding .big strong")).to_have_text(before)
    eventually(lambda: decides(dashboard, before), "the daemon decides by the old model again")
    with dashboard.journal() as journal:
        told = [one.body for one in journal.events(types=["promotion_asked", "model_rolled_back"])]
    assert [(one["model"], one["why"]) for one in told] == [(other, "it hears better"), (before, "it does not")]


def test_who_thinks_better_of_it_changes_nothing(models, dashboard, expect):
    page, before = models, champion(dashboard)
    page.locator(".models table tbody tr", has_text="retired").first.locator("button").click()
    page.click("text=Let it decide")
    page.keyboard.type("no")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert champion(dashboard) == before


def test_what_training_refused_is_counted_and_listed_one_by_one(models, dashboard, expect):
    page = models
    found = dashboard.answer(f"/api/v1/models/{champion(dashboard)}")["refused"][0]
    button = page.locator(f"button[aria-label^='Sensor {found['sensor']}, {found['why']}']")
    expect(button).to_have_text(str(found["segments"]))
    button.click()
    rows = page.locator(f"[aria-label='Refused segments of sensor {found['sensor']}'] tbody tr")
    expect(rows.first).to_contain_text("heard elsewhere")
    while rows.count() < found["segments"]:
        n = rows.count()
        page.click("button:text-is('More')")
        expect(rows.nth(n)).to_be_attached()
    assert rows.count() == found["segments"]


def test_two_models_are_compared(models, expect):
    page = models
    page.click("button:text-is('Compare')")
    expect(page.locator("tr.differs", has_text="is").first).to_contain_text("champion")
    expect(page.locator("li", has_text="has learned from nothing that the other has not").first).to_be_visible()


def test_a_model_can_be_named_in_the_address(page, dashboard, expect):
    name = next(one["name"] for one in dashboard.answer("/api/v1/models")["models"] if one["status"] == "retired")
    page.goto(f"/models?model={name}")
    expect(page.locator("h2", has_text=f"Model {name}")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_everybody_can_read_it(models, expect, scheme):
    page = models
    page.emulate_media(color_scheme=scheme)
    page.wait_for_selector(".shares")
    axe = component("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_before_there_is_a_model_the_page_says_what_comes(browser, tmp_path, expect):
    StateDirectory(tmp_path / "state").create()
    Journal(tmp_path / "state" / "journal.sqlite").close()
    with served(tmp_path) as made:
        page = browser.new_context().new_page()
        page.goto(f"{made.url}/models")
        expect(page.locator(".empty")).to_contain_text("There is no model yet")
        expect(page.locator(".empty")).to_contain_text("learned by itself")
        page.goto(f"{made.url}/timeline")
        expect(page.locator(".empty")).to_contain_text("Nothing was heard yet")
        page.set_viewport_size({"width": 500, "height": 700})
        expect(page.locator(".chart > .empty")).to_have_css("width", re.compile(r"^4\d\d"))
        expect(page.locator(".empty")).to_contain_text("Nothing was heard yet")
        page.context.close()
