"""The same work by a cluster of processes: the same bytes, whoever dies, and an error for everything that cannot be."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from rich.console import Console

from pipeline.core.choices import Choices
from pipeline.core.errors import LinkError, UsageError
from pipeline.experiments.corpus import SimulatedSubjects, features_of
from pipeline.experiments.ring import quick_plan, run_task
from pipeline.experiments.run import measured
from pipeline.reports.replay import Replay, replay
from pipeline.runtime import dask_pool
from pipeline.runtime.dask_pool import DaskEngine, Tls, checked_scheduler, checked_tls, connect, joined
from pipeline.runtime.process_pool import ThisProcess, progress_bar
from pipeline.sources.files import find_recordings
from pipeline.storage.decision_file import DecisionFile
from tests.arrays import ARRAY
from tests.conftest import TIMEOUT, component, eventually, free_port
from tests.dask_cluster import ROOT, Authority, Cluster, end_the_process, tls_options
from tests.forked import Process, gemmed

Value = TypeVar("Value")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    """Two workers, one of which takes two tasks at once."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        found.worker()
        found.worker(threads=2)
        yield found


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """Enough recordings for somebody to die in the middle of them."""
    place = tmp_path_factory.mktemp("many")
    for number in range(2):
        for path in sorted(ARRAY.glob("*.flac")):
            (place / f"{number:02d}_{path.name}").symlink_to(path)
    return place


@pytest.fixture(scope="module")
def decided(model, many, tmp_path_factory) -> bytes:
    """What this process alone decides about them."""
    return decided_here(model, many, tmp_path_factory.mktemp("many") / "decisions.jsonl")


@pytest.fixture(scope="module")
def decided_array(model, tmp_path_factory) -> bytes:
    """The same of the stored recordings."""
    return decided_here(model, ARRAY, tmp_path_factory.mktemp("array") / "decisions.jsonl")


def decided_here(model: Path, recordings: Path, out: Path) -> bytes:
    task, listing = Replay(model, Choices()), find_recordings(recordings)
    with DecisionFile(out, task.header(listing)) as file, progress_bar(Console(quiet=True)) as bar:
        replay(task, listing, file, engine=ThisProcess(), bar=bar)
    return out.read_bytes()


def on(cluster: Cluster) -> tuple[str, ...]:
    return ("--engine", "dask", "--scheduler", cluster.address)


def test_a_replay_gives_the_same_bytes(cluster, model, many, decided, tmp_path):
    """Also from a worker with two threads; the command says how many there are, and leaves nothing but its file."""
    out = tmp_path / "decisions.jsonl"
    done = gemmed("replay", str(many), "--model", str(model), "--out", str(out), *on(cluster))
    assert done.returncode == 0, done.stderr
    assert f"dask: 2 workers at {cluster.address}; 1 of their threads stay idle" in done.stderr
    assert out.read_bytes() == decided
    assert list(tmp_path.iterdir()) == [out]


