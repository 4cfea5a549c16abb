"""Events on their way to other machines while brokers, processes and daemons are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path

import jinja2
import pytest

from pipeline.cli.commands.notify import send_tests
from pipeline.config.schema import Settings, Webhook, effective, read_settings
from pipeline.core.errors import UsageError
from pipeline.core.event_json import EVENT_TYPES
from pipeline.daemon.preflight import check
from pipeline.outputs.mqtt import discovery, presence_of
from pipeline.outputs.notification_rules import Rules
from pipeline.outputs.notification_text import Wording
from pipeline.outputs.targets import TO_PEOPLE, TO_SERVICES
from pipeline.reports.status import status
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal, JournalEntry
from tests.conftest import eventually
from tests.daemon.live import WALKS, Running, children, settings
from tests.forked import ROOT, Process, is_stopped
from tests.outputs.broker import TIMEOUT, Mosquitto, Subscriber
from tests.outputs.receiver import answer, serving
from tests.passages import events, facts, passage, rows

ON_REQUEST = ("tick", "paced", "decision")
PASSAGE = {
    "passage": "r.p8000", "label": "human", "probability": 0.93, "reason": None, "cadence_per_minute": 110.0,
    "sensors_used": [1, 2],
}  # fmt: skip
LAST = {"passage": "r.p1000", "name": "Human with animal", "label": "human_animal", "cadence_per_minute": 98.0}
STATUS = {
    "run": "a-run",
    "presence": {"somebody": True, "probability": 0.98, "since": "2026-05-01T04:30:00.000Z", "passage": PASSAGE},
    "passages_today": 3,
    "last_passage": LAST,
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
            self.process = Process([], module="pipeline.outputs.process", stdin=theirs.fileno())

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


def tell(journal: Journal, events: int, kind: str = "gap") -> list[int]:
    return journal.append([JournalEntry("a-run", {"type": kind, "n": n}, "r", n) for n in range(events)])


def first_occurrences(subscriber: Subscriber, last: int) -> list[int]:
    return list(dict.fromkeys(event["id"] for event in subscriber.events() if event["id"] <= last))


def stored_after(journal: Journal, before: int, last: int) -> list[int]:
    """All that must have arrived: every event but those that are sent on request only."""
    return [event.id for event in journal.events(after=before) if event.id <= last and event.type not in ON_REQUEST]


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
            tell(journal, 5, "decision")
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


def test_retained_topics_describe_the_present_and_then_that_nobody_knows_it(broker, chosen):
    with Forwarding(chosen) as forwarding:
        with Subscriber(broker.port, "gemmed/field/#") as early:
            early.told("gemmed/field/status", b"online")
            early.until(lambda: bool(early.payloads("gemmed/field/sensor/4/state")))
        with Subscriber(broker.port, "gemmed/field/#", "homeassistant/#") as late:
            late.until(lambda: len({topic for topic, *_ in late.heard}) == 8)
            assert all(retained for *_, retained in late.heard)
            told = {topic: payload for topic, payload, _ in late.heard}
            assert json.loads(told["gemmed/field/state"])["model"] == "0123456789ab"
            sensor = {"sensor": 2, "state": "good", "causes": [], "cures": [], "weight": 0.5}
            assert json.loads(told["gemmed/field/sensor/2/state"]) == sensor
            assert json.loads(told["gemmed/field/presence"]) == {
                "somebody": "ON",
                "since": "2026-05-01T04:30:00.000Z",
                "presence_probability": 0.98,
                **PASSAGE,
                "passages_today": 3,
                "last_passage": LAST,
            }
            config = json.loads(told["homeassistant/device/gemmed_field/config"])
            _check_discovery(config, set(told))
            assert not {"decision", "probability"} & config["components"].keys()
            late.publish("homeassistant/status", b"online")
            late.until(lambda: len(late.payloads("homeassistant/device/gemmed_field/config")) == 2)
            bad = STATUS["sensors"][0] | {"state": "bad", "causes": ["flat"]}
            forwarding.tell(sensors=[bad])
            late.until(lambda: len(late.payloads("gemmed/field/sensor/1/state")) == 2)
            assert json.loads(late.payloads("gemmed/field/sensor/1/state")[-1])["causes"] == ["flat"]
            forwarding.tell(presence={"somebody": False, "probability": 0.01, "since": None, "passage": None})
            late.until(lambda: len(late.payloads("gemmed/field/presence")) == 2)
            nobody = json.loads(late.payloads("gemmed/field/presence")[-1])
            assert (nobody["somebody"], nobody["label"], nobody["cadence_per_minute"]) == ("OFF", None, None)
            assert forwarding.daemon_dies() == 0
            late.told("gemmed/field/status", b"offline")


def test_decisions_go_out_on_request_only(broker, chosen, journal):
    decision = {"type": "decision", "label": "person", "probability": 0.875, "weights": [1.0] * 4, "p_own": [0.5] * 4}
    journal.append([JournalEntry("a-run", decision)])
    asked = chosen.model_copy(update={"mqtt": chosen.mqtt.model_copy(update={"events": ("decision",)})})
    with Forwarding(asked), Subscriber(broker.port, "gemmed/field/#", "homeassistant/#") as subscriber:
        subscriber.until(lambda: len({topic for topic, *_ in subscriber.heard}) == 9)
        told = {topic: payload for topic, payload, _ in subscriber.heard}
        assert json.loads(told["gemmed/field/decision"])["label"] == "person"
        assert b"p_own" not in told["gemmed/field/decision"]
        assert json.loads(told["gemmed/field/state"])["decision"] == {"label": "person", "probability": 0.875}
        config = json.loads(told["homeassistant/device/gemmed_field/config"])
        _check_discovery(config, set(told))
        assert {"decision", "probability"} < config["components"].keys()
        (last,) = journal.append([JournalEntry("a-run", decision)])
        subscriber.until(has(subscriber, last))


def test_a_passage_is_one_message_at_its_start_at_each_change_and_at_its_end(broker, chosen, journal):
    """With one id, and none of them is retained."""
    begin = datetime(2026, 5, 1, tzinfo=UTC)
    bodies = [one for one in events(facts("r", passage("r", 5, 13), started_at=begin)) if "passage" in one]
    notification = Wording(Rules(), str.title).passage(*rows(*facts("r", passage("r", 5, 13), started_at=begin)))
    with Forwarding(chosen), Subscriber(broker.port, "gemmed/field/#") as subscriber:
        subscriber.told("gemmed/field/status", b"online")
        journal.append([JournalEntry("a-run", body) for body in (*bodies, notification)])
        subscriber.until(lambda: bool(subscriber.payloads("gemmed/field/notification")))
        told = [json.loads(payload) for payload in subscriber.payloads("gemmed/field/passage")]
        assert [one["event"] for one in told] == ["start", "update", "end"]
        assert {one["passage"] for one in told} == {"r.p5000"}
        (notified,) = [json.loads(payload) for payload in subscriber.payloads("gemmed/field/notification")]
        assert notified["passage"] == "r.p5000"
        assert "/api/v1/passages/r.p5000/clip?mix=true&expires=" in notified["clip"]
        assert not any(retained for topic, _, retained in subscriber.heard if topic.endswith(("passage", "tion")))
        assert not subscriber.payloads("gemmed/field/event/passage_ended")


REQUIRED = {"platform", "unique_id", "state_topic"}
BINARY_CLASSES = {"occupancy", "problem"}
FORMS = {
    # Of each platform, the keys that Home Assistant knows among those that gemmed uses; it drops others.
    "sensor": {
        "name", "device_class", "options", "value_template", "json_attributes_topic", "json_attributes_template",
        "state_class", "entity_category", "unit_of_measurement",
    },
    "binary_sensor": {"name", "device_class", "value_template", "json_attributes_topic", "entity_category"},
}  # fmt: skip


def _check_discovery(config: dict, topics: set[str]) -> None:
    """What Home Assistant demands: a device with an identifier, an origin with a name, of every entity a platform, an
    id that no other has, and a topic."""
    # Home Assistant refuses a device with any other key here.
    assert config.keys() == {"device", "origin", "components", "availability_topic"}
    assert config["device"].keys() <= {"identifiers", "name", "model", "sw_version"}
    assert config["device"]["identifiers"] == ["gemmed_field"]
    assert config["origin"].keys() <= {"name", "sw_version", "support_url"}
    assert config["origin"]["name"] == "gemmed"
    assert config["availability_topic"] in topics
    components = config["components"].values()
    assert len({component["unique_id"] for component in components}) == len(components)
    assert {"somebody", "last_class", "cadence", "passages_today"} < config["components"].keys()
    assert sum(key.endswith("_problem") for key in config["components"]) == 4
    for component in components:
        assert component.keys() >= REQUIRED
        assert component.keys() - REQUIRED <= FORMS[component["platform"]]
        assert component["state_topic"] in topics
        assert component.get("json_attributes_topic", component["state_topic"]) in topics
        if component["platform"] == "binary_sensor":
            assert component["device_class"] in BINARY_CLASSES
        # An enumeration has options, and no statistics; nothing else has options.
        enum = component.get("device_class") == "enum"
        assert enum == ("options" in component)
        assert not (enum and ("state_class" in component or "unit_of_measurement" in component))


@pytest.mark.parametrize(
    ("key", "status", "shown"),
    [
        ("somebody", STATUS, "ON"),
        ("somebody", {"presence": {"somebody": None}}, "None"),
        ("last_class", STATUS, "Human with animal"),
        ("last_class", {}, "None"),
        ("cadence", STATUS, "110.0"),
        ("cadence", {"last_passage": LAST}, "98.0"),
        ("cadence", {}, "None"),
        ("passages_today", STATUS, "3"),
    ],
)
def test_templates_show_what_the_topic_says(key, status, shown):
    """By Jinja, as Home Assistant does."""
    template = discovery("field", 4)["components"][key]["value_template"]
    assert jinja2.Template(template).render(value_json=presence_of(status)) == shown


def test_a_daemon_tells_the_broker_from_its_start_to_its_stop(broker, model, tmp_path):
    """A whole one: every decision, and at last that it stopped; if there was no time for that, the next one says it."""
    more = f'[mqtt]\naddress = "{broker.address}"\nname = "whole"\nretry_first = "20 ms"\nhome_assistant = false\n'
    more += 'events = ["decision", "run_stopped"]\n'
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
    wanted = [
        event for event in running.events if event["id"] >= begin and event["type"] in ("decision", "run_stopped")
    ]
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


def test_a_test_notification_reaches_every_output_and_failures_are_named(broker, chosen, tmp_path):
    """Of a daemon that runs, which keeps its connection to the broker; then with nothing there, without secrets."""
    file, services = tmp_path / "gemmed.toml", tmp_path / "urls"
    with serving() as webhook, serving() as chat, Subscriber(broker.port, "gemmed/field/#") as subscriber:
        with Forwarding(chosen):
            subscriber.told("gemmed/field/status", b"online")
            services.write_text(f"json://127.0.0.1:{chat.server_address[1]}/swordfish\n")
            file.write_text(
                f'{file.read_text()}[webhook]\nurl = "{webhook.url}"\n[notifications]\nurls_file = "urls"\n'
            )
            found = list(send_tests(read_settings(file)))
            assert [(one.what, one.fine) for one in found] == [("mqtt", True), ("webhook", True), ("json", True)]
            (published,) = subscriber.payloads("gemmed/field/notification")
            assert subscriber.payloads("gemmed/field/status")[-1] == b"online"
        bodies = [published, webhook.asked[0][2], chat.asked[0][2]]
        assert [json.loads(body)["title"] for body in bodies] == ["Test notification"] * 3
        assert json.loads(published)["about"] == "test"
    broker.kill()
    services.write_text(f"{services.read_text()}bogus://user:swordfish@host\n")
    found = list(send_tests(read_settings(file)))
    assert [one.fine for one in found] == [False] * 4
    assert "line 2 of notifications.urls_file" in found[-1].told
    assert not any("swordfish" in one.told or "hidden" in one.told for one in found)
    services.unlink()
    assert "cannot be read: No such file" in list(send_tests(read_settings(file)))[-1].told


def test_a_test_notification_needs_an_output():
    with pytest.raises(UsageError, match=r"no output is configured; set mqtt\.address, webhook\.url or"):
        list(send_tests(Settings()))


@pytest.mark.parametrize(
    ("sentence", "types"),
    [
        (r"By default it gets what an operator wants to know: (.*) `webhook\.events`", TO_PEOPLE),
        (r"Services get by default: (.*)", TO_SERVICES),
    ],
)
def test_defaults_of_outputs_are_documented(sentence, types):
    text = (Path(__file__).parents[2] / "docs" / "outputs.md").read_text()
    (listed,) = re.findall(sentence, text)
    listed = re.sub(r"\([^)]*\)", "", listed)
    assert tuple(re.findall(r"`(\w+)`", listed)) == types
    assert set(types) < set(EVENT_TYPES)


DAY = 'kind = "simulated"\nspeed = 20.0\nfaults = "none"\nlength = "70 s"'
"""Somebody passes from second 9 to 54; the starter model finds exactly this passage."""


def test_a_kill_between_the_end_of_a_passage_and_its_delivery_loses_no_notification(tmp_path):
    """The daemon is killed as soon as a passage ends, the next one's sender while the receiver refuses."""
    with serving() as server:
        server.moods = [answer(503)] * 10_000
        more = f'[webhook]\nurl = "{server.url}"\nevents = ["notification"]\nretry_first = "20 ms"\n'
        config = settings(tmp_path, model=ROOT / "pipeline" / "starter", rate_hz=16_000, source=DAY, more=more)
        with Running(config) as running:
            running.told("passage_ended")
            running.process.kill()
            running.wait()
        # It would end when the sound does, before the sender is there again.
        config.write_text(config.read_text().replace('length = "70 s"', 'length = "1 h"'))
        with Running(config) as running, Journal(tmp_path / "state" / "journal.sqlite", read_only=True) as journal:
            running.told("passage_ended")
            asked = len(server.asked)
            server.until(lambda: len(server.asked) > asked)
            (sender,) = children(running.process.pid, "pipeline.outputs.process")
            os.kill(sender, signal.SIGKILL)
            server.moods.clear()
            server.until(lambda: len(set(server.ids[asked:])) >= 2)
            running.process.terminate()
            assert running.wait() == 0
            notified = {event.id: event.body["passage"] for event in journal.events(types=["notification"])}
            passages = {row["passage"] for row in journal.rows("SELECT passage FROM passages")}
        told = {json.loads(body)["id"]: json.loads(body)["passage"] for _, _, body, *_ in server.asked}
    assert len(passages) >= 2
    assert set(notified.values()) == passages
    assert len(notified) == len(passages)
    assert told.items() <= notified.items()
    assert [one for one in notified if one in told] == list(notified)[: len(told)]
