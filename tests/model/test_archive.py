"""Models on disk: whole, unchanged, and never loaded otherwise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.core.errors import ModelError
from pipeline.model.archive import read_archive, write_archive
from tests.conftest import eventually

ARRAYS = {
    "axes": np.random.default_rng(0).normal(size=(4, 5, 7)).astype(np.float32),
    "classes": np.array(["human", "human_animal"]),
    "refused": np.array([True, False, True]),
    "empty": np.empty((0, 3)),
    "nan": np.array([np.nan, -0.0, np.inf]),
}
METADATA = {"rate_hz": 16000, "contamination": [0.001, 0.235], "trained": {"recordings": ["r001"]}, "note": "grün"}


def test_what_was_stored_is_what_is_loaded(tmp_path):
    """To the bit, read-only, with an identity that both sides agree on."""
    identity = write_archive(tmp_path / "m", METADATA, ARRAYS)
    found = read_archive(tmp_path / "m")
    assert found.identity == identity
    assert found.metadata == METADATA
    assert set(found.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()
        assert not found.arrays[name].flags.writeable


def test_equal_models_have_equal_bytes_and_others_another_identity(tmp_path):
    """Whatever the order in which arrays and metadata were given."""
    one = write_archive(tmp_path / "a", METADATA, ARRAYS)
    turned = dict(reversed(METADATA.items())), dict(reversed(ARRAYS.items()))
    assert write_archive(tmp_path / "b", *turned) == one
    for name in ("model.json", "arrays.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert write_archive(tmp_path / "c", METADATA, ARRAYS | {"nan": np.array([np.nan, 0.0, np.inf])}) != one


def test_a_model_is_never_overwritten(tmp_path):
    """Not even by itself."""
    write_archive(tmp_path / "m", METADATA, ARRAYS)
    before = (tmp_path / "m" / "arrays.npz").read_bytes()
    with pytest.raises(ModelError, match="m exists, and models are never changed; give another directory"):
        write_archive(tmp_path / "m", METADATA, {})
    assert (tmp_path / "m" / "arrays.npz").read_bytes() == before


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "m"
    write_archive(directory, METADATA, ARRAYS)
    return directory


def identity_or_none(directory: Path) -> str | None:
    """None if the model cannot be loaded."""
    try:
        return read_archive(directory).identity
    except ModelError:
        return None


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_flipped_bit_is_noticed_wherever_it_is(stored, data):
    """Loading fails with a ModelError, or the identity is another one: no damage passes for the model."""
    name = data.draw(st.sampled_from(["model.json", "arrays.npz"]))
    whole, identity = (stored / name).read_bytes(), read_archive(stored).identity
    place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    damaged = bytearray(whole)
    damaged[place] ^= 1 << bit
    (stored / name).write_bytes(damaged)
    found = identity_or_none(stored)
    (stored / name).write_bytes(whole)
    assert found is None or (name == "model.json" and found != identity)
    assert read_archive(stored).identity == identity


@pytest.mark.parametrize("keep", [0, 1, 100])
@pytest.mark.parametrize("name", ["model.json", "arrays.npz"])
def test_a_truncated_or_missing_file_is_named(tmp_path, name, keep):
    """With the cure."""
    write_archive(tmp_path / "m", METADATA, ARRAYS)
    (tmp_path / "m" / name).write_bytes((tmp_path / "m" / name).read_bytes()[:keep])
    with pytest.raises(ModelError, match=f"{name}.*; restore the model from a copy"):
        read_archive(tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    with pytest.raises(ModelError, match=f"{name} cannot be read: No such file or directory; give the directory"):
        read_archive(tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "has model format 1, this version reads 2; train it again: gemmed train .* --model .*m-2"),
        ({"format": 3}, "has model format 3, this version reads 2"),
        ({"format": None}, "has model format None"),
        ({"kind": "other"}, "does not describe a gemmed model"),
        ({"sha256": {}}, "is incomplete"),
        ({"metadata": 3}, "is incomplete"),
    ],
)
def test_foreign_older_and_newer_models_are_refused(tmp_path, change, message):
    """By what they say of themselves."""
    write_archive(tmp_path / "m", METADATA, ARRAYS)
    described = json.loads((tmp_path / "m" / "model.json").read_text())
    (tmp_path / "m" / "model.json").write_text(json.dumps(described | change))
    with pytest.raises(ModelError, match=message):
        read_archive(tmp_path / "m")


def test_what_cannot_be_stored_is_refused_and_leaves_nothing(tmp_path):
    """Python objects in arrays, metadata that JSON does not know."""
    with pytest.raises(ModelError, match="array 'x' holds Python objects"):
        write_archive(tmp_path / "m", {}, {"x": np.array([object()])})
    for bad in (float("nan"), {1, 2}):
        with pytest.raises(ModelError, match="cannot be written as JSON"):
            write_archive(tmp_path / "m", {"x": bad}, {})
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys
from pathlib import Path
import numpy
from pipeline.model.archive import write_archive
array = numpy.zeros(2_000_000)
for number in range(10_000):
    write_archive(Path(sys.argv[1]) / f"m{number}", {}, {"x": array})
"""


def test_a_killed_writer_leaves_whole_models_only(tmp_path):
    """SIGKILL in the middle: every directory that has the name of a model loads."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    eventually(lambda: process.poll() is not None or len(list(tmp_path.glob("m*"))) >= 5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    models = list(tmp_path.glob("m*"))
    assert len(models) >= 5
    for model in models:
        assert len(read_archive(model).arrays["x"]) == 2_000_000
