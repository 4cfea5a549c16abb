"""The command as a user runs it: real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TIMEOUT, component, eventually
from tests.forked import ROOT, Process, gemmed


def afresh(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that loads what it needs by itself."""
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pipeline.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=TIMEOUT,
    )


@pytest.mark.parametrize(
    "arguments", [[], ["reproduce"], ["reproduce", "ring"], ["reproduce", "footsteps"], ["simulate"]]
)
def test_every_command_explains_itself(arguments):
    """--help and -h answer on standard output with exit code 0."""
    for flag in ("--help", "-h"):
        done = afresh(*arguments, flag)
        assert done.returncode == 0
        assert "Usage:" in done.stdout


def test_help_imports_nothing_heavy():
    """Help is instant because numpy, scipy, scikit-learn, numba and matplotlib stay out."""
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from pipeline.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(json.loads(done.stdout.replace("'", '"')))
    assert not loaded & {"numpy", "scipy", "sklearn", "numba", "librosa", "river", "matplotlib", "soundfile"}


def test_one_blas_thread_is_set_before_numpy():
    """The limit is in the environment after importing the package, unless the user has set another."""
    code = "import pipeline, os; print(os.environ['OPENBLAS_NUM_THREADS'], os.environ['OMP_NUM_THREADS'])"
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.stdout.split() == ["1", "1"]
    environment["OPENBLAS_NUM_THREADS"] = "3"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.stdout.split() == ["3", "1"]


def test_version_is_the_distributions():
    """One version, in two places that must agree."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE).group(1)
    assert afresh("--version").stdout.strip() == f"gemmed {version}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "rings"], "No such command 'rings'"),
        (["reproduce", "ring", "--trials", "1"], "'--trials': '1' must be a whole number at least 2; for example 50"),
        (
            ["reproduce", "footsteps", "--splits", "1"],
            "'--splits': '1' must be a whole number at least 2; for example 6",
        ),
        (["reproduce", "ring", "--jobs", "0"], "'--jobs': '0' must be a whole number at least 1"),
        (["reproduce", "ring", "--seed", "-1"], "'--seed': '-1' must be a whole number at least 0"),
        (
            ["reproduce", "ring", "--trials", "many"],
            "'--trials': 'many' must be a whole number at least 2; for example 50",
        ),
    ],
)
def test_wrong_usage_is_named(arguments, message):
    """Exit code 2 and the offending value."""
    done = gemmed(*arguments)
    assert done.returncode == 2
    assert message in re.sub(r"[\s│]+", " ", done.stderr)


def test_an_unusable_output_directory_is_named(tmp_path):
    """A file where the directory should be, the current directory, a place that cannot be: one line, exit code 1."""
    (tmp_path / "taken").write_text("")
    for out, message in [
        (str(tmp_path / "taken"), "taken' must be a directory of its own"),
        ("", "must be a directory of its own"),
        ("/proc/none", "/proc/none: No such file or directory; check the path"),
    ]:
        done = gemmed("reproduce", "ring", "--quick", "--out", out)
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_recordings_that_cannot_be_used_are_named(tmp_path):
    """No labels, or too few recordings of a class: one line, exit code 1."""
    component("matplotlib")
    component("cleanlab")
    where = ("reproduce", "footsteps", "--quick", "--recordings", str(tmp_path), "--out", str(tmp_path / "out"))
    done = gemmed(*where)
    assert done.returncode == 1
    assert (
        "labels.csv is not there; write one with the columns recording,start_seconds,end_seconds,label" in done.stderr
    )
    soundfile = component("soundfile")
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", np.random.default_rng(0).normal(0, 0.1, (4000 * 14, 1)), 4000)
    rows = "recording,start_seconds,end_seconds,label\na,0,14,walk\nb,0,14,ride\n"
    (tmp_path / "labels.csv").write_text(rows)
    done = gemmed(*where)
    assert done.returncode == 1
    assert "1 recordings of 'ride' give 1 for training and 0 for testing, there must be 12" in done.stderr
    assert "Traceback" not in done.stderr


def test_workers_die_with_the_command(tmp_path):
    """SIGKILL of the command alone: no worker is left behind, waiting for work that will never come."""
    out = tmp_path / "o"
    command = ["simulate", str(out), "--recordings", "500", "--jobs", "2"]
    process = Process(command, start_new_session=True)
    eventually(lambda: process.poll() is not None or len([*out.glob("*.wav"), *out.glob("*.flac")]) > 1)
    assert len(group_members(process.pid)) > 2
    process.kill()
    process.wait()
    assert everybody_gone(process.pid)


def everybody_gone(group: int) -> bool:
    """Whether all processes of a group end soon; the helper of a killed process may outlive it by a moment."""
    return bool(eventually(lambda: not group_members(group)))


def group_members(group: int) -> list[str]:
    """Commands of the living processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, process_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(process_group) == group and state != "Z":
                found.append(entry.name)
    return found


@pytest.mark.soak
def test_quick_ring_is_resumed_after_a_kill_and_gives_the_same_bytes(tmp_path):
    """Killed for real in the middle, started again: every file equals that of an undisturbed run."""
    component("matplotlib")
    command = [sys.executable, "-m", "pipeline.cli", "reproduce", "ring", "--quick", "--trials", "2"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert gemmed(*command[3:], "--out", str(whole)).returncode == 0
    process = subprocess.Popen(
        [*command, "--out", str(broken), "--jobs", "1"], cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
    )
    trials = broken / "trials.jsonl"
    eventually(lambda: process.poll() is not None or (trials.exists() and trials.read_text().count("\n") >= 4))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done_before = trials.read_text().count("\n")
    assert 4 <= done_before < 27
    again = gemmed(*command[3:], "--out", str(broken))
    assert again.returncode == 0
    assert "continuing:" in again.stdout
    for name in ("errors.csv", "anomalies.csv", "precision_recall.csv", "step_sizes.csv", "report.md"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    for name in ("ring.png", "step_sizes.png", "boundary.png"):
        assert (broken / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    other = gemmed(*command[3:], "--out", str(broken), "--seed", "9")
    assert other.returncode == 1
    assert "--restart" in other.stderr
