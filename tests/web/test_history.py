"""The page History in a browser, of a past that the real recorder has written."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest

from pipeline.daemon.recorder import Recorder
from pipeline.storage.journal import Journal
from tests.conftest import component, eventually
from tests.web.looks import check_looks
from tests.web.past import NOW, Past, label_passage, observe_passage, some_days, write_past
from tests.web.served import Served, served

BERLIN = ZoneInfo("Europe/Berlin")
SETTINGS = '[training]\nenabled = false\nclasses = ["human", "human_animal"]\n'
ALL = some_days(NOW, days=3, each=24)
IDS = [f"r{number:04d}.p40000" for number in range(1, len(ALL) + 1)]
ROWS = ".passage-rows > li"
DETAILS = ".passage-details"
CELL = ".calendar button"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("history"), more=SETTINGS) as made:
        write_past(made.state, ALL)
        with Journal(made.state.journal) as journal:
            label_passage(journal, IDS[-2], "nobody")
        yield made


@pytest.fixture
def context_options() -> dict[str, Any]:
    return {"timezone_id": "Europe/Berlin", "locale": "en-US"}


@pytest.fixture
def expect():
    return component("playwright.sync_api").expect


@pytest.fixture
def history(page):
    page.goto("/history")
    page.wait_for_selector(ROWS)
    return page


def local(one: Past) -> str:
    return f"{one.start.astimezone(BERLIN):%H:%M:%S}"


def labels(dashboard: Served, passage_id: str) -> list[str]:
    """What counts of what was said of a passage."""
    with Journal(dashboard.state.journal, read_only=True) as journal:
        return [
            row["label"]
            for row in journal.rows(
                "SELECT label FROM label_rows WHERE recording = ? AND NOT void AND label IS NOT NULL ORDER BY id",
                (passage_id.partition(".")[0],),
            )
        ]


def row(page, passage_id: str):
    return page.locator(f"{ROWS}[data-passage='{passage_id}']")


def test_the_morning_at_a_glance(history, dashboard, expect):
    """How many passed last night, of which class and when, and below it the newest with all that a line can say."""
    _, found = dashboard.ask("/api/v1/passages/calendar?zone=Europe/Berlin")
    night = found["night"]
    which = "Tonight so far" if found["now"] < night["end"] else "Last night"
    expect(history.locator(".history-night")).to_contain_text(f"{which}: {night['passages']} passages")
    for label, name in (("human", "Human"), ("human_animal", "Human with animal"), ("no label", "without a class")):
        expect(history.locator(".history-night")).to_contain_text(f"{night['labels'][label]} {name}")
    expect(history.locator(".night-times a").first).to_have_text(
        local(ALL[IDS.index(night["first"][0]["passage"])])[:5]
    )
    rows = history.locator(ROWS)
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text(local(ALL[-1]))
    # Sensor 1 was left out of some segments only.
    expect(rows.first).to_contain_text("112 steps/min · without sensor 3")
    expect(row(history, IDS[-2])).to_contain_text("labeled Nobody by anna")
    assert [rows.nth(n).get_attribute("data-passage") for n in range(50)] == IDS[:-51:-1]


def test_sound_that_is_gone_has_no_button(history, expect):
    kept = {60.0: "", 15.0: "sound partly kept", 0.0: "no sound"}
    for one, passage_id in list(zip(ALL, IDS, strict=True))[-4:]:
        found = row(history, passage_id)
        expect(found.locator("button.play")).to_have_count(1 if one.kept else 0)
        expect(found).to_contain_text(kept[one.kept])


def test_a_passage_is_played(history, expect):
    """What is asked for is its clip, mixed; the button stops it again."""
    passage_id = next(one for one, past in zip(IDS[::-1], ALL[::-1], strict=True) if past.kept == 60)
    button = row(history, passage_id).locator("button.play")
    with history.expect_response(f"**/api/v1/passages/{passage_id}/clip?mix=true") as answered:
        button.click()
    assert answered.value.status == 200
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")


def test_a_passage_is_labeled_and_the_label_undone_by_keyboard(history, dashboard, expect):
    passage_id = IDS[-3]
    own = row(history, passage_id)
    own.locator("button[aria-expanded]").focus()
    history.keyboard.press("Enter")
    names = own.locator(".choices button").all_inner_texts()
    assert names == ["Human", "Human with animal", "Nobody", "Unknown", "Not sure"]
    expect(own.locator(".choices button").first).to_be_focused()
    history.keyboard.press("Escape")
    expect(own.locator(".choices")).to_be_hidden()
    history.keyboard.press("Enter")
    for _ in range(2):
        history.keyboard.press("Tab")
    history.keyboard.press("Enter")
    expect(own).to_contain_text("labeled Nobody")
    eventually(lambda: labels(dashboard, passage_id) == ["nobody"], "the label is stored")
    expect(own.locator("button:has-text('Undo')")).to_be_focused()
    history.keyboard.press("Enter")
    eventually(lambda: labels(dashboard, passage_id) == [], "the label is taken back")
    expect(own).not_to_contain_text("labeled")


def test_filters_are_in_the_address_and_survive_back_and_reload(history, dashboard, expect):
    page = history
    page.select_option("select >> nth=0", "human")
    expect(page.locator(".history-main > .row > p")).to_contain_text("match")
    page.select_option("select >> nth=2", "false")
    page.wait_for_url("**/history?label=human&labeled=false")
    _, found = dashboard.ask("/api/v1/passages?label=human&labeled=false&most=1")
    expect(page.locator(".history-main > .row > p")).to_have_text(f"{found['total']} passages match")
    page.reload()
    expect(page.locator(".history-main > .row > p")).to_have_text(f"{found['total']} passages match")
    page.go_back()
    page.wait_for_url("**/history?label=human")
    expect(page.locator("select >> nth=2")).to_have_value("")
    page.fill("input[type=search]", "r0009")
    expect(page.locator(ROWS)).to_have_count(0 if ALL[8].label != "human" else 1)
    page.click("button:has-text('Clear filters')")
    expect(page.locator(ROWS)).to_have_count(50)


def test_filters_wait_until_the_classes_are_known(page, expect):
    """What is typed before would be lost, or would filter a list that is not there yet."""
    held = []
    page.route("**/passages/calendar?*", lambda route: held.append(route))
    with page.expect_request("**/passages/calendar?*"):
        page.goto("/history")
    for control in ("input[type=search]", "select >> nth=0", "select >> nth=1", "select >> nth=2"):
        expect(page.locator(control)).to_be_disabled()
    held[0].continue_()
    page.fill("input[type=search]", "r0009")
    expect(page.locator(ROWS)).to_have_count(1)


def test_the_table_that_is_exported_is_what_is_shown(history, tmp_path):
    page = history
    page.select_option("select >> nth=0", "human_animal")
    page.wait_for_url("**label=human_animal")
    eventually(lambda: "human_animal" in page.get_attribute("a[download]", "href"), "the link follows the filter")
    with page.expect_download() as downloaded:
        page.click("text=Export CSV")
    downloaded.value.save_as(tmp_path / "passages.csv")
    with (tmp_path / "passages.csv").open() as file:
        rows = [one["passage"] for one in csv.DictReader(file)]
    assert rows == [name for name, one in zip(IDS, ALL, strict=True) if one.label == "human_animal" and name != IDS[-2]]


def test_a_day_and_an_hour_are_chosen_by_keyboard(history, expect):
    """What the calendar counts is what the list then has."""
    page = history
    first = ALL[-1].start.astimezone(BERLIN)
    page.locator(f"{CELL}[tabindex='0']").focus()
    for key in ("ArrowDown", *["ArrowRight"] * 4):
        page.keyboard.press(key)
    cell = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "03:00–04:00" in cell
    page.keyboard.press("Enter")
    page.wait_for_url("**hour=3")
    day = (first.replace(hour=3, minute=0)).date()
    wanted = [
        name for name, one in zip(IDS, ALL, strict=True)
        if one.start.astimezone(BERLIN).hour == 3 and (day - one.start.astimezone(BERLIN).date()).days == 1
    ]  # fmt: skip
    assert f"{len(wanted)} passage" in cell
    expect(page.locator(ROWS)).to_have_count(len(wanted))
    expect(page.locator(f"{CELL}[aria-pressed=true]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(ROWS)).to_have_count(50)


def test_older_passages_come_in_portions(history, expect):
    history.click("button:text-is('Older')")
    expect(history.locator(ROWS)).to_have_count(len(ALL))
    expect(history.locator("button:text-is('Older')")).to_be_hidden()
    expect(row(history, IDS[-51]).locator("a")).to_be_focused()


def test_a_link_opens_all_that_is_known_of_a_passage(page, expect):
    """Also of one that is not in the list; Escape closes it, Back opens it again."""
    passage_id = next(one for one, past in zip(IDS, ALL, strict=True) if past.kept == 60 and past.label == "human")
    page.goto(f"/history?passage={quote(passage_id)}")
    details = page.locator(DETAILS)
    for text in (
        "Human 98 %", "112 steps per minute (confidence 0.41)", "Sensor 1 first (12 dB), Sensor 2 +2.5 s (16 dB)",
        "84.0 ± 5.0 °", "1.3 ± 0.2 m/s", "4.0 ± 0.8 m", "its health is bad (40 % of the segments)",
    ):  # fmt: skip
        expect(details).to_contain_text(text)
    expect(details.locator("h2")).to_be_focused()
    start = quote(str(page.get_attribute(f"{DETAILS} time", "datetime")), safe="")
    expect(details.locator("text=Timeline")).to_have_attribute("href", f"/timeline?at={start}")
    expect(details.locator("text=Review")).to_have_attribute("href", f"/review?passage={passage_id}")
    page.keyboard.press("Escape")
    expect(details).to_have_count(0)
    page.go_back()
    expect(details).to_have_count(1)


def test_a_passage_that_is_not_there_is_said_to_be_gone(page, expect):
    page.goto("/history?passage=r9999.p1")
    expect(page.locator(".history-side")).to_contain_text("There is no passage r9999.p1")
    expect(page.locator(ROWS)).to_have_count(50)
    assert all("404" in text for text in page.complaints)
    page.complaints.clear()


def test_a_label_in_the_details_shows_in_the_list(history, dashboard, expect):
    passage_id = IDS[-5]
    row(history, passage_id).locator("a").click()
    details = history.locator(DETAILS)
    details.locator("button[aria-expanded]").click()
    details.locator("button:text-is('Unknown')").click()
    expect(row(history, passage_id)).to_contain_text("labeled Unknown")
    eventually(lambda: labels(dashboard, passage_id) == ["unknown"], "the label is stored")
    details.locator("button:text-is('Undo')").click()
    eventually(lambda: labels(dashboard, passage_id) == [], "the label is taken back")
    expect(row(history, passage_id)).not_to_contain_text("labeled")


def test_a_new_passage_waits_for_a_click(history, dashboard, expect):
    """What one reads does not move under one's eyes."""
    page = history
    before = page.locator(ROWS).first.get_attribute("data-passage")
    recorder = Recorder(dashboard.state.journal, "run")
    recorder.choices = json.dumps({"least_confidence": 0.6})
    status = {"run": "run", "recording": None, "sensors": [], "running": True}
    dashboard.tell_pages(status, recorder.journal.last_id)
    fresh = f"r{len(IDS) + 1:04d}.p40000"
    observe_passage(recorder, fresh.partition(".")[0], Past(NOW.replace(minute=50)))
    dashboard.tell_pages(status, recorder.journal.last_id)
    recorder.close()
    button = page.locator("button:has-text('Show 1 new passage')")
    expect(button).to_be_visible()
    assert page.locator(ROWS).first.get_attribute("data-passage") == before
    button.click()
    expect(page.locator(ROWS).first).to_have_attribute("data-passage", fresh)
    expect(button).to_be_hidden()
    with Journal(dashboard.state.journal) as journal:
        journal.execute("DELETE FROM passages WHERE passage = ?", (fresh,))


