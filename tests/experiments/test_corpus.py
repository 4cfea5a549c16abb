"""Recordings, their features on disk, and splits that share no source."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import soundfile
from rich.console import Console

from pipeline.core.errors import UsageError
from pipeline.core.events import Block, Span
from pipeline.core.framing import Grid
from pipeline.core.segment_views import PAPER, TWO_VIEWS
from pipeline.experiments.corpus import (
    N_SEGMENTS,
    CorpusEntry,
    OwnRecordings,
    SimulatedSubjects,
    crackling,
    digest_of,
    failed_share,
    features_of,
    loaded,
    split,
    view_slices,
)
from pipeline.model.build import hearing_settings, listening
from pipeline.runtime.process_pool import ThisProcess
from pipeline.simulation.faults import FaultEpisode
from pipeline.stages import Chain


def entries_of(n_sources: int, per_source: int = 3) -> list[CorpusEntry]:
    """Every source has recordings of both classes."""
    return [
        CorpusEntry(f"{source}-{number}", "ab"[number % 2], f"source {source}")
        for source in range(n_sources)
        for number in range(per_source)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_no_source_lies_on_both_sides(seed):
    """So many of each class for training, and whole sources for testing."""
    entries = entries_of(12)
    train, test = split(entries, 4, np.random.default_rng(seed))
    assert not {entries[place].source for place in train} & {entries[place].source for place in test}
    assert Counter(entries[place].label for place in train) == {"a": 4, "b": 4}


def test_half_of_the_sources_are_learned_from():
    """Few sources with many recordings: training on as few of them as possible would be a poor school."""
    entries = entries_of(8, per_source=20)
    train, test = split(entries, 12, np.random.default_rng(0))
    assert Counter(entries[place].source for place in train).most_common(1)[0][1] == 6
    assert len({entries[place].source for place in test}) == 4


def test_subjects_of_their_own_are_all_used():
    """As published: 25 and 25 for training, 59 and 41 for testing."""
    entries = SimulatedSubjects(84, 66, seed=1).entries()
    train, test = split(entries, 25, np.random.default_rng(0))
    assert sorted(train + test) == list(range(150))
    assert Counter(entries[place].label for place in test) == {"human": 59, "human_animal": 41}
    assert split(entries, 25, np.random.default_rng(1))[0] != train


def test_too_few_sources_are_named():
    """The message counts what there is, and says what there must be."""
    with pytest.raises(UsageError, match=r"6 recordings of 'a' give .* there must be 6 and at least 1; give more"):
        split(entries_of(3), 6, np.random.default_rng(0))


def test_share_of_a_window_that_failed():
    """Overlaps in samples, sensor by sensor."""
    episodes = [
        FaultEpisode(0, 0, 150, "dead", 0, 0, ()),
        FaultEpisode(0, 190, 500, "dead", 0, 0, ()),
        FaultEpisode(2, 0, 900, "hum", 0, 0, ()),
    ]
    np.testing.assert_allclose(failed_share(episodes, Span(100, 200), 3), [0.6, 0.0, 1.0])


def test_crackling_is_loud_and_repeats():
    """Louder than the sound by far, the same for the same name."""
    quiet = np.full((2, 16_000), 1e-3, np.float32)
    noisy = crackling(quiet, 16_000, "a")
    assert noisy.std() > 30 * quiet.std() + 0.01
    np.testing.assert_array_equal(noisy, crackling(quiet, 16_000, "a"))
    assert (noisy != crackling(quiet, 16_000, "b")).any()


@pytest.fixture
def own(tmp_path):
    """Noise of two sensors at 4 kHz: b is labelled for 14 s only after the first second, c is too short."""
    rng = np.random.default_rng(0)
    for name, seconds in (("a", 14.0), ("b", 16.0), ("c", 6.0)):
        soundfile.write(tmp_path / f"{name}.wav", 0.1 * rng.standard_normal((round(4000 * seconds), 2)), 4000)
    rows = ["a,0,14,walk", "b,1,16,ride", "c,0,6,ride"]
    (tmp_path / "labels.csv").write_text("\n".join(["recording,start_seconds,end_seconds,label", *rows]))
    return tmp_path


def test_own_recordings_are_cut_by_their_labels(own, tmp_path, capsys):
    """24 segments from where the label begins; what is too short is named; nothing is made twice."""
    (own / "sources.csv").write_text("recording,source\na,farm\nb,farm\n")
    origin = OwnRecordings(str(own))
    assert origin.entries() == [
        CorpusEntry("a", "walk", "farm"),
        CorpusEntry("b", "ride", "farm"),
        CorpusEntry("c", "ride", "c"),
    ]
    folder, entries = features_of(origin, tmp_path / "features", engine=ThisProcess(), console=Console(width=200))
    assert [entry.name for entry in entries] == ["a", "b"]
    assert "fewer than 24 labelled segments: 1 (c)" in capsys.readouterr().out
    clean, loud = (loaded(folder, entries, name) for name in ("clean", "loud"))
    assert clean.shape == loud.shape == (2, N_SEGMENTS, 2, 78 + 196 + 1950)
    assert np.isfinite(clean).all()
    slices = view_slices(clean.shape[-1])
    # The first coefficient is the level: crackling is louder. The timing has no level, but crackling swings more.
    for view, every in (("summary", 78), ("paper", 13)):
        assert (loud - clean)[..., slices[view]][..., ::every].mean() > 0, view
    assert np.std(loud[..., slices["timing"]][..., ::4]) > np.std(clean[..., slices["timing"]][..., ::4])
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    features_of(origin, tmp_path / "features", engine=ThisProcess(), console=Console())
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_views_lie_side_by_side_and_are_those_of_the_stages(own, tmp_path):
    """Summary, timing and published features of the same segments, as the stages give them one by one."""
    origin = OwnRecordings(str(own))
    folder, entries = features_of(origin, tmp_path / "features", engine=ThisProcess(), console=Console(quiet=True))
    clean = loaded(folder, entries, "clean")
    slices = view_slices(clean.shape[-1])
    assert [(one.start, one.stop) for one in slices.values()] == [(0, 78), (78, 274), (274, 2224)]
    grid = Grid(rate_hz=4000)
    sound = soundfile.read(own / "a.wav", dtype="float32")[0].T
    for features, parts in ((TWO_VIEWS, ("summary", "timing")), (PAPER, ("paper", "paper"))):
        stages = listening(grid, hearing_settings(grid, features=features))
        views = Chain(*stages).push(Block(0, sound, np.ones(2, np.bool_)))
        for view, part in zip(("summary", "timing"), parts, strict=True):
            expected = np.stack([getattr(fact, view) for fact in views])[:N_SEGMENTS]
            np.testing.assert_array_equal(clean[0][..., slices[part]], expected)


def test_other_settings_have_another_folder(own):
    """Another seed, another number of subjects, a changed file."""
    digests = {
        digest_of(SimulatedSubjects(3, 3, 1)),
        digest_of(SimulatedSubjects(3, 3, 2)),
        digest_of(OwnRecordings(str(own))),
    }
    (own / "labels.csv").write_text((own / "labels.csv").read_text() + "\n")
    assert len(digests | {digest_of(OwnRecordings(str(own)))}) == 4


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "labels.csv",
            "recording,start_seconds,end_seconds,label\na,0,14,walk\n",
            "has 1 labels .walk., here there must be two",
        ),
        ("sources.csv", "name,source\na,farm\n", "must have the columns recording,source"),
    ],
)
def test_unusable_tables_are_named(own, file, text, message):
    """The file, what it has, what it needs."""
    (own / file).write_text(text)
    with pytest.raises(UsageError, match=f"{file} {message}"):
        OwnRecordings(str(own)).entries()


def test_the_simulated_truth_is_where_the_features_changed():
    """A segment whose window no failure touches has the published features it would have had, if the window was not
    moved; one that a failure fills has no view in common with what it would have been."""
    origin = SimulatedSubjects(1, 0, seed=3)
    arrays = origin.measure(origin.entries()[0])
    assert arrays["clean"].shape == arrays["failing"].shape == (N_SEGMENTS, 4, 2224)
    same = {
        view: (arrays["clean"] == arrays["failing"])[..., place].all(axis=2)
        for view, place in view_slices(2224).items()
    }
    assert same["paper"][arrays["failed"] == 0].mean() > 0.5
    assert same["summary"][arrays["failed"] == 0].mean() > 0.5
    for view in same:
        assert not same[view][arrays["failed"] == 1].any()
