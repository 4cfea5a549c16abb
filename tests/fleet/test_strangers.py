"""What comes from elsewhere and does not fit is refused in words, and costs nobody else anything."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.errors import SettingsError, SourceError
from pipeline.core.events import Block, RecordingStarted, SourceTrouble
from pipeline.fleet.array_state import Assignment
from pipeline.fleet.audio_extract import ArrayLog
from pipeline.fleet.model_cache import ModelStore
from pipeline.fleet.topology import Places
from pipeline.fleet.worker import host
from pipeline.sources.jetstream import StreamedArray
from pipeline.sources.reconnecting import RetryPolicy
from pipeline.storage.labels import LabelSpan
from pipeline.transport.nats import Broker
from pipeline.transport.wire import Parcel, packed, unpacked
from tests.fleet.broker import Nats
from tests.transport.test_wire import header_of, with_header

STARTED = RecordingStarted("one", 4000, ("1", "2", "3", "4"), None)
STARTS = (0, 2000, 4000, 6000)


@pytest.mark.parametrize("stop", [10, 2**40])
def test_a_small_message_does_not_unfold_to_more_than_it_announces(stop):
    told = {"version": 1, "recording": "r", "rate_hz": 4000, "sensors": ["1"], "started_at": None, "number": 1,
            "stands_for": 1, "kind": "block", "start": 0, "stop": stop, "delivered": [True], "form": "f32"}  # fmt: skip
    header = json.dumps(told).encode()
    rest = len(header).to_bytes(4, "little") + header + zlib.compress(bytes(2**20))
    with pytest.raises(SourceError, match="none of gemmed publish"):
        unpacked(zlib.crc32(rest).to_bytes(4, "little") + rest)


def test_an_array_that_does_not_fit_its_model_fails_in_words_that_its_status_tells(tmp_path, model):
    places = Places()
    with Nats(tmp_path) as nats, Broker(nats.access(), name="test") as broker:
        places.make(broker)
        name = ModelStore(places.models(broker), tmp_path / "cache").add(model).name
        started = replace(STARTED, sensors=tuple("12345678"))
        broker.publish(places.sound.subject("north"), packed(Parcel(started, 0, started)),
                       stream=places.sound.stream, id="1")  # fmt: skip
        places.tickets(broker).put("north", b"t")
        assignment = Assignment(array="north", ticket="t", model=name, access=nats.access(), places=places,
                                cache=tmp_path / "cache")  # fmt: skip
        with pytest.raises(SourceError, match=r"north is published with 8 sensors .* hears 4 at 4000 Hz"):
            host(assignment)
        entry = places.status(broker).get("north")
        assert entry is not None
        assert "8 sensors" in json.loads(entry.value)["failed"]


def test_a_lease_of_another_length_than_the_bucket_was_made_for_is_refused(tmp_path):
    with Nats(tmp_path) as nats, Broker(nats.access(), name="test") as broker:
        Places(lease_seconds=10).make(broker)
        Places(lease_seconds=10).make(broker)
        with pytest.raises(SettingsError, match=r"lease = 30 s must be .* 10 s"):
            Places(lease_seconds=30).make(broker)


def test_what_nobody_decides_about_is_not_cut_out(tmp_path):
    """A sound that cannot be decoded, and one of another format under the same name: a label is given all the same."""
    places, everyone = Places(), np.ones(4, np.bool_)
    samples = np.random.default_rng(0).integers(-999, 999, (4, 8000)).astype(np.float32) / np.float32(32768)
    blocks = [Parcel(STARTED, 1 + n, Block(at, samples[:, at : at + 2000], everyone)) for n, at in enumerate(STARTS)]
    damaged = with_header(header_of(packed(blocks[1])), b"no sound")
    other = Parcel(replace(STARTED, sensors=("1",)), 3, Block(4000, samples[:1, 4000:6000], everyone[:1]))
    messages = [
        packed(Parcel(STARTED, 0, STARTED)),
        packed(blocks[0]),
        damaged,
        packed(other),
        *map(packed, blocks[1:]),
    ]
    with Nats(tmp_path) as nats, Broker(nats.access(), name="test") as broker:
        places.make(broker)
        for number, data in enumerate(messages):
            broker.publish(places.sound.subject("north"), data, stream=places.sound.stream, id=str(number))
        log = ArrayLog(broker, places.sound, "north")
        cut = log.cut(log.find("one"), LabelSpan("one", 0, 8000), around_seconds=0.0, step=1)
    np.testing.assert_array_equal(cut.samples, samples)


def test_a_log_that_begins_with_a_damaged_message_is_heard(tmp_path):
    places = Places()
    with Nats(tmp_path) as nats:
        with Broker(nats.access(), name="test") as broker:
            places.make(broker)
            for number, data in enumerate([b"damaged", packed(Parcel(STARTED, 0, STARTED))]):
                broker.publish(places.sound.subject("north"), data, stream=places.sound.stream, id=str(number))
        array = StreamedArray(nats.access(), places.sound, "north", rate_hz=4000, n_sensors=4, place=None,
                              from_newest=False, name=str, retry_policy=RetryPolicy())  # fmt: skip
        with array:
            facts = iter(array)
            assert isinstance(next(facts), SourceTrouble)
            assert isinstance(next(facts), RecordingStarted)
