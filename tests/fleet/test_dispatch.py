"""Every array has one worker, whoever comes and goes, and whatever happens to other arrays or to the dispatcher."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from pipeline.core.errors import LinkError, ModelError, UsageError
from pipeline.core.events import Block
from pipeline.fleet.array_state import Assignment
from pipeline.fleet.config import RESERVED, Fleet, read_fleet
from pipeline.fleet.dispatcher import Dispatcher, dispatch
from pipeline.fleet.lease import owner_of
from pipeline.fleet.worker import HANDED_OVER
from pipeline.fleet.worker_pool import TaskResult, outcome_of
from pipeline.transport.wire import unpacked
from tests.conftest import eventually
from tests.fleet.fleets import TIMEOUT, recordings_of
from tests.fleet.hosted import Stage

LEASE_SECONDS = 10.0
BRIEF_SECONDS = 5.0
runs_out = pytest.mark.parametrize("lease_seconds", [BRIEF_SECONDS])
"""For tests in which somebody's lease has to."""


class _Killed(BaseException):
    """Nobody on the way catches it."""


@dataclass
class _Worker:
    frozen: Event = field(default_factory=Event)
    buried: Event = field(default_factory=Event)

    def is_stopping(self) -> bool:
        """Whoever is killed never hears the answer: he renews, keeps and gives back nothing any more."""
        if self.frozen.is_set():
            self.buried.wait(TIMEOUT)
            raise _Killed
        return self.buried.is_set()


@dataclass
class _Task:
    assignment: Assignment
    worker: _Worker
    began_at: float = field(default_factory=time.monotonic)
    ended: TaskResult | None = None
    thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with suppress(_Killed):
            self.ended = outcome_of(self.assignment, self.worker.is_stopping)

    def outcome(self) -> TaskResult | None:
        return self.ended


class Threads:
    """Workers as threads of this process, who live on when a dispatcher closes its pool, as those of a cluster do."""

    is_lost = False

    def __init__(self, *names: str) -> None:
        self._workers: dict[str, _Worker] = {}
        self._all: list[_Worker] = []
        self.tasks: list[_Task] = []
        for name in names:
            self.hire(name)

    def hire(self, name: str) -> None:
        self._workers[name] = _Worker()
        self._all.append(self._workers[name])

    def freeze(self, name: str) -> None:
        """He does nothing any more, and everybody believes him to be there."""
        self._workers[name].frozen.set()

    def kill(self, name: str) -> None:
        self.freeze(name)
        del self._workers[name]

    def workers(self) -> list[str]:
        return list(self._workers)

    def start(self, assignment: Assignment, worker: str) -> _Task:
        self.tasks.append(_Task(assignment, self._workers[worker]))
        return self.tasks[-1]

    def of(self, array: str) -> list[_Task]:
        return [task for task in self.tasks if task.assignment.array == array]

    def close(self) -> None:
        pass

    def bury(self) -> None:
        for worker in self._all:
            worker.buried.set()
        for task in self.tasks:
            task.thread.join(TIMEOUT)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """One is enough for whoever shall have it."""
    return recordings_of(0, tmp_path_factory.mktemp("sound") / "north", count=1)


@pytest.fixture
def lease_seconds() -> float:
    return LEASE_SECONDS


@pytest.fixture
def stage(nats, tmp_path, model, lease_seconds):
    return Stage(nats, tmp_path, model, lease_seconds=lease_seconds)


@pytest.fixture
def fleet_of(stage, tmp_path, model, lease_seconds) -> Callable[..., Fleet]:
    """A fleet of so many letters; an array may have a model of its own."""

    def made(letters: str, masked: int | None = None, **models: Path) -> Fleet:
        arrays = ""
        for letter in letters:
            arrays += f'[[arrays]]\nname = "{letter}"\n'
            arrays += f'model = "{models[letter]}"\n' if letter in models else ""
            arrays += f"mask = [{masked}]\n" if masked else ""
        file = tmp_path / "fleet.toml"
        file.write_text(
            f'[fleet]\nmodel = "{model}"\nlease = "{lease_seconds:g} s"\ncheckpoint = "1 s"\ncache = "{stage.cache}"\n'
            f'[broker]\naddress = "{stage.nats.address}"\n{arrays}'
        )
        return read_fleet(file)

    return made


@pytest.fixture
def pool():
    made = Threads("first", "second")
    yield made
    made.bury()


def look_until(dispatcher: Dispatcher, pool: Threads, holds: Callable[[], object]) -> None:
    def looked() -> object:
        dispatcher.look(pool)
        return holds()

    eventually(looked, every=0.1)


