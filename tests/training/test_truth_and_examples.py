"""What is known of failures, and what may be learned from."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import UsageError
from pipeline.training.examples import evenly, two_classes
from pipeline.training.truth import Failure, Truth, read_truth


def test_overlap_is_the_share_of_time_and_the_longest_fault():
    """Parts of two failures in one stretch add up; outside there is nothing."""
    truth = Truth([Failure("r", 2, 1.0, 2.0, "dead"), Failure("r", 2, 2.5, 2.75, "hum"), Failure("r", 1, 0, 9, "hum")])
    assert truth.overlap("r", 2, 1.5, 3.5) == (pytest.approx(0.375), "dead")
    assert truth.overlap("r", 2, 3.0, 4.0) == (0.0, "")
    assert truth.overlap("s", 2, 1.0, 2.0) == (0.0, "")
    assert truth.overlap("r", 1, 3.0, 4.0) == (1.0, "hum")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recording,sensor\nr,1\n", "has no column 'start_seconds'"),
        ("recording,sensor,start_seconds,end_seconds,fault\nr,one,0,1,dead\n", "line 2 must have a sensor number"),
        ("recording,sensor,start_seconds,end_seconds,fault\nr,0,0,1,dead\n", "sensor 0 must be 1 or more"),
        ("recording,sensor,start_seconds,end_seconds,fault\nr,1,2,1,dead\n", "the end after the start"),
        ("recording,sensor,start_seconds,end_seconds,fault\nr,1\n", "line 2 must have"),
    ],
)
def test_a_wrong_table_of_failures_is_named(text, message, tmp_path):
    """The file, the line and the rule."""
    (tmp_path / "truth.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_truth(tmp_path / "truth.csv")
    with pytest.raises(UsageError, match="cannot be read"):
        read_truth(tmp_path / "none.csv")


def test_two_classes_are_chosen_or_refused():
    """The labels that occur, or two of them; anything else is named."""
    assert two_classes(["b", "a"]) == ("a", "b")
    assert two_classes(["b", "a", "c"], ["c", "b"]) == ("c", "b")
    with pytest.raises(UsageError, match=r"3 labels \(a, b, c\) must be two; choose with --classes"):
        two_classes(["b", "a", "c"])
    with pytest.raises(UsageError, match="nothing is labelled 'd'; the labels are a, b"):
        two_classes(["b", "a"], ["a", "d"])
    with pytest.raises(UsageError, match=r"1 labels \(a\) must be two; choose with --classes"):
        two_classes(["b", "a"], ["a"])
    for wanted in (None, ["a"], ["a", "a"]):
        with pytest.raises(UsageError, match=r"1 labels \(a\) must be two, .*; label some of another class, too"):
            two_classes(["a", "a"], wanted)
    with pytest.raises(UsageError, match=r"0 labels \(none\) must be two, .*; label some of another class, too"):
        two_classes([])


@pytest.mark.parametrize(("n", "most"), [(0, 5), (5, 5), (100, 7), (8, 1)])
def test_thinning_is_even_and_keeps_the_ends(n, most):
    """Steps differ by at most one; never twice the same."""
    places = evenly(n, most)
    assert len(places) == min(n, most)
    assert len(set(places.tolist())) == len(places)
    if len(places) > 1:
        assert (places[0], places[-1]) == (0, n - 1)
        assert np.ptp(np.diff(places)) <= 1
