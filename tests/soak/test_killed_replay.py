"""A replay that is killed again and again."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import eventually
from tests.forked import Process, gemmed
from tests.reports.test_replay import replayed
from tests.test_cli import everybody_gone

KILLS = 100


def over_or_long(process: Process, out: Path, enough: int) -> bool:
    return process.poll() is not None or (out.exists() and out.stat().st_size > enough)


@pytest.mark.soak
def test_killed_a_hundred_times_the_bytes_are_those_of_an_undisturbed_replay(model, unseen, tmp_path, report):
    """Each time after a random number of bytes more, with one or two workers; nothing repeated, nothing skipped."""
    many = tmp_path / "many"
    many.mkdir()
    for number in range(150):
        for path in sorted(unseen.glob("*.wav")):
            (many / f"{number:03d}_{path.name}").symlink_to(path)
    whole = replayed(model, many, tmp_path / "whole.jsonl").read_bytes()
    out = tmp_path / "killed.jsonl"
    command = ["replay", str(many), "--model", str(model), "--out", str(out), "--alpha", "0.05"]
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(KILLS):
        jobs = str(rng.integers(1, 3))
        process = Process([*command, "--jobs", jobs], start_new_session=True)
        before = out.stat().st_size if out.exists() else 0
        enough = before + int(rng.integers(0, len(whole) // KILLS * 2))
        eventually(partial(over_or_long, process, out, enough))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        assert everybody_gone(process.pid)
        assert whole.startswith(out.read_bytes()[: out.read_bytes().rfind(b"\n") + 1])
    report(kills=kills)
    assert kills > KILLS // 2
    assert gemmed(*command).returncode == 0
    assert out.read_bytes() == whole
