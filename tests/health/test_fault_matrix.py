"""Every fault of the simulator at every sensor, mild and severe: named in time, nobody else accused, over in time."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pipeline.events import Block, FaultClosed, FaultOpened, RecordingStarted, TrustChanged
from pipeline.health.measures import Measures
from pipeline.health.usual import Usual, learn_usual
from pipeline.simulation import FAULTS, HUMAN, HUMAN_WITH_ANIMAL, Episode, Scene, Site, draw_scene
from pipeline.stages import Chain, Inspection, Measuring

RATE = 8000
SITE = Site(seed=1, rate_hz=RATE, duration_seconds=36.0)
BEGIN, END = 9, 21
DETECT_SECONDS, RECOVER_SECONDS = 10, 30
RIGHT = {
    "dead": {"flat", "silent"},
    "flat": {"flat", "silent"},
    "stuck": {"flat", "silent"},
    "loud_bursts": {"high_gain", "clipping"},
    "clipping": {"clipping", "high_gain"},
    "hum": {"hum_only"},
    "dc_drift": {"dc_offset"},
    "gain_loss": {"low_gain", "silent"},
    "dropouts": {"gap"},
    "spikes": {"spikes"},
    "polarity": {"polarity"},
    "crosstalk": {"crosstalk"},
    "swapped": {"swapped"},
    "stale": {"stale"},
    "clock_drift": {"rate_error"},
    "wind_roar": {"high_gain", "clipping"},
}
"""The causes by which each fault may be called, and no others."""


def facts(samples: np.ndarray, stages: Chain) -> list[object]:
    started = RecordingStarted("r", RATE, ("1", "2", "3", "4"))
    out = stages.push(started) + stages.push(Block(0, samples, np.ones(4, bool)))
    return out + stages.flush()


@cache
def usual() -> Usual | None:
    """From other recordings of the place."""
    seconds: list[Measures] = []
    for number in range(50, 56):
        label = HUMAN if number % 2 else HUMAN_WITH_ANIMAL
        heard = facts(draw_scene(SITE, number, label).recorded([]).samples, Chain(Measuring(RATE)))
        seconds += [fact for fact in heard if isinstance(fact, Measures)]
    return learn_usual(seconds)


@cache
def scene() -> Scene:
    return draw_scene(SITE, 1, HUMAN_WITH_ANIMAL)


def examined(episodes: list[Episode]) -> list[object]:
    return facts(scene().recorded(episodes).samples, Chain(Measuring(RATE), Inspection(usual())))


def episodes_of(fault: str, sensor: int, severity: float) -> list[Episode]:
    partner = (sensor + 1) % 4
    one = Episode(sensor, BEGIN * RATE, END * RATE, fault, severity, partner, (1, sensor))
    other = Episode(partner, BEGIN * RATE, END * RATE, fault, severity, sensor, (1, sensor))
    return [one, other] if fault == "swapped" else [one]


def test_the_matrix_knows_every_fault():
    assert set(RIGHT) == set(FAULTS)


def test_without_a_fault_nothing_is_found():
    assert not [fact for fact in examined([]) if isinstance(fact, FaultOpened | TrustChanged)]


@pytest.mark.parametrize("severity", [0.2, 0.9])
@pytest.mark.parametrize("sensor", range(4))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_its_end_is_noticed(fault, sensor, severity):
    """By a right cause within 10 s, by no wrong one, at no other sensor; all is well again within 30 s of its end."""
    episodes = episodes_of(fault, sensor, severity)
    found = examined(episodes)
    opened = [fact for fact in found if isinstance(fact, FaultOpened)]
    closed = [fact for fact in found if isinstance(fact, FaultClosed)]
    afflicted = {episode.sensor for episode in episodes}
    assert {fact.sensor for fact in opened} == afflicted
    assert {str(fact.cause) for fact in opened} <= RIGHT[fault]
    for own in afflicted:
        assert min(fact.sample for fact in opened if fact.sensor == own) <= (BEGIN + DETECT_SECONDS) * RATE
    assert len(closed) == len(opened)
    assert max(fact.sample for fact in closed) <= (END + RECOVER_SECONDS) * RATE
