"""Learning in a state directory: from labels and stored sound to a challenger, by the real process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.events import Block, Decision, RecordingStarted, Role
from pipeline.service.assembly import Choices, whole_chain
from pipeline.service.registry import Origin, Registry, Status
from pipeline.service.retrain import Job, Outcome, run
from pipeline.simulation.options import site_of
from pipeline.simulation.scene import record
from pipeline.sinks.journal import Journal
from pipeline.sinks.sound import SoundStore, Spool
from pipeline.training.model import Refusal

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
PAUSE = 31 * RATE


def hear(state: Path, recording: str, scenes: list[np.ndarray]) -> list[tuple[int, int]]:
    """Put scenes into the store of the sound as the daemon does, far enough apart; where each of them lies."""
    places, position = [], 0
    with Journal(state / "journal.sqlite") as journal:
        journal.execute(
            "INSERT INTO recordings (name, run, rate_hz, sensors, started_at) VALUES (?, 'a run', ?, 4, '2026-01-01')",
            (recording, RATE),
        )
        spool = Spool(state / "sound", piece_seconds=10.0, finished=SoundStore(state / "sound", journal).keep)
        spool.begin(recording, RATE, 4)
        for scene in scenes:
            spool.write(Block(position, scene, np.ones(4, np.bool_)))
            places.append((position, position + scene.shape[1]))
            position += scene.shape[1] + PAUSE
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


def scenes(numbers, labels) -> list[np.ndarray]:
    site = site_of(**SITE)
    return [record(site, n, label=name).samples for n, name in zip(numbers, labels, strict=True)]


def kinds(state: Path) -> list[str]:
    with Journal(state / "journal.sqlite") as journal:
        return [event.type for event in journal.events()]


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    """A state directory with a starter, and six passages of either class in its stream that nobody has labelled."""
    state = tmp_path_factory.mktemp("state") / "begun"
    job = Job(**CHOSEN, simulated=SITE | {"recordings": 10})
    assert run(state, job, starter=True) is Outcome.PASSED
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
    assert champion.origin is Origin.STARTER
    assert champion.facts["classes"] == ["human", "human_animal"]
    assert champion.facts["passages"] == 10
    assert kinds(begun) == ["retraining_started", "model_promoted", "retraining_finished"]
    assert len(list((begun / "examples").glob("reference-*.npz"))) == 10


def test_without_labels_there_is_nothing_new(state):
    """The references alone give the starter again, which decides already."""
    assert run(state, Job(**CHOSEN)) is Outcome.NOTHING
    assert kinds(state)[-1] == "retraining_finished"


def test_labels_in_the_stream_become_a_challenger(state):
    """Learned from the references and from the passages of the stream; what was refused is kept by place."""
    places, labels = told(state)
    label(state, "night", places, labels)
    outcome = run(state, Job(**CHOSEN))
    with Journal(state / "journal.sqlite") as journal:
        registry = Registry(state / "models", journal)
        newest = registry.all()[0]
        model = registry.load(newest.name)
        refusals = journal.rows("SELECT * FROM refusals WHERE model = ?", (newest.name,))
    assert newest.origin is Origin.RETRAINED
    assert (outcome, newest.status) in [(Outcome.PASSED, Status.CHALLENGER), (Outcome.REFUSED, Status.REFUSED)]
    assert newest.facts["passages"] == 20
    assert newest.facts["gate"]["compared"]["passages"] == 20
    assert newest.facts["gate"]["passed"] is (outcome is Outcome.PASSED)
    assert {note["recording"] for note in model.notes["recordings"]} >= {f"night@{start}" for start, _ in places}
    refused = (model.memory.refusal != Refusal.NONE) & (model.memory.refusal != Refusal.ABSENT)
    assert len(refusals) == refused.sum()


def test_without_model_and_labels_sensors_are_judged_all_the_same(tmp_path):
    """A model that decides nothing and screens; it is champion, for nothing is there that it could be worse than."""
    labels = ["human", "human_animal"] * 4
    hear(tmp_path, "day", scenes(range(8), labels))
    assert run(tmp_path, Job(**CHOSEN, unlabelled_seconds=1000.0)) is Outcome.NOTHING
    assert run(tmp_path, Job(**CHOSEN, unlabelled_seconds=40.0)) is Outcome.PASSED
    with Journal(tmp_path / "journal.sqlite") as journal:
        registry = Registry(tmp_path / "models", journal)
        champion, model = registry.champion(), registry.load_champion()
    assert champion is not None
    assert champion.origin is Origin.UNLABELLED
    assert model is not None
    assert not model.decides
    assert model.usual is not None
    assert kinds(tmp_path)[-2:] == ["model_promoted", "retraining_finished"]
    chain = whole_chain(model, Choices(health=False))
    chain.push(RecordingStarted("new", RATE, tuple("1234")))
    (scene,) = scenes([77], ["human"])
    decisions = [fact for fact in chain.push(Block(0, scene, np.ones(4, np.bool_))) if isinstance(fact, Decision)]
    assert len(decisions) == 10
    for decision in decisions:
        assert decision.outcome.label is None
        assert set(decision.roles) == {Role.UNTRAINED}
        assert np.isfinite(decision.verdicts.screened.p_values).all()
