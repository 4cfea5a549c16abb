"""Passages of days and months, of a journal that goes on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pipeline.core.errors import NotFound
from pipeline.daemon.recorder import Recorder
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from pipeline.storage.labels import LabelSubmission, take_back
from pipeline.storage.passage_history import (
    Brief,
    PassageHistory,
    PassageOverview,
    PassageQuery,
    by_day,
    earlier_than,
    kept_share,
    last_night,
    place_of,
)
from tests.web.past import LEAD, Past, label_passage, observe_passage, write_past

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PASSAGES = [
    Past(NOON, label="human", kept=60.0),
    Past(NOON + timedelta(hours=1), label="human_animal", crosses_border=True, kept=LEAD + 10),
    Past(NOON + timedelta(hours=2), label=None, kept=20.0),
]
FIRST, ACROSS, LAST = "r0001.p40000", "r0002.p40000", "r0003.p40000"
REST = "r0002-rest.p0"


@pytest.fixture
def state(tmp_path) -> StateDirectory:
    made = StateDirectory(tmp_path / "state")
    write_past(made, PASSAGES)
    return made


@pytest.fixture
def journal(state):
    with Journal(state.journal) as opened:
        yield opened


def ids(history: PassageHistory) -> list[str]:
    return [one.passage for one in history.briefs]


def brief(start: datetime, label: str | None = "human", *, said: str | None = None, seconds: float = 20) -> Brief:
    return Brief("p", "r", 0, 1, start, start + timedelta(seconds=seconds), label, 0.9, said)


def test_a_passage_across_a_border_is_one_with_the_verdict_of_both_parts(journal):
    history = PassageHistory(journal)
    assert ids(history) == [FIRST, ACROSS, LAST]
    one = history.row(REST)
    assert one == history.row(ACROSS)
    assert (one.duration_seconds, one.segments) == (20.0, 20)
    assert history.briefs[1].end == PASSAGES[1].start + timedelta(seconds=20)
    assert history.briefs[1].probability == pytest.approx(one.probability)


def test_an_id_that_is_not_there_is_named(journal):
    with pytest.raises(NotFound, match=r"no passage 'r0009\.p1'"):
        PassageHistory(journal).row("r0009.p1")


def test_the_label_of_a_person_counts_until_it_is_taken_back(journal):
    label_passage(journal, FIRST, "nobody")
    (one, *_) = PassageHistory(journal).briefs
    assert (one.label, one.said, one.known_as) == ("human", "nobody", "nobody")
    (number,) = [row["id"] for row in journal.rows("SELECT id FROM labels")]
    take_back(journal, number, LabelSubmission(None, "anna"))
    assert PassageHistory(journal).briefs[0].known_as == "human"


def test_the_label_of_the_longer_part_counts(journal):
    """A label that touches the passage for a second is not what was said of it."""
    journal.execute(
        "INSERT INTO labels (recording, start, stop, label, who, time, why, via) VALUES "
        "('r0001', 0, 44000, 'nobody', 'a', 't', '', 'page'), ('r0001', 44000, 160000, 'human', 'a', 't', '', 'page')"
    )
    assert PassageHistory(journal).briefs[0].said == "human"


class Reading:
    """Counts how often all passages are read."""

    def __init__(self, journal: Journal) -> None:
        self.memory, self._journal, self.times = PassageOverview(), journal, 0

    def __call__(self) -> PassageHistory:
        history = PassageHistory(self._journal, memory=self.memory)
        before = self.memory.read
        assert history.briefs is not None
        self.times += self.memory.read - before
        return history


def test_nothing_is_read_again_until_something_changes(state, journal):
    reading = Reading(journal)
    assert ids(reading()) == ids(reading())
    assert reading.times == 1
    label_passage(journal, FIRST, "nobody")
    assert reading().briefs[0].said == "nobody"
    recorder = Recorder(state.journal, "run")
    recorder.choices = json.dumps({"least_confidence": 0.6})
    observe_passage(recorder, "r0004", Past(NOON + timedelta(hours=3)))
    recorder.close()
    assert ids(reading())[-1] == "r0004.p40000"
    assert reading.times == 3
    reading()
    assert reading.times == 3


def test_a_passage_that_goes_on_is_always_up_to_date(journal):
    reading = Reading(journal)
    journal.execute("UPDATE passages SET end = NULL, stop_sample = 80000 WHERE passage = ?", (LAST,))
    assert reading().briefs[-1].stop_sample == 80000
    journal.execute("UPDATE passages SET stop_sample = 100000, label = 'human' WHERE passage = ?", (LAST,))
    assert (reading().briefs[-1].stop_sample, reading().briefs[-1].label) == (100000, "human")
    journal.execute("UPDATE passages SET end = 'quiet', stop_sample = 120000 WHERE passage = ?", (LAST,))
    assert reading().briefs[-1].stop_sample == 120000


def test_a_passage_that_made_room_is_gone(journal):
    reading = Reading(journal)
    assert len(reading().briefs) == 3
    journal.execute("DELETE FROM passages WHERE passage = ?", (FIRST,))
    assert ids(reading()) == [ACROSS, LAST]


def test_how_much_of_the_sound_is_kept(journal):
    history = PassageHistory(journal)
    shares = [kept_share(journal, history.row(one)) for one in (FIRST, ACROSS, LAST)]
    assert shares == [1.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (PassageQuery(), True),
        (PassageQuery(since=NOON + timedelta(seconds=19)), True),
        (PassageQuery(since=NOON + timedelta(seconds=20)), False),
        (PassageQuery(since=NOON + timedelta(seconds=1), begun=True), False),
        (PassageQuery(since=NOON, until=NOON + timedelta(seconds=1), begun=True), True),
        (PassageQuery(until=NOON), False),
        (PassageQuery(labels=["human"]), False),
        (PassageQuery(labels=["nobody"]), True),
        (PassageQuery(labeled=False), False),
        (PassageQuery(least_probability=0.91), False),
        (PassageQuery(search="walker NOBODY", names={"human": "A walker"}), True),
        (PassageQuery(search="dog"), False),
    ],
)
def test_what_fits(wanted, fits):
    """A passage of 20 s that the model called human, and a person nobody."""
    assert wanted.fits(brief(NOON, said="nobody")) is fits


def test_a_day_without_an_hour_has_none_in_it():
    """In Berlin the hour from 02:00 is missing on 2026-03-29."""
    zone = ZoneInfo("Europe/Berlin")
    begin = datetime(2026, 3, 28, 23, tzinfo=UTC)
    every = [brief(begin + timedelta(minutes=30 * n)) for n in range(2 * 23)]
    before, day = by_day(every, zone, days=2, now=datetime(2026, 3, 29, 20, tzinfo=UTC))
    assert (before.day, before.passages) == ("2026-03-28", 0)
    assert (day.day, day.passages) == ("2026-03-29", 46)
    assert [sum(hour.values()) for hour in day.hours] == [2, 2, 0, *[2] * 21]


@pytest.mark.parametrize(
    ("now", "begin"),
    [
        ("2026-05-02T07:00", "2026-05-01T20:00"),
        ("2026-05-02T19:59", "2026-05-01T20:00"),
        ("2026-05-02T20:00", "2026-05-02T20:00"),
    ],
)
def test_the_last_night_is_the_one_that_has_begun(now, begin):
    zone = ZoneInfo("America/New_York")
    local = datetime.fromisoformat(begin).replace(tzinfo=zone)
    inside = [brief(local), brief(local + timedelta(hours=11, minutes=59), said="human_animal")]
    outside = [brief(local - timedelta(seconds=1)), brief(local + timedelta(hours=12)), brief(local, said="nobody")]
    found = last_night([*inside, *outside], zone, now=datetime.fromisoformat(now).replace(tzinfo=zone))
    assert (found.begin, found.end) == (local, local + timedelta(hours=12))
    assert list(found.briefs) == inside
    assert found.labels == {"human": 1, "human_animal": 1}


def test_portions_of_passages_at_the_same_time_lose_none(journal):
    briefs = sorted((Brief(name, "r", 0, 1, NOON, NOON, None, None, None) for name in "abcd"), key=place_of)
    newest = next(earlier_than(briefs, None))
    assert newest.passage == "d"
    assert [one.passage for one in earlier_than(briefs, place_of(newest))] == ["c", "b", "a"]
