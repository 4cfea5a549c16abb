"""Where a fleet keeps everything: in as many places as its settings say."""

from __future__ import annotations

from contextlib import suppress

import pytest

from pipeline.core.errors import LinkError
from pipeline.fleet.model_cache import ModelStore
from pipeline.fleet.topology import Places
from pipeline.model.model import Model
from pipeline.transport.nats import Broker
from tests.conftest import eventually
from tests.fleet.broker import Nats, three_brokers


@pytest.fixture
def brokers(tmp_path):
    with three_brokers(tmp_path) as brokers:
        yield brokers


def called(nats: Nats) -> Broker:
    """One that does not wait long: while a leader is chosen nobody answers."""
    return Broker(nats.access(), name="test", seconds=2.0)


def leader_of(stream: str, broker: Broker) -> str:
    return broker._run(broker._js.stream_info(stream)).cluster.leader


def test_a_broker_of_three_that_dies_takes_no_model_with_it(brokers, tmp_path, model):
    """Also the one that had it: an array can be taken up by somebody who has never seen its model."""
    places = Places(replicas=3)

    def handed_in() -> str | None:
        with suppress(LinkError), called(brokers[0]) as broker:  # they choose a leader first
            places.make(broker)
            ModelStore(places.models(broker), tmp_path / "here").add(model)
            return leader_of(f"OBJ_{places.name}-models", broker)
        return None

    def fetched(nats: Nats) -> Model | None:
        with suppress(LinkError), called(nats) as broker:
            return ModelStore(places.models(broker), tmp_path / "there").load(Model.load(model).name)
        return None

    leader = int(eventually(handed_in).removeprefix("n"))
    brokers[leader].kill()
    arrived = eventually(lambda: fetched(brokers[leader - 1]))
    assert arrived.identity == Model.load(model).identity


def test_as_much_sound_as_there_may_be_leaves_room_for_the_rest(tmp_path, model):
    """The oldest goes. Else arrays would have nobody, for neither a lease nor a ticket could be written."""
    places = Places(most_sound_bytes=7_000_000)
    with Nats(tmp_path / "nats", room="10MB") as nats, called(nats) as broker:
        places.make(broker)
        log = places.sound
        for number in range(30):
            broker.publish(log.subject("north"), bytes(500_000), stream=log.stream, id=str(number))
        oldest = broker.next(log.stream, log.subject("north"), 1)
        assert oldest is not None
        assert oldest.sequence > 1
        for bucket in (places.checkpoints, places.leases, places.tickets, places.wanted, places.status):
            assert bucket(broker).create("north", bytes(100_000))
        assert ModelStore(places.models(broker), tmp_path / "here").add(model)
