"""A real mosquitto on a free port of this machine, which can be killed and started again, and somebody who listens."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from typing import Any

from tests.conftest import TIMEOUT, component
from tests.server import Server

_EVENTS = re.compile(r"/event/|/passage$|/notification$")


class Mosquitto(Server):
    """Keeps nothing over a kill, as the default has it; `more` are lines of its settings."""

    def __init__(self, directory: Path, *, anonymous: bool = True, more: str = "") -> None:
        super().__init__("mosquitto", directory / "mosquitto.conf", ready="running")
        user = "user root\n" if os.geteuid() == 0 else ""
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous {str(anonymous).lower()}\nlog_dest stderr\n{user}{more}\n"
        )

    @property
    def address(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"


class Subscriber:
    """Hears everything below its topics, and comes again by itself when the broker does."""

    def __init__(self, port: int, *topics: str, user: tuple[str, str] | None = None, ca: Path | None = None) -> None:
        mqtt = component("paho.mqtt.client")
        self.heard: list[tuple[str, bytes, bool]] = []
        self.subscriptions = 0
        self._changed = Condition()
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        if user is not None:
            self._client.username_pw_set(*user)
        if ca is not None:
            self._client.tls_set_context(ssl.create_default_context(cafile=ca))
        self._client.reconnect_delay_set(0.02, 0.1)
        # What goes out with quality 0 is on its way before the publisher hears that it arrived.
        self._client.on_connect = lambda client, *rest: client.subscribe([(topic, 0) for topic in topics])
        self._client.on_subscribe = lambda *rest: self._note(
            lambda: setattr(self, "subscriptions", self.subscriptions + 1)
        )
        self._client.on_message = lambda client, data, message: self._note(
            lambda: self.heard.append((message.topic, message.payload, message.retain))
        )
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self.until(lambda: self.subscriptions == 1)

    def _note(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        with self._changed:
            while not done():
                assert self._changed.wait(deadline - time.monotonic()), [
                    (one[0], one[1][:80]) for one in self.heard[-9:]
                ]

    def payloads(self, topic: str) -> list[bytes]:
        return [payload for heard, payload, _ in self.heard if heard == topic]

    def told(self, topic: str, payload: bytes) -> None:
        """Wait until it was, at last."""
        self.until(lambda: self.payloads(topic)[-1:] == [payload])

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for topic, payload, _ in list(self.heard) if _EVENTS.search(topic)]

    def publish(self, topic: str, payload: bytes) -> None:
        self._client.publish(topic, payload, qos=1).wait_for_publish(TIMEOUT)

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()
