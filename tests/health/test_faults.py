"""Findings become faults: confirmed, closed, explained, and told apart by sensor."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.events import FaultClosed, FaultOpened
from pipeline.core.sensor_state import Cause
from pipeline.health.baseline import Baseline
from pipeline.health.checks import Check
from pipeline.health.faults import EXPLAINS, Faults
from pipeline.health.measures import nothing_measured

RATE = 100


def watch(values, *, cause=Cause.SPIKES, **settings):
    """Faults from a list of numbers, one for each second, for a sensor beside which another one is well."""
    script = iter(values)
    check = Check(cause, "number", lambda recent: np.array([next(script), 0.0]), enter=2, leave=1, **settings)
    faults, told = Faults([check], 2), []
    for k in range(len(values)):
        second = nothing_measured(k * RATE, (k + 1) * RATE, 2)
        told += faults.update([second], Baseline.nothing(2))
    return told


def test_a_fault_opens_when_it_is_confirmed_and_closes_when_it_is_over_for_a_while():
    """Two seconds to open, three to close; it began with the first and ended with the last of them."""
    told = watch([0, 3, 5, 1.5, 0, 0, 0, 0], confirm_seconds=2, clear_seconds=3)
    evidence = {"number": 5.0, "limit": 2}
    assert told == [
        FaultOpened(3 * RATE, 1 * RATE, 0, Cause.SPIKES, evidence),
        FaultClosed(7 * RATE, 1 * RATE, 4 * RATE, 0, Cause.SPIKES, evidence),
    ]


@pytest.mark.parametrize("values", [[3, 0, 3, 0, 3, 0, 3, 0], [1.9] * 9, [0] * 9, [np.nan] * 9])
def test_single_seconds_and_small_numbers_open_nothing(values):
    assert watch(values, confirm_seconds=2) == []


def test_between_the_limits_and_unseen_it_stays_open():
    """Neither 1.5 nor NaN closes it, and it is not seen while nobody can tell."""
    told = watch([3, 3] + [1.5] * 5 + [np.nan] * 5, confirm_seconds=2)
    assert [type(fact) for fact in told] == [FaultOpened]


def test_a_worse_fault_explains_a_lesser_one_also_for_a_while_after():
    """While nothing comes, spikes are not looked for, nor until the last bad second is out of sight."""
    script = {Cause.NO_FRAMES: [9] * 3 + [0] * 9, Cause.SPIKES: [9] * 9 + [0] * 3}
    now = 0

    def value(cause):
        return lambda recent: np.array([float(script[cause][now])])

    checks = [
        Check(cause, "n", value(cause), enter=2, leave=1, confirm_seconds=1, clear_seconds=1, looks_back_seconds=3)
        for cause in script
    ]
    faults, told = Faults(checks, 1), []
    for now in range(12):
        told += faults.update([nothing_measured(now * RATE, (now + 1) * RATE, 1)], Baseline.nothing(1))
    spikes = [fact for fact in told if fact.cause is Cause.SPIKES]
    assert [(type(fact), fact.since // RATE) for fact in spikes] == [(FaultOpened, 6), (FaultClosed, 6)]
    assert spikes[-1].until == 7 * RATE  # seen until 9 s by a check that looks back for three


def test_explanations_do_not_go_round_in_circles():
    """No cause explains itself, and none is explained by what it explains: both would be forgotten."""
    for cause, explained in EXPLAINS.items():
        assert cause not in explained
        assert not any(cause in EXPLAINS.get(other, set()) for other in explained)
