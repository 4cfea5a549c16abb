"""Secret keys in the state directory: made once, readable by their owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

KEY_BYTES = 32


def stored_key(path: Path) -> bytes:
    """Return the key in a file, which is made if it is missing or damaged."""
    return _read_key(path) or _made_key(path)


def _read_key(path: Path) -> bytes | None:
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(key) == KEY_BYTES:
        return key
    path.unlink()
    return None


def _made_key(path: Path) -> bytes:
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    try:
        # Unlike a rename, this leaves the key of another process that was faster.
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return path.read_bytes()
