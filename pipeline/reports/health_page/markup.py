"""HTML and SVG from nested calls; whatever is not markup already is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

_EMPTY = {"line", "meta", "path", "rect"}
"""Elements that never have content."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: object) -> Markup:
    """An element. `class_` is written class and `aria_label` aria-label; None leaves an attribute out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{together(children)}</{name}>")


def together(parts: Iterable[str]) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    """Names of files may hold anything, even what is no character at all."""
    return escape(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.encode("utf-8", "replace").decode()))


def _plain(value: object) -> str:
    """Coordinates need no more than two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
