"""Rules of notifications: by enumeration of hours and labels, and over changes of the clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.passages import PassageRow
from pipeline.outputs.notification_rules import QuietHours, Rules, Suppression, day_before, summary_due
from tests.passages import facts, passage, rows

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2026, 10, 25, tzinfo=BERLIN)


def row(end: datetime, label: str | None = "human", probability: float | None = 0.9) -> PassageRow:
    """A passage of 10 s that ends at a time."""
    (found,) = rows(*facts("r", passage("r", 0, 10), started_at=end - timedelta(seconds=10)))
    return replace(found, label=label, probability=probability)


@pytest.mark.parametrize("begin", [0, 6, 22])
@pytest.mark.parametrize("end", [1, 7, 23])
def test_quiet_hours_are_the_hours_from_begin_to_end_also_over_midnight(begin, end):
    """The truth is a walk through the hours."""
    quiet = set()
    hour = begin
    while hour != end:
        quiet.add(hour)
        hour = (hour + 1) % 24
    hours = QuietHours(time(begin), time(end))
    assert {hour for hour in range(24) if time(hour) in hours} == quiet
    assert time(begin) in hours
    assert time(end) not in hours


@pytest.mark.parametrize(
    "day", [SPRING, AUTUMN, datetime(2026, 7, 1, tzinfo=BERLIN)], ids=["spring", "autumn", "plain"]
)
def test_quiet_hours_follow_the_local_clock_when_it_changes(day):
    """Every quarter of an hour of a day with 23, 25 or 24 hours."""
    rules = Rules(quiet_hours=QuietHours(time(22), time(6)), zone=BERLIN)
    begin = day.astimezone(UTC)
    end = (day + timedelta(days=1)).astimezone(UTC)
    moment, loud = begin, timedelta()
    while moment < end:
        refused = rules.refusal(row(moment), None)
        local = moment.astimezone(BERLIN).hour
        assert (refused == Suppression.QUIET_HOURS) == (local >= 22 or local < 6), moment
        loud += timedelta() if refused else timedelta(minutes=15)
        moment += timedelta(minutes=15)
    assert loud == timedelta(hours=16)


@pytest.mark.parametrize(
    ("labels", "label", "refused"),
    [
        (None, "human", False),
        (None, None, False),
        (("human",), "human", False),
        (("human",), "vehicle", True),
        (("human",), None, True),
        (("no label",), None, False),
        ((), "human", True),
    ],
)
def test_labels_choose_passages(labels, label, refused):
    found = Rules(labels=labels).refusal(row(AUTUMN, label), None)
    assert found == (Suppression.LABEL if refused else None)


@pytest.mark.parametrize(("probability", "refused"), [(0.79, True), (0.8, False), (1.0, False), (None, True)])
def test_a_passage_needs_the_least_probability(probability, refused):
    found = Rules(least_probability=0.8).refusal(row(AUTUMN, probability=probability), None)
    assert found == (Suppression.PROBABILITY if refused else None)


@given(st.lists(st.integers(0, 3600), min_size=1, max_size=30).map(sorted), st.integers(0, 900))
def test_between_two_notifications_there_is_at_least_the_cool_down_and_nothing_else_is_refused(seconds, cool_down):
    rules = Rules(cool_down_seconds=cool_down)
    last, notified = None, []
    for second in seconds:
        end = AUTUMN + timedelta(seconds=second)
        if rules.refusal(row(end), last) is None:
            notified.append(second)
            last = end
    assert notified[0] == seconds[0]
    assert all(later - earlier >= cool_down for earlier, later in pairwise(notified))
    for second in set(seconds) - set(notified):
        assert any(0 <= second - earlier < cool_down for earlier in notified)


def test_a_notification_of_a_later_time_starts_no_cool_down():
    """Sound of an earlier day may be processed later."""
    rules = Rules(cool_down_seconds=600)
    assert rules.refusal(row(AUTUMN), AUTUMN + timedelta(seconds=30)) is None


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_a_summary_is_due_once_a_local_day_at_its_time_whatever_the_clock_does(day):
    """Time goes on in steps of 10 minutes over three days."""
    rules = Rules(summary_at=time(7), zone=BERLIN)
    moment = (day - timedelta(days=1)).astimezone(UTC)
    after, found = moment, []
    for _ in range(3 * 24 * 6):
        moment += timedelta(minutes=10)
        if (due := summary_due(rules, after, moment)) is not None:
            assert due <= moment < due + timedelta(minutes=10)
            found.append(due)
            after = due
    local = [one.astimezone(BERLIN) for one in found]
    assert [(one.hour, one.minute) for one in local] == [(7, 0)] * 3
    assert len({one.date() for one in local}) == 3


def test_after_a_long_pause_only_the_latest_summary_is_due():
    rules = Rules(summary_at=time(7), zone=BERLIN)
    now = datetime(2026, 7, 10, 6, 59, tzinfo=BERLIN)
    assert summary_due(rules, now - timedelta(days=5), now) == datetime(2026, 7, 9, 7, tzinfo=BERLIN)
    assert summary_due(rules, datetime(2026, 7, 9, 7, tzinfo=BERLIN), now) is None
    assert summary_due(replace(rules, summary_at=None), now - timedelta(days=5), now) is None


def test_the_day_before_is_the_same_local_time():
    rules = Rules(zone=BERLIN)
    assert day_before(rules, datetime(2026, 3, 29, 7, tzinfo=BERLIN)) == datetime(2026, 3, 28, 7, tzinfo=BERLIN)
    assert day_before(rules, datetime(2026, 3, 29, 7, tzinfo=BERLIN)).astimezone(UTC).hour == 6
