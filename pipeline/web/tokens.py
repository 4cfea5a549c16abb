"""Tokens by which the dashboard knows who asks; the settings have only their hashes."""

from __future__ import annotations

import hashlib
import re
import secrets

_BYTES = 32
_TOKEN = re.compile(r"gemmed_[A-Za-z0-9_-]{43}")


def new_token() -> str:
    """256 random bits, with a beginning by which one recognises it where it does not belong."""
    return f"gemmed_{secrets.token_urlsafe(_BYTES)}"


def hash_of(token: str) -> str | None:
    """As it is written in the settings; none for what `new_token` cannot have made.

    A slow hash protects what people choose, for it can be guessed. 256 random bits cannot, and nothing else is taken.
    """
    if _TOKEN.fullmatch(token) is None:
        return None
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
