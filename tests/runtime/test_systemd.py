"""Notifications, received by a real datagram socket."""

from __future__ import annotations

import os
import socket
import time
import uuid

import pytest

from pipeline.runtime.systemd import Notifier
from tests.conftest import TIMEOUT


@pytest.fixture(params=["path", "abstract"])
def systemd(request, tmp_path):
    """A socket as systemd has one, and the name it gives to services."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@gemmed-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1) if name[0] == "@" else name)
        receiver.settimeout(TIMEOUT)
        yield receiver, name


@pytest.mark.parametrize(
    ("tell", "expected"),
    [
        (Notifier.ready, b"READY=1"),
        (Notifier.stopping, b"STOPPING=1"),
        (Notifier.alive, b"WATCHDOG=1"),
        (lambda notifier: notifier.status("12 segments\nREADY=1  läuft"), "STATUS=12 segments READY=1 läuft".encode()),
    ],
)
def test_each_message_arrives_as_one_datagram(systemd, tell, expected):
    """A line end in a status must not become another message."""
    receiver, name = systemd
    tell(Notifier.from_environment({"NOTIFY_SOCKET": name}))
    assert receiver.recv(4096) == expected


def test_reloading_tells_when_it_began(systemd):
    """On systemd's clock, so that it can tell this reload from the last."""
    receiver, name = systemd
    before = time.monotonic_ns() // 1000
    Notifier.from_environment({"NOTIFY_SOCKET": name}).reloading()
    first, second = receiver.recv(4096).split(b"\n")
    assert first == b"RELOADING=1"
    assert before <= int(second.removeprefix(b"MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_systemd_nothing_happens(environment):
    notifier = Notifier.from_environment(environment)
    notifier.ready()
    assert notifier == Notifier(None, None)


def test_a_socket_that_is_gone_is_no_trouble(tmp_path):
    Notifier.from_environment({"NOTIFY_SOCKET": str(tmp_path / "gone")}).alive()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getppid())}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_for_the_process_it_names(environment, seconds):
    assert Notifier.from_environment(environment).watchdog_seconds == seconds
