"""The chain of the daemon, against the chain of one model, and across changes of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.conditions import Cause, State
from pipeline.errors import ModelError
from pipeline.events import (
    Block,
    Decision,
    FaultClosed,
    FaultOpened,
    Gap,
    ModelChanged,
    RecordingFinished,
    RecordingStarted,
    Role,
    StateChanged,
    TrustChanged,
)
from pipeline.service.assembly import Choices, whole_chain
from pipeline.service.switching import Hearing, Switching
from pipeline.simulation.options import site_of
from pipeline.simulation.scene import record
from pipeline.training.model import Model
from tests.service.conftest import ALPHA
from tests.stages.laws import bits, cut, fed, same

RATE, SENSORS = 4000, 4
STARTED = RecordingStarted("r", RATE, tuple("1234"))
CHOICES = Choices(alpha=ALPHA)
SITE = {
    "seed": 3,
    "rate_hz": RATE,
    "seconds": 20.0,
    "n_sensors": SENSORS,
    "spacing_m": 5.0,
    "surface": "gravel",
    "faults": "none",
    "fault_share": "0",
    "fault_seconds": 3.0,
    "clips": None,
}


@pytest.fixture(scope="module")
def sound() -> np.ndarray:
    """Twenty seconds; sensor 3 is dead from the fifth on."""
    samples = record(site_of(**SITE), 1, label="human").samples.copy()
    samples[2, 5 * RATE :] = 0
    return samples


@pytest.fixture(scope="module")
def models(model) -> dict[str, Model]:
    """Two that hear alike and decide differently, one that hears differently."""
    first = Model.load(model)
    second = replace(first, machines=(None, *first.machines[1:]))
    third = replace(first, settings=first.settings | {"n_mels": 20})
    return {first.name: first, "second": second, "third": third}


@pytest.fixture
def first(models) -> Model:
    return next(iter(models.values()))


def switching(models: dict[str, Model], model: Model | None, choices: Choices = CHOICES) -> Switching:
    how = Hearing.of(model or next(iter(models.values())))
    return Switching(how, choices, model, load=models.__getitem__)


def of(kind: type, facts: list[object]) -> list:
    return [fact for fact in facts if isinstance(fact, kind)]


@pytest.mark.parametrize(
    "choices", [CHOICES, Choices(alpha=ALPHA, masked=(2,), fusion="features"), Choices(health=False)]
)
def test_without_a_change_it_is_the_chain_of_its_model(models, first, sound, choices):
    """Every fact of two recordings and a gap, to the last bit."""
    gap = Gap(10 * RATE, 14 * RATE, "lost")
    facts = [STARTED, *cut(sound[:, : 10 * RATE], 1234), gap, *cut(sound[:, : 6 * RATE], 999, start=gap.stop)]
    facts += [replace(STARTED, recording="s"), *cut(sound[:, 3 * RATE : 9 * RATE], 777)]
    out = fed(switching(models, first, choices), facts)
    assert len(of(Decision, out)) > 20
    assert same(out, fed(whole_chain(first, choices), facts))


def test_without_a_model_it_tells_the_states_of_the_sensors(models, sound):
    out = fed(switching(models, None), [STARTED, *cut(sound, 4000)])
    assert not of(Decision, out)
    assert any(fact.sensor == 2 and fact.state is State.BAD for fact in of(StateChanged, out))
    assert of(RecordingFinished, out)[0].samples == sound.shape[1]


@pytest.mark.parametrize("size", [100, 333, 4096, 100_000])
def test_changes_take_effect_at_the_sample_however_the_sound_is_cut(models, first, sound, size):
    """From the second model to the first and to none; up to a change all is as without it."""
    places = [(7 * RATE + 11, first.name), (12 * RATE, ""), (15 * RATE, "second")]

    def facts(size: int) -> list[object]:
        made, start = [STARTED], 0
        for stop, name in places:
            made += [*cut(sound[:, start:stop], size, start=start), ModelChanged(stop, name)]
            start = stop
        return [*made, *cut(sound[:, start:], size, start=start)]

    out = fed(switching(models, models["second"]), facts(size))
    assert same(out, fed(switching(models, models["second"]), facts(500)))
    assert [fact.model for fact in of(ModelChanged, out)] == [name for _, name in places]
    alone = fed(whole_chain(models["second"], CHOICES), [STARTED, *cut(sound, size)])
    before = out.index(next(fact for fact in out if isinstance(fact, ModelChanged)))
    assert [bits(fact) for fact in out[:before]] == [bits(fact) for fact in alone[:before]]
    for decision in of(Decision, out):
        stop = decision.features.span.stop
        by = next((name for place, name in reversed(places) if place < stop), "second")
        assert by
        assert (decision.roles[0] is Role.UNTRAINED) is (by == "second" and decision.roles[0] is not Role.MASKED)


def test_physical_faults_outlive_a_change_and_learned_ones_are_looked_for_anew(models, first, sound):
    """The new model knows who was bad; what the old one saw in p-values is closed where the new one begins."""
    chain, place = switching(models, first), 10 * RATE
    before = [fact for item in [STARTED, *cut(sound[:, :place], 4000)] for fact in chain.push(item)]
    before += chain.push(FaultOpened(place, place - RATE, 0, Cause.DRIFT))
    dead = [fact for fact in of(FaultOpened, before) if fact.sensor == 2]
    assert dead
    change = chain.push(ModelChanged(place, "second"))
    closed = of(FaultClosed, change)
    learned = {Cause.ANOMALOUS, Cause.DRIFT, Cause.CONTAMINATED}
    assert (0, Cause.DRIFT) in [(fact.sensor, fact.cause) for fact in closed]
    assert {fact.cause for fact in closed} <= learned
    assert all(fact.until == fact.sample == place for fact in closed)
    after = [fact for item in cut(sound[:, place:], 4000, start=place) for fact in chain.push(item)]
    opened = {(fact.sensor, fact.cause) for fact in dead if fact.cause not in learned}
    assert not opened & {(fact.sensor, fact.cause) for fact in [*of(FaultOpened, after), *of(FaultClosed, after)]}
    assert {fact.roles[2] for fact in of(Decision, after)} == {Role.MASKED}


def test_what_the_operator_masked_stays_masked(models, first, sound):
    chain, place = switching(models, first), 6 * RATE
    for item in [STARTED, *cut(sound[:, :place], 4000), TrustChanged(place, np.array([True, False, True, True]))]:
        chain.push(item)
    chain.push(ModelChanged(place, "second"))
    after = [fact for item in cut(sound[:, place:], 4000, start=place) for fact in chain.push(item)]
    late = [fact for fact in of(Decision, after) if fact.features.span.start >= place]
    assert late
    assert {fact.roles[1] for fact in late} == {Role.OFF}


def test_a_model_that_hears_differently_must_wait_for_the_next_recording(models, first, sound):
    chain = switching(models, first)
    chain.push(STARTED)
    with pytest.raises(ModelError, match="from the next recording on"):
        chain.push(ModelChanged(0, "third"))
    chain.push(Block(0, sound[:, :RATE], np.ones(SENSORS, np.bool_)))


def test_a_shadow_decides_about_the_same_segments_and_changes_nothing(models, first, sound):
    """Its decisions are those it makes alone, given what is known of the sensors; the champion's are as without it."""
    pairs = []

    class Comparison:
        def compare(self, champion: Decision, challenger: Decision, /) -> None:
            pairs.append((champion, challenger))

    facts = [STARTED, *cut(sound, 1000)]
    chain = switching(models, first)
    chain.shadow(models["second"], Comparison())
    out = fed(chain, facts)
    assert same(out, fed(switching(models, first), facts))
    decisions = of(Decision, out)
    assert [bits(champion) for champion, _ in pairs] == [bits(fact) for fact in decisions[: len(pairs)]]
    assert len(pairs) >= len(decisions) - 1
    assert all(one.features.span == other.features.span for one, other in pairs)
    assert {other.roles[0] for _, other in pairs} == {Role.UNTRAINED}
    assert {other.roles[2] for _, other in pairs[-5:]} == {Role.MASKED}
