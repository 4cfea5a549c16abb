"""Does sound come as fast as it should? Reports of ten seconds at a nominal rate of 4000 Hz."""

from __future__ import annotations

import pytest

from pipeline.core.events import FaultClosed, FaultOpened, Paced, RecordingStarted
from pipeline.core.sensor_state import Cause
from pipeline.stages import SampleRate
from tests.stages.laws import fed

RATE = 4000
STARTED = RecordingStarted("r", RATE, ("1", "2"))


def told(*ratios: float) -> list[tuple[type, int, Cause, int, int]]:
    """What is said of reports with these ratios to the nominal rate; samples count reports."""
    reports = [Paced(n, 10.0, round(ratio * 10 * RATE)) for n, ratio in enumerate(ratios)]
    return [
        (type(fact), fact.sensor, fact.cause, fact.sample, fact.since)
        for fact in fed(SampleRate(RATE), [STARTED, *reports])
        if isinstance(fact, FaultOpened | FaultClosed)
    ]


def both(kind: type, cause: Cause, sample: int, since: int) -> list[tuple[type, int, Cause, int, int]]:
    return [(kind, sensor, cause, sample, since) for sensor in (0, 1)]


def test_half_the_rate_is_a_stall_of_all_sensors_until_it_is_over():
    """In two reports one after the other; one alone may be an accident."""
    opened, closed = (Cause.STALLED_RATE, 3, 2), (Cause.STALLED_RATE, 5, 2)
    assert told(1, 1, 0.5, 0.5, 0.5, 1) == [*both(FaultOpened, *opened), *both(FaultClosed, *closed)]
    assert told(*[1, 0.5] * 10) == []


def test_a_stall_is_not_taken_for_a_wrong_clock_when_it_is_over():
    assert {cause for _, _, cause, _, _ in told(*[1] * 6, *[0.5] * 4, *[1] * 9)} == {Cause.STALLED_RATE}


@pytest.mark.parametrize("ratio", [0.98, 1.02])
def test_a_clock_that_is_two_hundredths_off_is_a_wrong_rate(ratio):
    """Over six reports; when it is right again for long enough, it is over."""
    found = told(*[ratio] * 6, *[1.0] * 6)
    assert found[:2] == both(FaultOpened, Cause.RATE_ERROR, 5, 0)
    assert [kind for kind, *_ in found] == [FaultOpened] * 2 + [FaultClosed] * 2
    assert found[2][3] > 6


@pytest.mark.parametrize("ratio", [1.0, 0.995, 1.005])
def test_a_crystal_as_they_are_is_no_fault(ratio):
    assert told(*[ratio] * 20) == []


def test_what_is_played_faster_than_time_passes_has_no_clock():
    assert told(*[60.0] * 20) == []


def test_the_evidence_is_the_rate():
    reports = [Paced(n, 10.0, 5 * RATE) for n in range(2)]
    opened = [fact for fact in fed(SampleRate(RATE), [STARTED, *reports]) if isinstance(fact, FaultOpened)]
    assert opened[0].evidence == {"rate_hz": 2000.0, "nominal_hz": 4000.0}
