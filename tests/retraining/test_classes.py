"""Three and four classes from recordings to decisions, evaluation, explanation and retraining."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import soundfile

from pipeline.core.choices import Choices
from pipeline.core.errors import ModelError
from pipeline.core.events import Decision
from pipeline.model.archive import read_archive, write_archive
from pipeline.model.build import whole_chain
from pipeline.model.model import Model
from pipeline.reports.evaluation_figure import write_evaluation_figure
from pipeline.retraining.example_store import ExampleStore
from pipeline.retraining.job import Job
from pipeline.retraining.registry import Registry
from pipeline.retraining.worker import TrainingOutcome, run
from pipeline.sources.files import find_recordings
from pipeline.storage.journal import Journal
from pipeline.training.cross_validation import folds_of
from pipeline.training.examples import NOBODY, Examples, RecordingNote
from pipeline.training.extract import Format
from tests.forked import gemmed

ROOT = Path(__file__).parents[2]
RATE, SECONDS, SENSORS = 4000, 5, 3
CLASSES = ("cat", "dog", "horse", "human")
PITCH_HZ, PACE_HZ = (220, 500, 950, 1500), (1.5, 2.2, 3.4, 5.0)


def bursts(rng: np.random.Generator, kind: int) -> np.ndarray:
    """Bursts of noise in the band and at the pace of a class, heard by all sensors: (samples, sensors)."""
    n = RATE * SECONDS
    spectrum, hz = np.fft.rfft(rng.normal(size=n)), np.fft.rfftfreq(n, 1 / RATE)
    centre = PITCH_HZ[kind] * np.exp(rng.normal(0, 0.2))
    spectrum *= np.exp(-2 * np.log(np.maximum(hz, 1) / centre) ** 2)
    sound = np.fft.irfft(spectrum, n)
    beat = (np.arange(n) / RATE * PACE_HZ[kind] * np.exp(rng.normal(0, 0.1)) + rng.random()) % 1
    sound = 0.1 * sound / sound.std() * np.exp(-5 * beat)
    heard = [rng.uniform(0.5, 1) * np.roll(sound, 5 * s) + 0.02 * rng.normal(size=n) for s in range(SENSORS)]
    return np.column_stack(heard)


def site(out: Path, *, n_classes: int, each: int, seed: int, nobody: int = 0) -> Path:
    """Recordings of classes that take turns, and some of nobody, with their labels."""
    out.mkdir()
    rng = np.random.default_rng(seed)
    rows = [("recording", "start_seconds", "end_seconds", "label")]
    for n in range(n_classes * each):
        soundfile.write(out / f"r{n:02d}.wav", bursts(rng, n % n_classes), RATE, subtype="PCM_16")
        rows.append((f"r{n:02d}", 0, SECONDS, CLASSES[n % n_classes]))
    for n in range(nobody):
        soundfile.write(out / f"n{n}.wav", 0.02 * rng.normal(size=(RATE * SECONDS, SENSORS)), RATE, subtype="PCM_16")
        rows.append((f"n{n}", 0, SECONDS, "nobody"))
    with (out / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return out


def trained(place: Path, model: Path, *options: str) -> str:
    done = gemmed("train", str(place), "--labels", str(place / "labels.csv"), "--model", str(model), *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def heard(tmp_path_factory) -> Path:
    return site(tmp_path_factory.mktemp("heard") / "site", n_classes=3, each=8, seed=0, nobody=2)


@pytest.fixture(scope="module")
def model(heard, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("models") / "three"
    trained(heard, out)
    return out


@pytest.fixture(scope="module")
def unheard(tmp_path_factory) -> Path:
    return site(tmp_path_factory.mktemp("unheard") / "site", n_classes=3, each=3, seed=7)


@pytest.fixture(scope="module")
def replayed(model, unheard, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("replayed") / "decisions.jsonl"
    done = gemmed("replay", str(unheard), "--model", str(model), "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def events(path: Path) -> list[dict]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def decided(path: Path) -> list[dict]:
    return [event for event in events(path) if event["type"] == "decision"]


def right(decisions: list[dict], n_classes: int = 3) -> float:
    truth = [CLASSES[int(event["recording"][1:]) % n_classes] for event in decisions]
    return float(np.mean([event["label"] == name for event, name in zip(decisions, truth, strict=True)]))


def test_three_classes_are_told_apart(replayed):
    """Nearly all of the recordings that the model has not heard."""
    assert right(decided(replayed)) > 0.9


def test_decisions_of_three_classes_obey_the_schema_and_agree_with_themselves(replayed):
    """The label has the largest probability; pairs and sensors have one entry each; there are no log-odds."""
    schema = json.loads((ROOT / "pipeline" / "core" / "events.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    for event in events(replayed):
        validator.validate(event)
    for event in decided(replayed):
        shares = event["probabilities"]
        assert list(shares) == ["cat", "dog", "horse"]
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert event["probability"] == max(shares.values())
        assert event["label"] in (None, max(shares, key=shares.get))
        assert (event["label"] is None) == (event["probability"] < 0.6)
        assert event["fused_log_odds"] is None
        assert event["log_odds"] == [None] * SENSORS
        assert [len(own) for own in event["margins"]] == [3] * SENSORS
        assert all(sum(own.values()) == pytest.approx(1, abs=1e-5) for own in event["sensor_probabilities"])


def test_what_is_fused_are_the_votes_of_the_sensors(replayed, model):
    """Recomputed from the probabilities of the sensors by the closed form of the rule."""
    dependence = Model.load(model).votes.dependence
    for event in decided(replayed):
        weights = np.array(event["weights"])
        logs = np.log([list(own.values()) for own in event["sensor_probabilities"]])
        fused = weights @ logs / (1 + dependence * max(weights.sum() - 1, 0))
        expected = np.exp(fused - np.logaddexp.reduce(fused))
        assert list(event["probabilities"].values()) == pytest.approx(expected, abs=1e-3)


def test_a_stored_model_of_three_classes_decides_the_same(model, unheard, replayed):
    """To the bit, by the stages in this process; arrays of pairs have names of their own."""
    loaded = Model.load(model)
    names = read_archive(model).arrays.keys()
    assert {f"machine{s}_{i}_{j}.basis" for s in (1, 2, 3) for i, j in ((0, 1), (0, 2), (1, 2))} <= names
    assert not any(name.startswith("machine1.") for name in names)
    assert loaded.typical.shape[0] == 3
    assert loaded.held_out.log_odds.shape == (len(loaded.memory.start), 3)
    chain = whole_chain(loaded, Choices())
    recording = find_recordings([unheard]).recordings[0]
    with Format(RATE, SENSORS).source(recording) as source:
        facts = [fact for item in source for fact in chain.push(item) if isinstance(fact, Decision)]
    told = [event for event in decided(replayed) if event["recording"] == recording.name]
    assert [round(fact.outcome.probability, 6) for fact in facts] == [event["probability"] for event in told]
    assert [fact.outcome.label for fact in facts] == [event["label"] for event in told]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda told, arrays: arrays.pop("machine2_0_2.basis"), "machine2_0_2"),
        (
            lambda told, arrays: [arrays.pop(name) for name in list(arrays) if name.startswith("machine1_1_2.")],
            "a pair",
        ),
        (lambda told, arrays: told.update(classes=["cat", "dog"]), "typical"),
        (lambda told, arrays: told.update(classes=["cat", "dog", "dog"]), "classes"),
    ],
)
def test_a_model_that_lacks_a_pair_or_a_class_is_refused(damage, message, model, tmp_path):
    archive = read_archive(model)
    metadata, arrays = dict(archive.metadata), dict(archive.arrays)
    damage(metadata, arrays)
    write_archive(tmp_path / "damaged", metadata, arrays)
    with pytest.raises(ModelError, match=r"lacks a part of a model .*" if message.startswith("machine") else message):
        Model.load(tmp_path / "damaged")


def test_evaluation_of_three_classes(heard, model, unheard, replayed, tmp_path):
    """Counted again from the decisions; recordings that were trained on by models without them, nobody not at all."""
    told = tmp_path / "evaluation.json"
    done = gemmed("evaluate", str(replayed), "--labels", str(unheard / "labels.csv"), "--out", str(tmp_path),
                  "--json", str(told))  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(told.read_text())
    names = [*CLASSES[:3], None]
    counts = Counter((int(event["recording"][1:]) % 3, names.index(event["label"])) for event in decided(replayed))
    assert found["confusion"] == [[counts[row, column] for column in range(4)] for row in range(3)]
    assert [one["class"] for one in found["by_class"]] == list(CLASSES[:3])
    assert "horse" in done.stdout
    assert (tmp_path / "evaluation.png").stat().st_size > 20_000
    done = gemmed("evaluate", str(heard), "--model", str(model), "--labels", str(heard / "labels.csv"),
                  "--out", str(tmp_path), "--json", str(told))  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(told.read_text())
    assert len(found["held_out"]) == 24
    assert found["left_out"] == ["n0", "n1"]
    assert np.sum(found["confusion"]) == len(Model.load(model).memory.start)
    assert found["accuracy_without_abstention"]["value"] > 0.9


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_a_figure_of_any_number_of_classes(n_classes, tmp_path):
    rate = {"value": 0.8, "low": 0.6, "high": 0.9, "segments": 50, "recordings": 10}
    names = [f"class {n}" for n in range(n_classes)]
    told = {
        "segments": 50, "recordings": 10, "classes": names, "alpha": 0.01,
        "confusion": [[5] * (n_classes + 1)] * n_classes,
        "sensors": [{"sensor": 1, "accuracy": rate}], "accuracy": rate, "accuracy_without_abstention": rate,
        "by_class": [{"class": name, "recall": rate, "precision": rate} for name in names],
        "calibration": {"bins": [{"probability": 0.7, "right": rate}], "expected_error": 0.1},
    }  # fmt: skip
    assert write_evaluation_figure(told, tmp_path / "e.png").stat().st_size > 20_000


def test_nobody_is_heard_but_is_no_class(heard, model):
    """Recordings of nobody are noted, and are neither in the memory nor in the folds of the validation."""
    loaded = Model.load(model)
    names = [note["recording"] for note in loaded.notes["recordings"]]
    assert {"n0", "n1"} < set(names)
    assert loaded.classes == CLASSES[:3]
    assert not {"n0", "n1"} & {names[place] for place in loaded.memory.recording}
    assert (loaded.memory.label >= 0).all()
    assert loaded.notes["validation"]["recordings"] == 24


def test_the_winner_is_explained_against_the_runner_up(model, unheard, replayed, tmp_path):
    """Both are named; contributions add up to the log-odds between them."""
    number, event = next(
        (n, event)
        for n, event in enumerate(events(replayed), start=1)
        if event["type"] == "decision" and event["label"]
    )
    out = tmp_path / "e.png"
    done = gemmed(
        "explain", f"{replayed}:{number}", "--recordings", str(unheard), "--model", str(model), "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    ordered = sorted(event["probabilities"], key=event["probabilities"].get, reverse=True)
    assert "the same to the last digit" in done.stdout
    told = " ".join(done.stdout.split())
    assert f"positive for {ordered[0]} (against {ordered[1]}, the runner-up)" in told
    assert f"typical: median of {ordered[1]} / {ordered[0]}" in told
    assert out.stat().st_size > 50_000


def test_fusion_of_features_tells_three_classes_apart(model, unheard, tmp_path):
    out = tmp_path / "features.jsonl"
    done = gemmed("replay", str(unheard), "--model", str(model), "--out", str(out), "--fusion", "features")
    assert done.returncode == 0, done.stderr
    assert right(decided(out)) > 0.85


def test_another_order_of_classes_gives_nearly_the_same_decisions(heard, model, unheard, replayed, tmp_path):
    """Only the draw of folds depends on the order."""
    trained(heard, tmp_path / "m", "--classes", "horse,cat,dog", "--folds", "0")
    done = gemmed("replay", str(unheard), "--model", str(tmp_path / "m"), "--out", str(tmp_path / "d.jsonl"))
    assert done.returncode == 0, done.stderr
    pairs = list(zip(decided(replayed), decided(tmp_path / "d.jsonl"), strict=True))
    assert list(pairs[0][1]["probabilities"]) == ["horse", "cat", "dog"]
    assert np.mean([one["label"] == other["label"] for one, other in pairs]) > 0.95


def test_two_of_three_classes_may_be_chosen(heard, tmp_path):
    trained(heard, tmp_path / "m", "--classes", "dog,cat", "--folds", "0")
    assert Model.load(tmp_path / "m").classes == ("dog", "cat")


def test_four_classes(tmp_path):
    """Six pairs; the same from recordings to decisions."""
    trained(site(tmp_path / "site", n_classes=4, each=6, seed=3), tmp_path / "m", "--folds", "0")
    fresh = site(tmp_path / "fresh", n_classes=4, each=2, seed=4)
    done = gemmed("replay", str(fresh), "--model", str(tmp_path / "m"), "--out", str(tmp_path / "d.jsonl"))
    assert done.returncode == 0, done.stderr
    assert [len(own) for own in decided(tmp_path / "d.jsonl")[0]["margins"]] == [6] * SENSORS
    assert right(decided(tmp_path / "d.jsonl"), 4) > 0.85


def test_a_daemon_begins_and_learns_with_three_classes(heard, tmp_path):
    """The starter tells them apart; what it learned from stays, nobody apart; without new labels nothing is new."""
    state = tmp_path / "state"
    job = Job(recordings=(heard,), labels=heard / "labels.csv", folds=3, components=20)
    assert run(state, job, starter=True) is TrainingOutcome.PASSED
    with Journal(state / "journal.sqlite") as journal:
        champion = Registry(state / "models", journal).load_champion()
    assert champion.classes == CLASSES[:3]
    examples = ExampleStore(state / "examples", most_segments=3000, trouble=pytest.fail).load(champion.classes)
    assert set(examples.walkers().label) == {0, 1, 2}
    assert {examples.recordings[place].name for place in examples.nobody().recording} == {"n0@0", "n1@0"}
    assert run(state, job) is TrainingOutcome.NOTHING


def test_folds_hold_all_classes_and_leave_recordings_of_nobody_out():
    """Each fold leaves two recordings of every class; nobody is in the fold of its recording, or in none."""
    recording = np.repeat(np.arange(14), 3)
    label = np.where(recording < 12, recording % 3, NOBODY)
    label[::9] = NOBODY  # beside a walker of the same recording
    values = np.zeros((len(label), 1, 2), np.float32)
    notes = tuple(RecordingNote(f"r{n}", {}, 10, (0, 10), f"f{n}") for n in range(14))
    present = np.ones((len(label), 1), bool)
    start = np.arange(len(label))
    examples = Examples(values, values, present, recording, start, label, notes, CLASSES[:3])
    folds = folds_of(examples, n_folds=4, seed=0)
    assert set(folds[recording >= 12]) == {-1}
    assert all(len(set(folds[recording == n])) == 1 for n in range(14))
    for fold in range(4):
        held = examples.part(folds == fold).walkers()
        left = examples.part(folds != fold).walkers()
        assert set(held.label) == {0, 1, 2}
        assert all(len(set(left.recording[left.label == code])) >= 2 for code in range(3))
