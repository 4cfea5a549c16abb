"""Time in stretches that tile it: what is so from one change to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Change:
    """From this moment on, in seconds since 1970, something is of this kind; `event` is the id of what tells so."""

    time: float
    kind: str
    why: str = ""
    event: int | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """From `begin` to `end`, in seconds since 1970, something is of one kind.

    Where `n` is more than 1, so many changes are too close together to be shown; the kind is the worst of them.
    """

    begin: float
    end: float
    kind: str
    why: str = ""
    event: int | None = None
    n: int = 1


def bands(changes: Iterable[Change], begin: float, end: float, *, otherwise: str) -> list[Band]:
    """What changes make of a time, without a hole; before the first of them it is `otherwise`.

    Changes are in their order. One that seems to come before its predecessor, for clocks are set, holds from there on.
    """
    found: list[Band] = []
    since, current = begin, Change(begin, otherwise)
    for change in changes:
        if (change.kind, change.why) == (current.kind, current.why):
            continue
        at = min(max(change.time, since), end)
        _append(found, since, at, current)
        since, current = at, change
    _append(found, since, end, current)
    return found


def _append(found: list[Band], begin: float, end: float, change: Change) -> None:
    """Unless it has no length; what goes on after something that had none is one band."""
    if end <= begin:
        return
    if found and (found[-1].kind, found[-1].why) == (change.kind, change.why):
        begin, change = found[-1].begin, replace(change, event=found.pop().event)
    found.append(Band(begin, end, change.kind, change.why, change.event))


def thinned(found: Sequence[Band], shortest: float, *, worst_first: Sequence[str] = ()) -> list[Band]:
    """Bands that still tile the time, of which those that are shorter are put together with their neighbours.

    There are at most two for every stretch of that length, and the worst is never hidden by what is better.
    """
    rank = {kind: place for place, kind in enumerate(worst_first)}
    thin: list[Band] = []
    group: list[Band] = []
    for band in found:
        if group and band.end - group[0].begin > shortest:
            thin.append(_together(group, rank))
            group = []
        group.append(band)
    return [*thin, _together(group, rank)] if group else thin


def _together(group: Sequence[Band], rank: Mapping[str, int]) -> Band:
    if len(group) == 1:
        return group[0]
    worst = min(group, key=lambda one: rank.get(one.kind, len(rank)))
    return replace(worst, begin=group[0].begin, end=group[-1].end, n=len(group))
