"""The dispatcher goes on with the fleet that it was told last, and does not end because of one array or one model."""

from __future__ import annotations

import json
import signal
from threading import Event, Thread

import pytest

from pipeline.core.errors import LinkError
from pipeline.fleet import dispatcher as dispatching
from pipeline.fleet.array_state import Assignment
from pipeline.fleet.config import RESERVED, read_fleet
from pipeline.fleet.dask_workers import DaskWorkerPool, _Submitted
from pipeline.fleet.dispatcher import Dispatcher, dispatch
from pipeline.fleet.lease import Lease, owner_of
from pipeline.fleet.topology import Places
from pipeline.fleet.worker_pool import LocalWorkerPool, TaskResult, _Given
from pipeline.model.model import Model
from pipeline.transport.nats import Access, Broker
from tests.conftest import TIMEOUT, eventually, free_port
from tests.dask_cluster import Cluster
from tests.fleet.broker import Nats
from tests.fleet.fleets import gemmed


class CrewOfTest:
    """Takes every array and never ends."""

    is_lost = False

    def __init__(self) -> None:
        self.given: list[str] = []

    def workers(self) -> list[str]:
        return ["one"]

    def start(self, assignment: Assignment, worker: str) -> _Given:
        self.given.append(assignment.array)
        return _Given()

    def close(self) -> None:
        pass


def fleet_of(directory, nats, model, names, lease="2 s"):
    file = directory / "fleet.toml"
    arrays = "".join(f'[[arrays]]\nname = "{name}"\n' for name in names)
    file.write_text(f'[fleet]\nlease = "{lease}"\nmodel = "{model}"\n[broker]\naddress = "{nats.address}"\n{arrays}')
    return read_fleet(file)


def test_a_fleet_that_was_read_again_outlives_the_broker(tmp_path, model):
    with Nats(tmp_path / "nats") as nats:
        first = fleet_of(tmp_path, nats, model, ["north"])
        second = fleet_of(tmp_path, nats, model, ["south"])
        pool, others, stopped = CrewOfTest(), [second], []
        thread = Thread(
            target=dispatch,
            args=(first, lambda: pool),
            kwargs={
                "stopping": lambda: bool(stopped),
                "reloaded": lambda: others.pop() if pool.given and others else None,
            },
        )
        thread.start()
        eventually(lambda: "south" in pool.given)
        pool.given.clear()
        nats.kill()
        nats.start()
        eventually(lambda: pool.given)
        stopped.append(True)
        thread.join(TIMEOUT)
        assert set(pool.given) == {"south"}


def test_a_model_that_cannot_be_used_leaves_the_fleet_as_it_was(tmp_path, model):
    with Nats(tmp_path / "nats") as nats, Broker(nats.access(), name="test") as broker:
        fleet = fleet_of(tmp_path, nats, model, ["north"])
        fleet.places.make(broker)
        dispatcher = Dispatcher(fleet, broker)
        dispatcher.change(fleet_of(tmp_path, nats, tmp_path / "nowhere", ["north", "south"]))
        assert dispatcher.fleet is fleet
        assert set(dispatcher.models) == {"north"}


@pytest.mark.parametrize("changed", ['lease = "2 s"', 'keep_sound = "1 d"', "[broker]"])
def test_what_cannot_change_while_it_runs_leaves_the_fleet_as_it_was(tmp_path, model, changed, caplog):
    with Nats(tmp_path / "nats") as nats, Broker(nats.access(), name="test") as broker:
        fleet = fleet_of(tmp_path, nats, model, ["north"])
        fleet.places.make(broker)
        dispatcher = Dispatcher(fleet, broker)
        text = fleet.path.read_text().replace("[fleet]", '[fleet]\nkeep_sound = "1 d"')
        other = {'lease = "2 s"': 'lease = "30 s"', 'keep_sound = "1 d"': 'keep_sound = "2 d"'}
        text = text.replace(changed, other.get(changed, '[broker]\nname = "another"'))
        fleet.path.write_text(text + '[[arrays]]\nname = "south"\n')
        dispatcher.change(read_fleet(fleet.path))
        assert dispatcher.fleet is fleet
        assert "cannot change while it runs; restart gemmed fleet run" in str(caplog.records[-1].__dict__)


def test_a_fleet_that_was_read_again_while_the_broker_is_away_counts(tmp_path, model):
    with Nats(tmp_path / "nats") as nats, Broker(nats.access(), name="test", seconds=1.0) as broker:
        fleet = fleet_of(tmp_path, nats, model, ["north"])
        fleet.places.make(broker)
        dispatcher = Dispatcher(fleet, broker)
        nats.kill()
        another = fleet_of(tmp_path, nats, model, ["north", "south"])
        with pytest.raises(LinkError):
            dispatcher.change(another)
        assert dispatcher.fleet is another


