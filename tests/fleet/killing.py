"""A fleet of arrays in which something is killed, or cut off, in the middle of the work."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.transport.nats import Broker
from tests.conftest import eventually
from tests.dask_cluster import Authority, Cluster, tls_options
from tests.fleet.broker import Certificates, Nats
from tests.fleet.fleets import FleetOfTest
from tests.fleet.network import FarMachine


class Story:
    """Everything that takes part, and what can happen to it."""

    def __init__(self, fleet: FleetOfTest, nats: Nats, cluster: Cluster) -> None:
        self.fleet, self.nats, self.cluster = fleet, nats, cluster
        self._heard = 0

    def go_on(self) -> None:
        """Until something more is decided."""
        eventually(
            lambda: self.fleet.n_told() > self._heard + len(self.fleet.arrays) // 2 or self._is_done(), every=0.25
        )
        self._heard = self.fleet.n_told()

    def _is_done(self) -> bool:
        return not any(process.poll() is None for name, process in self.fleet.processes.items() if "publish" in name)

    def worker(self) -> None:
        self.cluster.workers[-1].kill()
        self.cluster.worker()

    def scheduler(self) -> None:
        self.cluster.scheduler.kill()
        self.cluster.scheduler.wait()
        self.cluster.start_scheduler()
        for process in self.cluster.workers:
            process.kill()  # a worker does not outlive its scheduler by much; whoever started it starts it again
        self.cluster.worker()
        self.cluster.worker()

    def broker(self) -> None:
        self.nats.kill()
        self.nats.start()

    def publisher(self) -> None:
        for array in self.fleet.arrays[3:6]:
            self.fleet.kill(f"publish {array}")
            self.fleet.publish(array)

    def dispatcher(self) -> None:
        self.fleet.kill("run")
        self.fleet.run("--engine", "dask", "--scheduler", self.cluster.address)


def survives(tmp_path: Path, model: Path, happenings: list[str], *, n_arrays: int, speed: float) -> None:
    """Whatever happens, each array decides what a local replay of its sound decides, once."""
    with (
        Nats(tmp_path / "nats") as nats,
        Cluster(tmp_path / "dask") as cluster,
        FleetOfTest(tmp_path, nats.access(), model, n_arrays, speed=speed) as fleet,
    ):
        fleet.init()
        cluster.worker()
        cluster.worker()
        fleet.run("--engine", "dask", "--scheduler", cluster.address)
        for array in fleet.arrays:
            fleet.publish(array)
        story = Story(fleet, nats, cluster)
        for happening in happenings:
            story.go_on()
            getattr(story, happening)()
        fleet.finish()


def survives_a_partition(tmp_path: Path, model: Path, *, n_arrays: int) -> None:
    """A machine with a worker and some publishers is cut off for longer than a lease lasts, and comes back.

    Its arrays go to the other worker meanwhile; it finds out when it is back, and what it decided for itself in between
    nobody takes.
    """
    with FarMachine() as far:
        certificates = Certificates.made(tmp_path / "certificates", host=far.here)
        tls = Authority(tmp_path / "authority").certificate("cluster")
        with (
            Nats(tmp_path / "nats", tls=certificates, host=far.here) as nats,
            Cluster(tmp_path / "dask", tls=tls, host=far.here) as cluster,
            FleetOfTest(tmp_path, nats.access(), model, n_arrays, speed=0.7) as fleet,
        ):
            fleet.init()
            cluster.worker(host=far.here)
            cluster.worker(host=far.there, inside=far.inside)
            fleet.run("--engine", "dask", "--scheduler", cluster.address, *tls_options(tls))
            eventually(lambda: len(_owners(fleet)) == n_arrays, every=0.5)
            before = _owners(fleet)
            assert len(set(before.values())) == 2
            for number, array in enumerate(fleet.arrays):
                fleet.publish(array, inside=far.inside if number < 2 else ())
            eventually(lambda: fleet.n_told() > n_arrays, every=0.25)
            far.cut()
            eventually(lambda: _all_belong_to_one(_owners(fleet), n_arrays), every=0.5)
            far.mend()
            fleet.finish()


def _owners(fleet: FleetOfTest) -> dict[str, str]:
    """The process that has each array."""
    with Broker(fleet.access, name="test") as broker:
        leases = fleet.places.leases(broker).all()
    owners = {array: json.loads(entry.value)["owner"] for array, entry in leases.items() if array in fleet.arrays}
    return {array: owner.rpartition(":")[0] for array, owner in owners.items()}


def _all_belong_to_one(owners: dict[str, str], n_arrays: int) -> bool:
    return len(owners) == n_arrays and len(set(owners.values())) == 1


HAPPENINGS: list[str] = ["worker", "scheduler", "broker", "publisher", "dispatcher"]
