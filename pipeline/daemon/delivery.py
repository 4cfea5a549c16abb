"""Which sensors deliver sound, as the status of a daemon shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pipeline.core.sensor_state import State
from pipeline.storage.journal import utc

SILENT_SECONDS = 3.0
"""After so long without a sample a sensor delivers nothing."""
_OF_A_DECISION = ("weight", "role", "p_value")
Sensor = Mapping[str, Any]


def as_delivered(sensor: Sensor, now: datetime) -> dict[str, Any]:
    """Return the status of a sensor with `delivers`; without a weight if it delivers nothing."""
    frame = sensor["last_frame"]
    delivers = frame is not None and now.timestamp() - frame < SILENT_SECONDS
    return dict(sensor) | {"delivers": delivers} | ({} if delivers else dict.fromkeys(_OF_A_DECISION))


def sound_time(sensors: Sequence[Sensor]) -> str | None:
    """Return when the last sample of any sensor arrived, in UTC."""
    frames = [sensor["last_frame"] for sensor in sensors if sensor["last_frame"] is not None]
    return utc(datetime.fromtimestamp(max(frames), UTC)) if frames else None


def usable_sensors(sensors: Sequence[Sensor]) -> int:
    """Count the sensors that deliver sound and are neither bad nor switched off."""
    return sum(sensor["delivers"] and sensor["state"] not in (State.BAD, State.OFF) for sensor in sensors)
