"""Labels as people write them, and what is wrong with them when something is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.training.labels import Label, Labels, read_labels


def written(tmp_path, text: str, name: str = "labels.csv", encoding: str = "utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


TABLE = "recording,start_seconds,end_seconds,label\nr1,0,14.0,human\nr2,1.5,3,human_animal\nr2,3,9,human\n"


def test_a_table_is_read(tmp_path):
    """Names, times and labels; columns in any order, more of them, and a byte-order mark make no difference."""
    labels = read_labels(written(tmp_path, TABLE))
    assert [(la.recording, la.start_seconds, la.end_seconds, la.label) for la in labels] == [
        ("r1", 0.0, 14.0, "human"),
        ("r2", 1.5, 3.0, "human_animal"),
        ("r2", 3.0, 9.0, "human"),
    ]
    assert labels.names == ("human", "human_animal")
    assert labels.recordings == ("r1", "r2")
    turned = (
        "label,who,recording,end_seconds,start_seconds\nhuman,me,r1,14.0,0\nhuman_animal,,r2,3,1.5\nhuman,x,r2,9,3\n"
    )
    again = read_labels(written(tmp_path, turned, encoding="utf-8-sig"))
    key = [(la.recording, la.start_seconds, la.label) for la in labels]
    assert [(la.recording, la.start_seconds, la.label) for la in again] == key


def test_what_the_simulator_writes_is_read(tmp_path):
    """The two commands fit together."""
    from pathlib import Path

    labels = read_labels(Path(__file__).parents[2] / "fixtures" / "array" / "labels.csv")
    assert len(list(labels)) == 8
    assert labels.names == ("human", "human_animal")
    labels.check_recordings([f"r{number:03d}" for number in range(1, 9)])


def test_audacity_label_tracks_are_read(tmp_path):
    """One file or a directory of them; frequencies are passed over, commas are points, labels may hold tabs."""
    written(tmp_path, "0.000000\t4.500000\thuman\n\\\t100.0\t2000.0\n4,5\t9\thuman\tand dog\n\n", "r7.txt")
    written(tmp_path, "1\t2\thuman\n", "r8.txt")
    found = [(la.recording, la.start_seconds, la.end_seconds, la.label) for la in read_labels(tmp_path / "r7.txt")]
    assert found == [("r7", 0.0, 4.5, "human"), ("r7", 4.5, 9.0, "human\tand dog")]
    assert read_labels(tmp_path).recordings == ("r7", "r8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"labels.csv has no column 'recording' in its first line \(which is empty\); it needs recording,start"),
        ("recording,start_seconds,label\n", r"has no column 'end_seconds' in its first line \(recording,"),
        (TABLE.split("\n")[0] + "\n", "holds no labels; write at least one line"),
        (TABLE + "r3,0,1\n", "line 5 has fewer values than the first line has columns"),
        (TABLE + ",0,1,human\n", "line 5 has no recording; every line needs one"),
        (TABLE + "r3,0,1, \n", "line 5 has no label"),
        (TABLE + "r3,zero,1,human\n", "line 5: start 'zero' must be a number of seconds from 0 on; for example"),
        (TABLE + "r3,-1,1,human\n", "line 5: start '-1' must be a number"),
        (TABLE + "r3,0,nan,human\n", "line 5: end 'nan' must be a number"),
        (TABLE + "r3,2,2,human\n", "line 5: end 2 must be after start 2; label a stretch"),
        (
            TABLE + "r1,13,15,human_animal\n",
            r"line 5 labels 'r1' as 'human_animal' from 13 s on, .*line 2 as 'human' until",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, message):
    """The file, the line, the value, the rule and the cure."""
    with pytest.raises(UsageError, match=message):
        read_labels(written(tmp_path, text))


def test_unreadable_tracks_are_named(tmp_path):
    """Missing tabs, no tracks at all, not text."""
    with pytest.raises(
        UsageError, match=r"x.txt line 1, '0 1 human', must be a start, an end and a label between tabs"
    ):
        read_labels(written(tmp_path, "0 1 human\n", "x.txt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty holds no label tracks"):
        read_labels(tmp_path / "empty")
    (tmp_path / "b.csv").write_bytes(b"recording,\xff\xfe\n")
    with pytest.raises(UsageError, match="is not UTF-8 text; save it as UTF-8"):
        read_labels(tmp_path / "b.csv")


def test_an_unknown_recording_is_named_with_what_may_be_meant(tmp_path):
    """A misspelt name must not vanish from training."""
    labels = read_labels(written(tmp_path, TABLE))
    labels.check_recordings(["r1", "r2", "r3"])
    with pytest.raises(UsageError, match=r"line 3 labels recording 'r2', which is not there; did you mean r22\?"):
        labels.check_recordings(["r1", "r22"])


@given(
    edges=st.lists(st.integers(0, 40), min_size=2, max_size=10, unique=True),
    names=st.lists(st.sampled_from(["a", "b", ""]), min_size=9, max_size=9),
    start=st.integers(0, 40),
    length=st.integers(1, 20),
)
@settings(max_examples=200)
def test_the_label_of_a_stretch_equals_that_of_all_of_its_moments(edges, names, start, length):
    """Against painting every tenth of a second."""
    edges = sorted(edges)
    stretches = [(a, b, name) for a, b, name in zip(edges, edges[1:], names, strict=False) if name]
    labels = Labels(Label("r", a, b, name) for a, b, name in stretches)
    painted = np.full(700, "", dtype="<U1")
    for a, b, name in stretches:
        painted[10 * a : 10 * b] = name
    inside = set(painted[10 * start : 10 * (start + length)])
    expected = inside.pop() if len(inside) == 1 else ""
    assert labels.of("r", start, start + length) == (expected or None)
    assert labels.of("other", start, start + length) is None


def test_labels_that_agree_may_overlap():
    """Two people labelled the same passage, and a third a part of it."""
    stretches = [Label("r", 0, 5, "a"), Label("r", 3, 9, "a"), Label("r", 4, 6, "a")]
    assert Labels(stretches).of("r", 0, 9) == "a"
    with pytest.raises(UsageError, match="correct one of them"):
        Labels([Label("r", 0, 9, "a"), Label("r", 1, 2, "a"), Label("r", 3, 4, "b")])
