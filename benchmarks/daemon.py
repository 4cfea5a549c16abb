"""The daemon as it runs in the field: latency from the last sample to the stored decision, CPU, memory, throughput.

    python -m benchmarks.daemon [--seconds 60] [--hours 2]

A real `gemmed run` process hears four sensors at 16 kHz through its standard input, in chunks of 0.1 s as a sound card
gives them, and once more in chunks of 20 ms. Latency counts from the moment the chunk with the last sample of a segment
was written into the pipe to the moment the decision, stored in the journal, could be read from its output; first alone,
then while a model is learned in another process at low priority, as retraining is. Then sound comes as fast as it is
taken: throughput, and memory over many hours. For comparison, ffmpeg measures nothing but the level of the same sound.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import finish, show
from pipeline.simulation import Site, record
from pipeline.simulation.faults import FaultPlan, parse_kinds

RATE, SENSORS = 16_000, 4
CHUNK, SMALL_CHUNK = RATE // 10, RATE // 50
SCENES = 20
SITE = {"seed": 3, "rate_hz": RATE, "seconds": 14.0, "n_sensors": SENSORS, "spacing_m": 5.0, "surface": "gravel",
        "faults": "all", "fault_share": "0.1", "fault_seconds": 10.0, "clips": None}  # fmt: skip
_TICKS = os.sysconf("SC_CLK_TCK")


def sound(rate_hz: int = RATE) -> NDArray[np.int16]:
    """Some minutes with failing sensors, (samples, sensors)."""
    site = Site(seed=4, rate_hz=rate_hz, faults=FaultPlan(parse_kinds("all", n_sensors=4), (0.1,) * 4, 10.0))
    samples = np.concatenate([record(site, number).samples for number in range(SCENES)], axis=1)
    return np.ascontiguousarray(np.rint(samples.T * 32768).astype("<i2"))


def learn(state: Path, site: dict[str, Any], *, background: bool = False) -> subprocess.Popen[bytes]:
    """The process that makes a first model from a simulated site."""
    state.mkdir(parents=True, exist_ok=True)
    job = state / "job.json"
    job.write_text(json.dumps({"simulated": site}))
    command = [
        sys.executable,
        "-m",
        "pipeline.retraining.worker",
        "--state",
        str(state),
        "--job",
        str(job),
        "--starter",
    ]
    command += ["--background"] if background else []
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Daemon:
    """A `gemmed run` that is fed, and when each of its decisions could be read."""

    def __init__(
        self,
        directory: Path,
        *,
        rate_hz: int = RATE,
        overload: str = "drop_oldest",
        keep: str = "all",
        web: str = "enabled = false",
    ) -> None:
        config = directory / "gemmed.toml"
        config.write_text(
            f'[array]\nrate = "{rate_hz} Hz"\n[source]\nkind = "pcm"\n[buffer]\noverload = "{overload}"\n'
            f'[storage]\ndirectory = "state"\nbudget = "2 GB"\nsound = "{keep}"\n[training]\nenabled = false\n'
            f"[web]\n{web}\n"
        )
        command = [sys.executable, "-m", "pipeline.cli", "run", "--events", "--config", str(config)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self.decided: list[tuple[int, float]] = []
        self.lost = 0
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in iter(self.process.stdout.readline, b""):
            now = time.monotonic()
            if b'"type":"decision"' in text:
                self.decided.append((json.loads(text)["stop_sample"], now))
            elif b'"type":"gap"' in text:
                gap = json.loads(text)
                self.lost += gap["stop_sample"] - gap["start_sample"]

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def resident_mb(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)
        self._reader.join(10)


def at_real_time(
    daemon: Daemon, heard: NDArray[np.int16], seconds: float, start: int = 0, *, chunk: int = CHUNK
) -> dict[str, Any]:
    """Feed chunks when they are due; latency and CPU of what was decided."""
    written: list[float] = []
    before, cpu, begun = len(daemon.decided), daemon.cpu_seconds(), time.monotonic()
    for number in range(round(seconds * RATE / chunk)):
        place = (start + number * chunk) % (len(heard) - chunk)
        time.sleep(max(0.0, begun + number * chunk / RATE - time.monotonic()))
        daemon.write(heard[place : place + chunk].tobytes())
        written.append(time.monotonic())
    used, passed = daemon.cpu_seconds() - cpu, time.monotonic() - begun
    time.sleep(1.0)
    milliseconds = [
        1000 * (at - written[(stop - start - 1) // chunk])
        for stop, at in daemon.decided[before:]
        if start <= stop - 1 < start + len(written) * chunk
    ]
    return {
        "decisions": len(milliseconds),
        "p50_ms": round(float(np.percentile(milliseconds, 50)), 2),
        "p99_ms": round(float(np.percentile(milliseconds, 99)), 2),
        "worst_ms": round(max(milliseconds), 2),
        "cpu_percent": round(100 * used / passed, 2),
    }


def at_full_speed(daemon: Daemon, heard: NDArray[np.int16], seconds: float, rate_hz: int) -> dict[str, Any]:
    """Feed as fast as it is taken; memory along the way."""
    data = heard.tobytes()
    step = rate_hz * SENSORS * 2 * 10
    resident: list[float] = []
    cpu, fed, total = daemon.cpu_seconds(), 0, round(seconds) * rate_hz * SENSORS * 2
    while fed < total:
        place = fed % (len(data) - step)
        place -= place % (SENSORS * 2)
        daemon.write(data[place : place + step])
        fed += step
        if fed // step % max(1, total // step // 20) == 0:
            resident.append(daemon.resident_mb())
    used = daemon.cpu_seconds() - cpu
    half = resident[len(resident) // 2]
    return {
        "hours": round(seconds / 3600, 2),
        "arrays_per_core": round(seconds / used, 1),
        "resident_mb_by_time": [round(value, 1) for value in resident],
        "growth_of_second_half_mb": round(resident[-1] - half, 2),
    }


def ffmpeg_cpu_percent(heard: NDArray[np.int16]) -> float | None:
    """Of a core, at real time: the level of every channel, and nothing else."""
    program = shutil.which("ffmpeg")
    if program is None:
        return None
    command = [program, "-v", "error", "-f", "s16le", "-ar", str(RATE), "-ac", str(SENSORS), "-i", "-"]
    command += ["-af", "astats=metadata=1:reset=1", "-f", "null", "-"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=heard.tobytes(), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(100 * used / (len(heard) / RATE), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="at real time, alone and while learning")
    parser.add_argument("--hours", type=float, default=2.0, help="at full speed, 16 kHz")
    parser.add_argument("--week", action="store_true", help="also a week at 2 kHz; takes the better part of an hour")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemmed-daemon-") as directory:
        finish(measured(Path(directory), chosen))


def measured(directory: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    assert learn(directory / "state", SITE).wait() == 0
    heard = sound()
    daemon = Daemon(directory)
    at_real_time(daemon, heard, 10.0)
    start = 10 * RATE
    length = round(chosen.seconds * RATE / CHUNK) * CHUNK
    alone = at_real_time(daemon, heard, chosen.seconds, start)
    learning = learn(directory / "elsewhere", SITE | {"seed": 5, "recordings": 300}, background=True)
    beside = at_real_time(daemon, heard, chosen.seconds, start + length)
    was_learning = learning.poll() is None
    learning.kill()
    learning.wait()
    trickle = at_real_time(daemon, heard, chosen.seconds, start + 2 * length, chunk=SMALL_CHUNK)
    resident = daemon.resident_mb()
    daemon.end()
    fast = Daemon(directory, overload="wait")
    flat = at_full_speed(fast, heard, 3600 * chosen.hours, RATE)
    fast.end()
    week = _week(directory) if chosen.week else None
    _show({"alone": alone, "while learning": beside, "in chunks of 20 ms": trickle}, flat, week)
    return {
        "latency_p50_ms": alone["p50_ms"],
        "latency_p99_ms": alone["p99_ms"],
        "cpu_percent_per_array": alone["cpu_percent"],
        "rss_mb": round(resident, 1),
        "arrays_per_core": flat["arrays_per_core"],
        "while_learning": beside | {"learned_all_the_time": was_learning},
        "chunks_of_20_ms": trickle,
        "samples_lost": daemon.lost,
        "ffmpeg_level_cpu_percent": ffmpeg_cpu_percent(heard),
        "full_speed": flat,
        "week": week,
    }


def _week(directory: Path) -> dict[str, Any]:
    slow = directory / "slow"
    assert learn(slow / "state", SITE | {"rate_hz": 2000}).wait() == 0
    daemon = Daemon(slow, rate_hz=2000, overload="wait")
    found = at_full_speed(daemon, sound(2000), 7 * 86_400.0, 2000)
    daemon.end()
    return found


def _show(live: dict[str, dict[str, Any]], flat: dict[str, Any], week: dict[str, Any] | None) -> None:
    show(
        "At real time",
        ("", "decisions", "p50 ms", "p99 ms", "worst ms", "CPU, % of a core"),
        [
            (name, *(str(found[key]) for key in ("decisions", "p50_ms", "p99_ms", "worst_ms", "cpu_percent")))
            for name, found in live.items()
        ],
    )
    show(
        "At full speed",
        ("", "hours", "arrays per core", "resident MB at the end", "grown in the second half"),
        [
            (
                name,
                str(found["hours"]),
                str(found["arrays_per_core"]),
                str(found["resident_mb_by_time"][-1]),
                str(found["growth_of_second_half_mb"]),
            )
            for name, found in (("16 kHz", flat), ("2 kHz", week))
            if found is not None
        ],
    )


if __name__ == "__main__":
    main()