def heard(stage: Stage, letters: str) -> bool:
    """Whether somebody has heard all that was published of these arrays: the sample outlasts a handover."""
    log = stage.places.sound
    with stage.broker() as broker:
        last = {letter: unpacked(broker.last(log.stream, log.subject(letter)).data).fact for letter in letters}
    stops = {letter: fact.stop if isinstance(fact, Block) else fact.samples for letter, fact in last.items()}
    return all(stage.status(letter).get("sample") == stops[letter] for letter in letters)


def at_the_latest() -> Callable[[], bool]:
    """Stops a dispatcher that should have ended by itself long ago."""
    until = time.monotonic() + TIMEOUT
    return lambda: time.monotonic() > until


def held(stage: Stage) -> set[str]:
    with stage.broker() as broker:
        return set(stage.places.leases(broker).keys())


class Dispatching:
    """A dispatcher as it runs for a user, until it is stopped."""

    def __init__(self, fleet: Fleet, pool: Threads) -> None:
        self.another: Fleet | None = None
        self._stopped = False
        self._raised: BaseException | None = None
        self._thread = Thread(target=self._run, args=(fleet, pool), daemon=True)
        self._thread.start()

    def _run(self, fleet: Fleet, pool: Threads) -> None:
        try:
            dispatch(fleet, lambda: pool, stopping=lambda: self._stopped, reloaded=self._reloaded)
        except BaseException as error:
            self._raised = error

    def _reloaded(self) -> Fleet | None:
        another, self.another = self.another, None
        return another

    def reload(self, fleet: Fleet) -> None:
        self.another = fleet
        eventually(lambda: self.another is None, every=0.05)

    def __enter__(self) -> Dispatching:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped = True
        self._thread.join(TIMEOUT)
        if self._raised is not None:
            raise self._raised


def test_all_arrays_are_given_evenly_and_one_who_comes_later_gets_his_share(stage, pool, fleet_of, sound, expected):
    place = len(sound) // 2
    for letter in "abcdef":
        stage.publish(letter, sound[:place])
    with stage.broker() as broker:
        dispatcher = Dispatcher(fleet_of("abcdef"), broker)
        look_until(dispatcher, pool, lambda: dispatcher.loads() == Counter(first=3, second=3))
        look_until(dispatcher, pool, lambda: heard(stage, "abcdef"))
        assert len(pool.tasks) == 6
        pool.hire("third")
        look_until(dispatcher, pool, lambda: dispatcher.loads() == Counter(first=2, second=2, third=2))
        for letter in "abcdef":
            stage.publish(letter, sound[place:])
        look_until(dispatcher, pool, lambda: heard(stage, "abcdef"))
        assert len(pool.tasks) == 8  # no more moved than had to
        look_until(
            dispatcher, pool, lambda: [task.ended for task in pool.tasks if task.ended] == [TaskResult(HANDED_OVER)] * 2
        )
    for letter in "abcdef":
        assert stage.decided(letter, len(expected)) == expected


@runs_out
def test_the_arrays_of_one_who_dies_are_given_to_others(stage, pool, fleet_of, sound, expected):
    """Nobody is there for a while, too: they wait."""
    place = len(sound) // 2
    for letter in "abcd":
        stage.publish(letter, sound[:place])
    with stage.broker() as broker:
        dispatcher = Dispatcher(fleet_of("abcd"), broker)
        look_until(dispatcher, pool, lambda: heard(stage, "abcd"))
        pool.kill("first")
        for letter in "abcd":
            stage.publish(letter, sound[place : place + 3])
        look_until(dispatcher, pool, lambda: dispatcher.loads() == Counter(second=4))
        pool.kill("second")
        dispatcher.look(pool)
        assert not dispatcher.loads()
        pool.hire("third")
        look_until(dispatcher, pool, lambda: dispatcher.loads() == Counter(third=4))
        for letter in "abcd":
            stage.publish(letter, sound[place + 3 :])
        look_until(dispatcher, pool, lambda: heard(stage, "abcd"))
    for letter in "abcd":
        assert stage.decided(letter, len(expected)) == expected


@runs_out
def test_one_who_does_not_take_up_his_arrays_is_passed_over(stage, pool, fleet_of, sound, expected):
    for letter in "abcd":
        stage.publish(letter, sound)
    pool.freeze("first")
    with stage.broker() as broker:
        dispatcher = Dispatcher(fleet_of("abcd"), broker)
        look_until(dispatcher, pool, lambda: dispatcher.loads() == Counter(first=2, second=2))
        look_until(dispatcher, pool, lambda: dispatcher.loads() == Counter(second=4))
        look_until(dispatcher, pool, lambda: heard(stage, "abcd"))
        assert dispatcher.loads() == Counter(second=4)
    for letter in "abcd":
        assert stage.decided(letter, len(expected)) == expected


