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
            *buffer.moments,
            hop=self._grid.hop,
            width=self._grid.window_hops,
            voters=self._voters(present, buffer.start),
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
        self._moments = np.empty((2, n_sensors, 0))
        self._turn_page(np.empty((n_sensors, 0), np.float32))

    def _turn_page(self, samples: Samples) -> None:
        """Begin a page with what is left of the one before."""
        self._page = np.empty((len(samples), self._grid.segment + _STRIDES_PER_PAGE * self._grid.stride), np.float32)
        self._page[:, : samples.shape[1]] = samples
        self._at, self._filled = 0, int(samples.shape[1])

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

    @property
    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum and sum of squares of every hop, (sensors, hops) each."""
        sums, squares = self._moments
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
        if self.full:
            self._measure()
        return taken

    def _measure(self) -> None:
        """Add the hops that are new in this segment to the moments."""
        known = self._moments.shape[2]
        hops = self.samples[:, known * self._grid.hop :].reshape(len(self._page), -1, self._grid.hop)
        fresh = np.stack([hops.sum(axis=2), np.einsum("sht,sht->sh", hops, hops)])
        self._moments = np.concatenate([self._moments, fresh], axis=2, dtype=np.float64)

    def advance(self) -> None:
        """Go on to the next segment, which begins one stride later."""
        self.start += self._grid.stride
        self._at += self._grid.stride
        self._filled -= self._grid.stride
        self._moments = self._moments[:, :, self._grid.stride_hops :]
        if self._at + self._grid.segment > self._page.shape[1]:
            self._turn_page(self.samples)


def strongest_window(
    sums: NDArray[np.float64], squares: NDArray[np.float64], *, hop: int, width: int, voters: Mask
) -> int:
    """First hop of the `width` hops in which the voters heard most; the earliest of equals.

    Each sensor says which share of its own power, its mean removed, lies in a window, and the median decides: neither
    gain nor offset gives a sensor more of a say, and one that screams cannot choose for all. A sensor that hears
    nothing does not vote.
    """
    sums, squares = sums[voters], squares[voters]
    mean = sums.mean(axis=1, keepdims=True) / hop
    power = np.maximum(squares - 2 * mean * sums + hop * mean**2, 0.0)
    heard = np.zeros((len(power), power.shape[1] + 1))
    np.cumsum(power, axis=1, out=heard[:, 1:])
    inside, total = heard[:, width:] - heard[:, :-width], heard[:, -1]
    audible = total > 0
    if not audible.any():
        return 0
    share = inside[audible] / total[audible, None]
    return int(np.argmax(np.median(share, axis=0)))
