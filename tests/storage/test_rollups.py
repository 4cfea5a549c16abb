"""History by the minute, the hour and the day: merged without loss, read in few rows."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.storage.journal import Journal, JournalEntry
from pipeline.storage.retention import Retention
from pipeline.storage.rollups import (
    DAY,
    HOUR,
    MINUTE,
    Rollup,
    RunningMean,
    SensorSummary,
    begin_of,
    gather,
    read,
    store,
    summaries,
)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def summary(decisions: int = 3) -> Rollup:
    sensor = SensorSummary(
        RunningMean(60, -2400.0, -50.0, -30.5), RunningMean(3, 2.5, 0.5, 1.0), 1, 10, {"good": 59.0, "bad": 1.0}
    )
    return Rollup(Counter(human=decisions), 1, 2, [sensor])


def fill(journal: Journal, begin: datetime, minutes: int) -> None:
    first = round(begin.timestamp())
    with journal.transaction():
        for minute in range(minutes):
            store(journal, MINUTE, first + MINUTE * minute, summary())
        for hour in range(begin_of(first, HOUR), first + MINUTE * minutes, HOUR):
            gather(journal, hour)


levels = st.lists(st.integers(-9000, 0).map(lambda n: n / 100), max_size=20)


@given(st.lists(levels, min_size=1, max_size=5))
def test_the_mean_of_parts_is_that_of_the_whole(parts):
    whole = RunningMean()
    for part in parts:
        one = RunningMean()
        for value in part:
            one.take(value)
        whole.merge(RunningMean(*one.stored()))
    values = [value for part in parts for value in part]
    assert whole.n == len(values)
    if values:
        assert whole.value == pytest.approx(sum(values) / len(values))
        assert (whole.least, whole.most) == (min(values), max(values))
    else:
        assert whole.value is whole.least is whole.most is None


def test_what_is_stored_comes_back(journal):
    store(journal, MINUTE, round(NOON.timestamp()), summary())
    ((moment, found),) = read(journal, MINUTE, NOON.timestamp(), NOON.timestamp() + 1)
    assert (moment, found) == (NOON.timestamp(), summary())


def test_the_worst_state_is_told_whatever_its_length():
    assert summary().sensors[0].worst == "bad"
    assert SensorSummary(seconds={"off": 60.0, "good": 1.0}).worst == "off"
    assert SensorSummary().worst is None


def test_an_hour_is_the_sum_of_its_minutes_and_a_day_of_its_hours(journal):
    fill(journal, NOON - timedelta(hours=12), 24 * 60)
    ((_, noon),) = read(journal, HOUR, NOON.timestamp(), NOON.timestamp() + 1)
    assert (noon.labels["human"], noon.undecided, noon.sensors[0].samples_lost) == (180, 60, 600)
    assert noon.sensors[0].seconds == {"good": 59.0 * 60, "bad": 60.0}
    ((_, day),) = read(journal, DAY, 0, NOON.timestamp())
    assert (day.labels["human"], day.degraded) == (3 * 1440, 2 * 1440)
    assert (day.sensors[0].level_dbfs.value, day.sensors[0].weight.value) == (-40.0, pytest.approx(2.5 / 3))


@pytest.mark.parametrize(
    ("asked", "most_rows", "seconds"),
    [
        (timedelta(hours=1), 60, MINUTE),
        (timedelta(hours=1), 12, 5 * MINUTE),
        (timedelta(days=1), 500, 3 * MINUTE),
        (timedelta(days=3), 500, HOUR),
        (timedelta(days=3), 10, 8 * HOUR),
        (timedelta(days=40), 500, DAY),
    ],
)
def test_a_time_of_any_length_becomes_few_rows_of_one_length(journal, asked, most_rows, seconds):
    """And all that happened is in them."""
    end = NOON + timedelta(hours=12)
    fill(journal, end - timedelta(days=3), 3 * 1440)
    rows = summaries(journal, end - asked, end, most_rows=most_rows)
    assert {row["seconds"] for row in rows} == {seconds}
    assert len(rows) <= most_rows
    assert [row["time"] for row in rows] == sorted({row["time"] for row in rows})
    minutes = min(asked, timedelta(days=3)) / timedelta(minutes=1)
    assert sum(row["decisions"] for row in rows) == 4 * minutes
    assert sum(row["sensors"][0]["samples_lost"] for row in rows) == 10 * minutes


def test_a_row_tells_what_a_chart_shows(journal):
    store(journal, MINUTE, round(NOON.timestamp()), summary())
    (row,) = summaries(journal, NOON, NOON + timedelta(hours=1), most_rows=100)
    assert row == {
        "time": "2026-05-01T12:00:00.000Z",
        "seconds": 60,
        "decisions": 4,
        "labels": {"human": 3},
        "undecided": 1,
        "degraded": 2,
        "sensors": [
            {
                "level_dbfs": {"mean": -40.0, "min": -50.0, "max": -30.5},
                "weight": 0.833,
                "refused": 1,
                "samples_lost": 10,
                "worst": "bad",
                "seconds": {"good": 59.0, "bad": 1.0},
            }
        ],
    }


def test_where_the_minutes_are_gone_the_hours_tell(journal):
    fill(journal, NOON, 180)
    journal.execute("DELETE FROM summaries WHERE seconds = 60 AND time < '2026-05-01T14'")
    rows = summaries(journal, NOON, NOON + timedelta(hours=3), most_rows=100)
    assert [(row["seconds"], row["decisions"]) for row in rows] == [(HOUR, 240)] * 3
    late = summaries(journal, NOON + timedelta(hours=2), NOON + timedelta(hours=3), most_rows=100)
    assert len(late) == 60


def old_and_young(journal: Journal) -> tuple[float, float]:
    """A day of long ago, one of yesterday, and thousands of decisions; a month ago, and now."""
    now = datetime.now(UTC)
    fill(journal, now - timedelta(days=50), 1440)
    fill(journal, now - timedelta(days=2), 1440)
    journal.append([JournalEntry("r", {"type": "decision", "what": "x" * 1000})] * 8000)
    return (now - timedelta(days=31)).timestamp(), now.timestamp()


def test_minutes_of_long_ago_go_with_the_oldest_decisions_and_the_others_stay(tmp_path, journal):
    month_ago, now = old_and_young(journal)
    Retention(tmp_path, journal, budget_bytes=8_000_000).enforce()
    assert journal.content_bytes() <= 2_000_000  # a fourth, its share
    assert not read(journal, MINUTE, 0, month_ago)
    assert len(read(journal, MINUTE, month_ago, now)) == 1440


def test_where_nothing_else_is_left_all_minutes_go_and_hours_stay(tmp_path, journal):
    _, now = old_and_young(journal)
    hours = read(journal, HOUR, 0, now)
    Retention(tmp_path, journal, budget_bytes=100_000).enforce()
    assert not read(journal, MINUTE, 0, now)
    assert read(journal, HOUR, 0, now) == hours


def test_a_journal_within_its_budget_keeps_its_minutes(tmp_path, journal):
    _, now = old_and_young(journal)
    Retention(tmp_path, journal, budget_bytes=10 * journal.content_bytes()).enforce()
    assert len(read(journal, MINUTE, 0, now)) == 2 * 1440
