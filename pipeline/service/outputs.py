"""Which events go to which other machines."""

from __future__ import annotations

from pipeline.service.settings import Settings
from pipeline.sinks.forwarding import Route
from pipeline.sinks.jsonl import EVENT_TYPES

_TO_BROKERS = tuple(kind for kind in EVENT_TYPES if kind not in ("tick", "paced"))
TO_PEOPLE = (
    "state_changed", "fault_suspected", "event_noticed", "common_fault", "calibration_lost", "source_trouble",
    "run_died", "clock_jumped", "storage_low", "storage_read_only", "journal_replaced", "model_unusable",
    "model_promoted", "model_rolled_back", "retraining_failed", "output_link_down", "output_dropped",
)  # fmt: skip
"""What an operator wants to be told."""


def routes(settings: Settings) -> list[Route]:
    """One for each output that the settings ask for."""
    mqtt, webhook, found = settings.mqtt, settings.webhook, []
    if mqtt.address is not None:
        found.append(Route("mqtt", _TO_BROKERS if mqtt.events is None else mqtt.events, mqtt.queue))
    if webhook.url is not None:
        types = TO_PEOPLE if webhook.events is None else webhook.events
        found.append(Route("webhook", types, webhook.queue, notable=True))
    return found
