"""Learning in a state directory: from labels and stored sound to a challenger, by the real process."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.choices import Choices
from pipeline.core.errors import SettingsError, UsageError
from pipeline.core.events import Block, Decision, RecordingStarted, Role
from pipeline.model.build import whole_chain
from pipeline.model.model import Model, Refusal
from pipeline.model.starter import STARTER
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry
from pipeline.retraining.worker import Job, TrainingOutcome, run
from pipeline.simulation.options import site_of
from pipeline.simulation.scene import record
from pipeline.storage.audio import AudioSpool, SoundStore
from pipeline.storage.journal import Journal
from tests.arrays import ARRAY
from tests.forked import Process

RATE = 4000
SITE = {
    "seed": 5,
    "rate_hz": RATE,
    "seconds": 6.5,
    "n_sensors": 4,
    "spacing_m": 5.0,
    "surface": "gravel",
    "faults": "none",
    "fault_share": "0",
    "fault_seconds": 3.0,
    "clips": None,
}
CHOSEN = {"components": 12, "folds": 2, "run": "a run"}


def hear(state: Path, recording: str, scenes: list[np.ndarray], rate_hz: int = RATE) -> list[tuple[int, int]]:
    """Put scenes into the store of the sound as the daemon does, far enough apart; where each of them lies."""
    places, position = [], 0
    with Journal(state / "journal.sqlite") as journal:
        journal.execute(
            "INSERT INTO recordings (name, run, rate_hz, sensors, started_at, choices) "
            "VALUES (?, 'a run', ?, 4, '2026-01-01', '{}')",
            (recording, rate_hz),
        )
        spool = AudioSpool(state / "sound", piece_seconds=10.0, finished=SoundStore(state / "sound", journal).keep)
        spool.begin(recording, rate_hz)
        for scene in scenes:
            spool.write(Block(position, scene, np.ones(4, np.bool_)))
            places.append((position, position + scene.shape[1]))
            position += scene.shape[1] + 31 * rate_hz
        spool.finish()
    return places


def label(state: Path, recording: str, places: list[tuple[int, int]], labels: list[str | None]) -> None:
    with Journal(state / "journal.sqlite") as journal:
        for (start, stop), name in zip(places, labels, strict=True):
            journal.execute(
                "INSERT INTO labels (recording, start, stop, label, who, time, why, via) "
                "VALUES (?, ?, ?, ?, 'me', '2026-01-01', 'heard it', 'command')",
                (recording, start, stop, name),
            )


def scenes(numbers, labels, **options) -> list[np.ndarray]:
    site = site_of(**SITE | options)
    return [record(site, n, label=name).samples for n, name in zip(numbers, labels, strict=True)]


def kinds(state: Path) -> list[str]:
    with Journal(state / "journal.sqlite") as journal:
        return [event.type for event in journal.events()]


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    """A state directory with a starter, and six passages of either class in its stream that nobody has labelled."""
    state = tmp_path_factory.mktemp("state") / "begun"
    job = Job(**CHOSEN, simulated=SITE | {"recordings": 10})
    assert run(state, job, starter=True) is TrainingOutcome.PASSED
    labels = ["human", "human_animal"] * 5
    places = hear(state, "night", scenes(range(10), labels))
    (state / "places.json").write_text(json.dumps([places, labels]))
    return state


@pytest.fixture
def state(begun, tmp_path) -> Path:
    shutil.copytree(begun, tmp_path / "state")
    return tmp_path / "state"


def told(state: Path) -> tuple[list[tuple[int, int]], list[str]]:
    places, labels = json.loads((state / "places.json").read_text())
    return [tuple(place) for place in places], labels


def test_a_starter_is_champion_and_leaves_its_examples(begun):
    """With the classes of the simulation; the journal tells of it."""
    with Journal(begun / "journal.sqlite") as journal:
        champion = Registry(begun / "models", journal).champion()
    assert champion is not None
    assert champion.origin is ModelOrigin.STARTER
    assert champion.facts["classes"] == ["human", "human_animal"]
    assert champion.facts["passages"] == 10
    assert kinds(begun) == ["retraining_started", "model_promoted", "retraining_finished"]
    assert len(list((begun / "examples").glob("reference-*.npz"))) == 10


def test_without_labels_there_is_nothing_new(state):
    """The references alone give the starter again, which decides already."""
    assert run(state, Job(**CHOSEN)) is TrainingOutcome.NOTHING
    assert kinds(state)[-1] == "retraining_finished"


def test_labels_of_no_class_of_the_model_are_named(state):
    """They change nothing, and whoever gave them must know."""
    places, _ = told(state)
    label(state, "night", places[:2], ["vehicle", "vehicle"])
    assert run(state, Job(**CHOSEN)) is TrainingOutcome.NOTHING
    with Journal(state / "journal.sqlite") as journal:
        *_, last = journal.events(types=["retraining_finished"])
    assert "which is champion; labeled passages that it does not learn from: vehicle 2; label 5" in last.body["why"]


def test_a_class_of_which_enough_passages_are_labeled_is_learned_too(state):
    """The champion is compared by name, and has none for the new class."""
    places, _ = told(state)
    label(state, "night", places[:6], ["vehicle"] * 6)
    run(state, Job(**CHOSEN))
    with Journal(state / "journal.sqlite") as journal:
        newest = Registry(state / "models", journal).all()[0]
    assert newest.facts["classes"] == ["human", "human_animal", "vehicle"]
    assert newest.facts["gate"]["criteria"]["classes"] == []
    assert newest.facts["gate"]["compared"]["passages"] >= 6


def test_without_model_and_labels_sensors_are_judged_all_the_same(tmp_path):
    """A model that decides nothing and screens; it is champion, for nothing is there that it could be worse than."""
    labels = ["human", "human_animal"] * 4
    places = hear(tmp_path, "day", scenes(range(8), labels))
    assert run(tmp_path, Job(**CHOSEN, unlabelled_seconds=1000.0)) is TrainingOutcome.NOTHING
    assert run(tmp_path, Job(**CHOSEN, unlabelled_seconds=40.0)) is TrainingOutcome.PASSED
    assert kinds(tmp_path)[-2:] == ["model_promoted", "retraining_finished"]
    with Journal(tmp_path / "journal.sqlite") as journal:
        registry = Registry(tmp_path / "models", journal)
        champion, model = registry.champion(), registry.load_champion()
    assert champion is not None
    assert champion.origin is ModelOrigin.UNLABELLED
    assert model is not None
    assert model.usual is not None
    for decision in decided(model, *scenes([77], ["human"])):
        assert decision.outcome.label is None
        assert set(decision.roles) == {Role.UNTRAINED}
        assert np.isfinite(decision.verdicts.screened.p_values).all()
    label(tmp_path, "day", places[:3], labels[:3])
    assert run(tmp_path, Job(**CHOSEN)) is TrainingOutcome.NOTHING
    with Journal(tmp_path / "journal.sqlite") as journal:
        *_, last = journal.events()
    assert last.body["why"] == (
        "2 passages of 'human' must be at least 5; label 3 more; "
        "1 passage of 'human_animal' must be at least 5; label 4 more"
    )


def decided(model: Model, scene: np.ndarray) -> list[Decision]:
    chain = whole_chain(model, Choices(health=False))
    chain.push(RecordingStarted("new", RATE, tuple("1234")))
    found = [fact for fact in chain.push(Block(0, scene, np.ones(4, np.bool_))) if isinstance(fact, Decision)]
    assert len(found) == 10
    return found


def process(state: Path, job: dict) -> Process:
    (state / "job.json").write_text(json.dumps(job))
    command = ["--state", str(state), "--job", str(state / "job.json")]
    return Process(command, module="pipeline.retraining.worker", stderr=subprocess.PIPE, text=True)


def killed_while_learning(state: Path) -> int:
    """Start the process, wait until it has finished one fit, and kill it; which process it was."""
    with process(state, CHOSEN) as learning:
        assert learning.stderr is not None
        try:
            assert 1 in (json.loads(line)["fields"].get("fits") for line in learning.stderr)
        finally:
            learning.kill()
    assert learning.returncode == -signal.SIGKILL
    return learning.pid


def test_labels_become_a_challenger_whatever_was_killed_before(state):
    """Killed, nothing is seen of it; the next run hears nothing twice, learns from all, and clears away the rest."""
    places, labels = told(state)
    label(state, "night", places, labels)
    with Journal(state / "journal.sqlite") as journal:
        registry = Registry(state / "models", journal)
        before = registry.all()
        left_behind = registry.directory / f".{killed_while_learning(state)}.partial"
        assert registry.all() == before
        left_behind.mkdir()  # had it been killed later
        stored = {path.name: path.stat().st_mtime_ns for path in (state / "examples").glob("*.npz")}
        assert len(stored) == 20
        outcome = run(state, Job(**CHOSEN))
        assert {path.name: path.stat().st_mtime_ns for path in (state / "examples").glob("*.npz")} == stored
        newest = registry.all()[0]
        assert {path.name for path in registry.directory.iterdir()} == {newest.name, *(one.name for one in before)}
        model = registry.load(newest.name)
        refusals = journal.rows("SELECT * FROM refusals WHERE model = ?", (newest.name,))
    assert kinds(state).count("retraining_started") == 3
    assert newest.origin is ModelOrigin.RETRAINED
    assert (outcome, newest.status) in [
        (TrainingOutcome.PASSED, ModelStatus.CHALLENGER),
        (TrainingOutcome.REFUSED, ModelStatus.REFUSED),
    ]
    assert newest.facts["passages"] == newest.facts["gate"]["compared"]["passages"] == 20
    assert newest.facts["gate"]["compared_on_new"]["passages"] == 10
    assert newest.facts["gate"]["passed"] is (outcome is TrainingOutcome.PASSED)
    assert {note["recording"] for note in model.notes["recordings"]} >= {f"night@{start}" for start, _ in places}
    refused = (model.memory.refusal != Refusal.NONE) & (model.memory.refusal != Refusal.ABSENT)
    assert len(refusals) == refused.sum()


def test_two_do_not_learn_at_once(state):
    """The second says so and leaves everything as it is."""
    before = kinds(state)
    with (state / "retraining.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="somebody else is learning in"):
            run(state, Job())
    assert kinds(state) == before


@pytest.mark.parametrize(
    ("job", "message"),
    [({"colour": 1}, "colour: Extra inputs are not permitted"), ({"worse": "much"}, "worse: Input should be a valid")],
)
def test_a_job_that_is_no_job_is_refused(job, message, tmp_path):
    """Before anything is touched."""
    (tmp_path / "job.json").write_text(json.dumps(job))
    with pytest.raises(SettingsError, match=message):
        Job.read(tmp_path / "job.json")


def test_an_error_is_told_in_the_journal(state):
    """And not swallowed."""
    shutil.rmtree(state / "examples")
    (state / "examples").write_text("in the way")
    with pytest.raises(FileExistsError):
        run(state, Job())
    with Journal(state / "journal.sqlite") as journal:
        *_, last = journal.events()
    assert last.type == "retraining_failed"
    assert last.body["why"].startswith("FileExistsError")


def test_a_starter_from_recordings(tmp_path, monkeypatch):
    """As `gemmed train` takes them. It is never a challenger: a daemon would promote it at the same time."""
    challengers, promote = [], Registry.promote

    def seen(registry, *given, **choices):
        challengers.append(registry.challenger())
        return promote(registry, *given, **choices)

    monkeypatch.setattr(Registry, "promote", seen)
    job = Job(**CHOSEN, recordings=(ARRAY,), labels=ARRAY / "labels.csv")
    assert run(tmp_path, job, starter=True) is TrainingOutcome.PASSED
    with Journal(tmp_path / "journal.sqlite") as journal:
        model = Registry(tmp_path / "models", journal).load_champion()
    assert model is not None
    assert [note["recording"] for note in model.notes["recordings"]] == [f"r00{n}@0" for n in range(1, 9)]
    assert model.usual is not None
    assert challengers == [None]
    assert run(tmp_path, job, starter=True) is TrainingOutcome.NOTHING


def test_own_labels_of_other_classes_replace_the_packaged_model(tmp_path):
    """It knows five classes, two are labeled: it is compared by name, and gives way without an operator."""
    with Journal(tmp_path / "journal.sqlite") as journal:
        registry = Registry(tmp_path / "models", journal)
        packaged = Model.load(STARTER)
        added = registry.add(
            packaged, origin=ModelOrigin.STARTER, status=ModelStatus.RETIRED, why="packaged", told=None
        )
        registry.promote(added.name, who="gemmed", why="packaged")
    rate_hz, labels = packaged.grid.rate_hz, ["human", "human_animal"] * 8
    places = hear(tmp_path, "night", scenes(range(16), labels, rate_hz=rate_hz), rate_hz)
    label(tmp_path, "night", places[:6], labels[:6])
    assert run(tmp_path, Job(**CHOSEN)) is TrainingOutcome.NOTHING
    with Journal(tmp_path / "journal.sqlite") as journal:
        *_, finished = journal.events(types=["retraining_finished"])
    assert "human 3, human_animal 3; label 5 of each of at least two classes" in finished.body["why"]
    label(tmp_path, "night", places[6:], labels[6:])
    assert run(tmp_path, Job(**CHOSEN)) is TrainingOutcome.PASSED
    with Journal(tmp_path / "journal.sqlite") as journal:
        challenger = Registry(tmp_path / "models", journal).challenger()
    assert challenger is not None
    assert challenger.facts["classes"] == ["human", "human_animal"]
    assert challenger.facts["gate"]["compared"]["passages"] == 16
