"""The door to a real broker: what is stored in order, once, by revision; and what is said if it cannot be."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.core.errors import LinkError, SettingsError
from pipeline.transport import nats as jetstream
from pipeline.transport.nats import Access, Broker, Reader, Superseded
from tests.conftest import TIMEOUT, eventually, free_port
from tests.fleet.broker import Certificates, Nats


@pytest.fixture(scope="module")
def nats(tmp_path_factory):
    with Nats(tmp_path_factory.mktemp("nats")) as broker:
        yield broker


@pytest.fixture
def broker(nats):
    with Broker(nats.access(), name="test") as connection:
        yield connection


@pytest.fixture
def stream(broker, request) -> str:
    """One of its own for each test."""
    name = f"s{abs(hash(request.node.name))}"
    broker.ensure_stream(name, f"{name}.*", most_seconds=60.0)
    return name


# Access


@pytest.mark.parametrize(
    "address",
    [
        "nats://127.0.0.1:4222",
        "nats://localhost:1",
        "nats://[::1]:4222",
        "nats://127.8.9.1:4222",
        "tls://far.example:1",
    ],
)
def test_in_the_clear_only_to_this_machine(address):
    assert Access(address=address).is_encrypted == address.startswith("tls:")


@pytest.mark.parametrize("host", ["192.168.1.9", "far.example", "0.0.0.0", "localhost.example", "[2001:db8::1]"])
def test_nothing_travels_in_the_clear_to_others(host):
    with pytest.raises(SettingsError, match="would send sound and passwords in the clear; use tls://"):
        Access(address=f"nats://{host}:4222")


@pytest.mark.parametrize("address", ["", "127.0.0.1:4222", "http://127.0.0.1", "nats://", "tls:4222"])
def test_an_address_that_is_none(address):
    with pytest.raises(SettingsError, match='must be "nats://host:port" or "tls://host:port"; write it so'):
        Access(address=address)


@pytest.mark.parametrize("given", ["certificate", "key"])
def test_certificate_and_key_belong_together(given):
    with pytest.raises(SettingsError, match="certificate and key of the broker belong together; give both or none"):
        Access(**{given: Path("x")})


def test_files_that_cannot_be_used_are_named(tmp_path):
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate\n")
    for wrong in (nonsense, tmp_path / "missing.pem"):
        with pytest.raises(LinkError, match=rf"{wrong} cannot be used: .+; give files in PEM format that can be read"):
            Broker(Access(address="tls://127.0.0.1:1", ca_file=wrong), name="test")
    with pytest.raises(LinkError, match=r"missing cannot be read: .+; the password of the broker belongs there"):
        Broker(Access(user="a", password_file=tmp_path / "missing"), name="test")


# Streams


def test_each_message_has_a_place_and_is_taken_once(broker, stream):
    """By its id, however often it is sent."""
    first = broker.publish(f"{stream}.a", b"1", stream=stream, id="1")
    assert broker.publish(f"{stream}.b", b"2", stream=stream, id="2") == first + 1
    assert broker.publish(f"{stream}.a", b"1", stream=stream, id="1") == first
    assert broker.last_sequence(stream) == first + 1
    assert broker.subjects(stream, f"{stream}.*") == {f"{stream}.a": 1, f"{stream}.b": 1}
    assert broker.last(stream, f"{stream}.a").data == b"1"
    assert broker.last(stream, f"{stream}.c") is None


def test_after_another_message_than_the_last_it_is_superseded(broker, stream):
    """Of the same subject; others do not matter. Nothing of it is stored."""
    first = broker.publish(f"{stream}.a", b"1", stream=stream, id="1", after=0)
    broker.publish(f"{stream}.b", b"x", stream=stream, id="x", after=0)
    second = broker.publish(f"{stream}.a", b"2", stream=stream, id="2", after=first)
    for wrong in (0, first, second + 1):
        with pytest.raises(Superseded, match="somebody else has written meanwhile"):
            broker.publish(f"{stream}.a", b"3", stream=stream, id=f"3 {wrong}", after=wrong)
    assert broker.last(stream, f"{stream}.a").data == b"2"
    assert broker.last_sequence(stream) == second


def test_a_stream_that_is_there_stays_as_it_is(broker, stream):
    broker.publish(f"{stream}.a", b"1", stream=stream, id="1")
    broker.ensure_stream(stream, f"{stream}.other.*", most_seconds=5.0)
    assert broker.subjects(stream, f"{stream}.*") == {f"{stream}.a": 1}


def test_what_is_gone_already_can_be_removed(broker, stream):
    """By somebody else, or because it was too old."""
    for number in range(3):
        broker.publish(f"{stream}.a", b"x", stream=stream, id=str(number))
    broker.remove(stream, 2)
    broker.remove(stream, 2)
    broker.purge(stream, f"{stream}.a")
    broker.remove(stream, 1)
    assert broker.subjects(stream, ">") == {}


def test_sent_to_no_stream_or_the_wrong_one(broker, stream):
    with pytest.raises(LinkError, match="has no JetStream for this; start nats-server with -js, and gemmed fleet init"):
        broker.publish("nobody.listens", b"", stream=stream, id="1")
    with pytest.raises(LinkError, match=r"broker nats://127.0.0.1:\d+ refuses: .+; see its log"):
        broker.publish(f"{stream}.a", b"", stream="another", id="1")
    with pytest.raises(LinkError, match=r"has no stream for this; make it with gemmed fleet init"):
        broker.last_sequence("another")


# Reading


def numbered(broker: Broker, stream: str, numbers: range) -> None:
    """Among messages of others."""
    sent = [
        broker.publish_soon(f"{stream}.{subject}", str(number).encode(), stream=stream, id=f"{subject}{number}")
        for number in numbers
        for subject in ("a", "b")
    ]
    for one in sent:
        one.result()


def taken(reader, count: int) -> list[int]:
    found: list[int] = []

    def enough() -> bool:
        found.extend(int(message.data) for message in reader.take(most=7, seconds=0.2))
        return len(found) >= count

    eventually(enough, every=0.0)
    return found


def test_a_reader_sees_its_subject_in_order_from_where_it_begins(broker, stream):
    numbered(broker, stream, range(50))
    assert taken(broker.read(stream, f"{stream}.a", 1), 50) == list(range(50))
    assert taken(broker.read(stream, f"{stream}.a", 0), 50) == list(range(50))
    reader = broker.read(stream, f"{stream}.a", 1)
    whole = list(reader.to_the_end())
    assert [message.pending for message in whole] == list(range(49, -1, -1))
    middle = whole[20]
    assert taken(broker.read(stream, f"{stream}.a", middle.sequence), 30) == list(range(20, 50))
    assert middle.subject == f"{stream}.a"
    reader.close()


def test_a_reader_waits_for_what_comes_later(broker, stream):
    reader = broker.read(stream, f"{stream}.a", 1)
    assert reader.take(most=5, seconds=0.1) == []
    numbered(broker, stream, range(3))
    assert taken(reader, 3) == [0, 1, 2]
    assert reader.take(most=5, seconds=0.1) == []
    numbered(broker, stream, range(3, 6))
    assert taken(reader, 3) == [3, 4, 5]


def test_messages_that_come_one_by_one_need_no_request_each(broker, stream):
    """One for as many as are taken at once."""
    requests = []

    async def note(message) -> None:
        requests.append(message.subject)

    async def overhear() -> None:
        await broker._client.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*", cb=note)
        await broker._client.flush()

    broker._run(overhear())
    reader, found = broker.read(stream, f"{stream}.a", 1), []
    for number in range(20):
        numbered(broker, stream, range(number, number + 1))
        eventually(lambda: found.extend(reader.take(most=5, seconds=1.0)) or len(found) > number, every=0.0)  # noqa: B023
    assert [int(message.data) for message in found] == list(range(20))
    assert [message.pending for message in found] == [0] * 20
    assert len(requests) <= 20 // 5 + 1


def test_a_request_that_took_too_long_is_made_again(broker, stream, monkeypatch):
    """Of the same consumer, while a reader waits and between two of its waits."""
    monkeypatch.setattr(jetstream, "_REQUEST_SECONDS", 0.2)
    reader = broker.read(stream, f"{stream}.a", 1)
    assert reader.take(most=5, seconds=0.7) == []
    name = reader._consumer.name
    for number in range(3):
        assert reader.take(most=5, seconds=0.5) == []
        numbered(broker, stream, range(number, number + 1))
        assert taken(reader, 1) == [number]
    assert reader._consumer.name == name


def test_a_message_that_is_on_its_way_is_not_asked_for_again(broker, stream, monkeypatch):
    """The broker counts it as delivered before it has arrived: the same consumer waits for it."""
    arrive, let_through = jetstream._Consumer._take_in, threading.Event()

    async def held_up(consumer, message):
        await asyncio.to_thread(let_through.wait, TIMEOUT)
        await arrive(consumer, message)

    monkeypatch.setattr(jetstream._Consumer, "_take_in", held_up)
    reader = broker.read(stream, f"{stream}.a", 1)
    assert reader.take(most=5, seconds=0.1) == []
    name = reader._consumer.name
    numbered(broker, stream, range(1))
    eventually(lambda: broker._run(reader._info()).delivered.consumer_seq == 1)
    assert reader.take(most=5, seconds=0.1) == []
    let_through.set()
    assert taken(reader, 1) == [0]
    assert reader._consumer.name == name


def test_in_order_across_kills_of_the_broker(tmp_path):
    """Whoever goes on behind the last message he has misses none, and gets none twice."""
    with Nats(tmp_path) as nats:
        found: list[int] = []
        next_one, published = 1, 0
        for kill in range(4):
            with Broker(nats.access(), name="test") as broker:
                broker.ensure_stream("s", "s.*", most_seconds=60.0)
                numbered(broker, "s", range(published, published + 40))
                published += 40
                reader = broker.read("s", "s.a", next_one)
                for _ in range(3):
                    for message in reader.take(most=9, seconds=2.0):
                        found.append(int(message.data))
                        next_one = message.sequence + 1
                nats.kill()
                with pytest.raises(LinkError, match=nats.address):  # noqa: PT012
                    # What had arrived before the kill may be taken still.
                    while more := reader.take(most=9, seconds=0.2):
                        found += [int(message.data) for message in more]
                        next_one = more[-1].sequence + 1
            assert len(found) < published, kill
            nats.start()
        with Broker(nats.access(), name="test") as broker:
            found += taken(broker.read("s", "s.a", next_one), published - len(found))
    assert found == list(range(published))


def forget_consumer(broker: Broker, stream: str, reader: Reader) -> None:
    """As the broker does with one that nobody asked for half a minute."""
    with suppress(LinkError):  # it was forgotten before, when the reader had all it needed
        broker._run(broker._js.delete_consumer(stream, reader._consumer.name))


def lose_on_the_way(broker: Broker, stream: str, reader: Reader, count: int) -> None:
    """Let the broker deliver so many messages, or all that are left, where the reader does not see them."""
    client = broker._client

    async def lose() -> None:
        elsewhere = await client.subscribe(client.new_inbox())
        wanted = json.dumps({"batch": count, "no_wait": True}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{reader._consumer.name}"
        await client.publish(subject, wanted, reply=elsewhere.subject)
        lost = 0
        while lost < count and "Status" not in ((await elsewhere.next_msg(5.0)).headers or {}):
            lost += 1
        await elsewhere.unsubscribe()

    broker._run(lose())


def test_a_reader_whose_consumer_was_forgotten_goes_on(broker, stream):
    """Again and again, behind the last message it gave out; also if there was nothing to be had meanwhile."""
    reader, found = broker.read(stream, f"{stream}.a", 1), []
    for numbers in (range(10), range(10, 20), range(20, 30)):
        numbered(broker, stream, numbers)
        found += taken(reader, 4)
        forget_consumer(broker, stream, reader)
        found += taken(reader, 10 * (len(found) // 10 + 1) - len(found))
        forget_consumer(broker, stream, reader)
    assert found == list(range(30))


def test_a_reader_that_was_forgotten_finds_the_end_all_the_same(broker, stream):
    """Before it asks how much is left, and in the middle."""
    numbered(broker, stream, range(250))
    reader = broker.read(stream, f"{stream}.a", 1)
    found = taken(reader, 7)
    forget_consumer(broker, stream, reader)
    for message in reader.to_the_end():
        found.append(int(message.data))
        if len(found) == 60:
            forget_consumer(broker, stream, reader)
    assert found == list(range(250))


def test_a_reader_whose_stream_is_gone_says_so(broker, stream):
    numbered(broker, stream, range(3))
    reader = broker.read(stream, f"{stream}.a", 1)
    assert taken(reader, 3) == [0, 1, 2]
    broker._run(broker._js.delete_stream(stream))
    with pytest.raises(LinkError, match="has no stream for this"):
        list(reader.to_the_end())
    broker.ensure_stream(stream, f"{stream}.*", most_seconds=60.0)
    with pytest.raises(LinkError, match=f"has another stream {stream} than before; begin with it anew"):
        list(reader.to_the_end())


def test_what_gets_lost_on_the_way_to_a_reader_is_asked_for_again(broker, stream):
    numbered(broker, stream, range(50))
    reader = broker.read(stream, f"{stream}.a", 1)
    first = taken(reader, 7)
    lose_on_the_way(broker, stream, reader, 3)
    assert first + taken(reader, 50 - len(first)) == list(range(50))


def test_a_reader_ends_where_the_broker_says_that_nothing_is_left(broker, stream):
    """Not where nothing came for a while: some of it may be on its way, or lost there."""
    assert list(broker.read(stream, f"{stream}.a", 1).to_the_end()) == []
    numbered(broker, stream, range(250))
    reader = broker.read(stream, f"{stream}.a", 1)
    first = taken(reader, 7)
    lose_on_the_way(broker, stream, reader, 250 - len(first))
    assert first + [int(message.data) for message in reader.to_the_end()] == list(range(250))
    assert list(reader.to_the_end()) == []
    numbered(broker, stream, range(250, 253))
    assert [int(message.data) for message in reader.to_the_end()] == [250, 251, 252]


# Buckets and objects


def test_a_value_is_made_once_changed_by_revision_and_removed_by_revision(broker):
    bucket = broker.bucket("revisions")
    assert bucket.get("a") is None
    assert bucket.keys() == []
    assert bucket.all() == {}
    first = bucket.create("a", b"1")
    with pytest.raises(Superseded, match="a has a value already"):
        bucket.create("a", b"other")
    second = bucket.update("a", b"2", first)
    for wrong in (first, second + 1):
        with pytest.raises(Superseded, match="a was changed by somebody else"):
            bucket.update("a", b"other", wrong)
        with pytest.raises(Superseded, match="somebody else"):
            bucket.delete("a", wrong)
    entry = bucket.get("a")
    assert (entry.value, entry.revision) == (b"2", second)
    bucket.put("b", b"")
    assert {key: one.value for key, one in bucket.all().items()} == {"a": b"2", "b": b""}
    bucket.delete("a", second)
    assert bucket.get("a") is None
    assert bucket.keys() == ["b"]
    assert bucket.create("a", b"3") > second


def test_keys_are_found_also_if_the_library_sees_none(broker, monkeypatch):
    """It may give up before the first one arrives."""
    from nats.js.errors import NoKeysError

    bucket = broker.bucket("overlooked")
    for key in ("a", "b", "c"):
        bucket.put(key, key.encode())
    bucket.delete("b")

    async def none_seen() -> list[str]:
        raise NoKeysError

    monkeypatch.setattr(bucket._bucket, "keys", none_seen)
    assert sorted(bucket.keys()) == ["a", "c"]
    assert {key: entry.value for key, entry in bucket.all().items()} == {"a": b"a", "c": b"c"}
    bucket.delete("a")
    bucket.delete("c")
    assert bucket.keys() == []


def test_of_two_who_know_the_same_revision_one_writes(nats, broker):
    bucket = broker.bucket("two")
    revision = bucket.create("a", b"1")
    with Broker(nats.access(), name="other") as other:
        other.bucket("two").update("a", b"2", revision)
    with pytest.raises(Superseded):
        bucket.update("a", b"3", revision)
    assert bucket.get("a").value == b"2"


def test_values_vanish_unless_they_are_written_again(broker):
    bucket = broker.bucket("expiring", expires_seconds=5.0)
    revision = bucket.create("renewed", b"")
    bucket.create("left", b"")
    kept = {"renewed": revision}

    def gone() -> bool:
        kept["renewed"] = bucket.update("renewed", b"", kept["renewed"])
        return bucket.get("left") is None

    eventually(gone, every=0.1)
    assert bucket.keys() == ["renewed"]
    bucket.create("left", b"")


def test_objects_arrive_whole_whatever_their_size(broker):
    """More than fits into a message."""
    objects = broker.objects("files")
    large = bytes(range(256)) * 12_000
    assert objects.get("large") is None
    for name, data in (("large", large), ("empty", b"")):
        objects.put(name, data)
        assert objects.get(name) == data


# Errors


def refused(access: Access, **options: float) -> str:
    with pytest.raises(LinkError) as error, Broker(access, name="test", **options) as broker:
        broker.ensure_stream("s", "s.*", most_seconds=60.0)
    assert str(error.value).startswith(f"broker {access.address} ")
    return str(error.value)


def test_nobody_there():
    told = refused(Access(address=f"nats://127.0.0.1:{free_port()}"))
    assert told.endswith("cannot be reached; start it, and check the address and the net")


def test_somebody_who_says_nothing():
    """A port that is open, and silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = refused(Access(address=f"nats://127.0.0.1:{silent.getsockname()[1]}"), seconds=2.0)
    assert "check" in told


