"""`gemmed fleet notify`: people are notified of the passages of all arrays, until it is stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import inf
from threading import Event, Thread
from types import FrameType

from pipeline.config.schema import Settings
from pipeline.core.errors import LinkError, SettingsError
from pipeline.core.events import Notice, NoticeKind
from pipeline.fleet.config import Fleet
from pipeline.fleet.notifier import FleetNotifying
from pipeline.outputs.mqtt import MqttTarget, View
from pipeline.outputs.notifier import rules_of
from pipeline.outputs.process import broker_of, receiver_of
from pipeline.outputs.services import MessageTarget, service_addresses
from pipeline.outputs.targets import routes, services_of
from pipeline.outputs.webhook import WebhookTarget
from pipeline.runtime.logs import log
from pipeline.runtime.state_dir import StateDirectory, new_run
from pipeline.runtime.systemd import Notifier
from pipeline.storage.cursors import store_heartbeat
from pipeline.storage.journal import Journal
from pipeline.storage.outbox import Forwarder, Pauses, Position, Route, Target, forget_others
from pipeline.transport.nats import Broker

_WAIT_SECONDS = 0.5
_BEAT_SECONDS = 5.0
_RETRY_SECONDS = (1.0, 30.0)
_LAST_SECONDS = 3.0
_STALE_SECONDS = 60.0


def outputs_of(fleet: Fleet) -> Settings:
    """Return settings with the outputs and rules of a fleet; an output that is missing or cannot be had is an error."""
    settings = Settings().model_copy(
        update={
            "notifications": fleet.notifications,
            "webhook": fleet.webhook,
            "mqtt": fleet.mqtt,
            "labels": Settings().labels.model_copy(update={"names": fleet.labels.names}),
        }
    )
    if fleet.notifications.attach or fleet.notifications.link is not None:
        raise SettingsError(
            f"{fleet.path}: notifications.attach and notifications.link need the dashboard of a daemon, which keeps "
            "the sound; a fleet has none: remove them here"
        )
    if settings.notifications.urls_file is not None:
        service_addresses(settings.notifications.urls_file)
    if not routes(settings):
        raise SettingsError(
            f"{fleet.path} has no output; add notifications.urls_file, webhook.url or mqtt.address (see docs/fleet.md)"
        )
    return settings


class FleetNotify:
    """Follows the broker and sends to every output, until it is stopped."""

    def __init__(self, fleet: Fleet, state: StateDirectory, *, seconds: float | None = None) -> None:
        self._fleet, self._state = fleet, state
        self._settings, self._run = outputs_of(fleet), new_run()
        self._until = None if seconds is None else time.monotonic() + seconds
        self._stopping = Event()
        self._mqtt: MqttTarget | None = None
        self._beaten_at = -inf

    def run(self) -> None:
        self._state.path.mkdir(parents=True, exist_ok=True)
        notifier = Notifier.from_environment()
        with self._state.locked(), _signals(self._stop), Journal(self._state.journal) as journal:
            forget_others(journal, routes(self._settings))
            for route in routes(self._settings):
                Position(journal, route.target).close()  # what is added from now on is for every output
            forwarders = [self._forwarder(route) for route in routes(self._settings)]
            threads = [Thread(target=one.run, name="forwarding", daemon=True) for one in forwarders]
            for thread in threads:
                thread.start()
            notifier.ready()
            log.info("following passages", fleet=self._fleet.broker.name, outputs=len(forwarders))
            self._follow(journal)
            notifier.stopping()
            for one in forwarders:
                one.stop(seconds=_LAST_SECONDS)
            for thread in threads:
                thread.join()
        log.info("stopped")

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()

    def _is_over(self) -> bool:
        return self._stopping.is_set() or (self._until is not None and time.monotonic() > self._until)

    def _follow(self, journal: Journal) -> None:
        """Follow over one connection after the other; an interruption is logged once."""
        pauses, trouble = Pauses(*_RETRY_SECONDS), ""
        while not self._is_over():
            connected_at = time.monotonic()
            try:
                with Broker(self._fleet.broker.access(), name="gemmed fleet notify") as broker:
                    self._fleet.places.make(broker)
                    notifying = FleetNotifying(self._fleet, rules_of(self._settings), broker, journal, self._run)
                    trouble = ""
                    while not self._is_over():
                        notifying.step(datetime.now(UTC), seconds=_WAIT_SECONDS)
                        self._show(notifying)
                        self._beat(journal)
            except LinkError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    log.warning("passages cannot be read; trying again", why=trouble)
                self._stopping.wait(pauses.after(time.monotonic() - connected_at, error.retry_after_seconds))

    def _beat(self, journal: Journal) -> None:
        """Store that passages are followed, for `gemmed status`."""
        if time.monotonic() - self._beaten_at > _BEAT_SECONDS:
            self._beaten_at = time.monotonic()
            store_heartbeat(journal, {"pid": os.getpid(), "fleet": self._fleet.broker.name})

    def _show(self, notifying: FleetNotifying) -> None:
        """Show on MQTT whether somebody is at any array."""
        if self._mqtt is None:
            return
        self._mqtt.show(View({"run": self._run, **notifying.as_dict()}, None, time.monotonic()))

    def _forwarder(self, route: Route) -> Forwarder:
        settings = self._settings
        output = {"mqtt": settings.mqtt, "webhook": settings.webhook}.get(route.target, settings.notifications)
        return Forwarder(
            self._state.journal,
            route,
            self._target(route.target),
            run=self._run,
            pauses=Pauses(output.retry_first_seconds, output.retry_most_seconds),
            report=_log,
        )

    def _target(self, name: str) -> Target:
        settings = self._settings
        if name == "webhook":
            return WebhookTarget(receiver_of(settings))
        if name != "mqtt":
            (address,) = (one for one in services_of(settings) if one.target == name)
            return MessageTarget(address)
        self._mqtt = MqttTarget(
            broker_of(settings),
            name=settings.mqtt.name,
            n_sensors=0,
            stale_seconds=_STALE_SECONDS,
            discovery_prefix=settings.mqtt.discovery_prefix,
            home_assistant=settings.mqtt.home_assistant,
        )
        return self._mqtt


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _log(notice: Notice) -> None:
    level = log.info if notice.kind == NoticeKind.OUTPUT_LINK_UP else log.warning
    level(notice.kind.replace("_", " "), **notice.details)
