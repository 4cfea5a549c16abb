"""Bounded memory between the thread that hears and the one that decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from time import monotonic

import numpy as np

from pipeline.core.events import Block, Gap, Mask, Samples, Tick

OVERLOAD = "overload: it came faster than it could be decided about"
_DROPPED_SHARE = 4
"""One so-manieth of the buffer goes at once: a few long gaps leave more whole segments than many short ones."""


class RingClosed(Exception):
    """Nobody will read any more."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The source has nothing more to give; `error` tells if that is a misfortune."""

    error: Exception | None = None


@dataclass(slots=True)
class _Run:
    """Consecutive samples with one mask; `place` counts the samples written since the buffer was last empty."""

    start: int
    stop: int
    place: int
    delivered: Mask

    def __len__(self) -> int:
        return self.stop - self.start


class RingBuffer:
    """All sensors side by side, always aligned.

    When it is full, the oldest samples of all sensors go, counted and told as a gap; or the writer waits, if it can. A
    `Tick` is not kept: it says that the writer lives, and the reader sees for itself that time passes.
    """

    def __init__(
        self, n_sensors: int, capacity: int, *, drop_oldest: bool, steady: Callable[[], float] = monotonic
    ) -> None:
        self.capacity, self._drop_oldest, self._steady = capacity, drop_oldest, steady
        self._samples = np.zeros((n_sensors, capacity), np.float32)
        self._items: deque[object] = deque()
        self._written = self._fill = 0
        self._changed = Condition()
        self._closed = False
        self._awaited: int | None = None
        """At least so many samples the reader waits for just now."""
        self.lost = 0
        """Samples of every sensor."""
        self.arrived = self.first_length = 0
        self.arrived_at = self.alive_at = self.first_at = steady()
        """When the last sound came, the last word, and the first sound."""

    @property
    def fill(self) -> int:
        return self._fill

    def put(self, fact: object) -> None:
        """Called by the writer; waits for space unless the oldest may go."""
        with self._changed:
            self.alive_at = self._steady()
            if isinstance(fact, Block):
                self._note_arrival(fact.stop - fact.start)
                self._put_sound(fact)
            elif not isinstance(fact, Tick):
                self._items.append(fact)
            self._require_open()
            self._wake_reader()

    def _wake_reader(self) -> None:
        """Once there is what it waits for, not for every chunk of that."""
        if self._awaited is not None and self._is_ready(self._awaited):
            self._changed.notify_all()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more will be written."""
        with self._changed:
            self._items.append(Ended(error))
            self._changed.notify_all()

    def _note_arrival(self, length: int) -> None:
        if not self.arrived:
            self.first_at, self.first_length = self.alive_at, length
        self.arrived += length
        self.arrived_at = self.alive_at

    def close(self) -> int:
        """Nothing more will be read, of which a writer is told that wakes up later; how many samples were left."""
        with self._changed:
            self._closed = True
            left = sum(item.stop - item.start for item in self._items if isinstance(item, _Run | Gap))
            self._items.clear()
            self._samples, self._fill = np.zeros((len(self._samples), 0), np.float32), 0
            self._changed.notify_all()
            return left

    def take(self, *, seconds: float, most: int, least: int = 1) -> object | None:
        """The next fact, with at least and at most so many samples; what there is if nothing new comes for so long.

        None if that is nothing.
        """
        with self._changed:
            self._await(least, seconds)
            if not self._items:
                return None
            first = self._items[0]
            if not isinstance(first, _Run):
                return self._items.popleft()
            length = min(len(first), most)
            taken = Block(first.start, self._copy(first.place, length), first.delivered)
            self._forget(length)
            self._changed.notify_all()
            return taken

    def _await(self, least: int, seconds: float) -> None:
        until, self._awaited = monotonic() + seconds, least
        while not self._changed.wait_for(lambda: self._is_ready(least), until - monotonic()):
            until = self.arrived_at + seconds
            if not self._items or until <= monotonic():
                break
        self._awaited = None

    def _is_ready(self, least: int) -> bool:
        """Whether there is something to take that will not grow, or is large enough."""
        if not self._items:
            return False
        first = self._items[0]
        return not isinstance(first, _Run) or len(self._items) > 1 or len(first) >= least

    def _put_sound(self, block: Block) -> None:
        step = max(1, self.capacity // _DROPPED_SHARE)
        for start in range(block.start, block.stop, step):
            stop = min(start + step, block.stop)
            self._make_room(stop - start)
            if not self._fill:
                self._written = 0  # memory that is not needed is never touched
            self._write(block.samples[:, start - block.start : stop - block.start])
            self._extend(start, stop, block.delivered)

    def _make_room(self, length: int) -> None:
        if self._drop_oldest:
            if self._fill + length > self.capacity:
                self._drop(max(length, self.capacity // _DROPPED_SHARE))
        elif self._fill + length > self.capacity:
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or self._fill + length <= self.capacity)
        self._require_open()

    def _write(self, samples: Samples) -> None:
        at = self._written % self.capacity
        before_end = min(self.capacity - at, samples.shape[1])
        self._samples[:, at : at + before_end] = samples[:, :before_end]
        self._samples[:, : samples.shape[1] - before_end] = samples[:, before_end:]

    def _extend(self, start: int, stop: int, delivered: Mask) -> None:
        last = self._items[-1] if self._items else None
        if isinstance(last, _Run) and last.stop == start and (last.delivered == delivered).all():
            last.stop = stop
        else:
            self._items.append(_Run(start, stop, self._written, delivered.copy()))
        self._written += stop - start
        self._fill += stop - start

    def _copy(self, place: int, length: int) -> Samples:
        at = place % self.capacity
        if at + length <= self.capacity:
            return self._samples[:, at : at + length].copy()
        return np.concatenate([self._samples[:, at:], self._samples[:, : at + length - self.capacity]], axis=1)

    def _forget(self, length: int) -> None:
        """The first samples of the first run."""
        run = self._items[0]
        assert isinstance(run, _Run)
        run.start, run.place = run.start + length, run.place + length
        self._fill -= length
        if not len(run):
            self._items.popleft()

    def _drop(self, length: int) -> None:
        """The oldest samples, and a gap in their place; other facts keep theirs."""
        kept: list[object] = []
        while length > 0 and self._items:
            first = self._items[0]
            if not isinstance(first, _Run):
                kept.append(self._items.popleft())
                continue
            dropped = min(len(first), length)
            _add_gap(kept, first.start, first.start + dropped)
            self._forget(dropped)
            length -= dropped
            self.lost += dropped
        self._items.extendleft(reversed(kept))

    def _require_open(self) -> None:
        if self._closed:
            raise RingClosed


def _add_gap(facts: list[object], start: int, stop: int) -> None:
    """A gap, or a longer one if the last fact is the same gap until now."""
    last = facts[-1] if facts else None
    if isinstance(last, Gap) and last.reason == OVERLOAD and last.stop == start:
        start = last.start
        facts.pop()
    facts.append(Gap(start, stop, OVERLOAD))
