"""Passages on the timeline: bars with class and name; segments only close up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline.daemon.recorder import Recorder
from pipeline.storage.journal import Journal
from tests.conftest import component
from tests.passages import MODEL
from tests.storage.test_review_queue import decision
from tests.web.looks import check_looks
from tests.web.past import LEAD, RATE, Past, label_passage, observe_passage, write_past
from tests.web.served import Served, served

BARS = ".timeline-chart .passages .item"
MINUTES = (25, 20, 15, 10, 5)
LABELS = ("human", "human_animal", None, "human", "human_animal")
NAMES = ("Walker", "Human with animal", "Somebody, no class", "Nobody", "Human with animal")
COLORS = ("class-0", "class-1", "undecided", "undecided", "class-1")
SAID = 3
"""The passage of which a person said that nobody was there."""
SETTINGS = '[labels.names]\nhuman = "Walker"\n'


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory) -> Iterator[Served]:
    """An array that has been known for half an hour."""
    with served(tmp_path_factory.mktemp("timeline"), more=SETTINGS) as made:
        now = datetime.now(UTC)
        past = [
            Past(now - timedelta(minutes=minutes), label=label, seconds=40.0, kept=60.0)
            for minutes, label in zip(MINUTES, LABELS, strict=True)
        ]
        names = write_past(made.state, past)
        with Journal(made.state.journal) as journal:
            facts = json.dumps({"classes": ["human", "human_animal"]})
            journal.execute(
                "INSERT INTO models VALUES (?, '0', 'then', 'given', NULL, 'champion', 'then', 'given', ?)",
                (MODEL, facts),
            )
            journal.append([decision(LEAD + 5, recording=names[SAID], rate_hz=RATE)])
            label_passage(journal, f"{names[SAID]}.p40000", "nobody")
        yield made


@pytest.fixture
def expect():
    return component("playwright.sync_api").expect


@pytest.fixture
def timeline(page):
    page.goto("/timeline")
    page.wait_for_selector(BARS)
    return page


def test_a_bar_for_each_passage_in_the_color_of_its_class(timeline):
    """What a person said counts before what the model decided."""
    found = timeline.locator(f"{BARS} rect").evaluate_all("all => all.map((one) => one.style.fill)")
    assert found == [f"var(--{name})" for name in COLORS]


def boxes(page: Any, *selectors: str) -> list[dict[str, float]]:
    """Return the boxes of the last elements that match, of one drawing: it is replaced every second."""
    read = "all => all.map((one) => [...document.querySelectorAll(one)].at(-1).getBoundingClientRect().toJSON())"
    return list(page.evaluate(read, selectors))


def test_it_starts_at_what_there_is(timeline):
    """Half an hour of the last hour, the first passage at its beginning."""
    bar, canvas = boxes(timeline, f"{BARS}:first-of-type", ".timeline .canvas")
    assert bar["x"] - canvas["x"] < 0.2 * canvas["width"]
    assert timeline.get_attribute("button:has-text('1 h')", "aria-pressed") == "false"


def test_segments_are_shown_close_up_only(timeline, expect):
    page = timeline
    expect(page.locator(".timeline-chart .decisions")).to_have_count(0)
    page.click("button:has-text('10 min')")
    expect(page.locator(".timeline-chart .decisions")).to_have_count(1)
    page.click("button:has-text('24 h')")
    expect(page.locator(".timeline-chart .decisions")).to_have_count(0)


def test_passages_close_together_are_one_bar_far_away(timeline, expect):
    timeline.click("button:has-text('30 d')")
    bars = timeline.locator(BARS)
    expect(bars).to_have_count(1)
    bars.first.hover()
    expect(timeline.locator(".timeline .hint")).to_contain_text("Passages: 5 passages, close together; zoom in")


def test_a_bar_opens_its_passage_by_mouse(timeline, expect):
    page = timeline
    page.locator(BARS).first.click()
    details = page.locator(".timeline .details")
    expect(details.locator("h2")).to_have_text("Walker")
    expect(details).to_contain_text("112 steps per minute")
    expect(details.locator("text=All about it in History")).to_have_attribute("href", "/history?passage=r0001.p40000")
    with page.expect_response("**/passages/r0001.p40000/clip?mix=true") as answered:
        details.locator("button.play").click()
    assert answered.value.status == 200
    details.locator("text=All about it in History").click()
    expect(page.locator(".passage-details h2")).to_contain_text("Walker 9")


def test_a_bar_opens_its_passage_by_keyboard_and_the_list_names_them_all(timeline, expect):
    page = timeline
    page.focus(".timeline .canvas")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#timeline-spoken")).to_contain_text("Passages: Human with animal, probability 9")
    page.keyboard.press("p")
    expect(page.locator("#timeline-spoken")).to_contain_text("Passages: Nobody, labeled by a person; the model: human")
    page.keyboard.press("Enter")
    expect(page.locator(".details h2")).to_have_text("Nobody")
    page.keyboard.press("Escape")
    page.click("button:text-is('List')")
    rows = page.locator(".timeline tbody tr").filter(has_text="Passages")
    assert [rows.nth(n).locator("td").nth(2).inner_text() for n in range(5)] == list(NAMES)[::-1]


def test_a_passage_that_goes_by_appears_before_the_server_is_asked_again(timeline, dashboard, expect):
    """What the server would answer is held back; the bar comes from the events, at its place."""
    page, held = timeline, list[Any]()
    page.click("button:has-text('10 min')")
    page.wait_for_selector(".timeline-chart .decisions")
    page.route("**/timeline?*", lambda route: held.append(route))
    status = {"run": "run", "recording": None, "sensors": [], "rate_hz": RATE}
    recorder = Recorder(dashboard.state.journal, "run")
    recorder.choices = json.dumps({"least_confidence": 0.6})
    dashboard.tell_pages(status, recorder.journal.last_id)
    bars = page.locator(BARS)
    before = bars.count()
    observe_passage(recorder, "r0009", Past(datetime.now(UTC) - timedelta(seconds=120), label="human", seconds=60.0))
    dashboard.tell_pages(status, recorder.journal.last_id)
    expect(bars).to_have_count(before + 1)
    assert bars.last.locator("rect").evaluate("one => one.style.fill") == "var(--class-0)"
    bar, chart, rule = boxes(page, f"{BARS} rect", ".timeline-chart", ".timeline-chart .rule")
    minute = rule["width"] / 10
    assert bar["width"] == pytest.approx(minute, rel=0.05)
    assert chart["right"] - bar["x"] == pytest.approx(2 * minute, rel=0.25)
    recorder.journal.execute("DELETE FROM passages WHERE recording = 'r0009'")
    recorder.close()


def test_it_looks_well_for_everybody(timeline):
    timeline.locator(BARS).first.click()
    timeline.wait_for_selector(".details .button")
    check_looks(timeline)
