"""Arrays in the log of a real broker, and owners of theirs as threads of this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from pipeline.core.choices import Choices
from pipeline.core.events import Block, RecordingEnded, RecordingStarted
from pipeline.fleet.array_state import Assignment
from pipeline.fleet.model_cache import ModelStore
from pipeline.fleet.topology import Places
from pipeline.fleet.worker_pool import TaskResult, outcome_of
from pipeline.sources.files import FileSource, find_recordings
from pipeline.transport.nats import Broker
from pipeline.transport.wire import Parcel, packed
from tests.conftest import eventually
from tests.fleet.broker import Nats
from tests.fleet.fleets import TIMEOUT, Events, without
from tests.stages.laws import cut

OF_FLEET_ALONE = {"id", "array"}


def parcels_of(recordings: Path, *, pattern: str | None = None) -> list[Parcel]:
    """As `gemmed publish` numbers the facts of files."""
    found: list[Parcel] = []
    started: RecordingStarted | None = None
    number = stop = 0

    def add(fact: object) -> None:
        nonlocal number
        assert started is not None
        found.append(Parcel(started, number, fact))
        number += 1

    for fact in FileSource(find_recordings([recordings], pattern=pattern)):
        if isinstance(fact, RecordingStarted):
            if started is not None:
                add(RecordingEnded(started.recording, stop))
            started, number = fact, 0
        if isinstance(fact, Block):
            stop = fact.stop
            for part in cut(fact.samples, 1000, start=fact.start, delivered=fact.delivered):
                add(part)
        else:
            add(fact)
    assert started is not None
    add(RecordingEnded(started.recording, stop))
    return found


@dataclass
class Owner:
    """A thread that decides for an array, and what became of it."""

    assignment: Assignment
    stopped: bool = False
    outcome: TaskResult | None = None
    thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.outcome = outcome_of(self.assignment, lambda: self.stopped)

    def end(self) -> TaskResult:
        """Once it is over by itself."""
        self.thread.join(TIMEOUT)
        assert self.outcome is not None
        return self.outcome

    def stop(self) -> TaskResult:
        self.stopped = True
        return self.end()


class Stage:
    """A broker, its places, and who was given what."""

    def __init__(self, nats: Nats, directory: Path, model: Path, *, lease_seconds: float = 3.0) -> None:
        self.nats, self.cache = nats, directory / "cache"
        self.places = Places(lease_seconds=lease_seconds)
        self.owners: list[Owner] = []
        self._tickets = 0
        with self.broker() as broker:
            self.places.make(broker)
            self.model = ModelStore(self.places.models(broker), self.cache).add(model).name

    def broker(self) -> Broker:
        return Broker(self.nats.access(), name="test")

    def publish(self, array: str, messages: Iterable[Parcel | bytes]) -> None:
        log = self.places.sound
        with self.broker() as broker:
            before = broker.last_sequence(log.stream)
            sent = [
                broker.publish_soon(
                    log.subject(array),
                    one if isinstance(one, bytes) else packed(one),
                    stream=log.stream,
                    id=f"{array} {before} {number}",
                )
                for number, one in enumerate(messages)
            ]
            for one in sent:
                one.result()

    def give(self, array: str, *, choices: Choices | None = None, ticket: str | None = None) -> Owner:
        """To another owner than before, by a ticket."""
        self._tickets += 1
        ticket = ticket or f"ticket {self._tickets}"
        with self.broker() as broker:
            self.places.tickets(broker).put(array, ticket.encode())
        assignment = Assignment(
            array=array,
            ticket=ticket,
            model=self.model,
            access=self.nats.access(),
            places=self.places,
            choices=choices or Choices(),
            checkpoint_seconds=0.2,
            cache=self.cache,
        )
        self.owners.append(Owner(assignment))
        return self.owners[-1]

    def told(self, array: str) -> Events:
        """All events as they are stored: one that was told twice would be there twice."""
        with self.broker() as broker:
            stored = broker.read(self.places.events_stream, self.places.events(array), 1).to_the_end()
            return [json.loads(text) for message in stored for text in message.data.splitlines()]

    def decided(self, array: str, count: int) -> Events:
        """Once so many events are there; each numbered, once, without what a fleet alone tells."""
        eventually(lambda: len(self.told(array)) >= count, every=0.1)
        told = self.told(array)
        assert [event["id"] for event in told] == list(range(1, len(told) + 1))
        return [without(event, OF_FLEET_ALONE) for event in told]

    def status(self, array: str) -> dict[str, Any]:
        with self.broker() as broker:
            entry = self.places.status(broker).get(array)
        return json.loads(entry.value) if entry else {}

    def until_status(self, array: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        eventually(lambda: holds(self.status(array)), every=0.1)
        return self.status(array)

    def close(self) -> None:
        for owner in self.owners:
            owner.stopped = True
        for owner in self.owners:
            owner.thread.join(TIMEOUT)
