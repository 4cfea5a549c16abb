"""What is the matter with each sensor, by physics alone?"""

from __future__ import annotations

from collections import deque

import numpy as np

from pipeline.core.checkpoint import Taken
from pipeline.core.events import Authority, Mask, TrustChanged
from pipeline.core.sensor_state import State
from pipeline.health.baseline import Baseline, RunningUsual
from pipeline.health.checks import CHECKS, LONGEST_SECONDS
from pipeline.health.cross_sensor_checks import forget
from pipeline.health.faults import Faults
from pipeline.health.measures import Measures


class PhysicalFaults:
    """Faults of every sensor from the measures of the last seconds; nothing learned has a say.

    A sensor with a fatal fault loses the trust of all later stages. It goes on being measured, and has the trust back
    when the fault closes.
    """

    accepts = Measures
    remembers = ("_faults", "_usual", "_trusted", "_history")

    def __init__(self, usual: Baseline | None = None) -> None:
        self._given = usual
        self._faults: Faults | None = None
        self._usual: RunningUsual | None = None
        self._trusted: Mask = np.ones(0, np.bool_)
        self._history: deque[Measures] = deque(maxlen=LONGEST_SECONDS)

    def push(self, second: Measures, /) -> list[object]:
        if self._faults is None or self._usual is None:
            self._faults, self._usual = self._begin(second.n_sensors)
        self._remember(second)
        changes = self._faults.update(tuple(self._history), self._usual.current)
        ill = np.array([bool(self._faults.causes(sensor)) for sensor in range(second.n_sensors)])
        self._usual.learn(second, ~ill)
        return [*changes, *self._trust(second.stop), second]

    def flush(self) -> list[object]:
        self._faults = self._usual = None
        self._trusted = np.ones(0, np.bool_)
        self._history.clear()
        return []

    def prepare(self, state: Taken) -> None:
        if state["_faults"] is not None:
            self._faults, self._usual = self._begin(len(state["_trusted"]))

    def _begin(self, n_sensors: int) -> tuple[Faults, RunningUsual]:
        self._trusted = np.ones(n_sensors, np.bool_)
        return Faults(CHECKS, n_sensors), RunningUsual(self._given, n_sensors)

    def _remember(self, second: Measures) -> None:
        if len(self._history) == LONGEST_SECONDS and (oldest := self._history[0].relations):
            forget(oldest)
        self._history.append(second)

    def _trust(self, sample: int) -> list[object]:
        assert self._faults is not None
        causes = (self._faults.causes(sensor) for sensor in range(len(self._trusted)))
        trusted = np.array([all(cause.state is not State.BAD for cause in one) for one in causes])
        if (trusted == self._trusted).all():
            return []
        self._trusted = trusted
        return [TrustChanged(sample, trusted, Authority.HEALTH)]
