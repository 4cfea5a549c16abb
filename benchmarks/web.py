"""Fifty open pages: what they cost the process that serves them, and whether the daemon decides later because of them.

    python -m benchmarks.web [--pages 50] [--seconds 30] [--rounds 3] [--only pages|history]

A real `gemmed run` hears four sensors at 16 kHz at real time. In turns nobody looks, so many pages are connected as a
browser connects them (one stream of server-sent events each, with the live spectrogram), and, for comparison, as many
clients ask for the status once a second, each over a kept connection. Latency is that of `benchmarks.daemon`: from the
chunk with the last sample of a segment to its decision, stored.

Then a month of 10,000 passages and 5 million decisions is built, and the page History opened by a fresh server.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.daemon import RATE, SITE, Daemon, at_real_time, cpu_seconds, learn, sound
from benchmarks.report import finish, show
from benchmarks.web_history import history, wait_for

_WARM_UP_SECONDS = 10.0
_PASSAGES = 10_000
NOBODY, PAGES, POLLING = "nobody looks", "pages", "polling"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0, help="of every turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("pages", "history"))
    parser.add_argument("--decisions", type=int, default=5_000_000, help="in the month of history")
    parser.add_argument("--look", nargs=2, metavar=("HOW", "PORT"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.look:
        with suppress(KeyboardInterrupt):
            asyncio.run(look(chosen.look[0], int(chosen.look[1]), chosen.pages))
        return
    with tempfile.TemporaryDirectory(prefix="gemmed-web-") as directory:
        figures: dict[str, Any] = {}
        if chosen.only != "history":
            figures |= measured(Path(directory), chosen)
        if chosen.only != "pages":
            figures |= history(
                Path(directory), free_port(), passages=_PASSAGES, decisions=chosen.decisions, rounds=chosen.rounds
            )
        finish(figures)


async def look(how: str, port: int, pages: int) -> None:
    """The clients, in a process of their own; they end with it."""
    await asyncio.gather(*(_page(port) if how == PAGES else _polling(port) for _ in range(pages)))


async def _page(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /api/v1/stream?spectrogram=true HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    )
    while await reader.read(1 << 16):
        pass


async def _polling(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        await asyncio.sleep(1.0)


def measured(directory: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    assert learn(directory / "state", SITE).wait() == 0
    heard, port = sound(), free_port()
    daemon = Daemon(directory, web=f'address = "127.0.0.1:{port}"')
    at_real_time(daemon, heard, _WARM_UP_SECONDS)
    wait_for(port)
    server, start = child_of(daemon.process.pid), round(_WARM_UP_SECONDS * RATE)
    turns: dict[str, list[dict[str, Any]]] = {NOBODY: [], PAGES: [], POLLING: []}
    for _ in range(chosen.rounds):
        for how, found in turns.items():
            clients = None if how == NOBODY else looking(how, port, chosen.pages)
            before, begun = cpu_seconds(server), time.monotonic()
            turn = at_real_time(daemon, heard, chosen.seconds, start)
            used = cpu_seconds(server) - before
            found.append(turn | {"server_cpu_percent": 100 * used / (time.monotonic() - begun)})
            start += round(chosen.seconds * RATE)
            if clients is not None:
                assert clients.poll() is None
                clients.kill()
                clients.wait()
    daemon.end()
    return summed_up(turns, chosen)


def looking(how: str, port: int, pages: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.web", "--look", how, str(port), "--pages", str(pages)]
    return subprocess.Popen(command)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def child_of(pid: int) -> int:
    """The process that serves the pages."""
    for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if b"pipeline.web" in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0"):
            return int(number)
    raise SystemExit("the daemon has no process that serves pages")


def summed_up(turns: dict[str, list[dict[str, Any]]], chosen: argparse.Namespace) -> dict[str, Any]:
    middle = {
        how: {
            key: median(turn[key] for turn in found)
            for key in ("p50_ms", "p99_ms", "cpu_percent", "server_cpu_percent")
        }
        for how, found in turns.items()
    }
    show(
        f"{chosen.pages} pages, medians of {chosen.rounds} turns of {chosen.seconds:g} s",
        ("", "decision p50 ms", "p99 ms", "daemon CPU, % of a core", "server CPU, % of a core"),
        [(how, *(f"{value:.2f}" for value in found.values())) for how, found in middle.items()],
    )
    ratios = [
        with_pages["p50_ms"] / without["p50_ms"]
        for without, with_pages in zip(turns[NOBODY], turns[PAGES], strict=True)
    ]
    return {
        f"cpu_percent_{chosen.pages}_pages": round(middle[PAGES]["server_cpu_percent"], 2),
        "latency_ratio": round(median(ratios), 3),
        "latency_ratio_by_turn": [round(ratio, 3) for ratio in ratios],
        "latency_p99_ratio": round(middle[PAGES]["p99_ms"] / middle[NOBODY]["p99_ms"], 3),
        "cpu_percent_nobody": round(middle[NOBODY]["server_cpu_percent"], 2),
        "cpu_percent_polling": round(middle[POLLING]["server_cpu_percent"], 2),
        "daemon_cpu_percent": {how: round(found["cpu_percent"], 2) for how, found in middle.items()},
        "pages": chosen.pages,
    }


if __name__ == "__main__":
    main()
