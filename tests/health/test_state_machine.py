"""States and liveness, over every combination of what can be."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from pipeline.core.sensor_state import Cause, Liveness, State
from pipeline.health.state_machine import (
    ESCALATE_SECONDS,
    FAIL_SECONDS,
    FLAP_CHANGES,
    FLAP_SECONDS,
    RECOVER_SECONDS,
    SETTLE_SECONDS,
    Condition,
    Flapping,
    fell_ill,
    liveness_after,
    state_of,
)

FATAL = {"no_frames", "flat", "silent", "pegged", "polarity", "swapped", "stale"}


def test_every_cause_has_a_state_a_meaning_and_a_cure():
    """Fatal ones are bad, all others degraded; words are there and not the same for two."""
    assert {str(cause) for cause in Cause if cause.state is State.BAD} == FATAL
    assert all(cause.state is State.DEGRADED for cause in Cause if str(cause) not in FATAL)
    assert all(cause.meaning and cause.cure for cause in Cause)
    assert len({cause.meaning for cause in Cause}) == len(Cause)
    assert all(str(word) == str(word).lower() for words in (State, Liveness, Cause) for word in words)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_the_worst_cause_is_the_state(n):
    """All sets of up to two causes, heard or not, muted or not."""
    for causes in combinations(Cause, n):
        bad = bool({str(cause) for cause in causes} & FATAL)
        expected = State.BAD if bad else State.DEGRADED if causes else State.GOOD
        assert state_of(causes, heard=True, muted=False) is expected
        ill = bool({str(cause) for cause in causes} - {"no_frames"})
        assert state_of(causes, heard=False, muted=False) is (expected if ill else State.UNKNOWN)
        for heard in (False, True):
            assert state_of(causes, heard=heard, muted=True) is State.OFF


def expected_liveness(before, heard, muted, faulty, ill, well):
    """The table as one would write it on paper."""
    if muted:
        return "muted"
    if faulty:
        return "failed" if ill >= 600 else "escalated" if ill >= 60 else "alarmed"
    if not heard:
        return "initialising"
    was_ill = before in ("alarmed", "escalated", "failed")
    still = before == "recovering" and well < 60
    return "recovering" if was_ill or still else "healthy"


def test_liveness_over_all_combinations():
    """Seven words before, heard, muted, faulty, and times on either side of every limit: 7 x 8 x 36 cases."""
    times = (0, 59, 60, 61, 599, 600)
    assert (ESCALATE_SECONDS, FAIL_SECONDS, RECOVER_SECONDS) == (60, 600, 60)
    reached = set()
    for before, heard, muted, faulty, ill, well in product(Liveness, *[(False, True)] * 3, times, times):
        after = liveness_after(before, heard=heard, muted=muted, faulty=faulty, seconds_ill=ill, seconds_well=well)
        assert str(after) == expected_liveness(str(before), heard, muted, faulty, ill, well)
        reached.add(after)
    assert reached == set(Liveness)


def test_a_sensor_through_its_life():
    """Heard, alarmed, escalated, failed, recovering, healthy; each change is noticed exactly once."""
    condition, told = Condition(), []

    def live(seconds, causes=(), *, sound=True, muted=False):
        told.extend(
            (str(condition.state), str(condition.liveness))
            for _ in range(seconds)
            if condition.pass_time(1.0, sound=sound, causes=causes, muted=muted)
        )

    live(20, sound=False)
    assert told == []
    live(SETTLE_SECONDS - 1)
    assert told == []
    live(10)
    live(700, [Cause.HUM_ONLY])
    live(100)
    live(5, muted=True)
    live(5)
    assert told == [
        ("good", "healthy"),
        ("degraded", "alarmed"),
        ("degraded", "escalated"),
        ("degraded", "failed"),
        ("good", "recovering"),
        ("good", "healthy"),
        ("off", "muted"),
        ("good", "healthy"),
    ]


def test_a_sensor_with_a_fault_from_the_beginning_is_never_called_good():
    condition, states = Condition(), []
    for second in range(100):
        condition.pass_time(1.0, sound=True, causes=[Cause.FLAT] if second >= 1 else [], muted=False)
        states.append(condition.state)
    assert states == [State.UNKNOWN] + [State.BAD] * 99


def test_who_never_delivers_stays_unknown_and_fails():
    condition = Condition()
    for second in range(700):
        condition.pass_time(1.0, sound=False, causes=[Cause.NO_FRAMES] if second >= 5 else [], muted=False)
    assert (condition.state, condition.liveness) == (State.UNKNOWN, Liveness.FAILED)


def test_what_is_chronic_neither_escalates_nor_hides_a_fall():
    """Contaminated from the beginning: degraded, but healthy; a fault on top of it is a fall like any other."""
    condition = Condition()
    for _ in range(700):
        condition.pass_time(1.0, sound=True, causes=[Cause.CONTAMINATED], muted=False)
    assert (condition.state, condition.liveness) == (State.DEGRADED, Liveness.HEALTHY)
    before = condition.acute
    condition.pass_time(1.0, sound=True, causes=[Cause.CONTAMINATED, Cause.HUM_ONLY], muted=False)
    assert fell_ill(before, condition.acute)


def test_a_fall_is_any_change_for_the_worse():
    """Over all pairs of states."""
    worse = {("good", "degraded"), ("good", "bad"), ("unknown", "degraded"), ("unknown", "bad"), ("degraded", "bad")}
    for before, after in product(State, State):
        assert fell_ill(before, after) == ((str(before), str(after)) in worse)


def test_flapping_is_three_falls_in_a_quarter_of_an_hour():
    """And over when the first of the last three is a quarter of an hour old."""
    flapping = Flapping()
    for now in (0, 100, 200):
        assert not flapping.active(now)
        flapping.fall(now)
    assert flapping.active(200)
    assert flapping.active(FLAP_SECONDS - 1)
    assert not flapping.active(FLAP_SECONDS)
    assert FLAP_CHANGES == 3


ALARMED, RECOVERING = Liveness.ALARMED, Liveness.RECOVERING


@pytest.mark.parametrize("every", [3, 40, 200])
def test_at_most_three_changes_are_told_in_a_quarter_of_an_hour(every):
    """Two hours of falls and recoveries: in no quarter of an hour more than three."""
    flapping, told = Flapping(), []
    for now in range(0, 7200, every):
        if flapping.worth_telling(State.GOOD, State.DEGRADED, ALARMED, now):
            told.append(now)
        if flapping.worth_telling(State.DEGRADED, State.GOOD, RECOVERING, now + 1):
            told.append(now + 1)
    assert told
    assert max(sum(start <= now < start + FLAP_SECONDS for now in told) for start in told) <= FLAP_CHANGES


def test_what_is_worse_is_always_told_and_so_is_what_the_operator_did():
    """Worse state, then worse liveness, each once; off and on again, and bad after that."""
    flapping = Flapping()
    for now in range(10):
        flapping.worth_telling(State.GOOD, State.DEGRADED, ALARMED, now)
    assert not flapping.worth_telling(State.GOOD, State.DEGRADED, ALARMED, 10)
    assert flapping.worth_telling(State.DEGRADED, State.BAD, ALARMED, 11)
    assert not flapping.worth_telling(State.DEGRADED, State.BAD, ALARMED, 12)
    assert flapping.worth_telling(State.BAD, State.BAD, Liveness.ESCALATED, 70)
    assert flapping.worth_telling(State.BAD, State.BAD, Liveness.FAILED, 600)
    assert not flapping.worth_telling(State.BAD, State.GOOD, RECOVERING, 610)
    assert flapping.worth_telling(State.GOOD, State.OFF, Liveness.MUTED, 620)
    assert flapping.worth_telling(State.OFF, State.GOOD, Liveness.HEALTHY, 630)
    assert flapping.worth_telling(State.GOOD, State.BAD, ALARMED, 640)
