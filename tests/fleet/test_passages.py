"""Passages of a fleet: what is decided, sent, listed and followed, against a replay of the same sound."""

from __future__ import annotations

import csv
import io
import json
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.passages import INTERRUPTED, PASSAGE_EVENTS
from pipeline.fleet.array_state import is_notable
from pipeline.fleet.passages import ArrayPassages
from pipeline.model.starter import STARTER
from tests.conftest import TIMEOUT, eventually
from tests.fleet.broker import Nats
from tests.fleet.by_hand import NOON, Hand, empty_fleet, fleet_file, sent_events
from tests.fleet.hosted import Stage, parcels_of
from tests.forked import gemmed, started

PATTERN = "{recording}_{time:%Y%m%d_%H%M%S}.flac"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Nats]:
    with Nats(tmp_path_factory.mktemp("nats")) as nats:
        yield nats


@pytest.fixture(scope="module")
def day(tmp_path_factory) -> Path:
    """A minute in which somebody passes."""
    out = tmp_path_factory.mktemp("day") / "day"
    shape = ("--hours", "0.0167", "--passages", "960", "--distractors", "0", "--seed", "7", "--faults", "none")
    classes = ("--classes", "human,human_animal")
    done = gemmed("simulate", str(out), "--day", *shape, *classes, "--no-picture", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def expected(day, tmp_path_factory) -> list[dict[str, Any]]:
    """What `gemmed passages` lists after a local replay."""
    out = tmp_path_factory.mktemp("replay") / "decisions.jsonl"
    done = gemmed("replay", str(day), "--model", str(STARTER), "--out", str(out), "--pattern", PATTERN, "--jobs", "1")
    assert done.returncode == 0, done.stderr
    done = gemmed("passages", str(out), "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.fixture(scope="module")
def decided(server, day, tmp_path_factory) -> Iterator[tuple[Stage, Path]]:
    """Two arrays, one of which heard the day, and the file of their fleet."""
    directory = tmp_path_factory.mktemp("decided")
    stage = Stage(server, directory, STARTER)
    try:
        stage.publish("north", parcels_of(day, pattern=PATTERN))
        stage.give("north")
        eventually(lambda: finished(stage, "north"), "all is decided", every=0.2)
        yield stage, fleet_file(directory, server, "north south")
    finally:
        stage.close()


def finished(stage: Stage, array: str) -> bool:
    return any(event["type"] == "recording_finished" for event in stage.told(array))


def n_decisions(stage: Stage, array: str) -> int:
    return sum(event["type"] == "decision" for event in stage.told(array))


def listed(file: Path, *options: str) -> list[dict[str, Any]]:
    done = gemmed("fleet", "passages", str(file), "--json", *options)
    assert done.returncode == (0 if json.loads(done.stdout) else 1), done.stderr
    return list(json.loads(done.stdout))


def test_an_array_has_the_passages_of_a_replay_of_its_sound(decided, expected):
    stage, file = decided
    assert expected
    place = {"array": "north", "site": "north gate"}
    assert listed(file) == [place | one | {"model": stage.model} for one in expected]
    assert listed(file, "--array", "south") == []


def test_passages_and_problems_are_sent_once_more_by_themselves(decided):
    """With the time of their recording, in the order of the decisions."""
    stage, _ = decided
    with stage.broker() as broker:
        stored = broker.read(stage.places.notable_stream, stage.places.notable, 1).to_the_end()
        sent = [(message.subject.split(".")[2], json.loads(message.data)) for message in stored]
    notable = [event for event in stage.told("north") if is_notable(event)]
    assert {event["type"] for event in notable} >= {"passage_started", "passage_ended", "state_changed"}
    assert sent == [
        (
            "passage" if event["type"] in PASSAGE_EVENTS else "problem",
            event | {"recording_started_at": "2026-01-01T00:00:00+00:00"},
        )
        for event in notable
    ]


def test_an_array_that_is_decided_again_sends_no_passage_twice(decided, expected):
    """Without its checkpoint it begins at the beginning of the log, and all is the same as before."""
    stage, file = decided
    before = listed(file)
    with stage.broker() as broker:
        sent = broker.last_sequence(stage.places.notable_stream)
        broker.purge(f"KV_{stage.places.name}-checkpoints", f"$KV.{stage.places.name}-checkpoints.north")
    owner = stage.owners[0]
    stage.give("north")
    assert owner.end()
    ended = stage.status("north")["time"]
    n = n_decisions(stage, "north")
    stage.until_status("north", lambda status: status["time"] > ended and status["decisions"] == n)
    assert listed(file) == before
    with stage.broker() as broker:
        assert broker.last_sequence(stage.places.notable_stream) == sent


def test_the_status_of_the_fleet_has_the_last_passage_of_each_array(decided, expected):
    """Told at intervals: a status of the middle of the passage may still stand there."""
    stage, file = decided
    n = n_decisions(stage, "north")
    stage.until_status("north", lambda status: status["decisions"] == n)
    done = gemmed("fleet", "status", str(file), "--json")
    found = {one["array"]: one for one in json.loads(done.stdout)["arrays"]}
    last = found["north"]["last_passage"]
    assert (last["label"], last["start_time"]) == (expected[-1]["label"], expected[-1]["start_time"])
    assert found["north"]["presence"]["somebody"] is False
    assert found["south"]["last_passage"] is None
    assert "2026-01-01 00:00 Human" in gemmed("fleet", "status", str(file)).stdout


# Streams made by hand.


def taken(sent: list[dict[str, Any]]) -> ArrayPassages:
    known = ArrayPassages()
    for event in sent:
        known.add(event)
    return known


def test_a_passage_that_a_border_cut_is_one():
    rows = taken(sent_events()).rows()
    assert [(row.passage, len(row.parts), row.end) for row in rows] == [
        ("run-0001.p5000", 1, "quiet"), ("run-0001.p50000", 2, "quiet"), ("run-0002.p30000", 1, "quiet"),
    ]  # fmt: skip


def test_each_passage_is_popped_once_when_nothing_can_continue_it():
    """Event by event, also if the broker delivers the events twice."""
    known, popped = ArrayPassages(), []
    for event in sent_events():
        for _ in range(2):
            known.add(event)
            popped += [(event["id"], row.passage, len(row.parts)) for row in known.pop_complete()]
    # Events 1 to 3 are of the first passage, 4 to 9 of the two parts of the second, 10 to 12 of the third.
    assert popped == [(3, "run-0001.p5000", 1), (9, "run-0001.p50000", 2), (12, "run-0002.p30000", 1)]


def test_the_end_of_a_recording_ends_a_passage_after_a_while(monkeypatch):
    monkeypatch.setattr("pipeline.fleet.passages.SETTLE_SECONDS", 0.05)
    known = taken(sent_events()[:6])
    eventually(lambda: [row.passage for row in known.pop_complete()][-1:] == ["run-0001.p50000"], every=0.01)


def test_only_the_newest_passage_can_be_going_on():
    """One that was left without an end was interrupted, for an array has one passage at a time."""
    sent = sent_events()
    assert [row.end for row in taken(sent[:2]).rows()] == [None]
    assert [row.end for row in taken([*sent[:2], *sent[9:]]).rows()] == [INTERRUPTED, "quiet"]


@pytest.fixture
def by_hand(server, tmp_path, request) -> tuple[Hand, Path]:
    """An empty fleet with names of its own at the broker."""
    return empty_fleet(server, tmp_path, request.node.name)


def test_filters_choose_by_time_label_probability_and_array(by_hand):
    hand, file = by_hand
    hand.send("north", sent_events())
    hand.send("south", sent_events(NOON + timedelta(hours=1)))
    assert [one["array"] for one in listed(file)] == ["north"] * 3 + ["south"] * 3
    assert len(listed(file, "--label", "human_animal")) == 2
    assert [one["array"] for one in listed(file, "--since", "2026-05-01T12:30:00Z")] == ["south"] * 3
    assert [one["array"] for one in listed(file, "--until", "2026-05-01T12:30:00Z")] == ["north"] * 3
    assert len(listed(file, "--array", "north", "--least-probability", "0.93")) == 1
    assert listed(file, "--label", "vehicle") == []


def test_tables_name_array_and_site(by_hand):
    hand, file = by_hand
    assert gemmed("fleet", "passages", str(file)).stdout == "0 passages\n"
    hand.send("north", sent_events())
    done = gemmed("fleet", "passages", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3 passages: 2 human, 1 human_animal"
    assert sum("north gate" in line for line in done.stdout.splitlines()) == 3
    done = gemmed("fleet", "passages", str(file), "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["array"], row["site"], row["label"]) for row in rows] == [
        ("north", "north gate", "human"), ("north", "north gate", "human_animal"), ("north", "north gate", "human"),
    ]  # fmt: skip


def test_what_cannot_be_listed_is_refused_with_the_cure(by_hand):
    file = by_hand[1]
    for options, words in (
        (("--array", "west"), "west"),
        (("--follow", "--until", "-1min"), "leave one out"),
        (("--least-probability", "7"), "must be 0 to 1"),
    ):
        done = gemmed("fleet", "passages", str(file), *options)
        assert done.returncode in (1, 2)
        assert words in done.stderr


def test_passages_are_followed_as_they_end(by_hand, tmp_path):
    """First those that are there; Ctrl-C ends it."""
    hand, file = by_hand
    sent = sent_events()
    hand.send("north", sent[:5])
    table, out = tmp_path / "passages.csv", tmp_path / "out"
    with out.open("wb") as written:
        process = started(
            ["fleet", "passages", str(file), "--follow", "--json", "--csv", str(table)],
            stdout=written,
        )
    try:
        eventually(lambda: out.read_text().count("\n") == 1, "the first passage")
        hand.send("south", sent[9:])
        eventually(lambda: out.read_text().count("\n") == 2, "a passage of the other array")
        hand.send("north", sent[5:])
        eventually(lambda: out.read_text().count("\n") == 4, "the others")
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(TIMEOUT)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(one["array"], one["passage"], len(one["parts"])) for one in found] == [
        ("north", "run-0001.p5000", 1),
        ("south", "run-0002.p30000", 1),
        ("north", "run-0001.p50000", 2),
        ("north", "run-0002.p30000", 1),
    ]
    assert [row["passage"] for row in csv.DictReader(io.StringIO(table.read_text()))] == [
        one["passage"] for one in found
    ]
    assert code == 0
