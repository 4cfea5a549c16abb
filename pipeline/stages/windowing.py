"""Overlapping segments, and in each of them the strongest window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.events import Block, Mask, Samples, Segment, Span, TrustChanged
from pipeline.grid import Grid

_STRIDES_PER_PAGE = 16


class Windowing:
    """Cut the sound of all sensors into segments and let the trusted sensors choose a window in each.

    Segments lie on the absolute grid. A segment that a gap interrupts is not made; after a gap the next segment
    begins at the next multiple of the stride. Sound at the end that fills no segment is dropped, and so are segments
    that no sensor delivered completely.
    """

    accepts = (Block, TrustChanged)

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._windows = every_window(grid.segment_hops, grid.window_hops)
        self._buffer: _Buffer | None = None
        self._next = 0
        self._changes: list[TrustChanged] = []

    def push(self, item: Block | TrustChanged, /) -> list[object]:
        if isinstance(item, TrustChanged):
            self._changes.append(item)
            return [item]
        if self._buffer is None or item.start > self._next:
            self._buffer = _Buffer(self._grid, len(item.samples), after=item.start)
        elif item.start < self._next:
            raise ValueError(f"block starts at sample {item.start}, but sample {self._next} is the next one")
        self._next = item.stop
        return self._cut(item, self._buffer)

    def flush(self) -> list[object]:
        self._buffer, self._next, self._changes = None, 0, []
        return []

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
        present = buffer.present
        if not present.any():
            return []
        first = strongest_window(
            *buffer.moments(), hop=self._grid.hop, windows=self._windows, voters=self._voters(present, buffer.start)
        )
        start = buffer.start + first * self._grid.hop
        return [
            Segment(
                span=Span(buffer.start, buffer.start + self._grid.segment),
                window=Span(start, start + self._grid.window),
                samples=buffer.samples,
                present=present,
            )
        ]

    def _voters(self, present: Mask, start: int) -> Mask:
        """Sensors that are present and trusted; where there is none, those present."""
        due = [change for change in self._changes if change.sample <= start]
        if not due:
            return present
        self._changes = [due[-1], *(change for change in self._changes if change.sample > start)]
        trusted = present & due[-1].trusted
        return trusted if trusted.any() else present


class _Buffer:
    """The segment being filled, on pages of which no place is written twice.

    A segment is a view of its page, not a copy, and stays as it is while later samples are written behind it.
    """

    def __init__(self, grid: Grid, n_sensors: int, *, after: int) -> None:
        self._grid = grid
        self.start = -(-after // grid.stride) * grid.stride
        self._complete_since = np.full(n_sensors, self.start)  # first sample after the last one that is missing
        self._ones = np.ones(grid.hop, np.float32)
        self._turn_page(np.empty((n_sensors, 0), np.float32), np.empty((2, n_sensors, 0), np.float32))

    def _turn_page(self, samples: Samples, moments: Samples) -> None:
        """Begin a page with what is left of the one before."""
        n_hops = self._grid.segment_hops + _STRIDES_PER_PAGE * self._grid.stride_hops
        self._page = np.empty((len(samples), n_hops * self._grid.hop), np.float32)
        self._moments = np.empty((2, len(samples), n_hops), np.float32)  # sum and sum of squares of every hop
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
    def present(self) -> Mask:
        return np.asarray(self._complete_since <= self.start)

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum and sum of squares of every hop of the full segment, (sensors, hops) each."""
        first = self._at // self._grid.hop
        fresh = slice(self._measured, first + self._grid.segment_hops)
        hops = self._page[:, fresh.start * self._grid.hop : fresh.stop * self._grid.hop]
        hops = hops.reshape(len(self._page), -1, self._grid.hop)
        np.matmul(hops, self._ones, out=self._moments[0, :, fresh])
        np.einsum("sht,sht->sh", hops, hops, out=self._moments[1, :, fresh])
        self._measured = fresh.stop
        sums, squares = self._moments[:, :, first : fresh.stop].astype(np.float64)
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
            first = self._at // self._grid.hop
            self._turn_page(self.samples, self._moments[:, :, first : max(first, self._measured)])


def every_window(n_hops: int, width: int) -> NDArray[np.float64]:
    """(hops, windows + 1): a column that sums each window of `width` hops, and a last one that sums all of them."""
    start, hop = np.arange(n_hops - width + 1), np.arange(n_hops)[:, None]
    inside = (start <= hop) & (hop < start + width)
    return np.column_stack([inside, np.ones(n_hops)]).astype(np.float64)


def strongest_window(
    sums: NDArray[np.float64], squares: NDArray[np.float64], *, hop: int, windows: NDArray[np.float64], voters: Mask
) -> int:
    """First hop of the window in which the voters heard most; the earliest of equals.

    Each sensor says which share of its own power, its mean removed, lies in a window, and the median decides: neither
    gain nor offset gives a sensor more of a say, and one that screams cannot choose for all. A sensor that hears
    nothing does not vote.
    """
    if not voters.all():
        sums, squares = sums[voters], squares[voters]
    mean = sums.sum(axis=1, keepdims=True) / (hop * sums.shape[1])
    power = np.maximum(squares - mean * (2 * sums - hop * mean), 0.0)
    heard = power @ windows
    audible = heard[:, -1] > 0
    if not audible.all():
        heard = heard[audible]
    if not len(heard):
        return 0
    share = np.sort(heard[:, :-1] / heard[:, -1:], axis=0)
    # Twice the median, without the cost of numpy's, which is that of all the rest.
    return int(np.argmax(share[(len(share) - 1) // 2] + share[len(share) // 2]))
