"""Sensors that somebody does not want to hear."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from pipeline.errors import SettingsError
from pipeline.events import RecordingStarted, TrustChanged


class Masking:
    """Takes the trust from some sensors, counted from 0, at the beginning of every recording."""

    accepts = RecordingStarted

    def __init__(self, masked: Collection[int]) -> None:
        self._masked = sorted(set(masked))

    def push(self, started: RecordingStarted, /) -> list[object]:
        n_sensors = len(started.sensors)
        if self._masked and not 0 <= self._masked[0] <= self._masked[-1] < n_sensors:
            raise SettingsError(
                f"mask={','.join(str(s + 1) for s in self._masked)} must name sensors from 1 to {n_sensors}"
            )
        if not self._masked:
            return [started]
        trusted = ~np.isin(np.arange(n_sensors), self._masked)
        return [started, TrustChanged(0, trusted)]

    def flush(self) -> list[object]:
        return []
