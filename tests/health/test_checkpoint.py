"""What the machines of health remember, in the states that an ordinary minute does not bring them into."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.checkpoint import restore, snapshot
from pipeline.core.sensor_state import Cause
from pipeline.health.baseline import RunningUsual
from pipeline.health.faults import _RelationWatches
from pipeline.health.measures import nothing_measured
from pipeline.health.sequential_tests import Calibration, Cusum, Drift
from tests.stages.laws import cut, insides

SILENCE = nothing_measured(0, 4000, 3)
RNG = np.random.default_rng(0)


def learn(usual: RunningUsual, level_db: float) -> None:
    usual.learn(replace(SILENCE, floor_db=np.array([[level_db, -50.0]] * 3)), np.ones(3, bool))


def look(watch: _RelationWatches, found: bool) -> None:
    watch.look(SILENCE, {"polarity": {1: {"agreement": -0.9}}} if found else {})


MACHINES = {
    "cusum": (lambda: Cusum(3.0), Cusum.take, [1e-4] * 5 + [0.9] * 9),
    "drift": (Drift, Drift.take, [*RNG.uniform(0.2, 1, 300), *RNG.uniform(0, 0.05, 300), *RNG.uniform(0.5, 1, 300)]),
    "calibration": (lambda: Calibration(0.01), Calibration.take, [*RNG.uniform(0, 0.1, 400).tolist(), *[0.5] * 1900]),
    "usual": (lambda: RunningUsual(None, 3), learn, RNG.normal(-60, 3, 1300).tolist()),
    "relation": (lambda: _RelationWatches([Cause.POLARITY], 3), look, [False, True, True, True, *[False] * 8]),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_goes_on_from_its_state(name):
    """All its attributes are those of the first one, at every cut and at the end."""
    make, step, inputs = MACHINES[name]
    machine, states = make(), []
    every = -(-len(inputs) // 40)
    for number, one in enumerate(inputs):
        other = make()
        restore(other, snapshot(machine))
        assert insides(other) == insides(machine)
        if number % every == 0:
            states.append((number, other))
        step(machine, one)
    for number, other in states:
        for one in inputs[number:]:
            step(other, one)
        assert insides(other) == insides(machine)


def test_a_second_that_was_not_heard_from_its_beginning_is_not_measured_elsewhere():
    from pipeline.stages import Measure

    blocks = cut(RNG.normal(0, 0.01, (3, 9000)).astype(np.float32), 500, start=700)
    stage, other = Measure(4000), Measure(4000)
    for block in blocks[:3]:
        stage.push(block)
    restore(other, snapshot(stage))
    assert insides(other) == insides(stage)
    assert [len(other.push(block)) for block in blocks[3:]] == [len(stage.push(block)) for block in blocks[3:]]
