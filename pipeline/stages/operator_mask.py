"""Sensors that somebody does not want to hear."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from pipeline.core.errors import SettingsError
from pipeline.core.events import RecordingStarted, TrustChanged


class OperatorMask:
    """Takes the trust from some of the sensors, counted from 0, at the beginning of every recording."""

    accepts = RecordingStarted
    remembers = ()

    def __init__(self, masked: Collection[int], n_sensors: int) -> None:
        self._trusted = ~np.isin(np.arange(n_sensors), list(masked))
        if len(set(masked)) != int((~self._trusted).sum()):
            told = ",".join(str(sensor + 1) for sensor in sorted(masked))
            raise SettingsError(f"mask={told} must name sensors from 1 to {n_sensors}")

    def push(self, started: RecordingStarted, /) -> list[object]:
        return [started] if self._trusted.all() else [started, TrustChanged(0, self._trusted)]

    def flush(self) -> list[object]:
        return []
