"""Who has which array: given to the worker with the fewest, again when one dies, and evenly when others come."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.choices import Choices
from pipeline.core.errors import GemmedError, LinkError, SettingsError, UsageError
from pipeline.fleet.array_state import Assignment
from pipeline.fleet.config import RESERVED, ArrayOfFleet, Fleet
from pipeline.fleet.lease import Lease, LeaseLost, new_owner, owner_of
from pipeline.fleet.model_cache import ModelStore, usual_cache
from pipeline.fleet.worker import rest
from pipeline.fleet.worker_pool import ArrayTask, WorkerPool
from pipeline.model.model import Model
from pipeline.runtime.logs import log
from pipeline.transport.nats import Broker

_LOOK_SECONDS = 0.5
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_SHUNNED_SECONDS = 60.0
_FAILED_SECONDS = 600.0
"""So long a worker gets nothing with whom more than one array has failed lately."""


@dataclass(slots=True)
class _Given:
    worker: str
    task: ArrayTask
    choices: Choices
    seen_at: float
    """When there was last a lease for the array, or reason to wait for one."""


@dataclass(slots=True)
class _Trouble:
    """An array that failed: with whom, when it is tried again, and how long it waits after the next failure."""

    worker: str = ""
    again_at: float = 0.0
    pause: float = _FIRST_PAUSE


class Dispatcher:
    """Gives every array to one worker at a time, by a ticket; who has an older one hands over.

    Should the dispatcher die, workers go on. The next one gives new tickets to all, and they hand over to each other.
    """

    def __init__(self, fleet: Fleet, broker: Broker) -> None:
        self.fleet, self._broker = fleet, broker
        self._tickets, self._leases = fleet.places.tickets(broker), fleet.places.leases(broker)
        self.models = hand_in_models(fleet, broker)
        self._looked_at = 0.0
        self._shunned: dict[str, float] = {}
        self._given: dict[str, _Given] = {}
        self._troubles: dict[str, _Trouble] = {}
        self._let_go_of_strangers()

    def _let_go_of_strangers(self) -> None:
        """Arrays that were removed while nobody dispatched: somebody may still decide for them."""
        for name in set(self._tickets.keys()) - {array.name for array in self.fleet.arrays}:
            self._tickets.delete(name)

    def change(self, fleet: Fleet) -> None:
        """Another fleet from now on, if it can be used; also if the broker is away just now."""
        try:
            _require_same_places(self.fleet, fleet)
            load_first_models(fleet)
        except GemmedError as error:
            log.error("the fleet stays as it was", why=str(error))
        else:
            self.fleet = fleet
            self.models = hand_in_models(fleet, self._broker)

    def look(self, pool: WorkerPool) -> None:
        """See who is there and what became of the tasks, and do what is necessary."""
        workers = pool.workers()
        wanted = {array.name: array for array in self.fleet.arrays}
        for name in [name for name in self._given if name not in wanted]:
            del self._given[name]
            self._tickets.delete(name)
        for array, given in list(self._given.items()):
            self._follow(array, given, workers)
        for array, given in list(self._given.items()):
            if given.choices != self._choices(wanted[array]):
                log.info("an array is decided for in another way", array=array)
                self._give(wanted[array], given.worker, pool)
        self._miss(workers, pool)
        if not workers:
            return
        believed = self._believed(workers)
        until = time.monotonic() + self.fleet.places.lease_seconds / 5
        for name, one in wanted.items():
            if name not in self._given and self._is_due(name):
                self._give(one, self._idlest(self._others(believed, name)), pool)
                if time.monotonic() > until:
                    return  # the others next time: the lease of the dispatcher must not run out meanwhile
        self._balance(workers, believed, pool, wanted)

    def _follow(self, array: str, given: _Given, workers: list[str]) -> None:
        if given.worker not in workers:
            log.warning("a worker is gone; another one takes over", array=array, worker=given.worker)
        elif (outcome := given.task.outcome()) is None:
            return
        elif outcome.failed:
            trouble = self._troubles.setdefault(array, _Trouble())
            trouble.worker, trouble.again_at = given.worker, time.monotonic() + trouble.pause
            log.error("an array cannot be decided for", array=array, worker=given.worker, why=outcome.why,
                      again_in_seconds=trouble.pause)  # fmt: skip
            trouble.pause = min(2 * trouble.pause, _LONGEST_PAUSE)
            self._shun_if_it_is_his_fault(given.worker)
        else:
            log.info("an array was given back", array=array, why=outcome.why)
        del self._given[array]

    def _shun_if_it_is_his_fault(self, worker: str) -> None:
        """One on whom everything fails is always idle, and would be given all arrays one after the other."""
        failed = sum(trouble.worker == worker for trouble in self._troubles.values())
        if failed > 1:
            log.warning("a worker fails; others get his arrays", worker=worker, arrays=failed)
            self._shunned[worker] = time.monotonic() + _FAILED_SECONDS

    def _miss(self, workers: list[str], pool: WorkerPool) -> None:
        """Give arrays to others of which nobody has a lease for long: a worker may be cut off and not know it."""
        lease, now = self.fleet.places.lease_seconds, time.monotonic()
        if now - self._looked_at < lease / 4:
            return
        self._looked_at, held = now, set(self._leases.keys())
        for array, given in list(self._given.items()):
            if array in held:
                given.seen_at = now
                if array in self._troubles and now - self._troubles[array].again_at > _LONGEST_PAUSE:
                    del self._troubles[array]
            elif now - given.seen_at > 2 * lease:
                log.warning("a worker does not take up an array; another one shall", array=array, worker=given.worker)
                self._shunned[given.worker] = now + _SHUNNED_SECONDS
                self._give(self.fleet.array(array), self._idlest(self._believed(workers)), pool)

    def _believed(self, workers: list[str]) -> list[str]:
        """Those who did not let arrays down lately; all, if there are no others."""
        now = time.monotonic()
        return [worker for worker in workers if self._shunned.get(worker, 0.0) < now] or workers

    def _others(self, workers: list[str], array: str) -> list[str]:
        """Than the one with whom an array failed last, if there are any."""
        trouble = self._troubles.get(array)
        return [worker for worker in workers if trouble is None or worker != trouble.worker] or workers

    def _is_due(self, array: str) -> bool:
        return array not in self._troubles or time.monotonic() >= self._troubles[array].again_at

    def loads(self) -> Counter[str]:
        """How many arrays each of them has."""
        return Counter(given.worker for given in self._given.values())

    def _idlest(self, workers: list[str]) -> str:
        loads = self.loads()
        return min(workers, key=lambda worker: loads[worker])

    def _give(self, array: ArrayOfFleet, worker: str, pool: WorkerPool) -> None:
        assignment = Assignment(
            array=array.name,
            ticket=secrets.token_hex(8),
            model=self.models[array.name],
            access=self.fleet.broker.access(),
            places=self.fleet.places,
            choices=self._choices(array),
            checkpoint_seconds=self.fleet.fleet.checkpoint_seconds,
            cache=self.fleet.fleet.cache,
        )
        self._tickets.put(array.name, assignment.ticket.encode())
        task = pool.start(assignment, worker)
        self._given[array.name] = _Given(worker, task, assignment.choices, time.monotonic())

    def _choices(self, array: ArrayOfFleet) -> Choices:
        return self.fleet.decisions.choices(array.mask, array.positions)

    def _balance(
        self, workers: list[str], believed: list[str], pool: WorkerPool, wanted: Mapping[str, ArrayOfFleet]
    ) -> None:
        """Take one array at a time from whoever has two more than another who is believed."""
        loads = self.loads()
        busiest, idlest = max(workers, key=lambda one: loads[one]), self._idlest(believed)
        if loads[busiest] - loads[idlest] > 1:
            name = next(name for name, given in self._given.items() if given.worker == busiest)
            log.info("an array moves", array=name, before=busiest, now=idlest)
            self._give(wanted[name], idlest, pool)

    def let_go(self) -> None:
        """Take all tickets back: workers keep what they know, and stop."""
        for array in self.fleet.arrays:
            self._tickets.delete(array.name)


def first_models(fleet: Fleet) -> dict[str, Path]:
    """Where the model is that each array begins with."""
    if not fleet.arrays:
        raise UsageError(f'{fleet.path} names no array; add [[arrays]] with name = "...", one for each')
    found = {}
    for array in fleet.arrays:
        directory = fleet.model_of(array)
        if directory is None:
            raise UsageError(
                f'array {array.name!r} has no model to begin with; write model = "..." below [fleet], or for the array'
            )
        found[array.name] = directory
    return found


def load_first_models(fleet: Fleet) -> None:
    """What is wrong with one of them is told, whether the broker is there or not."""
    for directory in set(first_models(fleet).values()):
        Model.load(directory)


def _require_same_places(fleet: Fleet, another: Fleet) -> None:
    """Workers who have arrays know no others."""
    if (another.broker, another.places) != (fleet.broker, fleet.places):
        raise SettingsError(
            "[broker] and what [fleet] keeps there (lease, keep_sound, sound_budget, keep_events, keep_passages, "
            "replicas) cannot change while it runs; restart gemmed fleet run"
        )


def hand_in_models(fleet: Fleet, broker: Broker) -> dict[str, str]:
    """The names of the models that arrays begin with, which the broker has from now on."""
    store = ModelStore(fleet.places.models(broker), fleet.fleet.cache or usual_cache())
    first = first_models(fleet)
    known = {directory: store.add(directory).name for directory in set(first.values())}
    return {array: known[directory] for array, directory in first.items()}


def dispatch(
    fleet: Fleet,
    open_pool: Callable[[], WorkerPool],
    *,
    stopping: Callable[[], bool],
    reloaded: Callable[[], Fleet | None] = lambda: None,
) -> LinkError | None:
    """Until somebody wants it to stop. A broker or a scheduler that is away is waited for; why, if it never came."""
    owner, pause = new_owner(), _FIRST_PAUSE
    pool: WorkerPool | None = None
    never_began: LinkError | None = None
    dispatched = False
    try:
        while not stopping():
            try:
                with Broker(fleet.broker.access(), name="gemmed fleet run") as broker:
                    fleet.places.make(broker)
                    lease = _only_one(fleet, broker, owner, stopping)
                    if lease is None:
                        return None
                    with _given_back_if_it_fails(lease):
                        pool = pool or open_pool()
                        dispatcher = Dispatcher(fleet, broker)
                    pause, dispatched = _FIRST_PAUSE, True
                    log.info("dispatching", fleet=fleet.broker.name, arrays=len(fleet.arrays),
                             broker=fleet.broker.address)  # fmt: skip
                    try:
                        _serve(dispatcher, lease, pool, stopping, reloaded)
                    finally:
                        fleet = dispatcher.fleet
            except LeaseLost:
                log.warning("the dispatcher was away for too long; it begins anew")
            except LinkError as error:
                log.error("the fleet is not dispatched", why=str(error), again_in_seconds=pause)
                never_began = error
                if pool is not None and pool.is_lost:
                    pool.close()
                    pool = None
                rest(pause, stopping)
                pause = min(2 * pause, _LONGEST_PAUSE)
    finally:
        if pool is not None:
            pool.close()
    return None if dispatched else never_began


def _only_one(fleet: Fleet, broker: Broker, owner: str, stopping: Callable[[], bool]) -> Lease | None:
    """The right to dispatch; none if somebody wanted it to stop while another one had it."""
    leases = fleet.places.leases(broker)
    lease = Lease(leases, RESERVED, owner, seconds=fleet.places.lease_seconds)
    if lease.take():
        return lease
    seconds = 1.5 * fleet.places.lease_seconds  # one that was killed cannot say so
    until = time.monotonic() + seconds
    log.info("another dispatcher has the fleet; waiting whether it lives", fleet=fleet.broker.name,
             owner=owner_of(leases, RESERVED), seconds=seconds)  # fmt: skip
    while not stopping():
        if lease.take():
            return lease
        if time.monotonic() > until:
            raise UsageError(f"the fleet {fleet.broker.name} is run by {owner_of(leases, RESERVED)} already; stop "
                             "that, or give this one another broker.name")  # fmt: skip
        time.sleep(_LOOK_SECONDS)
    return None


@contextmanager
def _given_back_if_it_fails(lease: Lease) -> Iterator[None]:
    """So that the next start need not wait until it runs out."""
    try:
        yield
    except BaseException:
        with suppress(LinkError):  # what went wrong first is what is told
            lease.release()
        raise


def _serve(
    dispatcher: Dispatcher,
    lease: Lease,
    pool: WorkerPool,
    stopping: Callable[[], bool],
    reloaded: Callable[[], Fleet | None],
) -> None:
    """As long as the connections last."""
    while not stopping():
        if (another := reloaded()) is not None:
            dispatcher.change(another)
        dispatcher.look(pool)
        if lease.is_due:
            lease.renew()
        time.sleep(_LOOK_SECONDS)
    dispatcher.let_go()
    lease.release()
    log.info("all arrays are given back; workers keep what they know for the next start")
