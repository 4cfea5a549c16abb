"""What all sources share: samples with a mask for each of them, cut into blocks that have one mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipeline.core.errors import SettingsError
from pipeline.core.events import Block, Gap, Mask, Samples


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive samples, of which those that are not valid are zero and must not be delivered."""

    samples: Samples  # (channels, time)
    valid: Mask  # (channels, time)

    @property
    def n(self) -> int:
        return int(self.samples.shape[1])

    def part(self, start: int, stop: int) -> Chunk:
        return Chunk(self.samples[:, start:stop], self.valid[:, start:stop])


def join(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    samples = np.concatenate([chunk.samples for chunk in chunks], axis=1)
    return Chunk(samples, np.concatenate([chunk.valid for chunk in chunks], axis=1))


def whole(samples: Samples) -> Chunk:
    """Every sample is valid."""
    return Chunk(samples, np.ones(samples.shape, np.bool_))


def screen(samples: Samples) -> Chunk:
    """Only finite numbers are valid."""
    finite = np.isfinite(samples)
    return Chunk(samples if finite.all() else np.where(finite, samples, np.float32(0)), finite)


def cut(chunk: Chunk, *, start: int, block_samples: int, reason: str) -> Iterator[Block | Gap]:
    """Blocks of at most `block_samples`, in each of which a sensor delivered all or nothing; gaps where none did."""
    if chunk.n == 0:
        return
    changes = np.flatnonzero((chunk.valid[:, 1:] != chunk.valid[:, :-1]).any(axis=0)) + 1
    for begin, end in pairwise([0, *changes.tolist(), chunk.n]):
        delivered = chunk.valid[:, begin]
        if not delivered.any():
            yield Gap(start + begin, start + end, reason)
            continue
        for left in range(begin, end, block_samples):
            right = min(left + block_samples, end)
            yield Block(start + left, chunk.samples[:, left:right], delivered)


@dataclass(slots=True)
class NonFinite:
    """Counts the samples that are not valid and remembers the first."""

    count: int = 0
    first: str = ""

    def add(self, valid: Mask, position: int) -> None:
        if valid.all():
            return
        bad = np.argwhere(~valid.T)
        if not self.count:
            sample, channel = bad[0].tolist()
            self.first = f"sample {position + sample} of channel {channel + 1}"
        self.count += len(bad)


def channel_names(n_channels: int) -> tuple[str, ...]:
    """Sensors that have no name are called by their channel, counted from 1."""
    return tuple(str(number) for number in range(1, n_channels + 1))


def require(name: str, value: float | None, *, least: float) -> None:
    if value is not None and not value >= least:
        raise SettingsError(f"{name}={value} must be at least {least}; raise {name}")
