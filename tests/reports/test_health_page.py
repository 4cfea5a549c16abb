"""The report of health is read back by parsers that know nothing of how it was written."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from pipeline.core.sensor_state import Cause, Pattern, State
from pipeline.health.checks import CHECKS
from pipeline.reports.health import FaultOrEvent, HealthEpisode, RecordingHealth, SensorHealth
from pipeline.reports.health_page.figure import COLUMNS, extremes, recording_figure, shown_seconds, state_spans, ticks
from pipeline.reports.health_page.page import report_html
from pipeline.reports.health_page.wording import clock, duration_words, evidence_words, honest_percent, moment

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta"}
HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&\x00\x1b\ud800"
SILENCE = {"level_dbfs": None, "limit": -95.0}


def sensor(number: int, seconds: int, *episodes: HealthEpisode, **changes: object) -> SensorHealth:
    """A sensor that is well, but for what is given."""
    rng = np.random.default_rng(number)
    one = SensorHealth(
        number,
        str(number),
        episodes=list(episodes),
        states=[(min(3.0, seconds), State.GOOD)],
        level_db=rng.normal(-50, 3, seconds).astype(np.float32),
        floor_db=rng.normal(-65, 1, seconds).astype(np.float32),
        missing=np.zeros(seconds, np.float32),
    )
    for name, value in changes.items():
        setattr(one, name, value)
    return one


def recording(seconds: int = 60, n_sensors: int = 2, /, **changes: object) -> RecordingHealth:
    sensors = [sensor(number, seconds) for number in range(1, n_sensors + 1)]
    return RecordingHealth(**{"recording": "field", "seconds": float(seconds), "sensors": sensors, **changes})


def silence(start: float, end: float) -> HealthEpisode:
    return HealthEpisode(Cause.SILENT, start, end, SILENCE, start + 2)


def drawing(one: RecordingHealth, **options: float) -> ElementTree.Element:
    return ElementTree.fromstring(recording_figure(one, **options))


def shapes(root: ElementTree.Element, kind: str) -> list[str]:
    """Outlines of all paths of a kind."""
    return [path.get("d", "") for path in root.iter(f"{SVG}path") if kind in path.get("class", "").split()]


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def corners(shape: str) -> list[tuple[float, float]]:
    """All points of an outline of M, H, V, h, v and z."""
    x, y, points = 0.0, 0.0, []
    for command, numbers in re.findall(r"([MHVhvz])([-\d. ]*)", shape):
        given = [float(number) for number in numbers.split()]
        match command:
            case "M":
                x, y = given
            case "H":
                x = given[0]
            case "V":
                y = given[0]
            case "h":
                x += given[0]
            case "v":
                y += given[0]
        points.append((x, y))
    return points


class Reader(HTMLParser):
    """Notes elements, links and words, and insists on closed tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def report(*found: RecordingHealth, title: str = "Health", facts: dict[str, str] | None = None) -> Reader:
    """The page, read by two parsers; it never needs anything from elsewhere."""
    page = report_html(found, title=title, facts=facts or {"alpha": "0.01"}, alpha=0.01)
    page.encode()
    ElementTree.fromstring(page)
    assert set(re.findall(r"https?://[^\"' )]*", page)) <= {"http://www.w3.org/2000/svg"}
    reader = Reader(page)
    assert not {"script", "img", "link", "iframe", "object"} & {name for name, _ in reader.elements}
    assert not [name for _, attributes in reader.elements for name in attributes if name.startswith("on")]
    ids = {attributes["id"] for _, attributes in reader.elements if "id" in attributes}
    assert {link["href"].removeprefix("#") for link in reader.named("a")} <= ids
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL), re.IGNORECASE)
    return reader


