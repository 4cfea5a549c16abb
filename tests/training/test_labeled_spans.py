"""What is labelled now, against a painter who paints every sample."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipeline.training.labeled_spans import LabeledPassage, LabeledSpan, current_labels, passages, recording_of

ROWS = st.lists(
    st.builds(
        lambda recording, start, length, label: {
            "recording": recording,
            "start": start,
            "stop": start + length,
            "label": label,
        },
        st.sampled_from(["a", "b"]),
        st.integers(0, 25),
        st.integers(1, 15),
        st.sampled_from(["human", "human_animal", None]),
    ),
    max_size=12,
)


def painted(rows) -> dict[tuple[str, int], str]:
    """Sample by sample, in the order in which labels were given."""
    canvas: dict[tuple[str, int], str | None] = {}
    for row in rows:
        for sample in range(row["start"], row["stop"]):
            canvas[row["recording"], sample] = row["label"]
    return {place: label for place, label in canvas.items() if label is not None}


@given(ROWS)
def test_every_sample_has_the_label_that_was_given_last(rows):
    """Later rows win, rows without a label take back, and nothing else happens."""
    found = current_labels(rows)
    unfolded = {
        (recording, sample): stretch.label
        for recording, stretches in found.items()
        for stretch in stretches
        for sample in range(stretch.start, stretch.stop)
    }
    assert unfolded == painted(rows)
    assert sum(s.stop - s.start for stretches in found.values() for s in stretches) == len(unfolded)


@given(ROWS)
def test_stretches_are_as_long_as_they_can_be(rows):
    """In order, without overlap, and two that touch have different labels."""
    for stretches in current_labels(rows).values():
        for one, other in pairwise(stretches):
            assert one.stop <= other.start
            assert one.stop < other.start or one.label != other.label


@given(ROWS, st.integers(0, 40), st.integers(1, 10))
def test_a_range_has_a_label_if_all_its_samples_do(rows, start, length):
    """And if it is the same throughout."""
    canvas, found = painted(rows), passages(current_labels(rows), rate_hz=100)
    for one in found:
        inside = {canvas.get((one.recording, sample)) for sample in range(start, start + length)}
        label = one.label_of(start, start + length)
        assert label is None or inside == {label}
        if len(inside) == 1 and None not in inside and one.start <= start < one.stop:
            assert label == inside.pop()


def test_stretches_less_than_half_a_minute_apart_are_one_passage():
    """Counted from the end of one to the start of the next."""
    stretches = [LabeledSpan(0, 100, "a"), LabeledSpan(399, 500, "b"), LabeledSpan(800, 900, "a")]
    assert passages({"r": stretches}, rate_hz=10) == [
        LabeledPassage("r", (stretches[0], stretches[1])),
        LabeledPassage("r", (stretches[2],)),
    ]


def test_a_passage_names_its_recording():
    """Also where the recording's own name looks like that of a passage."""
    for recording in ("r", "night@2", "a@b"):
        assert recording_of(LabeledPassage(recording, (LabeledSpan(7, 9, "a"),)).name) == recording
    assert recording_of("plain") == "plain"
