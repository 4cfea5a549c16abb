"""How a fleet is, and what it decided: read from the real buckets and logs of a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline.core.sensor_state import State
from pipeline.fleet.config import RESERVED, Fleet, read_fleet
from pipeline.fleet.status import ALL_WELL, NOT_RUN, SOME_ILL, exit_code, fleet_status, show_status
from pipeline.fleet.topology import Places
from pipeline.transport.nats import Broker
from tests.fleet.broker import Nats
from tests.fleet.fleets import recordings_of
from tests.fleet.hosted import Stage, parcels_of
from tests.forked import gemmed

_LEASE = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Nats]:
    with Nats(tmp_path_factory.mktemp("nats")) as nats:
        yield nats


class Told:
    """A fleet in a file, with names of its own at the broker, and what its workers would have written there."""

    def __init__(self, nats: Nats, directory: Path, name: str, arrays: str) -> None:
        self._nats, self.file = nats, directory / "fleet.toml"
        self.file.write_text(
            f'[fleet]\nlease = "{_LEASE:g} s"\n[broker]\naddress = "{nats.address}"\nname = "{name}"\n'
            + "".join(f'[[arrays]]\nname = "{array}"\nsite = "[/site] of {array}"\n' for array in arrays.split())
        )
        self.fleet: Fleet = read_fleet(self.file)
        self.places: Places = self.fleet.places
        with self.broker() as broker:
            self.places.make(broker)

    @contextmanager
    def broker(self) -> Iterator[Broker]:
        with Broker(self._nats.access(), name="test") as broker:
            yield broker

    def owned(self, *keys: str) -> None:
        with self.broker() as broker:
            for key in keys:
                self.places.leases(broker).put(key, json.dumps({"owner": f"host-of-{key}:17:abc"}).encode())

    def tell(self, array: str, *states: State, **more: Any) -> None:
        """As a worker tells it of an array that was heard."""
        known = {
            "recording": "r001",
            "rate_hz": 4000,
            "sensors": [{"sensor": number, "state": str(state)} for number, state in enumerate(states, start=1)],
            "failed": None,
            "samples_lost": 0,
            "lag_seconds": 0.0,
            "heard_at": "2026-01-02T03:04:05.000Z",
            **more,
        }
        with self.broker() as broker:
            self.places.status(broker).put(array, json.dumps(known).encode())

    def publish(self, *arrays: str) -> None:
        log = self.places.sound
        with self.broker() as broker:
            for array in arrays:
                broker.publish(log.subject(array), b"sound", stream=log.stream, id=f"first of {array}")

    def stored_at(self, array: str) -> datetime:
        with self.broker() as broker:
            return broker.last(self.places.events_stream, self.places.events(array)).time

    def log_events(self, array: str, *numbers: int, attempt: str) -> None:
        data = "".join(json.dumps({"id": n, "array": array, "type": "decision"}) + "\n" for n in numbers)
        with self.broker() as broker:
            broker.publish(self.places.events(array), data.encode(), stream=self.places.events_stream, id=attempt)

    def status(self) -> dict[str, Any]:
        with self.broker() as broker:
            return fleet_status(self.fleet, broker)

    def shown(self) -> str:
        console = Console(width=200)
        with console.capture() as capture:
            show_status(self.status(), console)
        return capture.get()


@pytest.fixture
def fleet_of(server, tmp_path, request):
    """One of these arrays."""
    return lambda arrays: Told(server, tmp_path, request.node.name.replace("_", "-")[:40], arrays)


GOOD, BAD, DEGRADED, UNKNOWN, OFF = State.GOOD, State.BAD, State.DEGRADED, State.UNKNOWN, State.OFF


def test_the_worst_is_first_then_the_longest_lag_then_the_greatest_loss(fleet_of):
    told = fleet_of("good late lossy lossy-and-late bad degraded failed nobody unheard unknown off also-good")
    told.owned(RESERVED, *(array.name for array in told.fleet.arrays if array.name not in ("nobody", "failed")))
    told.tell("good", GOOD, GOOD)
    told.tell("also-good", GOOD, GOOD)
    told.tell("late", GOOD, GOOD, lag_seconds=7.0)
    told.tell("lossy", GOOD, GOOD, samples_lost=4000)
    told.tell("lossy-and-late", GOOD, GOOD, samples_lost=8000, lag_seconds=7.0)
    told.tell("bad", GOOD, BAD)
    told.tell("degraded", DEGRADED, GOOD, lag_seconds=900.0, samples_lost=10**6)
    told.tell("failed", GOOD, GOOD, failed="its model hears other sensors")
    told.tell("nobody", GOOD, GOOD, owner="who-died:3:def")
    told.tell("unknown", UNKNOWN, GOOD)
    told.tell("off", OFF, GOOD)
    status = told.status()
    assert [(one["array"], one["worst"]) for one in status["arrays"]] == [
        ("failed", "failed"),
        ("nobody", "nobody"),
        ("bad", "bad"),
        ("degraded", "degraded"),
        ("unheard", "never heard"),
        ("unknown", "unknown"),
        ("off", "off"),
        ("lossy-and-late", "good"),
        ("late", "good"),
        ("lossy", "good"),
        ("also-good", "good"),
        ("good", "good"),
    ]
    lossy = next(one for one in status["arrays"] if one["array"] == "lossy")
    assert (lossy["lost_seconds"], lossy["owner"], lossy["site"]) == (1.0, "host-of-lossy:17:abc", "[/site] of lossy")
    nobody = next(one for one in status["arrays"] if one["array"] == "nobody")
    assert nobody["owner"] is None
    assert "who-died" not in told.shown()
    assert exit_code(status) == SOME_ILL


@pytest.mark.parametrize(
    ("states", "owned", "failed", "code"),
    [
        ((GOOD, GOOD), True, None, ALL_WELL),
        ((UNKNOWN, OFF), True, None, ALL_WELL),
        ((GOOD, DEGRADED), True, None, SOME_ILL),
        ((GOOD, BAD), True, None, SOME_ILL),
        ((GOOD, GOOD), False, None, SOME_ILL),
        ((GOOD, GOOD), True, "no", SOME_ILL),
    ],
)
def test_what_is_ill_and_what_is_not(server, tmp_path, states, owned, failed, code):
    told = Told(server, tmp_path, f"ill-{'-'.join(states)}-{owned}-{failed}", "north")
    told.tell("north", *states, failed=failed)
    told.owned(*["north"] * owned)
    assert exit_code(told.status()) == NOT_RUN
    told.owned(RESERVED)
    assert exit_code(told.status()) == code


def test_whoever_publishes_and_whoever_should(fleet_of):
    told = fleet_of("north south")
    told.publish("north", "stranger", "another")
    status = told.status()
    assert status["not_in_the_fleet"] == ["another", "stranger"]
    assert status["never_published"] == ["south"]
    shown = told.shown()
    assert "published, but not in the fleet: another, stranger; add them below [[arrays]]" in shown
    assert "in the fleet, but not in the log: south; start gemmed publish there" in shown
    assert "nobody dispatches: start gemmed fleet run" in shown


def test_the_table_names_ill_sensors_in_words(fleet_of):
    told = fleet_of("north south west east")
    told.owned(RESERVED, "north", "south", "east")
    told.tell("north", GOOD, BAD, GOOD, DEGRADED, trial=True, model="m17")
    told.tell("south", GOOD, GOOD, heard_at=None)
    told.tell("east", GOOD, failed="it [/is] at [[arrays]]")
    rows = {line.split("│")[1].strip(): line for line in told.shown().splitlines() if line.startswith("│")}
    expected = {
        "north": ("2 bad, 4 degraded", "m17 (on trial)", "min ago"),
        "south": ("all good", "earlier", "host-of-south:17 "),
        "west": ("nobody", "never"),
        "east": ("failed",),
    }
    missing = [(array, word) for array, words in expected.items() for word in words if word not in rows[array]]
    assert missing == []
    assert "east: it [/is] at [[arrays]]" in told.shown()


def test_the_command_tells_it_by_its_exit_code_and_as_json(fleet_of):
    told = fleet_of("north south")
    told.publish("north", "south")
    told.owned("north", "south")
    for array in ("north", "south"):
        told.tell(array, GOOD, GOOD)
    done = gemmed("fleet", "status", str(told.file))
    assert done.returncode == 4, done.stderr
    assert "nobody dispatches" in done.stdout
    told.owned(RESERVED)
    done = gemmed("fleet", "status", str(told.file), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == told.status()
    assert found["dispatcher"] == "host-of-dispatcher:17:abc"
    told.tell("south", GOOD, BAD)
    done = gemmed("fleet", "status", str(told.file))
    assert done.returncode == 3, done.stderr
    south, north = (line for line in done.stdout.splitlines() if "[/site] of" in line)
    assert "2 bad" in south
    assert "all good" in north


def test_an_array_that_is_silent_since_it_was_handed_over_was_heard(server, tmp_path, model):
    """Its place in the log is known, and so are its sensors."""
    stage = Stage(server, tmp_path, model)
    try:
        sound = parcels_of(recordings_of(0, tmp_path / "sound"))
        stage.publish("north", sound)
        stage.give("north")
        before = stage.until_status("north", lambda status: status.get("sequence") and not status["pending"])
        stage.give("north")
        after = stage.until_status("north", lambda status: status["owner"] != before["owner"])
        kept = ("heard_at", "sequence", "recording", "sample", "decisions", "samples_lost")
        assert [after[name] for name in kept] == [before[name] for name in kept]
        states, now = ([sensor["state"] for sensor in one["sensors"]] for one in (before, after))
        assert now == states
        file = tmp_path / "fleet.toml"
        file.write_text(f'[fleet]\nlease = "3 s"\n[broker]\naddress = "{server.address}"\n[[arrays]]\nname = "north"\n')
        with stage.broker() as broker:
            (north,) = fleet_status(read_fleet(file), broker)["arrays"]
        assert north["worst"] in states
    finally:
        stage.close()


def test_events_are_told_once_also_if_the_log_holds_them_twice(fleet_of):
    told = fleet_of("north south west")
    told.log_events("north", 1, 2, attempt="a")
    told.log_events("south", 1, attempt="b")
    told.log_events("north", 1, 2, attempt="c")
    told.log_events("north", 2, 3, attempt="d")
    told.log_events("south", 2, attempt="e")

    def events(*arrays: str) -> list[tuple[str, int]]:
        done = gemmed("fleet", "events", str(told.file), *arrays)
        assert done.returncode == 0, done.stderr
        return [(one["array"], one["id"]) for one in map(json.loads, done.stdout.splitlines())]

    assert events() == [("north", 1), ("north", 2), ("south", 1), ("north", 3), ("south", 2)]
    assert events("south") == [("south", 1), ("south", 2)]
    assert events("west", "north") == [("north", 1), ("north", 2), ("north", 3)]
    assert events("west") == []
    assert events("--since", "-1h") == events()
    told.log_events("west", 1, attempt="f")
    at = told.stored_at("west")
    assert events("--since", at.isoformat()) == [("west", 1)]
    assert events("--since", (at + timedelta(milliseconds=1)).isoformat()) == []


def test_events_of_an_array_that_is_not_in_the_fleet(fleet_of):
    told = fleet_of("north south")
    done = gemmed("fleet", "events", str(told.file), "nroth")
    assert done.returncode == 1
    assert "did you mean north?" in done.stderr
    assert done.stdout == ""
