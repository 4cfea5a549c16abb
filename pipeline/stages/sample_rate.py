"""Do the samples come as fast as they should?"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from pipeline.core.events import Evidence, FaultClosed, FaultOpened, Paced, RecordingStarted
from pipeline.core.sensor_state import Cause

_STALLED = 0.7
_ERROR = 0.01
_NOT_LIVE = 1.5
"""Faster than this is no fault of a clock: somebody plays a recording."""
_LEAST_ALARMS = 2
_MOST = 6
"""So many reports together are precise enough for a small error of the clock."""


class SampleRate:
    """Faults of all sensors at once, if by this machine's clock too few or too many samples arrive.

    Far too few in two reports one after the other are a stall. A hundredth too few or too many in six reports together,
    those of stalls aside, is a wrong rate.
    """

    accepts = (RecordingStarted, Paced)
    remembers = ("_n_sensors", "_last", "_even", "_open")

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self.flush()

    def push(self, item: RecordingStarted | Paced, /) -> list[object]:
        if isinstance(item, RecordingStarted):
            self.flush()
            self._n_sensors = len(item.sensors)
            return [item]
        self._last.append(item)
        if self._ratio(item) >= _STALLED:
            self._even.append(item)
        return [item, *self._changes()]

    def flush(self) -> list[object]:
        self._n_sensors = 0
        self._last: deque[Paced] = deque(maxlen=_LEAST_ALARMS)
        self._even: deque[Paced] = deque(maxlen=_MOST)
        self._open: dict[Cause, FaultOpened] = {}
        return []

    def _changes(self) -> Iterator[FaultOpened | FaultClosed]:
        last, even = _together(self._last), _together(self._even)
        stalled = len(self._last) == _LEAST_ALARMS and all(self._ratio(report) < _STALLED for report in self._last)
        off = len(self._even) == _MOST and abs(self._ratio(even) - 1) > _ERROR and self._ratio(even) < _NOT_LIVE
        yield from self._judge(Cause.STALLED_RATE, stalled, last)
        yield from self._judge(Cause.RATE_ERROR, off, even)

    def _ratio(self, report: Paced) -> float:
        return report.samples / (report.seconds * self._rate_hz)

    def _judge(self, cause: Cause, wrong: bool, found: Paced) -> Iterator[FaultOpened | FaultClosed]:
        """`found` begins at the sample of its first report."""
        now = self._last[-1].sample
        if wrong and cause not in self._open:
            evidence: Evidence = {"rate_hz": found.samples / found.seconds, "nominal_hz": float(self._rate_hz)}
            self._open[cause] = FaultOpened(now, found.sample, 0, cause, evidence)
            for sensor in range(self._n_sensors):
                yield FaultOpened(now, found.sample, sensor, cause, evidence)
        elif not wrong and cause in self._open:
            opened = self._open.pop(cause)
            for sensor in range(self._n_sensors):
                yield FaultClosed(now, opened.since, now, sensor, cause, opened.evidence)


def _together(reports: Collection[Paced]) -> Paced:
    """Several reports as one that begins with the first."""
    first = next((report.sample for report in reports), 0)
    return Paced(first, sum(one.seconds for one in reports), sum(one.samples for one in reports))