def test_the_undo_of_a_label_returns_to_what_somebody_else_said(history, dashboard, expect):
    """Also after the event of the own label has come back from the server."""
    passage_id = IDS[-2]
    own = row(history, passage_id)
    status = {"run": "run", "recording": None, "sensors": [], "running": True}
    with Journal(dashboard.state.journal, read_only=True) as journal:
        dashboard.tell_pages(status, journal.last_id)
        own.locator("button[aria-expanded]").click()
        with history.expect_response(f"**/passages/{passage_id}"):  # the row is asked for again
            own.locator("button:text-is('Human')").click()
            eventually(lambda: labels(dashboard, passage_id) == ["nobody", "human"], "the label is stored")
            dashboard.tell_pages(status, journal.last_id)
    expect(own).to_contain_text("labeled Human")
    own.locator("button:text-is('Undo')").click()
    eventually(lambda: labels(dashboard, passage_id) == ["nobody"], "the label is taken back")
    with Journal(dashboard.state.journal, read_only=True) as journal:
        dashboard.tell_pages(status, journal.last_id)
    expect(own).to_contain_text("labeled Nobody by anna")


def test_it_looks_well_for_everybody(history, expect):
    row(history, IDS[-1]).locator("a").click()
    expect(history.locator(DETAILS)).to_be_visible()
    row(history, IDS[-2]).locator("button[aria-expanded]").click()
    check_looks(history)
    history.set_viewport_size({"width": 390, "height": 844})
    assert history.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    days = history.locator(".calendar tbody tr:visible")
    assert days.count() <= 7


def test_an_array_without_a_past_says_what_to_do(browser, tmp_path, expect):
    with served(tmp_path) as made:
        made.state.create()
        Journal(made.state.journal).close()
        context = browser.new_context(base_url=made.url)
        try:
            page = context.new_page()
            page.goto("/history")
            expect(page.locator(".empty")).to_contain_text("Nothing was heard yet")
            expect(page.locator(".history-night")).to_contain_text(": no passages")
            check_looks(page)
        finally:
            context.close()
