"""Do the samples come as fast as they should?"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pipeline.conditions import Cause
from pipeline.events import Evidence, FaultClosed, FaultOpened, Paced, RecordingStarted

_STALLED = 0.7
_ERROR = 0.01
_NOT_LIVE = 1.5
"""Faster than this is no fault of a clock: somebody plays a recording."""
_LEAST_ALARMS = 2
_MOST = 6
"""So many reports together are precise enough for a small error of the clock."""


class Pacing:
    """Faults of all sensors at once, if by this machine's clock too few or too many samples arrive.

    Far too few in two reports one after the other are a stall; a share of a hundred over six of them is a wrong rate.
    """

    accepts = (RecordingStarted, Paced)

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self.flush()

    def push(self, item: RecordingStarted | Paced, /) -> list[object]:
        if isinstance(item, RecordingStarted):
            self.flush()
            self._n_sensors = len(item.sensors)
            return [item]
        self._reports.append(item)
        return [item, *self._changes(item.sample)]

    def flush(self) -> list[object]:
        self._n_sensors = 0
        self._reports: deque[Paced] = deque(maxlen=_MOST)
        self._open: dict[Cause, FaultOpened] = {}
        return []

    def _changes(self, sample: int) -> Iterator[FaultOpened | FaultClosed]:
        last = list(self._reports)[-_LEAST_ALARMS:]
        stalled = len(last) == _LEAST_ALARMS and all(self._ratio(report) < _STALLED for report in last)
        total = Paced(sample, sum(one.seconds for one in self._reports), sum(one.samples for one in self._reports))
        off = len(self._reports) == _MOST and abs(self._ratio(total) - 1) > _ERROR and self._ratio(total) < _NOT_LIVE
        yield from self._judge(Cause.STALLED_RATE, stalled, last[0].sample, total)
        yield from self._judge(Cause.RATE_ERROR, off and not stalled, self._reports[0].sample, total)

    def _ratio(self, report: Paced) -> float:
        return report.samples / (report.seconds * self._rate_hz)

    def _judge(self, cause: Cause, wrong: bool, since: int, total: Paced) -> Iterator[FaultOpened | FaultClosed]:
        evidence: Evidence = {"rate_hz": total.samples / total.seconds, "nominal_hz": float(self._rate_hz)}
        if wrong and cause not in self._open:
            self._open[cause] = FaultOpened(total.sample, since, 0, cause, evidence)
            for sensor in range(self._n_sensors):
                yield FaultOpened(total.sample, since, sensor, cause, evidence)
        elif not wrong and cause in self._open:
            opened = self._open.pop(cause)
            for sensor in range(self._n_sensors):
                yield FaultClosed(total.sample, opened.since, total.sample, sensor, cause, opened.evidence)
