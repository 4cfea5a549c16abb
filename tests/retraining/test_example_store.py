"""The store of examples: bounded, balanced, up to date with the labels, and not impressed by damage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import SourceError, UsageError
from pipeline.core.events import Span, Views
from pipeline.retraining.example_store import ExampleStore, balanced
from pipeline.training.examples import NOBODY
from pipeline.training.labeled_spans import LabeledPassage, LabeledSpan

SEGMENT, STRIDE = 100, 50
CLASSES = ("human", "human_animal")


def views(start: int) -> Views:
    """A segment that carries its own place, and in its timing the negative of it."""
    span = Span(start, start + SEGMENT)
    everyone = np.ones(2, np.bool_)
    summary, timing = np.full((2, 6), start, np.float32), np.full((2, 4), -start, np.float32)
    return Views(span, span, summary, timing, everyone, everyone)


def hear(passage: LabeledPassage) -> list[Views]:
    return [views(start) for start in range(passage.start, passage.stop - SEGMENT + 1, STRIDE)]


def passage(start: int, stop: int, label: str = "human", recording: str = "night") -> LabeledPassage:
    return LabeledPassage(recording, (LabeledSpan(start, stop, label),))


def deaf(passage: LabeledPassage) -> list[Views]:
    raise SourceError("the sound is gone")


def store(tmp_path, most: int = 1000) -> ExampleStore:
    return ExampleStore(tmp_path / "examples", most_segments=most, trouble=pytest.fail)


COUNTS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), min_size=n, max_size=n)
)


@given(COUNTS, st.integers(0, 60))
def test_thinning_takes_from_the_largest(given_counts, most):
    """As many as fit are kept, no class or passage is cut below a smaller one, and the oldest go last."""
    counts = np.array(given_counts)
    kept = balanced(counts, most)
    assert (kept <= counts).all()
    assert kept.sum() == min(most, counts.sum())
    classes, before = kept.sum(axis=0), counts.sum(axis=0)
    for cut in np.flatnonzero(classes < before):
        assert classes.max() <= classes[cut] + 1
    for code in (0, 1):
        own = kept[:, code]
        for cut in np.flatnonzero(own < counts[:, code]):
            assert own.max() <= own[cut] + 1
            # Among those that were cut, a newer one never has less.
            assert all(own[later] >= own[cut] for later in range(cut, len(own)) if own[later] < counts[later, code])


def test_what_is_labelled_is_learned_from(tmp_path):
    """Segments inside their labels, and none across two of them."""
    examples = store(tmp_path)
    two = LabeledPassage("night", (LabeledSpan(0, 230, "human"), LabeledSpan(230, 400, "human_animal")))
    assert examples.update([two], hear, segment=SEGMENT, labelled={"night"}) == 1
    loaded = examples.load(CLASSES)
    assert loaded.start.tolist() == [0, 50, 100, 250, 300]
    assert loaded.label.tolist() == [0, 0, 0, 1, 1]
    assert loaded.summary.shape == (5, 2, 6)
    assert (loaded.summary == loaded.start[:, None, None]).all()
    assert loaded.timing.shape == (5, 2, 4)
    assert (loaded.timing == -loaded.start[:, None, None]).all()
    (note,) = loaded.recordings
    assert note.name == "night@0"
    assert note.label_counts == {"human": 3, "human_animal": 2}


def test_nothing_is_heard_twice(tmp_path):
    """What is stored already need not be read again."""
    examples = store(tmp_path)
    examples.update([passage(0, 300)], hear, segment=SEGMENT, labelled={"night"})
    assert examples.update([passage(0, 300)], deaf, segment=SEGMENT, labelled={"night"}) == 0
    assert len(examples.load(CLASSES)) == 5


def test_a_corrected_label_replaces_the_examples_also_without_their_sound(tmp_path):
    """Views of the segments are kept; their labels are the new ones."""
    examples = store(tmp_path)
    examples.update([passage(0, 300), passage(900, 1200)], hear, segment=SEGMENT, labelled={"night"})
    corrected = [passage(0, 300, "human_animal"), passage(900, 1100)]
    assert examples.update(corrected, lambda passage: [], segment=SEGMENT, labelled={"night"}) == 2
    loaded = examples.load(CLASSES)
    assert dict(zip(loaded.start.tolist(), loaded.label.tolist(), strict=True)) == (
        dict.fromkeys(range(0, 250, 50), 1) | dict.fromkeys([900, 950, 1000], 0)
    )
    assert (loaded.summary == loaded.start[:, None, None]).all()
    assert (loaded.timing == -loaded.start[:, None, None]).all()


def test_a_label_that_is_taken_back_takes_the_examples_with_it(tmp_path):
    """References stay: nobody labelled them in the stream."""
    examples = store(tmp_path)
    examples.add_reference(passage(0, 200, recording="given"), hear(passage(0, 200)), segment=SEGMENT)
    examples.update([passage(0, 300)], hear, segment=SEGMENT, labelled={"night"})
    examples.update([], hear, segment=SEGMENT, labelled={"night"})
    (note,) = examples.load(CLASSES).recordings
    assert (note.name, note.reference) == ("given@0", True)


def test_a_journal_that_was_lost_takes_no_examples_with_it(tmp_path):
    """Labels are never deleted: where there are none at all, nothing was taken back."""
    examples = store(tmp_path)
    examples.update([passage(0, 300)], hear, segment=SEGMENT, labelled={"night"})
    other = passage(0, 200, recording="day")
    examples.update([other], hear, segment=SEGMENT, labelled={"day"})
    assert [note.name for note in examples.load(CLASSES).recordings] == ["day@0", "night@0"]


def test_a_passage_whose_sound_cannot_be_read_is_told_and_tried_again(tmp_path):
    """It is not taken for heard."""
    troubles: list[str] = []
    examples = ExampleStore(tmp_path / "examples", most_segments=1000, trouble=troubles.append)
    assert examples.update([passage(0, 300)], deaf, segment=SEGMENT, labelled={"night"}) == 0
    assert troubles == ["night@0: the sound is gone"]
    with pytest.raises(UsageError, match="nothing is labelled 'human' or"):
        examples.load(CLASSES)
    assert examples.update([passage(0, 300)], hear, segment=SEGMENT, labelled={"night"}) == 1


def test_the_store_is_bounded_and_evenly_thinned(tmp_path):
    """First to last segment of the longest passage remain; the short one of the rare class is left alone."""
    examples = store(tmp_path, most=10)
    examples.update([passage(0, 2000), passage(5000, 5200, "human_animal")], hear, segment=SEGMENT, labelled={"night"})
    loaded = examples.load(CLASSES)
    assert len(loaded) == 10
    assert loaded.start[loaded.label == 1].tolist() == [5000, 5050, 5100]
    kept = loaded.start[loaded.label == 0]
    assert kept[[0, -1]].tolist() == [0, 1900]
    assert np.diff(kept).max() - np.diff(kept).min() <= STRIDE
    before = {note.name: note.fingerprint for note in loaded.recordings}
    store(tmp_path, most=6).thin()
    assert {note.name: note.fingerprint for note in examples.load(CLASSES).recordings} == before


def test_what_was_made_with_other_settings_is_left_out(tmp_path):
    """A segment with another number of values in either view does not fit among the others."""
    examples = store(tmp_path)
    examples.update([passage(0, 300)], hear, segment=SEGMENT, labelled={"night"})
    for name, wider in (("evening", ("summary",)), ("morning", ("timing",))):
        given = passage(0, 300, recording=name)
        other = [replace(one, **{view: np.zeros((2, 9), np.float32) for view in wider}) for one in hear(given)]
        examples.add_reference(given, other[:2], segment=SEGMENT)
    assert [note.name for note in examples.load(CLASSES).recordings] == ["night@0"]


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:300] + b"\xff" + b[301:]])
def test_a_damaged_file_is_told_left_out_and_made_again(damage, tmp_path):
    """Half of it, nothing of it, one byte of it."""
    troubles: list[str] = []
    examples = ExampleStore(tmp_path / "examples", most_segments=1000, trouble=troubles.append)
    wanted = [passage(0, 300), passage(900, 1200)]
    examples.update(wanted, hear, segment=SEGMENT, labelled={"night"})
    victim = sorted((tmp_path / "examples").glob("*.npz"))[0]
    victim.write_bytes(damage(victim.read_bytes()))
    assert len(examples.load(CLASSES).recordings) == 1
    assert f"{victim.name} cannot be used" in troubles[0]
    assert examples.update(wanted, hear, segment=SEGMENT, labelled={"night"}) == 1
    assert len(examples.load(CLASSES).recordings) == 2


def test_a_file_of_an_earlier_version_is_made_again_from_its_sound(tmp_path):
    """It holds flattened cepstra instead of the two views."""
    troubles: list[str] = []
    examples = ExampleStore(tmp_path / "examples", most_segments=1000, trouble=troubles.append)
    wanted = [passage(0, 300), passage(900, 1200)]
    examples.update(wanted, hear, segment=SEGMENT, labelled={"night"})
    old = sorted((tmp_path / "examples").glob("*.npz"))[0]
    with np.load(old) as arrays:
        rows = {name: arrays[name] for name in ("note", "present", "start", "label")}
    np.savez(old, cepstra=np.zeros((len(rows["start"]), 2, 1950), np.float32), **rows)
    assert len(examples.load(CLASSES).recordings) == 1
    assert troubles == [f"{old.name} cannot be used (an earlier version stored it) and is left out"]
    assert examples.update(wanted, hear, segment=SEGMENT, labelled={"night"}) == 1
    assert len(examples.load(CLASSES).recordings) == 2


def test_files_of_a_writer_that_was_killed_are_cleared_away(tmp_path):
    """They are not examples."""
    examples = store(tmp_path)
    (tmp_path / "examples" / "x.npz.123.partial").write_bytes(b"half")
    examples.update([passage(0, 300)], hear, segment=SEGMENT, labelled={"night"})
    assert [path.suffix for path in (tmp_path / "examples").iterdir()] == [".npz"]


def test_any_number_of_classes_is_loaded_and_nobody_is_kept_apart(tmp_path):
    """Labels become places among the classes; words for nobody one code of their own; other words are left out."""
    held = store(tmp_path)
    labels = ("dog", "human", "nobody", "cat", "Background", "owl")
    wanted = [passage(1000 * n, 1000 * n + 200, label) for n, label in enumerate(labels)]
    held.update(wanted, hear, segment=SEGMENT, labelled={"night"})
    examples = held.load(("cat", "dog", "human"))
    assert sorted(set(zip(examples.start // 1000, examples.label, strict=True))) == [
        (0, 1), (1, 2), (2, NOBODY), (3, 0), (4, NOBODY),
    ]  # fmt: skip
    assert examples.classes == ("cat", "dog", "human")
    assert len(examples.walkers()) == 9
    assert len(examples.nobody()) == 6
    with pytest.raises(UsageError, match="nothing is labelled 'x' or 'y' or 'z'; label some passages of each"):
        held.load(("x", "y", "z"))


def test_nobody_takes_no_room_from_the_classes(tmp_path):
    """It has four times their room, in whole passages, of which the newest stay."""
    held = store(tmp_path, most=10)
    labels = ("nobody", "dog", "human", *["nobody"] * 4)
    wanted = [passage(10_000 * n, 10_000 * n + 600, label) for n, label in enumerate(labels)]
    held.update(wanted, hear, segment=SEGMENT, labelled={"night"})
    examples = held.load(("dog", "human"))
    assert len(examples.walkers()) == 10
    assert sorted(set(examples.nobody().start // 10_000)) == [4, 5, 6]
    assert len(examples.nobody()) == 33