def test_a_broker_without_jetstream(tmp_path):
    with Nats(tmp_path, jetstream=False) as nats:
        assert "has no JetStream for this; start nats-server with -js" in refused(nats.access())


def test_a_broker_that_is_full(tmp_path):
    """Says what is missing and what to do; with more room it goes on."""
    cure = "raise max_file_store in its settings and restart it, and keep sound_budget well below that"
    with Nats(tmp_path, room="2MB") as nats, Broker(nats.access(), name="test") as broker:

        def send(count: int) -> None:
            for number in range(count):
                broker.publish("sound.north", bytes(500_000), stream="sound", id=str(number))

        with pytest.raises(LinkError, match=f"has no room: insufficient storage resources available; {cure}"):
            broker.ensure_stream("sound", "sound.*", most_seconds=60.0, most_bytes=10_000_000)
        broker.ensure_stream("sound", "sound.*", most_seconds=60.0)
        leases, models = broker.bucket("leases"), broker.objects("models")
        tries = (lambda: send(10), lambda: leases.create("north", b"me"), lambda: models.put("model", bytes(100_000)))
        for refused in tries:
            with pytest.raises(LinkError, match=f"has no room: insufficient resources; {cure}"):
                refused()
        nats.kill()
        nats.room = "20MB"
        nats.configure()
        nats.start()
        with Broker(nats.access(), name="test") as another:
            assert another.bucket("leases").create("north", b"me")


