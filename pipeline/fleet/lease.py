"""One owner at a time: an entry that only one can make, and that vanishes unless it is renewed."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable
from time import monotonic

from pipeline.core.errors import LinkError
from pipeline.transport.nats import Bucket, Superseded


class LeaseLost(LinkError):
    """Somebody else has it by now, or may have it."""


class Lease:
    """The right to something, kept by renewing it; the broker's clock decides when it is over, nobody else's.

    It saves work that would be done twice. What must not happen twice is guarded where it is written: the log of
    decisions and the checkpoints take nothing from somebody who does not know their last entry.
    """

    def __init__(
        self, bucket: Bucket, key: str, owner: str, *, seconds: float, steady: Callable[[], float] = monotonic
    ) -> None:
        self._bucket, self._key, self._seconds, self._steady = bucket, key, seconds, steady
        self.owner = owner
        self._revision: int | None = None
        self._renewed_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it."""
        return self._steady() - self._renewed_at > self._seconds / 5

    def take(self) -> bool:
        """Whether it is ours now; also if it was ours before the connection broke."""
        asked_at = self._steady()
        try:
            self._revision = self._bucket.create(self._key, self._value())
        except Superseded:
            entry = self._bucket.get(self._key)
            if entry is None or entry.value != self._value():
                return False
            self._revision = entry.revision
        self._renewed_at = asked_at
        return True

    def renew(self) -> None:
        """A `LeaseLost` if it is no longer ours."""
        asked_at = self._steady()
        if self._revision is None or asked_at - self._renewed_at > self._seconds:
            raise LeaseLost(f"the lease of {self._key} ran out")
        try:
            self._revision = self._bucket.update(self._key, self._value(), self._revision)
        except Superseded as error:
            self._revision = None
            raise LeaseLost(f"the lease of {self._key} is somebody else's by now") from error
        self._renewed_at = asked_at

    def release(self) -> None:
        """Let others have it at once."""
        if self._revision is not None:
            revision, self._revision = self._revision, None
            self._bucket.delete(self._key, revision)

    def _value(self) -> bytes:
        return json.dumps({"owner": self.owner}).encode()


def new_owner() -> str:
    """A name that nobody else has, and that tells where to look."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def owner_of(bucket: Bucket, key: str) -> str | None:
    """Who has it."""
    entry = bucket.get(key)
    return None if entry is None else str(json.loads(entry.value)["owner"])
