"""Which model shall decide for an array, and since which rollout."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pipeline.transport.nats import Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAssignment:
    """A model for an array; it is on trial for so many segments, in which the one before it decides beside it."""

    model: str
    rollout: str
    trial_segments: int = 0
    is_back: bool = False
    """To the model before: from there is no further back."""
    who: str = ""
    why: str = ""
    time: str = ""

    def as_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def wanted_of(bucket: Bucket, array: str) -> ModelAssignment | None:
    entry = bucket.get(array)
    return None if entry is None else ModelAssignment(**json.loads(entry.value))
