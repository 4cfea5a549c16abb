"""Stored results: a change that moves them is noticed, wherever it was made."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module")
def make():
    specification = importlib.util.spec_from_file_location("make_fixtures", FIXTURES / "make.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_learners_still_give_the_stored_results(make):
    """Same refusals and ranks; decisions to a hundredth of the margin, for other processors round otherwise."""
    with (FIXTURES / "ring_training.csv").open() as file:
        rows = list(csv.DictReader(file))
    X = np.array([[float(row["x1"]), float(row["x2"])] for row in rows])
    y = np.array([float(row["label"]) for row in rows])
    expected = json.loads((FIXTURES / "ring_expected.json").read_text())
    found = make.learned(X, y)
    assert found["refused"] == expected["refused"]
    assert found["p_value"] == expected["p_value"]
    assert found["gem_p_value"] == expected["gem_p_value"]
    for name in ("coverage", "dual_value", "decision", "probability", "rbf_decision", "med_decision"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-2, err_msg=name)


def test_most_refused_samples_are_the_planted_ones():
    """The stored refusals are right, not just stable."""
    with (FIXTURES / "ring_training.csv").open() as file:
        anomalous = {n for n, row in enumerate(csv.DictReader(file)) if row["anomalous"] == "1"}
    refused = set(json.loads((FIXTURES / "ring_expected.json").read_text())["refused"])
    assert len(refused & anomalous) >= 0.9 * len(anomalous)
    assert len(refused - anomalous) <= 0.05 * len(anomalous)


def test_recordings_still_give_the_stored_windows_cepstra_and_views(make):
    """From files through windowing and cepstra to views, nothing moves unnoticed."""
    expected, found = json.loads((FIXTURES / "array_expected.json").read_text()), make.heard(FIXTURES / "array")
    assert len(found) == len(expected) == 8 * 10
    assert [segment["window"] for segment in found] == [segment["window"] for segment in expected]
    for one, other in zip(found, expected, strict=True):
        for name in ("means", "summary", "timing"):
            np.testing.assert_allclose(one[name], other[name], atol=0.02, err_msg=name)


def test_the_simulator_still_gives_the_stored_recordings(make):
    """To one code of the converter, for other processors round otherwise."""
    from pipeline.simulation import record

    for number, label in enumerate(make.ARRAY.labels()):
        stored, _ = soundfile.read(FIXTURES / "array" / make.ARRAY.file(number), dtype="float32")
        assert np.abs(record(make.ARRAY.site, number, label=label).samples - stored.T).max() <= 1.5 * 2**-15


def test_fixtures_are_small():
    """Under 5 MB in all."""
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()) < 5e6
