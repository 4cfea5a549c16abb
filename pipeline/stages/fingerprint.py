"""How a recording is recognised, whatever its name."""

from __future__ import annotations

import numpy as np

from pipeline.core.digests import Sha256
from pipeline.core.events import Block, Gap, RecordingFinished, RecordingStarted

_EVERY = 16
"""Samples so far apart are enough to tell recordings apart, and cost a sixteenth."""


class Fingerprint:
    """Passes everything on, and says at the end of a recording how long it was and what it sounded like.

    The fingerprint is the SHA-256 over every sixteenth sample of all sensors, zero for those that did not deliver. It
    is the same however the sound is cut into blocks.
    """

    accepts = (RecordingStarted, Block, Gap)
    remembers = ("_recording", "_samples", "_state")

    def __init__(self) -> None:
        self._recording: str | None = None
        self._samples, self._state = 0, Sha256()

    def push(self, item: RecordingStarted | Block | Gap, /) -> list[object]:
        if isinstance(item, RecordingStarted):
            before = self.flush()
            self._recording = item.recording
            return [*before, item]
        if isinstance(item, Block):
            self._take(item)
        self._samples = item.stop
        return [item]

    def flush(self) -> list[object]:
        finished: list[object] = []
        if self._recording is not None:
            finished = [RecordingFinished(self._recording, self._samples, self._state.hexdigest())]
        self._recording, self._samples, self._state = None, 0, Sha256()
        return finished

    def _take(self, block: Block) -> None:
        chosen = block.samples[:, -block.start % _EVERY :: _EVERY]
        if not block.delivered.all():
            chosen = np.where(block.delivered[:, None], chosen, 0)
        # Two zeros are one to whoever stores sound as whole numbers.
        self._state.update((chosen.T + np.float32(0)).astype(np.float32, copy=False).tobytes())
