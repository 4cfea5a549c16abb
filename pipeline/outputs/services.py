"""Notifications to e-mail, push and chat services through apprise.

Every address of a service is an output of its own with its own place in the journal: one that is down delays no other,
and none gets a message twice because another failed.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pipeline.core.errors import LinkError, UsageError
from pipeline.outputs.clip_links import Links
from pipeline.outputs.notification_text import concerns_people, problem_text
from pipeline.storage.journal import StoredEvent

if TYPE_CHECKING:
    from apprise import NotifyBase, NotifyLogEntry

_SHORTEST_SECRET = 4
_OPEN_TO_OTHERS = 0o007
_HASH_DIGITS = 8
_PASSWORD = re.compile(r"(?<=://)([^:/@?]*):[^/?]*@")

Clip = Callable[[str], bytes]
"""The sound of a passage as FLAC."""


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A line of the file of addresses. Only its scheme is shown: every other part may be secret."""

    line: int
    url: str = field(repr=False)

    @property
    def shown(self) -> str:
        return f"{self.scheme} (line {self.line} of notifications.urls_file)"

    @property
    def scheme(self) -> str:
        scheme, separator, _ = self.url.partition("://")
        return scheme.lower() if separator and re.fullmatch(r"[A-Za-z0-9.+-]+", scheme) else "address"

    @property
    def target(self) -> str:
        """A name that stays the same when other lines or the password change, so that what waits is not lost."""
        known = _PASSWORD.sub(r"\1@", self.url)
        return f"{self.scheme}-{hashlib.sha256(known.encode()).hexdigest()[:_HASH_DIGITS]}"

    def without_secrets(self, text: str) -> str:
        """Return a text without any part of the address that could be secret; names of hosts stay."""
        _, _, rest = self.url.partition("://")
        parts = {part for one in (rest, unquote(rest)) for part in re.split(r"[/?&=:@,;]", one)}
        for part in sorted(parts, key=len, reverse=True):
            if len(part) >= _SHORTEST_SECRET and not _is_host(part):
                text = text.replace(part, "***")
        return text


def _is_host(part: str) -> bool:
    return part == "localhost" or re.fullmatch(r"([A-Za-z0-9-]{1,20}\.)+[A-Za-z0-9-]{1,20}", part) is not None


def service_addresses(file: Path) -> list[ServiceAddress]:
    """Read a file with one address a line; empty lines and comments (#) are skipped, repeated lines count once."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"notifications.urls_file = {str(file)!r} cannot be read: {reason}; check its name and its rights"
        ) from error
    found: dict[str, ServiceAddress] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (url := line.strip()) and not url.startswith("#"):
            address = ServiceAddress(number, url)
            found.setdefault(address.target, address)
    return list(found.values())


def readable_by_others(file: Path) -> bool:
    """Return whether users other than the owner and the group of a file may read it."""
    return bool(file.stat().st_mode & _OPEN_TO_OTHERS)


def opened(address: ServiceAddress) -> NotifyBase:
    """Return the service of an address; no connection is made."""
    try:
        from apprise import Apprise
    except ImportError as error:
        raise LinkError("notifications.urls_file needs the package apprise; pip install 'gemmed[notify]'") from error
    _silence()
    service = Apprise.instantiate(address.url, suppress_exceptions=True)
    if service is None or isinstance(service, dict):
        raise LinkError(
            f"line {address.line} of notifications.urls_file is not an address that apprise can use; write for example "
            '"mailtos://user:password@example.org" (the documentation of apprise lists all services)'
        )
    return service


def _silence() -> None:
    """Its log shows addresses with their secrets."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


class MessageTarget:
    """Sends the title and text of an event to one service.

    apprise does not say why a service refused a message, so every failure is tried again, until the queue is full.
    """

    def __init__(self, address: ServiceAddress, *, links: Links | None = None, clip: Clip | None = None) -> None:
        self._address, self._links, self._clip = address, links, clip
        self._service: NotifyBase | None = None

    def connect(self) -> None:
        self._service = opened(self._address)

    def send(self, events: Sequence[StoredEvent]) -> Iterator[int]:
        for event in events:
            if concerns_people(event.body):
                self._send(event)
            yield event.id

    def _send(self, event: StoredEvent) -> None:
        from apprise import Apprise, NotifyFormat

        assert self._service is not None
        title, text = message_of(event.body, self._links)
        sender, reasons = Apprise(), list[str]()
        sender.add(self._service)

        def note(entry: NotifyLogEntry, service: object) -> None:
            reasons.append(str(entry.message))

        sent = sender.notify(
            body=text,
            title=title,
            body_format=NotifyFormat.TEXT,
            attach=self._attachment(event.body),
            log_callback=note,
            log_level=logging.WARNING,
        )
        if not sent:
            why = (
                self._address.without_secrets("; ".join(dict.fromkeys(one.rstrip(". ") for one in reasons)))
                or "no reason given"
            )
            raise LinkError(f"{self._address.shown} did not take the message: {why}; check the address and the network")

    def _attachment(self, body: Mapping[str, Any]) -> Any:
        assert self._service is not None
        if self._clip is None or body.get("about") != "passage" or not self._service.attachment_support:
            return None
        from apprise.attachment.memory import AttachMemory

        try:
            sound = self._clip(body["passage"])
        except UsageError:  # the sound is no longer kept
            return None
        return AttachMemory(content=sound, name=f"{body['passage']}.flac", mimetype="audio/flac")

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._service = None


def message_of(body: Mapping[str, Any], links: Links | None) -> tuple[str, str]:
    """Return title and text of an event as people read them, with links that start to expire now."""
    if body["type"] != "notification":
        return problem_text(body)
    lines = [body["text"]]
    if links is not None and body["about"] == "passage":
        lines += [f"Listen: {links.clip(body['passage'], time.time())}", f"Details: {links.passage(body['passage'])}"]
    elif links is not None and body["about"] == "summary":
        lines.append(f"History: {links.history}")
    return body["title"], "\n".join(lines)
