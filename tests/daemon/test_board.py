"""What the daemon knows at the moment."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline.core.events import (
    Outcome,
    Passage,
    PassageEnd,
    PassageEnded,
    PassageStarted,
    RecordingStarted,
    StateChanged,
)
from pipeline.core.sensor_state import Cause, Liveness, State
from pipeline.daemon.board import Board

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


def passage(stop: int, label: str | None) -> Passage:
    outcome = Outcome(label, 0.9, None, None if label else "too close to call", None)
    return Passage("r.p2000", 2000, stop, outcome, {}, 0.8, 4, 4, (0, 1), (), (), None, cadence_per_minute=104.04)


def test_a_passage_is_told_until_it_ends():
    """Nobody is there since the recording began, then since the passage ended, also in the next recording."""
    board = Board(2)
    board.observe(STARTED)
    assert board.as_dict()["presence"]["since"] == "2026-05-01T12:00:00.000Z"
    board.observe(PassageStarted(4000, passage(4000, "human")))
    told = board.as_dict()["presence"]
    assert told["since"] == "2026-05-01T12:00:02.000Z"
    assert told["passage"]["passage"] == "r.p2000"
    assert (told["passage"]["label"], told["passage"]["cadence_per_minute"]) == ("human", 104.0)
    assert told["passage"]["sensors_used"] == [1, 2]
    board.observe(PassageEnded(9000, passage(7000, None), PassageEnd.QUIET))
    board.observe(RecordingStarted("s", 1000, ("1", "2"), datetime(2026, 5, 1, 13, tzinfo=UTC)))
    told = board.as_dict()
    assert (told["presence"]["passage"], told["presence"]["since"]) == (None, "2026-05-01T12:00:07.000Z")
    assert told["passages_total"] == {"no label": 1}
