"""One small model for all tests of the service, trained as a user trains it."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from tests.test_cli import ROOT, gemmed

ARRAY = ROOT / "fixtures" / "array"
ALPHA = 0.05  # below one over the eighty segments of the reference nothing could be refused


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """Trained on the eight recordings of the fixtures."""
    out = tmp_path_factory.mktemp("models") / "first"
    done = gemmed("train", str(ARRAY), "--labels", str(ARRAY / "labels.csv"), "--model", str(out), "--folds", "2")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def unseen(tmp_path_factory) -> Path:
    """Six recordings of the same site that no model has seen, with faults."""
    out = tmp_path_factory.mktemp("unseen") / "array"
    shape = ("--rate", "4000", "--seconds", "6.5", "--recordings", "6", "--fault-share", "0.2", "--seed", "9")
    done = gemmed("simulate", str(out), *shape, "--fault-seconds", "3")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def decisions(model, unseen, tmp_path_factory) -> Path:
    """What the model makes of the recordings it has not seen."""
    out = tmp_path_factory.mktemp("decisions") / "decisions.jsonl"
    done = gemmed("replay", str(unseen), "--model", str(model), "--out", str(out), "--alpha", str(ALPHA))
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def other_models(model, tmp_path_factory) -> list[Path]:
    """Two more for the same array: one weighs its sensors as if each knew it all, one has never learned of sensor 1."""
    from pipeline.learners.array_fusion import WeightedVotes
    from pipeline.training.model import Model

    first, directory = Model.load(model), tmp_path_factory.mktemp("models")
    other = 1.0 if first.votes.dependence < 0.5 else 0.0
    replace(first, votes=WeightedVotes(other)).save(directory / "weighing")
    replace(first, machines=(None, *first.machines[1:])).save(directory / "deaf")
    return [directory / "weighing", directory / "deaf"]
