"""The packaged model on a simulated day: passages, the same to the bit however it is cut, switched and restored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.choices import Choices
from pipeline.core.events import (
    Block,
    Decision,
    ModelChanged,
    PassageEnded,
    PassageStarted,
    PassageUpdated,
    PresenceAudited,
    RecordingStarted,
)
from pipeline.model.build import whole_chain
from pipeline.model.hot_swap import ArrayInput, Switching
from pipeline.model.model import Model
from pipeline.model.starter import STARTER, is_starter, starter_model
from pipeline.simulation.day import Day, Site
from tests.stages.laws import cut, fed, pushed, same

RATE = 16_000
STARTED = RecordingStarted("day", RATE, ("1", "2", "3", "4"))
PASSAGES = PassageStarted | PassageUpdated | PassageEnded
POSITIONS = tuple((float(x), float(y)) for x, y in Site(seed=0).sensors_m)
CHOICES = Choices(positions_m=POSITIONS)


@pytest.fixture(scope="module")
def model() -> Model:
    found = starter_model(RATE, 4)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def day() -> Day:
    return Day(Site(seed=11), hours=0.05, passages_per_day=600, distractors_per_day=0, first_passage_seconds=20.0)


@pytest.fixture(scope="module")
def sound(day) -> np.ndarray:
    return day.read(0, 80 * RATE)


@pytest.fixture(scope="module")
def expected(model, sound) -> list[object]:
    return fed(whole_chain(model, CHOICES), [STARTED, *cut(sound, RATE)])


def passages(facts) -> list[object]:
    return [fact for fact in facts if isinstance(fact, PASSAGES)]


def switching(model: Model) -> Switching:
    return Switching(ArrayInput.of(model), CHOICES, model, load=lambda name: model)


def test_it_fits_the_default_array_and_no_other(model):
    assert model.decides
    assert model.presence is not None
    assert is_starter(model)
    assert not is_starter(replace(model, identity="0" * 64))
    assert starter_model(8000, 4) is None
    assert starter_model(RATE, 3) is None


def test_it_is_sealed_and_small(model):
    """Its content has the identity that it claims, and the package does not grow by much."""
    assert Model.load(STARTER).identity == model.identity
    assert sum(file.stat().st_size for file in STARTER.iterdir()) < 6e6


def test_a_passage_of_the_day_is_found_and_timed(day, expected):
    """The first passage overlaps the audible time; nobody is there before it."""
    truth = day.truth(0)
    ended = [fact for fact in expected if isinstance(fact, PassageEnded)]
    assert ended
    start, stop = ended[0].passage.start / RATE, ended[0].passage.stop / RATE
    assert start < truth.end_seconds
    assert stop > truth.start_seconds
    before = [
        fact
        for fact in expected
        if isinstance(fact, Decision) and fact.features.span.stop < truth.enters_seconds * RATE
    ]
    assert all(fact.outcome.reason == "nobody" for fact in before)


@pytest.mark.parametrize("size", [4321, 80 * RATE])
def test_any_cut_of_the_sound_gives_the_same_passages(model, sound, expected, size):
    assert same(passages(fed(whole_chain(model, CHOICES), [STARTED, *cut(sound, size)])), passages(expected))


def test_the_daemons_chain_gives_the_same(model, sound, expected):
    assert same(fed(switching(model), [STARTED, *cut(sound, RATE)]), expected)


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_it_goes_on_from_a_checkpoint(model, sound, expected, share):
    """Before, within and after the passage: a restored chain says the same to the bit."""
    blocks = [STARTED, *cut(sound, RATE)]
    place = round(share * len(blocks))
    first, second = switching(model), switching(model)
    before = pushed(first, blocks[:place])
    second.restore(first.snapshot())
    assert same(before + fed(second, blocks[place:]), expected)


def test_another_model_goes_on_with_an_open_passage(model, sound, expected):
    """A swap in the middle of the passage: one start and one end, with one id."""
    started = next(fact for fact in expected if isinstance(fact, PassageStarted))
    second = started.sample // RATE + 4
    blocks: list[object] = [STARTED, *cut(sound, RATE)]
    blocks.insert(second, ModelChanged((second - 1) * RATE, model.name))
    found = passages(fed(switching(model), blocks))
    assert [type(one) for one in found].count(PassageStarted) == len(
        [one for one in expected if isinstance(one, PassageStarted)]
    )
    assert {one.passage.id for one in found} == {one.passage.id for one in passages(expected)}


@pytest.mark.parametrize("share", [0.05, 20.0])
def test_a_model_with_another_threshold_starts_another_audit(model, share):
    """Its thresholds are others, so the audit of the model before it ends at the swap; each has over a minute."""
    presence = model.presence
    assert presence is not None
    other = replace(model, presence=replace(presence, hours=share * presence.hours))
    expected = [one.presence.threshold(CHOICES.false_passages_per_day) for one in (model, other)]
    assert expected[0] != expected[1]
    quiet = Day(Site(seed=11), hours=0.05, passages_per_day=0, distractors_per_day=0).read(0, 140 * RATE)
    blocks: list[object] = [STARTED, *cut(quiet, RATE)]
    blocks.insert(71, ModelChanged(70 * RATE, other.name))
    audits = [
        fact
        for fact in fed(Switching(ArrayInput.of(model), CHOICES, model, load=lambda name: other), blocks)
        if isinstance(fact, PresenceAudited)
    ]
    assert [one.threshold for one in audits] == expected
    assert all(below < one.threshold for one in audits for below in one.thresholds)


def test_a_passage_open_at_a_model_without_presence_ends(model, sound, expected):
    """Decisions without a model have no presence, so nothing could end it later."""
    started = next(fact for fact in expected if isinstance(fact, PassageStarted))
    second = started.sample // RATE + 4
    blocks: list[object] = [STARTED, *cut(sound, RATE)]
    blocks.insert(second, ModelChanged((second - 1) * RATE, ""))
    found = passages(fed(switching(model), blocks))
    assert isinstance(found[-1], PassageEnded)
    assert found[-1].passage.id == started.passage.id


@pytest.mark.parametrize("kind", ["white", "pink", "brown", "silence", "sine"])
def test_noise_and_silence_are_nobody(model, kind):
    """Half a minute each: no passage, and at most 5 % of the segments with a label."""
    n = 30 * RATE
    rng = np.random.default_rng(0)
    spectrum = np.fft.rfft(rng.standard_normal((4, n)))
    frequencies = np.maximum(np.arange(spectrum.shape[1]), 1.0)
    exponent = {"white": 0.0, "pink": 0.5, "brown": 1.0}.get(kind, 0.0)
    samples = np.fft.irfft(spectrum * frequencies**-exponent, n)
    samples *= 0.01 / samples.std()
    if kind == "silence":
        samples[:] = 0
    if kind == "sine":
        samples[:] = 0.05 * np.sin(2 * np.pi * 440 * np.arange(n) / RATE)
    block = Block(0, samples.astype(np.float32), np.ones(4, bool))
    facts = fed(whole_chain(model, Choices()), [STARTED, block])
    decisions = [fact for fact in facts if isinstance(fact, Decision)]
    assert len(decisions) > 50
    assert not passages(facts)
    assert np.mean([fact.outcome.label is not None for fact in decisions]) <= 0.05


def test_without_presence_every_segment_is_decided_about(model, sound):
    """As before there was any: no passage, and labels while nobody is there."""
    facts = fed(whole_chain(model, replace(CHOICES, presence=False)), [STARTED, *cut(sound[:, : 10 * RATE], RATE)])
    decisions = [fact for fact in facts if isinstance(fact, Decision)]
    assert not passages(facts)
    assert all(fact.presence is None and fact.outcome.reason != "nobody" for fact in decisions)