def test_paths_may_be_relative(cluster, model, decided_array, tmp_path):
    """Workers were started in another directory."""
    (tmp_path / "field").symlink_to(ARRAY)
    command = ["replay", "field", "--model", os.path.relpath(model, tmp_path), "--out", "-", *on(cluster)]
    process = Process(command, stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.communicate(TIMEOUT)[0] == decided_array


def test_training_gives_the_same_model(cluster, model, tmp_path):
    """Hearing and folds by the cluster; the identity is that of all bytes. Workers know of no limit to BLAS threads."""
    out = tmp_path / "model"
    labels = str(ARRAY / "labels.csv")
    done = gemmed("train", str(ARRAY), "--labels", labels, "--model", str(out), "--folds", "2", *on(cluster))
    assert done.returncode == 0, done.stderr
    for name in ("model.json", "arrays.npz"):
        assert (out / name).read_bytes() == (model / name).read_bytes()


def test_health_gives_the_same_bytes(cluster, tmp_path):
    """What is usual is learned from others, who may be on another machine."""
    for name, options in (("local", ()), ("dask", on(cluster))):
        out = ("--out", str(tmp_path / f"{name}.html"), "--json", str(tmp_path / f"{name}.json"))
        done = gemmed("health", str(ARRAY), *out, *options)
        assert done.returncode == 0, done.stderr
    for kind in ("html", "json"):
        assert (tmp_path / f"local.{kind}").read_bytes() == (tmp_path / f"dask.{kind}").read_bytes()


def test_evaluation_spreads_its_replay(cluster, model, decided_array, tmp_path):
    """What it decides is what this process decides; decisions that are there have nothing to be spread."""
    labels = ("--labels", str(ARRAY / "labels.csv"))
    done = gemmed("evaluate", str(ARRAY), "--model", str(model), *labels, "--out", str(tmp_path), *on(cluster))
    assert done.returncode == 0, done.stderr
    (decisions,) = tmp_path.glob("*.jsonl")
    assert decisions.read_bytes() == decided_array
    done = gemmed("evaluate", str(decisions), *labels, *on(cluster))
    assert done.returncode == 1
    assert "spreads a replay, and" in done.stderr


def test_the_ring_gives_the_same_trials(cluster, tmp_path):
    """In whatever order they come."""
    plan = quick_plan(2, 1)
    tasks = [task for task in plan.tasks() if task.step_name][:2]
    work, console = partial(run_task, seed=1), Console(quiet=True)
    with joined(cluster.address) as engine:
        for name, workers in (("here", ThisProcess()), ("dask", engine)):
            measured(plan.as_dict(), tasks, work, tmp_path / name, engine=workers, restart=False, console=console)
    stored = [sorted((tmp_path / name / "trials.jsonl").read_text().splitlines()) for name in ("here", "dask")]
    assert stored[0] == stored[1]
    assert len(stored[0]) == 1 + len(tasks) == 3


def test_footsteps_need_no_worker_that_writes(cluster, tmp_path):
    """Cepstra come back to the command, which writes them, the same bytes."""
    origin, console = SimulatedSubjects(1, 1, 1), Console(quiet=True)
    with joined(cluster.address) as engine:
        folders = [
            features_of(origin, tmp_path / name, engine=workers, console=console)[0]
            for name, workers in (("here", ThisProcess()), ("dask", engine))
        ]
    written = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert written[0] == written[1] != {}


def test_a_worker_that_is_killed_costs_nothing(model, many, decided, tmp_path):
    """SIGKILL of one of two in the middle: the other does its work."""
    out = tmp_path / "decisions.jsonl"
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.worker(), cluster.worker()
        process = started_replay(many, model, out, cluster)
        cluster.workers[0].kill()
        process.send_signal(signal.SIGCONT)
        _, told = process.communicate()
        assert process.returncode == 0, told
    assert out.read_bytes() == decided


def test_a_lost_scheduler_is_told_and_the_same_command_continues(model, many, decided, tmp_path):
    """SIGKILL in the middle, then another one."""
    out = tmp_path / "decisions.jsonl"
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.worker(), cluster.worker()
        process = started_replay(many, model, out, cluster)
        cluster.scheduler.kill()
        process.send_signal(signal.SIGCONT)
        _, told = process.communicate()
        assert process.returncode == 1
        assert f"gemmed: the scheduler {cluster.address} was lost; start it, and the same command again" in told
        assert "Traceback" not in told
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.worker(), cluster.worker()
        done = gemmed("replay", str(many), "--model", str(model), "--out", str(out), *on(cluster))
    assert done.returncode == 0, done.stderr
    assert "continuing:" in done.stdout
    assert out.read_bytes() == decided


def test_ctrl_c_cancels_and_the_same_command_continues(cluster, model, many, decided, tmp_path):
    """The cluster forgets what had not begun; another engine goes on with the file."""
    out = tmp_path / "decisions.jsonl"
    process = started_replay(many, model, out, cluster)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert "gemmed: interrupted; the same command continues" in told
    assert "Traceback" not in told
    with joined(cluster.address) as engine:
        assert not any(engine.client.processing().values())
    assert gemmed("replay", str(many), "--model", str(model), "--out", str(out)).returncode == 0
    assert out.read_bytes() == decided


def n_finished(decisions: Path) -> int:
    return decisions.read_bytes().count(b"_finished")


def started_replay(recordings: Path, model: Path, out: Path, cluster: Cluster) -> Process:
    """A replay by the cluster, of which some recordings are decided; it stands still until it is sent SIGCONT."""
    command = ["replay", str(recordings), "--model", str(model), "--out", str(out), *on(cluster)]

    def begun() -> Process | None:
        process = Process(command, stderr=subprocess.PIPE, text=True)
        eventually(lambda: process.poll() is not None or (out.exists() and n_finished(out) > 1), every=0.005)
        process.send_signal(signal.SIGSTOP)
        if b"replay_finished" not in out.read_bytes():
            return process
        # It was over before anybody looked: it is begun anew.
        process.send_signal(signal.SIGCONT)
        _, told = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, told
        out.unlink()
        return None

    return eventually(begun, "it is caught in the middle")


def test_what_kills_its_workers_is_named(tmp_path):
    """The recording stands in the error, and the scheduler gives up by its own limit."""
    limit = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    with Cluster(tmp_path, settings=limit) as cluster:
        cluster.worker(), cluster.worker()
        with (
            joined(cluster.address) as engine,
            pytest.raises(LinkError, match="r007: 2 workers died while they worked"),
        ):
            list(engine.finished(end_the_process, [SimpleNamespace(name="r007")]))


def states(dask_scheduler: Any) -> list[str]:
    """Of all tasks that a scheduler knows."""
    return [task.state for task in dask_scheduler.tasks.values()]


def finished_and_gone(cluster: Cluster, engine: DaskEngine) -> Iterator[tuple[int, int]]:
    """What is left of three tasks after the only worker did all of them, gave out one, and was killed."""
    results = engine.finished(abs, [-1, -2, -3])
    assert next(results) in {(-1, 1), (-2, 2), (-3, 3)}
    eventually(lambda: set(engine.client.run_on_scheduler(states)) == {"memory"})
    cluster.workers[-1].kill()
    eventually(lambda: not engine.client.nthreads())
    return results


def test_results_that_went_with_the_last_worker_are_not_waited_for_forever(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.runtime.dask_pool.WITHOUT_WORKERS_SECONDS", 0.0)
    with Cluster(tmp_path) as cluster:
        cluster.worker()
        with joined(cluster.address) as engine:
            results = finished_and_gone(cluster, engine)
            with pytest.raises(LinkError, match=r"no worker is left at .*; start some, and the same command again"):
                in_time(lambda: list(results))


def test_results_that_went_with_a_worker_are_made_again_by_the_next(tmp_path):
    with Cluster(tmp_path) as cluster:
        cluster.worker()
        with joined(cluster.address) as engine:
            results = finished_and_gone(cluster, engine)
            cluster.worker()
            assert len(in_time(lambda: list(results))) == 2


def in_time(work: Callable[[], Value]) -> Value:
    """What comes of it; it must not take forever."""
    asked: Future[Value] = Future()

    def answer() -> None:
        try:
            asked.set_result(work())
        except BaseException as error:
            asked.set_exception(error)

    Thread(target=answer, daemon=True).start()
    return asked.result(TIMEOUT)


def test_errors_of_the_work_come_back(cluster):
    """As if it had been done here."""
    with joined(cluster.address) as engine:
        with pytest.raises(ValueError, match="invalid literal for int"):
            list(engine.finished(int, ["x"]))
        with pytest.raises(FileNotFoundError):
            list(engine.finished(os.stat, ["/nowhere"]))
        assert sorted(engine.finished(int, ["7", "8"])) == [("7", 7), ("8", 8)]
        assert list(engine.finished(int, [])) == []


def test_a_file_that_a_worker_does_not_see_is_named(cluster, model):
    """/proc/self/cwd is another directory for every process, as a directory of one machine is for another."""
    done = gemmed("replay", "/proc/self/cwd/fixtures/array", "--model", str(model), "--out", "-", *on(cluster))
    assert done.returncode == 1
    assert re.search(
        r"gemmed: worker tcp://127.0.0.1:\d+ does not see /proc/self/cwd/fixtures/array/r001.flac; all machines must",
        done.stderr,
    )


def test_a_worker_that_comes_later_without_the_files_swallows_nothing(tmp_path, monkeypatch):
    """It would find every recording unusable, faster than the others find anything else."""
    place, elsewhere = tmp_path / "dask", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Cluster(place) as cluster:
        (place / "sound.wav").write_bytes(b"sound")
        monkeypatch.chdir(place)
        first = cluster.worker()
        with joined(cluster.address) as engine:
            engine.check_files([Path("/proc/self/cwd/sound.wav")])
            assert list(engine.finished(abs, [-1])) == [(-1, 1)]
            cluster.worker(inside=["env", f"--chdir={elsewhere}"])
            first.kill()
            with pytest.raises(
                UsageError, match=r"worker tcp://.* does not see /proc/self/cwd/sound.wav; all machines"
            ):
                list(engine.finished(abs, [-1]))


def test_a_worker_that_came_later_with_other_packages_is_named(cluster, monkeypatch):
    with joined(cluster.address) as engine:
        others = dask_pool._versions() | {"numpy": "1.0"}
        monkeypatch.setattr(dask_pool, "_versions", lambda: others)
        with pytest.raises(UsageError, match=r"worker tcp://127.0.0.1:\d+ has numpy .*, here it is 1.0; install"):
            list(engine.finished(abs, [-1]))


def test_a_model_that_was_replaced_decides_anew(cluster, model, other_models, tmp_path):
    """Workers outlive commands, and must not remember what was there before."""
    place, found = tmp_path / "model", []
    for number, directory in enumerate((model, other_models[0])):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(directory, place)
        out = tmp_path / f"{number}.jsonl"
        done = gemmed("replay", str(ARRAY), "--model", str(place), "--out", str(out), *on(cluster))
        assert done.returncode == 0, done.stderr
        found.append(out.read_bytes())
    assert found[1] == decided_here(other_models[0], ARRAY, tmp_path / "here.jsonl")
    assert found[0] != found[1]


def test_a_worker_that_is_frozen_is_waited_for_until_the_cluster_gives_it_up(tmp_path):
    settings = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "3s"}
    with Cluster(tmp_path, settings=settings) as cluster:
        frozen = cluster.worker()
        cluster.worker()
        frozen.send_signal(signal.SIGSTOP)
        with joined(cluster.address) as engine:
            engine.check_files([ARRAY / "r001.flac"])
            assert len(engine._seen_by) == 1


def test_another_version_on_a_worker_is_named(tmp_path):
    """A copy of the package that says it is older; and a worker that has none."""
    package = tmp_path / "old" / "pipeline"
    shutil.copytree(ROOT / "pipeline", package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (package / "__init__.py").read_text()
    (package / "__init__.py").write_text(re.sub('__version__ = ".*"', '__version__ = "0.0.9"', text))
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.worker()
        cluster.worker(package=package.parent)
        with pytest.raises(
            UsageError, match=r"worker tcp://127.0.0.1:\d+ has gemmed 0.0.9, here it is .*; install the"
        ):
            connect(cluster.address)


def test_nobody_there_is_told(tmp_path):
    """No scheduler, and one without workers."""
    with pytest.raises(LinkError, match=r"no Dask scheduler answers at tcp://.*; check the address, or start one"):
        connect(f"tcp://127.0.0.1:{free_port()}", timeout_seconds=1)
    with Cluster(tmp_path) as cluster, pytest.raises(LinkError) as told:
        connect(cluster.address, timeout_seconds=5)
    cure = f"`dask worker {cluster.address} --host 127.0.0.1 --nworkers -1 --nthreads 1`"
    assert str(told.value) == f"the scheduler {cluster.address} has no workers; start some: {cure}"


def test_workers_of_a_cluster_with_certificates_are_told_to_show_theirs(authority, tmp_path):
    mine = authority.certificate("mine")
    told = "start some: `dask worker tls://.* --tls-ca-file FILE --tls-cert FILE --tls-key FILE --nworkers"
    with Cluster(tmp_path, tls=mine) as cluster, pytest.raises(LinkError, match=told):
        connect(cluster.address, mine, timeout_seconds=5)


@contextmanager
def stranger(greeting: bytes) -> Iterator[str]:
    """The address of somebody who says one thing to whoever comes, and nothing more."""
    known: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # it was closed
                while True:
                    known.append(server.accept()[0])
                    known[-1].sendall(greeting)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT)
    for one in known:
        one.close()


@pytest.mark.parametrize(
    ("greeting", "message"),
    [
        (
            b'INFO {"server_id":"NAAA","version":"2.10.0","proto":1}\r\n',
            "what answers at {} is no Dask scheduler; check",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers at {} is no Dask scheduler; check the address, or start"),
        (b"", "no Dask scheduler answers at {}; check the address, or start one with `dask scheduler"),
    ],
    ids=["NATS", "HTTP", "silence"],
)
def test_somebody_else_at_the_address_is_told(greeting, message, model, tmp_path):
    """In one line, however many words Dask has for it."""
    component("distributed")
    with stranger(greeting) as address:
        replay = ("replay", str(ARRAY), "--model", str(model), "--out", str(tmp_path / "decisions.jsonl"))
        done = gemmed(*replay, "--engine", "dask", "--scheduler", address)
    assert done.returncode == 1
    looking, told = done.stderr.splitlines()
    assert looking == f"dask: looking for {address}"
    assert told.startswith(f"gemmed: {message.format(address)}")


def test_a_worker_is_no_scheduler(cluster):
    """Though he speaks as Dask does."""
    with joined(cluster.address) as engine:
        worker = next(iter(engine.client.nthreads()))
    with pytest.raises(LinkError, match=f"what answers at {worker} is no Dask scheduler; check the address"):
        connect(worker, timeout_seconds=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "dask"], "--engine dask needs the --scheduler of a cluster; give its address, or start one with"),
        (
            ["--scheduler", "tcp://127.0.0.1:1"],
            "--scheduler='tcp://127.0.0.1:1' belongs to a cluster; add --engine dask",
        ),
        (["--engine", "dask", "--jobs", "2"], "--jobs=2 counts processes of this machine"),
        (["--engine", "dask", "--verify", "last"], "--engine='dask': --verify decides in the order of the run"),
        (["--tls-ca", "ca.pem"], "--tls-ca='ca.pem' belongs to a cluster"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message, model):
    """Instead of being ignored."""
    done = gemmed("replay", str(ARRAY), "--model", str(model), "--out", "-", *options)
    assert done.returncode == 1
    assert f"gemmed: {message}" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:8786", "must be tcp://HOST:PORT or tls://HOST:PORT; for example tcp://127.0.0.1:8786"),
        ("http://127.0.0.1:8786", "must be tcp://HOST:PORT or tls://HOST:PORT"),
        ("tcp://127.0.0.1", "must be tcp://HOST:PORT"),
        ("tcp://127.0.0.1:port", "must be tcp://HOST:PORT"),
        ("tcp://192.0.2.7:8786", "is another machine, and tcp:// is not encrypted: it must be 127.0.0.1, ::1"),
        ("tcp://0.0.0.0:8786", "is another machine"),
        ("tcp://nowhere.invalid:8786", "the name 'nowhere.invalid' is not known"),
        ("tcp://127..0.0.1:8786", "the name '127..0.0.1' is not known"),
        ("tls://192.0.2.7:8786", "needs certificates; give --tls-ca FILE --tls-cert FILE --tls-key FILE"),
    ],
)
def test_addresses_that_others_could_read_are_refused(address, message):
    """Without TLS only this machine, whatever it is called."""
    with pytest.raises(UsageError, match=re.escape(message)):
        checked_scheduler(address, None)


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786", "tcp://127.9.9.9:1"]
)
def test_this_machine_needs_no_certificates(address):
    """And can have none."""
    assert checked_scheduler(address, None) == address
    with pytest.raises(UsageError, match="is not encrypted, certificates are of no use"):
        checked_scheduler(address, Tls(Path("ca"), Path("cert"), Path("key")))


