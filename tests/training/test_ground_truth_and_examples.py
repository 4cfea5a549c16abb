"""What is known of failures, and what may be learned from."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.errors import UsageError
from pipeline.training.examples import NOBODY, Examples, RecordingNote, classes_of, evenly
from pipeline.training.ground_truth import Failure, Truth, read_truth


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


def test_classes_are_all_labels_or_chosen_or_refused():
    """The labels that occur, two or more of them, in the order given; anything else is named."""
    assert classes_of(["b", "a"]) == ("a", "b")
    assert classes_of(["b", "a", "c", "b"]) == ("a", "b", "c")
    assert classes_of(["b", "a", "c"], ["c", "b"]) == ("c", "b")
    with pytest.raises(UsageError, match="nothing is labelled 'd'; the labels are a, b"):
        classes_of(["b", "a"], ["a", "d"])
    for wanted in (["a"], ["a", "b", "a"]):
        with pytest.raises(UsageError, match="must be at least two different labels; choose with --classes"):
            classes_of(["b", "a"], wanted)
    for wanted in (None, ["a"], ["a", "a"]):
        with pytest.raises(UsageError, match=r"1 labels \(a\) must be at least two, .*; label some of another class"):
            classes_of(["a", "a"], wanted)
    with pytest.raises(UsageError, match=r"0 labels \(none\) must be at least two, .*; label some of another class"):
        classes_of([])


def test_a_word_for_nobody_is_no_class():
    """It is left out of the classes, in any case, and refused as one of them."""
    assert classes_of(["b", "Nobody", "a", "noise"]) == ("a", "b")
    with pytest.raises(UsageError, match=r"1 labels \(a\) must be at least two"):
        classes_of(["a", "background"])
    with pytest.raises(UsageError, match="class 'empty' says that nobody is there, which is not a class; leave it out"):
        classes_of(["a", "b", "empty"], ["a", "empty"])


def some(label) -> Examples:
    """Segments of recordings of their own with these labels."""
    n = len(label)
    values = np.arange(n, dtype=np.float32)[:, None, None]
    notes = tuple(RecordingNote(f"r{k}", {}, 10, (0, 10), f"f{k}") for k in range(n))
    numbers = np.arange(n)
    return Examples(
        values, values, np.ones((n, 1), bool), numbers, numbers * 10, np.array(label), notes, ("a", "b", "c")
    )


def test_segments_of_classes_and_of_nobody_are_kept_apart():
    """Each part has its own rows, recordings keep their places; segments without a label are in neither."""
    examples = some([0, NOBODY, 2, -1, 1, NOBODY])
    assert examples.walkers().recording.tolist() == [0, 2, 4]
    assert examples.nobody().recording.tolist() == [1, 5]
    assert examples.nobody().recordings is examples.recordings
    assert len(examples.walkers().walkers()) == 3


def test_every_class_needs_two_recordings():
    with pytest.raises(UsageError, match="1 recording with segments labelled 'c' must be at least 2"):
        some([0, 0, 1, 1, 2, NOBODY, NOBODY]).check()
    some([0, 0, 1, 1, 2, 2, NOBODY]).check()


@pytest.mark.parametrize(("n", "most"), [(0, 5), (5, 5), (100, 7), (8, 1)])
def test_thinning_is_even_and_keeps_the_ends(n, most):
    """Steps differ by at most one; never twice the same."""
    places = evenly(n, most)
    assert len(places) == min(n, most)
    assert len(set(places.tolist())) == len(places)
    if len(places) > 1:
        assert (places[0], places[-1]) == (0, n - 1)
        assert np.ptp(np.diff(places)) <= 1
