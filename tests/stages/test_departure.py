"""Which of two groups of sensors that contradict each other left its own past."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.stages.departure import Departures, connected

EVERYONE = np.ones(4, bool)


def agreeing(*groups):
    agree = np.zeros((4, 4), bool)
    for group in groups:
        for a, b in combinations(group, 2):
            agree[a, b] = agree[b, a] = True
    return agree


ALL = agreeing((0, 1, 2, 3))


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))), st.sets(st.integers(0, 5)))
def test_groups_are_those_that_repeated_merging_finds(edges, left_out):
    """Against the closure of the relation, by powers of its matrix."""
    agree, usable = np.zeros((6, 6), bool), np.isin(np.arange(6), list(left_out), invert=True)
    for a, b in edges:
        agree[a, b] = True
    step = ((agree | agree.T) & usable & usable[:, None]) | np.diag(usable)
    reached = np.linalg.matrix_power(step.astype(np.int64), 6) > 0
    expected = sorted({tuple(np.flatnonzero(row).tolist()) for row in reached[usable]})
    assert sorted(tuple(group) for group in connected(agree, usable)) == expected


@pytest.mark.parametrize("pair", list(combinations(range(4), 2)))
def test_the_pair_that_jumped_is_named_and_forgiven_when_all_agree_again(pair):
    rng = np.random.default_rng(0)
    rest = [s for s in range(4) if s not in pair]
    departures = Departures()
    for _ in range(5):
        assert not departures.take(rng.normal(0, 0.1, (4, 8)).astype(np.float32), ALL, EVERYONE).any()
    for _ in range(6):
        x = rng.normal(0, 0.1, (4, 8)).astype(np.float32)
        x[list(pair)] += 1.0
        found = departures.take(x, agreeing(pair, rest), EVERYONE)
        assert np.flatnonzero(found).tolist() == list(pair)
    quiet = np.zeros((4, 8), np.float32)
    held = [bool(departures.take(quiet, ALL, EVERYONE).any()) for _ in range(5)]
    assert held == [True, True, True, False, False]


def test_without_a_past_nobody_is_named():
    departures = Departures()
    x = np.zeros((4, 8), np.float32)
    x[:2] += 1.0
    for _ in range(5):
        assert not departures.take(x, agreeing((0, 1), (2, 3)), EVERYONE).any()


def test_single_sensors_are_left_to_the_screen():
    """One sensor against three is no group, and a group against strangers is no pair of groups."""
    departures = Departures()
    x = np.zeros((4, 8), np.float32)
    departures.take(x, ALL, EVERYONE)
    for agree in (agreeing((0, 1, 2)), agreeing((0, 1))):
        assert not departures.take(x + 1, agree, EVERYONE).any()


def test_what_is_usual_is_not_learned_while_groups_contradict_each_other():
    """However long the replay lasts, the pair that replays stays the one that departed."""
    departures = Departures()
    x = np.zeros((4, 8), np.float32)
    departures.take(x, ALL, EVERYONE)
    x[:2] += 1.0
    for _ in range(200):
        found = departures.take(x, agreeing((0, 1), (2, 3)), EVERYONE)
    assert found.tolist() == [True, True, False, False]