ODD = {
    "no recordings": [],
    "no sensors": [RecordingHealth("nothing")],
    "0 seconds": [recording(0)],
    "not measured": [RecordingHealth("short", 0.4, sensors=[SensorHealth(1, "1")])],
    "1 second": [recording(1, 1)],
    "one sensor": [recording(60, 1)],
    "64 sensors": [recording(20, 64)],
    "broke off": [recording(30, seconds=0.0, troubles=["b.wav broken"])],
    "no time at all": [recording(30, started_at="yesterday")],
    "end of time": [recording(30, started_at="9999-12-31T23:59:59")],
    "different arrays": [recording(30, 2), recording(30, 3), RecordingHealth("nothing")],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_recordings_give_a_whole_page(name):
    assert report(*ODD[name]).named("h1")


def test_says_when_nothing_was_the_matter():
    assert "Nothing was the matter." in report(recording(), recording()).words
    assert "There are no recordings." in report().words
    assert "Nothing was heard: no recording is usable." in report(RecordingHealth("nothing")).words


def test_hostile_names_stay_text():
    """Whatever comes from outside is shown, not obeyed; `report` looks for elements that should not be there."""
    hostile = recording(
        recording=HOSTILE,
        started_at=HOSTILE,
        sensors=[sensor(1, 60, HealthEpisode(Cause.FLAT, 1.0, 5.0, {HOSTILE: 1.0}, 3.0), name=HOSTILE)],
        verdicts=[FaultOrEvent(3.0, Pattern.FAULT, (1,), {HOSTILE: None}, HOSTILE)],
        gaps=[(7.0, 8.0, HOSTILE)],
        troubles=[HOSTILE],
    )
    page = report(hostile, hostile, title=HOSTILE, facts={HOSTILE: HOSTILE})
    assert "<script>alert('x')</script>" in page.text


def test_everything_that_was_found_is_told():
    one = recording(
        sensors=[sensor(1, 60), sensor(2, 60, silence(10, 25))],
        verdicts=[FaultOrEvent(30.0, Pattern.DOUBTED_LABEL, (1, 2), {"segments": 4.0}, "nobody heard a cow")],
        calibration=[
            {"sensor": 2, "seconds": 40.0, "lost": True, "nominal": 0.01, "realised": 0.05, "interval": [0.03, 0.08]}
        ],
        gaps=[(50.0, 52.0, "cable pulled")],
        troubles=["field.wav ends early"],
    )
    page = report(one, recording())
    for words in (
        "silent", Cause.SILENT.meaning, Cause.SILENT.cure, "level: no sound (limit -95 dBFS)", "10 s", "25 s", "15 s",
        "nobody heard a cow", "segments: 4", "5 % (3 % to 8 %)", "cable pulled", "field.wav ends early", "87.5 %",
    ):  # fmt: skip
        assert words in page.text, words


def test_what_matters_is_open_and_the_rest_is_not():
    """At most thirty are open."""
    ill = [recording(sensors=[sensor(1, 60, silence(10, 25))]) for _ in range(40)]
    sections = [one for one in report(recording(), *ill).named("details") if "id" in one]
    assert ["open" in one for one in sections] == [False] + 30 * [True] + 10 * [False]


def test_overview_has_a_cell_for_each_sensor_and_recording():
    page = report(*[recording(10, 3) for _ in range(45)])
    assert [link["href"] for link in page.named("a")] == [f"#r{number}" for number in range(1, 46)]
    cells = [one for one in page.named("i") if one["class"] == "cell good"]
    assert len(cells) >= 45 * 3


def test_tables_have_headers_that_are_headers():
    page = report(recording(sensors=[sensor(1, 60, silence(10, 25))]))
    assert page.named("th")
    assert all(one["scope"] == "col" for one in page.named("th"))
    assert all(one["data-of"] for one in page.named("td"))


@pytest.mark.parametrize("n_states", [1, 7, 2000])
def test_states_fill_the_whole_time(n_states):
    """Spans tile the recording, and what is drawn is as long as the picture is wide."""
    rng = np.random.default_rng(n_states)
    times = np.sort(rng.uniform(0, 5100, n_states)).tolist()
    chosen = rng.choice(list(State), n_states).tolist()
    one = recording(5000, 1)
    one.sensors[0].states = [(time, State(state)) for time, state in zip(times, chosen, strict=True)]
    spans = state_spans(one.sensors[0], 5000.0)
    assert sum(end - start for start, end, _ in spans) == pytest.approx(5000)
    assert all(before[1] == after[0] and before[2] != after[2] for before, after in pairwise(spans))
    widths = [float(width) for shape in shapes(drawing(one), "state") for width in re.findall(r"h(\d[\d.]*)v", shape)]
    assert sum(widths) == pytest.approx(1000, abs=0.01 * len(widths))


def test_the_shortest_fault_is_drawn_in_the_longest_recording():
    one = recording(100_000, 1)
    one.sensors[0].states = [(3.0, State.GOOD), (500.0, State.BAD), (501.0, State.GOOD)]
    assert shapes(drawing(one), "bad")


@pytest.mark.parametrize("n_values", [1, 14, COLUMNS, COLUMNS + 1, 100_000])
def test_extremes_survive(n_values):
    """No column hides a value; each stands for its own part of the time."""
    values = np.random.default_rng(0).normal(size=n_values)
    values[n_values // 3], values[n_values // 2] = 50, -50 if n_values > 1 else 50
    low, high = extremes(values)
    assert len(low) == min(n_values, COLUMNS)
    assert (low.min(), high.max()) == (values.min(), values.max())
    assert abs(np.argmax(high) / len(high) - np.argmax(values) / n_values) <= 1 / len(high)


def test_a_loud_second_of_a_day_reaches_the_top_of_the_drawn_line():
    one = recording(86_400, 1)
    one.sensors[0].level_db[40_000] = 0.0
    highest = min(corners(shapes(drawing(one), "level")[0]), key=lambda corner: corner[1])
    assert highest[1] == 0
    assert highest[0] / COLUMNS == pytest.approx(40_000 / 86_400, abs=2 / COLUMNS)


def test_no_sound_is_a_hole_not_a_level():
    """The line leaves out the seconds, and the hole has a name."""
    one = recording(60, 1)
    one.sensors[0].level_db[20:30] = -np.inf
    one.sensors[0].floor_db[20:30] = -190
    root = drawing(one)
    assert "no sound" in texts(root)
    for kind in ("level", "floor"):
        assert all(not 20 < x < 30 for x, _ in corners(shapes(root, kind)[0]))
        assert shapes(root, kind)[0].count("M") == 2
    assert {x for x, _ in corners(shapes(root, "silent")[0])} == {20, 30}


def test_a_sensor_without_any_sound_has_no_line():
    one = recording(60, 1)
    one.sensors[0].level_db[:] = -np.inf
    root = drawing(one)
    assert not shapes(root, "level")
    assert "no sound" in texts(root)


def test_missing_samples_and_gaps_are_marked():
    one = recording(60, 1, gaps=[(40.0, 50.0, "cable")])
    one.sensors[0].missing[40:50] = 1
    root = drawing(one)
    assert {x for x, _ in corners(shapes(root, "missing")[0])} == {40, 50}
    assert [round(x) for x, _ in corners(shapes(root, "gap")[0])][:2] == [667, 833]
    assert {"missing", "gap"} <= set(texts(root))


def test_p_values_are_dots_and_alpha_is_a_line():
    one = recording(60, 1)
    one.sensors[0].p_seconds = np.arange(1, 60, dtype=np.float32)
    one.sensors[0].p_values = np.full(59, 0.5, np.float32)
    one.sensors[0].p_values[[10, 20]] = 1e-3, np.nan
    root = drawing(one, alpha=0.01)
    dots = re.findall(r"M(\d+) (\d+)h0", shapes(root, "chance")[0])
    assert len(dots) == 58
    lowest = max(int(y) for _, y in dots)
    (alpha,) = shapes(root, "alpha")
    assert corners(alpha)[0][1] == pytest.approx(lowest * 2 / 3, abs=1)  # two of three decades down
    assert not shapes(drawing(one), "alpha")


def test_verdicts_are_letters_at_their_time():
    patterns = list(Pattern)
    one = recording(100, 2, verdicts=[FaultOrEvent(10.0 + 20 * n, p, (1,), {}, "") for n, p in enumerate(patterns)])
    marks = [text for text in drawing(one).iter(f"{SVG}text") if text.get("class") == "mark"]
    assert [text.get("x") for text in marks] == ["10%", "30%", "50%", "70%"]
    assert len({"".join(text.itertext())[-1] for text in marks}) == len(patterns)


def test_every_cause_is_named_beside_its_bar():
    episodes = [HealthEpisode(cause, float(n), n + 5.0, {}, n + 2.0) for n, cause in enumerate(Cause)]
    root = drawing(recording(sensors=[sensor(1, 60, *episodes, silence(50, 55))]))
    assert {f"{cause}" for cause in Cause} - {"silent"} <= set(texts(root))
    assert "silent, 2 times" in texts(root)


def test_pictures_of_long_recordings_stay_small():
    """Even if everything flickers all the time."""
    rng = np.random.default_rng(0)
    one = recording(100_000, 4, started_at="2026-05-01T00:00:00")
    for each in one.sensors:
        each.states = [(float(t), State.BAD if t % 20 else State.GOOD) for t in range(0, 100_000, 10)]
        each.episodes = [silence(t, t + 5) for t in range(0, 100_000, 50)]
        each.missing = (rng.uniform(size=100_000) < 0.003).astype(np.float32)
        each.p_seconds = np.arange(0, 100_000, 1.5, dtype=np.float32)
        each.p_values = rng.uniform(size=len(each.p_seconds)).astype(np.float32)
    assert len(recording_figure(one, alpha=0.01)) < 150_000
    report(one)


@pytest.mark.parametrize("seconds", [0.3, 1, 14, 61, 600, 7000, 86_400, 600_000, 1e8])
@pytest.mark.parametrize("started_at", [None, "2026-05-01T05:37:12+02:00"])
def test_times_are_round_few_and_in_the_picture(seconds, started_at):
    told = ticks(seconds, clock(started_at))
    assert len(told) <= 7
    assert all(0 <= at <= 1 + 1e-6 for at, _ in told)
    assert len({label for _, label in told}) == len(told)
    if started_at and 7000 <= seconds <= 86_400:
        assert all(label.endswith(("0", "5")) for _, label in told)


def test_a_recording_that_broke_off_is_as_long_as_it_was_heard():
    assert shown_seconds(recording(30, seconds=0.0)) == 30


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (SILENCE, "level: no sound (limit -95 dBFS)"),
        ({"level_dbfs": -97.105, "limit": -95.0}, "level: -97.1 dBFS (limit -95 dBFS)"),
        ({"clipped_share": 0.031266, "limit": 0.0001}, "clipped: 3.13 % (limit 0.01 %)"),
        ({"with_sensor": 1.0, "events": 9.0}, "together with sensor: 1; sounds: 9"),
        ({"rings_of_saturn": 7.0}, "rings_of_saturn: 7"),
        ({"rings_of_saturn": None, "limit": 3.0}, "rings_of_saturn: cannot be told (limit 3)"),
        ({"limit": 3.0}, "limit: 3"),
        ({}, ""),
    ],
)
def test_evidence_in_words(evidence, words):
    assert evidence_words(evidence) == words


def test_a_limit_stands_beside_the_number_it_limits():
    """Several checks may have found the same cause; only one limit is kept."""
    told = evidence_words({"above_own_db": -26.06, "limit": -10.0, "above_array_db": -23.14})
    assert told == "noise floor above its usual one: -26.1 dB; noise floor above the others: -23.1 dB (limit -10 dB)"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.cause}-{check.evidence}")
def test_all_evidence_of_checks_has_words(check):
    assert "_" not in evidence_words(check.found(check.enter))


def test_percentages_do_not_hide_what_is_there():
    shown = [honest_percent(share) for share in (0, 0.001, 0.5, 0.999, 1)]
    assert shown == ["0 %", "< 1 %", "50 %", "> 99 %", "100 %"]


def test_durations_and_moments():
    assert [duration_words(s) for s in (0, 7.5, 95, 3600, 3720)] == ["0 s", "7.5 s", "1 min 35 s", "1 h", "1 h 2 min"]
    assert moment(95, None) == "1:35"
    assert moment(3600, clock("2026-05-01T23:30:00")) == "00:30:00 (1:00:00)"
