"""Review asks about whole passages: one key for every class, for nobody, unknown and not sure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pipeline.storage.journal import Journal
from tests.conftest import component, eventually
from tests.storage.test_review_queue import decision
from tests.web.past import LEAD, NOW, RATE, Past, write_past
from tests.web.served import Served, served

SETTINGS = '[training]\nenabled = false\nclasses = ["human", "human_animal"]\n[labels.names]\nhuman = "Walker"\n'
SECONDS = 12.0
ALL = [Past(NOW - timedelta(hours=8 - n), seconds=SECONDS, kept=60.0) for n in range(8)]
IDS = [f"r{number:04d}.p40000" for number in range(1, 9)]
OUTSIDE = 55.0
"""Second of each recording in which something uncertain was heard, but nobody passed."""
READY = ".review-stage[data-sound=ready]"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory) -> Iterator[Served]:
    """In every recording a passage with three decisions, and a moment outside of it that is more instructive."""
    with served(tmp_path_factory.mktemp("review"), more=SETTINGS) as made:
        names = write_past(made.state, ALL)
        with Journal(made.state.journal) as journal:
            for place, name in enumerate(names):
                journal.append(
                    [decision(LEAD + 2 + 3 * n, 0.8 - 0.01 * place, recording=name, rate_hz=RATE) for n in range(3)]
                )
                journal.append([decision(OUTSIDE, 0.5, recording=name, rate_hz=RATE)])
        yield made


@pytest.fixture
def expect():
    return component("playwright.sync_api").expect


def labels(dashboard: Served) -> list[tuple[str, int, int, str]]:
    with Journal(dashboard.state.journal, read_only=True) as journal:
        rows = journal.rows(
            "SELECT recording, start, stop, label FROM label_rows WHERE NOT void AND label IS NOT NULL ORDER BY id"
        )
    return [(row["recording"], row["start"], row["stop"], row["label"]) for row in rows]


def shown(page) -> str:
    page.wait_for_selector(READY)
    return str(page.get_attribute(".review-stage", "data-item"))


def press(page, key: str) -> None:
    """When somebody could have listened."""
    page.wait_for_selector(READY)
    page.wait_for_selector(".review-bar[data-heard=yes]")
    page.keyboard.press(key)


def test_most_questions_are_about_passages(dashboard):
    """Moments outside are more instructive one by one; still only every fourth question is about one."""
    _, found = dashboard.ask("/api/v1/review?most=8")
    assert [one["passage"] is None for one in found["items"]] == [False, False, False, True] * 2
    assert len({one["passage"] for one in found["items"]} - {None}) == 6


@pytest.mark.parametrize(
    ("key", "label"), [("1", "human"), ("2", "human_animal"), ("0", "nobody"), ("x", "unknown"), ("d", "not sure")]
)
def test_one_key_labels_the_whole_passage(page, dashboard, key, label):
    before = labels(dashboard)
    page.goto(f"/review?passage={IDS[4]}")
    assert shown(page) == IDS[4]
    press(page, key)
    page.wait_for_selector(f".review-stage:not([data-item='{IDS[4]}'])")
    begin, end = round(LEAD * RATE), round((LEAD + SECONDS) * RATE)
    eventually(lambda: labels(dashboard) == [*before, ("r0005", begin, end, label)], "the label is stored")
    press(page, "u")
    eventually(lambda: labels(dashboard) == before, "the label is taken back")
    assert shown(page) == IDS[4]


def test_the_keys_are_on_the_buttons_and_in_the_dialog(page, expect):
    page.goto("/review")
    shown(page)
    buttons = page.locator(".review-label")
    assert buttons.all_inner_texts() == ["1\nWalker", "2\nHuman with animal", "0\nNobody", "X\nUnknown", "D\nNot sure"]
    page.keyboard.press("?")
    for text in ("nobody: wind, an animal, a machine", "unknown:", "not sure", "outside of passages"):
        expect(page.locator("dialog[open]")).to_contain_text(text)


def test_a_passage_is_labeled_as_a_whole_and_a_moment_may_be_extended(page, expect):
    page.goto(f"/review?passage={IDS[2]}")
    shown(page)
    expect(page.locator(".review-options")).to_contain_text("the label covers the whole passage, 12.0 s")
    page.keyboard.press("]")
    expect(page.locator(".review-options")).to_contain_text("12.0 s")
    for _ in range(12):
        before = shown(page)
        if "@" in before:
            break
        page.keyboard.press("s")
        page.wait_for_selector(f".review-stage:not([data-item='{before}'])")
    page.keyboard.press("]")
    expect(page.locator(".review-options")).to_contain_text("the label covers 3.0 s")


def test_a_passage_that_is_not_there_is_named_and_the_queue_goes_on(page):
    page.goto("/review?passage=r9999.p1")
    page.wait_for_selector("text=r9999.p1")
    shown(page)
    assert all("404" in text for text in page.complaints)
    page.complaints.clear()


def test_what_somebody_else_labels_is_no_longer_asked(page, dashboard, expect):
    """Another passage of the same minute still is: passages are told apart by their ends."""
    page.goto("/review")
    first = shown(page)
    waiting: Any = page.inner_text("[data-count=waiting]")
    other = next(
        one["passage"] for one in dashboard.ask("/api/v1/review?most=3")[1]["items"] if one["passage"] != first
    )
    with Journal(dashboard.state.journal) as journal:
        dashboard.tell_pages({"run": "run", "recording": None, "sensors": []}, journal.last_id)
        code, given = dashboard.ask("/api/v1/labels", {"label": "nobody", "passage": other})
        dashboard.tell_pages({"run": "run", "recording": None, "sensors": []}, journal.last_id)
    assert code == 200, given
    expect(page.locator("[data-count=waiting]")).not_to_have_text(waiting)
    assert shown(page) == first
    press(page, "s")
    assert shown(page) != other
    dashboard.ask(f"/api/v1/labels/{given['number']}/take-back", {})
