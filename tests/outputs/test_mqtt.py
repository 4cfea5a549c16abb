"""MQTT against a real broker: who gets in, over what, and what is not taken."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from pipeline.core.errors import LinkError
from pipeline.outputs import mqtt
from pipeline.outputs.mqtt import MqttBroker, MqttTarget, View
from pipeline.storage.journal import StoredEvent
from pipeline.storage.outbox import EventRefused
from tests.conftest import free_port, program
from tests.outputs.broker import Mosquitto, Subscriber

SECRET = "swordfish-and-more"


def event(number: int, kind: str = "event_noticed") -> StoredEvent:
    return StoredEvent(number, "a-run", None, None, "2026-01-01T00:00:00.000Z", kind, {"type": kind})


def target(broker: MqttBroker) -> MqttTarget:
    return MqttTarget(broker, name="field", n_sensors=1, stale_seconds=30)


@pytest.fixture
def guarded(tmp_path):
    """A broker with a password, where gemmed may tell all but what was noticed."""
    passwords, rights = tmp_path / "passwords", tmp_path / "rights"
    passwords.touch()
    subprocess.run([program("mosquitto_passwd"), "-b", passwords, "gemmed", SECRET], check=True)
    rights.write_text(
        "user gemmed\ntopic write gemmed/#\ntopic deny gemmed/field/event/event_noticed\ntopic write homeassistant/#\n"
        "topic read gemmed/#\n"
    )
    more = f"password_file {passwords}\nacl_file {rights}\n"
    with Mosquitto(tmp_path / "broker", anonymous=False, more=more) as broker:
        yield broker


def test_a_password_comes_from_a_file_and_is_told_nobody(guarded, tmp_path):
    file = tmp_path / "password"
    with pytest.raises(LinkError, match=r"mqtt\.password_file = .* cannot be read: No such file"):
        target(MqttBroker(guarded.address, "gemmed", file)).connect()
    file.write_text(f"{SECRET}x\n")
    with pytest.raises(LinkError, match=r"does not let us in: Not authorized; check mqtt\.user") as error:
        target(MqttBroker(guarded.address, "gemmed", file)).connect()
    assert SECRET not in str(error.value)
    file.write_text(f"{SECRET}\n")
    sender = target(MqttBroker(guarded.address, "gemmed", file))
    sender.connect()
    assert list(sender.send([event(1, "gap")])) == [1]
    sender.close()


def test_what_the_broker_does_not_take_is_not_taken_for_delivered(guarded, tmp_path):
    """Older versions of the protocol acknowledge what nobody will ever see."""
    file = tmp_path / "password"
    file.write_text(SECRET)
    sender = target(MqttBroker(guarded.address, "gemmed", file))
    sender.connect()
    sending = sender.send([event(1, "gap"), event(2), event(3, "gap")])
    assert next(sending) == 1
    with pytest.raises(EventRefused, match=r"answers Not authorized to gemmed/field/event/event_noticed") as error:
        next(sending)
    assert error.value.event == 2
    sender.close()


def test_what_is_too_long_for_the_broker_is_refused_after_all_before_it_have_arrived(tmp_path):
    """It would hang up each time it came."""
    long = StoredEvent(31, "a-run", None, None, "2026", "gap", {"type": "gap", "reason": "x" * 2000})
    with Mosquitto(tmp_path / "broker", more="max_packet_size 1500\n") as broker:
        sender = target(MqttBroker(broker.address))
        sender.connect()
        sending = sender.send([*(event(number) for number in range(1, 31)), long, event(32)])
        assert [next(sending) for _ in range(30)] == list(range(1, 31))
        with pytest.raises(EventRefused, match=r"takes no 20\d\d bytes") as error:
            next(sending)
        assert (error.value.event, error.value.tries) == (31, 1)
        assert list(sender.send([event(32)])) == [32]
        sender.close()


# The client leaves a socket to the garbage collector whose handshake failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_encryption_with_a_certificate_that_is_known_and_with_one_that_is_not(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    with Mosquitto(tmp_path / "broker", more=f"certfile {certificate}\nkeyfile {key}\n") as broker:
        address = f"mqtts://127.0.0.1:{broker.port}"
        with Subscriber(broker.port, "gemmed/#", ca=certificate) as subscriber:
            sender = target(MqttBroker(address, ca_file=certificate))
            sender.connect()
            assert list(sender.send([event(number) for number in range(1, 100)])) == list(range(1, 100))
            sender.close()
            subscriber.until(lambda: len(subscriber.events()) == 99)
        with pytest.raises(LinkError, match="certificate verify failed"):
            target(MqttBroker(address)).connect()
        with pytest.raises(LinkError, match=r"mqtt\.ca_file = .* cannot be used"):
            target(MqttBroker(address, ca_file=tmp_path / "none.pem")).connect()


def test_a_broker_that_is_not_there_or_does_not_answer(monkeypatch):
    with pytest.raises(LinkError, match=r"cannot be reached: Connection refused; check mqtt\.address"):
        target(MqttBroker(f"mqtt://127.0.0.1:{free_port()}")).connect()
    monkeypatch.setattr(mqtt, "_ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(LinkError, match="does not answer"):
        target(MqttBroker(f"mqtt://127.0.0.1:{silent.getsockname()[1]}")).connect()


def test_numbers_are_told_now_and_then_and_words_at_once_and_an_old_view_means_offline(tmp_path, monkeypatch):
    def view(weight: float, state: str = "good", at: float = 0.0) -> View:
        return View({"sensors": [{"sensor": 1, "state": state, "weight": weight}]}, None, at or time.monotonic())

    with Mosquitto(tmp_path / "broker") as broker, Subscriber(broker.port, "gemmed/#") as subscriber:
        sender = target(MqttBroker(broker.address))
        sender.connect()
        subscriber.told("gemmed/field/status", b"offline")
        for shown in (view(0.5), view(0.4), view(0.3, "bad"), view(0.2, "bad")):
            sender.show(shown)
            sender.idle(0.0)
        sender.show(view(0.1, "bad", at=time.monotonic() - 31))
        sender.idle(0.0)
        subscriber.until(lambda: len(subscriber.payloads("gemmed/field/status")) == 3)
        statuses = subscriber.payloads("gemmed/field/status")
        told = [payload.decode() for payload in subscriber.payloads("gemmed/field/sensor/1/state")]
        sender.close()
    assert statuses == [b"offline", b"online", b"offline"]
    assert ["0.5" in told[0], "0.3" in told[1], len(told)] == [True, True, 2]


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(LinkError, match=r"pip install 'gemmed\[mqtt\]'"):
        target(MqttBroker("mqtt://127.0.0.1:1883")).connect()
