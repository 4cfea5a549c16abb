"""The chain of the daemon, against the chain of one model, and across changes of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.checkpoint import restore, snapshot
from pipeline.core.choices import Choices
from pipeline.core.errors import ModelError, StateError
from pipeline.core.event_json import EventLines
from pipeline.core.events import (
    Block,
    Decision,
    FaultClosed,
    FaultOpened,
    Gap,
    Labelled,
    ModelChanged,
    Paced,
    RecordingFinished,
    RecordingStarted,
    Role,
    Span,
    StateChanged,
    Tick,
    TrustChanged,
)
from pipeline.core.sensor_state import Cause, State
from pipeline.model.build import whole_chain
from pipeline.model.hot_swap import ArrayInput, Switching
from pipeline.model.model import Model
from pipeline.model.shadow import Shadow
from pipeline.simulation.options import site_of
from pipeline.simulation.scene import record
from tests.arrays import ALPHA
from tests.stages.laws import bits, check_goes_on_from_its_state, cut, fed, pushed, same

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
    second = replace(first, machines=(None, *first.machines[1:]), identity="second")
    third = replace(first, settings=first.settings | {"n_mels": 20}, identity="third")
    return {first.name: first, "second": second, "third": third}


@pytest.fixture
def first(models) -> Model:
    return next(iter(models.values()))


def switching(models: dict[str, Model], model: Model | None, choices: Choices = CHOICES) -> Switching:
    how = ArrayInput.of(model or next(iter(models.values())))
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
        def begin_recording(self) -> None:
            pass

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


@pytest.mark.parametrize(("seconds", "segments"), [(2.0, 1), (3.5, 1), (4.0, 2)])
def test_short_recordings_are_compared_one_after_the_other(models, first, sound, seconds, segments):
    """Each counts with the segments that do not overlap in it; else a trial on short clips would never end."""
    comparison, chain = Shadow(segments=1000, alpha=ALPHA), switching(models, first)
    chain.shadow(models["second"], comparison)
    for number in range(5):
        chain.push(replace(STARTED, recording=str(number)))
        for block in cut(sound[:, : int(seconds * RATE)], 1000):
            chain.push(block)
    assert comparison.verdict()["segments"] == 5 * segments


@pytest.fixture(scope="module")
def faulty() -> np.ndarray:
    """A minute in which three sensors fail now and then; the last one is wired wrongly for a while."""
    site = site_of(**SITE | {"seconds": 60.0, "faults": "all", "fault_share": "0.3,0.1,0,0", "fault_seconds": 5.0})
    samples = record(site, 2, label="human").samples.copy()
    samples[3, 2 * RATE : 12 * RATE] *= -1
    return samples


@pytest.fixture(scope="module")
def story(models, faulty) -> list[object]:
    """All that can happen to a chain: waiting, gaps, a slow device, an operator, labels, other models."""
    first = next(iter(models))
    label = models[first].classes[0]

    def heard(start: int, stop: int, *, missing: int | None = None) -> list[Block]:
        delivered = np.arange(SENSORS) != missing
        return cut(faulty[:, start * RATE : stop * RATE], 2777, start=start * RATE, delivered=delivered)

    return [
        STARTED, Labelled(Span(0, 30 * RATE), label), *heard(0, 8), ModelChanged(8 * RATE, "unusual"),
        *heard(8, 14), *(Tick(14 * RATE, float(n)) for n in range(1, 9)), *heard(14, 20),
        *(Paced((20 + n) * RATE, 10.0, 5 * RATE) for n in range(3)), Gap(20 * RATE, 23 * RATE, "lost"),
        *heard(23, 28, missing=1), TrustChanged(28 * RATE, np.array([False, True, True, True])), *heard(28, 36),
        ModelChanged(36 * RATE, ""), *heard(36, 40), ModelChanged(40 * RATE, first), *heard(40, 50),
        Gap(50 * RATE, 55 * RATE, "pause", recorded=False), *heard(55, 60),
        replace(STARTED, recording="s"), *cut(faulty[:, 5 * RATE : 12 * RATE], 4444),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def fleet(models) -> dict[str, Model]:
    """With one that was never told what is usual: a recording goes on with what it began with."""
    return models | {"unusual": replace(models["second"], usual=None, identity="unusual")}


@pytest.mark.parametrize("every", [1, pytest.param(7, marks=pytest.mark.soak), 50])
def test_it_goes_on_elsewhere_from_its_snapshot(fleet, story, every):
    """Killed again and again, each time on another machine: the same facts, lines and comparison, to the last bit."""
    first = next(iter(fleet.values()))
    expected, told, comparison = [], [], Shadow(segments=20, alpha=ALPHA)
    whole, lines = switching(fleet, first), EventLines(told.append, model=first.name)
    whole.shadow(fleet["second"], comparison)
    for fact in story:
        expected += whole.push(fact)
    expected += whole.flush()
    for fact in expected:
        lines.observe(fact)

    facts, told_on_the_way, relayed = [], [], Shadow(segments=20, alpha=ALPHA)
    chain, observer = switching(fleet, first), EventLines(told_on_the_way.append, model=first.name)
    chain.shadow(fleet["second"], relayed)
    for number, fact in enumerate([*story, None]):
        if number % every == 0:
            state, counted = chain.snapshot(), snapshot(observer)
            chain, observer = switching(fleet, first), EventLines(told_on_the_way.append, model="unknown")
            relayed = chain.restore(state)
            restore(observer, counted)
            assert chain.snapshot() == state
        made = chain.flush() if fact is None else chain.push(fact)
        facts += made
        for one in made:
            observer.observe(one)

    assert same(facts, expected)
    assert told_on_the_way == told
    assert relayed == comparison
    assert comparison.verdict()["segments"] > 10
    opened = {fact.cause for fact in of(FaultOpened, expected)}
    assert len(opened) > 4
    assert Cause.STALLED_RATE in opened
    assert len(of(Decision, expected)) > 50
    assert next(line["decisions"] for line in told if line["type"] == "recording_finished") > 50


def test_a_whole_chain_goes_on_from_its_state(first, story):
    """The law of all stages, for all of them in a row."""
    facts = [fact for fact in story if not isinstance(fact, ModelChanged)]
    check_goes_on_from_its_state(lambda: whole_chain(first, CHOICES), facts, parts=3)


def test_a_snapshot_is_small_and_stays_so(fleet, story):
    """Half a megabyte at most for four sensors at 16,000 samples a second; here it is a quarter of these."""
    chain, sizes = switching(fleet, next(iter(fleet.values()))), []
    for fact in story[: story.index(next(fact for fact in story if isinstance(fact, Gap) and not fact.recorded))]:
        chain.push(fact)
        sizes.append(len(chain.snapshot()))
    third = len(sizes) // 3
    assert max(sizes) < 500_000 * RATE / 16_000
    assert max(sizes[2 * third :]) < 1.1 * max(sizes[third : 2 * third])  # the background fills in the first third


def test_a_snapshot_of_other_settings_is_refused(models, first, sound):
    """Other choices, another number of sensors, or something that is no chain."""
    chain = switching(models, first)
    pushed(chain, [STARTED, *cut(sound[:, : 3 * RATE], 4000)])
    state = chain.snapshot()
    with pytest.raises(StateError, match=r"other settings: masked was \[\], is \[1\]; use those"):
        switching(models, first, replace(CHOICES, masked=(1,))).restore(state)
    with pytest.raises(StateError, match="Chain in the place of Switching"):
        switching(models, first).restore(whole_chain(first, CHOICES).snapshot())
    with pytest.raises(StateError, match="damaged"):
        switching(models, first).restore(state[:-1] + bytes([state[-1] ^ 1]))


def test_a_shadow_that_cannot_be_stored_says_so(models, first):
    class Comparison:
        def begin_recording(self) -> None:
            pass

        def compare(self, champion: Decision, challenger: Decision, /) -> None:
            pass

    chain = switching(models, first)
    chain.shadow(models["second"], Comparison())
    with pytest.raises(StateError, match="Comparison cannot be stored"):
        chain.snapshot()
