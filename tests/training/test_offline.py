"""Training as a user does it: what is stored, that it repeats, and what is refused."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.core.errors import ModelError
from pipeline.model.archive import read_archive, write_archive
from pipeline.model.model import Model, Refusal
from pipeline.training.cross_validation import folds_of
from pipeline.training.examples import Examples, RecordingNote
from tests.arrays import ARRAY, rows
from tests.forked import gemmed


def train(recordings: Path, labels: Path, out: Path, *options: str):
    return gemmed("train", str(recordings), "--labels", str(labels), "--model", str(out), "--folds", "0", *options)


def labels_with(tmp_path: Path, change) -> Path:
    """The labels of the fixtures, changed row by row; rows for which the change gives None are left out."""
    given = rows(ARRAY / "labels.csv")
    changed = [row for number, one in enumerate(given) if (row := change(number, dict(one))) is not None]
    path = tmp_path / "labels.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, given[0])
        writer.writeheader()
        writer.writerows(changed)
    return path


def test_a_model_says_where_it_comes_from(model):
    """Settings, versions, spans, seeds, contamination of each sensor, validation: all in its JSON."""
    found = json.loads((model / "model.json").read_text())["metadata"]
    notes = found["notes"]
    assert found["grid"]["rate_hz"] == 4000
    assert found["hearing"]["features"] == "views"
    assert found["classes"] == ["human", "human_animal"]
    assert notes["versions"]["numpy"] == np.__version__
    assert len(notes["contamination"]) == len(notes["refused"]) == 4
    assert notes["seed"] == 0
    assert [one["recording"] for one in notes["recordings"]] == [f"r00{n}" for n in range(1, 9)]
    assert all(one["span"] == [0, 26_000] for one in notes["recordings"])
    assert notes["validation"]["folds"] == 2
    assert notes["validation"]["segments"] == notes["segments"] == 80


@pytest.mark.parametrize("counts", [(4, 4), (3, 9), (2, 2), (25, 25), (7, 2)])
@pytest.mark.parametrize("folds", [0, 2, 5])
def test_nothing_is_validated_on_the_recording_it_was_trained_on(counts, folds):
    """A recording lies in one fold as a whole, and at least two of each class remain to learn from; else no folds."""
    recording = np.repeat(np.arange(sum(counts)), 3)
    label = np.repeat([0, 1], counts)[recording]
    notes = tuple(RecordingNote(str(n), {}, 0, (0, 0), str(n)) for n in range(sum(counts)))
    nothing = np.zeros((len(recording), 1, 1), np.float32)
    examples = Examples(nothing, nothing, nothing[:, :, 0] == 0, recording, recording, label, notes, ("a", "b"))
    found = folds_of(examples, n_folds=folds, seed=0)
    if folds == 0 or min(counts) == 2:
        assert (found == -1).all()
        return
    assert all(len(set(found[recording == n])) == 1 for n in range(sum(counts)))
    for fold in range(found.max() + 1):
        for code in (0, 1):
            assert len(np.unique(recording[(found != fold) & (label == code)])) >= 2
            assert ((found == fold) & (label == code)).any()


def test_each_recording_has_decisions_of_models_without_it(model):
    """One for every segment that was learned from; recordings that were not have none."""
    loaded = Model.load(model)
    for note in loaded.notes["recordings"]:
        own = loaded.judged_without(note["fingerprint"], note["recording"])
        assert len(own) == sum(note["segments"].values())
        assert all(one.recording == note["recording"] for one in own)
    assert loaded.judged_without("unknown", "x") == []


def test_training_repeats_to_the_bit(tmp_path):
    """Another number of processes, the same identity."""
    first, second = (
        train(ARRAY, ARRAY / "labels.csv", tmp_path / name, "--jobs", jobs) for name, jobs in (("a", "1"), ("b", "2"))
    )
    assert first.returncode == second.returncode == 0
    assert Model.load(tmp_path / "a").identity == Model.load(tmp_path / "b").identity
    assert (tmp_path / "a" / "arrays.npz").read_bytes() == (tmp_path / "b" / "arrays.npz").read_bytes()


def test_audacity_tracks_give_the_model_of_the_table(tmp_path, model):
    """Labels are labels, wherever they were written down."""
    tracks = tmp_path / "tracks"
    tracks.mkdir()
    for row in rows(ARRAY / "labels.csv"):
        (tracks / f"{row['recording']}.txt").write_text(
            f"{row['start_seconds']}\t{row['end_seconds']}\t{row['label']}\n"
        )
    done = gemmed("train", str(ARRAY), "--labels", str(tracks), "--model", str(tmp_path / "m"), "--folds", "2")
    assert done.returncode == 0, done.stderr
    assert Model.load(tmp_path / "m").identity == Model.load(model).identity


def test_a_stored_model_is_the_model(model, tmp_path):
    """Loaded and stored again: the same bytes, the same identity."""
    loaded = Model.load(model)
    again = loaded.save(tmp_path / "again")
    assert again.identity == loaded.identity
    assert (tmp_path / "again" / "model.json").read_bytes() == (model / "model.json").read_bytes()
    assert replace(loaded, identity="").save(tmp_path / "third").identity == loaded.identity


def test_a_model_that_lacks_a_part_is_not_loaded(model, tmp_path):
    """Arrays removed under a right checksum: still an error that names the model."""
    archive = read_archive(model)
    fewer = {name: array for name, array in archive.arrays.items() if name != "screen.own"}
    write_archive(tmp_path / "fewer", archive.metadata, fewer)
    with pytest.raises(ModelError, match=r"fewer lacks a part of a model .*own.*train it again"):
        Model.load(tmp_path / "fewer")
    other = archive.metadata | {"grid": archive.metadata["grid"] | {"colour": 1}}
    write_archive(tmp_path / "other", other, archive.arrays)
    with pytest.raises(ModelError, match="lacks a part of a model"):
        Model.load(tmp_path / "other")


def test_reasons_for_refusal_are_kept_for_every_segment(model):
    """Each segment of each sensor has one, and what is believed has none."""
    memory = Model.load(model).memory
    assert memory.refusal.shape == memory.delivered.shape == (80, 4)
    kept = memory.refusal == Refusal.NONE
    assert (memory.delivered[kept] > 0.5).all()
    assert (memory.label_right[kept.any(axis=1)] > 0.5).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n, row: row | {"recording": "r1O1" if n == 0 else row["recording"]}, "labels recording 'r1O1', which"),
        (
            lambda n, row: row | {"label": "dog" if n == 0 else row["label"]},
            "1 recording with segments labelled 'dog' must be at least 2",
        ),
        (lambda n, row: row | {"label": "human"}, "1 labels (human) must be at least two"),
        (lambda n, row: row | {"end_seconds": "1.0"}, "no segment of 2 s lies inside a label"),
    ],
)
def test_labels_that_cannot_be_learned_from_are_named(change, message, tmp_path):
    """One line; no model is written."""
    done = train(ARRAY, labels_with(tmp_path, change), tmp_path / "m")
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "m").exists()
    assert not list(tmp_path.glob(".m*"))


def test_one_recording_of_a_class_is_too_few(tmp_path):
    """Nothing is judged by itself."""
    given = rows(ARRAY / "labels.csv")
    animals = [n for n, row in enumerate(given) if row["label"] == "human_animal"]
    labels = labels_with(tmp_path, lambda n, row: None if n in animals[1:] else row)
    done = train(ARRAY, labels, tmp_path / "m")
    assert done.returncode == 1
    assert "1 recording with segments labelled 'human_animal' must be at least 2" in done.stderr


def test_a_model_is_never_overwritten(model):
    """Told at once, before anything is computed."""
    done = train(ARRAY, ARRAY / "labels.csv", model)
    assert done.returncode == 1
    assert "exists, and models are never changed; give another directory" in done.stderr


def test_a_broken_recording_is_named_and_left_out(tmp_path):
    """The others are learned from."""
    some = tmp_path / "some"
    shutil.copytree(ARRAY, some)
    (some / "r005.flac").write_text("not audio")
    done = train(some, ARRAY / "labels.csv", tmp_path / "m", "--seed", "3", "--most-segments", "60")
    assert done.returncode == 0, done.stderr
    assert "r005.flac" in done.stdout
    loaded = Model.load(tmp_path / "m")
    assert [one["recording"] for one in loaded.notes["recordings"]] == [f"r00{n}" for n in (1, 2, 3, 4, 6, 7, 8)]
    assert loaded.notes["segments"] <= 60 + 7  # rounded in each recording
    assert loaded.notes["seed"] == 3
    assert "not validated" in done.stdout


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("screen.residuals", lambda array: array[:1]),
        ("screen.own", lambda array: array[:-1]),
        ("screen.maps", lambda array: array[..., :2]),
        ("machine1.coefficients", lambda array: array[:-1]),
        ("machine1.basis", lambda array: array[:, :2]),
        ("machine1.scalars", lambda array: np.append(array, 1.0)),
        ("combined.slopes", lambda array: array * np.nan),
        ("summary.axes", lambda array: array.astype(str)),
        ("summary.scales", lambda array: array[1:]),
        ("timing.axes", lambda array: array[:, :, 1:]),
        ("timing.limits", lambda array: array[:, None]),
        ("reference.features", lambda array: array[:, 1:]),
        ("reference.distances", lambda array: array[1:]),
        ("typical", lambda array: array[:1]),
        ("expectation.maps", lambda array: array[:, :1]),
        ("memory.recording", lambda array: array + 100),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_not_loaded(name, damage, model, tmp_path):
    """Under a right checksum: compiled loops would read beyond their ends."""
    archive = read_archive(model)
    write_archive(tmp_path / "m", archive.metadata, archive.arrays | {name: damage(archive.arrays[name])})
    with pytest.raises(ModelError, match="lacks a part of a model"):
        Model.load(tmp_path / "m")


@pytest.mark.parametrize("part", ["combined.", "expectation."])
def test_a_classifier_of_all_sensors_comes_with_what_to_expect_of_missing_ones(part, model, tmp_path):
    """Neither is of use without the other; without both, votes are left."""
    archive = read_archive(model)
    left = {name: array for name, array in archive.arrays.items() if not name.startswith(part)}
    write_archive(tmp_path / "m", archive.metadata, left)
    with pytest.raises(ModelError, match="lacks a part of a model"):
        Model.load(tmp_path / "m")
    neither = {name: array for name, array in left.items() if not name.startswith(("combined.", "expectation."))}
    write_archive(tmp_path / "n", archive.metadata, neither)
    with pytest.raises(ModelError, match="fuse by votes"):
        _ = Model.load(tmp_path / "n").combined_features


def test_what_the_json_says_is_sealed_too(model, tmp_path):
    """Classes exchanged by hand would exchange all decisions."""
    shutil.copytree(model, tmp_path / "m")
    text = (tmp_path / "m" / "model.json").read_text()
    swapped = text.replace('"human"', '"x"', 1)
    assert swapped != text
    (tmp_path / "m" / "model.json").write_text(swapped)
    with pytest.raises(ModelError, match="is not what was stored"):
        Model.load(tmp_path / "m")


def test_silence_is_not_learned_from(tmp_path):
    """A model that cannot decide anything is not stored."""
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    for row in rows(ARRAY / "labels.csv"):
        soundfile.write(quiet / f"{row['recording']}.wav", np.zeros((26_000, 4)), 4000)
    done = train(quiet, ARRAY / "labels.csv", tmp_path / "m")
    assert done.returncode == 1
    assert "is the same sound as" in done.stderr
    rng = np.random.default_rng(0)
    for row in rows(ARRAY / "labels.csv"):
        sound = np.zeros((26_000, 4))
        sound[-1, 0] = rng.random() / 2
        soundfile.write(quiet / f"{row['recording']}.wav", sound, 4000)
    done = train(quiet, ARRAY / "labels.csv", tmp_path / "m")
    assert done.returncode == 1
    assert not (tmp_path / "m").exists()
