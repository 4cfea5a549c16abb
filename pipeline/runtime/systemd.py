"""How systemd is told that the daemon is ready, reloads, stops and lives. Without systemd nothing happens."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

_SEND_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Notifier:
    """Sends datagrams to the socket that systemd named; what does not arrive there is no trouble of the daemon."""

    address: str | None
    watchdog_seconds: float | None
    """`alive` must be told at least so often, twice as often to be sure; None if nobody watches."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        return cls(_address(environment.get("NOTIFY_SOCKET", "")), _watch(environment))

    def ready(self) -> None:
        self._send("READY=1")

    def reloading(self) -> None:
        """To be followed by `ready`."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """One line that `systemctl status` shows."""
        self._send(f"STATUS={' '.join(text.split())}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self.address is None:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(_SEND_SECONDS)
            channel.sendto("\n".join(lines).encode(errors="replace"), self.address)


def _address(name: str) -> str | None:
    """A path, or with a leading @ a name in the abstract namespace, which has no files."""
    if name.startswith("@"):
        return f"\0{name[1:]}"
    return name if name.startswith("/") else None


def _watch(environment: Mapping[str, str]) -> float | None:
    """How long systemd waits; the variable may have been meant for the process that started this one."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 1e6 if meant and microseconds.isdecimal() and int(microseconds) else None
