"""A month of history: what it costs to open the page History with 10,000 passages among 5 million decisions."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.daemon import cpu_seconds
from benchmarks.report import show
from pipeline.core.event_json import EventLines
from pipeline.core.events import Outcome, Passage, PassageEnd, PassageEnded, RecordingStarted
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from pipeline.storage.passage_table import passage_change

_RATE = 16_000
_DAYS, _HOUR = 30, 3600
_SECONDS = 20
_LABELS = ("human", "human_animal", None)
_OPENS = (
    "/labels/words",
    "/labels?most=1",
    "/passages/calendar?days=31&zone=Europe/Berlin",
    "/passages?most=50",
)
"""What the page asks for when it opens."""
_TABLE = ("/passages.csv",)
_DECISIONS = """
    INSERT INTO events (run, recording, sample, time, type, body)
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :n)
    SELECT 'run', printf('r%04d', n * :step / 3600), cast(n * :step AS INTEGER) % 3600 * 16000,
        strftime('%Y-%m-%dT%H:%M:%fZ', julianday(:begin) + n * :step / 86400), 'decision', :body FROM numbers
"""


def history(directory: Path, port: int, *, passages: int, decisions: int, rounds: int) -> dict[str, Any]:
    """Build a month, open it `rounds` times with a fresh server, and return the figures."""
    state = StateDirectory(directory / "month")
    begun = time.perf_counter()
    build(state, passages, decisions)
    built, size_mb = time.perf_counter() - begun, state.journal.stat().st_size / 1e6
    config = directory / "month.toml"
    config.write_text(
        f'[storage]\ndirectory = "{state.path}"\n[source]\nkind = "pcm"\n[web]\naddress = "127.0.0.1:{port}"\n'
    )
    first, again, table = zip(*(opened(config, port) for _ in range(rounds)), strict=True)
    rows = [("opened first", first), ("opened again", again), ("CSV of all", table)]
    show(
        f"{passages} passages, {decisions} decisions, {size_mb:.0f} MB, built in {built:.0f} s",
        ("", "server CPU, s", "wall, s"),
        [(name, *(f"{median(one[place] for one in found):.3f}" for place in (0, 1))) for name, found in rows],
    )
    return {
        "history_open_seconds": round(median(cpu for cpu, _ in first), 3),
        "history_open_wall_seconds": round(median(wall for _, wall in first), 3),
        "history_open_again_seconds": round(median(cpu for cpu, _ in again), 3),
        "history_csv_seconds": round(median(cpu for cpu, _ in table), 3),
        "history_passages": passages,
        "history_decisions": decisions,
    }


def build(state: StateDirectory, passages: int, decisions: int) -> None:
    """Write a month as the recorder does, but all at once."""
    state.create()
    begin = datetime.now(UTC) - timedelta(days=_DAYS)
    with Journal(state.journal) as journal, journal.transaction():
        for hour in range(24 * _DAYS):
            started = (begin + timedelta(hours=hour)).isoformat()
            values = (f"r{hour:04d}", "run", _RATE, 4, "{}", started, _HOUR * _RATE)
            journal.execute("INSERT INTO recordings VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        for start, event in _passages(passages):
            at = begin + timedelta(seconds=start)
            journal.execute(*passage_change("run", event, at, at + timedelta(seconds=_SECONDS)))
    body = json.dumps({"type": "decision", "label": None, "reason": "nobody", "roles": ["used"] * 4})
    step = _DAYS * 86400 / decisions
    with closing(sqlite3.connect(state.journal)) as journal_file, journal_file:
        journal_file.execute(_DECISIONS, {"n": decisions, "step": step, "begin": begin.isoformat(), "body": body})


def _passages(n: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """Seconds from the beginning of the month, and the event that ends the passage."""
    events: list[dict[str, Any]] = []
    lines = EventLines(events.append, model="0" * 12)
    for number in range(n):
        seconds = number * _DAYS * 86400 / n
        hour, start = divmod(round(seconds * _RATE), _HOUR * _RATE)
        label = _LABELS[number % len(_LABELS)]
        made = Passage(
            id=f"r{hour:04d}.p{start}",
            start=start,
            stop=start + _SECONDS * _RATE,
            outcome=Outcome(label, 0.9, None, None if label else "too close to call", (0.1, 0.9)),
            evidence={"human": -2.3, "human_animal": -0.1},
            presence=0.9,
            segments=40,
            decided=38,
            sensors_used=(0, 1, 2, 3),
            excluded=(),
            peaks=(),
            p_known=0.5,
            cadence_per_minute=112.0,
            cadence_confidence=0.4,
        )
        lines.observe(RecordingStarted(f"r{hour:04d}", _RATE, ("1", "2", "3", "4"), None))
        lines.observe(PassageEnded(made.stop, made, PassageEnd.QUIET))
        yield seconds, events[-1]
        events.clear()


def opened(config: Path, port: int) -> list[tuple[float, float]]:
    """CPU and wall seconds of a fresh server: the page opened, the page opened again, and the table of all."""
    with subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", "web", "--config", str(config)], stderr=subprocess.DEVNULL
    ) as server:
        try:
            wait_for(port)
            return [_spent(server.pid, port, paths) for paths in (_OPENS, _OPENS, _TABLE)]
        finally:
            server.terminate()


def _spent(pid: int, port: int, paths: tuple[str, ...]) -> tuple[float, float]:
    cpu, begun = cpu_seconds(pid), time.perf_counter()
    for path in paths:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1{path}", timeout=60) as answer:
            answer.read()
    return cpu_seconds(pid) - cpu, time.perf_counter() - begun


def wait_for(port: int) -> None:
    """Return when somebody answers."""
    for _ in range(100):
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/status", timeout=5):
            return
        time.sleep(0.1)
    raise SystemExit("the dashboard did not open within 10 s")
