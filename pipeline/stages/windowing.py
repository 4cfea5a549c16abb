"""Overlapping segments, and in each of them the strongest window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.core.checkpoint import Taken
from pipeline.core.errors import SettingsError
from pipeline.core.events import Authority, Block, Mask, RecordingStarted, Samples, Segment, Span, TrustChanged
from pipeline.core.framing import Grid

_STRIDES_PER_PAGE = 16
_ROUNDING = 1e-12  # what is left of the power of a constant after its mean is removed


class Windowing:
    """Cut the sound of all sensors into segments and let the trusted sensors choose a window in each.

    Segments lie on the absolute grid. A segment that a gap interrupts is not made; after a gap the next segment
    begins at the next multiple of the stride. Sound at the end that fills no segment is dropped, and so are segments
    that no sensor delivered completely.
    """

    accepts = (RecordingStarted, Block, TrustChanged)
    remembers = ("_buffer", "_next", "_trust")

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._buffer: _Buffer | None = None
        self._next = 0
        self._trust = _Trust(grid.stride)

    def push(self, item: RecordingStarted | Block | TrustChanged, /) -> list[object]:
        if isinstance(item, RecordingStarted):
            self._check(item)
            return [item]
        if isinstance(item, TrustChanged):
            self._trust.change(item, heard=self._next - self._grid.segment)
            return [item]
        if self._buffer is None or item.start > self._next:
            self._buffer = _Buffer(self._grid, len(item.samples), after=item.start)
        if item.start < self._next or len(item.samples) != self._buffer.n_sensors:
            raise ValueError(
                f"block of {len(item.samples)} sensors from sample {item.start} on cannot follow one of "
                f"{self._buffer.n_sensors} sensors up to sample {self._next}"
            )
        self._next = item.stop
        return self._cut(item, self._buffer)

    def flush(self) -> list[object]:
        self._buffer, self._next, self._trust = None, 0, _Trust(self._grid.stride)
        return []

    def prepare(self, state: Taken) -> None:
        if state["_buffer"] is not None:
            self._buffer = _Buffer(self._grid, len(state["_buffer"]["_complete_since"]), after=0)

    def _check(self, started: RecordingStarted) -> None:
        if started.rate_hz != self._grid.rate_hz:
            raise SettingsError(
                f"recording {started.recording!r} has {started.rate_hz} samples per second, the grid is made for "
                f"{self._grid.rate_hz}; make a grid for the rate of the source"
            )

    def _cut(self, block: Block, buffer: _Buffer) -> list[object]:
        segments: list[object] = []
        position = buffer.stop - block.start  # above 0 only where sound before the first segment is skipped
        while position < block.samples.shape[1]:
            position += buffer.write(block.samples[:, position:], block.delivered)
            if buffer.full:
                segments += self._segment(buffer)
                buffer.advance()
        return segments

    def _segment(self, buffer: _Buffer) -> list[Segment]:
        trusted = self._trust.at(buffer.start, buffer.n_sensors)
        if not buffer.complete.any():
            return []
        sums, squares = buffer.moments()
        present = buffer.complete & np.isfinite(squares).all(axis=1)
        voters = present & trusted if (present & trusted).any() else present
        if not present.any():
            return []
        first = strongest_window(sums[voters], squares[voters], hop=self._grid.hop, width=self._grid.window_hops)
        start = buffer.start + first * self._grid.hop
        return [
            Segment(
                span=Span(buffer.start, buffer.start + self._grid.segment),
                window=Span(start, start + self._grid.window),
                samples=buffer.samples,
                present=present,
                trusted=trusted,
            )
        ]


class _Trust:
    """Which sensors are trusted when, by the first segment that a change concerns: one entry a segment suffices."""

    remembers = ("_changes",)

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._changes: dict[Authority, dict[int, TrustChanged]] = {authority: {} for authority in Authority}

    def change(self, change: TrustChanged, *, heard: int) -> None:
        """Take note of a change; they may come in any order, and the latest word about a sample counts.

        No segment will begin before the sample `heard`.
        """
        segment = -(-change.sample // self._stride)
        known = self._changes[change.by].get(segment)
        if known is None or known.sample <= change.sample:
            self._changes[change.by][segment] = change
        self._forget(self._changes[change.by], before=heard // self._stride)

    def at(self, start: int, n_sensors: int) -> Mask:
        """Whom everybody trusts in the segment from `start` on; what came before is forgotten."""
        trusted = np.ones(n_sensors, np.bool_)
        for changes in self._changes.values():
            now = self._forget(changes, before=start // self._stride)
            if now is not None:
                trusted &= changes[now].trusted
        return trusted

    def _forget(self, changes: dict[int, TrustChanged], *, before: int) -> int | None:
        """Keep of the changes up to a segment only the last one, which still holds there."""
        past = sorted(segment for segment in changes if segment <= before)
        for segment in past[:-1]:
            del changes[segment]
        return past[-1] if past else None


class _Buffer:
    """The segment being filled, on pages of which no place is written twice.

    A segment is a view of its page, not a copy, and stays as it is while later samples are written behind it.
    """

    remembers = ("start", "_complete_since", "_left")

    def __init__(self, grid: Grid, n_sensors: int, *, after: int) -> None:
        self._grid = grid
        self.start = -(-after // grid.stride) * grid.stride
        self._complete_since = np.full(n_sensors, self.start)  # first sample after the last one that is missing
        self._turn_page(np.empty((n_sensors, 0), np.float32), np.empty((2, n_sensors, 0)))

    def _turn_page(self, samples: Samples, moments: NDArray[np.float64]) -> None:
        """Begin a page with what is left of the one before."""
        n_hops = self._grid.segment_hops + _STRIDES_PER_PAGE * self._grid.stride_hops
        self._page = np.empty((len(samples), n_hops * self._grid.hop), np.float32)
        self._moments = np.empty((2, len(samples), n_hops))  # sum and sum of squares of every hop
        self._page[:, : samples.shape[1]] = samples
        self._moments[:, :, : moments.shape[2]] = moments
        self._at, self._filled, self._measured = 0, int(samples.shape[1]), int(moments.shape[2])

    @property
    def stop(self) -> int:
        return self.start + self._filled

    @property
    def full(self) -> bool:
        return self._filled == self._grid.segment

    @property
    def samples(self) -> Samples:
        return self._page[:, self._at : self._at + self._filled]

    @property
    def n_sensors(self) -> int:
        return len(self._page)

    @property
    def complete(self) -> Mask:
        """Sensors that delivered all of the segment."""
        return np.asarray(self._complete_since <= self.start)

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum and sum of squares of every hop of the full segment, (sensors, hops) each."""
        first = self._at // self._grid.hop
        fresh = slice(self._measured, first + self._grid.segment_hops)
        samples = self._page[:, fresh.start * self._grid.hop : fresh.stop * self._grid.hop]
        # In double precision: the power of a quiet sensor with a large offset is a small difference.
        hops = samples.astype(np.float64).reshape(self.n_sensors, -1, self._grid.hop)
        np.sum(hops, axis=2, out=self._moments[0, :, fresh])
        np.einsum("sht,sht->sh", hops, hops, out=self._moments[1, :, fresh])
        self._measured = fresh.stop
        sums, squares = self._moments[:, :, first : fresh.stop]
        return sums, squares

    def write(self, samples: Samples, delivered: Mask) -> int:
        """Take as many samples as the segment still needs; how many that were."""
        taken = min(self._grid.segment - self._filled, int(samples.shape[1]))
        place = slice(self._at + self._filled, self._at + self._filled + taken)
        self._page[:, place] = samples[:, :taken]
        self._filled += taken
        if not delivered.all():
            self._page[~delivered, place] = 0
            self._complete_since[~delivered] = self.stop
        return taken

    def advance(self) -> None:
        """Go on to the next segment, which begins one stride later."""
        self.start += self._grid.stride
        self._at += self._grid.stride
        self._filled -= self._grid.stride
        if self._at + self._grid.segment > self._page.shape[1]:
            self._turn_page(*self._left)

    @property
    def _left(self) -> tuple[Samples, NDArray[np.float64]]:
        """What is still needed of the page."""
        first = self._at // self._grid.hop
        return self.samples, self._moments[:, :, first : max(first, self._measured)]

    @_left.setter
    def _left(self, left: tuple[Samples, NDArray[np.float64]]) -> None:
        self._turn_page(*left)


def strongest_window(sums: NDArray[np.float64], squares: NDArray[np.float64], *, hop: int, width: int) -> int:
    """First of the `width` hops in which the sensors heard most, from the sums over every hop; the earliest of equals.

    Each sensor says which share of its own power, its mean removed, lies in a window, and the median decides: neither
    gain nor offset gives a sensor more of a say, and one that screams cannot choose for all. A sensor that hears
    nothing, or always the same value, does not vote.
    """
    mean = sums.sum(axis=1, keepdims=True) / (hop * sums.shape[1])
    power = np.maximum(squares - mean * (2 * sums - hop * mean), 0.0)
    heard = np.zeros((len(power), power.shape[1] + 1))
    np.cumsum(power, axis=1, out=heard[:, 1:])
    audible = heard[:, -1] > _ROUNDING * squares.sum(axis=1)
    if not audible.any():
        return 0
    if not audible.all():
        heard = heard[audible]
    share = np.sort((heard[:, width:] - heard[:, :-width]) / heard[:, -1:], axis=0)
    # Twice the median, without the cost of numpy's, which is that of all the rest.
    return int(np.argmax(share[(len(share) - 1) // 2] + share[len(share) // 2]))
