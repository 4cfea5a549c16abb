"""Which sensors deliver sound, and what a status says of those that do not."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline.daemon.delivery import as_delivered, sound_time, usable_sensors

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def sensor(seconds_ago: float | None, state: str = "good"):
    frame = None if seconds_ago is None else NOW.timestamp() - seconds_ago
    return as_delivered({"state": state, "last_frame": frame, "weight": 0.25, "role": "used", "p_value": 0.5}, NOW)


def test_a_sensor_without_sound_has_no_weight():
    """Neither one that fell silent nor one that never was heard."""
    assert (sensor(0.5)["delivers"], sensor(0.5)["weight"], sensor(0.5)["role"]) == (True, 0.25, "used")
    for silent in (sensor(60.0), sensor(None)):
        assert not silent["delivers"]
        assert (silent["weight"], silent["role"], silent["p_value"]) == (None, None, None)


def test_the_newest_sample_of_any_sensor_counts():
    assert sound_time([sensor(90.0), sensor(61.0), sensor(None)]) == "2026-05-01T11:58:59.000Z"
    assert sound_time([sensor(None)]) is None


def test_usable_is_what_delivers_and_is_not_bad():
    found = [sensor(0.1), sensor(0.1, "degraded"), sensor(0.1, "bad"), sensor(0.1, "off"), sensor(60.0)]
    assert usable_sensors(found) == 2
