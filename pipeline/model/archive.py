"""Arrays and their description in a directory that is written once, whole, and never loaded damaged.

    NAME/model.json    what it is: kind, format, metadata, and the SHA-256 of these and of every other file
    NAME/arrays.npz    the arrays, without pickle

The SHA-256 of model.json is the identity of the whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import ModelError

KIND, FORMAT = "gemmed model", 2
"""Format 1 had one view of a segment, the flattened cepstra of its window."""


@dataclass(frozen=True, slots=True)
class Archive:
    """What was stored, and its identity."""

    metadata: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    identity: str


def write_archive(directory: Path, metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Store arrays and metadata, all or nothing; the identity of what was stored.

    The same arrays and metadata give the same bytes. A directory that exists is never written to.
    """
    if directory.exists():
        raise ModelError(f"{directory} exists, and models are never changed; give another directory")
    content = _packed(arrays)
    try:
        sums = {"arrays.npz": hashlib.sha256(content).hexdigest(), "metadata": _sum(metadata)}
        described = {"kind": KIND, "format": FORMAT, "sha256": sums, "metadata": dict(metadata)}
        text = json.dumps(described, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise ModelError(f"metadata of {directory} cannot be written as JSON ({error}); use plain values") from error
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".partial", dir=directory.parent))
    try:
        for name, data in (("arrays.npz", content), ("model.json", text)):
            with (fresh / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        fresh.chmod(0o755)
        fresh.rename(directory)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return hashlib.sha256(text).hexdigest()


def identity_in(directory: Path) -> str:
    """Of what is stored there, which may be damaged all the same; a `ModelError` if there is nothing."""
    return hashlib.sha256(_read(directory, "model.json")).hexdigest()


def read_archive(directory: Path) -> Archive:
    """What `write_archive` stored; a `ModelError` says what is wrong with anything else."""
    text = _read(directory, "model.json")
    try:
        described = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{directory / 'model.json'} is damaged ({error}); restore the model from a copy") from error
    if not isinstance(described, dict) or described.get("kind") != KIND:
        raise ModelError(
            f"{directory / 'model.json'} does not describe a gemmed model; give a directory made by gemmed"
        )
    if described.get("format") != FORMAT:
        raise ModelError(
            f"{directory} has model format {described.get('format')!r}, this version reads {FORMAT}; train it again: "
            f"gemmed train RECORDINGS --labels LABELS --model {directory.with_name(f'{directory.name}-{FORMAT}')}"
        )
    if _sum(described.get("metadata")) != _expected(described, directory, "metadata"):
        raise ModelError(
            f"{directory / 'model.json'} is not what was stored: its SHA-256 differs; restore the model from a copy"
        )
    content = _read(directory, "arrays.npz")
    if hashlib.sha256(content).hexdigest() != _expected(described, directory, "arrays.npz"):
        raise ModelError(
            f"{directory / 'arrays.npz'} is not what was stored: its SHA-256 differs; restore the model from a copy"
        )
    return Archive(described["metadata"], _unpacked(content, directory), hashlib.sha256(text).hexdigest())


def _sum(metadata: Any) -> str:
    """Of the metadata in one form, however they are laid out."""
    return hashlib.sha256(json.dumps(metadata, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _expected(described: dict[str, Any], directory: Path, name: str) -> str:
    sums, metadata = described.get("sha256"), described.get("metadata")
    if not isinstance(sums, dict) or not isinstance(metadata, dict) or name not in sums:
        raise ModelError(f"{directory / 'model.json'} is incomplete; restore the model from a copy")
    return str(sums[name])


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ModelError(f"array {name!r} holds Python objects; store numbers or text only")
    packed = io.BytesIO()
    # In one order, whatever the mapping's, so that equal arrays give equal bytes.
    np.savez(packed, allow_pickle=False, **{name: arrays[name] for name in sorted(arrays)})
    return packed.getvalue()


def _unpacked(content: bytes, directory: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (ValueError, OSError, EOFError, BadZipFile, AttributeError, TypeError, MemoryError) as error:
        raise ModelError(f"{directory / 'arrays.npz'} cannot be read ({error}); train the model again") from error
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def _read(directory: Path, name: str) -> bytes:
    try:
        return (directory / name).read_bytes()
    except OSError as error:
        raise ModelError(
            f"{directory / name} cannot be read: {error.strerror}; give the directory of a model, with all of its files"
        ) from error
