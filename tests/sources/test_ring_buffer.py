"""The buffer between hearing and deciding. Every sample carries its own number, which proves where it came from."""

from __future__ import annotations

from threading import Condition, Event, Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, Gap, RecordingStarted, SourceTrouble, Tick
from pipeline.sources.ring_buffer import OVERLOAD, Ended, RingBuffer, RingClosed
from tests.conftest import TIMEOUT

SENSORS = 3
MASKS = st.lists(st.booleans(), min_size=SENSORS, max_size=SENSORS).filter(any)
PUTS = st.one_of(
    st.tuples(st.just("sound"), st.integers(1, 60), MASKS),
    st.tuples(st.just("gap"), st.integers(1, 60)),
    st.tuples(st.just("trouble")),
    st.tuples(st.just("take"), st.integers(1, 50)),
)


def numbered(start: int, length: int, delivered=(True,) * SENSORS) -> Block:
    """Each sensor counts from another number on."""
    index = np.arange(start, start + length) + 1000 * np.arange(SENSORS)[:, None]
    return Block(start, index.astype(np.float32), np.array(delivered))


class Reader:
    """Takes facts and checks that they tile the time, hold what was put, and keep the order of other facts."""

    def __init__(self, ring: RingBuffer) -> None:
        self.ring, self.position, self.lost, self.others = ring, 0, 0, []
        self.delivered: list[tuple[int, int, tuple[bool, ...]]] = []
        self.gaps: list[Gap] = []

    def take(self, most: int = 10**6) -> bool:
        fact = self.ring.take(seconds=0, most=most)
        if isinstance(fact, Block):
            assert fact.start == self.position < fact.stop <= self.position + most
            assert (fact.samples == numbered(fact.start, fact.stop - fact.start).samples).all()
            self.delivered.append((fact.start, fact.stop, tuple(fact.delivered.tolist())))
            self.position = fact.stop
        elif isinstance(fact, Gap):
            assert fact.start == self.position < fact.stop
            self.gaps.append(fact)
            self.lost += (fact.stop - fact.start) * (fact.reason == OVERLOAD)
            self.position = fact.stop
        elif fact is not None:
            self.others.append((self.position, fact))
        return fact is not None


@settings(max_examples=200)
@given(capacity=st.integers(1, 100), script=st.lists(PUTS, max_size=60))
def test_whatever_is_put_comes_out_aligned_or_as_a_gap(capacity, script):
    """In any cuts and masks; what is lost is counted to the sample, and nothing else moves."""
    ring = RingBuffer(SENSORS, capacity, drop_oldest=True)
    reader, position, expected, others, own_gaps = Reader(ring), 0, [], [], 0
    for number, (kind, *how) in enumerate(script):
        if kind == "sound":
            ring.put(numbered(position, *how))
            expected.append((position, position + how[0], tuple(how[1])))
            position += how[0]
        elif kind == "gap":
            ring.put(Gap(position, position + how[0], "the source's own"))
            position, own_gaps = position + how[0], own_gaps + how[0]
        elif kind == "trouble":
            ring.put(SourceTrouble(str(number), "is odd; look at it"))
            others.append((position, str(number)))
        else:
            reader.take(*how)
        assert ring.fill <= capacity
    while reader.take():
        pass
    assert reader.position == position
    assert reader.lost == ring.lost
    heard = sum(stop - start for start, stop, _ in reader.delivered)
    assert heard + ring.lost + own_gaps == position
    for start, stop, mask in reader.delivered:
        assert [mask] * (stop - start) == [
            by for first, last, by in expected for _ in range(max(0, min(stop, last) - max(start, first)))
        ]
    assert [(place, fact.where) for place, fact in reader.others] == others


@settings(max_examples=25)
@given(
    capacity=st.integers(1, 80),
    sizes=st.lists(st.tuples(st.integers(1, 200), MASKS), max_size=12),
    most=st.integers(1, 90),
)
def test_a_writer_that_can_wait_loses_nothing(capacity, sizes, most):
    """However large its blocks are beside the buffer."""
    ring, total = RingBuffer(SENSORS, capacity, drop_oldest=False), sum(size for size, _ in sizes)

    def write() -> None:
        position = 0
        for size, mask in sizes:
            ring.put(numbered(position, size, mask))
            position += size
        ring.end()

    writer = Thread(target=write)
    writer.start()
    position = 0
    while not isinstance(fact := ring.take(seconds=TIMEOUT, most=most), Ended):
        assert isinstance(fact, Block)
        assert fact.start == position
        assert (fact.samples == numbered(fact.start, fact.stop - fact.start).samples).all()
        position = fact.stop
    writer.join(TIMEOUT)
    assert (position, ring.lost, fact.error) == (total, 0, None)


