"""The workers of a Dask cluster as a pool."""

from __future__ import annotations

from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pipeline import __version__
from pipeline.core.errors import LinkError
from pipeline.fleet.array_state import Assignment
from pipeline.fleet.worker_pool import ArrayTask, TaskResult, outcome_of
from pipeline.runtime.dask_pool import Tls, begin_for_long, connect
from pipeline.runtime.logs import log

_RESULT_SECONDS = 1.0
_LOST = OSError, CancelledError, TimeoutError, RuntimeError


class DaskWorkerPool:
    """Every array is one task that does not end. A scheduler that is lost must be connected to anew."""

    def __init__(self, address: str, tls: Tls | None) -> None:
        self._address = address
        log.info("looking for the scheduler", address=address)
        self._client = connect(address, tls)

    @property
    def is_lost(self) -> bool:
        return bool(self._client.status != "running")

    def workers(self) -> list[str]:
        try:
            known = list(self._client.nthreads())
        except _LOST as error:
            self.close()
            raise LinkError(f"scheduler {self._address} is lost ({error}); start it again") from error
        if self.is_lost:
            raise LinkError(f"scheduler {self._address} is lost; start it again")
        return known

    def start(self, assignment: Assignment, worker: str) -> ArrayTask:
        try:
            future = self._client.submit(
                _decide,
                assignment,
                __version__,
                key=f"gemmed {assignment.array} {assignment.ticket}",
                workers=[worker],
                allow_other_workers=False,
                pure=False,
            )
        except _LOST as error:
            raise LinkError(f"scheduler {self._address} is lost ({error}); start it again") from error
        return _Submitted(future)

    def close(self) -> None:
        with suppress(*_LOST):
            self._client.close(timeout=2)


@dataclass(frozen=True, slots=True)
class _Submitted:
    future: Any

    def outcome(self) -> TaskResult | None:
        status = self.future.status
        if status == "pending":
            return None
        if status == "finished":
            with suppress(*_LOST):
                # A worker that died just now takes it with him, and others would be waited for.
                outcome: TaskResult = self.future.result(timeout=_RESULT_SECONDS)
                return outcome
        if status == "error":
            return TaskResult(str(self.future.exception()), failed=True)
        return TaskResult("the cluster has forgotten it")


def _decide(assignment: Assignment, version: str) -> TaskResult:
    """On a worker."""
    return outcome_of(assignment, begin_for_long(version))
