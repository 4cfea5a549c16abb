"""The Containerfile, read as far as it can be without an engine that builds it.

Not covered: the base image, the network, and what only happens inside a running container. The same pip installation is
made for real by the tests of install.sh.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.conftest import TIMEOUT, program

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Containerfile").read_text()
KNOWN = {"FROM", "WORKDIR", "ARG", "COPY", "RUN", "ENV", "USER", "VOLUME", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def steps() -> list[tuple[str, str]]:
    """Instructions and their arguments, continued lines joined, comments left out."""
    lines = "\n".join(line for line in TEXT.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    return [(line.split()[0], line.partition(" ")[2]) for line in joined.splitlines() if line.strip()]


def arguments(instruction: str) -> list[str]:
    return [argument for name, argument in steps() if name == instruction]


def commands() -> list[list[str]]:
    """Single commands of all RUN steps, in words."""
    return [command.split() for run in arguments("RUN") for command in run.split("&&")]


def test_every_instruction_is_known():
    assert {name for name, _ in steps()} == KNOWN


def test_every_file_that_is_copied_exists():
    """In the checkout, or in the stage that it is copied from."""
    for argument in arguments("COPY"):
        words = argument.split()
        if words[0].startswith("--from="):
            assert f"AS {words[0].removeprefix('--from=')}\n" in TEXT
            assert any(words[1] in command for command in commands())
            continue
        for name in words[:-1]:
            assert (ROOT / name).exists(), name


def test_what_pip_installs_is_what_there_is():
    """The build gets every file that the package needs, and asks for extras that exist."""
    (pip,) = (command for command in commands() if "pip" in command)
    copied = " ".join(arguments("COPY")).split()
    assert pip[pip.index("--constraint") + 1] in copied
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"], "pyproject.toml", "pipeline"} <= set(copied)
    assert pip[-1] == '".[${EXTRAS}]"'
    (extras,) = arguments("ARG")
    assert set(extras.removeprefix("EXTRAS=").split(",")) <= set(project["optional-dependencies"])


def test_debian_packages_exist():
    """Under the names that Debian has."""
    apt_cache = program("apt-cache")
    (install,) = (command for command in commands() if command[:2] == ["apt-get", "install"])
    packages = [word for word in install[2:] if not word.startswith("-")]
    assert packages
    for package in packages:
        told = subprocess.run(
            [apt_cache, "policy", package], capture_output=True, text=True, check=True, timeout=TIMEOUT
        )
        if not told.stdout:
            pytest.skip("this machine has no lists of packages; apt-get update gets them")
        assert re.search(r"(Installed|Candidate): \d", told.stdout), package


def test_it_runs_as_nobody_special_and_keeps_its_state():
    """The user is made before it is used, and owns the volume."""
    (user,) = arguments("USER")
    (useradd,) = (command for command in commands() if command[0] == "useradd")
    (directories,) = (command for command in commands() if command[0] == "install")
    assert useradd[-1] == user == "gemmed"
    assert f"--owner={user}" in directories
    assert arguments("VOLUME")[0] in directories


def test_its_commands_are_those_of_the_program():
    """What it starts, what its health check asks, with the settings that were copied."""
    from pipeline.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    started = [*json.loads(arguments("ENTRYPOINT")[0]), *json.loads(arguments("CMD")[0])]
    asked = json.loads(arguments("HEALTHCHECK")[0].partition("CMD ")[2])
    for name, command, *options in (started, asked):
        assert name in scripts
        assert command in known
        assert options == ["--config", arguments("COPY")[-1].split()[-1]]
