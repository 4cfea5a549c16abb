"""How it is set: what counts, what differs, and how to change it."""

from __future__ import annotations

import tomllib

import pytest

from pipeline.config.schema import effective, read_settings, settings_of
from tests.web.conftest import Dashboard
from tests.web.looks import check_looks


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    made = Dashboard(tmp_path_factory.mktemp("settings"), None)
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_every_setting_is_told_with_its_unit_and_when_a_change_counts(dashboard):
    found = dashboard.answer("/api/v1/settings")
    told = {(table["name"], one["key"]): one for table in found["tables"] for one in table["settings"]}
    settings = effective(read_settings(dashboard.config))
    assert set(told) == {(name, key) for name, table in settings.items() for key in table}
    assert told["array", "rate"]["value"] == "4 kHz"
    assert (told["array", "rate"]["default"], told["array", "rate"]["differs"]) == ("16 kHz", True)
    assert told["buffer", "length"] == {
        "key": "length",
        "value": "30 s",
        "default": "30 s",
        "differs": False,
        "takes_effect": "restart",
    }
    assert told["decisions", "alpha"]["takes_effect"] == "next recording"
    assert told["storage", "budget"]["takes_effect"] == "now"
    assert (found["file"], found["pid"]) == (str(dashboard.config), dashboard.pid)


def test_the_file_gives_the_same_settings_again(dashboard):
    tables = tomllib.loads(dashboard.answer("/api/v1/settings")["toml"])
    assert settings_of(tables) == read_settings(dashboard.config)


def test_settings_are_sifted_as_one_types(page):
    page.goto("/settings")
    page.wait_for_selector("text=How to change a setting")
    all_of_them = page.locator("tbody tr:visible").count()
    page.get_by_label("Search").focus()
    page.keyboard.type("retrain")
    page.wait_for_selector("text=No setting fits")
    page.get_by_label("Search").fill("storage.bud")
    page.wait_for_selector("p[role=status]:has-text('1 of')")
    assert page.locator("tbody tr:visible").inner_text().split()[:3] == ["budget", "20", "GB"]
    page.get_by_label("Search").fill("")
    page.get_by_label("only what differs").check()
    assert 0 < page.locator("tbody tr:visible").count() < all_of_them
    assert all("differs" in row for row in page.locator("tbody tr:visible").all_inner_texts())


def test_it_can_be_copied(page, dashboard):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/settings")
    page.get_by_role("button", name="Copy as TOML").click()
    page.wait_for_selector("text=Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == dashboard.answer("/api/v1/settings")["toml"]


def test_it_can_be_seen_by_all(page):
    page.goto("/settings")
    page.wait_for_selector("text=How to change a setting")
    check_looks(page)