def test_certificates_that_cannot_be_used_are_named(authority, tmp_path):
    """One missing, one not there, a key of another."""
    mine, other = authority.certificate("mine"), authority.certificate("other")
    assert checked_tls(None, None, None) is None
    assert checked_tls(mine.ca, mine.cert, mine.key) == mine
    for files, message in [
        ((mine.ca, mine.cert, None), "--tls-key must be given, too"),
        ((mine.ca, tmp_path / "none.pem", mine.key), "--tls-cert=.*none.pem' cannot be read"),
        ((mine.ca, mine.cert, other.key), "the key that of the certificate .*; check them"),
    ]:
        with pytest.raises(UsageError, match=message):
            checked_tls(*files)


def test_a_cluster_with_certificates(authority, model, decided_array, tmp_path):
    """The same bytes; a stranger, and whoever's certificate has expired, does not come in."""
    mine, expired = authority.certificate("mine"), authority.certificate("late", days=-1)
    stranger = Authority(tmp_path / "stranger").certificate("stranger")
    with Cluster(tmp_path / "cluster", tls=authority.certificate("cluster")) as cluster:
        cluster.worker()
        replay = ("replay", str(ARRAY), "--model", str(model), "--out", "-")
        done = gemmed(*replay, *on(cluster), *tls_options(mine))
        assert done.returncode == 0, done.stderr
        assert done.stdout.encode() == decided_array
        with pytest.raises(LinkError, match=r"certificate that cannot be believed: .*give the --tls-ca that signed it"):
            connect(cluster.address, stranger)
        for wrong in (expired, Tls(mine.ca, stranger.cert, stranger.key)):
            with pytest.raises(LinkError, match=r"no TLS connection to the scheduler .*certificates on both sides"):
                connect(cluster.address, wrong)


def test_an_expired_certificate_of_the_scheduler_is_told(authority, tmp_path):
    """By its own name for it."""
    mine, told = authority.certificate("mine"), "certificate that cannot be believed: certificate has expired; renew it"
    with Cluster(tmp_path, tls=authority.certificate("old", days=-1)) as cluster, pytest.raises(LinkError, match=told):
        connect(cluster.address, mine)


def test_a_cluster_that_is_open_to_others_is_refused(tmp_path):
    """A worker that listens on all interfaces, without TLS, and a scheduler that does."""
    with Cluster(tmp_path) as cluster:
        cluster.worker(host="0.0.0.0")
        with pytest.raises(
            UsageError, match=r"a worker .* listens at tcp://0.0.0.0:.*; start it with --host 127.0.0.1"
        ):
            connect(cluster.address)
    with Cluster(tmp_path, host="0.0.0.0") as cluster:
        cluster.worker()
        with pytest.raises(UsageError, match=r"a scheduler .* listens at .* without TLS, where others can run code"):
            connect(cluster.address)