def test_an_array_that_nobody_took_up_can_be_removed(stage, pool, fleet_of):
    pool.freeze("first")
    with stage.broker() as broker:
        dispatcher = Dispatcher(fleet_of("ab"), broker)
        look_until(dispatcher, pool, lambda: dispatcher.loads() == Counter(first=1, second=1))
        dispatcher._given["a"].seen_at -= 10 * LEASE_SECONDS
        dispatcher._looked_at -= 10 * LEASE_SECONDS
        dispatcher.change(fleet_of("b"))
        dispatcher.look(pool)
        assert sum(dispatcher.loads().values()) == 1
        assert stage.places.tickets(broker).get("a") is None


def test_an_array_that_fails_is_tried_again_ever_later_while_the_others_go_on(stage, pool, fleet_of, sound, expected):
    for letter in "abc":
        stage.publish(letter, sound)
    with stage.broker() as broker:
        checkpoints = stage.places.checkpoints(broker)
        checkpoints.put("a", b"GEMMED nonsense" * 9)
        dispatcher = Dispatcher(fleet_of("abc"), broker)
        look_until(dispatcher, pool, lambda: sum(task.ended is not None for task in pool.of("a")) == 3)
        tasks = pool.of("a")
        assert all(task.ended.failed and "stored state" in task.ended.why for task in tasks)
        assert "stored state" in stage.status("a")["failed"]
        pauses = [after.began_at - before.began_at for before, after in pairwise(tasks)]
        assert pauses[0] >= 1.0
        assert pauses[1] >= 2.0
        look_until(dispatcher, pool, lambda: heard(stage, "bc"))
        assert len(pool.of("b")) == len(pool.of("c")) == 1
        for letter in "bc":
            assert stage.decided(letter, len(expected)) == expected
        assert stage.told("a") == []
        checkpoints.delete("a")
        look_until(dispatcher, pool, lambda: heard(stage, "a"))
        assert stage.decided("a", len(expected)) == expected
        stage.until_status("a", lambda status: status["failed"] is None)


class _Failing(Threads):
    """One of whom has another gemmed, and fails with whatever he is given."""

    def __init__(self, bad: str, *others: str) -> None:
        super().__init__(bad, *others)
        self._bad = bad
        self.failed: list[str] = []

    def start(self, assignment: Assignment, worker: str) -> _Task:
        if worker != self._bad:
            return super().start(assignment, worker)
        self.failed.append(assignment.array)
        return SimpleNamespace(outcome=lambda: TaskResult("another gemmed", failed=True))  # type: ignore[return-value]


def test_a_worker_with_whom_everything_fails_does_not_draw_all_arrays(stage, fleet_of, sound, expected):
    """He is always idle; but after two of them the others get all."""
    pool = _Failing("bad", "good", "better")
    for letter in "abcd":
        stage.publish(letter, sound)
    try:
        with stage.broker() as broker:
            dispatcher = Dispatcher(fleet_of("abcd"), broker)
            look_until(dispatcher, pool, lambda: heard(stage, "abcd"))
            assert dispatcher.loads() == {"good": 2, "better": 2}
            for _ in range(20):
                dispatcher.look(pool)
            assert len(pool.failed) == 2
            pool.hire("new")
            pool.hire("newer")
            look_until(dispatcher, pool, lambda: len(dispatcher.loads()) == 4)
        for letter in "abcd":
            assert stage.decided(letter, len(expected)) == expected
    finally:
        pool.bury()


@runs_out
def test_arrays_come_and_go_while_it_runs(stage, pool, fleet_of, nats, sound, expected, tmp_path):
    """A fleet that cannot be used changes nothing; one that can outlasts the broker."""
    for letter in "abc":
        stage.publish(letter, sound)
    with Dispatching(fleet_of("ab"), pool) as dispatching:
        eventually(lambda: held(stage) == {"a", "b", RESERVED}, every=0.1)
        dispatching.reload(fleet_of("bc", c=tmp_path / "nowhere"))
        dispatching.reload(fleet_of("bc"))
        eventually(lambda: held(stage) == {"b", "c", RESERVED}, every=0.1)
        eventually(lambda: pool.of("a")[-1].ended == TaskResult(HANDED_OVER), every=0.1)
        assert len(pool.of("b")) == 1
        nats.kill()
        nats.start()
        eventually(lambda: len(pool.of("b")) > 1, every=0.1)
        eventually(lambda: len(pool.of("c")) > 1, every=0.1)
        assert len(pool.of("a")) == 1
        dispatching.reload(fleet_of("abc"))
        for letter in "abc":
            assert stage.decided(letter, len(expected)) == expected
    eventually(lambda: held(stage) == set(), every=0.1)  # all were let go
    eventually(lambda: all(task.ended == TaskResult(HANDED_OVER) for task in pool.tasks), every=0.1)


