"""Activity of an array that is running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pipeline.storage.journal import Journal, JournalEntry
from tests.conftest import eventually
from tests.web.conftest import Dashboard
from tests.web.looks import check_looks

ENTRY = ".activity .entry"


def test_open_faults_stand_at_the_top_and_go_by_themselves(page, dashboard):
    page.goto("/activity")
    page.wait_for_selector(".open-faults li .badge:text-matches('bad|degraded')")
    page.wait_for_selector(f"{ENTRY}[data-open] .mark:is(.bad, .degraded)")
    check_looks(page)


def test_what_happens_appears_without_loading_the_page(page, dashboard):
    page.goto("/activity")
    page.wait_for_selector("#connection[data-state=live]")
    page.wait_for_selector(".open-faults :is(h2, .badge)")
    with Journal(dashboard.state.journal) as journal:
        journal.append([JournalEntry("run", {"type": "model_promoted", "model": "feedbeef", "why": "a test"})])
    page.wait_for_selector(f"{ENTRY}:has-text('Model feedbeef decides from now on (a test)')")


def test_older_entries_stay_when_something_happens(tmp_path, browser):
    """More than one portion, all of it loaded; each entry is there once before and after."""
    made = Dashboard(tmp_path, None)
    with Journal(made.state.journal) as journal:
        begin = datetime.now(UTC) - timedelta(days=1)
        times = [begin + timedelta(minutes=n) for n in range(900)]
        journal.append([JournalEntry("old", {"type": "label_refused", "why": f"number {n}"}, time=time)
                        for n, time in enumerate(times)])  # fmt: skip
    made.start()
    context = browser.new_context(base_url=made.url)
    try:
        page = context.new_page()
        page.goto("/activity")
        page.get_by_role("button", name="System").click()
        page.get_by_role("button", name="Older").click()
        page.wait_for_selector(f"{ENTRY}:has-text('Label refused: number 0')")
        with Journal(made.state.journal) as journal:
            journal.append([JournalEntry("run", {"type": "label_refused", "why": "just now"})])
        page.wait_for_selector(f"{ENTRY}:has-text('Label refused: just now')")
        texts = page.locator(f"{ENTRY} p:first-child").all_inner_texts()
    finally:
        context.close()
        made.close()
    numbers = [text for text in texts if "number" in text]
    assert numbers == [f"Label refused: number {n}" for n in range(899, -1, -1)]


def test_pages_that_ask_at_once_share_an_answer(dashboard):
    """The newest entries are put together once for all pages, and again soon."""
    first = dashboard.answer("/api/v1/activity?kind=model")
    with Journal(dashboard.state.journal) as journal:
        journal.append([JournalEntry("run", {"type": "model_promoted", "model": "cafe", "why": "a test"})])
    eventually(lambda: dashboard.answer("/api/v1/activity?kind=model") != first, "another answer")
    assert "cafe" in dashboard.answer("/api/v1/activity?kind=model")["entries"][0]["text"]
