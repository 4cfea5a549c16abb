"""The process that forwards events to other machines: a thread for each, with a place of its own in the journal."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

from pipeline.config.schema import Settings
from pipeline.core.errors import StorageError
from pipeline.core.events import Notice, NoticeKind
from pipeline.outputs.clip_links import Links
from pipeline.outputs.mqtt import MqttBroker, MqttTarget, View
from pipeline.outputs.services import MessageTarget, ServiceAddress
from pipeline.outputs.targets import links_of, routes, services_of, shows_decisions
from pipeline.outputs.webhook import Receiver, WebhookTarget
from pipeline.runtime.child_process import Parent
from pipeline.runtime.logs import log
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from pipeline.storage.outbox import Forwarder, Pauses, Route, Target
from pipeline.storage.passage_sources import passage_clip
from pipeline.storage.passage_table import whole_passage

_LAST_WORDS_SECONDS = 3.0
_STALE_SECONDS = 30.0


def broker_of(settings: Settings) -> MqttBroker:
    mqtt = settings.mqtt
    assert mqtt.address is not None
    return MqttBroker(mqtt.address, mqtt.user, mqtt.password_file, mqtt.ca_file)


def receiver_of(settings: Settings) -> Receiver:
    webhook = settings.webhook
    assert webhook.url is not None
    return Receiver(webhook.url, webhook.timeout_seconds, webhook.secret_file, webhook.ca_file)


def message_target(
    settings: Settings, state: StateDirectory, address: ServiceAddress, links: Links | None
) -> MessageTarget:
    attach = settings.notifications.attach
    return MessageTarget(address, links=links, clip=partial(passage_clip, state) if attach else None)


class Forwarding:
    """All forwarders of a daemon, from its first word to its end."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._mqtt: MqttTarget | None = None
        self._links = links_of(parent.settings, parent.state)
        self._decisions = shows_decisions(parent.settings)
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
        output = {"mqtt": settings.mqtt, "webhook": settings.webhook}.get(route.target, settings.notifications)
        return Forwarder(
            self._parent.state.journal,
            route,
            self._target(route.target),
            run=self._parent.run,
            pauses=Pauses(output.retry_first_seconds, output.retry_most_seconds),
            report=_log,
        )

    def _target(self, name: str) -> Target:
        settings, links = self._parent.settings, self._links
        if name == "webhook":
            return WebhookTarget(receiver_of(settings), links=links)
        if name != "mqtt":
            (address,) = (one for one in services_of(settings) if one.target == name)
            return message_target(settings, self._parent.state, address, links)
        self._mqtt = MqttTarget(
            broker_of(settings),
            name=settings.mqtt.name,
            n_sensors=settings.array.sensors,
            stale_seconds=max(_STALE_SECONDS, 2 * settings.source.tick_seconds),
            discovery_prefix=settings.mqtt.discovery_prefix,
            home_assistant=settings.mqtt.home_assistant,
            decisions=shows_decisions(settings),
            links=links,
            whole=partial(_whole, self._parent.state),
        )
        return self._mqtt

    def _show(self, snapshot: dict[str, Any]) -> None:
        if self._mqtt is None:
            return
        if self._decisions and snapshot["last_id"] != self._looked_at:
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


def _whole(state: StateDirectory, passage: str) -> str:
    """Return the id of a passage by that of a part; the same if the journal cannot be read."""
    with suppress(StorageError), Journal(state.journal, read_only=True) as journal:
        row = whole_passage(journal, passage)
        return passage if row is None else row.passage
    return passage


def _log(notice: Notice) -> None:
    level = log.info if notice.kind == NoticeKind.OUTPUT_LINK_UP else log.warning
    level(notice.kind.replace("_", " "), **notice.details)


if __name__ == "__main__":
    Forwarding(Parent.on_standard_input()).run()
