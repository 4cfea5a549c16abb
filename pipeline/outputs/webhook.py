"""Events to an address on the web, one POST each, one after the other."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from pipeline import __version__
from pipeline.core.errors import LinkError
from pipeline.outputs.clip_links import Links
from pipeline.outputs.common import outward, read_secret, reason_of
from pipeline.storage.journal import StoredEvent
from pipeline.storage.outbox import EventRefused

_LATER = {408, 425, 429}
_ABOUT_THE_EVENT = {400, 409, 413, 415, 422}
_FEW_TRIES, _MANY_TRIES = 3, 60
_MOST_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where events are sent to; with a secret, they are signed."""

    url: str
    timeout_seconds: float
    secret_file: Path | None = None
    ca_file: Path | None = None

    @property
    def told(self) -> str:
        """For people: the rest of the address may be a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")

    def open(self) -> HTTPConnection:
        """A connection that stands, without a word said yet."""
        parts = urlsplit(self.url)
        connection = self._secure() if parts.scheme == "https" else self._plain()
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise LinkError(
                f"{self.told} cannot be reached: {reason_of(error)}; check webhook.url and the net"
            ) from error
        return connection

    def _plain(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        return HTTPConnection(parts.hostname or "", parts.port or 80, timeout=self.timeout_seconds)

    def _secure(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise LinkError(f"webhook.ca_file = {str(self.ca_file)!r} cannot be used: {reason_of(error)}; "
                            "give certificates in PEM") from error  # fmt: skip
        return HTTPSConnection(parts.hostname or "", parts.port or 443, timeout=self.timeout_seconds, context=context)


class WebhookTarget:
    """Has an event when it answers with 2xx.

    What it asks to be sent later, errors of its own and silence are a matter of the link. With any other 4xx it
    refuses: if the event itself is the reason, it is soon given up; if not, only after many tries, for somebody may
    cure it meanwhile. Redirections are not followed: what was meant for one machine goes to no other.
    """

    def __init__(self, receiver: Receiver, *, links: Links | None = None) -> None:
        self._receiver, self._links = receiver, links
        self._connection: HTTPConnection | None = None
        self._used = False

    def connect(self) -> None:
        self._connection, self._used = self._receiver.open(), False

    def send(self, events: Sequence[StoredEvent]) -> Iterator[int]:
        for event in events:
            body = json.dumps(outward(event, self._links), separators=(",", ":"), allow_nan=False).encode()
            self._judge(event, *self._answer(body, self._headers(event, body)))
            yield event.id

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _headers(self, event: StoredEvent, body: bytes) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"gemmed/{__version__}",
            "X-Gemmed-Event-Id": str(event.id),
        }
        if self._receiver.secret_file is not None:
            secret = read_secret(self._receiver.secret_file, "webhook.secret_file").encode()
            headers["X-Gemmed-Signature"] = f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"
        return headers

    def _answer(self, body: bytes, headers: dict[str, str]) -> tuple[int, HTTPResponse]:
        """Once more on a new connection if one that was used before turns out to be closed: that is not its fault."""
        used, self._used = self._used, True
        try:
            return self._post(body, headers)
        except (OSError, HTTPException) as error:
            if not used or isinstance(error, TimeoutError):
                raise self._unanswered(error) from error
        self.close()
        self._connection = self._receiver.open()
        try:
            return self._post(body, headers)
        except (OSError, HTTPException) as error:
            raise self._unanswered(error) from error

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, HTTPResponse]:
        assert self._connection is not None
        parts = urlsplit(self._receiver.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        answer.read(_MOST_ANSWER_BYTES)
        if not answer.isclosed():  # whoever has so much to say is not listened to
            self._connection.close()
        return answer.status, answer

    def _unanswered(self, error: Exception) -> LinkError:
        return LinkError(f"{self._receiver.told} does not answer: {reason_of(error)}; check the receiver")

    def _judge(self, event: StoredEvent, status: int, answer: HTTPResponse) -> None:
        if 200 <= status < 300:
            return
        told = f"{self._receiver.told} answers {status} {answer.reason}".rstrip()
        if 300 <= status < 400:
            raise LinkError(f"{told}, which is not followed; put the address where it sends us into webhook.url")
        if status in _LATER or not 400 <= status < 500:
            raise LinkError(f"{told}; check the receiver", retry_after_seconds=_retry_after(answer))
        tries = _FEW_TRIES if status in _ABOUT_THE_EVENT else _MANY_TRIES
        raise EventRefused(f"{told}; check webhook.url and what the receiver accepts", event=event.id, tries=tries)


def _retry_after(answer: HTTPResponse) -> float:
    """Seconds, or a date."""
    asked = answer.getheader("Retry-After", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked)
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(asked) - datetime.now(UTC)).total_seconds())
    return 0.0
