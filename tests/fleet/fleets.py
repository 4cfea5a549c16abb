"""A whole fleet as real processes: publishers, a broker, a dispatcher, workers; and what it must have decided."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.core.choices import Choices
from pipeline.fleet.array_state import is_notable
from pipeline.fleet.topology import Places
from pipeline.reports.replay import Replay
from pipeline.sources.files import find_recordings
from pipeline.transport.nats import Access, Broker
from tests.arrays import ARRAY
from tests.conftest import TIMEOUT, eventually
from tests.forked import Running, started

_OF_REPLAY_ALONE = {"troubles", "trained_on"}
_OF_FLEET_ALONE = {"id", "array"}
Events = list[dict[str, Any]]


def gemmed(*arguments: object, log: Path, inside: Sequence[str] = ()) -> Running:
    """A command of ours, perhaps inside a network of its own, that writes what it says to a file."""
    with log.open("ab") as file:
        return started(list(map(str, arguments)), before=inside, stdout=file, stderr=file, cwd=Path.cwd())


def recordings_of(number: int, place: Path, *, count: int = 2) -> Path:
    """Some of the fixtures for an array, others for the next."""
    files = sorted(ARRAY.glob("*.flac"))
    place.mkdir(parents=True)
    for step in range(count):
        file = files[(number + step * 3) % len(files)]
        (place / file.name).symlink_to(file)
    return place


def replayed(model: Path, recordings: Path) -> Events:
    """What a local replay tells of the same sound."""
    task = Replay(model.resolve(), Choices())
    found = [event for recording in find_recordings([recordings]).recordings for event in task.events(recording)]
    return [without(event, _OF_REPLAY_ALONE) for event in found]


def without(event: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


@dataclass
class FleetOfTest:
    """Arrays with two recordings each, published in some multiple of real time; `inside` says where who runs."""

    directory: Path
    access: Access
    model: Path
    n_arrays: int = 20
    speed: float | None = 2.0
    lease_seconds: float = 3.0
    arrays: list[str] = field(init=False)
    processes: dict[str, Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrays = [f"a{number:02d}" for number in range(self.n_arrays)]
        self.sound = {array: recordings_of(number, self.directory / "sound" / array)
                      for number, array in enumerate(self.arrays)}  # fmt: skip
        broker = f'[broker]\naddress = "{self.access.address}"\n'
        if self.access.ca_file is not None:
            broker += f'ca_file = "{self.access.ca_file}"\n'
        self.file, self.edge = self.directory / "fleet.toml", self.directory / "edge.toml"
        self.edge.write_text(
            f'{broker}[publish]\nretry_first = "200 ms"\nretry_most = "1 s"\n[array]\nrate = "4 kHz"\n'
        )
        self.file.write_text(
            f'[fleet]\nmodel = "{self.model}"\ncheckpoint = "1 s"\nlease = "{self.lease_seconds:g} s"\n'
            f'cache = "{self.directory / "cache"}"\n{broker}'
            + "".join(f'[[arrays]]\nname = "{array}"\n' for array in self.arrays)
        )
        self.places = Places(lease_seconds=self.lease_seconds)

    def init(self) -> None:
        with Broker(self.access, name="test") as broker:
            self.places.make(broker)

    def publish(self, array: str, *, inside: Sequence[str] = ()) -> Running:
        pace = [] if self.speed is None else ["--speed", self.speed]
        options = ["--array", array, "--config", self.edge, "--state", self.directory / "edge", *pace]
        process = gemmed("publish", self.sound[array], *options, log=self.directory / "publish.log", inside=inside)
        self.processes[f"publish {array}"] = process
        return process

    def run(self, *options: object, inside: Sequence[str] = ()) -> Running:
        process = gemmed("fleet", "run", self.file, *options, log=self.directory / "run.log", inside=inside)
        self.processes["run"] = process
        return process

    def told(self) -> dict[str, Events]:
        """All events by array as they are stored: one that was told twice would be there twice."""
        found: dict[str, Events] = {array: [] for array in self.arrays}
        with Broker(self.access, name="test") as broker:
            for message in broker.read(self.places.events_stream, self.places.events("*"), 1).to_the_end():
                found[message.subject.rpartition(".")[2]] += map(json.loads, message.data.splitlines())
        return found

    def notable(self, array: str) -> list[int]:
        """The numbers of the events that were sent once more, as a reader takes them: those that come again are not."""
        with Broker(self.access, name="test") as broker:
            stored = broker.read(self.places.notable_stream, self.places.notable, 1).to_the_end()
            ids = [json.loads(one.data)["id"] for one in stored if one.subject.endswith(f".{array}")]
        return [number for place, number in enumerate(ids) if number > max(ids[:place], default=0)]

    def n_told(self) -> int:
        """Messages with events, as a sign of progress; none while nobody answers."""
        try:
            with Broker(self.access, name="test") as broker:
                return broker.last_sequence(self.places.events_stream)
        except Exception:
            return 0

    def expected(self) -> dict[str, Events]:
        """Arrays with the same recordings decide the same: that is computed once."""
        recordings = {array: tuple(sorted(os.listdir(self.sound[array]))) for array in self.arrays}
        alike = {names: array for array, names in recordings.items()}
        decided = {names: replayed(self.model, self.sound[array]) for names, array in alike.items()}
        return {array: decided[recordings[array]] for array in self.arrays}

    def finish(self) -> None:
        """Wait until all is decided, and see that each array decided just what a replay of its sound decides, once."""
        expected = self.expected()
        total = sum(map(len, expected.values()))
        eventually(lambda: sum(map(len, self.told().values())) >= total, every=0.5)
        told = self.told()
        for array in self.arrays:
            ids = [event["id"] for event in told[array]]
            assert ids == list(range(1, len(ids) + 1)), f"{array} told {ids}"
            assert [without(event, _OF_FLEET_ALONE) for event in told[array]] == expected[array], array
            notable = [event["id"] for event in told[array] if is_notable(event)]
            eventually(lambda array=array, ids=notable: self.notable(array) == ids, f"what is notable of {array}")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(TIMEOUT)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(TIMEOUT)

    def log(self) -> str:
        return "".join(
            (self.directory / name).read_text() for name in os.listdir(self.directory) if name[-4:] == ".log"
        )

    def __enter__(self) -> FleetOfTest:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
