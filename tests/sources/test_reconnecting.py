"""A source that never gives up, fed by scripted sources in real threads; samples carry their own number."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from threading import Event, current_thread, main_thread

import numpy as np
import pytest

from pipeline.core.errors import SourceError
from pipeline.core.events import (
    Block,
    FaultOpened,
    Gap,
    Notice,
    NoticeKind,
    Paced,
    RecordingStarted,
    SourceTrouble,
    Tick,
)
from pipeline.core.sensor_state import Cause
from pipeline.sources.reconnecting import Door, LiveSource, RetryPolicy
from pipeline.sources.ring_buffer import OVERLOAD
from pipeline.stages import SampleRate
from tests.conftest import TIMEOUT
from tests.stages.laws import fed

RATE, SENSORS = 1000, 2
STARTED = RecordingStarted("theirs", RATE, ("1", "2"))
HASTY = RetryPolicy(tick_seconds=0.02, stuck_seconds=0.2, retry_first_seconds=0.01, retry_most_seconds=0.04)
NEVER = RetryPolicy(tick_seconds=0.02, stuck_seconds=1e6, retry_first_seconds=0.01, retry_most_seconds=0.04)


def numbered(start: int, length: int) -> Block:
    index = np.arange(start, start + length, dtype=np.float32)
    return Block(start, np.stack([index, -index]), np.ones(SENSORS, np.bool_))


def blocks(total: int, size: int) -> list[Block]:
    return [numbered(start, min(size, total - start)) for start in range(0, total, size)]


class Scripted:
    """A source that tells facts and calls what can be called, which may wait or fail."""

    def __init__(self, script: Iterable[object]) -> None:
        self._script = script

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __iter__(self) -> Iterator[object]:
        for step in self._script:
            if callable(step):
                step()
            else:
                yield step


def door(*scripts: Iterable[object] | Exception, again: bool = True, **how) -> Door:
    """One script for each time it is opened; an error instead of a script is raised by the opening."""
    left = iter(scripts)

    def open_source() -> Scripted:
        script = next(left, SourceError("the array is gone; plug it in"))
        if isinstance(script, Exception):
            raise script
        return Scripted(script)

    return Door(name="the array", open=open_source, again=again, **how)


def live(way: Door, *, retry_policy: RetryPolicy = HASTY, **options) -> LiveSource:
    return LiveSource(way, rate_hz=RATE, n_sensors=SENSORS, retry_policy=retry_policy, **options)


def hear(source: LiveSource, until: Callable[[object], bool] = lambda fact: False) -> list[object]:
    """Facts up to one that is waited for, or to the end; blocks and gaps tile every recording."""
    facts, position, deadline = [], source.position, time.monotonic() + TIMEOUT
    for fact in source:
        assert time.monotonic() < deadline, facts[-20:]
        facts.append(fact)
        if isinstance(fact, RecordingStarted):
            position = 0
        elif isinstance(fact, Block | Gap):
            assert fact.start == position < fact.stop
            position = fact.stop
            assert source.position == position
        if until(fact):
            break
    return facts


def of(kind: type, facts: list[object]) -> list:
    return [fact for fact in facts if isinstance(fact, kind)]


def samples(facts: list[object]) -> np.ndarray:
    return np.concatenate([block.samples for block in of(Block, facts)], axis=1)


@pytest.mark.parametrize("size", [1, 7, 100, 333, 1000])
def test_recordings_turn_at_the_sample_however_the_sound_is_cut(size):
    """Each has exactly its length, the last one the rest, and the sound goes on without a hole."""
    with live(door([STARTED, *blocks(1000, size)], again=False), recording_seconds=0.3, drop_oldest=False) as source:
        facts = hear(source)
    lengths = {}
    for fact in facts:
        if isinstance(fact, RecordingStarted):
            name = fact.recording
        elif isinstance(fact, Block):
            lengths[name] = fact.stop
    assert list(lengths.values()) == [300, 300, 300, 100]
    assert list(lengths) == ["recording-1", "recording-2", "recording-3", "recording-4"]
    assert (samples(facts) == numbered(0, 1000).samples).all()


def test_recordings_that_follow_each_other_do_so_in_time():
    """By the samples, where sound comes faster than time passes."""
    with live(door([STARTED, *blocks(60_000, 1000)], again=False), recording_seconds=20, drop_oldest=False) as source:
        started = [fact.started_at for fact in hear(source) if isinstance(fact, RecordingStarted)]
    assert [(later - earlier).total_seconds() for earlier, later in pairwise(started)] == [20, 20]


def test_a_page_is_turned_with_the_next_sample():
    go_on = Event()
    script = [STARTED, numbered(0, 100), lambda: go_on.wait(TIMEOUT), numbered(100, 50)]
    with live(door(script, again=False), retry_policy=NEVER) as source:
        hear(source, lambda fact: isinstance(fact, Block))
        source.turn_page()
        go_on.set()
        facts = [fact for fact in hear(source) if not isinstance(fact, Tick)]
    assert facts[0].recording == "recording-2"
    assert (facts[1].start, facts[1].stop) == (0, 50)
    assert (facts[1].samples == numbered(100, 50).samples).all()


def test_who_vanishes_is_opened_again_and_what_was_missed_is_a_gap():
    """As long as the clock says: not shorter than the pauses, not longer than the test."""
    gone = SourceError("the array is not there; plug it in")
    way = door([STARTED, numbered(0, 100)], gone, gone, gone, [STARTED, numbered(0, 70)])
    began = time.monotonic()
    with live(way) as source:
        facts = hear(source, lambda fact: isinstance(fact, Block) and fact.stop - fact.start == 70)
        seconds = time.monotonic() - began
    assert [trouble.message for trouble in of(SourceTrouble, facts)] == ["ended; it is opened again", *[str(gone)] * 3]
    (gap,) = of(Gap, facts)
    assert gap.reason == "the array was away"
    assert (0.01 + 0.02 + 0.04 + 0.04) * RATE - 70 <= gap.stop - gap.start <= seconds * RATE
    opened = [fact for fact in of(Notice, facts) if fact.kind is NoticeKind.SOURCE_OPENED]
    assert [fact.sample for fact in opened] == [0, 100]
    assert source.openings == 5
    assert len(of(RecordingStarted, facts)) == 1


def test_pauses_between_attempts_double_up_to_a_limit_and_begin_anew_after_sound():
    """At least as long as they should be, by the times at which it was opened."""
    gone, times = SourceError("not there; plug it in"), []
    way = door(gone, gone, gone, gone, [STARTED, numbered(0, 10)], gone, [STARTED, numbered(0, 10)])

    def open_source() -> Scripted:
        times.append(time.monotonic())
        return way.open()

    with live(Door(name="the array", open=open_source)) as source:
        hear(source, lambda fact: isinstance(fact, Block))
        hear(source, lambda fact: isinstance(fact, Block))
    for least, (earlier, later) in zip([0.01, 0.02, 0.04, 0.04, 0.01, 0.02], pairwise(times), strict=True):
        assert later - earlier >= least


def test_ticks_come_from_outside_a_thread_that_hangs():
    """It is told that nothing comes; then it is opened again, and what the old thread says later nobody hears."""
    hang, more, hanging = Event(), Event(), []

    def late() -> None:
        hanging.append(current_thread())
        hang.wait(TIMEOUT)

    first = [STARTED, numbered(0, 100), late, numbered(100, 999)]
    way = door(first, [STARTED, numbered(100, 50), lambda: more.wait(TIMEOUT), numbered(150, 60)])
    with live(way, retry_policy=replace(HASTY, stuck_seconds=2.0)) as source:
        facts = hear(source, lambda fact: isinstance(fact, Block))
        facts += (silence := hear(source, lambda fact: isinstance(fact, SourceTrouble)))
        ticks = of(Tick, silence)
        assert ticks
        assert {tick.sample for tick in ticks} == {100}
        assert [tick.waited_seconds for tick in ticks] == sorted(tick.waited_seconds for tick in ticks)
        assert facts[-1].message.endswith("it is opened again")
        facts += hear(source, lambda fact: isinstance(fact, Block))
        hang.set()
        hanging[0].join(TIMEOUT)
        assert not hanging[0].is_alive()
        more.set()
        facts += hear(source, lambda fact: isinstance(fact, Block))
    assert (samples(facts) == numbered(0, 210).samples).all()


def test_a_driver_that_hangs_for_ever_does_not_fill_the_machine_with_threads():
    """After some attempts it is waited for; as soon as one of them returns, it is tried again."""
    hang, opened = Event(), []

    def open_source() -> Scripted:
        opened.append(None)
        if not hang.is_set():
            hang.wait(TIMEOUT)
            raise SourceError("was gone; plug it in")
        return Scripted([STARTED, numbered(0, 10)])

    retry_policy = RetryPolicy(tick_seconds=0.01, stuck_seconds=0.01, retry_first_seconds=0.01, retry_most_seconds=0.01)
    with live(Door(name="the array", open=open_source), retry_policy=retry_policy) as source:
        hear(source, lambda fact: isinstance(fact, Tick) and len(opened) == 8)
        for _ in range(20):
            hear(source, lambda fact: isinstance(fact, Tick))
        assert len(opened) == 8
        hang.set()
        hear(source, lambda fact: isinstance(fact, Block))


@pytest.mark.parametrize("idle_is_stuck", [True, False])
def test_who_waits_for_a_caller_is_not_stuck(idle_is_stuck):
    """It lives and says so, every 0.15 s by a clock that the test sets; others that deliver nothing for 0.2 s are."""
    now, looked, over = [100.0], Event(), Event()

    def steady() -> float:
        if current_thread() is main_thread():
            looked.set()
        return now[0]

    def wait() -> None:
        """Until the other side has looked at the clock, and thought about it."""
        now[0] += 0.15
        for _ in range(3):
            looked.clear()
            assert looked.wait(TIMEOUT) or over.is_set()

    way = door([wait, Tick(0, 1.0)] * 10 + [STARTED, numbered(0, 10)], idle_is_stuck=idle_is_stuck)
    with live(way, steady=steady, wall=steady) as source:
        facts = hear(source, lambda fact: isinstance(fact, SourceTrouble | Block))
    over.set()
    looked.set()
    assert isinstance(facts[-1], SourceTrouble) is idle_is_stuck


def test_the_clock_is_set_and_a_new_recording_begins_with_the_new_time():
    """An hour forwards, then backwards; the jump is told, time goes on by the clock on the wall."""
    wall, steps = [1_000_000.0], [Event(), Event()]

    def until_set(number: int) -> Callable[[], object]:
        return lambda: steps[number].wait(TIMEOUT)

    script = [STARTED, numbered(0, 100), until_set(0), numbered(100, 100), until_set(1), numbered(200, 100)]
    way = door(script, again=False)
    with live(way, retry_policy=NEVER, wall=lambda: wall[0], steady=lambda: 5.0) as source:
        facts = hear(source, lambda fact: isinstance(fact, Block))
        for step, event in zip((3600.0, -7200.0), steps, strict=True):
            wall[0] += step
            event.set()
            facts += hear(source, lambda fact: isinstance(fact, Block))
    jumps = [fact for fact in of(Notice, facts) if fact.kind is NoticeKind.CLOCK_JUMPED]
    assert [(jump.sample, jump.details["seconds"]) for jump in jumps] == [(100, 3600.0), (100, -7200.0)]
    started = [fact.started_at for fact in of(RecordingStarted, facts)]
    assert started == [datetime.fromtimestamp(at, UTC) for at in (1_000_000, 1_003_600, 996_400)]
    assert [(block.start, block.stop) for block in of(Block, facts)] == [(0, 100)] * 3


def test_a_clock_that_runs_a_little_fast_is_no_jump():
    now = [0.0]
    script = [step for block in blocks(500, 100) for step in (block, lambda: now.__setitem__(0, now[0] + 0.5))]
    way = door([STARTED, *script], again=False)
    with live(way, retry_policy=NEVER, wall=lambda: 1.001 * now[0], steady=lambda: now[0]) as source:
        facts = hear(source)
    assert len(of(RecordingStarted, facts)) == 1


@pytest.mark.parametrize(
    "theirs", [RecordingStarted("r", RATE, ("1", "2", "3")), RecordingStarted("r", 999, ("1", "2"))]
)
def test_another_array_than_the_settings_say_is_never_heard(theirs):
    """One that can be opened again is tried again; of any other it is the end. The message says what to change."""
    sound = Block(0, np.zeros((len(theirs.sensors), 10), np.float32), np.ones(len(theirs.sensors), np.bool_))
    with live(door([theirs, sound], [STARTED, numbered(0, 10)])) as source:
        facts = hear(source, lambda fact: isinstance(fact, Block))
    (trouble,) = of(SourceTrouble, facts)
    assert (
        f"delivers {len(theirs.sensors)} sensors at {theirs.rate_hz} Hz, the settings say 2 at 1000" in trouble.message
    )
    assert trouble.message.endswith("change array.sensors and array.rate, or the source")
    with live(door([theirs, sound], again=False)) as source, pytest.raises(SourceError, match="the settings say 2 at"):
        hear(source)


def test_a_mistake_of_ours_is_not_hidden():
    """Only misfortunes that a source can have lead to another attempt."""
    with live(door(ZeroDivisionError())) as source, pytest.raises(ZeroDivisionError):
        hear(source)


def test_too_much_at_once_is_lost_counted_and_told_also_before_anybody_listened():
    """Gaps of overload and blocks tile; what is lost is what was not heard; no gap is invented beside them."""
    written = Event()
    script = [STARTED, *blocks(5000, 100), written.set]
    with live(door(script, again=False), retry_policy=NEVER, buffer_seconds=1.0) as source:
        facts = hear(source, lambda fact: isinstance(fact, RecordingStarted))
        heard = iter(source)
        facts.append(next(heard))  # opens the door
        assert written.wait(TIMEOUT)
        facts += list(heard)
    gaps = of(Gap, facts)
    assert {gap.reason for gap in gaps} == {OVERLOAD}
    lost, decided = sum(gap.stop - gap.start for gap in gaps), sum(b.stop - b.start for b in of(Block, facts))
    assert source.lost == lost > 0
    assert lost + decided == 5000
    assert facts[-1].stop == 5000
    for block in of(Block, facts):
        assert (block.samples == numbered(block.start, block.stop - block.start).samples).all()


def test_what_waits_when_it_is_stopped_is_told():
    """A stop does not take long: what nobody has time for any more is a gap, nobody's fault."""
    written, more = Event(), Event()
    script = [STARTED, *blocks(600, 100), written.set, lambda: more.wait(TIMEOUT)]
    with live(door(script), retry_policy=NEVER) as source:
        facts = hear(source, lambda fact: isinstance(fact, Block))
        assert written.wait(TIMEOUT)
        source.stop()
        facts += hear(source)
        more.set()
    heard = sum(block.stop - block.start for block in of(Block, facts))
    (gap,) = of(Gap, facts)
    assert (gap.start, gap.stop, gap.recorded) == (heard, 600, False)
    assert source.lost == 0


