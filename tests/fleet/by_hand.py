"""Passages of a fleet made by hand and sent to a real broker, as workers send them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.core.events import PassageEnd
from pipeline.core.passages import PASSAGE_EVENTS
from pipeline.fleet.config import read_fleet
from pipeline.fleet.topology import Places
from pipeline.transport.nats import Broker
from tests.fleet.broker import Nats
from tests.passages import events, facts, passage

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIKELY_ANIMAL = {"human": -3.0, "human_animal": -0.05}


def sent_events(started_at: datetime = NOON, prefix: str = "run") -> list[dict[str, Any]]:
    """Two recordings of a minute; the last passage of the first one goes on in the second."""
    first, second = f"{prefix}-0001", f"{prefix}-0002"
    told = [
        *facts(
            first,
            passage(first, 5, 15.5),
            passage(first, 50, 60, LIKELY_ANIMAL),
            started_at=started_at,
            last_end=PassageEnd.RECORDING_ENDED,
        ),
        *facts(
            second,
            passage(second, 1, 9, LIKELY_ANIMAL),
            passage(second, 30, 35),
            started_at=started_at + timedelta(seconds=60),
        ),
    ]
    found, at = [], ""
    for event in events(told):
        if event["type"] == "recording_started":
            at = event["started_at"]
        elif event["type"] in PASSAGE_EVENTS:
            found.append(event | {"id": len(found) + 1, "recording_started_at": at})
    return found


def fleet_file(directory: Path, server: Nats, arrays: str, *, name: str = "gemmed", more: str = "") -> Path:
    file = directory / "fleet.toml"
    file.write_text(
        f'[fleet]\nlease = "3 s"\n[broker]\naddress = "{server.address}"\nname = "{name}"\n{more}'
        + "".join(f'[[arrays]]\nname = "{array}"\nsite = "{array} gate"\n' for array in arrays.split())
    )
    return file


class Hand:
    """Sends passage events as a worker does."""

    def __init__(self, server: Nats, name: str) -> None:
        self._server, self.places = server, Places(name=name)

    def send(self, array: str, sent: list[dict[str, Any]]) -> None:
        with Broker(self._server.access(), name="test") as broker:
            for event in sent:
                is_passage = event["type"] in PASSAGE_EVENTS
                broker.publish(
                    self.places.passages(array) if is_passage else self.places.problems(array),
                    json.dumps(event | {"array": array}).encode(),
                    stream=self.places.notable_stream,
                    id=f"{array}-{event['recording']}-{event['id']}",
                )


def empty_fleet(server: Nats, directory: Path, test: str, *, more: str = "") -> tuple[Hand, Path]:
    """A fleet of two arrays with the names of a test at the broker."""
    name = test.replace("_", "-")[-40:].strip("-")
    file = fleet_file(directory, server, "north south", name=name, more=more)
    with Broker(server.access(), name="test") as broker:
        read_fleet(file).places.make(broker)
    return Hand(server, name), file
