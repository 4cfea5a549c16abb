"""Messages that wait already are heard as one, with every fact in its place and every sample once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, RecordingEnded, RecordingStarted, Tick
from pipeline.fleet.block_joining import in_large_blocks, joined
from pipeline.transport.nats import Message


def told(facts: list[object]) -> list[object]:
    """Sample by sample, with the mask of each, and everything else where it was said."""
    found: list[object] = []
    for fact in facts:
        if isinstance(fact, Block):
            mask = fact.delivered.tolist()
            found += [(fact.start + at, column, mask) for at, column in enumerate(fact.samples.T.tolist())]
        else:
            found.append(fact)
    return found


def facts_of(steps: list[tuple[str, int, bool]]) -> list[object]:
    """Blocks one behind the other, ticks among them, holes, and a sensor that comes and goes."""
    rng, sample, facts = np.random.default_rng(len(steps)), 0, list[object]()
    for kind, length, second in steps:
        if kind == "block":
            samples = rng.normal(size=(2, length)).astype(np.float32)
            facts.append(Block(sample, samples, np.array([True, second])))
        elif kind == "tick":
            facts.append(Tick(sample, 1.0))
        sample += length if kind in ("block", "hole") else 0
    return facts


@given(
    st.lists(st.tuples(st.sampled_from(["block", "block", "block", "tick", "hole"]), st.integers(1, 9), st.booleans()))
)
def test_every_fact_and_every_sample_keeps_its_place(steps):
    facts = facts_of(steps)
    large = in_large_blocks(facts)
    assert told(large) == told(facts)
    assert told(in_large_blocks(large)) == told(facts)
    for one, next_one in pairwise(large):
        if isinstance(one, Block) and isinstance(next_one, Block):
            assert one.stop != next_one.start or one.delivered.tolist() != next_one.delivered.tolist()


def message(sequence: int, pending: int) -> Message:
    return Message("sound.a", sequence, b"", datetime.now(UTC), {}, pending)


def block(start: int, length: int = 10) -> Block:
    return Block(start, np.full((2, length), start, np.float32), np.ones(2, bool))


def test_a_portion_ends_where_nothing_waits():
    """With the last message; time without any passes on its own."""
    portions = [(message(1, 1), [block(0)]), (message(2, 0), [block(10)]), (None, []), (message(3, 2), [block(20)]),
                (message(4, 1), []), (None, []), (message(5, 0), [RecordingEnded("a", 30)])]  # fmt: skip
    found = [(one and one.sequence, told(facts)) for one, facts in joined(portions)]
    assert [one for one, _ in found] == [2, None, 4, None, 5]
    assert [fact for _, facts in found for fact in facts] == told([fact for _, facts in portions for fact in facts])


def test_messages_come_one_by_one_while_that_is_wanted():
    portions = [(message(1, 2), [block(0)]), (message(2, 1), [block(10)]), (message(3, 0), [block(20)])]
    assert [one.sequence for one, _ in joined(portions, lambda: True)] == [1, 2, 3]


def test_a_portion_is_no_larger_than_some_seconds():
    endless = ((message(1 + at, 9), [block(32_000 * at, 32_000)]) for at in range(1_000))
    found = [(one.sequence, facts) for (one, facts), _ in zip(joined(endless), range(3), strict=False)]
    assert [number for number, _ in found] == [9, 18, 27]
    assert [(one.start, one.stop) for _, (one,) in found] == [(at, at + 288_000) for at in (0, 288_000, 576_000)]


def test_the_start_of_a_recording_ends_a_portion():
    started = RecordingStarted("b", 4000, ("1", "2"))
    portions = [(message(1, 3), [block(0)]), (message(2, 2), [RecordingEnded("a", 10), started]),
                (message(3, 1), [block(0)]), (message(4, 0), [block(10)])]  # fmt: skip
    assert [(one.sequence, len(facts)) for one, facts in joined(portions)] == [(2, 3), (4, 1)]


def test_what_came_before_a_message_that_cannot_be_read_is_heard():
    def portions() -> Iterator[tuple[Message, list[object]]]:
        yield message(1, 2), [block(0)]
        yield message(2, 1), [block(10)]
        raise SourceError("of another version")

    found: list[object] = []
    with pytest.raises(SourceError, match="of another version"):  # noqa: PT012
        for one, facts in joined(portions()):
            assert one.sequence == 2
            found += facts
    assert told(found) == told([block(0, 10), block(10)])
