"""GET /api/v1/passages and what belongs to it, of a past that the real recorder has written."""

from __future__ import annotations

import csv
import io
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import soundfile

from pipeline.storage.journal import Journal
from tests.conftest import TIMEOUT
from tests.forked import gemmed
from tests.web.past import LEAD, RATE, Past, label_passage, some_days, sound, write_past
from tests.web.served import Served, served

BERLIN = ZoneInfo("Europe/Berlin")
CLOCKS_GO_BACK = date(2031, 10, 26)
"""In Berlin: 02:00 to 03:00 comes twice."""
NOW = datetime(2031, 10, 27, 6, 30, tzinfo=UTC)
BORDER = Past(NOW - timedelta(days=2, hours=3), seconds=24.0, crosses_border=True, kept=LEAD + 12)
TWICE = [Past(datetime(2031, 10, 26, hour, 30, tzinfo=UTC), label="human") for hour in (0, 1)]  # both 02:30 in Berlin
ALL = sorted([*some_days(NOW, days=3, each=15), BORDER, *TWICE], key=lambda one: one.start)
ID = {one: f"r{number:04d}.p{round(LEAD * RATE)}" for number, one in enumerate(ALL, start=1)}
SAID = {ID[ALL[3]]: "nobody", ID[ALL[20]]: "human", ID[BORDER]: "human_animal", ID[ALL[-1]]: "not sure"}
SETTINGS = '[labels.names]\nhuman_animal = "Person with dog"\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("passages"), more=SETTINGS) as made:
        write_past(made.state, ALL)
        with Journal(made.state.journal) as journal:
            for passage_id, label in SAID.items():
                label_passage(journal, passage_id, label)
        yield made


def listed(server: Served, **given: object) -> dict[str, Any]:
    code, found = server.ask(f"/api/v1/passages?{query(given)}")
    assert code == 200, found
    return found


def query(given: dict[str, object]) -> str:
    return "&".join(f"{name}={quote(str(value))}" for name, value in given.items())


def ids(found: dict[str, Any]) -> list[str]:
    return [one["passage"] for one in found["passages"]]


def fetched(server: Served, path: str) -> tuple[bytes, Any]:
    with urllib.request.urlopen(server.url + path, timeout=TIMEOUT) as answer:
        return answer.read(), answer.headers


def expected(fits: Any) -> list[str]:
    """Ids of the passages that fit, the newest first."""
    return [ID[one] for one in reversed(ALL) if fits(one)]


def counts_as(one: Past) -> str:
    """The label that counts: that of a person, else that of the model."""
    return SAID.get(ID[one]) or one.label or "no label"


def test_portions_give_every_passage_once_the_newest_first(server):
    found, before = [], None
    for _ in range(20):
        portion = listed(server, most=7, **({} if before is None else {"before": before}))
        assert portion["total"] == len(ALL)
        found += ids(portion)
        before = portion["next"]
        if before is None:
            break
    assert found == expected(lambda one: True)


SINCE, UNTIL = NOW - timedelta(days=1, hours=5), NOW - timedelta(hours=20)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"label": "human"}, lambda one: counts_as(one) == "human"),
        ({"label": "nobody"}, lambda one: counts_as(one) == "nobody"),
        ({"label": "no label"}, lambda one: counts_as(one) == "no label"),
        ({"least_probability": 0.97}, lambda one: one.label == "human"),
        ({"labeled": "true"}, lambda one: ID[one] in SAID),
        ({"labeled": "false"}, lambda one: ID[one] not in SAID),
        ({"search": "DOG with"}, lambda one: "human_animal" in (one.label, SAID.get(ID[one]))),
        ({"search": "r0003"}, lambda one: ID[one].startswith("r0003")),
        (
            {"since": SINCE.isoformat(), "until": UNTIL.isoformat()},
            lambda one: one.start + timedelta(seconds=one.seconds) > SINCE and one.start < UNTIL,
        ),
        (
            {"since": (ALL[9].start + timedelta(seconds=1)).isoformat(), "begun": "true"},
            lambda one: one.start > ALL[9].start,
        ),
        ({"label": "human", "labeled": "true", "search": "human"}, lambda one: SAID.get(ID[one]) == "human"),
    ],
)
def test_filters(server, given, fits):
    found = listed(server, most=500, **given)
    wanted = expected(fits)
    assert ids(found) == wanted
    assert found["total"] == len(wanted) > 0


