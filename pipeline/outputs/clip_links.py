"""Links to the clip of one passage that work without a login until they expire.

The signature covers the whole path and query, so a link opens nothing but what it was made for.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import quote

_MOST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Links:
    """Links below the address `base` of a dashboard, signed with `key`."""

    base: str
    key: bytes
    expire_seconds: float

    def clip(self, passage: str, now: float) -> str:
        """Return a link to the mixed sound of a passage; `now` in seconds since 1970."""
        target = _target(passage, int(now + self.expire_seconds))
        return f"{self.base}{target}&signature={_signature(self.key, target)}"

    def passage(self, passage: str) -> str:
        """Return the address of the page of a passage."""
        return f"{self.base}/history?passage={quote(passage, safe='')}"

    @property
    def history(self) -> str:
        """Return the address of the page of all passages."""
        return f"{self.base}/history"


def refused(key: bytes, passage: str, query: str, now: float) -> str | None:
    """Return why a signed link to the clip of a passage is not valid, None if it is."""
    expires, _, signature = query.removeprefix("mix=true&expires=").partition("&signature=")
    if not (expires.isascii() and expires.isdigit() and len(expires) <= _MOST_DIGITS):
        return "this link is damaged; use the link exactly as it was sent"
    target = _target(passage, int(expires))
    given = f"{target}&signature={signature}".encode()
    expected = f"{target}&signature={_signature(key, target)}".encode()
    exact = f"{target.partition('?')[2]}&signature={signature}" == query
    if not (hmac.compare_digest(given, expected) and exact):
        return (
            "the signature of this link is wrong; use it exactly as it was sent, or open the passage in the dashboard"
        )
    if now >= int(expires):
        return "this link has expired; open the passage in the dashboard, or raise notifications.link_expires"
    return None


def _target(passage: str, expires: int) -> str:
    return f"/api/v1/passages/{quote(passage, safe='')}/clip?mix=true&expires={expires}"


def _signature(key: bytes, target: str) -> str:
    return hmac.new(key, target.encode(), hashlib.sha256).hexdigest()
