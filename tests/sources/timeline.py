"""Plays a source and checks the law that all sources obey."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pipeline.core.events import Block, FileHeard, Gap, RecordingStarted, SourceTrouble, Tick


@dataclass
class Timeline:
    """A recording put together again: what was delivered and where the gaps are."""

    started: RecordingStarted
    blocks: list[Block] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    stop: int = 0

    @property
    def samples(self):
        """(sensors, time), 0 in gaps."""
        whole = np.zeros((len(self.started.sensors), self.stop), np.float32)
        for block in self.blocks:
            whole[:, block.start : block.stop] = block.samples
        return whole

    @property
    def delivered(self):
        whole = np.zeros((len(self.started.sensors), self.stop), bool)
        for block in self.blocks:
            whole[:, block.start : block.stop] = block.delivered[:, None]
        return whole

    @property
    def gap_spans(self):
        """Gaps that touch are one, however they were told."""
        spans = []
        for gap in self.gaps:
            if spans and spans[-1][1] == gap.start:
                spans[-1] = (spans[-1][0], gap.stop)
            else:
                spans.append((gap.start, gap.stop))
        return spans


@dataclass
class Played:
    recordings: list[Timeline] = field(default_factory=list)
    troubles: list[SourceTrouble] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    heard: list[FileHeard] = field(default_factory=list)
    position: int = 0

    @property
    def only(self):
        (timeline,) = self.recordings
        return timeline

    def add(self, fact):
        """Blocks and gaps tile the time of a recording from sample 0 and come only after its start."""
        if isinstance(fact, RecordingStarted):
            self.recordings.append(Timeline(fact))
            self.position = 0
        elif isinstance(fact, SourceTrouble):
            assert fact.where
            assert ";" in fact.message, f"no cure in {fact.message!r}"
            self.troubles.append(fact)
        elif isinstance(fact, Tick):
            assert fact.sample == self.position
            self.ticks.append(fact)
        elif isinstance(fact, FileHeard):
            self.heard.append(fact)
            self.position = 0
        else:
            self._tile(fact)

    def _tile(self, fact):
        timeline = self.recordings[-1]
        assert fact.start == timeline.stop < fact.stop
        timeline.stop = self.position = fact.stop
        if isinstance(fact, Gap):
            assert fact.reason
            timeline.gaps.append(fact)
            return
        assert isinstance(fact, Block)
        assert fact.samples.dtype == np.float32
        assert not fact.samples.flags.writeable
        assert len(fact.samples) == len(fact.delivered) == len(timeline.started.sensors)
        assert fact.delivered.any()
        assert np.isfinite(fact.samples).all()
        timeline.blocks.append(fact)


def play(source):
    """Everything that a source tells, from its beginning to its end."""
    played = Played()
    with source:
        for fact in source:
            played.add(fact)
    return played