def test_the_table_is_that_of_the_command(server):
    """The same bytes for all passages; with a filter the rows that the list has."""
    done = gemmed("passages", "--state", str(server.state.path), "--csv", "-")
    assert done.returncode == 0, done.stderr
    text, headers = fetched(server, "/api/v1/passages.csv")
    assert text.decode() == done.stdout
    assert headers["Content-Disposition"].startswith('attachment; filename="passages-')
    some = csv.DictReader(io.StringIO(fetched(server, "/api/v1/passages.csv?label=human")[0].decode()))
    assert [row["passage"] for row in some] == ids(listed(server, label="human", most=500))[::-1]


def test_one_passage_is_that_of_the_command_with_its_name_label_and_sound(server):
    found = {one["passage"]: one for one in listed(server, most=500)["passages"]}
    for row in json.loads(gemmed("passages", "--state", str(server.state.path), "--json").stdout):
        one = found[row["passage"]]
        assert {name: one[name] for name in row} == row
        assert one["labeled"] is None or one["labeled"]["label"] == SAID[row["passage"]]
        assert server.ask(f"/api/v1/passages/{row['passage']}") == (200, one)
    border = found[ID[BORDER]]
    assert (border["name"], border["labeled"]["name"]) == ("Human", "Person with dog")
    names = {one["label"]: one["name"] for one in found.values()}
    assert names == {"human": "Human", "human_animal": "Person with dog", None: None}
    kept = {"kept": 60.0, "partly": 15.0, "gone": 0.0}
    assert all(one["sound"] == next(k for k, s in kept.items() if s == past.kept) for past in ALL
               if past is not BORDER for one in [found[ID[past]]])  # fmt: skip


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", "America/St_Johns"])
def test_the_calendar_counts_every_passage_where_it_began(server, zone):
    """Against a count of local days and hours, on a day with 25 hours too; nobody is no passage."""
    code, found = server.ask(f"/api/v1/passages/calendar?days=5&zone={quote(zone)}")
    assert code == 200
    cells: Counter[tuple[str, int, str]] = Counter()
    for one in ALL:
        if counts_as(one) != "nobody":
            local = one.start.astimezone(ZoneInfo(zone))
            cells[str(local.date()), local.hour, counts_as(one)] += 1
    given = {
        (day["day"], hour, label): n
        for day in found["days"]
        for hour, labels in enumerate(day["hours"])
        for label, n in labels.items()
    }
    assert given == cells
    today = NOW.astimezone(ZoneInfo(zone)).date()
    assert [day["day"] for day in found["days"]] == [str(today - timedelta(days=n)) for n in (4, 3, 2, 1, 0)]
    for day in found["days"]:
        assert day["passages"] == sum(day["labels"].values()) == sum(sum(one.values()) for one in day["hours"])
    assert found["now"] == NOW.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    assert found["names"]["human_animal"] == "Person with dog"


def test_an_hour_that_comes_twice_is_one_cell_with_both(server):
    _, found = server.ask("/api/v1/passages/calendar?days=5&zone=Europe/Berlin")
    day = next(one for one in found["days"] if one["day"] == str(CLOCKS_GO_BACK))
    assert day["hours"][2]["human"] >= len(TWICE)
    begin = datetime(2031, 10, 26, 2, tzinfo=BERLIN).isoformat()
    until = datetime(2031, 10, 26, 3, tzinfo=BERLIN).isoformat()
    own = listed(server, since=begin, until=until, begun="true", label="human")
    assert {ID[one] for one in TWICE} <= set(ids(own))
    assert own["total"] == day["hours"][2]["human"]


def test_last_night_is_the_one_that_has_begun(server):
    """It is 07:30 in Berlin: the night that began at 20:00 the day before."""
    _, found = server.ask("/api/v1/passages/calendar?zone=Europe/Berlin")
    night = found["night"]
    begin, end = datetime(2031, 10, 26, 20, tzinfo=BERLIN), datetime(2031, 10, 27, 8, tzinfo=BERLIN)
    assert [datetime.fromisoformat(night[name]) for name in ("begin", "end")] == [begin, end]
    own = [one for one in ALL if begin <= one.start < end and counts_as(one) != "nobody"]
    assert night["passages"] == len(own) == sum(night["labels"].values())
    assert night["labels"] == Counter(map(counts_as, own))
    assert [one["passage"] for one in night["first"]] == [ID[one] for one in own][:12]


