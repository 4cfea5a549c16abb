"""Recordings that the model of all tests has not seen, and what it makes of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.conftest import ARRAY
from tests.forked import gemmed

__all__ = ["ALPHA", "ARRAY", "rows"]
ALPHA = 0.05  # below one over the eighty segments of the reference nothing could be refused


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def unseen(tmp_path_factory) -> Path:
    """Six recordings of the same site that no model has seen, with faults."""
    out = tmp_path_factory.mktemp("unseen") / "array"
    shape = ("--rate", "4000", "--seconds", "6.5", "--recordings", "6", "--fault-share", "0.2", "--seed", "9")
    done = gemmed("simulate", str(out), "--no-picture", *shape, "--fault-seconds", "3")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def decisions(model, unseen, tmp_path_factory) -> Path:
    """What the model makes of the recordings it has not seen."""
    out = tmp_path_factory.mktemp("decisions") / "decisions.jsonl"
    done = gemmed("replay", str(unseen), "--model", str(model), "--out", str(out), "--alpha", str(ALPHA))
    assert done.returncode == 0, done.stderr
    return out