def test_a_wrong_password_and_none(tmp_path):
    (tmp_path / "right").write_text("secret\n")
    (tmp_path / "wrong").write_text("guess\n")
    with Nats(tmp_path, more='authorization { user: "ada", password: "secret" }') as nats:
        for access, user in (
            (nats.access(user="ada", password_file=tmp_path / "wrong"), "'ada'"),
            (nats.access(user="eve", password_file=tmp_path / "right"), "'eve'"),
            (nats.access(user="ada"), "'ada'"),
            (nats.access(), "None"),
        ):
            assert refused(access).endswith(f"does not let in user = {user}; correct user and password_file")
        with Broker(nats.access(user="ada", password_file=tmp_path / "right"), name="test") as broker:
            broker.ensure_stream("s", "s.*", most_seconds=60.0)


def test_what_a_user_may_not_do_is_told(tmp_path):
    """And what he may do, he still may."""
    (tmp_path / "password").write_text("secret")
    rights = 'publish: ["$JS.API.STREAM.>", "s.a"], subscribe: ["_INBOX.>"]'
    more = f'authorization {{ users: [{{ user: "ada", password: "secret", permissions: {{ {rights} }} }}] }}'
    with Nats(tmp_path, more=more) as nats:
        access = nats.access(user="ada", password_file=tmp_path / "password")
        with Broker(access, name="test") as broker:
            broker.ensure_stream("s", "s.*", most_seconds=60.0)
            broker.publish("s.a", b"", stream="s", id="1")
            with pytest.raises(LinkError) as error:
                broker.publish("s.b", b"", stream="s", id="2")
        told = str(error.value)
        assert told.startswith(f"broker {access.address} does not allow user = 'ada' this: ")
        assert "s.b" in told
        assert told.endswith("; change his permissions there")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates.made(tmp_path_factory.mktemp("certificates"))


