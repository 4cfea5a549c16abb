"""Models on their way to workers: by the hash of their content, kept on the worker's disk once they arrived."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import struct
from functools import lru_cache
from pathlib import Path
from threading import Lock

from pipeline.core.errors import ModelError
from pipeline.model.model import Model
from pipeline.runtime.logs import log
from pipeline.transport.nats import Objects

_FILES = ("model.json", "arrays.npz")
_LENGTH = struct.Struct("<Q")
_HAND_IN = "hand it in with gemmed fleet rollout --again"
"""Without it, an array that has refused the model ignores it."""
_loading: dict[Path, Lock] = {}
"""For each model one who fetches and reads it; arrays that want another one do not wait for him."""


def usual_cache() -> Path:
    """Where a worker keeps models if nobody says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gemmed" / "models"


class ModelStore:
    """The models of a fleet. Each is known by its identity, or by the first digits of it, which is its name."""

    def __init__(self, objects: Objects, cache: Path) -> None:
        self._objects, self._cache = objects, cache

    def add(self, directory: Path) -> Model:
        """Hand in a model, for all who want it; whatever else the broker has in its place is replaced."""
        model = Model.load(directory)
        contents = [(directory / name).read_bytes() for name in _FILES]
        data = b"".join(_LENGTH.pack(len(one)) + one for one in contents)
        if self._objects.get(model.name) != data:
            self._objects.put(model.name, data)
        return model

    def load(self, name: str) -> Model:
        """The model of a name, fetched if it is not here; a `ModelError` if what came is something else."""
        directory = self._cache / name
        with _loading.setdefault(directory, Lock()):
            model = self._kept(directory) or self._fetched(name, directory)
        if model.name != name:
            raise ModelError(f"{directory} holds model {model.name}; remove that directory, and it is fetched again")
        return model

    def _kept(self, directory: Path) -> Model | None:
        """The model that is here; one that was damaged since is removed, as by a power failure right after it came."""
        if not directory.exists():
            return None
        try:
            return _loaded(directory)
        except ModelError as error:
            log.warning("a model that was kept is damaged; it is fetched again", model=directory.name, why=str(error))
            shutil.rmtree(directory, ignore_errors=True)
            return None

    def _fetched(self, name: str, directory: Path) -> Model:
        self._fetch(name, directory)
        return _loaded(directory)

    def _fetch(self, name: str, directory: Path) -> None:
        data = self._objects.get(name)
        if data is None:
            raise ModelError(f"model {name} is not with the broker; {_HAND_IN}")
        fresh = directory.with_name(f".{name}.{secrets.token_hex(4)}.partial")
        try:
            fresh.mkdir(parents=True)
            for file in _FILES:
                (length,) = _LENGTH.unpack_from(data)
                (fresh / file).write_bytes(data[_LENGTH.size : _LENGTH.size + length])
                data = data[_LENGTH.size + length :]
            found = hashlib.sha256((fresh / _FILES[0]).read_bytes()).hexdigest()
            if not found.startswith(name):
                raise ModelError(f"what the broker has as model {name} is {found[: len(name)]}; {_HAND_IN}")
            Model.load(fresh)
            try:
                fresh.rename(directory)
            except OSError:
                if not directory.exists():  # another worker on this machine may have been faster
                    raise
        except OSError as error:
            raise ModelError(
                f"model {name} cannot be kept in {self._cache}: {error.strerror}; make room there for the user of the "
                "worker, or give another place as fleet.cache; a rollout needs --again then"
            ) from error
        except struct.error as error:
            raise ModelError(f"what the broker has as model {name} is cut off; {_HAND_IN}") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


@lru_cache(maxsize=16)
def _loaded(directory: Path) -> Model:
    """Read once for all arrays of a process, which share it."""
    return Model.load(directory)
