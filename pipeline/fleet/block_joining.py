"""Larger blocks for a worker that is behind: how sound is cut changes what decisions cost, not what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, RecordingStarted
from pipeline.transport.nats import Message

_MOST_NUMBERS = 1 << 19
"""In the sound of a portion: 8 s of four sensors at 16 kHz."""
Portion = tuple[Message | None, list[object]]


def joined(portions: Iterable[Portion], one_by_one: Callable[[], bool] = lambda: False) -> Iterator[Portion]:
    """Portions of facts, each with the last of its messages; messages that wait already come as one portion.

    The start of a recording ends one: it may fail there, and the rest waits. While `one_by_one` holds, each message is
    a portion.
    """
    waiting: list[object] = []
    last: Message | None = None
    try:
        for message, facts in portions:
            waiting += facts
            last = message or last
            if last is not None and (message is None or not message.pending or one_by_one() or _is_whole(waiting)):
                yield last, in_large_blocks(waiting)
                waiting, last = [], None
            if message is None:
                yield None, []
    except SourceError:
        if last is not None:  # what came before a message that cannot be read
            yield last, in_large_blocks(waiting)
        raise


def _is_whole(facts: list[object]) -> bool:
    started = any(isinstance(fact, RecordingStarted) for fact in facts)
    return started or sum(fact.samples.size for fact in facts if isinstance(fact, Block)) >= _MOST_NUMBERS


def in_large_blocks(facts: list[object]) -> list[object]:
    """The same facts, with blocks that continue each other as one."""
    found: list[object] = []
    run: list[Block] = []
    for fact in facts:
        if run and not (isinstance(fact, Block) and _continues(fact, run[-1])):
            found.append(_one(run))
            run = []
        if isinstance(fact, Block):
            run.append(fact)
        else:
            found.append(fact)
    return [*found, _one(run)] if run else found


def _continues(block: Block, before: Block) -> bool:
    return block.start == before.stop and np.array_equal(block.delivered, before.delivered)


def _one(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block(blocks[0].start, np.concatenate([one.samples for one in blocks], axis=1), blocks[0].delivered)
