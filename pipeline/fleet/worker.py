"""The task of one array: read its log, decide, write what was decided, and be ready to go on elsewhere at any moment.

Three writes make it safe to kill at any instant, and for two owners to meet: a checkpoint of the place in the log and
all that the chain knows, in one value; numbered portions of decisions, each only behind the last that is there (both in
`work.py`); and a portion without decisions by whoever takes an array over: one who had it before, and does not know,
tells nothing more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pipeline.core.errors import GemmedError, LinkError, ModelError
from pipeline.core.events import RecordingStarted
from pipeline.fleet.array_state import Assignment, Successor, can_hear, taken_up
from pipeline.fleet.block_joining import joined
from pipeline.fleet.lease import Lease, LeaseLost, new_owner
from pipeline.fleet.model_assignment import ModelAssignment, wanted_of
from pipeline.fleet.model_cache import ModelStore, usual_cache
from pipeline.model.hot_swap import ArrayInput
from pipeline.runtime.logs import log
from pipeline.sources.reorder import portions
from pipeline.storage.journal import utc
from pipeline.transport.nats import Broker

_WAIT_SECONDS = 1.0
_MOST_EVENTS = 50
_LOOK_SECONDS = 2.0
"""Between two looks whether somebody else shall have the array, or another model shall decide."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
HANDED_OVER, STOPPED = "handed over", "stopped"


def host(assignment: Assignment, stopping: Callable[[], bool] = lambda: False) -> str:
    """Decide for an array until somebody else shall; why it ended. A broker that is away is waited for."""
    pause, owner = _FIRST_PAUSE, new_owner()
    while not stopping():
        began_at = time.monotonic()
        try:
            with Broker(assignment.access, name=f"gemmed decides for {assignment.array}") as broker:
                return _Hosting(assignment, broker, stopping, owner).run()
        except LeaseLost as error:
            log.info("an array is somebody else's", array=assignment.array, why=str(error))
        except LinkError as error:
            log.warning("the broker is away", array=assignment.array, why=str(error))
        if time.monotonic() - began_at > _LONGEST_PAUSE:
            pause = _FIRST_PAUSE
        rest(pause, stopping)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return STOPPED


def rest(seconds: float, stopping: Callable[[], bool]) -> None:
    """Unless somebody wants it to stop."""
    until = time.monotonic() + seconds
    while not stopping() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _FIRST_PAUSE))


class _Over(Exception):
    """The array goes to somebody else, or nowhere."""


