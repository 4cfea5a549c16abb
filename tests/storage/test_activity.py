"""What happened, against journals made by hand: one entry for a fault and its recovery, every entry once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.passages import PASSAGE_EVENTS
from pipeline.daemon.recorder import Recorder
from pipeline.storage.activity import Activity, ActivityKind, Severity, activities
from pipeline.storage.journal import Journal, JournalEntry, utc
from pipeline.storage.labels import LabelSpan, LabelSubmission, give
from pipeline.storage.passage_history import PassageHistory
from tests.passages import facts, passage

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
RUN = "run"
RATE = 100
MINUTE = 60.0


def at(seconds: float) -> str:
    return utc(START + timedelta(seconds=seconds))


class Told:
    """A journal, and events in it so many seconds after the start."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def tell(self, seconds: float, kind: str, **body: Any) -> None:
        time = START + timedelta(seconds=seconds)
        self.journal.append([JournalEntry(RUN, {"type": kind, **body}, recording="r", sample=0, time=time)])

    def state(self, seconds: float, sensor: int, state: str, *causes: str) -> None:
        self.tell(seconds, "state_changed", sensor=sensor, to=state, causes=list(causes))

    def all(self, *kinds: ActivityKind, running: str | None = RUN) -> list[Activity]:
        """All entries, the oldest first, portion by portion."""
        found: list[Activity] = []
        before = None
        while True:
            portion = activities(
                self.journal, PassageHistory(self.journal), kinds=kinds, before=before, running=running
            )
            found += portion.entries
            before = portion.next
            if before is None:
                return found[::-1]

    def only(self, **more: Any) -> Activity:
        (entry,) = self.all(**more)
        return entry


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield Told(journal)


def test_a_fault_and_its_recovery_are_one_entry(told):
    told.state(0, 3, "good")
    told.state(60, 3, "bad", "flat")
    told.state(60 + 12 * MINUTE, 3, "good")
    entry = told.only()
    assert (entry.kind, entry.severity, entry.sensor) == (ActivityKind.SENSOR, Severity.BAD, 3)
    assert (entry.text, entry.ending, entry.is_open) == ("Sensor 3 was bad (flat)", "recovered", False)
    assert (entry.begin, entry.end, entry.seconds, entry.count) == (at(60), at(780), 720.0, 1)


def test_a_fault_goes_on_only_while_the_daemon_runs(told):
    told.state(60, 3, "degraded", "hum_only")
    entry = told.only()
    assert (entry.text, entry.is_open, entry.end) == ("Sensor 3 is degraded (hum only)", True, None)
    assert not told.only(running=None).is_open


def test_a_fault_that_changes_is_one_entry_with_all_causes_and_the_worst_state(told):
    told.state(0, 1, "degraded", "gap")
    told.state(10, 1, "bad", "gap", "flat")
    told.state(20, 1, "degraded", "flapping")
    told.state(30, 1, "good")
    entry = told.only()
    assert (entry.text, entry.severity, entry.count) == ("Sensor 1 was bad (gap, flat)", Severity.BAD, 1)


def test_of_many_causes_the_first_are_named(told):
    told.state(0, 1, "bad", "gap", "flat", "silent", "spikes", "clipping")
    assert told.only().text == "Sensor 1 is bad (gap, flat, silent and 2 more)"


def test_faults_that_come_back_are_folded_with_a_count(told):
    """Three within minutes are one entry; another one is that of eleven minutes later, and that of another sensor."""
    for begin in (0, 5 * MINUTE, 10 * MINUTE):
        told.state(begin, 2, "degraded", "gap")
        told.state(begin + 30, 2, "good")
    told.state(10 * MINUTE, 4, "degraded", "gap")
    told.state(10 * MINUTE + 15, 4, "good")
    later = 10 * MINUTE + 30 + 11 * MINUTE
    told.state(later, 2, "degraded", "gap")
    told.state(later + 5, 2, "good")
    first, other, second = told.all()
    assert (first.count, first.seconds, first.begin, first.end) == (3, 90.0, at(0), at(630))
    assert (other.sensor, other.count, other.seconds) == (4, 1, 15.0)
    assert (second.sensor, second.count, second.begin) == (2, 1, at(later))


