"""Whether a new model may decide: the test by its definition, the verdicts by what they must say."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model.metrics import OTHER_CLASS, Judged
from pipeline.retraining.gate import Gate, p_below_zero, scores

CLASSES = ("human", "human_animal")


def judged(passage: str, truth: int, labels) -> list[Judged]:
    return [Judged(passage, n, truth, label, None, (), ()) for n, label in enumerate(labels)]


def model(*, contamination=(0.0, 0.0), wrong_labels=0.0, trained=(True, True), passages=(), references=()):
    """What the gate wants to know of a model."""
    notes = {
        "contamination": list(contamination),
        "wrong_labels": wrong_labels,
        "doubted_recordings": ["p1", "p2"],
        "recordings": [{"recording": name} for name in passages]
        + [{"recording": name, "reference": True} for name in references],
    }
    machines = tuple(object() if one else None for one in trained)
    return SimpleNamespace(notes=notes, machines=machines, decides=any(trained), classes=CLASSES)


def about(right, *, first: int = 0) -> list[Judged]:
    """Decisions about ten segments of each passage, of which so many are right; classes take turns."""
    found = []
    for n, count in enumerate(right, start=first):
        truth = n % 2
        found += judged(f"p{n}", truth, [truth] * count + [1 - truth] * (10 - count))
    return found


@given(st.lists(st.integers(-10, 10), min_size=1, max_size=9))
def test_the_test_is_the_share_of_sign_flips_that_are_as_low(values):
    """All of them, one by one."""
    x = np.array(values) / 10
    weights = np.full(len(x), 1 / len(x))
    flips = [np.dot(weights * x, signs) for signs in product((-1, 1), repeat=len(x))]
    assert p_below_zero(x, weights) == pytest.approx(np.mean(np.array(flips) <= weights @ x + 1e-12))


@settings(max_examples=20)
@given(st.lists(st.sampled_from([-0.3, -0.1, 0.1, 0.2]), min_size=17, max_size=19))
def test_with_many_passages_draws_take_the_place_of_all_flips(values):
    """They agree within what twenty thousand draws allow."""
    x = np.array(values)
    weights = np.full(len(x), 1 / len(x))
    signs = 1 - 2 * (np.arange(2 ** len(x))[:, None] >> np.arange(len(x)) & 1)
    exact = np.mean(signs.astype(np.int8) @ (weights * x) <= weights @ x + 1e-12)
    assert p_below_zero(x, weights) == pytest.approx(exact, abs=0.02)


def test_no_decision_counts_half():
    """Between right and wrong, for each label of a passage."""
    found = scores([*judged("a", 0, [0, 0, None, 1]), *judged("a", 1, [1]), *judged("b", 1, [None, None])])
    assert found == {("a", 0): 0.625, ("a", 1): 1.0, ("b", 1): 0.5}


def verdict(challenger_right, champion_right, *, challenger=None, champion=None, **limits):
    return Gate(**limits).judge(
        challenger or model(), about(challenger_right), champion or model(), about(champion_right)
    )


def test_as_good_passes():
    """Better here and worse there, by the same amount."""
    found = verdict([9, 8, 9, 8] * 4, [8, 9, 8, 9] * 4)
    assert found["passed"]
    assert found["compared"]["passages"] == 16
    assert found["compared"]["difference"]["value"] == 0


def test_worse_on_average_is_refused():
    """More than the margin; the reason has the numbers."""
    found = verdict([8] * 12, [9] * 12)
    assert found["reasons"][0] == "its score is 0.100 below the champion's on 12 passages, more than 0.01"
    assert verdict([8] * 12, [9] * 12, worse=0.2)["reasons"][0].endswith("hardly by chance (p = 0.000)")


def test_classes_count_the_same():
    """A gain in the frequent class does not outweigh a loss in the rare one."""
    common = [one for n in range(20) for one in judged(f"c{n}", 0, [0] * 10)]
    rare = [one for n in range(3) for one in judged(f"r{n}", 1, [1] * 10)]
    worse = [one for n in range(3) for one in judged(f"r{n}", 1, [0] * 4 + [1] * 6)]
    sloppy = [one for n in range(20) for one in judged(f"c{n}", 0, [1] + [0] * 9)]
    found = Gate().judge(model(), common + worse, model(), sloppy + rare)
    assert found["compared"]["difference"]["value"] == pytest.approx(0.5 * 0.1 - 0.5 * 0.4)
    assert not found["passed"]


def test_references_are_looked_at_by_themselves():
    """Wrong labels in the stream may please a challenger; those that came with the first model do not."""
    references = [f"p{n}" for n in range(6)]
    found = verdict([6] * 6 + [9] * 20, [9] * 6 + [5] * 20, challenger=model(references=references))
    assert found["compared"]["difference"]["value"] > 0
    assert found["reasons"] == [
        "its score is 0.300 below the champion's on 6 passages that came with the first model, more than 0.01"
    ]


def test_what_is_new_to_the_champion_is_looked_at_by_itself():
    """There it is not models like it that are judged, but the champion itself."""
    known = model(passages=[f"p{n}" for n in range(20)])
    found = verdict([9] * 20 + [5] * 8, [6] * 20 + [9] * 8, champion=known)
    assert [reason for reason in found["reasons"] if "8 passages that are new to the champion" in reason]


@pytest.mark.parametrize(
    ("challenger", "champion", "refused"),
    [
        (model(contamination=(0.4, 0)), model(), True),
        (model(contamination=(0.29, 0)), model(), False),
        (model(contamination=(0.4, 0), trained=(False, True)), model(), False),
        (model(contamination=(0.4, 0)), model(contamination=(0.45, 0)), False),
        (model(contamination=(0.4, 0)), model(contamination=(0.35, 0)), True),
        (model(contamination=(0.4, 0)), model(contamination=(0.45, 0), trained=(False, True)), True),
    ],
)
def test_a_sensor_that_failed_too_often_is_not_learned_from(challenger, champion, refused):
    """Unless nothing was learned from it, or the champion has learned from worse."""
    found = verdict([9] * 8, [9] * 8, challenger=challenger, champion=champion)
    assert bool([reason for reason in found["reasons"] if "sensor 1 did not deliver 40%" in reason]) is refused
    assert found["passed"] is not refused


def test_too_many_wrong_labels_are_refused():
    """And some of them are named."""
    found = verdict([9] * 8, [9] * 8, challenger=model(wrong_labels=0.35))
    assert found["reasons"] == ["35% of the labels seem wrong, more than 20%: check those of p1 and p2"]


@pytest.mark.parametrize(("right", "passed"), [([9] * 10, True), ([5, 5, 6, 4, 5, 5], False), ([], False)])
@pytest.mark.parametrize("champion", [None, model(trained=(False, False))])
def test_the_first_one_that_decides_must_be_better_than_chance(right, passed, champion):
    """There is nobody to compare it with."""
    found = Gate().judge(model(), about(right), champion, [])
    assert found["passed"] is passed
    assert passed or "no better than chance" in found["reasons"][0]


def test_who_is_no_better_than_chance_is_refused_however_bad_the_champion_is():
    """Labels that contradict each other make everybody bad."""
    found = verdict([5, 6, 4, 5] * 4, [5, 4, 5, 5] * 4)
    assert found["compared"]["difference"]["value"] > 0
    assert "no better than chance" in found["reasons"][0]


def test_what_cannot_be_told_is_refused():
    """As good on average, but by chance: very good here, very bad there."""
    found = verdict([10, 10, 10, 10, 2, 2] * 2, [5, 5, 5, 5, 10, 10] * 2)
    assert found["compared"]["difference"]["value"] > 0
    assert [
        reason for reason in found["reasons"] if "for all that 12 passages say, more than 0.1; label more" in reason
    ]


def test_other_classes_are_for_an_operator_to_decide():
    """They cannot be compared."""
    other = model()
    other.classes = ("cat", "dog")
    found = Gate().judge(model(), about([9] * 8), other, [])
    assert found["reasons"] == [
        "it tells human and human_animal apart, the champion cat and dog: they cannot be compared; promote it by hand "
        "if that is meant"
    ]


def of_three(right, *, wrong: int = 1) -> list[Judged]:
    """Decisions about ten segments of each passage, of which so many are right; three classes take turns."""
    found = []
    for n, count in enumerate(right):
        found += judged(f"p{n}", n % 3, [n % 3] * count + [(n + wrong) % 3] * (10 - count))
    return found


def three_classes(**facts):
    found = model(**facts)
    found.classes = ("cat", "dog", "human")
    return found


def test_no_decision_among_three_classes_counts_a_third():
    """As guessing would."""
    found = scores(judged("a", 2, [2, None, None, 0]), 3)
    assert found == {("a", 2): pytest.approx((1 + 2 / 3) / 4)}


def test_three_classes_are_compared_as_two_are():
    """Passes as good, is refused if worse, and must beat chance, which is one third."""
    gate = Gate()
    assert gate.judge(three_classes(), of_three([9] * 15), three_classes(), of_three([9] * 15))["passed"]
    worse = gate.judge(three_classes(), of_three([6] * 15), three_classes(), of_three([9] * 15))
    assert worse["reasons"][0] == "its score is 0.300 below the champion's on 15 passages, more than 0.01"
    guessing = gate.judge(three_classes(), of_three([3, 4, 3] * 5), None, [])
    assert "no better than chance, 0.33; label more passages" in guessing["reasons"][0]
    assert gate.judge(three_classes(), of_three([5] * 15), None, [])["passed"]


def test_each_of_three_classes_counts_the_same():
    """A loss in a rare class is a third of all, however many passages the others have."""
    common = [one for n in range(20) for one in judged(f"c{n}", n % 2, [n % 2] * 10)]
    rare = [one for n in range(3) for one in judged(f"r{n}", 2, [2] * 10)]
    lost = [one for n in range(3) for one in judged(f"r{n}", 2, [0] * 3 + [2] * 7)]
    found = Gate().judge(three_classes(), common + lost, three_classes(), common + rare)
    assert found["compared"]["difference"]["value"] == pytest.approx(-0.3 / 3, abs=1e-6)


def test_a_model_of_other_classes_is_not_compared():
    found = Gate().judge(three_classes(), of_three([9] * 15), model(), [])
    assert found["reasons"] == [
        "it tells cat, dog and human apart, the champion human and human_animal: they cannot be compared; promote it "
        "by hand if that is meant"
    ]


def test_a_champion_whose_classes_may_go_is_compared_by_name():
    """What it calls by a name that the challenger does not have is wrong."""
    by_other_names = [replace(one, label=OTHER_CLASS) for one in about([9] * 16)]
    better = Gate().judge(model(), about([8] * 16), three_classes(), by_other_names, classes_may_change=True)
    assert better["passed"]
    assert better["compared"]["champion"]["value"] == 0.0
    worse = Gate().judge(model(), about([7] * 16), three_classes(), about([9] * 16), classes_may_change=True)
    assert worse["reasons"][0] == "its score is 0.200 below the champion's on 16 passages, more than 0.01"