class _Hosting:
    """One connection's worth of it."""

    def __init__(self, assignment: Assignment, broker: Broker, stopping: Callable[[], bool], owner: str) -> None:
        self._assignment, self._broker, self._stopping = assignment, broker, stopping
        places = assignment.places
        self._places, self._array = places, assignment.array
        self._tickets, self._status = places.tickets(broker), places.status(broker)
        self._wanted, self._checkpoints = places.wanted(broker), places.checkpoints(broker)
        self._lease = Lease(places.leases(broker), assignment.array, owner, seconds=places.lease_seconds)
        self._models = ModelStore(places.models(broker), assignment.cache or usual_cache())
        self._kept_at = self._looked_at = 0.0
        self._unkept = False

    def run(self) -> str:
        why = HANDED_OVER
        try:
            self._wait_for_lease()
            try:
                self._work = taken_up(self._assignment, self._broker, self._checkpoints, self._models)
                self._work.find_successor = self._successor
                self._work.claim()
                self._keep()
                self._decide()
            except (LinkError, _Over):
                raise
            except Exception as error:
                self._tell_what_is_decided()
                known = isinstance(error, GemmedError)
                self._tell_status(failed=str(error) if known else f"{type(error).__name__}: {error}")
                raise
            finally:
                self._release()
        except _Over as over:
            why = str(over)
        return why

    def _tell_what_is_decided(self) -> None:
        """Before it failed; unless that must not be heard of before it is kept."""
        if hasattr(self, "_work") and not self._work.must_be_kept:
            with suppress(LinkError):  # what went wrong first is what is told
                self._work.send()

    def _release(self) -> None:
        try:
            self._lease.release()
        except LinkError as error:
            log.debug("a lease was not given back", array=self._array, why=str(error))

    def _wait_for_lease(self) -> None:
        while not self._lease.take():
            self._require_ticket()
            rest(_FIRST_PAUSE, self._stopping)

    def _require_ticket(self) -> None:
        if self._stopping():
            raise _Over(STOPPED)
        entry = self._tickets.get(self._array)
        if entry is None or entry.value.decode() != self._assignment.ticket:
            raise _Over(HANDED_OVER)

    def _decide(self) -> None:
        work = self._work
        sound = portions(self._broker, self._places.sound, self._array, work.sorting, wait_seconds=_WAIT_SECONDS)
        for message, facts in joined(sound, one_by_one=lambda: work.is_on_trial):
            work.note(message)
            for fact in facts:
                work.hear(fact)
            if work.must_be_kept:
                self._keep()
            self._unkept |= message is not None
            if message is None or not message.pending or len(work.outbox) >= _MOST_EVENTS:
                work.send()
            try:
                self._between()
            except _Over:
                work.send()
                self._keep()
                raise

    def _successor(self, started: RecordingStarted) -> Successor | None:
        """The model for a recording that the present one cannot hear, if there is one.

        It is the one that is wanted, else the one that decided before such a change, else that of the settings.
        """
        known = [
            ModelAssignment(model=name, rollout="", who="gemmed", why="it hears this recording")
            for name in (self._work.earlier, self._assignment.model)
            if name
        ]
        wanted = wanted_of(self._wanted, self._array)
        for one in [wanted, *known] if wanted else known:
            with suppress(ModelError):
                model = self._models.load(one.model)
                if can_hear(ArrayInput.of(model), started):
                    return Successor(model, one)
        return None

    def _between(self) -> None:
        """Whatever else must be done now and then; first what follows from the log, wherever it is decided."""
        if (verdict := self._work.verdict()) is not None:
            self._end_trial(verdict)
        if self._stopping():
            raise _Over(STOPPED)
        if self._lease.is_due:
            self._lease.renew()
            self._tell_status()
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._require_ticket()
            self._look_for_another_model()
        if self._unkept and time.monotonic() - self._kept_at > self._assignment.checkpoint_seconds:
            self._work.send()
            self._keep()

    def _keep(self) -> None:
        self._work.keep(self._checkpoints)
        self._kept_at, self._unkept = time.monotonic(), False

    def _look_for_another_model(self) -> None:
        wanted = wanted_of(self._wanted, self._array)
        work = self._work
        if wanted is None or wanted.model == work.model or wanted.rollout in work.refused or work.is_repeating:
            return
        try:
            model = self._models.load(wanted.model)
            if ArrayInput.of(model) != work.chain.hearing:
                raise ModelError(f"model {model.name} for {model.n_sensors} sensors at {model.grid.rate_hz} Hz does "
                                 "not hear as the one before it; train one for this array")  # fmt: skip
        except ModelError as error:
            work.refuse(wanted, str(error))
        else:
            work.change(model, wanted)
        self._keep()  # before anybody hears of it
        work.send()
        self._unkept = True  # that it was told

    def _end_trial(self, verdict: dict[str, Any]) -> None:
        work = self._work
        work.end_trial(verdict)
        self._keep()
        work.send()
        self._unkept = True

    def _tell_status(self, failed: str | None = None) -> None:
        told = {"time": utc(datetime.now(UTC)), "owner": self._lease.owner, "failed": failed}
        self._status.put(self._array, json.dumps(self._known(failed=failed is not None) | told).encode())

    def _known(self, *, failed: bool) -> dict[str, Any]:
        """Of whoever could not take the array up, what was told before him."""
        if hasattr(self, "_work"):
            return self._work.status(failed=failed)
        entry = self._status.get(self._array)
        return {} if entry is None else dict(json.loads(entry.value))
