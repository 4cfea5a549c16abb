"""`gemmed check`: really open what the daemon will open, and say what is wrong before it runs."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.config.schema import (
    FolderSourceSettings,
    PcmSourceSettings,
    Settings,
    SimulatedSourceSettings,
    StreamSourceSettings,
    Web,
)
from pipeline.core.errors import GemmedError, LinkError, SourceError, UsageError
from pipeline.core.events import Block, RecordingStarted, SourceTrouble
from pipeline.outputs.common import read_secret
from pipeline.outputs.services import opened, service_addresses
from pipeline.outputs.targets import services_warning
from pipeline.retraining.registry import Registry
from pipeline.runtime.endpoint import days_left, doubts, is_gemmed, listening
from pipeline.runtime.packages import without_web
from pipeline.runtime.state_dir import StateDirectory
from pipeline.sources.factory import door
from pipeline.storage.journal import Journal

_LISTEN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried, and what came of it."""

    what: str
    fine: bool
    told: str


def check(settings: Settings) -> Iterator[Finding]:
    """Everything in the order in which the daemon needs it; one failure does not hide the others."""
    state = StateDirectory(settings.storage.directory)
    for what, attempt in (
        ("disk", lambda: _disk(state, settings)),
        ("journal", lambda: _journal(state)),
        ("model", lambda: _model(state, settings)),
        ("source", lambda: _source(settings)),
        ("label file", lambda: _labels(settings)),
        ("dashboard", lambda: _dashboard(state, settings.web)),
        ("mqtt", lambda: _mqtt(settings)),
        ("webhook", lambda: _webhook(settings)),
        ("notify", lambda: _services(settings)),
    ):
        yield tried(what, attempt)


def tried(what: str, attempt: Callable[[], str]) -> Finding:
    """Return what came of an attempt, which raises an error or says what it found."""
    try:
        return Finding(what, True, attempt())
    except (GemmedError, OSError) as error:
        return Finding(what, False, str(error))


def _disk(state: StateDirectory, settings: Settings) -> str:
    state.create()
    free = shutil.disk_usage(state.path).free
    if free < settings.storage.least_free_bytes:
        raise UsageError(
            f"{free / 1e9:.2f} GB are free at {state.path}, storage.least_free asks for "
            f"{settings.storage.least_free_bytes / 1e9:.2f} GB; make space, or lower it"
        )
    rate = settings.array.rate_hz * settings.array.sensors * 2 * 0.6
    hours = min(free - settings.storage.least_free_bytes, settings.storage.budget_bytes) / rate / 3600
    return f"{state.path} can be written to, {free / 1e9:.1f} GB free, enough for about {hours:.0f} h of sound"


def _journal(state: StateDirectory) -> str:
    if state.is_locked():
        return f"{state.journal} is in use by a gemmed run"
    if not state.journal.exists():
        return f"{state.journal} will be made"
    with Journal(state.journal) as journal:
        journal.check()
        return f"{state.journal} is whole, {journal.last_id} events"


def _model(state: StateDirectory, settings: Settings) -> str:
    from pipeline.model.model import Model

    if state.journal.exists():
        with Journal(state.journal) as journal:
            registry = Registry(state.models, journal)
            champion = registry.champion()
            if champion is not None:
                return f"{champion.name} decides, {_fits(registry.load(champion.name), settings)}"
    if settings.training.model is not None:
        model = Model.load(settings.training.model)
        return f"{settings.training.model} will decide, {_fits(model, settings)}"
    if settings.training.recordings is not None or isinstance(settings.source, SimulatedSourceSettings):
        return "a first model will be trained at the first start"
    return "none: the states of the sensors at once, p-values after a while, decisions once enough is labelled"


def _fits(model: object, settings: Settings) -> str:
    from pipeline.model.model import Model

    assert isinstance(model, Model)
    theirs, ours = (model.grid.rate_hz, model.n_sensors), (settings.array.rate_hz, settings.array.sensors)
    if theirs != ours:
        raise UsageError(
            f"model {model.name} is for {theirs[1]} sensors at {theirs[0]} Hz, the settings say {ours[1]} at {ours[0]} "
            "Hz; change array.sensors and array.rate, or the model"
        )
    return f"for {theirs[1]} sensors at {theirs[0]} Hz"


def _source(settings: Settings) -> str:
    source = settings.source
    if isinstance(source, FolderSourceSettings):
        if not source.path.is_dir():
            raise SourceError(f"source.path = {str(source.path)!r} is no folder; make it, or give another")
        return f"{source.path} is there, {len(list(source.path.iterdir()))} entries"
    if isinstance(source, StreamSourceSettings):
        return _published(settings, source)
    if isinstance(source, PcmSourceSettings) and (source.address == "-" or source.address.endswith("?listen")):
        return f"{source.address}: cannot be tried without taking the sound of whoever sends it"
    return _heard(settings)