def clip(server: Served, passage_id: str, **given: object) -> np.ndarray:
    found, headers = fetched(server, f"/api/v1/passages/{passage_id}/clip?{query(given)}")
    assert headers["Content-Type"] == "audio/flac"
    samples, rate_hz = soundfile.read(io.BytesIO(found), dtype="float32", always_2d=True)
    assert rate_hz == RATE
    return samples.T


def test_a_clip_is_the_kept_sound_to_the_sample(server):
    one = next(one for one in ALL if one.kept == 60.0)
    recording = ID[one].partition(".")[0]
    exact = sound(recording)[:, round(LEAD * RATE) : round((LEAD + one.seconds) * RATE)]
    assert np.array_equal(clip(server, ID[one]), exact)
    assert np.array_equal(clip(server, ID[one], sensor=2), exact[1:2])
    mix = clip(server, ID[one], mix="true")[0]
    used = exact[:2] / np.sqrt(np.mean(exact[:2] ** 2, axis=1, keepdims=True))  # sensors 1 and 2 are used
    assert np.corrcoef(mix, used.mean(axis=0))[0, 1] > 0.9999
    assert abs(mix).max() == pytest.approx(0.7, abs=0.001)


def test_a_clip_of_sound_that_is_partly_kept_ends_where_it_ends(server):
    one = next(one for one in ALL if one.kept == 15.0)
    recording = ID[one].partition(".")[0]
    assert np.array_equal(clip(server, ID[one]), sound(recording)[:, round(LEAD * RATE) : round(15 * RATE)])


def test_a_passage_across_the_border_of_two_recordings_is_one(server):
    """Listed once, found by the id of either part, labeled in both recordings, and its sound goes on."""
    recording = ID[BORDER].partition(".")[0]
    rest = f"{recording}-rest.p0"
    assert rest not in ids(listed(server, most=500))
    code, found = server.ask(f"/api/v1/passages/{rest}")
    assert (code, found["passage"], found["duration_seconds"]) == (200, ID[BORDER], BORDER.seconds)
    assert [part["recording"] for part in found["parts"]] == [recording, f"{recording}-rest"]
    with Journal(server.state.journal) as journal:
        last = journal.rows("SELECT max(id) AS n FROM labels")[0]["n"]
    body = {"label": "human", "passage": rest, "known": last}
    code, given = server.ask("/api/v1/labels", body)
    assert (code, len(given["numbers"])) == (200, 2)
    assert server.ask("/api/v1/labels", body) == (code, given)  # sent twice, stored once
    assert server.ask(f"/api/v1/passages/{rest}")[1]["labeled"]["label"] == "human"
    for number in given["numbers"]:
        assert server.ask(f"/api/v1/labels/{number}/take-back", {})[0] == 200
    assert server.ask(f"/api/v1/passages/{rest}")[1]["labeled"]["label"] == "human_animal"


def test_what_changed_since_is_in_the_next_answer(server):
    """A label, and what it changes in lists and counts, at once: nothing is answered from an older state."""
    one = next(one for one in ALL if one.label == "human" and ID[one] not in SAID)
    before = listed(server, label="human")["total"]
    code, given = server.ask("/api/v1/labels", {"label": "nobody", "passage": ID[one]})
    assert code == 200
    assert listed(server, label="human")["total"] == before - 1
    assert server.ask(f"/api/v1/labels/{given['number']}/take-back", {})[0] == 200
    assert listed(server, label="human")["total"] == before


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/passages/r9999.p1", 404, "there is no passage 'r9999.p1'"),
        ("/passages/r9999.p1/clip", 404, "there is no passage"),
        (f"/passages/{next(ID[one] for one in ALL if one.kept == 60)}/clip?sensor=4", 404, "there is no sensor 4"),
        (f"/passages/{next(ID[one] for one in ALL if not one.kept)}/clip", 400, "was not kept"),
        ("/passages?most=0", 422, "most"),
        ("/passages?least_probability=2", 422, "least_probability"),
        ("/passages?labeled=perhaps", 422, "labeled"),
        ("/passages?since=yesterday", 400, "yesterday"),
        ("/passages/calendar?zone=Europe/Atlantis", 400, "Europe/Atlantis"),
        ("/passages/calendar?days=9999", 422, "days"),
    ],
)
def test_errors_name_what_is_wrong(server, path, code, words):
    found = server.ask(f"/api/v1{path}")
    assert found[0] == code
    assert words in found[1]["error"]
