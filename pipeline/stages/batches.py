"""Many facts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Fact = TypeVar("Fact")


def replaced(
    items: Sequence[object], kind: type[Fact], convert: Callable[[list[Fact]], Iterable[object]]
) -> list[object]:
    """Return the items with each of a kind replaced by what `convert` makes of all of them together."""
    chosen = [item for item in items if isinstance(item, kind)]
    if not chosen:
        return list(items)
    converted = iter(convert(chosen))
    return [next(converted) if isinstance(item, kind) else item for item in items]
