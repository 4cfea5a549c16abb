"""A champion and what is labelled after it: clean, with a stale sensor, with wrong labels.

All are simulated at a low rate. The truth is a test set that nobody has learned from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.events import Block, RecordingStarted, Views
from pipeline.model.build import listening
from pipeline.model.hot_swap import ArrayInput
from pipeline.model.model import Model
from pipeline.retraining.gate import Gate, scores
from pipeline.runtime.process_pool import ThisProcess
from pipeline.simulation.scene import HUMAN, HUMAN_WITH_ANIMAL, Site, draw_scene
from pipeline.stages import Chain
from pipeline.training.cross_validation import LearningPlan, judge, judge_honestly, learn_validated
from pipeline.training.examples import Examples, RecordingNote, views_of

RATE = 4000
SITE = Site(seed=3, rate_hz=RATE, duration_seconds=4.5)
CLASSES = (HUMAN, HUMAN_WITH_ANIMAL)
HEARING = ArrayInput.usual(RATE, 4)
LEARNING = LearningPlan(HEARING.grid, HEARING.settings, seed=0, components=12, folds=2)
GIVEN, NEW, TEST = range(16), range(100, 124), range(200, 230)
BAD = range(104, 114)
"""Of those that are new, 42 %, as many of either class."""


def heard(number: int, *, stale: bool = False) -> list[Views]:
    scene = draw_scene(SITE, number, CLASSES[number % 2])
    samples = scene.recorded().samples.copy()
    if stale:
        samples[1] = scene.elsewhere[1]
    chain = Chain(*listening(HEARING.grid, HEARING.settings))
    chain.push(RecordingStarted(str(number), RATE, tuple("1234")))
    return [fact for fact in chain.push(Block(0, samples, np.ones(4, np.bool_))) if isinstance(fact, Views)]


@pytest.fixture(scope="module")
def sound() -> dict[int, list[Views]]:
    return {number: heard(number) for number in (*GIVEN, *NEW, *TEST)}


def examples(sound: dict[int, list[Views]], numbers: Collection[int], wrong: Collection[int] = ()) -> Examples:
    rows = [(place, number, fact) for place, number in enumerate(numbers) for fact in sound[number]]
    return Examples(
        **views_of([fact for *_, fact in rows]),
        recording=np.array([place for place, *_ in rows]),
        label=np.array([number % 2 ^ (number in wrong) for _, number, _ in rows]),
        recordings=tuple(
            RecordingNote(f"p{n}@0", {}, SITE.length, (0, SITE.length), f"{n}", n in GIVEN) for n in numbers
        ),
        classes=CLASSES,
    )


@pytest.fixture(scope="module")
def champion(sound) -> Model:
    return learn_validated(examples(sound, GIVEN), LEARNING, engine=ThisProcess())


def contest(learned_from: Examples, champion: Model) -> tuple[Model, dict]:
    challenger = learn_validated(learned_from, LEARNING, engine=ThisProcess())
    honest, opposed = (judge_honestly(learned_from, one) for one in (challenger, champion))
    return challenger, Gate().judge(challenger, honest, champion, opposed)


def score(model: Model, sound) -> float:
    return float(np.mean(list(scores(judge(examples(sound, TEST), model)).values())))


@pytest.fixture(scope="module")
def clean(sound, champion) -> tuple[Model, dict]:
    return contest(examples(sound, [*GIVEN, *NEW]), champion)


def test_more_labels_make_a_challenger_that_passes(sound, champion, clean):
    """And it is better on what neither has seen."""
    challenger, verdict = clean
    assert verdict["passed"], verdict["reasons"]
    assert score(challenger, sound) >= score(champion, sound)


def test_a_stale_sensor_in_many_passages_does_no_harm(sound, champion, clean):
    """It is found; who learned all the same is as good as with clean sound, or is refused."""
    stale = sound | {number: heard(number, stale=True) for number in BAD}
    challenger, verdict = contest(examples(stale, [*GIVEN, *NEW]), champion)
    assert challenger.notes["contamination"][1] > 0.15 > max(np.delete(challenger.notes["contamination"], 1))
    assert not verdict["passed"] or score(challenger, sound) >= score(clean[0], sound) - 0.05


def test_wrong_labels_in_many_passages_do_no_harm(sound, champion):
    """The champion stays, or the challenger is as good."""
    challenger, verdict = contest(examples(sound, [*GIVEN, *NEW], wrong=BAD), champion)
    assert not verdict["passed"] or score(challenger, sound) >= score(champion, sound) - 0.02


def test_a_class_that_is_called_by_the_name_of_the_other_does_no_harm(sound, champion):
    """Somebody who hears a herd where there is none: half of one class."""
    wrong = [number for number in NEW if number % 2 == 0][:10]
    challenger, verdict = contest(examples(sound, [*GIVEN, *NEW], wrong=wrong), champion)
    assert not verdict["passed"] or score(challenger, sound) >= score(champion, sound) - 0.02


def test_of_passages_it_has_learned_from_a_model_says_only_what_it_said_without_them(sound, champion):
    """Of others it says what it thinks; the truth is what the labels say now."""
    known, new = GIVEN[0], NEW[0]
    own = {one.start_sample: one.label for one in champion.judged_without(f"{known}", "")}
    direct = {one.start_sample: one.label for one in judge(examples(sound, [new]), champion)}
    found = judge_honestly(examples(sound, [known, new], wrong=[known]), champion)
    assert {one.start_sample: one.label for one in found if one.recording == f"p{known}@0"} == own
    assert {one.start_sample: one.label for one in found if one.recording == f"p{new}@0"} == direct
    assert {one.truth for one in found if one.recording == f"p{known}@0"} == {1 - known % 2}


def test_a_passage_that_has_grown_is_still_known(sound, champion):
    """Only of the segments that the model has learned from is there an honest word."""
    grown = examples(sound, [GIVEN[1]])
    found = judge_honestly(replace(grown, start=grown.start + HEARING.grid.stride), champion)
    assert [one.start_sample for one in found] == grown.start[1:].tolist()


def test_a_model_that_was_never_tried_without_a_passage_says_nothing_of_it(sound, champion):
    """Rather than what it remembers."""
    assert judge_honestly(examples(sound, [GIVEN[0]]), replace(champion, held_out=None)) == []
