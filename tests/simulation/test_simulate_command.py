"""`gemmed simulate` as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.simulation import FAULTS
from tests.conftest import TIMEOUT, component, eventually
from tests.forked import Process, gemmed
from tests.test_cli import everybody_gone, group_members

PLAIN = "--no-picture"
SMALL = ("--rate", "2000", "--seconds", "3", "--recordings", "6", "--fault-share", "0.3", "--fault-seconds", "1")
TABLES = ("labels.csv", "truth.csv", "simulation.json")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    component("matplotlib")
    out = tmp_path_factory.mktemp("simulated") / "array"
    done = gemmed("simulate", str(out), *SMALL, "--seed", "4", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert "6 recordings of 3 s: 3 human, 3 human_animal" in done.stdout
    return out


def test_recordings_labels_and_truth_belong_together(dataset):
    """One file for each row of labels.csv; truth.csv names recordings, sensors and faults that exist."""
    labels, truth = rows(dataset / "labels.csv"), rows(dataset / "truth.csv")
    assert list(labels[0]) == ["recording", "start_seconds", "end_seconds", "label"]
    assert list(truth[0]) == ["recording", "sensor", "start_seconds", "end_seconds", "fault"]
    assert [row["recording"] for row in labels] == [f"r{number:03d}" for number in range(1, 7)]
    for row in labels:
        samples, rate = soundfile.read(dataset / f"{row['recording']}.wav")
        assert (rate, samples.shape) == (2000, (6000, 4))
        assert (float(row["start_seconds"]), float(row["end_seconds"])) == (0, 3)
    for row in truth:
        assert row["fault"] in FAULTS
        assert 1 <= int(row["sensor"]) <= 4
        assert 0 <= float(row["start_seconds"]) < float(row["end_seconds"]) <= 3


def test_dead_sensors_are_dead_where_the_truth_says_so(tmp_path):
    """Zeros there, and nowhere else for long."""
    assert gemmed("simulate", str(tmp_path / "d"), *SMALL, PLAIN, "--faults", "dead", "--seed", "1").returncode == 0
    truth = rows(tmp_path / "d" / "truth.csv")
    assert len(truth) > 3
    silent = {}
    for number in range(1, 7):
        samples, _ = soundfile.read(tmp_path / "d" / f"r{number:03d}.wav")
        silent[f"r{number:03d}"] = samples.T == 0
    for row in truth:
        span = slice(round(2000 * float(row["start_seconds"])), round(2000 * float(row["end_seconds"])))
        zeros = silent[row["recording"]][int(row["sensor"]) - 1]
        assert zeros[span].all()
        zeros[span] = False
    assert max(np.mean(zeros) for zeros in silent.values()) < 0.05


def test_the_contact_sheet_is_a_picture(dataset):
    """With a cell for both classes at four sensors and for every fault, it is large."""
    content = (dataset / "contact_sheet.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(content) > 100_000


def test_flac_holds_the_same_samples_and_other_seeds_hold_others(dataset, tmp_path):
    """The format decides nothing but the file."""
    assert gemmed("simulate", str(tmp_path / "f"), *SMALL, PLAIN, "--seed", "4", "--format", "flac").returncode == 0
    assert not (tmp_path / "f" / "contact_sheet.png").exists()
    wav, flac = soundfile.read(dataset / "r002.wav")[0], soundfile.read(tmp_path / "f" / "r002.flac")[0]
    assert (wav == flac).all()
    assert gemmed("simulate", str(tmp_path / "g"), *SMALL, PLAIN, "--seed", "5").returncode == 0
    assert (soundfile.read(tmp_path / "g" / "r002.wav")[0] != wav).any()


def test_a_killed_run_continues_and_gives_the_same_bytes(dataset, tmp_path):
    """SIGKILL in the middle; started again, every file equals that of an undisturbed run."""
    out = tmp_path / "killed"
    command = ["simulate", str(out), *SMALL, PLAIN, "--seed", "4", "--jobs", "1"]
    process = Process(command, start_new_session=True)
    eventually(lambda: process.poll() is not None or len(list(out.glob("r*.wav"))) > 1, every=0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 2 <= len(list(out.glob("r*.wav"))) < 6
    assert not (out / "labels.csv").exists()
    again = gemmed("simulate", str(out), *SMALL, PLAIN, "--seed", "4")
    assert again.returncode == 0
    assert "continuing:" in again.stdout
    files = [*TABLES, *(f"r{number:03d}.wav" for number in range(1, 7))]
    for name in files:
        assert (out / name).read_bytes() == (dataset / name).read_bytes(), name
    (out / "r001.wav").write_bytes((out / "r001.wav").read_bytes()[:1000])
    (out / "r003.wav").write_bytes(b"")
    (out / "r004.wav").unlink()
    assert gemmed("simulate", str(out), *SMALL, PLAIN, "--seed", "4").returncode == 0
    assert all((out / name).read_bytes() == (dataset / name).read_bytes() for name in files)


def test_another_simulation_in_the_same_place_is_refused_unless_restarted(tmp_path):
    """What differs is named; --restart removes the old files and no others."""
    out = tmp_path / "o"
    small = (PLAIN, "--rate", "2000", "--seconds", "1", "--recordings")
    assert gemmed("simulate", str(out), *small, "3").returncode == 0
    (out / "notes.txt").write_text("mine")
    refused = gemmed("simulate", str(out), *small, "2")
    assert refused.returncode == 1
    assert (
        "holds another simulation (recordings 3 there, 2 here); give another directory, or add --restart"
        in refused.stderr
    )
    assert gemmed("simulate", str(out), *small, "2", "--restart").returncode == 0
    assert sorted(path.name for path in out.glob("r*.wav")) == ["r001.wav", "r002.wav"]
    assert (out / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--faults", "broken"], 1, "fault 'broken' is not known; choose all, none, or of: dead"),
        (["--fault-share", "1.5"], 1, "fault share 1.5 must be at least 0 and below 1"),
        (["--fault-share", "a"], 1, "fault share 'a' must be a number, or 4 with commas"),
        (["--fault-share", ".1,.2"], 1, "2 fault shares for 4 sensors"),
        (["--surface", "mud"], 1, "surface 'mud' is not known"),
        (["--format", "mp3"], 1, "format 'mp3' is not known; choose one of wav, flac"),
        (["--rate", "1000"], 2, "'1000' must be a whole number at least 2000 and at most 96000"),
        (["--rate", "200000"], 2, "'200000' must be a whole number at least 2000 and at most 96000"),
        (["--seconds", "0"], 1, "recordings of 0.0 s must be at least 0.5 s long"),
        (["--seconds", "1e9"], 1, "made in memory and must be at most 312 s long"),
        (["--sensors", "16", "--format", "flac"], 1, "FLAC has at most 8 channels"),
        (["--sensors", "1", "--faults", "swapped"], 1, "takes two sensors and there is one"),
        (["--recordings", "1000000000"], 1, "1000000000 recordings must be at most 100000"),
        (["--clips", "/nowhere"], 1, "/nowhere is not a directory"),
        (["--recordings", "0"], 2, "'0' must be a whole number at least 1"),
    ],
)
def test_wrong_input_is_named_and_nothing_is_written(arguments, code, message, tmp_path):
    """One line, the value, the rule, the cure."""
    done = gemmed("simulate", str(tmp_path / "o"), *arguments)
    assert done.returncode == code
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_place_that_cannot_be_used_is_named(tmp_path):
    """A file, and a directory that holds something else."""
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    for name, message in (("file", "is a file; give a directory of its own"), ("full", "holds no simulation")):
        done = gemmed("simulate", str(tmp_path / name), *SMALL)
        assert done.returncode == 1
        assert message in done.stderr


def test_help_names_every_fault():
    """Nobody has to guess."""
    told = " ".join(gemmed("simulate", "--help").stdout.replace("│", " ").split())
    assert all(fault in told for fault in FAULTS)


def test_settings_are_written_beside_the_recordings(dataset):
    """All that decides the bits can be read again."""
    settings = json.loads((dataset / "simulation.json").read_text())
    assert settings["seed"] == 4
    assert settings["rate_hz"] == 2000
    assert len(settings["sensors_m"]) == 4
    assert settings["faults"] == list(FAULTS)
    assert settings["fault_shares"] == [0.3] * 4


@pytest.mark.parametrize("interrupts", [1, 3])
def test_ctrl_c_ends_at_once_however_often(interrupts, tmp_path):
    """Sent to all processes, as a terminal does: exit code 130, one line, nobody left, nothing half written."""
    command = ["simulate", str(tmp_path / "o"), "--recordings", "200"]
    process = Process(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    eventually(lambda: process.poll() is not None or list(tmp_path.glob("o/r*.wav")))
    for _ in range(interrupts):
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode in ((130,) if interrupts == 1 else (130, 1, -signal.SIGINT))
    if interrupts == 1:
        assert errors.strip() == "gemmed: interrupted; the same command continues"
    assert everybody_gone(process.pid)
    written = list(tmp_path.glob("o/r*.wav"))
    assert written
    assert all(soundfile.info(path).frames == 14 * 16_000 for path in written)


def test_a_killed_worker_is_told_in_one_line(tmp_path):
    """Not a traceback: memory ran out, most likely."""
    command = ["simulate", str(tmp_path / "o"), "--recordings", "200", "--jobs", "2"]
    process = Process(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    eventually(lambda: process.poll() is not None or list(tmp_path.glob("o/r*.wav")))
    for member in group_members(process.pid):
        if b"spawn_main" in Path(f"/proc/{member}/cmdline").read_bytes():
            os.kill(int(member), signal.SIGKILL)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert errors.strip() == "gemmed: a worker was killed, perhaps for want of memory; start again with fewer jobs"


def test_leftovers_of_a_killed_start_do_not_lock_the_directory(tmp_path):
    """Only whole files count."""
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "simulation.json.123.partial").write_text("{")
    small = (PLAIN, "--rate", "2000", "--seconds", "1", "--recordings", "1")
    assert gemmed("simulate", str(tmp_path / "o"), *small).returncode == 0
    (tmp_path / "o" / "simulation.json").write_text("[]")
    done = gemmed("simulate", str(tmp_path / "o"), *small)
    assert done.returncode == 1
    assert "simulation.json is damaged; add --restart" in done.stderr
