"""A simulated array as an endless stream: a day in which now and then somebody passes, or walk after walk."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import count
from typing import Self

import numpy as np

from pipeline.core.errors import SettingsError
from pipeline.core.events import Block, RecordingStarted, Samples
from pipeline.simulation import Day, SimulatedRecording, Site, record
from pipeline.simulation.microphones import converted
from pipeline.sources._chunks import channel_names, require

_FADE_SECONDS = 0.1


class SimulatedSource:
    """Plays a day and the days after it, or the recordings of a site one after the other, each faded into the next.

    It ends after `seconds`, or never. The same day or site gives the same stream, however it is cut. The truth about
    it is in `Day.passages` and `Day.truth`, or in `scene`. With a `speed`, sound comes no faster than `speed` times
    real time.
    """

    def __init__(
        self,
        scene: Day | Site,
        *,
        seconds: float | None = None,
        recording: str = "simulated",
        block_samples: int = 4096,
        speed: float | None = None,
    ) -> None:
        require("block_samples", block_samples, least=1)
        require("seconds", seconds, least=0)
        self._day = scene if isinstance(scene, Day) else None
        site = scene.site if isinstance(scene, Day) else scene
        self._fade = round(_FADE_SECONDS * site.rate_hz)
        if self._day is None and site.length <= 2 * self._fade:
            raise SettingsError(
                f"duration_seconds={site.duration_seconds} must be above {2 * _FADE_SECONDS}; lengthen the scenes"
            )
        self._site, self._recording, self._block_samples, self._speed = site, recording, block_samples, speed
        self._length = None if seconds is None else round(seconds * site.rate_hz)
        self._facts: Generator[object, None, None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._facts is not None:
            self._facts.close()

    def __iter__(self) -> Iterator[object]:
        self.__exit__()
        self._facts = self._play()
        return self._facts

    def scene(self, number: int) -> tuple[int, SimulatedRecording]:
        """The sample at which recording `number` of a site begins to be heard, and the recording with its truth."""
        return number * (self._site.length - self._fade), record(self._site, number)

    def _play(self) -> Generator[object, None, None]:
        sensors = channel_names(len(self._site.sensors_m))
        yield RecordingStarted(self._recording, self._site.rate_hz, sensors)
        everyone = np.ones(len(sensors), np.bool_)
        position, begun_at = 0, time.monotonic()
        for sound in self._walks() if self._day is None else _days(self._day):
            for start in range(0, sound.shape[1], self._block_samples):
                left = None if self._length is None else self._length - position
                if left == 0:
                    return
                samples = sound[:, start : start + self._block_samples][:, :left]
                position += samples.shape[1]
                if self._speed is not None:
                    due_at = begun_at + position / self._site.rate_hz / self._speed
                    time.sleep(max(0.0, due_at - time.monotonic()))
                yield Block(position - samples.shape[1], samples, everyone)

    def _walks(self) -> Iterator[Samples]:
        """Scene after scene, the end of each mixed into the beginning of the next at constant power."""
        rise = np.sin(np.linspace(0, np.pi / 2, self._fade))
        tail: Samples | None = None
        for number in count():
            samples = record(self._site, number).samples
            begin = samples[:, : self._fade]
            if tail is not None:
                begin = converted((begin * rise + tail * rise[::-1]).astype(np.float64))
            tail = samples[:, -self._fade :]
            yield np.concatenate([begin, samples[:, self._fade : -self._fade]], axis=1)


def _days(day: Day) -> Iterator[Samples]:
    """Piece after piece of a day, and of all that follow."""
    for number in count(day.number):
        today = replace(day, number=number)
        for piece in range(today.n_pieces):
            yield today.piece(piece)
