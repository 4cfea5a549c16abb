"""What all outputs have in common: how an event leaves the machine, and how a secret is read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pipeline.core.errors import LinkError
from pipeline.outputs.clip_links import Links
from pipeline.storage.journal import StoredEvent


def outward(event: StoredEvent, links: Links | None = None) -> dict[str, Any]:
    """Return an event as others get it: without settings, with links that start to expire now."""
    body = {name: value for name, value in event.as_dict().items() if name != "settings"}
    if links is not None and event.type == "notification" and event.body["about"] == "passage":
        passage = event.body["passage"]
        body |= {"clip": links.clip(passage, time.time()), "page": links.passage(passage)}
    return body


def read_secret(file: Path, setting: str) -> str:
    """From a file, read each time it is needed: it may be exchanged at any moment."""
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise LinkError(f"{setting} = {str(file)!r} cannot be read: {reason}; check its name and its rights") from error
    if not secret:
        raise LinkError(f"{setting} = {str(file)!r} is empty; write the secret into it")
    return secret


def reason_of(error: Exception) -> str:
    """In few words."""
    if isinstance(error, TimeoutError):
        return "it takes too long"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