def _published(settings: Settings, source: StreamSourceSettings) -> str:
    from pipeline.sources.reorder import require_known
    from pipeline.transport.nats import Broker
    from pipeline.transport.wire import StreamNames

    with Broker(settings.broker.access(), name="gemmed check") as broker:
        require_known(broker, StreamNames(settings.broker.name), source.array)
    return f"{source.array} is in the log of {settings.broker.address}"


def _heard(settings: Settings) -> str:
    """Open it, and listen until the first sound."""
    way, until = door(settings), time.monotonic() + _LISTEN_SECONDS
    told = ""
    with way.open() as source:
        for fact in source:
            if isinstance(fact, SourceTrouble):
                told = f"{fact.where} {fact.message}"
            if isinstance(fact, RecordingStarted) and (fact.rate_hz, len(fact.sensors)) != (
                settings.array.rate_hz,
                settings.array.sensors,
            ):
                raise SourceError(
                    f"{way.name} delivers {len(fact.sensors)} sensors at {fact.rate_hz} Hz; correct array"
                )
            if isinstance(fact, Block):
                levels = ", ".join(_level(row) for row in fact.samples)
                return f"{way.name} delivers {len(fact.samples)} sensors; levels {levels}"
            if time.monotonic() > until:
                break
    raise SourceError(told or f"{way.name} delivers nothing for {_LISTEN_SECONDS:.0f} s; check that it is plugged in")


def _level(samples: object) -> str:
    import numpy as np

    power = float(np.mean(np.square(np.asarray(samples, np.float64))))
    return f"{10 * np.log10(power):.0f} dBFS" if power > 0 else "silence"


def _labels(settings: Settings) -> str:
    file = settings.labels.file
    if file is None:
        return "none is watched"
    if not file.exists():
        return f"{file} is not there yet; it is read when it comes"
    if not file.is_file():
        raise UsageError(f"labels.file = {str(file)!r} is no file; give a table (.csv)")
    return f"{file} is there"


def _dashboard(state: StateDirectory, web: Web) -> str:
    if not web.enabled:
        return "none: web.enabled = false"
    if missing := without_web():
        raise UsageError(missing)
    left = days_left(web)
    lasts = "" if left is None else f", its certificate lasts {left:.0f} days"
    warnings = "".join(f"; warning: {doubt}" for doubt in doubts(web))
    if state.is_locked() and is_gemmed(web):
        return f"{web.url} is open already{lasts}{warnings}"
    listening(web).close()
    known = f"known by {len(web.tokens)} tokens" if web.tokens else "open to everybody on this machine"
    return f"{web.url} can be served, {known}{lasts}{warnings}"


def _mqtt(settings: Settings) -> str:
    """By another name than the daemon's, whose place it would take otherwise."""
    from pipeline.outputs.process import broker_of

    address = settings.mqtt.address
    if address is None:
        return "none is told anything"
    broker_of(settings).session(f"gemmed-check-{secrets.token_hex(4)}").end()
    warning = '; the password travels in the clear, "mqtts://" would hide it' if settings.mqtt.in_the_clear else ""
    return f"{address} lets us in{warning}"


def _webhook(settings: Settings) -> str:
    """The connection only: whoever is there must not be told anything that did not happen."""
    from pipeline.outputs.process import receiver_of

    if settings.webhook.url is None:
        return "none is told anything"
    receiver = receiver_of(settings)
    receiver.open().close()
    if receiver.secret_file is not None:
        read_secret(receiver.secret_file, "webhook.secret_file")
    return f"{receiver.told} can be reached; what it answers shows when there is something to tell"


def _services(settings: Settings) -> str:
    """Read the file and every address in it; no connection is made, because that alone notifies some services."""
    file = settings.notifications.urls_file
    if file is None:
        return "not configured: notifications.urls_file is not set"
    addresses = service_addresses(file)
    wrong = []
    for address in addresses:
        try:
            opened(address)
        except LinkError as error:
            wrong.append(str(error))
    warning = f"; warning: {found}" if (found := services_warning(settings)) else ""
    if wrong:
        raise UsageError("; ".join(wrong) + warning)
    schemes = ", ".join(address.scheme for address in addresses) or "none"
    return f"{file} has addresses of {schemes}; gemmed notify --test sends to them{warning}"
