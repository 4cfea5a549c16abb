"""What is the matter with each sensor, by physics alone?"""

from __future__ import annotations

from collections import deque

import numpy as np

from pipeline.conditions import State
from pipeline.events import Authority, TrustChanged
from pipeline.health.checks import CHECKS, LONGEST_SECONDS
from pipeline.health.faults import Faults
from pipeline.health.measures import Measures
from pipeline.health.usual import RunningUsual, Usual


class Inspection:
    """Faults of every sensor from the measures of the last seconds; nothing learned has a say.

    A sensor with a fatal fault loses the trust of all later stages. It goes on being measured, and has the trust back
    when the fault closes.
    """

    accepts = Measures

    def __init__(self, usual: Usual | None = None) -> None:
        self._given = usual
        self._faults: Faults | None = None
        self._history: deque[Measures] = deque(maxlen=LONGEST_SECONDS)

    def push(self, second: Measures, /) -> list[object]:
        if self._faults is None:
            self._faults = Faults(CHECKS, second.n_sensors)
            self._usual = RunningUsual(self._given, second.n_sensors)
            self._trusted = np.ones(second.n_sensors, np.bool_)
        self._history.append(second)
        changes = self._faults.update(tuple(self._history), self._usual.current)
        ill = np.array([bool(self._faults.causes(sensor)) for sensor in range(second.n_sensors)])
        self._usual.learn(second, ~ill)
        return [*changes, *self._trust(second.stop), second]

    def flush(self) -> list[object]:
        self._faults = None
        self._history.clear()
        return []

    def _trust(self, sample: int) -> list[object]:
        assert self._faults is not None
        causes = (self._faults.causes(sensor) for sensor in range(len(self._trusted)))
        trusted = np.array([all(cause.state is not State.BAD for cause in one) for one in causes])
        if (trusted == self._trusted).all():
            return []
        self._trusted = trusted
        return [TrustChanged(sample, trusted, Authority.HEALTH)]
