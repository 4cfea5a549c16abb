"""What every minute was like, from the facts of a daemon and against its journal."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from pipeline.core.errors import StorageError
from pipeline.core.events import RecordingStarted, StateChanged
from pipeline.core.sensor_state import Liveness, State
from pipeline.daemon.rollup_writer import Summaries
from pipeline.health.measures import measure, nothing_measured
from pipeline.storage.journal import Journal
from pipeline.storage.rollups import DAY, HOUR, MINUTE, Rollup, read, summaries
from tests.daemon.live import Running, settings, simulated_sound

RATE = 1000
BEGAN = datetime(2026, 5, 1, 11, 58, 30, tzinfo=UTC)
STARTED = RecordingStarted("r", RATE, ("1", "2"), BEGAN)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def second(number: int, *, level: float = 0.01) -> object:
    """Of noise at both sensors."""
    sound = np.random.default_rng(number).normal(0, level, (2, RATE)).astype(np.float32)
    return measure(sound, np.ones((2, RATE), np.bool_), RATE, start=number * RATE)


def minutes(journal: Journal) -> dict[str, Rollup]:
    return {f"{datetime.fromtimestamp(moment, UTC):%H:%M}": one for moment, one in read(journal, MINUTE, 0, 1e11)}


def test_a_minute_is_that_of_the_sound_whenever_it_is_heard(journal):
    kept = Summaries(2)
    for fact in (STARTED, *map(second, range(100))):
        kept.observe(fact)
    kept.write(journal)
    found = minutes(journal)
    assert {minute: one.sensors[0].level_dbfs.n for minute, one in found.items()} == {
        "11:58": 30,
        "11:59": 60,
        "12:00": 10,
    }
    assert found["11:59"].sensors[0].level_dbfs.value == pytest.approx(-40, abs=0.3)
    assert found["11:59"].sensors[1].seconds == {"unknown": 60.0}


def test_states_are_counted_by_seconds_and_losses_by_samples(journal):
    kept = Summaries(2)
    changed = StateChanged(10 * RATE, 0, 1, State.UNKNOWN, State.BAD, Liveness.ALARMED, ())
    kept.observe(STARTED)
    for fact in (*map(second, range(10)), changed, nothing_measured(10 * RATE, 100 * RATE, 2)):
        kept.observe(fact)
    # After that the source waits, twice; the second time begins anew.
    for waited in (1.0, 1.0, 3.0):
        kept.observe(nothing_measured(100 * RATE, 100 * RATE, 2, waited_seconds=waited))
    kept.write(journal)
    found = minutes(journal)
    assert {minute: one.sensors[1].seconds for minute, one in found.items()} == {
        "11:58": {"unknown": 10.0, "bad": 20.0}, "11:59": {"bad": 60.0}, "12:00": {"bad": 15.0},
    }  # fmt: skip
    assert [one.sensors[0].samples_lost for one in found.values()] == [20 * RATE, 60 * RATE, 15 * RATE]


def test_a_kill_costs_what_was_not_written_and_the_next_run_goes_on_with_the_minute(journal):
    for run, seconds in enumerate((20, 7, 60)):
        kept = Summaries(2)
        kept.observe(RecordingStarted(f"r{run}", RATE, ("1", "2"), BEGAN))
        for number in range(seconds):
            kept.observe(second(number))
            if number % 5 == 4:
                kept.write(journal)
    assert minutes(journal)["11:58"].sensors[0].level_dbfs.n == 20 + 5 + 30


def test_hours_and_days_are_gathered_also_what_an_earlier_run_left(journal):
    first = Summaries(2)
    for fact in (STARTED, *map(second, range(25))):
        first.observe(fact)
    first.write(journal)  # then it is killed: its minute was not over
    assert not read(journal, HOUR, 0, 1e11)
    later = Summaries(2)
    later.observe(RecordingStarted("r2", RATE, ("1", "2"), BEGAN + timedelta(hours=3)))
    for number in range(45):
        later.observe(second(number))
    later.write(journal)
    heard = {moment: one.sensors[0].level_dbfs.n for moment, one in read(journal, HOUR, 0, 1e11)}
    assert list(heard.values()) == [25, 45]
    ((_, day),) = read(journal, DAY, 0, 1e11)
    assert day.sensors[0].level_dbfs.n == 70


def test_a_disk_that_refuses_loses_nothing(journal):
    kept = Summaries(2)
    for fact in (STARTED, *map(second, range(20))):
        kept.observe(fact)
    journal.execute("PRAGMA query_only = 1")
    with pytest.raises(StorageError, match="readonly"):
        kept.write(journal)
    journal.execute("PRAGMA query_only = 0")
    kept.observe(second(20))
    kept.write(journal)
    kept.write(journal)
    assert minutes(journal)["11:58"].sensors[0].level_dbfs.n == 21


def test_the_history_of_a_daemon_is_what_its_journal_tells(tmp_path, model):
    """Two runs, of which the second begins within minutes of sound that the first has heard already."""
    config, sound = settings(tmp_path, model=model), simulated_sound(70)
    for _ in range(2):
        with Running(config) as daemon:
            daemon.feed(sound.tobytes())
            assert daemon.end() == 0
    with Journal(tmp_path / "state" / "journal.sqlite", read_only=True) as journal:
        events = list(journal.events(types=["decision"]))
        stored = {moment[:16]: one for moment, one in _stored(journal).items()}
        # A chart of the day has it all, too.
        begin = datetime.fromisoformat(events[0].time)
        rows = summaries(journal, begin - timedelta(hours=1), begin + timedelta(hours=1), most_rows=500)
    assert len(events) > 200
    told: dict[str, Counter[str]] = {}
    for event in events:
        told.setdefault(event.time[:16], Counter())[event.body["label"] or "undecided"] += 1
    counted = {minute: Counter(one.labels) + Counter(undecided=one.undecided) for minute, one in stored.items()}
    assert {minute: labels for minute, labels in counted.items() if labels} == told
    for sensor in range(4):
        refused = sum(event.body["roles"][sensor] == "anomalous" for event in events)
        assert sum(one.sensors[sensor].refused for one in stored.values()) == refused
        weights = [event.body["weights"][sensor] for event in events]
        total = sum(one.sensors[sensor].weight.total for one in stored.values())
        assert total == pytest.approx(sum(weights), abs=0.001 * len(weights))
        # Every whole second of both runs was in some state.
        assert sum(sum(one.sensors[sensor].seconds.values()) for one in stored.values()) == pytest.approx(140)
    assert sum(row["decisions"] for row in rows) == len(events)


def _stored(journal: Journal) -> dict[str, Rollup]:
    rows = journal.rows("SELECT time, body FROM summaries WHERE seconds = 60 ORDER BY time")
    return {row["time"]: Rollup.of(row["body"]) for row in rows}