def test_a_result_that_nobody_can_fetch_is_not_waited_for(tmp_path):
    """A worker gives an array back and is cut off: all the other arrays must still be looked after."""
    with Cluster(tmp_path / "dask") as cluster:
        lost = cluster.worker()
        cluster.worker()
        pool = DaskWorkerPool(cluster.address, None)
        try:
            known = pool._client.scheduler_info(n_workers=-1)["workers"]
            (worker,) = [address for address, about in known.items() if str(about["name"]) == "0"]
            task = _Submitted(
                pool._client.submit(TaskResult, "given back", workers=[worker], allow_other_workers=False)
            )
            eventually(lambda: task.future.status == "finished")
            lost.send_signal(signal.SIGSTOP)
            asked = Thread(target=task.outcome, daemon=True)
            asked.start()
            asked.join(TIMEOUT)
            assert not asked.is_alive()
        finally:
            pool.close()


def test_a_model_is_read_once_for_all_arrays(tmp_path, model, monkeypatch):
    read = []
    load = Model.load
    monkeypatch.setattr(Model, "load", lambda directory: read.append(directory) or load(directory))
    with Nats(tmp_path / "nats") as nats, Broker(nats.access(), name="test") as broker:
        fleet = fleet_of(tmp_path, nats, model, [f"a{number}" for number in range(50)])
        fleet.places.make(broker)
        assert len(Dispatcher(fleet, broker).models) == 50
    assert len(read) == 1


def test_an_array_given_to_a_worker_that_just_died_is_given_again():
    pool = LocalWorkerPool(1)
    (worker,) = pool.workers()
    try:
        pool._workers[worker].process.kill()
        pool._workers[worker].process.join()
        assignment = Assignment(array="north", ticket="1", model="", access=Access(), places=Places())
        pool.start(assignment, worker)
        assert worker not in pool.workers()
    finally:
        pool.close()


def test_it_stops_at_once_while_it_waits_for_the_broker(tmp_path, model, monkeypatch):
    monkeypatch.setattr(dispatching, "_FIRST_PAUSE", 60.0)
    refused, stopped = Event(), Event()

    def no_crew():
        refused.set()
        raise LinkError("nobody")

    with Nats(tmp_path / "nats") as nats:
        fleet = fleet_of(tmp_path, nats, model, ["north"])
        thread = Thread(target=dispatch, args=(fleet, no_crew), kwargs={"stopping": stopped.is_set}, daemon=True)
        thread.start()
        assert refused.wait(TIMEOUT)
        stopped.set()
        thread.join(TIMEOUT)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("number", "options"), [(signal.SIGTERM, ()), (signal.SIGINT, ()), (None, ("--for", "1"))], ids=str
)
def test_a_dispatcher_that_waits_for_another_says_so_and_can_be_stopped(tmp_path, model, number, options):
    """By a signal or the end of its time; until then it has dispatched nothing, and does not say so."""
    told = tmp_path / "run.log"
    with Nats(tmp_path / "nats") as nats, Broker(nats.access(), name="test") as broker:
        fleet = fleet_of(tmp_path, nats, model, ["north"], lease="60 s")  # longer than anybody here waits
        fleet.places.make(broker)
        assert Lease(fleet.places.leases(broker), RESERVED, "somebody:7:abc", seconds=60).take()
        process = gemmed("fleet", "run", fleet.path, "--jobs", 1, *options, log=told)
        eventually(lambda: process.poll() is not None or "another dispatcher" in told.read_text())
        if number is not None:
            process.send_signal(number)
        assert process.wait(TIMEOUT) == 0, told.read_text()
        assert owner_of(fleet.places.leases(broker), RESERVED) == "somebody:7:abc"
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    waiting = "another dispatcher has the fleet; waiting whether it lives"
    assert [line["message"] for line in lines] == [waiting, "stopped"]
    assert lines[0]["fields"] == {"fleet": "gemmed", "owner": "somebody:7:abc", "seconds": 90.0}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[fleet]\nmodel = "{model}"\n', "fleet.toml names no array; add [[arrays]] with name = "),
        ('[[arrays]]\nname = "north"\n', "array 'north' has no model to begin with"),
        ('[fleet]\nmodel = "missing"\n[[arrays]]\nname = "north"\n', "missing"),
    ],
)
def test_what_is_wrong_with_a_fleet_is_told_also_while_the_broker_is_away(tmp_path, model, text, told):
    file = tmp_path / "fleet.toml"
    file.write_text(f'{text.format(model=model)}[broker]\naddress = "nats://127.0.0.1:{free_port()}"\n')
    process = gemmed("fleet", "run", file, log=tmp_path / "run.log")
    assert process.wait(TIMEOUT) == 1
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert len(lines) == 1
    assert told in lines[0]


def test_a_fleet_whose_time_is_over_before_the_broker_came_has_failed(tmp_path, model):
    file = tmp_path / "fleet.toml"
    address = f"nats://127.0.0.1:{free_port()}"
    file.write_text(f'[fleet]\nmodel = "{model}"\n[broker]\naddress = "{address}"\n[[arrays]]\nname = "north"\n')
    process = gemmed("fleet", "run", file, "--for", 1, log=tmp_path / "run.log")
    assert process.wait(TIMEOUT) == 1
    assert f"gemmed: broker {address} cannot be reached; start it" in (tmp_path / "run.log").read_text()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