def test_the_oldest_goes_and_leaves_one_gap():
    """Ten times more than fits, not read meanwhile: one gap, then the newest samples without a hole."""
    ring = RingBuffer(SENSORS, 100, drop_oldest=True)
    for start in range(0, 1000, 10):
        ring.put(numbered(start, 10))
    gap = ring.take(seconds=0, most=1000)
    assert gap == Gap(0, ring.lost, OVERLOAD)
    rest = ring.take(seconds=0, most=1000)
    assert isinstance(rest, Block)
    assert (rest.start, rest.stop) == (ring.lost, 1000)
    assert 75 <= rest.stop - rest.start <= 100
    assert ring.arrived == 1000
    assert ring.take(seconds=0, most=1000) is None


def test_what_was_taken_is_not_written_over():
    """A block stays as it was while the buffer goes round."""
    ring = RingBuffer(SENSORS, 50, drop_oldest=True)
    ring.put(numbered(0, 50))
    taken = ring.take(seconds=0, most=50)
    assert isinstance(taken, Block)
    ring.put(numbered(50, 50))
    assert (taken.samples == numbered(0, 50).samples).all()


def test_a_buffer_that_is_emptied_again_and_again_touches_no_more_memory_than_it_holds():
    ring = RingBuffer(SENSORS, 1000, drop_oldest=True)
    reader = Reader(ring)
    for start in range(0, 5000, 50):
        ring.put(numbered(start, 30))
        ring.put(numbered(start + 30, 20))
        assert reader.take()
    assert (reader.position, reader.lost) == (5000, 0)
    assert not ring._samples[:, 50:].any()


def test_a_tick_says_only_that_the_writer_lives():
    ring = RingBuffer(SENSORS, 50, drop_oldest=True)
    before = ring.alive_at
    ring.put(Tick(0, 1.0))
    assert ring.alive_at > before
    assert ring.take(seconds=0, most=1) is None


def test_the_end_comes_behind_everything_else_with_its_misfortune():
    ring, error = RingBuffer(SENSORS, 50, drop_oldest=True), SourceError("it is gone; plug it in")
    started = RecordingStarted("r", 4000, ("1", "2", "3"))
    ring.put(started)
    ring.put(numbered(0, 5))
    ring.end(error)
    facts = [ring.take(seconds=0, most=50) for _ in range(3)]
    assert facts[0] is started
    assert isinstance(facts[1], Block)
    assert facts[2] == Ended(error)


@pytest.mark.parametrize("drop_oldest", [True, False])
def test_a_writer_is_told_that_nobody_reads_any_more(drop_oldest):
    ring = RingBuffer(SENSORS, 50, drop_oldest=drop_oldest)
    ring.close()
    with pytest.raises(RingClosed):
        ring.put(numbered(0, 10))
    with pytest.raises(RingClosed):
        ring.put(Tick(0, 1.0))


def test_a_writer_that_waits_for_space_is_woken_by_the_close():
    ring, told = RingBuffer(SENSORS, 50, drop_oldest=False), []

    def write() -> None:
        try:
            ring.put(numbered(0, 60))
        except RingClosed as error:
            told.append(error)

    writer = Thread(target=write)
    writer.start()
    assert isinstance(ring.take(seconds=TIMEOUT, most=1), Block)  # it writes, and waits with the rest
    ring.close()
    writer.join(TIMEOUT)
    assert len(told) == 1


class Counting(Condition):
    """How often somebody was woken, and whether anybody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.notified, self.waiting = 0, Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waiting.set()
        return super().wait(timeout)

    def notify_all(self) -> None:
        self.notified += 1
        super().notify_all()


def waiting_reader(ring: RingBuffer, *, least: int) -> tuple[Counting, Thread, list[object]]:
    counting, taken = Counting(), list[object]()
    ring._changed = counting
    reader = Thread(target=lambda: taken.append(ring.take(seconds=TIMEOUT, least=least, most=10**6)))
    reader.start()
    assert counting.waiting.wait(TIMEOUT)
    return counting, reader, taken


def test_the_reader_wakes_once_for_all_that_it_waits_for():
    """However many chunks bring it; with the last of them, and not later."""
    ring = RingBuffer(SENSORS, 1000, drop_oldest=True)
    counting, reader, taken = waiting_reader(ring, least=100)
    for start in range(0, 90, 10):
        ring.put(numbered(start, 10))
        ring.put(Tick(start + 10, 1.0))
    assert (counting.notified, taken) == (0, [])
    ring.put(numbered(90, 10))
    reader.join(TIMEOUT)
    (block,) = taken
    assert (block.start, block.stop) == (0, 100)


@pytest.mark.parametrize(
    "say",
    [
        lambda ring: ring.put(SourceTrouble("door", "is odd; look at it")),
        lambda ring: ring.put(Gap(30, 50, "the source's own")),
        lambda ring: ring.put(numbered(30, 10, (True, True, False))),
        lambda ring: ring.end(),
    ],
    ids=["trouble", "gap", "another mask", "end"],
)
def test_the_reader_wakes_at_once_where_no_more_will_join(say):
    ring = RingBuffer(SENSORS, 1000, drop_oldest=True)
    _, reader, taken = waiting_reader(ring, least=100)
    ring.put(numbered(0, 30))
    assert not taken
    say(ring)
    reader.join(TIMEOUT)
    (block,) = taken
    assert (block.start, block.stop) == (0, 30)