def test_a_fault_ends_with_its_run(told):
    told.state(0, 1, "bad", "flat")
    told.tell(100, "run_stopped", why="SIGTERM")
    told.tell(400, "run_started", version="1")
    fault, pause = told.all()
    assert (fault.ending, fault.seconds, fault.is_open) == ("gemmed stopped", 100.0, False)
    assert (pause.text, pause.ending, pause.seconds) == ("gemmed stopped (SIGTERM)", "started again", 300.0)


def test_of_a_run_that_was_killed_a_fault_ends_where_it_was_heard_last(told):
    told.state(0, 1, "bad", "flat")
    told.state(50, 2, "good")
    told.tell(5000, "run_died", run_that_died="x")
    told.tell(5001, "run_started", version="1.2")
    fault, died, started = told.all()
    assert (fault.ending, fault.seconds) == ("gemmed was killed", 50.0)
    assert (died.text, died.severity) == ("The previous run did not shut down cleanly", Severity.BAD)
    assert started.text == "gemmed 1.2 started"


def test_while_gemmed_is_stopped_that_goes_on(told):
    told.tell(0, "run_stopped", why="SIGTERM")
    assert told.only(running=None).is_open


@pytest.mark.parametrize(
    ("start", "end", "text", "ending"),
    [
        (("output_link_down", {"target": "mqtt", "why": "refused"}), ("output_link_up", {"target": "mqtt"}),
         "Output mqtt not reachable (refused)", "back"),
        (("storage_read_only", {"why": "disk full"}), ("storage_recovered", {}),
         "Storage cannot be written: disk full", "recovered"),
        (("calibration_lost", {"sensor": 2}), ("calibration_regained", {"sensor": 2}),
         "Sensor 2: false-alarm rate above alpha", "recovered"),
        (("retraining_started", {}), ("retraining_finished", {"status": "champion", "model": "abc", "why": "better"}),
         "Retraining: champion abc (better)", None),
        (("retraining_started", {}), ("retraining_failed", {"why": "killed"}), "Retraining failed: killed", None),
        (("shadow_started", {"model": "abc"}),
         ("shadow_finished", {"model": "abc", "passed": False, "reasons": ["worse"]}),
         "Trial of model abc beside the present one: failed (worse)", None),
    ],
)  # fmt: skip
def test_what_lasts_is_one_entry_from_start_to_end(told, start, end, text, ending):
    told.tell(0, start[0], **start[1])
    told.tell(90, end[0], **end[1])
    entry = told.only()
    assert (entry.text, entry.ending, entry.seconds, entry.is_open) == (text, ending, 90.0, False)


def test_links_to_two_targets_are_told_apart_and_outlive_a_run(told):
    told.tell(0, "output_link_down", target="mqtt")
    told.tell(10, "output_link_down", target="webhook")
    told.tell(20, "run_stopped", why="SIGTERM")
    told.tell(30, "run_started", version="1")
    told.tell(40, "output_link_up", target="webhook")
    mqtt, webhook, _ = told.all()
    assert (mqtt.is_open, mqtt.ending) == (True, None)
    assert (webhook.is_open, webhook.ending, webhook.seconds) == (False, "back", 30.0)


def test_missing_sound_is_summed_and_pauses_are_none(told):
    told.journal.execute(
        "INSERT INTO recordings (name, run, rate_hz, sensors, choices, started_at) VALUES ('r', 'run', ?, 4, '{}', ?)",
        (RATE, at(0)),
    )
    told.tell(0, "gap", start_sample=0, stop_sample=250, reason="overload", recorded=True)
    told.tell(10, "gap", start_sample=300, stop_sample=400, reason="overload", recorded=True)
    told.tell(20, "gap", start_sample=500, stop_sample=900, reason="pause", recorded=False)
    entry = told.only()
    assert (entry.text, entry.count, entry.seconds) == ("Sound missing: overload", 2, 3.5)


