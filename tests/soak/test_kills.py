"""Kill the experiment again and again, for real; what it ends with must not know."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.forked import Process, gemmed

FILES = ("errors.csv", "anomalies.csv", "precision_recall.csv", "step_sizes.csv", "report.md")


def command(out: Path) -> list[str]:
    return ["reproduce", "ring", "--quick", "--out", str(out)]


@pytest.mark.soak
def test_a_run_killed_twenty_times_ends_as_if_undisturbed(tmp_path, report):
    """SIGKILL of the whole process group at random moments, with workers and file writes under way."""
    assert gemmed(*command(tmp_path / "whole")).returncode == 0
    chance, kills = random.Random(0), 0
    for _ in range(20):
        process = Process(command(tmp_path / "broken"), start_new_session=True)
        try:
            process.wait(timeout=chance.uniform(1.0, 12.0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
    started = time.monotonic()
    assert gemmed(*command(tmp_path / "broken")).returncode == 0
    report(kills=kills, seconds_for_the_rest=round(time.monotonic() - started))
    for name in FILES:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes()