def test_a_mask_takes_effect_while_it_runs(stage, pool, fleet_of, sound):
    """The worker of the array has it again, and tells that its chain begins anew."""
    stage.publish("a", sound[:10])
    with Dispatching(fleet_of("a"), pool) as dispatching:
        eventually(lambda: heard(stage, "a"))
        dispatching.reload(fleet_of("a", masked=2))
        eventually(lambda: "chain_restarted" in [event["type"] for event in stage.told("a")])
        dispatching.reload(fleet_of("a", masked=2))
        stage.publish("a", sound[10:])
        eventually(lambda: heard(stage, "a"))
    first, second = pool.of("a")
    assert first.ended == TaskResult(HANDED_OVER)
    assert second.worker is first.worker
    roles = [event["roles"][1] for event in stage.told("a") if event["type"] == "decision"]
    assert roles[0] == "used"
    assert roles[-1] == "off"


def test_a_second_dispatcher_is_refused_and_told_of_the_first(stage, pool, fleet_of):
    with Dispatching(fleet_of("a"), pool):
        eventually(lambda: held(stage) == {"a", RESERVED}, every=0.1)
        with stage.broker() as broker:
            first = owner_of(stage.places.leases(broker), RESERVED)
        another = Threads("other")
        with pytest.raises(UsageError) as refused:
            dispatch(fleet_of("a"), lambda: another, stopping=at_the_latest())
        assert f"the fleet gemmed is run by {first} already; stop that" in str(refused.value)
        assert not another.tasks
        assert len(pool.tasks) == 1


def test_a_start_that_fails_leaves_the_fleet_to_the_next_one(stage, pool, fleet_of, tmp_path):
    """A model that is not there, and workers that are not there while somebody wants it to stop."""
    with pytest.raises(ModelError):
        dispatch(fleet_of("a", a=tmp_path / "nowhere"), lambda: pool, stopping=at_the_latest())
    assert held(stage) == set()
    refused = Event()

    def nobody() -> Threads:
        refused.set()
        raise LinkError("no workers")

    dispatch(fleet_of("a"), nobody, stopping=refused.is_set)
    assert held(stage) == set()


def test_workers_go_on_without_a_dispatcher_and_hand_over_to_those_of_the_next(stage, pool, fleet_of, sound, expected):
    """Nothing is decided twice."""
    third = len(sound) // 3
    parts = sound[:third], sound[third : 2 * third], sound[2 * third :]
    for letter in "abcd":
        stage.publish(letter, parts[0])
    with stage.broker() as broker:
        dispatcher = Dispatcher(fleet_of("abcd"), broker)
        look_until(dispatcher, pool, lambda: heard(stage, "abcd"))
        before = list(pool.tasks)
    # He and his connection are gone.
    for letter in "abcd":
        stage.publish(letter, parts[1])
    eventually(lambda: heard(stage, "abcd"), every=0.1)
    assert all(task.ended is None for task in before)
    with stage.broker() as broker:
        dispatcher = Dispatcher(fleet_of("abcd"), broker)
        dispatcher.look(pool)
        for letter in "abcd":
            stage.publish(letter, parts[2])
        look_until(dispatcher, pool, lambda: all(task.ended == TaskResult(HANDED_OVER) for task in before))
        look_until(dispatcher, pool, lambda: heard(stage, "abcd"))
        assert len(pool.tasks) == 8
    for letter in "abcd":
        assert stage.decided(letter, len(expected)) == expected


def test_an_array_that_was_removed_while_nobody_dispatched_is_let_go(stage, pool, fleet_of):
    with stage.broker() as broker:
        look_until(Dispatcher(fleet_of("ab"), broker), pool, lambda: held(stage) == {"a", "b"})
    with stage.broker() as broker:
        dispatcher = Dispatcher(fleet_of("b"), broker)
        look_until(dispatcher, pool, lambda: held(stage) == {"b"})
    eventually(lambda: [task.ended for task in pool.of("a")] == [TaskResult(HANDED_OVER)], every=0.1)
