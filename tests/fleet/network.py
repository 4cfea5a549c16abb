"""A second machine, as far as the network goes: a namespace with a cable to this one that can be cut."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.conftest import network, program


class FarMachine:
    """Processes started `inside` it see nothing of this machine but what answers at `here`."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("networks can be made by root only")
        self._ip = program("ip")
        number = os.getpid() % 200 + 20
        self.here, self.there = f"10.213.{number}.1", f"10.213.{number}.2"
        self._network = network(changes=True)
        self._name, self._cable = f"gemmed-{os.getpid()}", f"gm{os.getpid()}"

    @property
    def inside(self) -> list[str]:
        return [self._ip, "netns", "exec", self._name]

    def __enter__(self) -> FarMachine:
        self._network.__enter__()
        far = self._cable + "f"
        self._run("netns", "add", self._name)
        self._run("link", "add", self._cable, "type", "veth", "peer", "name", far, "netns", self._name)
        self._run("address", "add", f"{self.here}/30", "dev", self._cable)
        self._run("link", "set", self._cable, "up")
        for words in (("address", "add", f"{self.there}/30", "dev", far), ("link", "set", far, "up"),
                      ("link", "set", "lo", "up")):  # fmt: skip
            self._run("-netns", self._name, *words)
        return self

    def __exit__(self, *exc: object) -> None:
        self._run("link", "delete", self._cable)
        self._run("netns", "delete", self._name)
        self._network.__exit__(None, None, None)

    def cut(self) -> None:
        self._run("link", "set", self._cable, "down")

    def mend(self) -> None:
        self._run("link", "set", self._cable, "up")

    def _run(self, *words: str) -> None:
        subprocess.run([self._ip, *words], check=True, capture_output=True)
