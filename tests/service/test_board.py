"""What the daemon knows at the moment."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline.conditions import Cause, Liveness, State
from pipeline.events import RecordingStarted, StateChanged
from pipeline.service.board import Board

STARTED = RecordingStarted("r", 1000, ("1", "2"), datetime(2026, 5, 1, 12, tzinfo=UTC))


def test_a_state_is_told_with_the_time_since_when_and_forgotten_with_the_recording():
    board = Board(2)
    board.observe(STARTED)
    board.observe(StateChanged(9000, 2500, 1, State.GOOD, State.BAD, Liveness.ALARMED, (Cause.FLAT,)))
    first, second = board.as_dict()["sensors"]
    assert (first["state"], first["since"], first["liveness"]) == ("unknown", None, "initialising")
    assert (second["state"], second["since"], second["liveness"]) == ("bad", "2026-05-01T12:00:02.500Z", "alarmed")
    assert second["cures"] == [Cause.FLAT.cure]
    board.observe(STARTED)
    assert board.as_dict()["sensors"][1]["state"] == "unknown"


def test_nothing_was_decided_yet():
    told = Board(2).as_dict()
    assert (told["recording"], told["model"], told["sensors_used"]) == (None, None, None)
    assert {one["role"] for one in told["sensors"]} == {one["p_value"] for one in told["sensors"]} == {None}
