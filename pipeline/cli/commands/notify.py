"""`gemmed notify --test`: send a test notification to every output and report what each did with it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pipeline.config.schema import Settings
from pipeline.core.errors import LinkError, UsageError
from pipeline.daemon.preflight import Finding, tried
from pipeline.outputs.notifier import wording_of
from pipeline.outputs.process import broker_of, message_target, receiver_of
from pipeline.outputs.services import service_addresses
from pipeline.outputs.webhook import WebhookTarget
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Row, StoredEvent, utc
from pipeline.storage.outbox import Target

_NO_EVENT = 0
"""Id of a notification that is in no journal."""


def send_tests(settings: Settings) -> Iterator[Finding]:
    """Send to one output after the other; one failure does not hide the others."""
    now = datetime.now(UTC)
    event = StoredEvent(_NO_EVENT, "test", None, None, utc(now), "notification", wording_of(settings).test(now))
    for what, attempt in _attempts(settings, event):
        yield tried(what, attempt)


def _attempts(settings: Settings, event: StoredEvent) -> Iterator[tuple[str, Callable[[], str]]]:
    found = False
    if settings.mqtt.address is not None:
        found = True
        yield "mqtt", partial(_published, settings, event.as_dict())
    if settings.webhook.url is not None:
        found = True
        receiver = receiver_of(settings)
        yield "webhook", partial(_sent, WebhookTarget(receiver), event, f"{receiver.told} took it")
    if settings.notifications.urls_file is not None:
        found = True
        yield from _services(settings, settings.notifications.urls_file, event)
    if not found:
        raise UsageError(
            "no output is configured; set mqtt.address, webhook.url or notifications.urls_file, see docs/outputs.md"
        )


def _services(settings: Settings, file: Path, event: StoredEvent) -> Iterator[tuple[str, Callable[[], str]]]:
    state = StateDirectory(settings.storage.directory)
    try:
        addresses = service_addresses(file)
    except UsageError as error:
        yield "notify", partial(_failed, error)
        return
    for address in addresses:
        target = message_target(settings, state, address, None)
        yield address.scheme, partial(_sent, target, event, f"{address.shown} took it")


def _failed(error: UsageError) -> str:
    raise error


def _sent(target: Target, event: StoredEvent, told: str) -> str:
    try:
        target.connect()
        list(target.send([event]))
    finally:
        target.close()
    return told


def _published(settings: Settings, body: Row) -> str:
    """By a name of its own, so that a running daemon keeps its connection."""
    topic = f"gemmed/{settings.mqtt.name}/notification"
    session = broker_of(settings).session(f"gemmed-test-{secrets.token_hex(4)}")
    try:
        answer = session.answer(session.publish(topic, json.dumps(body).encode()))
    finally:
        session.end()
    if answer.is_failure:
        raise LinkError(f"{settings.mqtt.address} answers {answer} to {topic}; check the rights of mqtt.user")
    return f"{settings.mqtt.address} took it as {topic}"
