"""What every second of sound is like."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from pipeline.core.checkpoint import Taken
from pipeline.core.events import Block, Gap, Mask, RecordingStarted, Samples, Tick
from pipeline.health.cross_sensor import WINDOW_SECONDS, relations
from pipeline.health.measures import Measures, measure, nothing_measured

_DETAILED_GAP_SECONDS = 30  # the rest of a longer gap is measured at once, whether it lasts a minute or a week


class Measure:
    """Measures of every second, put behind the last sample of that second.

    Blocks are cut at whole seconds, so that whatever follows sees sound and measures in the same order, however the
    source cut it. What no sensor delivered is measured, too: a gap is missing sound, not missing time, and so are the
    seconds in which the source waits. Only where nothing was recorded nothing is measured.
    """

    accepts = (RecordingStarted, Block, Gap, Tick)
    remembers = ("_second", "_waited_seconds", "_quiet_since")

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._second: _Second | None = None
        self._waited_seconds, self._quiet_since = 0.0, 0

    def push(self, item: RecordingStarted | Block | Gap | Tick, /) -> list[object]:
        if isinstance(item, RecordingStarted):
            self._second = _Second(len(item.sensors), self._rate_hz, start=0)
            return [item]
        if isinstance(item, Tick):
            return [item, *self._waiting(item)]
        self._waited_seconds = 0.0
        if isinstance(item, Gap):
            return [item, *self._silence(item)]
        return list(self._sound(item))

    def flush(self) -> list[object]:
        self._second, self._waited_seconds, self._quiet_since = None, 0.0, 0
        return []

    def prepare(self, state: Taken) -> None:
        if state["_second"] is not None:
            self._second = _Second(state["_second"]["n_sensors"], self._rate_hz, start=0)

    def _sound(self, block: Block) -> Iterator[Block | Measures]:
        second = self._second
        if second is None or block.start > second.position:
            second = self._second = _Second(len(block.samples), self._rate_hz, start=block.start)
        self._quiet_since = block.stop
        for start, stop in self._pieces(block.start, block.stop):
            samples = block.samples[:, start - block.start : stop - block.start]
            yield Block(start, samples, block.delivered)
            yield from second.take(samples, block.delivered)

    def _silence(self, gap: Gap) -> Iterator[Measures]:
        second = self._second
        if second is None:
            return
        if not gap.recorded:
            self._second = _Second(second.n_sensors, self._rate_hz, start=gap.stop)
            return
        detailed = min(gap.stop, self._quiet_since + _DETAILED_GAP_SECONDS * self._rate_hz)
        for start, stop in self._pieces(gap.start, detailed):
            yield from second.take_nothing(stop - start)
        last = gap.stop // self._rate_hz * self._rate_hz
        next_second = ceil(second.position / self._rate_hz) * self._rate_hz
        yield from second.take_nothing(min(next_second, gap.stop) - second.position)
        if last > second.position:
            yield nothing_measured(second.position, last, second.n_sensors)
            self._second = second = _Second(second.n_sensors, self._rate_hz, start=last)
        yield from second.take_nothing(gap.stop - second.position)

    def _waiting(self, tick: Tick) -> Iterator[Measures]:
        """A measure for every second of waiting, which the source tells from the beginning of the wait on."""
        if self._second is None:
            return
        n_sensors = self._second.n_sensors
        while (left := tick.waited_seconds - self._waited_seconds) >= 1:
            passed = 1.0 if left <= _DETAILED_GAP_SECONDS else float(int(left - _DETAILED_GAP_SECONDS))
            self._waited_seconds += passed
            yield nothing_measured(tick.sample, tick.sample, n_sensors, waited_seconds=passed)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Cut at whole seconds."""
        while start < stop:
            end = min((start // self._rate_hz + 1) * self._rate_hz, stop)
            yield start, end
            start = end


class _Second:
    """The second being filled, and what was heard just before it."""

    remembers = ("n_sensors", "position", "_begins_whole", "_heard")

    def __init__(self, n_sensors: int, rate_hz: int, *, start: int) -> None:
        self._rate_hz, self.n_sensors = rate_hz, n_sensors
        self._before = max(round(WINDOW_SECONDS * rate_hz) - rate_hz, 0)
        self._samples = np.zeros((n_sensors, self._before + rate_hz), np.float32)
        self._delivered = np.zeros(self._samples.shape, np.bool_)
        self._begins_whole = start % rate_hz == 0
        self.position = start

    def take(self, samples: Samples, delivered: Mask) -> Iterator[Measures]:
        """Samples of the sensors that delivered, not beyond this second; its measures when it is full."""
        first = self._before + self.position % self._rate_hz
        place, there = slice(first, first + samples.shape[1]), np.isfinite(samples)
        if not (delivered.all() and there.all()):
            there &= delivered[:, None]
            samples = np.where(there, samples, np.float32(0))
        self._samples[:, place], self._delivered[:, place] = samples, there
        self.position += samples.shape[1]
        if samples.shape[1] and self.position % self._rate_hz == 0:
            if self._begins_whole:
                yield self._measures()
            self._begins_whole = True
            self._keep_the_end()

    def take_nothing(self, length: int) -> Iterator[Measures]:
        yield from self.take(np.zeros((self.n_sensors, length), np.float32), np.zeros(self.n_sensors, np.bool_))

    def _measures(self) -> Measures:
        now = slice(self._before, None)
        delivered = self._delivered[:, now]
        start = self.position - self._rate_hz
        if not delivered.any():
            return nothing_measured(start, self.position, self.n_sensors)
        heard = relations(self._samples, np.asarray(self._delivered.all(axis=1)), self._rate_hz)
        return measure(self._samples[:, now], delivered, self._rate_hz, start=start, relations=heard)

    @property
    def _heard(self) -> tuple[Samples, Mask]:
        """What is filled; behind it lies what is over."""
        filled = self._before + self.position % self._rate_hz
        return self._samples[:, :filled], self._delivered[:, :filled]

    @_heard.setter
    def _heard(self, heard: tuple[Samples, Mask]) -> None:
        for row, part in zip((self._samples, self._delivered), heard, strict=True):
            row[:, : part.shape[1]] = part

    def _keep_the_end(self) -> None:
        for row in (self._samples, self._delivered):
            row[:, : self._before] = row[:, self._rate_hz :]
