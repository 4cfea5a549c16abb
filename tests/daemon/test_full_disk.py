"""A disk that fills up under a daemon that runs, or cannot be written to when it starts: a real one, in memory."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pipeline.daemon.readiness import STOPPED
from pipeline.reports.status import status
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from tests.conftest import program
from tests.daemon.live import Running, settings, simulated_sound

RATE = 4000
# In a namespace of its own, so that no right is needed and nothing is left behind; the directory is the last argument
# but the command.
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


@pytest.fixture(scope="module")
def sound() -> np.ndarray:
    return simulated_sound(60.0)


class SmallDisk:
    """A daemon whose state lies on a small disk that only it sees; this side looks at it through /proc."""

    def __init__(self, directory: Path, model: Path, megabytes: int = 6) -> None:
        self.config = settings(directory, model=model, more='[log]\nformat = "text"')
        (directory / "state").mkdir()
        unshare = [program("unshare"), "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]
        self.mount = [*unshare, f"{megabytes}m", str(directory / "state")]
        self.directory = directory

    def start(self) -> Running:
        self.running = Running(self.config, before=self.mount)
        return self.running

    @property
    def state(self) -> Path:
        return Path(f"/proc/{self.running.process.pid}/root{self.directory}/state")

    def fill(self) -> None:
        with (self.state / "ballast").open("ab", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            _write_for_ever(file)


def _write_for_ever(file) -> None:
    while True:
        file.write(bytes(4096))


def kept(state: Path) -> int:
    with closing(Journal(state / "journal.sqlite", read_only=True)) as journal:
        return journal.rows("SELECT coalesce(sum(stop - start), 0) AS n FROM pieces WHERE file IS NOT NULL")[0]["n"]


def require_whole(daemon: Running, samples: int) -> None:
    """Every decision was made, in order, and every event has an id of its own."""
    ids = [event["id"] for event in daemon.events]
    assert ids == sorted(set(ids))
    decisions = [event for event in daemon.events if event["type"] == "decision"]
    starts = [event["start_sample"] for event in decisions]
    (stride,) = set(np.diff(starts))
    assert decisions[-1]["stop_sample"] <= samples < decisions[-1]["stop_sample"] + stride
    (finished,) = (event for event in daemon.events if event["type"] == "recording_finished")
    assert finished["samples"] == samples


def test_a_full_disk_stops_no_decision_and_costs_no_event(tmp_path, model, sound):
    """Events wait until there is space again; of the sound it is counted to the sample what could not be kept."""
    disk = SmallDisk(tmp_path, model)
    with disk.start() as daemon:
        daemon.feed(sound[: 15 * RATE].tobytes())
        daemon.told("decision")
        disk.fill()
        daemon.feed(sound[15 * RATE : 30 * RATE].tobytes())
        daemon.logged("the journal cannot be written to")
        daemon.logged("sound cannot be kept")
        (disk.state / "ballast").unlink()
        more = sound[: RATE // 4].tobytes()
        fed = 30 * RATE + daemon.feed_until_logged("the journal can be written to again", more) // 8
        fed += daemon.feed_until_logged("sound can be kept again", more) // 8
        recovered = [daemon.told("storage_recovered"), daemon.told("storage_recovered")]
        inside = os.open(disk.state, os.O_RDONLY)
        assert daemon.end() == 0, daemon.errors.decode()
        here = tmp_path / "as it was"
        shutil.copytree(f"/proc/self/fd/{inside}", here)
        os.close(inside)
        require_whole(daemon, fed)
        assert daemon.count("storage_read_only") == 2
        (of_sound,) = (event for event in recovered if event.get("of") == "sound")
        (of_events,) = (event for event in recovered if event.get("of") != "sound")
        assert of_events["events_lost"] == 0
        assert of_sound["samples_lost"] > 0
        assert kept(here) == fed - of_sound["samples_lost"]
        assert not list(here.glob("sound/*/*.part"))
        assert status(StateDirectory(here))["samples_not_kept"] == of_sound["samples_lost"]
        assert status(StateDirectory(here))["code"] == STOPPED


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_without_a_disk_it_does_not_start(tmp_path, model, how):
    """And says where, why, and what to do."""
    disk = SmallDisk(tmp_path, model)
    script = 'mount -t tmpfs -o size=64k tmpfs "$1" && '
    script += 'dd if=/dev/zero of="$1/ballast" 2>/dev/null; ' if how == "full" else 'mount -o remount,ro "$1" && '
    before = [
        program("unshare"),
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'{script} shift; exec "$@"',
        "sh",
    ]
    with Running(disk.config, before=[*before, str(tmp_path / "state")]) as daemon:
        assert daemon.wait() == 1
    told = daemon.errors.decode().splitlines()[-1]
    assert str(tmp_path / "state") in told
    assert ("No space left on device" if how == "full" else "Read-only file system") in told
    assert "give another storage.directory, make space or change its rights" in told
