"""Events and states to an MQTT broker, and to Home Assistant if it listens there.

Everything is below gemmed/NAME/: `status`, `state`, `presence`, `sensor/N/state` and, on request, `decision` are
retained and describe the present. `passage` and `notification` get one message each for what their names say;
`event/TYPE` gets all other events, once they are in the journal.
"""

from __future__ import annotations

import json
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pipeline import __version__
from pipeline.core.errors import LinkError
from pipeline.core.sensor_state import State
from pipeline.outputs.clip_links import Links
from pipeline.outputs.common import outward, read_secret, reason_of
from pipeline.storage.journal import StoredEvent
from pipeline.storage.outbox import EventRefused

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

_QOS = 1
_WINDOW = 20
_KEEPALIVE_SECONDS = 30
_ANSWER_SECONDS = 15.0
_LOOP_SECONDS = 0.5
_TRIES = 3
_ENVELOPE_BYTES = 200
"""At most, of a message: topic and lengths."""
_NUMBERS_SECONDS = 10.0
"""Numbers always change a little; words are told at once."""
_STATE = (
    "run", "version", "source", "recording", "model", "decisions", "labels", "anomalies", "samples_lost",
    "backlog_seconds",
)  # fmt: skip
_SENSOR = ("sensor", "state", "liveness", "since", "causes", "cures", "weight", "level_dbfs")
_PASSAGE = ("passage", "label", "probability", "reason", "cadence_per_minute", "sensors_used")
_PASSAGE_EVENTS = {"passage_started": "start", "passage_updated": "update", "passage_ended": "end"}
_OUTCOME = ("label", "probability", "reason")
_DECISION = (
    "id", "time", "recording", "start_sample", "stop_sample", "label", "probability", "reason", "sensors_used",
    "degraded", "weights", "roles", "model",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MqttBroker:
    """Where it is, and who we are there."""

    address: str
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None

    def session(self, client_id: str, *, will: tuple[str, str] | None = None) -> MqttSession:
        """Connected and accepted."""
        client = _client(client_id)
        if self.user is not None:
            password = None
            if self.password_file is not None:
                password = read_secret(self.password_file, "mqtt.password_file")
            client.username_pw_set(self.user, password)
        if will is not None:
            client.will_set(*will, qos=_QOS, retain=True)
        parts = urlsplit(self.address)
        if parts.scheme == "mqtts":
            client.tls_set_context(self._trusted())
        port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        return MqttSession(client, self.address, parts.hostname or "", port)

    def _trusted(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise LinkError(f"mqtt.ca_file = {str(self.ca_file)!r} cannot be used: {reason_of(error)}; "
                            "give certificates in PEM") from error  # fmt: skip


def _client(client_id: str) -> Client:
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
    except ImportError as error:
        raise LinkError("mqtt.address needs the package paho-mqtt; pip install 'gemmed[mqtt]'") from error
    # Version 5 tells when a message is not accepted; before, a broker acknowledges what it throws away.
    return Client(
        CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5, reconnect_on_failure=False
    )


class MqttSession:
    """One connection from its beginning to its end; a lost one is not taken up again. There is no thread in it."""

    def __init__(self, client: Client, address: str, host: str, port: int) -> None:
        self._client, self._address = client, address
        self._accepted: ReasonCode | None = None
        self._window = _WINDOW
        self._under_way: set[int] = set()
        self._unheeded: set[int] = set()
        self._answers: dict[int, ReasonCode] = {}
        self._n_answers = 0
        self._why_lost = ""
        self.most_bytes = inf
        """Longer a message must not be: the broker would hang up, again and again."""
        self.heard: list[tuple[str, bytes]] = []
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_publish, client.on_message = self._on_publish, self._on_message
        client.connect_timeout = _ANSWER_SECONDS
        try:
            client.connect(host, port, keepalive=_KEEPALIVE_SECONDS)
            self._until(lambda: self._accepted is not None)
        except (OSError, ValueError) as error:
            raise LinkError(
                f"{address} cannot be reached: {reason_of(error)}; check mqtt.address and the net"
            ) from error
        assert self._accepted is not None
        if self._accepted.is_failure:
            raise LinkError(f"{address} does not let us in: {self._accepted}; check mqtt.user and mqtt.password_file")

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        """Waits while as much is under way as the broker likes to have at once; the number of the message."""
        self._until(lambda: len(self._under_way) < self._window)
        mid = self._client.publish(topic, payload, qos=_QOS, retain=retain).mid
        self._under_way.add(mid)
        return mid

    def keep(self, topic: str, payload: bytes) -> None:
        """Retained; what is too long for the broker it cannot keep."""
        if len(payload) <= self.most_bytes:
            self._unheeded.add(self.publish(topic, payload, retain=True))

    def is_answered(self, mid: int) -> bool:
        return mid in self._answers

    def answer(self, mid: int) -> ReasonCode:
        """Waits for it."""
        self._until(lambda: mid in self._answers)
        return self._answers.pop(mid)

    def subscribe(self, topic: str) -> None:
        self._client.subscribe(topic, qos=_QOS)

    def serve(self, seconds: float) -> None:
        """Read and write whatever there is."""
        code = self._client.loop(seconds)
        # A refusal is told as such, although the broker hangs up after it.
        if code and not (self._accepted is not None and self._accepted.is_failure):
            raise LinkError(f"{self._address} has hung up{self._why_lost}; check the broker and the net")

    def _until(self, done: Callable[[], bool]) -> None:
        """However much there is to do, the next answer must come in time."""
        deadline, answers = time.monotonic() + _ANSWER_SECONDS, self._n_answers
        while not done():
            self.serve(_LOOP_SECONDS)
            if self._n_answers > answers:
                deadline, answers = time.monotonic() + _ANSWER_SECONDS, self._n_answers
            if time.monotonic() > deadline:
                raise LinkError(f"{self._address} does not answer for {_ANSWER_SECONDS:.0f} s; check the broker")

    def end(self) -> None:
        """A last word is said; then the broker knows that no will is due."""
        self._client.disconnect()
        deadline = time.monotonic() + _LOOP_SECONDS
        while self._client.is_connected() and time.monotonic() < deadline and not self._client.loop(_LOOP_SECONDS):
            pass

    def _on_connect(
        self, client: Client, data: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._accepted = reason
        self._window = min(_WINDOW, getattr(properties, "ReceiveMaximum", _WINDOW))
        self.most_bytes = getattr(properties, "MaximumPacketSize", inf) - _ENVELOPE_BYTES

    def _on_disconnect(
        self, client: Client, data: Any, flags: DisconnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._why_lost = f": {reason}"

    def _on_publish(
        self, client: Client, data: Any, mid: int, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._n_answers += 1
        self._under_way.discard(mid)
        if mid in self._unheeded:
            self._unheeded.remove(mid)
        else:
            self._answers[mid] = reason

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        self.heard.append((message.topic, bytes(message.payload)))


@dataclass(frozen=True, slots=True)
class View:
    """How things are: the status of the daemon, its last decision, and when that was (monotonic)."""

    status: Mapping[str, Any]
    decision: Mapping[str, Any] | None
    at: float


class MqttTarget:
    """Tells events once, and how things are whenever that changes. Has an event when the broker acknowledges it.

    If nobody shows how things are for `stale_seconds`, the daemon is as good as dead. `whole` gives the id of the
    passage to which a part that a border of recordings cut off belongs.
    """

    def __init__(
        self,
        broker: MqttBroker,
        *,
        name: str,
        n_sensors: int,
        stale_seconds: float,
        discovery_prefix: str = "homeassistant",
        home_assistant: bool = True,
        decisions: bool = False,
        links: Links | None = None,
        whole: Callable[[str], str] = str,
    ) -> None:
        self._decisions, self._links, self._whole = decisions, links, whole
        self._broker, self._name, self._n_sensors = broker, name, n_sensors
        self._stale_seconds = stale_seconds
        self._prefix, self._home_assistant = discovery_prefix, home_assistant
        self._session: MqttSession | None = None
        self._view: View | None = None
        self._kept: dict[str, tuple[Any, float]] = {}

    def show(self, view: View) -> None:
        """From any thread; told when the link is served next."""
        self._view = view

    def connect(self) -> None:
        # Always by the same name: whoever comes again takes the place of a connection that is dead without knowing it.
        self._session = self._broker.session(f"gemmed-{self._name}", will=(self._topic("status"), "offline"))
        self._kept = {}
        if self._home_assistant:
            self._session.subscribe(f"{self._prefix}/status")
        self._discover()
        self._refresh()

    def send(self, events: Sequence[StoredEvent]) -> Iterator[int]:
        assert self._session is not None
        self._refresh()
        sent: deque[tuple[StoredEvent, int]] = deque()
        for event in events:
            topic, payload = self._topic(_subtopic(event)), _json(self._body(event))
            if len(payload) > self._session.most_bytes:
                # Whoever refuses an event must have all those before it.
                yield from self._acknowledged(sent, all_of_them=True)
                told = f"{self._broker.address} takes no {len(payload)} bytes"
                raise EventRefused(f"{told}; raise the limit of the broker", event=event.id, tries=1)
            sent.append((event, self._session.publish(topic, payload)))
            yield from self._acknowledged(sent)
        yield from self._acknowledged(sent, all_of_them=True)

    def _body(self, event: StoredEvent) -> dict[str, Any]:
        body = outward(event, self._links)
        if event.type not in _PASSAGE_EVENTS:
            return body
        part = body["passage"]
        passage = self._whole(part)
        going_on = event.type == "passage_started" and passage != part
        return body | {
            "event": "update" if going_on else _PASSAGE_EVENTS[event.type], "passage": passage, "part": part
        }  # fmt: skip

    def _acknowledged(self, sent: deque[tuple[StoredEvent, int]], *, all_of_them: bool = False) -> Iterator[int]:
        """From the first on, as far as answers are there, or waiting for them."""
        assert self._session is not None
        while sent and (all_of_them or self._session.is_answered(sent[0][1])):
            event, mid = sent.popleft()
            reason = self._session.answer(mid)
            if reason.is_failure:
                told = f"{self._broker.address} answers {reason} to {self._topic(_subtopic(event))}"
                raise EventRefused(f"{told}; check the rights of mqtt.user", event=event.id, tries=_TRIES)
            yield event.id

    def idle(self, seconds: float) -> None:
        assert self._session is not None
        self._session.serve(seconds)
        self._refresh()

    def close(self) -> None:
        if self._session is not None:
            with suppress(LinkError):
                self._session.keep(self._topic("status"), b"offline")
            self._session.end()
            self._session = None

    def _topic(self, end: str) -> str:
        return f"gemmed/{self._name}/{end}"

    def _refresh(self) -> None:
        assert self._session is not None
        for topic, payload in self._session.heard:
            if topic == f"{self._prefix}/status" and payload == b"online":
                self._discover()
        self._session.heard.clear()
        view = self._view
        alive = view is not None and time.monotonic() - view.at < self._stale_seconds
        self._keep("status", "online" if alive else "offline")
        if view is None:
            return
        self._keep("presence", presence_of(view.status))
        state = _chosen(view.status, _STATE)
        if self._decisions and view.decision is not None:
            state["decision"] = _chosen(view.decision, _OUTCOME)
            self._keep("decision", _chosen(view.decision, _DECISION))
        self._keep("state", state)
        for sensor in view.status.get("sensors", []):
            self._keep(f"sensor/{sensor['sensor']}/state", _chosen(sensor, _SENSOR))

    def _keep(self, end: str, body: str | dict[str, Any]) -> None:
        """Retained, if it is new: words at once, numbers not too often."""
        assert self._session is not None
        before, told_at = self._kept.get(end, (None, -inf))
        now = time.monotonic()
        if body == before or (_words(body) == _words(before) and now - told_at < _NUMBERS_SECONDS):
            return
        self._session.keep(self._topic(end), body.encode() if isinstance(body, str) else _json(body))
        self._kept[end] = body, now

    def _discover(self) -> None:
        """Nothing instead of a description makes Home Assistant forget us."""
        assert self._session is not None
        told = _json(discovery(self._name, self._n_sensors, decisions=self._decisions)) if self._home_assistant else b""
        self._session.keep(f"{self._prefix}/device/gemmed_{self._name}/config", told)


def presence_of(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether somebody is there, what is known of the passage, and of the last one that ended."""
    presence = status.get("presence") or {}
    passage, last = presence.get("passage"), status.get("last_passage")
    somebody = presence.get("somebody")
    return {
        "somebody": None if somebody is None else "ON" if somebody else "OFF",
        "since": presence.get("since"),
        "presence_probability": presence.get("probability"),
        **dict.fromkeys(_PASSAGE),
        **_chosen(passage or {}, _PASSAGE),
        "passages_today": status.get("passages_today"),
        "last_passage": last,
    }


def discovery(name: str, n_sensors: int, *, decisions: bool = False) -> dict[str, Any]:
    """Return what Home Assistant must know: one device with its entities."""
    base, unique = f"gemmed/{name}", f"gemmed_{name}"
    components = _presence_entities(base)
    for number in range(1, n_sensors + 1):
        components |= _sensor_entities(number, f"{base}/sensor/{number}/state")
    if decisions:
        components |= _decision_entities(f"{base}/decision")
    for key, component in components.items():
        component["unique_id"] = f"{unique}_{key}"
    return {
        "device": {"identifiers": [unique], "name": name, "model": "gemmed", "sw_version": __version__},
        "origin": {"name": "gemmed", "sw_version": __version__},
        "availability_topic": f"{base}/status",
        "components": components,
    }


def _presence_entities(base: str) -> dict[str, dict[str, Any]]:
    topic = {"state_topic": f"{base}/presence"}
    return {
        "somebody": {
            "platform": "binary_sensor",
            "name": "Somebody",
            "device_class": "occupancy",
            "value_template": "{{ value_json.somebody }}",
            "json_attributes_topic": topic["state_topic"],
            **topic,
        },
        "last_class": {
            "platform": "sensor",
            "name": "Last class",
            "value_template": "{{ value_json.last_passage.name if value_json.last_passage else None }}",
            "json_attributes_topic": topic["state_topic"],
            "json_attributes_template": "{{ (value_json.last_passage or {}) | tojson }}",
            **topic,
        },
        "cadence": {
            "platform": "sensor",
            "name": "Cadence",
            "unit_of_measurement": "steps/min",
            "state_class": "measurement",
            "value_template": "{{ value_json.cadence_per_minute or "
            "(value_json.last_passage.cadence_per_minute if value_json.last_passage else None) }}",
            **topic,
        },
        "passages_today": {
            "platform": "sensor",
            "name": "Passages today",
            "unit_of_measurement": "passages",
            "state_class": "total_increasing",
            "value_template": "{{ value_json.passages_today }}",
            **topic,
        },
    }


def _sensor_entities(number: int, state_topic: str) -> dict[str, dict[str, Any]]:
    topic = {"state_topic": state_topic}
    return {
        f"sensor_{number}_state": {
            "platform": "sensor",
            "name": f"Sensor {number}",
            "device_class": "enum",
            "options": [str(state) for state in State],
            "value_template": "{{ value_json.state }}",
            "json_attributes_topic": state_topic,
            **topic,
        },
        f"sensor_{number}_weight": {
            "platform": "sensor",
            "name": f"Sensor {number} weight",
            "state_class": "measurement",
            "entity_category": "diagnostic",
            "value_template": "{{ value_json.weight }}",
            **topic,
        },
        f"sensor_{number}_problem": {
            "platform": "binary_sensor",
            "name": f"Sensor {number} problem",
            "device_class": "problem",
            "value_template": "{{ 'ON' if value_json.state in ('degraded', 'bad') else 'OFF' }}",
            **topic,
        },
    }


def _decision_entities(state_topic: str) -> dict[str, dict[str, Any]]:
    decision = {"platform": "sensor", "state_topic": state_topic}
    probability = "{{ None if value_json.probability is none else (100 * value_json.probability) | round(1) }}"
    return {
        "decision": {
            **decision,
            "name": "Decision",
            "value_template": "{{ value_json.label or 'undecided' }}",
            "json_attributes_topic": state_topic,
        },
        "probability": {
            **decision,
            "name": "Probability",
            "unit_of_measurement": "%",
            "state_class": "measurement",
            "value_template": probability,
        },
    }


def _subtopic(event: StoredEvent) -> str:
    if event.type in _PASSAGE_EVENTS:
        return "passage"
    return "notification" if event.type == "notification" else f"event/{event.type}"


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def _chosen(body: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: body[name] for name in names if name in body}


def _words(value: Any) -> Any:
    """Without numbers and the time."""
    if isinstance(value, dict):
        return {key: _words(one) for key, one in value.items() if key != "time"}
    if isinstance(value, list):
        return [_words(one) for one in value]
    return None if isinstance(value, int | float) and not isinstance(value, bool) else value