def test_what_comes_all_the_time_is_no_activity(told):
    for kind in ("decision", "tick", "paced", "fault_opened", "presence_audited", "recording_started"):
        told.tell(0, kind)
    assert told.all() == []


def test_only_the_kinds_that_are_asked_for(told):
    told.state(0, 1, "bad", "flat")
    told.tell(5, "model_promoted", model="abc", why="it passed the gate")
    told.tell(9, "storage_low")
    assert [one.text for one in told.all(ActivityKind.MODEL)] == ["Model abc decides from now on (it passed the gate)"]
    assert [one.kind for one in told.all(ActivityKind.SENSOR, ActivityKind.SYSTEM)] == [
        ActivityKind.SENSOR,
        ActivityKind.SYSTEM,
    ]


def test_a_model_of_the_settings_does_not_show_its_path(told):
    told.tell(0, "model_promoted", model="abc", why="training.model = /srv/models/first")
    assert told.only().text == "Model abc decides from now on (given in the settings)"


def test_every_fault_is_in_one_portion_with_its_end(told):
    """More events than one portion reads: faults of four sensors that overlap, and never come back within minutes."""
    random.seed(1)
    expected = set()
    events = []
    for sensor in (1, 2, 3, 4):
        clock = float(sensor)
        for _ in range(160):
            length = round(random.uniform(1, 300), 3)
            events += [(clock, sensor, "bad", ("flat",)), (clock + length, sensor, "good", ())]
            expected.add((sensor, at(clock), at(clock + length)))
            clock = round(clock + length + random.uniform(601, 2000), 3)
    for event in sorted(events):
        told.state(event[0], event[1], event[2], *event[3])
    found = told.all()
    assert {(one.sensor, one.begin, one.end) for one in found} == expected
    assert len(found) == len(expected) == 640
    first = activities(told.journal, PassageHistory(told.journal))
    assert first.next is not None
    assert len(first.entries) < len(expected)


def stored(path: Path, *passages: Any) -> None:
    recorder = Recorder(path, RUN)
    for fact in facts("r", *passages, started_at=START, seconds=3600.0):
        recorder.observe(fact)
    recorder.commit()
    recorder.close()


def test_passages_stand_between_faults_with_their_names_and_labels(tmp_path):
    path = tmp_path / "journal.sqlite"
    stored(
        path,
        passage("r", 20, 30),
        passage("r", 100, 112, {"human": -0.6, "human_animal": -0.8}),
        passage("r", 200, 204),
    )
    with Journal(path) as journal:
        Told(journal).state(50, 1, "bad", "flat")
        give(journal, LabelSpan("r", 200_000, 204_000), LabelSubmission("nobody", "ada"))
        found = activities(journal, PassageHistory(journal), names={"human": "Walker"}, running=RUN).entries[::-1]
        assert len(list(journal.events(types=PASSAGE_EVENTS))) == 9
    texts = [one.text for one in found if one.kind in (ActivityKind.PASSAGE, ActivityKind.SENSOR)]
    assert texts == ["Walker 91 %", "Sensor 1 is bad (flat)", "Somebody, no class", "Walker 91 %, labeled Nobody"]
    first = found[0]
    assert (first.passage, first.begin, first.seconds) == ("r.p20000", at(20), 10.0)


def test_portions_have_all_passages_once(tmp_path):
    path = tmp_path / "journal.sqlite"
    stored(path, *(passage("r", 20 * n, 20 * n + 5) for n in range(1, 131)))
    with Journal(path) as journal:
        told = Told(journal)
        told.state(1000, 1, "bad", "flat")
        told.state(2500, 1, "good")
        found = told.all()
    assert [one.passage for one in found if one.passage] == [f"r.p{20_000 * n}" for n in range(1, 131)]
    assert [one.seconds for one in found if one.sensor] == [1500.0]
    assert [one.begin for one in found] == sorted(one.begin for one in found)
