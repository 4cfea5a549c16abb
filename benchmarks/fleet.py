"""A fleet on one core: how many arrays it keeps up with, how far it lags, what a death costs, what a broker carries.

    python -m benchmarks.fleet [--seconds 40] [--backlog 60] [--arrays 40]

A real nats-server and the benchmark share one core, `gemmed fleet run` with one worker has the other to itself. Four
sensors at 16 kHz, simulated, with failing sensors, in messages of half a second as `gemmed publish` sends them.

First recordings are replayed, a task each, by a Dask worker and by a process. Then a backlog is decided about as fast
as it goes: seconds of sound per second are the arrays whose backlog one core works off; the same by a Dask worker, and
by the same chain without a broker. Then so many arrays are published in real time, and a tenth more or less each time
until the most are found that one core keeps up with: at the end of a run the lag, from the moment a message was stored
to the moment the decisions that it completed were, is below a second. Then 50, 90 and 110 % of that many. Then one of
two workers is killed. At last the broker alone: megabytes per second in and out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._dask import replay_overhead_ratio
from benchmarks.daemon import RATE, SENSORS, SITE, learn, sound
from benchmarks.report import finish, show
from benchmarks.web import free_port
from pipeline.core.choices import Choices
from pipeline.core.events import Block, RecordingEnded, RecordingStarted
from pipeline.fleet.topology import Places
from pipeline.model.build import warmed_chain
from pipeline.model.model import Model
from pipeline.transport.nats import Access, Broker, Message, Sent
from pipeline.transport.wire import Parcel, packed

BLOCK = RATE // 2
_MESSAGE_BYTES, _MESSAGES = 35_000, 6_000
_IN_FLIGHT = 64
_PATIENCE = 300.0
_KEEPS_UP_SECONDS = 1.0
"""Of lag at the end; where there is too much to do, it grows for as long as one looks."""
_DEATH_SECONDS = 50.0
"""Of sound while a worker dies: long enough for his arrays to be heard again."""
_CORES = sorted(os.sched_getaffinity(0))
"""Before we keep ourselves, and with us all that we start, to one of them."""
OUR_CORE, THEIR_CORE = 1, 0


def parcels(seconds: float) -> list[Parcel]:
    """Half a second of sound each, and the end."""
    heard = sound()[: round(seconds * RATE)].astype(np.float32).T / np.float32(32768)
    started = RecordingStarted("benchmark", RATE, tuple(str(sensor + 1) for sensor in range(SENSORS)))
    everyone = np.ones(SENSORS, np.bool_)
    blocks = [Block(at, heard[:, at : at + BLOCK], everyone) for at in range(0, heard.shape[1], BLOCK)]
    facts = [started, *blocks, RecordingEnded("benchmark", heard.shape[1])]
    return [Parcel(started, number, fact) for number, fact in enumerate(facts)]


def on_core(core: int) -> Callable[[], None]:
    """Before a program starts: it and its children stay there."""
    return partial(os.sched_setaffinity, 0, {_CORES[core % len(_CORES)]})


@contextmanager
def broker_running(directory: Path) -> Iterator[Access]:
    port = free_port()
    program = shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin") or "nats-server"
    command = [program, "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(directory)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=on_core(OUR_CORE))
    access = Access(address=f"nats://127.0.0.1:{port}")
    try:
        _until(lambda: _answers(access))
        yield access
    finally:
        process.kill()
        process.wait()


def _answers(access: Access) -> bool:
    try:
        Broker(access, name="benchmark", seconds=1.0).close()
    except Exception:
        return False
    return True


def _until(holds: Callable[[], bool], *, every: float = 0.2) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("it never came about")
        time.sleep(every)


@dataclass
class Trial:
    """A fleet of its own, by its name, so that trials do not see each other."""

    name: str
    n_arrays: int
    directory: Path
    access: Access
    model: Path

    def __post_init__(self) -> None:
        self.places = Places(name=self.name)
        self.arrays = [f"a{number}" for number in range(self.n_arrays)]
        self.file = self.directory / f"{self.name}.toml"
        self.file.write_text(
            f'[fleet]\nmodel = "{self.model}"\ncache = "{self.directory / "cache"}"\n[broker]\nname = "{self.name}"\n'
            f'address = "{self.access.address}"\n[log]\nlevel = "error"\n'
            + "".join(f'[[arrays]]\nname = "{array}"\n' for array in self.arrays)
        )
        self.broker = Broker(self.access, name="benchmark")
        self.places.make(self.broker)

    def publish(self, sent: Sequence[bytes], *, seconds_apart: float = 0.0) -> None:
        """All messages for all arrays; with a time between two of an array, no two arrays at the same moment."""
        began, waiting = time.monotonic(), list[Sent]()
        for number, data in enumerate(sent):
            for place, array in enumerate(self.arrays):
                due = began + seconds_apart * (number + place / self.n_arrays)
                time.sleep(max(0.0, due - time.monotonic()))
                stream, subject = self.places.sound.stream, self.places.sound.subject(array)
                waiting.append(self.broker.publish_soon(subject, data, stream=stream, id=f"{array}-{number}"))
                if len(waiting) >= _IN_FLIGHT:
                    waiting.pop(0).result()
        for one in waiting:
            one.result()

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "pipeline.cli", "fleet", "run", str(self.file), *options]
        process = subprocess.Popen(command, preexec_fn=on_core(THEIR_CORE))
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    def messages(self, stream: str, subjects: str) -> list[Message]:
        """Those that are there now: while arrays are published there are always more."""
        end, found = self.broker.last_sequence(stream), list[Message]()
        for message in self.broker.read(stream, subjects, 1).to_the_end():
            found.append(message)
            if message.sequence >= end:
                break
        return found

    def decided(self) -> list[tuple[str, int, datetime]]:
        """Array, the sample behind each decision, and when that was stored."""
        return [
            (message.subject.rpartition(".")[2], event["stop_sample"], message.time)
            for message in self.messages(self.places.events_stream, self.places.events("*"))
            for event in map(json.loads, message.data.splitlines())
            if event["type"] == "decision"
        ]

    def n_finished(self) -> int:
        return sum(
            b'"recording_finished"' in message.data
            for message in self.messages(self.places.events_stream, self.places.events("*"))
        )


def seconds_per_second(trial: Trial, sent: Sequence[bytes], *options: str) -> float:
    """Of sound, from the first decisions of a backlog on: the start of processes does not count."""
    trial.publish(sent)
    with trial.running(*options):
        _until(lambda: trial.n_finished() == trial.n_arrays, every=2.0)
    told: dict[str, list[float]] = {array: [] for array in trial.arrays}
    for array, _, at in trial.decided():
        told[array].append(at.timestamp())
    # Decisions are told in portions: what an array told first was decided before its clock started.
    later = sum(float(np.mean(np.array(times) > min(times))) for times in told.values())
    took = np.mean([max(times) for times in told.values()]) - np.mean([min(times) for times in told.values()])
    return later * (len(sent) - 2) * BLOCK / RATE / float(took)


def chain_alone(model: Model, sent: Sequence[Parcel]) -> float:
    """Seconds of sound per second by the same chain, without a broker, a process or a checkpoint; on one core, too."""
    chain = warmed_chain(model, Choices())
    began = time.process_time()
    for parcel in sent:
        chain.push(parcel.fact)
    chain.flush()
    return (len(sent) - 2) * BLOCK / RATE / (time.process_time() - began)


def lags(trial: Trial, sent: Sequence[bytes]) -> dict[str, float]:
    """Seconds from a message to what it completed: in the middle, at worst but one in twenty, and at the end."""
    with trial.running("--jobs", "1"):
        _until(lambda: len(trial.places.leases(trial.broker).keys()) > trial.n_arrays)  # and the dispatcher's
        trial.publish(sent, seconds_apart=BLOCK / RATE)
        _until(lambda: trial.n_finished() == trial.n_arrays, every=2.0)
    stored: dict[str, list[datetime]] = {array: [] for array in trial.arrays}
    for message in trial.messages(trial.places.sound.stream, trial.places.sound.subject("*")):
        stored[message.subject.rpartition(".")[2]].append(message.time)
    found = [(at, (at - stored[array][-(-stop // BLOCK)]).total_seconds()) for array, stop, at in trial.decided()]
    found.sort()
    late = [lag for _, lag in found[-len(found) // 10 :]]
    values = [lag for _, lag in found]
    return {"arrays": trial.n_arrays, "median": float(np.median(values)), "p95": float(np.quantile(values, 0.95)),
            "at_the_end": float(np.median(late))}  # fmt: skip


def kept_up_with(
    trial: Callable[[str, int], Trial], first: int, sent: Sequence[bytes]
) -> tuple[int, list[dict[str, float]]]:
    """The most arrays whose lag does not grow, and all that was tried."""
    tried: list[dict[str, float]] = []

    def keeps_up(n_arrays: int) -> bool:
        tried.append(lags(trial(f"live{n_arrays}", n_arrays), sent))
        return tried[-1]["at_the_end"] < _KEEPS_UP_SECONDS

    n_arrays = first
    if keeps_up(n_arrays):
        while keeps_up(more := ceil(1.1 * n_arrays)):
            n_arrays = more
        return n_arrays, tried
    while n_arrays > 1:
        n_arrays = min(n_arrays - 1, round(0.9 * n_arrays))
        if keeps_up(n_arrays):
            break
    return n_arrays, tried


def recovery_seconds(trial: Trial, sent: Sequence[bytes]) -> float:
    """From the death of one of two workers to the last of his arrays being decided for again."""
    from threading import Thread

    with trial.running("--jobs", "2") as process:
        _until(lambda: len(trial.places.leases(trial.broker).keys()) > trial.n_arrays)
        publishing = Thread(target=trial.publish, args=(sent,), kwargs={"seconds_apart": BLOCK / RATE})
        publishing.start()
        _until(lambda: len({array for array, *_ in trial.decided()}) == trial.n_arrays)
        victim = _workers_of(process.pid)[0]
        his = [array for array, owner in _owners(trial).items() if owner == victim]
        os.kill(victim, signal.SIGKILL)
        killed_at = time.time()
        publishing.join()
        _until(lambda: trial.n_finished() == trial.n_arrays, every=2.0)
    again: dict[str, float] = {}
    for array, _, at in trial.decided():
        if array in his and at.timestamp() > killed_at:
            again.setdefault(array, at.timestamp() - killed_at)
    return max(again.values())


def _workers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _owners(trial: Trial) -> dict[str, int]:
    entries = trial.places.leases(trial.broker).all()
    return {array: int(json.loads(entry.value)["owner"].split(":")[1]) for array, entry in entries.items()}


def broker_megabytes_per_second(access: Access) -> tuple[float, float]:
    """In, and out again, of messages as large as ours, by one connection."""
    data = os.urandom(_MESSAGE_BYTES)
    with Broker(access, name="benchmark") as broker:
        broker.ensure_stream("volume", "volume.*", most_seconds=3600.0)
        began, waiting = time.perf_counter(), list[Sent]()
        for number in range(_MESSAGES):
            waiting.append(broker.publish_soon("volume.a", data, stream="volume", id=str(number)))
            if len(waiting) >= _IN_FLIGHT:
                waiting.pop(0).result()
        for one in waiting:
            one.result()
        written = time.perf_counter() - began
        began, reader, n = time.perf_counter(), broker.read("volume", "volume.a", 1), 0
        while n < _MESSAGES:
            n += len(reader.take(most=64, seconds=1.0))
        read = time.perf_counter() - began
    total = _MESSAGE_BYTES * _MESSAGES / 1e6
    return total / written, total / read


@contextmanager
def dask_cluster(directory: Path) -> Iterator[str]:
    """A scheduler on our core and a worker on theirs."""
    address = f"tcp://127.0.0.1:{free_port()}"
    started = []

    def start(what: str, core: int, *options: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--host", "127.0.0.1", *options]
        started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=on_core(core), cwd=directory))

    start("scheduler", OUR_CORE, "--port", address.rpartition(":")[2], "--dashboard-address", "127.0.0.1:0")
    start("worker", THEIR_CORE, address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    try:
        yield address
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def measured(directory: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    trainer = learn(directory / "state", SITE)
    trainer.wait()
    (model,) = (path for path in (directory / "state" / "models").iterdir() if path.is_dir())
    backlog, live = parcels(chosen.backlog), parcels(chosen.seconds)
    alone = chain_alone(Model.load(model), backlog)
    replayed = replay_overhead_ratio()
    sent = [packed(parcel) for parcel in backlog]
    on_core(OUR_CORE)()
    with broker_running(directory / "broker") as access:

        def trial(name: str, n_arrays: int) -> Trial:
            return Trial(name, n_arrays, directory, access, model)

        local = seconds_per_second(trial("local", chosen.arrays), sent, "--jobs", "1")
        with dask_cluster(directory) as address:
            by_dask = seconds_per_second(trial("dask", chosen.arrays), sent, "--engine", "dask", "--scheduler", address)
        sent = [packed(parcel) for parcel in live]
        live_arrays, tried = kept_up_with(trial, round(local), sent)
        shares = {
            share: lags(trial(f"lag{share}", max(1, round(share / 100 * live_arrays))), sent) for share in (50, 90, 110)
        }
        longer = [packed(parcel) for parcel in parcels(_DEATH_SECONDS)]
        recovered = recovery_seconds(trial("death", max(4, round(0.25 * live_arrays))), longer)
        into, out = broker_megabytes_per_second(access)
    _show(live_arrays, local, by_dask, alone, tried, shares, recovered, into, out, replayed)
    return {
        "arrays_per_core": live_arrays,
        "backlog_arrays_per_core": round(local, 1),
        "backlog_arrays_per_core_dask": round(by_dask, 1),
        "dask_overhead_ratio": round(local / by_dask, 3),
        "dask_replay_overhead_ratio": round(replayed, 3),
        "chain_alone_arrays_per_core": round(alone, 1),
        "fleet_overhead_ratio": round(alone / local, 3),
        "tried": [_rounded(found) for found in tried],
        "lag": {str(share): _rounded(found) for share, found in shares.items()},
        "recovery_seconds": round(recovered, 1),
        "broker_mb_per_s": round(into, 1),
        "broker_mb_per_s_out": round(out, 1),
        "kb_per_second_of_sound": round(sum(map(len, sent)) / chosen.seconds / 1e3, 1),
    }


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in found.items()}


def _show(
    live_arrays: int,
    local: float,
    by_dask: float,
    alone: float,
    tried: list[dict[str, float]],
    shares: dict[int, dict[str, float]],
    recovered: float,
    into: float,
    out: float,
    replayed: float,
) -> None:
    show("Arrays (4 x 16 kHz) of one core, through the broker", ("how", "arrays"),
         [("kept up with in real time", live_arrays), ("whose backlog is worked off", local),
          ("the same by a Dask worker", by_dask), ("the chain alone, without a broker", alone)])  # fmt: skip
    lag_of = [*(("tried", found) for found in tried), *shares.items()]
    show("Lag in seconds, from message to decision", ("load %", "arrays", "median", "p95", "at the end"),
         [(load, *found.values()) for load, found in lag_of])  # fmt: skip
    show("Else", ("what", "value"),
         [("seconds until arrays of a killed worker are decided for again", recovered),
          ("MB/s into the broker, one connection", into), ("MB/s out of it", out),
          ("seconds for a replayed recording: a Dask worker, of those of a process", replayed)])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0, help="of sound in real time, at each load")
    parser.add_argument("--backlog", type=float, default=60.0, help="seconds of sound that wait for each array")
    parser.add_argument("--arrays", type=int, default=40, help="of which a backlog waits")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        finish(measured(Path(directory), chosen))


if __name__ == "__main__":
    main()
