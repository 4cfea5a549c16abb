"""What was decided, out of its log, and how a place in a log is found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from pipeline.fleet.topology import Places
from pipeline.transport.nats import Broker, Message, Reader

_MESSAGES = 64
_WAIT_SECONDS = 0.5


def events(
    broker: Broker,
    places: Places,
    arrays: Sequence[str] = (),
    *,
    since: datetime | None = None,
    follow: bool = False,
) -> Iterator[str]:
    """Lines of JSON as they are stored, of some arrays or of all; each event once, by its number."""
    seen: dict[str, int] = {}
    subject = places.events(arrays[0]) if len(arrays) == 1 else places.events("*")
    for message in _stored(broker.read(places.events_stream, subject, since or 1), follow=follow):
        array = message.subject.rpartition(".")[2]
        if arrays and array not in arrays:
            continue
        for text in message.data.decode().splitlines(keepends=True):
            number = int(json.loads(text)["id"])
            if number > seen.get(array, 0):
                seen[array] = number
                yield text


def _stored(reader: Reader, *, follow: bool) -> Iterator[Message]:
    yield from reader.to_the_end()
    while follow:
        sys.stdout.flush()
        yield from reader.take(most=_MESSAGES, seconds=_WAIT_SECONDS)


def event_of(broker: Broker, places: Places, array: str, number: int) -> dict[str, Any] | None:
    """An event of an array by its number; None if it is not in the log."""
    stream, subject = places.events_stream, places.events(array)
    message = last_not_beyond(
        lambda sequence: _with_events(broker, stream, subject, sequence),
        broker.last_sequence(stream) + 1,
        lambda one: int(json.loads(one.data.partition(b"\n")[0])["id"]) > number,
    )
    told = () if message is None else map(json.loads, message.data.splitlines())
    return next((event for event in told if event["id"] == number), None)


def _with_events(broker: Broker, stream: str, subject: str, sequence: int) -> Message | None:
    """The first from there on that tells anything: whoever takes an array over says so without any."""
    while (one := broker.next(stream, subject, sequence)) is not None and not one.data:
        sequence = one.sequence + 1
    return one


def last_not_beyond(
    at_or_after: Callable[[int], Message | None], end: int, is_beyond: Callable[[Message], bool]
) -> Message | None:
    """The last message before a place that is not beyond something, by halves: those that are come after the others."""
    found: Message | None = None
    low, high = 0, end
    while high - low > 1:
        middle = (low + high) // 2
        one = at_or_after(middle)
        if one is None or one.sequence >= high or is_beyond(one):
            high = middle
        else:
            found, low = one, one.sequence
    return found
