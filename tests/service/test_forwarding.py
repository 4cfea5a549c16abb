"""Events on their way to other machines while brokers, processes and daemons are killed."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import pytest

from pipeline.service.check import check
from pipeline.service.outputs import TO_PEOPLE
from pipeline.service.settings import Settings, Webhook, effective, read_settings
from pipeline.service.state import StateDirectory
from pipeline.service.status import status
from pipeline.sinks.journal import Entry, Journal
from pipeline.sinks.jsonl import EVENT_TYPES
from tests.conftest import eventually
from tests.forked import Process, is_stopped
from tests.service.live import WALKS, Running, settings
from tests.sinks.broker import TIMEOUT, Mosquitto, Subscriber
from tests.sinks.receiver import serving

STATUS = {
    "run": "a-run",
    "model": "0123456789ab",
    "decisions": 3,
    "samples_lost": 0,
    "sensors": [
        {"sensor": number, "state": "good", "causes": [], "cures": [], "weight": 0.5, "secret": "stays here"}
        for number in (1, 2, 3, 4)
    ],
}


class Forwarding:
    """The process as the daemon starts it."""

    def __init__(self, chosen: Settings) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.send(json.dumps({"settings": effective(chosen), "file": None, "run": "a-run"}).encode())
        self.tell()
        with theirs:
            self.process = Process([], module="pipeline.service.forwarding", stdin=theirs.fileno())

    def tell(self, **status: object) -> None:
        self._socket.send(json.dumps({"status": STATUS | status, "last_id": 0}).encode())

    def freeze(self, journal: Journal) -> None:
        """Not while it writes: it would keep the journal locked."""
        with journal.transaction():
            self.process.send_signal(signal.SIGSTOP)
            eventually(lambda: is_stopped(self.process.pid))

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)

    def daemon_dies(self) -> int:
        self._socket.close()
        return self.process.wait(TIMEOUT)

    def __enter__(self) -> Forwarding:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()
        self.kill()


@pytest.fixture
def broker(tmp_path):
    with Mosquitto(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def chosen(tmp_path, broker) -> Settings:
    file = tmp_path / "gemmed.toml"
    file.write_text(
        f'[storage]\ndirectory = "state"\n[mqtt]\naddress = "{broker.address}"\nname = "field"\n'
        'retry_first = "20 ms"\nretry_most = "100 ms"\n'
    )
    chosen = read_settings(file)
    StateDirectory(chosen.storage.directory).create()
    with Journal(tmp_path / "state" / "journal.sqlite") as journal:
        tell(journal, 5)  # before anybody asked for it
    return chosen


@pytest.fixture
def journal(chosen):
    with Journal(chosen.storage.directory / "journal.sqlite") as journal:
        yield journal


def tell(journal: Journal, events: int, kind: str = "decision") -> list[int]:
    return journal.append([Entry("a-run", {"type": kind, "n": n}, "r", n) for n in range(events)])


def first_occurrences(subscriber: Subscriber, last: int) -> list[int]:
    return list(dict.fromkeys(event["id"] for event in subscriber.events() if event["id"] <= last))


def stored_after(journal: Journal, before: int, last: int) -> list[int]:
    """All that must have arrived: every event but those that are not for others."""
    return [
        event.id for event in journal.events(after=before) if event.id <= last and event.type not in ("tick", "paced")
    ]


def has(subscriber: Subscriber, number: int):
    return lambda: any(event["id"] == number for event in subscriber.events()[-200:])


def test_every_event_arrives_in_order_although_the_broker_is_killed_twice(broker, chosen, journal):
    """At least once, first occurrences in order, and the id tells the rest apart."""
    before = journal.last_id
    with Subscriber(broker.port, "gemmed/field/#") as subscriber, Forwarding(chosen) as forwarding:
        subscriber.told("gemmed/field/status", b"online")
        for round_ in (1, 2):
            tell(journal, 300)
            tell(journal, 5, "tick")
            seen = len(subscriber.events())
            subscriber.until(lambda seen=seen: len(subscriber.events()) >= seen + 60)
            broker.kill()
            # Nobody is told anything before the subscriber is there again: what it missed it could not know of.
            forwarding.freeze(journal)
            tell(journal, 100)
            broker.start()
            subscriber.until(lambda round_=round_: subscriber.subscriptions == round_ + 1)
            forwarding.thaw()
        (last,) = tell(journal, 1)
        subscriber.until(has(subscriber, last))
        assert first_occurrences(subscriber, last) == stored_after(journal, before, last)
    kinds = [event.type for event in journal.events(after=before, types=["output_link_down", "output_link_up"])]
    assert kinds[:4] == ["output_link_down", "output_link_up"] * 2


def test_every_event_arrives_although_the_process_is_killed_and_its_will_tells(broker, chosen, journal):
    before = journal.last_id
    with Subscriber(broker.port, "gemmed/field/#") as subscriber:
        with Forwarding(chosen) as forwarding:
            subscriber.told("gemmed/field/status", b"online")
            tell(journal, 300)
            subscriber.until(lambda: len(subscriber.events()) >= 60)
            forwarding.kill()
            subscriber.told("gemmed/field/status", b"offline")
        tell(journal, 100)
        with Forwarding(chosen):
            (last,) = tell(journal, 1)
            subscriber.until(has(subscriber, last))
            subscriber.told("gemmed/field/status", b"online")
        assert first_occurrences(subscriber, last) == stored_after(journal, before, last)


def test_whoever_comes_late_is_told_how_things_are(broker, chosen, journal):
    """And when the daemon is gone, that nobody knows any more."""
    decision = {"type": "decision", "label": "person", "probability": 0.875, "weights": [1.0] * 4, "p_own": [0.5] * 4}
    journal.append([Entry("a-run", decision)])
    with Forwarding(chosen) as forwarding:
        with Subscriber(broker.port, "gemmed/field/#") as early:
            early.told("gemmed/field/status", b"online")
            early.until(lambda: bool(early.payloads("gemmed/field/sensor/4/state")))
        with Subscriber(broker.port, "gemmed/field/#", "homeassistant/#") as late:
            late.until(lambda: len({topic for topic, *_ in late.heard}) == 8)
            assert all(retained for *_, retained in late.heard)
            told = {topic: payload for topic, payload, _ in late.heard}
            state = json.loads(told["gemmed/field/state"])
            assert state["model"] == "0123456789ab"
            assert state["decision"] == {"label": "person", "probability": 0.875}
            sensor = {"sensor": 2, "state": "good", "causes": [], "cures": [], "weight": 0.5}
            assert json.loads(told["gemmed/field/sensor/2/state"]) == sensor
            assert json.loads(told["gemmed/field/decision"])["label"] == "person"
            assert b"p_own" not in told["gemmed/field/decision"]
            _check_discovery(json.loads(told["homeassistant/device/gemmed_field/config"]), set(told))
            late.publish("homeassistant/status", b"online")
            late.until(lambda: len(late.payloads("homeassistant/device/gemmed_field/config")) == 2)
            bad = STATUS["sensors"][0] | {"state": "bad", "causes": ["flat"]}
            forwarding.tell(sensors=[bad])
            late.until(lambda: len(late.payloads("gemmed/field/sensor/1/state")) == 2)
            assert json.loads(late.payloads("gemmed/field/sensor/1/state")[-1])["causes"] == ["flat"]
            assert forwarding.daemon_dies() == 0
            late.told("gemmed/field/status", b"offline")


def _check_discovery(config: dict, topics: set[str]) -> None:
    """What Home Assistant demands: a device with an identifier, an origin with a name, of every entity a platform, an
    id that no other has, and a topic."""
    assert config["device"]["identifiers"] == ["gemmed_field"]
    assert config["origin"]["name"] == "gemmed"
    assert config["availability_topic"] in topics
    components = config["components"].values()
    assert len(components) == 3 * 4 + 2
    assert len({component["unique_id"] for component in components}) == len(components)
    for component in components:
        assert component["platform"] in ("sensor", "binary_sensor")
        assert component["state_topic"] in topics
        assert component.get("json_attributes_topic", component["state_topic"]) in topics
        # An enumeration has options, and no statistics; nothing else has options.
        enum = component.get("device_class") == "enum"
        assert enum == ("options" in component)
        assert not (enum and ("state_class" in component or "unit_of_measurement" in component))


def test_a_daemon_tells_the_broker_from_its_start_to_its_stop(broker, model, tmp_path):
    """A whole one: every decision, and at last that it stopped; if there was no time for that, the next one says it."""
    more = f'[mqtt]\naddress = "{broker.address}"\nname = "whole"\nretry_first = "20 ms"\nhome_assistant = false\n'
    config = settings(tmp_path / "daemon", model=model, source=f"{WALKS}\nspeed = 4.0", more=more)
    with Subscriber(broker.port, "gemmed/whole/#", "homeassistant/#") as subscriber:
        with Running(config) as running:
            subscriber.told("gemmed/whole/status", b"online")
            subscriber.until(lambda: len(subscriber.events()) > 1)
            begin = subscriber.events()[0]["id"]
            running.until(lambda event: event["id"] > begin + 20)
            running.process.terminate()
            assert running.wait() == 0
        (stopped,) = [event for event in running.events if event["type"] == "run_stopped"]
        subscriber.told("gemmed/whole/status", b"offline")
        with Running(config):
            subscriber.until(has(subscriber, stopped["id"]))
            # What waits is counted when there is time for it.
            (output,) = eventually(lambda: status(StateDirectory(config.parent / "state"))["outputs"])
    assert (output["target"], output["dropped"]) == ("mqtt", 0)
    told = {event["id"]: event for event in subscriber.events()}
    wanted = [event for event in running.events if event["id"] >= begin and event["type"] not in ("tick", "paced")]
    assert sum(event["type"] == "decision" for event in wanted) > 3
    assert [told.get(event["id"]) for event in wanted] == wanted
    assert not any(payload for topic, payload, _ in subscriber.heard if topic.startswith("homeassistant"))


def test_a_dead_output_does_not_hold_back_another(broker, chosen, journal, tmp_path):
    """Each has a place of its own in the journal."""
    broker.kill()
    secret = tmp_path / "secret"
    secret.write_text("of some length")
    with serving() as server:
        webhook = Webhook(url=server.url, secret_file=secret, events=("event_noticed", "output_link_down"))
        with Forwarding(chosen.model_copy(update={"webhook": webhook})):
            server.until(lambda: bool(server.ids))  # that the other is dead
            noticed = tell(journal, 30, "event_noticed")
            server.until(lambda: noticed[-1] in server.ids)
    assert server.ids[-30:] == noticed
    assert all("X-Gemmed-Signature" in headers for _, headers, *_ in server.asked)
    assert json.loads(server.asked[0][2])["target"] == "mqtt"


def test_check_tries_the_broker_and_the_receiver_for_real(broker, chosen, tmp_path):
    """Without a word to the receiver, and without taking the daemon's place at the broker."""
    file = tmp_path / "gemmed.toml"
    with (
        Subscriber(broker.port, "#") as subscriber,
        Forwarding(chosen),
        socket.create_server(("127.0.0.1", 0)) as receiver,
    ):
        subscriber.told("gemmed/field/status", b"online")
        port = receiver.getsockname()[1]
        file.write_text(f'{file.read_text()}[webhook]\nurl = "http://127.0.0.1:{port}/x?key=hidden"\n')
        found = {one.what: one for one in check(read_settings(file))}
        assert found["mqtt"].told == f"{broker.address} lets us in"
        assert found["webhook"].told.startswith(f"http://127.0.0.1:{port} can be reached")
        with receiver.accept()[0] as caller:
            caller.settimeout(TIMEOUT)
            assert caller.recv(1) == b""
        assert subscriber.payloads("gemmed/field/status")[-1] == b"online"
    broker.kill()
    found = {one.what: one for one in check(read_settings(file))}
    assert not found["mqtt"].fine
    assert "cannot be reached: Connection refused; check mqtt.address" in found["mqtt"].told
    assert not found["webhook"].fine
    assert "hidden" not in found["webhook"].told


def test_what_people_are_told_by_default_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "outputs.md").read_text()
    (listed,) = re.findall(r"By default it gets what somebody should know: (.*)\.? `webhook\.events`", text)
    assert tuple(re.findall(r"`(\w+)`", listed)) == TO_PEOPLE
    assert set(TO_PEOPLE) < set(EVENT_TYPES)
