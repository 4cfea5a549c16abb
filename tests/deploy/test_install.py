"""deploy/install.sh, really run into a root of its own.

pip is told by its own variable to leave out the dependencies, which are hundreds of megabytes and the same for
everybody; the installed command borrows those of the tests. `make soak` installs all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pipeline.config.schema import read_settings
from tests.conftest import TIMEOUT, program

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "install.sh"
SITE = sysconfig.get_path("purelib")


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, "--python", sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=TIMEOUT,
    )


def files(root: Path) -> set[str]:
    """All but those of the virtual environment and of the user's database."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir() or path.is_symlink())
    return {path for path in found if not path.startswith("opt/") and path.count("/") > 1}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of this checkout that may be changed."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "pipeline", copy / "pipeline", ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    return copy


@pytest.fixture(scope="module")
def installed(tmp_path_factory, checkout):
    """Installed once, changed by the operator, upgraded to a later state of the same version, as a machine of a fleet;
    and what was told."""
    program("systemd-sysusers")
    root = tmp_path_factory.mktemp("root")
    first = run("--root", root, checkout, PIP_NO_DEPS="1")
    assert first.returncode == 0, first.stderr
    (root / "etc" / "gemmed" / "gemmed.toml").write_text("[array]\nsensors = 6\n")
    (root / "var" / "lib" / "gemmed").mkdir(parents=True)
    (root / "var" / "lib" / "gemmed" / "journal").write_text("precious")
    (checkout / "pipeline" / "later.py").write_text("")
    second = run("--root", root, "--fleet", checkout, PIP_NO_DEPS="1")
    assert second.returncode == 0, second.stderr
    return root, first.stdout, second.stdout


def test_the_installed_command_answers(installed):
    """From its own files, not from the checkout."""
    root, *_ = installed
    command = root / "opt" / "gemmed" / "bin" / "gemmed"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": SITE}
    done = subprocess.run(
        [command, "--version"], capture_output=True, text=True, env=environment, cwd="/", timeout=TIMEOUT
    )
    assert (done.returncode, done.stderr) == (0, "")
    where = [command.with_name("python"), "-P", "-c", "import pipeline.later; print(pipeline.__file__)"]
    done = subprocess.run(where, capture_output=True, text=True, cwd="/", timeout=TIMEOUT, check=True)
    assert Path(done.stdout.strip()).is_relative_to(root / "opt" / "gemmed")


def test_everything_is_in_its_place(installed):
    """Units, a user without a shell, settings, a command in the path; nothing else."""
    root, *_ = installed
    units = {unit.name: unit for unit in (ROOT / "deploy").rglob("*.service")}
    assert files(root) == {
        "etc/gemmed/gemmed.toml",
        *(f"etc/systemd/system/{name}" for name in units),
        "etc/sysusers.d/gemmed.conf",
        "usr/local/bin/gemmed",
        "var/lib/gemmed/journal",
    }
    assert (root / "usr" / "local" / "bin" / "gemmed").readlink() == Path("/opt/gemmed/bin/gemmed")
    for name, unit in units.items():
        assert (root / "etc" / "systemd" / "system" / name).read_text() == unit.read_text()
    (user,) = (line.split(":") for line in (root / "etc" / "passwd").read_text().splitlines())
    assert (user[0], user[5], user[6]) == ("gemmed", "/var/lib/gemmed", "/usr/sbin/nologin")


def test_an_upgrade_keeps_the_settings_and_says_so(installed):
    root, first, second = installed
    settings = root / "etc" / "gemmed" / "gemmed.toml"
    assert f"writing {settings}" in first
    assert f"keeping {settings}" in second
    assert read_settings(settings).array.sensors == 6


def test_the_checkout_is_left_as_it_was(installed, checkout):
    """No build directories, which the next build would take in."""
    names = {path.name for path in checkout.iterdir()}
    assert names == {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "pipeline"}


def test_uninstalling_keeps_what_is_precious_until_told_otherwise(installed, tmp_path):
    """On a copy without the virtual environment's files, so that the other tests keep theirs."""
    root = tmp_path / "root"
    shutil.copytree(
        installed[0], root, symlinks=True, ignore=lambda folder, _: ["lib"] if folder.endswith("opt/gemmed") else []
    )
    done = run("--uninstall", "--root", root)
    assert done.returncode == 0, done.stderr
    assert "kept: settings" in done.stdout
    assert not (root / "opt" / "gemmed").exists()
    assert files(root) == {"etc/gemmed/gemmed.toml", "var/lib/gemmed/journal"}
    for _ in range(2):
        assert run("--uninstall", "--purge", "--root", root).returncode == 0
        assert files(root) == set()


def test_without_rights_it_changes_nothing():
    """As nobody, whoever runs the tests."""
    nobody = {"user": "nobody"} if os.getuid() == 0 else {}
    with SCRIPT.open() as script:
        done = subprocess.run(
            ["/bin/sh", "-s"], stdin=script, capture_output=True, text=True, timeout=TIMEOUT, **nobody
        )
    assert done.returncode == 1
    assert "needs root to install into /opt and /etc" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--purge"], "--purge goes with --uninstall"),
        (["--root"], "--root needs a directory"),
        (["--frobnicate"], "usage: "),
        (["none.whl"], "none.whl is no file; give a wheel"),
        (["/usr"], "/usr is no checkout of gemmed; give one, or a wheel"),
        (["--python", "false"], "false is older than 3.11 or does not run; give a newer one with --python"),
    ],
)
def test_mistakes_are_told(arguments, told, tmp_path):
    """Before anything is installed."""
    root = [] if arguments == ["--root"] else ["--root", tmp_path / "root"]
    done = run(*root, *arguments)
    assert done.returncode != 0
    assert told in done.stderr
    assert not (tmp_path / "root" / "opt").exists()
    assert not (tmp_path / "root" / "etc").exists()


@pytest.mark.parametrize(
    "script", ["install.sh", "debian-packages.sh", "fleet/certificates.sh", "fleet/broker-user.sh"]
)
def test_scripts_are_portable(script):
    subprocess.run([program("shellcheck"), "--shell=sh", ROOT / "deploy" / script], check=True, timeout=TIMEOUT)


@pytest.mark.soak
def test_with_all_dependencies_it_works(checkout, tmp_path):
    """From a wheel; the command then needs nothing of the tests' environment."""
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, checkout]
    subprocess.run(wheel, check=True, timeout=TIMEOUT)
    (built,) = tmp_path.glob("*.whl")
    done = run("--root", tmp_path / "root", built)
    assert done.returncode == 0, done.stderr
    command = tmp_path / "root" / "opt" / "gemmed" / "bin" / "gemmed"
    out = tmp_path / "simulated"
    simulate = [command, "simulate", out, "--recordings", "1", "--seconds", "4", "--no-picture"]
    subprocess.run(simulate, check=True, cwd="/", env={"PATH": "/usr/bin:/bin"}, timeout=TIMEOUT)
    assert any(out.iterdir())
