"""How labels are shown to people."""

from __future__ import annotations

from collections.abc import Mapping

_USUAL = {"human_animal": "Human with animal"}


def shown_name(label: str, names: Mapping[str, str] | None = None) -> str:
    """Return the name of a label: the one in the settings, else its words with a capital."""
    words = label.replace("_", " ").strip()
    return (names or {}).get(label) or _USUAL.get(label) or words[:1].upper() + words[1:]
