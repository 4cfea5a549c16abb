"""The directory in which a daemon keeps everything.

journal.sqlite   events, labels, models, pieces of sound
sound/           what was heard
models/          what decides, decided, or was refused
examples/        what is learned from
session.key      signs the cookies of the dashboard
link.key         signs links to clips in notifications
lock             held by the daemon that runs here
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.core.errors import StorageError, UsageError


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """Where is what."""

    path: Path

    @property
    def journal(self) -> Path:
        return self.path / "journal.sqlite"

    @property
    def sound(self) -> Path:
        return self.path / "sound"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def examples(self) -> Path:
        return self.path / "examples"

    @property
    def session_key(self) -> Path:
        return self.path / "session.key"

    @property
    def link_key(self) -> Path:
        return self.path / "link.key"

    def create(self) -> None:
        """Make what is missing, and see that it can be written to."""
        try:
            for directory in (self.path, self.sound, self.models, self.examples):
                directory.mkdir(parents=True, exist_ok=True)
            probe = self.path / f".probe-{os.getpid()}"
            probe.write_bytes(b"gemmed")
            probe.unlink()
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be written to: {error.strerror}; give another storage.directory, make space or "
                "change its rights"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else runs a daemon here meanwhile; the system frees the lock of one that was killed."""
        with (self.path / "lock").open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                owner = file.read(20).decode(errors="replace").strip() or "unknown"
                raise UsageError(
                    f"{self.path} is used by another gemmed run, process {owner}; stop it, or give another "
                    "storage.directory"
                ) from error
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
            file.flush()
            yield

    def is_locked(self) -> bool:
        """Whether a daemon runs here."""
        try:
            with (self.path / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False


def new_run() -> str:
    """A name for a life of the daemon: when it began, and something that tells apart what began at once."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