def test_with_tls(tmp_path, certificates):
    with Nats(tmp_path, tls=certificates) as nats, Broker(nats.access(), name="test") as broker:
        broker.ensure_stream("s", "s.*", most_seconds=60.0)
        assert broker.publish("s.a", b"", stream="s", id="1") == 1


def test_an_expired_certificate(tmp_path):
    expired = Certificates.made(tmp_path / "expired", expired=True)
    with Nats(tmp_path, tls=expired) as nats:
        told = refused(nats.access())
    assert "has a certificate that is not accepted: certificate has expired; renew it, or correct ca_file" in told
    assert str(expired.ca) in told


def test_a_certificate_of_another_authority(tmp_path, certificates):
    other = Certificates.made(tmp_path / "other")
    with Nats(tmp_path, tls=other) as nats:
        told = refused(Access(address=nats.address, ca_file=certificates.ca))
    assert "has a certificate that is not accepted: " in told
    assert f"correct ca_file = {certificates.ca}" in told


def test_a_certificate_for_another_address(tmp_path):
    other = Certificates.made(tmp_path / "other", host="127.0.0.2")
    with Nats(tmp_path, tls=other) as nats:
        told = refused(nats.access())
    assert "has a certificate that is not accepted: IP address mismatch" in told


def test_a_broker_that_wants_a_certificate(tmp_path, certificates):
    """Without one, or with one of an authority that it does not know, nobody gets in; the settings are named."""
    shutil.copy(certificates.ca, tmp_path / "known.crt")
    with Nats(tmp_path, tls=certificates) as nats:
        nats.kill()
        text = nats._config.read_text()
        nats._config.write_text(text.replace("tls {", f'tls {{ verify: true\n ca_file: "{tmp_path / "known.crt"}"\n'))
        nats.start()
        assert "certificate = None" in refused(nats.access())
        stranger = Certificates.made(tmp_path / "stranger")
        told = refused(nats.access(certificate=stranger.certificate, key=stranger.key))
        assert str(stranger.certificate) in told
        access = nats.access(certificate=certificates.certificate, key=certificates.key)
        with Broker(access, name="test") as broker:
            broker.ensure_stream("s", "s.*", most_seconds=60.0)
