"""The systemd unit, as systemd reads it."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

from tests.conftest import TIMEOUT, program

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "gemmed.service"


def entries(section: str) -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return dict(parser[section])


def test_systemd_finds_nothing_wrong(tmp_path):
    """Every name and value is known to it; the command is put where the unit expects it, below another root."""
    systemd_analyze = program("systemd-analyze")
    unit = tmp_path / "etc" / "systemd" / "system" / "gemmed.service"
    unit.parent.mkdir(parents=True)
    shutil.copy(UNIT, unit)
    for name in (entries("Service")["ExecStart"].split()[0], entries("Service")["ExecReload"].split()[0]):
        command = tmp_path / name.lstrip("/")
        command.parent.mkdir(parents=True, exist_ok=True)
        command.touch(mode=0o755)
    # The units of the machine itself that ours names.
    for name in ("network", "sound", "time-sync", "sysinit", "basic", "shutdown", "multi-user"):
        (unit.parent / f"{name}.target").write_text(f"[Unit]\nDescription={name}\n")
    command_line = [systemd_analyze, "verify", "--recursive-errors=no", f"--root={tmp_path}", str(unit)]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_its_exposure_is_small():
    """On systemd's scale from 0 to 10; the rest is the sound card and connections within the machine."""
    command = [program("systemd-analyze"), "security", "--offline=true", "--threshold=20", "--no-pager", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    exposure = re.search(r"exposure level for gemmed\.service: ([0-9.]+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) < 2.0
    assert done.returncode == 0


def test_it_does_not_try_for_ever():
    """So many starts as the limit allows take less than the time in which they are counted."""
    unit, service = entries("Unit"), entries("Service")
    assert service["Restart"] == "on-failure"
    seconds = {"s": 1, "min": 60}

    def of(text: str) -> float:
        found = re.fullmatch(r"(\d+)(s|min)", text)
        assert found is not None
        return int(found[1]) * seconds[found[2]]

    assert int(unit["StartLimitBurst"]) * of(service["RestartSec"]) < of(unit["StartLimitIntervalSec"])
    # Also where each start lives until the watchdog ends it.
    assert int(unit["StartLimitBurst"]) * (of(service["RestartSec"]) + of(service["WatchdogSec"])) < of(
        unit["StartLimitIntervalSec"]
    )


def test_its_places_are_those_of_the_other_files():
    """User, state and cache are what the settings, the user's file and the container say."""
    service = entries("Service")
    assert service["User"] == (DEPLOY / "gemmed.sysusers").read_text().splitlines()[-1].split()[1]
    state = f"/var/lib/{service['StateDirectory']}"
    assert f'\ndirectory = "{state}"\n' in (DEPLOY / "gemmed.toml").read_text()
    assert f"NUMBA_CACHE_DIR=/var/cache/{service['CacheDirectory']}" == service["Environment"]
    container = (DEPLOY / "Containerfile").read_text()
    assert f"VOLUME {state}\n" in container
    assert service["Environment"] in container
