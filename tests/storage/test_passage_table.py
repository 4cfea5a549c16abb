"""The table of passages: what older journals keep when it is added, what a kill leaves, what is read."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.core.passages import PASSAGE_EVENTS, passages_of
from pipeline.daemon.recorder import Recorder
from pipeline.storage.journal import Journal
from pipeline.storage.passage_table import stored_passages
from pipeline.storage.schema import MIGRATIONS
from tests.conftest import TIMEOUT
from tests.forked import ROOT
from tests.passages import RATE, facts, passage

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
BEFORE = 7
ROWS = {
    "events": (5, "run", "r", 10, "2026-01-01", "decision", '{"type": "decision"}'),
    "heartbeat": (1, "2026-01-01", "{}"),
    "recordings": ("r", "run", 1000, 3, "{}", "2026-01-01", 60_000),
    "pieces": ("r", 0, 1000, "[]", "r/0.flac", 5, "2026-01-01", 2, None),
    "labels": (7, "r", 0, 10, "human", "ada", "2026-01-01", "", "command", None),
    "models": ("m", "id", "2026-01-01", "given", None, "champion", "2026-01-01", "", "{}"),
    "refusals": ("m", "r", 0, 1, "stale", 0.25),
    "summaries": (60, "2026-01-01", "{}"),
    "deliveries": ("mqtt", 4, 1, None),
    "places": ("source", "{}"),
}


def dump(connection: sqlite3.Connection) -> dict[str, list[tuple]]:
    return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in ROWS}


def test_an_older_journal_keeps_every_row_of_every_table(tmp_path):
    path = tmp_path / "journal.sqlite"
    connection = sqlite3.connect(path)
    for statements in MIGRATIONS[:BEFORE]:
        for statement in statements:
            connection.execute(statement)
    for table, values in ROWS.items():
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    connection.execute(f"PRAGMA user_version = {BEFORE}")
    connection.commit()
    before = dump(connection)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert tables - {"sqlite_sequence"} == set(ROWS)
    with Journal(path) as journal:
        assert stored_passages(journal) == []
    connection = sqlite3.connect(path)
    assert dump(connection) == before == {table: [values] for table, values in ROWS.items()}
    connection.close()


WRITER = """
import sys
from datetime import datetime, timedelta, UTC
from pathlib import Path
from pipeline.core.events import PassageEnd, PassageEnded, PassageStarted, PassageUpdated, RecordingStarted
from pipeline.daemon.recorder import Recorder
from tests.passages import passage

recorder = Recorder(Path(sys.argv[1]), "run")
recorder.observe(RecordingStarted("r", 1000, ("1", "2", "3"), datetime(2026, 5, 1, tzinfo=UTC)))
print("ready", flush=True)
for number in range(1_000_000):
    begin = 20 * number
    recorder.observe(PassageStarted(0, passage("r", begin, begin + 2)))
    recorder.commit()
    recorder.observe(PassageUpdated(0, passage("r", begin, begin + 10)))
    recorder.commit()
    recorder.observe(PassageEnded(0, passage("r", begin, begin + 15), PassageEnd.QUIET))
    recorder.commit()
    if number == int(sys.argv[2]):
        print("enough", flush=True)
"""


@pytest.mark.parametrize("passages", [1, 7, 40])
def test_killed_at_any_moment_rows_say_what_the_last_events_say(tmp_path, passages):
    path = tmp_path / "journal.sqlite"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(passages)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert writer.stdout.readline() == b"ready\n"
        assert writer.stdout.readline() == b"enough\n"
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate(timeout=TIMEOUT)
    with Journal(path) as journal:
        journal.check()
        told = [event.body for event in journal.events(types=PASSAGE_EVENTS)]
        rows = journal.rows("SELECT passage, end, body FROM passages")
    last = {event["passage"]: event for event in told}
    assert len(rows) == len(last) >= passages
    assert {row["passage"]: json.loads(row["body"]) for row in rows} == last
    assert {row["passage"]: row["end"] for row in rows} == {name: event.get("end") for name, event in last.items()}
    with Journal(path, read_only=True) as journal:
        assert [row.passage for row in stored_passages(journal)] == [row.passage for row in passages_of(told)]


@pytest.fixture
def journal(tmp_path) -> Path:
    """Three recordings of a minute with a passage each, from second 10 to 20."""
    recorder = Recorder(tmp_path / "journal.sqlite", "run")
    for number in range(3):
        started_at = NOON + timedelta(minutes=number)
        for fact in facts(f"r{number}", passage(f"r{number}", 10, 20), started_at=started_at):
            recorder.observe(fact)
    recorder.close()
    with Journal(tmp_path / "journal.sqlite", read_only=True) as journal:
        yield journal


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [(None, None, "012"), (0, 10, ""), (0, 10.5, "0"), (20, 70, "0"), (20.5, 70, ""), (70, 140, "12"), (141, None, "")],
)
def test_what_overlaps_a_time_is_read_in_the_order_of_time(journal, since, until, expected):
    times = (None if seconds is None else NOON + timedelta(seconds=seconds) for seconds in (since, until))
    found = stored_passages(journal, **dict(zip(("since", "until"), times, strict=True)))
    assert [row.recording for row in found] == [f"r{number}" for number in expected]
    assert all(row.start_time == NOON + timedelta(seconds=60 * int(row.recording[1]) + 10) for row in found)


def test_recordings_choose_rows(journal):
    assert [row.passage for row in stored_passages(journal, recordings=["r2", "r1"])] == [
        f"r1.p{10 * RATE}",
        f"r2.p{10 * RATE}",
    ]
    assert stored_passages(journal, recordings=[]) == []
