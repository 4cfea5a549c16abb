"""Which events go to which other machines."""

from __future__ import annotations

from contextlib import suppress

from pipeline.config.schema import Settings
from pipeline.core.errors import UsageError
from pipeline.core.event_json import EVENT_TYPES
from pipeline.outputs.clip_links import Links
from pipeline.outputs.services import ServiceAddress, readable_by_others, service_addresses
from pipeline.runtime.keys import stored_key
from pipeline.runtime.packages import without_web
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.outbox import Route

_ON_REQUEST = ("tick", "paced", "decision")
_TO_BROKERS = tuple(kind for kind in EVENT_TYPES if kind not in _ON_REQUEST)
TO_PEOPLE = (
    "notification", "state_changed", "fault_suspected", "event_noticed", "common_fault", "calibration_lost",
    "source_trouble", "run_died", "clock_jumped", "storage_low", "storage_read_only", "journal_replaced",
    "model_unusable", "model_promoted", "model_rolled_back", "retraining_failed", "output_link_down", "output_dropped",
)  # fmt: skip
"""What an operator wants to know; the default of a webhook."""
TO_SERVICES = (
    "notification", "state_changed", "common_fault", "source_trouble", "run_died", "storage_low", "storage_read_only",
    "journal_replaced", "model_unusable", "output_dropped",
)  # fmt: skip
"""What people are sent as messages: passages, summaries, and problems that somebody should solve."""


def routes(settings: Settings) -> list[Route]:
    """Return one for each output that the settings ask for."""
    mqtt, webhook, notifications, found = settings.mqtt, settings.webhook, settings.notifications, []
    if mqtt.address is not None:
        found.append(Route("mqtt", _TO_BROKERS if mqtt.events is None else mqtt.events, mqtt.queue))
    if webhook.url is not None:
        types = TO_PEOPLE if webhook.events is None else webhook.events
        found.append(Route("webhook", types, webhook.queue, notable=True))
    types = TO_SERVICES if notifications.events is None else notifications.events
    services = [Route(one.target, types, notifications.queue, notable=True) for one in services_of(settings)]
    return [*found, *services]


def services_of(settings: Settings) -> list[ServiceAddress]:
    """Return the services that the settings name; none if their file cannot be read."""
    file = settings.notifications.urls_file
    with suppress(UsageError):
        return [] if file is None else service_addresses(file)
    return []


def services_warning(settings: Settings) -> str | None:
    """Return what is wrong with the file of addresses, if anything is."""
    file = settings.notifications.urls_file
    if file is None:
        return None
    try:
        service_addresses(file)
        if readable_by_others(file):
            return f"notifications.urls_file = {str(file)!r} holds secrets and every user can read it; chmod 600 {file}"
    except (UsageError, OSError) as error:
        return str(error)
    return None


def links_of(settings: Settings, state: StateDirectory) -> Links | None:
    """Return links to the dashboard; None if there is no dashboard."""
    chosen = settings.notifications
    if not settings.web.enabled or without_web():
        return None
    return Links(chosen.link or settings.web.public_url, stored_key(state.link_key), chosen.link_expires_seconds)


def shows_decisions(settings: Settings) -> bool:
    """Return whether decisions go to the broker, which must be asked for."""
    return "decision" in (settings.mqtt.events or ())
