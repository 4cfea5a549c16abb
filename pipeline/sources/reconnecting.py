"""A source that never gives up: heard in a thread of its own, watched from outside, opened again when it is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Self

from pipeline.core.errors import GemmedError, SettingsError, SourceError
from pipeline.core.events import Block, Gap, Notice, NoticeKind, Paced, RecordingStarted, SourceTrouble, Tick
from pipeline.core.protocols import Source
from pipeline.sources.ring_buffer import Ended, RingBuffer, RingClosed

_MOST_SECONDS = 0.25
"""Of sound in a block: what waits is taken in larger pieces, but not so large that others wait for it."""
_DETAILED_TICKS, _SLOW_TICKS = 60.0, 10.0
"""Of a source that is away for long, every second is no longer news."""
_LOOK_UP_SECONDS = 0.25
"""So often it is looked whether somebody wants to stop."""
_CLOCK_STEP_SECONDS = 1.0
_SAME_CLOCK_SECONDS = 5.0
_MOST_HANGING = 8
"""Threads of drivers that never return; with more of them the machine would run out before the driver recovers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a source counts as stuck, how often it is tried again, and over what time its pace is measured."""

    tick_seconds: float = 1.0
    stuck_seconds: float = 30.0
    retry_first_seconds: float = 1.0
    retry_most_seconds: float = 60.0
    pace_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A source that can be opened, perhaps again and again."""

    name: str
    open: Callable[[], Source]
    again: bool = True
    """Whether it is opened again when it ends or is lost; standard input cannot be."""
    idle_is_stuck: bool = True
    """Whether to open it again if it lives but delivers nothing for long; who waits for a caller does."""


class SourceConnection:
    """One attempt at a source. A thread that hangs in it is left behind: nothing it says later is heard."""

    def __init__(self, door: Door, ring: RingBuffer) -> None:
        self.ring = ring
        self._door = door
        self._thread = Thread(target=self._hear, name=f"hearing {door.name}", daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        try:
            with self._door.open() as source:
                for fact in source:
                    self.ring.put(fact)
            self.ring.end()
        except RingClosed:
            pass
        except Exception as error:
            self.ring.end(error)

    @property
    def hangs(self) -> bool:
        return self._thread.is_alive()

    def leave(self) -> None:
        self.ring.close()
        # It ends at its next word, if it ever has one; there is nothing to wait for.
        self._thread.join(0.2)


@dataclass(slots=True)
class _Clock:
    """The clock on the wall beside one that never jumps."""

    wall: Callable[[], float]
    steady: Callable[[], float]
    offset: float = 0.0

    def __post_init__(self) -> None:
        self.offset = self.wall() - self.steady()

    def step(self) -> float:
        """By how much the wall clock was set since the last question; 0 if it only ran a little fast or slow."""
        offset = self.wall() - self.steady()
        step, self.offset = offset - self.offset, offset
        return step if abs(step) > _CLOCK_STEP_SECONDS else 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.wall(), UTC)


