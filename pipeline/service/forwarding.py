"""The process that forwards events to other machines: a thread for each, with a place of its own in the journal."""

from __future__ import annotations

import time
from threading import Thread
from typing import Any

from pipeline.errors import StorageError
from pipeline.events import Notice, NoticeKind
from pipeline.service.companion import Parent
from pipeline.service.logs import log
from pipeline.service.outputs import routes
from pipeline.service.settings import Settings
from pipeline.sinks.forwarding import Forwarder, Pauses, Route, Target
from pipeline.sinks.journal import Journal
from pipeline.sinks.mqtt import Broker, MqttTarget, View
from pipeline.sinks.webhook import Receiver, WebhookTarget

_LAST_WORDS_SECONDS = 3.0
_STALE_SECONDS = 30.0


def broker_of(settings: Settings) -> Broker:
    mqtt = settings.mqtt
    assert mqtt.address is not None
    return Broker(mqtt.address, mqtt.user, mqtt.password_file, mqtt.ca_file)


def receiver_of(settings: Settings) -> Receiver:
    webhook = settings.webhook
    assert webhook.url is not None
    return Receiver(webhook.url, webhook.timeout_seconds, webhook.secret_file, webhook.ca_file)


class Forwarding:
    """All forwarders of a daemon, from its first word to its end."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._mqtt: MqttTarget | None = None
        self._forwarders = [self._forwarder(route) for route in routes(parent.settings)]
        self._decision: dict[str, Any] | None = None
        self._looked_at = -1

    def run(self) -> None:
        if self._parent.settings.mqtt.in_the_clear:
            log.warning("the password for MQTT travels in the clear", cure='use an address with "mqtts://"')
        threads = [Thread(target=one.run, name="forwarding", daemon=True) for one in self._forwarders]
        for thread in threads:
            thread.start()
        for snapshot in self._parent.snapshots():
            self._show(snapshot)
            if not all(thread.is_alive() for thread in threads):
                raise SystemExit("a forwarder ended by mistake; all are started again")
        for one in self._forwarders:
            one.stop(seconds=_LAST_WORDS_SECONDS)
        for thread in threads:
            thread.join()

    def _forwarder(self, route: Route) -> Forwarder:
        settings = self._parent.settings
        output = settings.mqtt if route.target == "mqtt" else settings.webhook
        return Forwarder(
            self._parent.state.journal,
            route,
            self._target(route.target),
            run=self._parent.run,
            pauses=Pauses(output.retry_first_seconds, output.retry_most_seconds),
            report=_log,
        )

    def _target(self, name: str) -> Target:
        settings = self._parent.settings
        if name == "webhook":
            return WebhookTarget(receiver_of(settings))
        self._mqtt = MqttTarget(
            broker_of(settings),
            name=settings.mqtt.name,
            n_sensors=settings.array.sensors,
            stale_seconds=max(_STALE_SECONDS, 2 * settings.source.tick_seconds),
            discovery_prefix=settings.mqtt.discovery_prefix,
            home_assistant=settings.mqtt.home_assistant,
        )
        return self._mqtt

    def _show(self, snapshot: dict[str, Any]) -> None:
        if self._mqtt is None:
            return
        if snapshot["last_id"] != self._looked_at:
            self._looked_at = snapshot["last_id"]
            self._decision = self._last_decision() or self._decision
        self._mqtt.show(View(snapshot["status"], self._decision, time.monotonic()))

    def _last_decision(self) -> dict[str, Any] | None:
        try:
            with Journal(self._parent.state.journal, read_only=True) as journal:
                newest = journal.events(types=["decision"], most=1, newest_first=True)
                return next((event.as_dict() for event in newest), None)
        except StorageError:
            return None


def _log(notice: Notice) -> None:
    level = log.info if notice.kind == NoticeKind.OUTPUT_LINK_UP else log.warning
    level(notice.kind.replace("_", " "), **notice.details)


if __name__ == "__main__":
    Forwarding(Parent.on_standard_input()).run()
