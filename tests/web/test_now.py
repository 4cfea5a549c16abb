"""Now: whether somebody is there, and why that is not known; the last passages; the sensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.core.label_names import shown_name
from pipeline.storage.journal import Journal
from pipeline.storage.labels import LabelSpan, LabelSubmission, give, somebody
from tests.conftest import component, eventually
from tests.web.conftest import Alone, Dashboard
from tests.web.fed import FedArray
from tests.web.looks import check_looks, grounds

KNOWN_COLUMNS = """() => [...document.querySelectorAll('.sensor canvas')].map((canvas) => {
    const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, 1);
    return Array.from({ length: width }, (_, column) => data[4 * column + 3]).filter((opaque) => opaque === 255).length;
})"""
VERDICT = ".presence .verdict"
ROW = ".passages [data-passage]"
SECOND_LABEL = "labeled Human with animal"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory) -> Iterator[FedArray]:
    """An array that is fed by the tests."""
    made = FedArray(tmp_path_factory.mktemp("now"))
    try:
        made.start()
        made.until_nobody()
        yield made
    finally:
        made.close()


@pytest.fixture
def expect() -> Any:
    return component("playwright.sync_api").expect


@pytest.fixture
def now(page, dashboard):
    """The page after a passage."""
    dashboard.until_nobody()
    page.goto("/")
    page.wait_for_selector(ROW)
    return page


def last_labels(dashboard: Dashboard) -> list[dict[str, Any]]:
    with dashboard.journal() as journal:
        return journal.rows("SELECT * FROM label_rows WHERE takes_back IS NULL ORDER BY id DESC")


def ended(page) -> Any:
    """The newest passage that has ended; it stays the same row when another one follows."""
    row = page.locator(ROW).filter(has=page.locator(".play")).first
    return page.locator(f".passages [data-passage='{row.get_attribute('data-passage')}']")


def test_nobody_is_calm_and_says_since_when(now, dashboard, expect):
    expect(now.locator(VERDICT)).to_have_text("Nobody")
    expect(now.locator(".presence")).to_contain_text(re.compile(r"since \d\d:\d\d \("))
    assert now.locator(".weights").count() == 0
    assert now.inner_text(".now > .unseen") == "Nobody"


def test_a_passage_has_its_class_probability_cadence_and_weights(now, dashboard, expect):
    dashboard.until_passage()
    expect(now.locator(VERDICT)).to_have_text(re.compile(r"^Human with animal (> )?\d+ %$"))
    expect(now.locator(".presence")).to_contain_text(
        re.compile(r"for \d+ s, since \d\d:\d\d:\d\d · \d+ steps per minute")
    )
    weights = now.locator(".weights li")
    expect(weights).to_have_count(4)
    assert all(re.fullmatch(r"Sensor \d\s+(weight \d\.\d\d|not used: .+)", text) for text in weights.all_inner_texts())
    expect(now.locator(ROW).first).to_contain_text("going on")
    expect(now.locator(ROW).first).to_contain_text("Human with animal")


def test_passages_come_from_the_stream_and_are_asked_for_once(now, dashboard, expect):
    """Fifty pages must not ask the server whenever somebody passes."""
    asked = []
    now.on("request", lambda request: asked.append(request.url) if "/api/v1/passages" in request.url else None)
    before = now.locator(ROW).count()
    dashboard.until_passage()
    expect(now.locator(ROW)).to_have_count(before + 1)
    dashboard.until_nobody()
    expect(now.locator(ROW).first.locator(".play")).to_be_visible()
    assert asked == []
    newest = dashboard.answer("/api/v1/passages?most=1")["passages"][0]
    shown = now.locator(ROW).first
    assert shown.get_attribute("data-passage") == newest["passage"]
    assert newest["name"] in shown.inner_text()
    assert f"{newest['duration_seconds']:.0f} s" in shown.inner_text()
    when = shown.locator("time").get_attribute("datetime")
    assert when.rstrip("Z")[:22] == newest["start_time"].rstrip("Z")[:22]


def test_silence_replaces_the_headline_and_no_weights_are_left(now, dashboard, expect):
    dashboard.until_passage()
    expect(now.locator(VERDICT)).to_contain_text("Human with animal")
    now.locator(".explained summary").first.click()
    dashboard.hold()
    expect(now.locator(VERDICT)).to_have_text(re.compile(r"^No sound since \d\d:\d\d$"))
    expect(now.locator(".presence")).to_contain_text("Check the program that sends the sound")
    assert now.locator(".weights").count() == 0
    expect(now.locator(".going-on")).to_be_hidden()
    for number in range(4):
        expect(now.locator(".sensor .missing").nth(number)).to_have_text(re.compile("^No sound since"))
    expect(now.locator(".explained dl").first).to_contain_text("It delivers nothing and has no weight.")
    assert [one["weight"] for one in dashboard.status()["sensors"]] == [None] * 4
    check_looks(now)
    dashboard.until_nobody()
    expect(now.locator(VERDICT)).to_have_text("Nobody")


def test_a_passage_is_labeled_by_keyboard_and_the_label_taken_back(now, dashboard, expect):
    row = ended(now)
    passage = dashboard.answer(f"/api/v1/passages/{row.get_attribute('data-passage')}")
    row.get_by_role("button", name="Label").focus()
    now.keyboard.press("Enter")
    expect(row.locator(".choices button").first).to_be_focused()
    words = dashboard.answer("/api/v1/labels/words")["words"]
    assert row.locator(".choices button").all_inner_texts() == [one["name"] for one in words if one["key"]]
    now.keyboard.press("Escape")
    expect(row.locator(".choices")).to_be_hidden()
    now.keyboard.press("Enter")
    for _ in range(2):
        now.keyboard.press("Tab")
    now.keyboard.press("Enter")
    expect(row.locator(".said")).to_contain_text(SECOND_LABEL)
    label = eventually(lambda: last_labels(dashboard), "a label")[0]
    part = passage["parts"][0]
    assert (label["recording"], label["start"], label["stop"]) == (
        part["recording"],
        part["start_sample"],
        part["stop_sample"],
    )
    assert (label["label"], label["who"], label["via"], label["void"]) == ("human_animal", somebody(), "page", 0)
    expect(row.get_by_role("button", name="Undo")).to_be_focused()
    now.keyboard.press("Enter")
    eventually(lambda: last_labels(dashboard)[0]["void"], "the label is void")
    expect(row.locator(".said")).to_have_text("")


def test_a_label_survives_a_lost_connection(now, dashboard, expect):
    before = len(last_labels(dashboard))
    row = ended(now)
    now.context.set_offline(True)
    row.get_by_role("button", name="Label").click()
    row.get_by_role("button", name="Nobody", exact=True).click()
    expect(row.locator(".said")).to_contain_text("labeled Nobody")
    assert now.evaluate("JSON.parse(localStorage.getItem('gemmed-labels-to-send')).length") == 1
    now.context.set_offline(False)
    eventually(lambda: len(last_labels(dashboard)) == before + 1, "the label has arrived")
    assert last_labels(dashboard)[0]["label"] == "nobody"
    row.get_by_role("button", name="Undo").click()
    eventually(lambda: last_labels(dashboard)[0]["void"], "the label is void")
    now.complaints[:] = [one for one in now.complaints if "ERR_INTERNET_DISCONNECTED" not in one]


def test_the_label_of_somebody_else_appears(now, dashboard, expect):
    row = ended(now)
    part = dashboard.answer(f"/api/v1/passages/{row.get_attribute('data-passage')}")["parts"][0]
    with Journal(dashboard.state.journal) as journal:
        moment = LabelSpan(part["recording"], part["start_sample"], part["stop_sample"])
        give(journal, moment, LabelSubmission("human", "Ada"))
    expect(row.locator(".said")).to_have_text("labeled Human by Ada")


def test_a_passage_can_be_heard_and_looked_up(now, dashboard):
    row = ended(now)
    passage = row.get_attribute("data-passage")
    eventually(lambda: dashboard.answer(f"/api/v1/passages/{passage}")["sound"] == "kept", "its sound is stored")
    with now.expect_response(f"**/api/v1/passages/{passage}/clip?mix=true") as answer:
        row.locator(".play").click()
    assert (answer.value.status, answer.value.headers["content-type"]) == (200, "audio/flac")
    assert row.locator(".play").get_attribute("aria-pressed") == "true"
    assert row.locator("a").get_attribute("href") == f"/history?passage={passage}"


def test_a_p_value_is_explained_when_asked(now, dashboard, expect):
    card = now.locator(".sensor").nth(1)
    explained = card.locator(".explained dl")
    expect(explained).to_be_hidden()
    assert not re.search(r"p-value \d|weight \d", card.inner_text())
    card.locator("summary").focus()
    now.keyboard.press("Enter")
    expect(explained).to_contain_text("What is a p-value?")
    expect(explained).to_contain_text(
        re.compile(r"(below )?0\.\d{3}: .* segments of a working sensor are at least as unusual")
    )
    expect(explained).to_contain_text(re.compile(r"\d\.\d\d: it counts|not used"))


def test_pictures_start_with_the_sound_that_is_kept(page, dashboard):
    """Nineteen seconds and more, while the stream brings nothing."""
    dashboard.until_nobody()
    page.route("**/api/v1/stream**", lambda route: route.fulfill(content_type="text/event-stream", body=": empty\n\n"))
    page.goto("/")
    page.wait_for_function(f"() => ({KNOWN_COLUMNS})().every((known) => known >= 19 * 20)")


CONTINUED = """async () => {
    const { scrolling } = await import('/static/sounds.js');
    const { soundMap } = await import('/static/colours.js');
    const columns = (first, last) =>
        Uint8Array.from({ length: 64 * (last - first) }, (_, n) => first + Math.floor(n / 64));
    const told = (first) => ({ recording: 'r', start_sample: 800 * first, hop: 800, missing: [] });
    const view = scrolling({ seconds: 10, rateHz: 16000, name: 'a test' });
    document.body.append(view.box);
    view.add(columns(90, 110), told(90));
    view.fill(columns(20, 100), told(20));
    view.add(columns(110, 130), told(110));
    view.add(columns(140, 150), told(140));
    const map = soundMap();
    const seen = () => {
        const { data } = view.box.querySelector('canvas').getContext('2d').getImageData(0, 0, 200, 1);
        return Array.from({ length: 200 }, (_, n) =>
            data[4 * n + 3] ? [...data.subarray(4 * n, 4 * n + 3)].join() : null);
    };
    const atOnce = seen().filter(Boolean).length;
    const colours = Array.from({ length: 256 }, (_, n) => [...map.subarray(3 * n, 3 * n + 3)].join());
    const wanted = [...Array(70).fill(null), ...Array.from({ length: 110 }, (_, n) => colours[20 + n]),
        ...Array(10).fill(null), ...Array.from({ length: 10 }, (_, n) => colours[140 + n])];
    return new Promise((resolve) => {
        const same = () => JSON.stringify(seen()) === JSON.stringify(wanted);
        const look = () => same() ? resolve(atOnce) : requestAnimationFrame(look);
        look();
    });
}"""


def test_kept_sound_and_the_stream_join_without_a_seam(now):
    """Columns 20 to 99 are kept, the stream brings 90 to 129 and 140 to 149: every one is there once, the gap stays."""
    assert now.evaluate(CONTINUED) == 80


def test_names_are_those_of_the_server(now):
    names = {"dog": "Hund", "a_b": "X"}
    labels = ["human", "human_animal", "two_humans", "not sure", "a_b", "dog", "x", "Été", "constructor"]
    shown = now.evaluate(
        "async ([labels, names]) => { const { shownName } = await import('/static/names.js');"
        " return labels.map((one) => shownName(one, names)); }",
        [labels, names],
    )
    assert shown == [shown_name(one, names) for one in labels]


def test_a_state_has_a_shape_and_a_word(now):
    for badge in now.locator(".sensor .badge").all():
        assert badge.inner_text() in ("good", "degraded", "bad", "off", "unknown")
        assert badge.locator("svg").count() == 1


def test_levels_move(now):
    levels = "[...document.querySelectorAll('.level .number')].map((one) => one.textContent)"
    now.wait_for_function(f"() => {levels}.every((one) => /^−\\d+\\.\\d dBFS$/.test(one))")
    before = now.evaluate(levels)
    now.wait_for_function(f"(before) => {levels}.some((one, n) => one !== before[n])", arg=before)


def test_pictures_rest_when_asked_to(now, dashboard):
    now.wait_for_function(f"() => ({KNOWN_COLUMNS})().every(Boolean)")
    now.get_by_role("button", name="Pause pictures").click()
    picture = "document.querySelector('.sensor canvas').toDataURL()"
    before, sample = now.evaluate(picture), dashboard.status()["sample"]
    eventually(lambda: dashboard.status()["sample"] > sample + 16_000, "more sound")
    assert now.evaluate(picture) == before
    now.get_by_role("button", name="Go on").click()
    now.wait_for_function(f"(before) => {picture} !== before", arg=before)


def going_by(dashboard: FedArray) -> str | None:
    """The id of the passage that is going on."""
    found = (dashboard.status().get("presence") or {}).get("passage") or {}
    return found.get("passage")


def test_links_in_what_changes_can_be_followed_by_keyboard(now, dashboard):
    def focused() -> str | None:
        """What has the focus a second of sound later; not known if the passage ended meanwhile."""
        dashboard.until_passage()
        passage = going_by(dashboard)
        now.locator(".weights a").nth(1).focus()
        sample = dashboard.status()["sample"]
        eventually(lambda: dashboard.status()["sample"] > sample + 16_000, "more sound")
        found = now.evaluate("document.activeElement.textContent")
        return str(found) if passage is not None and going_by(dashboard) == passage else None

    assert eventually(focused, "a passage of some seconds") == "Sensor 2"
    now.keyboard.press("Enter")
    now.wait_for_selector("main h1:has-text('Sensor 2')")


KEPT = """async (status) => {
    const { headline } = await import('/static/presence.js');
    const { settle } = await import('/static/dom.js');
    const drawn = (label, reason) => {
        const passage = { ...status.presence.passage, label, reason };
        return headline({ ...status, presence: { ...status.presence, passage } });
    };
    const shown = drawn(null, 'too close to call');
    document.body.append(shown);
    const link = shown.querySelectorAll('.weights a')[1];
    link.focus();
    settle(shown, drawn('human', null));
    const found = [document.activeElement === link, shown.querySelector('.verdict').textContent.split(' ')[0]];
    shown.remove();
    return found;
}"""


def test_a_link_keeps_the_focus_when_the_class_becomes_known(now, dashboard):
    """The line that says why there was none goes away above it."""

    def during_a_passage() -> dict[str, Any] | None:
        dashboard.until_passage()
        status = dashboard.status()
        return status if (status.get("presence") or {}).get("passage") else None

    assert now.evaluate(KEPT, eventually(during_a_passage)) == [True, "Human"]


def test_it_can_be_seen_by_all(now, dashboard):
    light, dark = grounds(now)
    assert light != dark
    check_looks(now)
    ended(now).get_by_role("button", name="Label").click()
    now.locator(".explained summary").first.click()
    dashboard.until_passage()
    now.wait_for_selector(".weights")
    check_looks(now)


def test_who_wants_no_motion_sees_the_sound_all_the_same(page, dashboard):
    page.emulate_media(reduced_motion="reduce")
    page.goto("/")
    page.wait_for_function(f"() => ({KNOWN_COLUMNS})().some(Boolean)")


def test_an_array_of_devices_is_not_called_simulated(now):
    assert not now.is_visible("#simulated-badge")
    assert not now.is_visible("#simulated")


def test_without_a_daemon_nothing_is_said_of_now(tmp_path, dashboard, browser, expect):
    """The kept sound and the passages can still be looked at."""
    with Alone(tmp_path, dashboard.copy_state(tmp_path / "state")) as alone:
        context = browser.new_context(base_url=f"http://127.0.0.1:{alone.port}")
        page = context.new_page()
        page.goto("/")
        expect(page.locator(VERDICT)).to_have_text("Not running")
        expect(page.locator(ROW).first).to_be_visible()
        page.wait_for_function(f"() => ({KNOWN_COLUMNS})().every((known) => known >= 5 * 20)")
        assert page.locator(".strip").count() == 0
        context.close()


@pytest.fixture
def fresh(tmp_path, browser):
    """Of a daemon that has no model."""
    made = Dashboard(tmp_path, None)
    made.start()
    context = browser.new_context(base_url=made.url)
    yield context.new_page()
    context.close()
    made.close()


def test_before_there_is_a_model_the_page_says_what_happens_next(fresh):
    fresh.goto("/")
    fresh.wait_for_selector(f"{VERDICT}:text-is('No model yet')")
    assert "Until then only the health of the sensors is known." in fresh.inner_text(".presence")
    assert fresh.locator(".sensor .badge").count() == 4
    fresh.wait_for_function(f"() => ({KNOWN_COLUMNS})().some(Boolean)")


def test_without_usable_sensors_the_page_says_what_to_do(tmp_path, browser, expect):
    made = Dashboard(tmp_path, None, more="")
    made.config.write_text(made.config.read_text().replace('rate = "4000 Hz"', 'rate = "4000 Hz"\nmask = [1, 2, 3, 4]'))
    made.start()
    context = browser.new_context(base_url=made.url)
    try:
        page = context.new_page()
        page.goto("/")
        expect(page.locator(VERDICT)).to_have_text("No usable sensor")
        expect(page.locator(".presence")).to_contain_text("Sensor 3 is switched off (array.mask).")
    finally:
        context.close()
        made.close()