class LiveSource:
    """One stream of recordings from a source that may stall, vanish and come back.

    A recording ends after `recording_seconds`, or when the clock is set, and the next begins with the next sample.
    Blocks end at multiples of `beat` samples of the recording as long as sound flows: where decisions are due, not at
    every trickle between. While nothing arrives, ticks come from this side: also when the thread that hears hangs. What
    was missed meanwhile is a gap, as long as the clock says. `stop` ends it from another thread or a signal handler.
    """

    place = None
    """From where on somebody else could go on: nowhere, for sound that nobody hears is gone."""

    def __init__(
        self,
        door: Door,
        *,
        rate_hz: int,
        n_sensors: int,
        buffer_seconds: float = 30.0,
        drop_oldest: bool = True,
        recording_seconds: float = 6 * 3600.0,
        beat: int = 1,
        name: Callable[[int], str] = "recording-{}".format,
        retry_policy: RetryPolicy | None = None,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._door, self._rate_hz, self._n_sensors = door, rate_hz, n_sensors
        self._capacity, self._drop_oldest = max(1, round(buffer_seconds * rate_hz)), drop_oldest
        self._length, self._name, self._beat = round(recording_seconds * rate_hz), name, beat
        self._retry_policy = retry_policy or RetryPolicy()
        self._steady, self._clock = steady, _Clock(wall, steady)
        self._stopped = False
        self._connection: SourceConnection | None = None
        self._left: list[SourceConnection] = []
        self._sensors: tuple[str, ...] = tuple(str(sensor + 1) for sensor in range(n_sensors))
        self._number = 0
        self._started_at = self._clock.now()
        self._position = 0
        self._lost_before = 0
        self.openings = 0
        """How often the source was opened, or should have been."""
        self._turn = False
        self._facts = self._play()

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[object]:
        return self._facts

    def __exit__(self, *exc: object) -> None:
        self._facts.close()
        if self._connection is not None:
            self._connection.leave()

    def stop(self) -> None:
        self._stopped = True  # nothing that locks: a signal may have come in the middle of a lock

    def turn_page(self) -> None:
        """Begin a new recording with the next sample."""
        self._turn = True

    @property
    def position(self) -> int:
        """The next sample of the recording."""
        return self._position

    @property
    def lost(self) -> int:
        """Samples of every sensor that were dropped for want of time."""
        return self._lost_before + (self._connection.ring.lost if self._connection else 0)

    @property
    def backlog_seconds(self) -> float:
        return self._connection.ring.fill / self._rate_hz if self._connection else 0.0

    def _play(self) -> Generator[object, None, None]:
        yield self._begin(self._clock.now())
        wait = self._retry_policy.retry_first_seconds
        silent_since = self._steady()
        while not self._stopped:
            self._left = [connection for connection in self._left if connection.hangs]
            heard = (yield from self._hear(silent_since)) if len(self._left) < _MOST_HANGING else None
            if heard is not None:
                silent_since, wait = heard, self._retry_policy.retry_first_seconds
            if not self._door.again:
                return
            yield from self._pause(wait, silent_since)
            wait = min(2 * wait, self._retry_policy.retry_most_seconds)

    def _hear(self, silent_since: float) -> Generator[object, None, float | None]:
        """All of one connection; when it delivered its last sample, None if it never did."""
        ring = RingBuffer(self._n_sensors, self._capacity, drop_oldest=self._drop_oldest, steady=self._steady)
        self._connection = connection = SourceConnection(self._door, ring)
        self.openings += 1
        hearing = _Hearing(self, ring, silent_since)
        try:
            yield from hearing.facts()
            yield from self._missing(ring.close(), "not decided about before the stop", recorded=False)
        finally:
            connection.leave()
            self._left.append(connection)
            self._lost_before += ring.lost
            self._connection = None
        return ring.arrived_at if hearing.heard else None

    def _pause(self, seconds: float, silent_since: float) -> Iterator[object]:
        """Before the next attempt; time passes meanwhile."""
        ticked_at = self._steady()
        until = ticked_at + seconds
        while not self._stopped and (left := until - self._steady()) > 0:
            time.sleep(min(left, self._retry_policy.tick_seconds, _LOOK_UP_SECONDS))
            if self._steady() - ticked_at >= self._tick_every(self._steady() - silent_since):
                ticked_at = self._steady()
                yield self._tick(ticked_at - silent_since)

    def _tick_every(self, silent_seconds: float) -> float:
        often = self._retry_policy.tick_seconds
        return often if silent_seconds <= _DETAILED_TICKS else max(often, _SLOW_TICKS)

    def _tick(self, waited_seconds: float) -> Tick:
        # As it will stand in the journal, so that a replay sees the same.
        return Tick(self._position, round(waited_seconds, 3))

    def _begin(self, at: datetime) -> RecordingStarted:
        self._number += 1
        self._started_at, self._position, self._turn = at, 0, False
        return RecordingStarted(self._name(self._number), self._rate_hz, self._sensors, at)

    def _due(self) -> Iterator[object]:
        """A new recording, if it is time for one."""
        step = self._clock.step()
        if step:
            yield Notice(NoticeKind.CLOCK_JUMPED, {"seconds": round(step, 3)}, self._position)
        if step or self._turn or self._position >= self._length:
            yield self._begin(self._now_of_next_sample(trust_wall=bool(step)))

    def _now_of_next_sample(self, *, trust_wall: bool) -> datetime:
        """By the wall clock, unless sound comes at another pace than time passes."""
        by_samples = self._started_at + timedelta(seconds=self._position / self._rate_hz)
        by_clock = self._clock.now() - timedelta(seconds=self.backlog_seconds)
        live = abs((by_clock - by_samples).total_seconds()) < _SAME_CLOCK_SECONDS
        return by_clock if live or trust_wall else by_samples

    def _sound(self, block: Block) -> Iterator[object]:
        """A block of the source by the numbers of the recording, cut where a recording ends."""
        start = block.start
        while start < block.stop:
            yield from self._due()
            stop = min(block.stop, start + self._length - self._position)
            samples = block.samples[:, start - block.start : stop - block.start]
            yield Block(self._advance(stop - start), samples, block.delivered)
            start = stop

    def _advance(self, samples: int) -> int:
        """Whoever sees a fact knows the position behind it; the one before it."""
        before, self._position = self._position, self._position + samples
        return before

    def _missing(self, samples: int, reason: str, *, recorded: bool) -> Iterator[object]:
        if samples > 0:
            yield from self._due()
            yield Gap(self._advance(samples), self._position, reason, recorded)


class _Hearing:
    """What comes through one connection, in the numbers of the recording."""

    def __init__(self, live: LiveSource, ring: RingBuffer, silent_since: float) -> None:
        self._live, self._ring, self._silent_since = live, ring, silent_since
        self._retry_policy, self._steady = live._retry_policy, live._steady
        self.heard = False
        self._paced_at, self._paced = self._steady(), 0

    def facts(self) -> Iterator[object]:
        most = max(1, round(_MOST_SECONDS * self._live._rate_hz))
        ticked_at = self._steady()
        while not self._live._stopped:
            until_beat = self._live._beat - self._live.position % self._live._beat
            item = self._ring.take(
                seconds=min(self._retry_policy.tick_seconds, _LOOK_UP_SECONDS),
                least=until_beat,
                most=until_beat + most // self._live._beat * self._live._beat,
            )
            now = self._steady()
            if item is None:
                if now - ticked_at >= self._live._tick_every(now - self._quiet_since):
                    ticked_at = now
                    yield self._live._tick(now - self._quiet_since)
                if self._is_stuck(now):
                    yield self._trouble(f"delivers nothing for {now - self._quiet_since:.0f} s; it is opened again")
                    return
                continue
            ticked_at = now
            if isinstance(item, RecordingStarted):
                item = self._checked(item)
            if isinstance(item, Ended):
                yield from self._ended(item)
                return
            yield from self._heard(item)
            yield from self._pace(now)

    @property
    def _quiet_since(self) -> float:
        return self._ring.arrived_at if self.heard else self._silent_since

    def _is_stuck(self, now: float) -> bool:
        if not self._live._door.again:
            return False
        since = self._ring.arrived_at if self._live._door.idle_is_stuck else self._ring.alive_at
        return now - since > self._retry_policy.stuck_seconds

    def _ended(self, ended: Ended) -> Iterator[object]:
        curable = isinstance(ended.error, GemmedError | OSError) and not isinstance(ended.error, SettingsError)
        if curable and self._live._door.again:
            yield self._trouble(str(ended.error))
        elif ended.error is not None:
            raise ended.error
        elif self._live._door.again:
            yield self._trouble("ended; it is opened again")

    def _heard(self, item: object) -> Iterator[object]:
        if isinstance(item, Block | Gap):
            yield from self._after_silence()
        if isinstance(item, Block):
            yield from self._live._sound(item)
        elif isinstance(item, Gap):
            yield from self._live._missing(item.stop - item.start, item.reason, recorded=item.recorded)
        elif not isinstance(item, RecordingStarted):
            yield item

    def _checked(self, started: RecordingStarted) -> RecordingStarted | Ended:
        live = self._live
        if (started.rate_hz, len(started.sensors)) == (live._rate_hz, live._n_sensors):
            return started
        return Ended(
            SourceError(
                f"{live._door.name} delivers {len(started.sensors)} sensors at {started.rate_hz} Hz, the settings say "
                f"{live._n_sensors} at {live._rate_hz} Hz; change array.sensors and array.rate, or the source"
            )
        )

    def _after_silence(self) -> Iterator[object]:
        """What was missed before the first sound of a connection; that may be lost by now, for want of time."""
        if self.heard or not self._ring.arrived:
            return
        self.heard, live = True, self._live
        yield Notice(NoticeKind.SOURCE_OPENED, {"source": live._door.name}, live.position)
        silence = self._ring.first_at - self._silent_since
        if live.position > 0:
            missed = round(silence * live._rate_hz) - self._ring.first_length
            # Where ticks have told of the silence already, it is not measured a second time.
            told = silence > self._retry_policy.tick_seconds
            yield from live._missing(missed, f"{live._door.name} was away", recorded=not told)
        elif silence > _SAME_CLOCK_SECONDS:
            yield live._begin(live._clock.now())  # time is counted from the first sample on
        self._paced_at, self._paced = self._ring.arrived_at, self._ring.arrived

    def _pace(self, now: float) -> Iterator[Paced]:
        """Only of a source with a clock of its own; one that waits for us has none."""
        if not (self.heard and self._live._drop_oldest) or now - self._paced_at < self._retry_policy.pace_seconds:
            return
        arrived_at, arrived = self._ring.arrived_at, self._ring.arrived
        if arrived_at > self._paced_at:
            seconds = round(arrived_at - self._paced_at, 3)
            yield Paced(self._live.position, seconds, arrived - self._paced)
        self._paced_at, self._paced = arrived_at, arrived

    def _trouble(self, message: str) -> SourceTrouble:
        return SourceTrouble(self._live._door.name, message)
