"""Logging in with a browser, and what viewers see."""

from __future__ import annotations

import pytest

from pipeline.web.tokens import hash_of, new_token
from tests.conftest import component, eventually
from tests.web.conftest import Alone, Dashboard

OPERATOR, VIEWER = new_token(), new_token()
TOKENS = ", ".join(
    f'{{name = "{name}", role = "{role}", hash = "{hash_of(token)}"}}'
    for name, role, token in (("ada", "operator", OPERATOR), ("bob", "viewer", VIEWER))
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    made = Dashboard(tmp_path_factory.mktemp("guarded"), None, more=f"tokens = [{TOKENS}]\n")
    made.token = OPERATOR
    made.start()
    yield made
    made.close()


@pytest.fixture
def visit(browser):
    """Opens a page for somebody who was never here."""
    contexts = []

    def open_page(address: str, **options):
        contexts.append(browser.new_context(base_url=address, **options))
        return contexts[-1].new_page()

    yield open_page
    for context in contexts:
        context.close()


def log_in(page, token: str) -> None:
    page.fill("#token", token)
    page.keyboard.press("Enter")


def test_one_logs_in_by_keyboard_and_comes_where_one_wanted_to(guarded, visit):
    page = visit(guarded.url)
    page.goto("/models")
    assert page.url == f"{guarded.url}/login?next=%2Fmodels"
    assert page.evaluate("document.activeElement.id") == "token"
    page.keyboard.press("Enter")
    page.wait_for_selector("#problem:has-text('Paste your token first')")
    page.keyboard.type(new_token())
    page.keyboard.press("Enter")
    page.wait_for_selector("#problem:has-text('not known')")
    page.keyboard.type(OPERATOR)  # what was wrong is selected, and replaced
    page.keyboard.press("Enter")
    page.wait_for_url("**/models")
    page.wait_for_selector("#connection[data-state=live]")
    page.wait_for_selector("#visitor:has-text('ada (operator)')")
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("document.documentElement.dataset.role") == "operator"
    # Whoever is known does not stay at the login.
    page.goto("/login?next=/timeline")
    page.wait_for_url("**/timeline")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login?next=%2Ftimeline")
    page.goto("/")
    page.wait_for_url("**/login?next=%2F")


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/%09/evil.example",
               "evil.example", "/login"],
)  # fmt: skip
def test_no_link_leads_through_the_login_to_another_site(guarded, visit, target):
    page = visit(guarded.url)
    page.goto(f"/login?next={target}")
    log_in(page, VIEWER)
    page.wait_for_selector("#connection[data-state=live]")
    assert page.url.startswith(f"{guarded.url}/")


def test_a_viewer_is_shown_nothing_he_may_not_use(guarded, visit):
    page = visit(guarded.url)
    page.goto("/login")
    log_in(page, VIEWER)
    page.wait_for_selector("#visitor:has-text('bob (viewer)')")
    page.evaluate("document.body.append(Object.assign(document.createElement('button'), {className: 'operate'}))")
    assert page.locator("button.operate").is_hidden()
    assert page.evaluate("import('/static/session.js').then((session) => session.mayOperate())") is False


def test_a_session_that_ends_leads_to_the_login(guarded, visit):
    """Also on a page that only listens."""
    page = visit(guarded.url)
    page.goto("/login")
    log_in(page, VIEWER)
    page.wait_for_selector("#connection[data-state=live]")
    page.context.clear_cookies()
    guarded.stop()
    guarded.start()
    page.wait_for_url("**/login?next=%2F")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_login_works_on_a_phone_and_for_everybody(guarded, visit, scheme):
    axe = component("axe_playwright_python.sync_playwright").Axe()
    page = visit(guarded.url, viewport={"width": 360, "height": 640}, color_scheme=scheme)
    page.goto("/login")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    log_in(page, new_token())
    page.wait_for_selector("#problem:has-text('not known')")
    found = axe.run(page).response["violations"]
    assert not [one["id"] for one in found if one["impact"] in ("serious", "critical")]
    log_in(page, VIEWER)
    page.wait_for_selector("#visitor:has-text('bob')")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_without_a_daemon_the_page_says_that_this_is_how_it_was(guarded, visit, tmp_path):
    past = Dashboard(tmp_path / "past", None)
    past.start()
    eventually(lambda: past.status().get("sample"), "some sound")
    past.stop()
    past.close()
    with Alone(tmp_path, past.state.path) as made:
        page = visit(f"http://127.0.0.1:{made.port}")
        page.goto("/")
        page.wait_for_selector("#connection[data-state=past]")
        page.wait_for_selector("#banner:has-text('The daemon is not running; this is how it was.')")
