"""`gemmed fleet run`: the dispatcher as a user starts and stops it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from pipeline.core.errors import GemmedError
from pipeline.fleet.config import Fleet, read_fleet
from pipeline.fleet.dispatcher import dispatch, load_first_models
from pipeline.fleet.worker_pool import WorkerPool
from pipeline.runtime.logs import log
from pipeline.runtime.systemd import Notifier


class FleetRun:
    """One life of the dispatcher, from its start to a signal or the end of its time."""

    def __init__(self, fleet: Fleet, open_pool: Callable[[], WorkerPool], *, seconds: float | None) -> None:
        self._fleet, self._open_crew = fleet, open_pool
        self._until = None if seconds is None else time.monotonic() + seconds
        self._stopped = self._reload = False

    def run(self) -> None:
        for number, handler in (
            (signal.SIGTERM, self._stop),
            (signal.SIGINT, self._stop),
            (signal.SIGHUP, self._again),
        ):
            signal.signal(number, handler)
        notifier = Notifier.from_environment()
        notifier.ready()
        never_began = dispatch(self._fleet, self._open_crew, stopping=self._is_over, reloaded=self._reloaded)
        notifier.stopping()
        if never_began is not None and not self._stopped:
            raise never_began
        log.info("stopped")

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True

    def _again(self, number: int, frame: FrameType | None) -> None:
        self._reload = True

    def _is_over(self) -> bool:
        return self._stopped or (self._until is not None and time.monotonic() > self._until)

    def _reloaded(self) -> Fleet | None:
        if not self._reload or self._fleet.path is None:
            return None
        self._reload = False
        try:
            fleet = read_fleet(self._fleet.path)
        except GemmedError as error:
            log.error("the fleet stays as it was", why=str(error))
            return None
        log.info("the fleet was read again", arrays=len(fleet.arrays))
        return fleet


def start(path: Path, open_pool: Callable[[Fleet], WorkerPool], *, seconds: float | None) -> None:
    fleet = read_fleet(path)
    load_first_models(fleet)
    FleetRun(fleet, lambda: open_pool(fleet), seconds=seconds).run()