@pytest.mark.parametrize("where", ["in a pause", "in a hanging thread", "before anything"])
def test_it_stops_wherever_it_is(where):
    hang = Event()
    scripts = {"in a pause": SourceError("not there; plug it in"), "in a hanging thread": [lambda: hang.wait(TIMEOUT)]}
    retry_policy = RetryPolicy(tick_seconds=0.01, retry_first_seconds=1e6, retry_most_seconds=1e6)
    try:
        with live(door(scripts.get(where, [])), retry_policy=retry_policy) as source:
            if where != "before anything":
                hear(source, lambda fact: isinstance(fact, Tick))
            source.stop()
            assert not of(Block, hear(source))
    finally:
        hang.set()


def test_the_pace_is_measured_by_the_clock():
    """Of a source at half its rate: as many samples as came, in the seconds that passed."""
    now = [0.0]
    retry_policy = RetryPolicy(tick_seconds=1e6, stuck_seconds=1e6, pace_seconds=1.0)
    taken = Event()

    def handed_over() -> None:
        taken.wait(TIMEOUT)
        taken.clear()

    paced_script = [STARTED]
    for block in blocks(2000, 50):
        paced_script += [block, handed_over, lambda: now.__setitem__(0, now[0] + 0.1)]
    with live(
        door(paced_script, again=False), retry_policy=retry_policy, wall=lambda: now[0], steady=lambda: now[0]
    ) as source:
        facts = []
        for fact in source:
            facts.append(fact)
            if isinstance(fact, Block):
                taken.set()
    paced = of(Paced, facts)
    assert len(paced) >= 2
    found = of(FaultOpened, fed(SampleRate(RATE), [STARTED, *paced]))
    assert [(fault.sensor, fault.cause) for fault in found] == [(0, Cause.STALLED_RATE), (1, Cause.STALLED_RATE)]
    for report in paced:
        assert report.samples / report.seconds == pytest.approx(RATE / 2, rel=0.15)


def test_who_waits_for_us_has_no_pace():
    now = [0.0]
    script = [step for block in blocks(2000, 50) for step in (block, lambda: now.__setitem__(0, now[0] + 0.1))]
    retry_policy = RetryPolicy(tick_seconds=1e6, stuck_seconds=1e6, pace_seconds=0.1)
    with live(
        door([STARTED, *script], again=False), retry_policy=retry_policy, drop_oldest=False, steady=lambda: now[0]
    ) as source:
        assert not of(Paced, hear(source))
