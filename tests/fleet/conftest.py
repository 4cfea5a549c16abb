"""What most tests of a fleet begin with: a broker of their own, the sound of an array, and what is decided about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.transport.wire import Parcel
from tests.fleet.broker import Nats
from tests.fleet.fleets import Events, recordings_of, replayed
from tests.fleet.hosted import parcels_of


@pytest.fixture
def nats(tmp_path) -> Iterator[Nats]:
    with Nats(tmp_path / "nats") as broker:
        yield broker


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> Path:
    return recordings_of(0, tmp_path_factory.mktemp("sound") / "north")


@pytest.fixture(scope="module")
def sound(recordings) -> list[Parcel]:
    return parcels_of(recordings)


@pytest.fixture(scope="module")
def expected(model, recordings) -> Events:
    return replayed(model, recordings)
