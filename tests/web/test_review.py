"""Review: a queue that is worked off with a few keys; what is said there reaches training, and nothing is lost."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from pipeline.config.schema import read_settings
from pipeline.retraining.job import Job
from pipeline.retraining.worker import TrainingOutcome, Workshop, run
from pipeline.storage.journal import Journal
from pipeline.storage.labels import LabelSpan, LabelSubmission, give, somebody, take_back
from pipeline.storage.retention import RetentionClass
from tests.conftest import component, eventually, free_port
from tests.daemon.live import WALKS, settings
from tests.web.conftest import TIMEOUT, Dashboard

READY = ".review-stage[data-sound=ready]"
HEARD = ".review-bar[data-heard=yes]"
KEY_DOWN = "((repeat) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '1', repeat, bubbles: true})))"
HEARD_SECONDS = 120
NOW = f"{WALKS}\nseed = 3\nfault_share = 0.2\n"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory, model) -> Iterator[Dashboard]:
    """First some minutes as fast as they can be heard, then a daemon that goes on as time does."""
    directory = tmp_path_factory.mktemp("review")
    made = Dashboard(directory, model, source=f'{NOW}speed = 0\nlength = "{HEARD_SECONDS} s"')
    try:
        made.hear_all()
        made.config.write_text(re.sub(r"speed = 0\nlength = .*", "speed = 1", made.config.read_text()))
        made.start()
        eventually(lambda: made.answer("/api/v1/review").get("waiting", 0) >= 4, "a queue")
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def unsaid(request) -> Iterator[None]:
    """What a test says is taken back behind it, so that the next one is asked everything."""
    yield
    if "dashboard" in request.fixturenames:
        dashboard = request.getfixturevalue("dashboard")
        with Journal(dashboard.state.journal) as journal:
            for one in labels(dashboard):
                take_back(journal, one["id"], LabelSubmission(None, "a test"))


def post(dashboard: Dashboard, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/json", "X-Gemmed": "dashboard"}
    request = urllib.request.Request(dashboard.url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def labels(dashboard: Dashboard) -> list[dict[str, Any]]:
    """What counts, the newest first."""
    with dashboard.journal() as journal:
        return journal.rows("SELECT * FROM label_rows WHERE NOT void ORDER BY id DESC")


def review(page, address: str = "/review") -> str:
    """Open the page; the item it shows."""
    page.goto(address)
    return shown(page)


def shown(page) -> str:
    page.wait_for_selector(READY)
    return str(page.get_attribute(".review-stage", "data-item"))


def another(page, before: str) -> str:
    """The item after one."""
    page.wait_for_selector(f".review-stage:not([data-item='{before}']):not([data-item=''])")
    return shown(page)


def press(page, key: str) -> None:
    """When somebody could have heard what he labels."""
    page.wait_for_selector(READY)
    page.wait_for_selector(HEARD)
    page.keyboard.press(key)


def stored(dashboard: Dashboard, item: str) -> dict[str, Any]:
    """The label of an item, as soon as it is there."""
    recording, _, start = item.rpartition("@")

    def found() -> Any:
        own = [one for one in labels(dashboard) if (one["recording"], one["start"]) == (recording, int(start))]
        return own[0] if own else None

    return dict(eventually(found, f"a label of {item}"))


def test_a_key_labels_and_training_sees_it(page, dashboard, tmp_path):
    """By keyboard only: the label is stored with its author, its sound is worth keeping, and it is an example."""
    first = review(page)
    press(page, "2")
    second = another(page, first)
    press(page, "1")
    another(page, second)
    human, animal = stored(dashboard, second), stored(dashboard, first)
    assert [(one["label"], one["who"], one["via"]) for one in (animal, human)] == [
        ("human_animal", somebody(), "page"),
        ("human", somebody(), "page"),
    ]
    with dashboard.journal() as journal:
        worth = journal.rows(
            "SELECT worth FROM pieces WHERE recording = ? AND start < ? AND stop > ?",
            (human["recording"], human["stop"], human["start"]),
        )
    assert {row["worth"] for row in worth} == {RetentionClass.LABELLED}
    dashboard.copy_state(tmp_path / "state")
    assert run(tmp_path / "state", Job(components=12, folds=2)) is TrainingOutcome.NOTHING
    with Journal(tmp_path / "state" / "journal.sqlite") as journal:
        *_, told = journal.events(types=["retraining_finished"])
        examples = Workshop(tmp_path / "state", journal, Job()).examples.load(("human", "human_animal"))
    assert told.body["why"].startswith("1 passage of 'human' must be at least 5; label 4 more; 1 passage of 'human_a")
    # Minutes far from every label are presumed to be background.
    learned = {note.name: note.label_counts for note in examples.recordings if "background" not in note.label_counts}
    assert learned == {first: {"human_animal": 1}, second: {"human": 1}}


def test_undo_takes_the_last_label_back_and_returns_to_it(page, dashboard):
    """What was asked in between comes after it."""
    first = review(page)
    press(page, "1")
    second = another(page, first)
    number = stored(dashboard, first)["id"]
    page.keyboard.press("u")
    page.wait_for_selector(f".review-stage[data-item='{first}']")
    eventually(lambda: number not in [one["id"] for one in labels(dashboard)], "the label is taken back")
    page.wait_for_selector("text=Taken back: Human.")
    page.keyboard.press("s")
    page.wait_for_selector(f".review-stage[data-item='{second}']")


def test_a_key_pressed_twice_labels_once(page, dashboard):
    """Nor does one that is held down, also if it is held until the next item was heard."""
    before = len(labels(dashboard))
    first = review(page)
    page.wait_for_selector(HEARD)
    # All of it before anybody can have heard the next item, however slow this machine is.
    page.evaluate(f"for (const repeat of [false, false, true, true]) {KEY_DOWN}(repeat)")
    second = another(page, first)
    page.wait_for_selector(HEARD)
    page.evaluate(f"{KEY_DOWN}(true)")
    press(page, "2")
    another(page, second)
    stored(dashboard, second)
    assert len(labels(dashboard)) == before + 2
    assert stored(dashboard, second)["label"] == "human_animal"


def test_a_label_can_cover_more_than_was_asked(page, dashboard):
    """A second on either side for each key; M returns to what was asked."""
    item = review(page)
    press(page, "]")
    page.keyboard.press("m")
    for key in "[]]":
        page.keyboard.press(key)
    page.wait_for_selector("text=label covers 5.0 s")
    recording, _, start = item.rpartition("@")
    press(page, "1")
    another(page, item)
    given = stored(dashboard, f"{recording}@{int(start) - 4000}")
    assert given["stop"] - given["start"] == 5 * 4000


def test_sound_is_played_together_alone_and_slower(page):
    """The head moves through the pictures of all four; what is chosen is remembered."""
    head = "parseFloat(document.querySelector('.review-row .head-line').style.left)"
    item = review(page)
    page.wait_for_selector("button:has-text('Pause')")
    at = page.evaluate(head)
    eventually(lambda: page.evaluate(head) > at + 3, "the head moves")
    assert page.locator(".review-row canvas").count() == 4
    page.keyboard.press("w")
    page.wait_for_selector("button.solo[aria-pressed=true]:has-text('Sensor 2')")
    page.keyboard.press("w")
    assert page.locator("button.solo[aria-pressed=true]").count() == 0
    page.keyboard.press("Space")
    page.wait_for_selector("button:has-text('Play')")
    at = page.evaluate(head)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(head) > at
    page.keyboard.press("h")
    page.keyboard.press("a")
    review(page)
    assert page.get_attribute("button:has-text('Half speed')", "aria-pressed") == "true"
    assert page.get_attribute("button:has-text('Autoplay')", "aria-pressed") == "false"
    assert shown(page) == item
    page.wait_for_selector("button:has-text('Play')")


def test_an_event_can_be_asked_for(page, dashboard):
    """As other pages do; what is no decision is said to be none, and the queue is there all the same."""
    with dashboard.journal() as journal:
        wanted = list(journal.events(types=["decision"], most=30))[-1]
    assert review(page, f"/review?event={wanted.id}") == f"{wanted.recording}@{wanted.body['start_sample']}"
    page.wait_for_selector("text=you asked for it")
    page.goto("/review?event=999999999")
    page.wait_for_selector("text=event 999999999 is no decision")
    shown(page)
    assert all("404" in told for told in page.complaints)
    page.complaints.clear()


def test_a_killed_daemon_loses_no_label(page, dashboard):
    """It waits in the browser, which says so, and is sent once when the daemon is back."""
    first = review(page)
    before = len(labels(dashboard))
    dashboard.stop(signal.SIGKILL)
    page.wait_for_selector("#connection[data-state=reconnecting]")
    press(page, "1")
    page.wait_for_selector("[data-count=unsent]:has-text('1 kept here')")
    page.wait_for_selector("text=sent as soon as it answers")
    assert len(labels(dashboard)) == before
    dashboard.start()
    page.wait_for_selector("[data-count=unsent]", state="detached")
    assert stored(dashboard, first)["label"] == "human"
    assert len(labels(dashboard)) == before + 1
    assert all("ERR_" in told for told in page.complaints)
    page.complaints.clear()


def test_labels_of_a_page_that_was_closed_are_sent_by_the_next(page, dashboard):
    """They are kept by the browser, not by the page."""
    first = review(page)
    page.route("**/api/v1/labels", lambda route: route.abort())
    press(page, "2")
    page.wait_for_selector("[data-count=unsent]")
    page.unroute("**/api/v1/labels")
    page.complaints.clear()
    page.goto("/settings")
    review(page)
    assert stored(dashboard, first)["label"] == "human_animal"
    page.wait_for_selector("[data-count=unsent]", state="detached")
    page.complaints.clear()


def test_what_the_server_refuses_comes_back_with_its_words(page, dashboard):
    """And is not tried again."""
    first = review(page)
    before = len(labels(dashboard))
    refusal = {"error": "you may look, not label"}
    page.route("**/api/v1/labels", lambda route: route.fulfill(status=403, json=refusal))
    press(page, "1")
    page.wait_for_selector("text=you may look, not label")
    assert shown(page) == first
    assert page.evaluate("localStorage.getItem('gemmed-labels-to-send')") == "[]"
    assert len(labels(dashboard)) == before
    page.complaints.clear()


def test_an_answer_from_before_a_label_neither_asks_nor_counts_again(page, dashboard):
    """Labels and the question for more go out together, and the server may take up the question first."""

    def few(route: Any) -> None:
        answer = route.fetch()
        found = answer.json()
        route.fulfill(response=answer, json={**found, "items": found["items"][:3]})

    page.route("**/api/v1/review?*", few)
    first = review(page)
    counted = int(page.inner_text("[data-count=today]").split()[0])
    labels_held: list[Any] = []
    answers_held: list[Any] = []
    page.route("**/api/v1/labels", lambda route: labels_held.append(route))
    page.route("**/api/v1/review?*", lambda route: answers_held.append((route, route.fetch())))
    press(page, "1")
    eventually(lambda: page.evaluate("1") and labels_held and answers_held, "both are asked")
    labels_held[0].continue_()
    stored(dashboard, first)
    page.wait_for_selector("[data-count=unsent]", state="detached")
    route, answer = answers_held[0]
    with page.expect_response("**/api/v1/review?*"):
        route.fulfill(response=answer)
    second = shown(page)
    assert page.inner_text("[data-count=today]") == f"{counted + 1} labeled today"
    press(page, "s")
    asked = [second, another(page, second)]
    page.keyboard.press("s")
    asked.append(another(page, asked[-1]))
    page.keyboard.press("s")
    page.wait_for_selector(f".review-stage:not([data-item='{asked[-1]}'])")
    assert first not in [*asked, page.get_attribute(".review-stage", "data-item")]


def test_two_pages_see_what_the_other_says(page, browser, dashboard):
    """The second is told at once; if he speaks all the same, his is the last word, and he is told of the other."""
    item = review(page)
    other = browser.new_context(base_url=dashboard.url).new_page()
    try:
        assert review(other) == item
        press(page, "1")
        another(page, item)
        other.wait_for_selector("text=has just labeled it Human, by page")
        assert shown(other) == item
        press(other, "2")
        other.wait_for_selector(
            "text=labeled it Human meanwhile; your label, Human with animal, counts because it is the last"
        )
    finally:
        other.context.close()
    assert stored(dashboard, item)["label"] == "human_animal"


def test_a_word_of_ones_own(page, dashboard):
    """By keyboard, with a reason."""
    item = review(page)
    press(page, "n")
    page.keyboard.type("  ")
    page.keyboard.press("Enter")
    assert page.is_visible("dialog[open] input:invalid")
    page.keyboard.type("deer")
    page.keyboard.press("Tab")
    page.keyboard.type("it barks")
    page.keyboard.press("Enter")
    another(page, item)
    given = stored(dashboard, item)
    assert (given["label"], given["why"]) == ("deer", "it barks")
    words = {one["word"]: one for one in dashboard.answer("/api/v1/labels/words")["words"]}
    assert (words["deer"]["kind"], words["deer"]["learned"]) == ("other", False)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_and_fits_a_phone(page, scheme):
    """No serious finding; nothing scrolls sideways; the labels are within reach."""
    axe = component("axe_playwright_python.sync_playwright").Axe()
    page.emulate_media(color_scheme=scheme)
    review(page)
    for size in ({"width": 1200, "height": 800}, {"width": 360, "height": 740}):
        page.set_viewport_size(size)
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        found = axe.run(page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        reach = page.evaluate("document.querySelector('.review-label').getBoundingClientRect().bottom")
        assert size["height"] * 0.5 < reach <= size["height"]
    page.set_viewport_size({"width": 1200, "height": 800})
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open] >> text=take back the last label")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")


@pytest.fixture
def bare(tmp_path) -> Iterator[str]:
    """A dashboard of a state directory in which nothing was heard yet; its address."""
    component("uvicorn")
    from pipeline.web.server import serve

    port = free_port()
    config = settings(tmp_path, model=None, more=f'[web]\naddress = "127.0.0.1:{port}"')
    given = read_settings(config)
    Journal(given.storage.directory / "journal.sqlite").close()
    over = Event()

    def snapshots() -> Iterator[Any]:
        yield {"status": {"model": None, "learning": "in progress", "recording": None, "sensors": []}, "last_id": 0}
        over.wait()

    serving = Thread(target=serve, args=(given, snapshots()))
    serving.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        over.set()
        serving.join(TIMEOUT)


def test_nothing_to_review_says_why(browser, bare):
    """And what to do."""
    page = browser.new_context(base_url=bare).new_page()
    try:
        page.goto("/review")
        page.wait_for_selector(".empty:has-text('nothing was decided yet')")
        page.wait_for_selector("text=A first model is being made")
        assert page.locator(".review-bar").is_hidden()
    finally:
        page.context.close()


def test_the_api_asks_and_stores(dashboard):
    """As pages and programs use it: reasons, places, words; once, however often it is sent; paged; taken back."""
    found = dashboard.answer("/api/v1/review?most=3")
    assert len(found["items"]) == 3
    item = found["items"][1]
    assert item["why"]
    assert [one["sensor"] for one in item["decision"]["sensors"]] == [1, 2, 3, 4]
    assert item["shown_start_sample"] <= item["start_sample"] < item["stop_sample"] < item["shown_stop_sample"]
    place = {name: item[name] for name in ("recording", "start_sample", "stop_sample")}
    known = found["last_label"]
    code, given = post(dashboard, "/api/v1/labels", label="human", **place, known=known)
    assert (code, given["meanwhile"]) == (200, [])
    assert post(dashboard, "/api/v1/labels", label="human", **place, known=known) == (code, given)
    code, other = post(dashboard, "/api/v1/labels", label="human_animal", event=item["decision"]["event"], known=known)
    assert [one["number"] for one in other["meanwhile"]] == [given["number"]]
    first, second = dashboard.answer("/api/v1/labels?most=2")["labels"]
    assert (first["number"], second["number"]) == (other["number"], given["number"])
    assert dashboard.answer(f"/api/v1/labels?before={first['number']}&most=1")["labels"] == [second]
    assert place not in [
        {name: one[name] for name in place} for one in dashboard.answer("/api/v1/review?most=100")["items"]
    ]
    for number in (other["number"], given["number"]):
        assert post(dashboard, f"/api/v1/labels/{number}/take-back")[0] == 200
    assert post(dashboard, "/api/v1/labels", label="human", **place, known=known)[1]["number"] > other["number"]
    post(dashboard, f"/api/v1/labels/{dashboard.answer('/api/v1/labels')['labels'][0]['number']}/take-back")
    assert item in dashboard.answer("/api/v1/review?most=100")["items"]


@pytest.mark.parametrize(
    ("path", "body", "code", "words"),
    [
        ("/api/v1/labels", {"label": "humann", "event": 1}, 400, "a decision"),
        ("/api/v1/labels", {"label": "human"}, 400, "a label needs a place"),
        ("/api/v1/labels", {"label": "human", "event": 1, "recording": "x"}, 400, "and only one"),
        ("/api/v1/labels", {"label": "human", "recording": "x", "start_sample": 0, "stop_sample": 9}, 400, "journal"),
        ("/api/v1/labels", {"label": " ", "event": 1}, 422, "label"),
        ("/api/v1/labels", {"label": "a\u0000b", "event": 1}, 422, "label"),
        ("/api/v1/labels/999999/take-back", {}, 404, "there is no label 999999"),
    ],
)
def test_the_api_refuses_in_words(dashboard, path, body, code, words):
    """And stores nothing."""
    before = len(labels(dashboard))
    answer = post(dashboard, path, **body)
    assert answer[0] == code
    assert words in answer[1]["error"]
    assert len(labels(dashboard)) == before


def test_a_misspelt_word_needs_insisting(dashboard):
    """It would be a class of its own."""
    item = dashboard.answer("/api/v1/review?most=1")["items"][0]
    place = {name: item[name] for name in ("recording", "start_sample", "stop_sample")}
    code, told = post(dashboard, "/api/v1/labels", label="humann", **place)
    assert code == 400
    assert "did you mean human? say new: true if it is meant so" in told["error"]
    code, given = post(dashboard, "/api/v1/labels", label="humann", **place, new=True)
    assert code == 200
    assert post(dashboard, f"/api/v1/labels/{given['number']}/take-back", why="a slip")[0] == 200
    code, told = post(dashboard, f"/api/v1/labels/{given['number']}/take-back")
    assert (code, "is taken back already" in told["error"]) == (400, True)


def test_labels_from_elsewhere_take_a_moment_off_the_queue(page, dashboard):
    """Somebody on the command line labels the second item while the first is looked at: it is not asked."""
    first = review(page)
    items = dashboard.answer("/api/v1/review?most=3")["items"]
    second = next(one for one in items if f"{one['recording']}@{one['start_sample']}" != first)
    with Journal(dashboard.state.journal) as journal:
        moment = LabelSpan(second["recording"], second["start_sample"], second["stop_sample"])
        waiting = page.inner_text("[data-count=waiting]")
        give(journal, moment, LabelSubmission("human", "a neighbour"))
    eventually(lambda: page.inner_text("[data-count=waiting]") != waiting, "there is less to review")
    press(page, "s")
    assert another(page, first) != f"{second['recording']}@{second['start_sample']}"
