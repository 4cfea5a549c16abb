"""Where a source says that it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pipeline.core.events import Block, Gap, RecordingStarted
from pipeline.sources.reconnecting import Door, LiveSource

RATE_HZ = 2000
EVERYBODY = np.ones(4, np.bool_)


class Scripted:
    """A source that gives what it is told to."""

    def __init__(self, *facts: object) -> None:
        self._facts = facts

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __iter__(self) -> Iterator[object]:
        yield RecordingStarted("scripted", RATE_HZ, ("1", "2", "3", "4"))
        yield from self._facts


def sound(start: int, stop: int) -> Block:
    return Block(start, np.zeros((4, stop - start), np.float32), EVERYBODY)


@pytest.mark.parametrize("recording_seconds", [60.0, 0.3])
def test_what_is_done_after_a_fact_lies_behind_it(recording_seconds):
    """A model that is swapped in there decides about later segments only, and a replay sees it there."""
    facts = sound(0, 700), Gap(700, 900, "a pause"), sound(900, 1300)
    door = Door(name="scripted", open=lambda: Scripted(*facts), again=False)
    source = LiveSource(door, rate_hz=RATE_HZ, n_sensors=4, drop_oldest=False, recording_seconds=recording_seconds)
    seen = []
    with source:
        for fact in source:
            if isinstance(fact, Block | Gap):
                assert source.position == fact.stop
                seen.append(fact.stop - fact.start)
    assert sum(seen) == 1300
