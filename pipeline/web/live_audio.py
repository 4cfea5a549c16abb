"""The sound of this moment, from the raw piece that the daemon is writing: it costs the daemon nothing."""

from __future__ import annotations

import base64
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.events import Samples
from pipeline.storage.audio import piece_end, raw_tail
from pipeline.web.spectrogram import bands, columns

_MOST_SECONDS = 2.0


class Listener:
    """Columns of a spectrogram, each of them once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._recording: str | None = None
        self._rest: Samples | None = None
        self._position = 0

    def heard(self, recording: str, rate_hz: int, n_sensors: int) -> dict[str, Any] | None:
        """What is new since the last call; nothing if nothing is kept."""
        if recording != self._recording:
            self._recording, self._rest = recording, None
        hop = bands(rate_hz).hop
        after = None if self._rest is None else self._position + self._rest.shape[1]
        most = round(_MOST_SECONDS * rate_hz)
        found = raw_tail(self._directory / recording, n_sensors, after=after, most=most)
        if found is None:
            return None
        start, samples, delivered = found
        if after is not None and 0 < start - after <= most:
            end = piece_end(self._directory / recording, n_sensors, after, start)
            if end is not None:
                start, samples = after, np.concatenate([end, samples], axis=1)
        if after is None or start != after or self._rest is None or len(samples) != len(self._rest):
            self._position = -(-start // hop) * hop
            self._rest = samples[:, self._position - start :]
        else:
            self._rest = np.concatenate([self._rest, samples], axis=1)
        made = columns(self._rest, rate_hz)
        first, done = self._position, made.shape[1] * hop
        self._rest, self._position = self._rest[:, done:], first + done
        if made.shape[1] == 0:
            return None
        return {
            "recording": recording,
            "start_sample": first,
            "hop": hop,
            "delivered": delivered,
            "levels_dbfs": _levels(samples),
            "data": base64.b64encode(made.tobytes()).decode(),
        }


def _levels(samples: Samples) -> list[float | None]:
    """RMS of each sensor without its offset; nothing to say of digital silence."""
    power = samples.var(axis=1)
    return [round(10 * float(np.log10(one)), 1) if 0 < one < inf else None for one in power.tolist()]
