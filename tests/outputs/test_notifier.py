"""Notifications in a journal: each passage once, in order, whatever is killed in between."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from datetime import time as at
from pathlib import Path
from zoneinfo import ZoneInfo

import jsonschema
import pytest

from pipeline.core.events import Paced, Passage, PassageEnd, PassageStarted, RecordingStarted
from pipeline.daemon.recorder import Recorder
from pipeline.outputs.notification_rules import QuietHours, Rules
from pipeline.outputs.notification_text import Wording
from pipeline.outputs.notifier import Notifying
from pipeline.storage.journal import JournalEntry
from tests.passages import RATE, facts, passage

BERLIN = ZoneInfo("Europe/Berlin")
EVENING = datetime(2026, 5, 1, 20, tzinfo=BERLIN).astimezone(UTC)
SCHEMA = json.loads((Path(__file__).parents[2] / "pipeline" / "core" / "events.schema.json").read_text())
CUT = PassageEnd.RECORDING_ENDED


class Run:
    """A run of the daemon as far as notifications are concerned; it ends without a word, as if killed."""

    def __init__(self, directory: Path, name: str = "one", rules: Rules | None = None) -> None:
        self.recorder = Recorder(directory / "journal.sqlite", name)
        wording = Wording(rules or Rules(zone=BERLIN), lambda label: label.title())
        self.notifying = Notifying(self.recorder, name, wording)
        self.recorder.watchers.append(self.notifying.see)

    def hear(self, *told: object, notify: bool = True) -> None:
        for fact in told:
            self.recorder.observe(fact)
            self.recorder.commit()
            if notify:
                self.notifying.step()

    def wait_until(self, moment: datetime) -> None:
        """Sound without anybody, in a recording of its own."""
        name = f"until-{moment.timestamp():.0f}"
        self.hear(RecordingStarted(name, RATE, ("1",), moment), Paced(0, 10.0, 10 * RATE))

    def stop(self) -> None:
        self.notifying.step(stopping=True)

    @property
    def notifications(self) -> list[dict]:
        return [event.body for event in self.recorder.journal.events(types=["notification"])]

    @property
    def passages(self) -> list[str]:
        return [body["passage"] for body in self.notifications if body["about"] == "passage"]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        self.recorder.journal.close()


def evening(*passages: Passage, name: str = "r", minute: float = 0.0, last_end: PassageEnd = PassageEnd.QUIET) -> list:
    return facts(name, *passages, started_at=EVENING + timedelta(minutes=minute), last_end=last_end)


def three() -> list:
    return evening(*(passage("r", second, second + 8) for second in (5, 20, 40)))


def test_every_passage_is_notified_once_in_order_at_the_time_of_its_end(tmp_path):
    with Run(tmp_path) as run:
        run.hear(*three())
        assert run.passages == ["r.p5000", "r.p20000", "r.p40000"]
        first = run.notifications[0]
        assert (first["title"], first["name"], first["label"]) == ("Human at 20:00", "Human", "human")
        assert first["text"].startswith("2026-05-01 20:00:05 to 20:00:13; Human, 91%; sensors 1, 2")
        (event, *_) = run.recorder.journal.events(types=["notification"])
        assert event.time == first["end_time"] == "2026-05-01T18:00:13.000Z"
        for event in run.recorder.journal.events(types=["notification"]):
            jsonschema.validate(event.as_dict(), SCHEMA, cls=jsonschema.Draft202012Validator)


def test_what_a_killed_run_did_not_notify_the_next_one_does(tmp_path):
    """Killed at every point: before the first passage ended, between the others, after all."""
    told = three()
    for n in range(len(told) + 1):
        directory = tmp_path / str(n)
        with Run(directory) as run:
            run.hear(*told[:n])
            run.hear(*told[n : n + 1], notify=False)
        with Run(directory, "two") as run:
            run.stop()
            ended = sum(type(fact).__name__ == "PassageStarted" for fact in told[: n + 1])
            assert run.passages == ["r.p5000", "r.p20000", "r.p40000"][:ended]
        with Run(directory, "three") as run:
            run.stop()
            assert len(run.passages) == ended


def test_a_passage_whose_run_was_killed_is_notified_as_far_as_it_is_known(tmp_path):
    with Run(tmp_path) as run:
        run.hear(*evening(passage("r", 5, 13))[:2])
        assert run.passages == []
    with Run(tmp_path, "two") as run:
        run.notifying.step()
        assert run.passages == ["r.p5000"]


def test_a_passage_that_is_cut_by_a_border_is_one_notification(tmp_path):
    with Run(tmp_path) as run:
        run.hear(*evening(passage("r", 50, 59), last_end=CUT))
        assert run.passages == []
        run.hear(*evening(passage("s", 1, 9), passage("s", 30, 40), name="s", minute=1))
        assert run.passages == ["r.p50000", "s.p30000"]
        assert run.notifications[0]["duration_seconds"] == 19


def test_a_passage_at_a_border_that_does_not_go_on_is_notified_soon(tmp_path):
    with Run(tmp_path) as run:
        run.hear(*evening(passage("r", 50, 59), last_end=CUT))
        run.wait_until(EVENING + timedelta(seconds=65))
        assert run.passages == []
        run.wait_until(EVENING + timedelta(seconds=75))
        assert run.passages == ["r.p50000"]


def test_a_passage_that_was_notified_at_a_stop_is_not_notified_again_when_it_goes_on(tmp_path):
    with Run(tmp_path) as run:
        run.hear(*evening(passage("r", 50, 59), last_end=CUT))
        run.stop()
        assert run.passages == ["r.p50000"]
    with Run(tmp_path, "two") as run:
        run.hear(*evening(passage("s", 1, 9), passage("s", 30, 40), name="s", minute=1))
        assert run.passages == ["r.p50000", "s.p30000"]


def test_what_was_there_before_notifications_were_is_not_notified(tmp_path):
    """After an update of gemmed."""
    recorder = Recorder(tmp_path / "journal.sqlite", "old")
    for fact in three():
        recorder.observe(fact)
    recorder.close()
    with Run(tmp_path, "new") as run:
        run.stop()
        assert run.passages == []


def test_a_cool_down_holds_for_its_class_and_over_a_restart(tmp_path):
    rules = Rules(zone=BERLIN, cool_down_seconds=30)
    other = {"human": -3.0, "dog": -0.1}
    told = evening(passage("r", 5, 8), passage("r", 12, 15, other), passage("r", 20, 25), passage("r", 45, 50))
    with Run(tmp_path, rules=rules) as run:
        run.hear(*told[:7])
        run.hear(*told[7:], notify=False)
    with Run(tmp_path, "two", rules) as run:
        run.stop()
        assert run.passages == ["r.p5000", "r.p12000", "r.p45000"]


def test_quiet_passages_are_counted_by_the_summary_of_the_morning_which_comes_once(tmp_path):
    """Also if the run is killed before it is stored."""
    rules = Rules(zone=BERLIN, quiet_hours=QuietHours(at(22), at(6)), summary_at=at(7))
    with Run(tmp_path, rules=rules) as run:
        run.hear(*three())
        run.hear(*evening(passage("s", 5, 15), name="s", minute=180))
        fault = {"type": "state_changed", "sensor": 3, "to": "bad", "causes": ["silent"]}
        run.recorder.journal.append([JournalEntry("one", fault, "s", 0, EVENING + timedelta(hours=4))])
        run.wait_until(EVENING + timedelta(hours=10, minutes=59))
        assert len(run.notifications) == 3
        morning = RecordingStarted("m", RATE, ("1",), EVENING + timedelta(hours=11))
        run.hear(morning, Paced(0, 10.0, 10 * RATE), Paced(20 * RATE, 10.0, 10 * RATE), notify=False)
    with Run(tmp_path, "two", rules) as run:
        assert len(run.notifications) == 3
        run.wait_until(EVENING + timedelta(hours=11, minutes=5))
        run.wait_until(EVENING + timedelta(hours=12))
        *_, summary = run.notifications
        assert len(run.notifications) == 4
        assert (summary["passages"], summary["labels"], summary["not_notified"]) == (4, {"human": 4}, 1)
        assert summary["until"] == "2026-05-02T05:00:00.000Z"
        assert summary["title"] == "4 passages since 2026-05-01 07:00"
        assert summary["text"].splitlines() == [
            "Human: 4", "20:00-21:00: 3", "23:00-00:00: 1", "1 passage not notified one by one, by your rules.",
            "Sensor 3: silent.",
        ]  # fmt: skip
        jsonschema.validate(summary, SCHEMA, cls=jsonschema.Draft202012Validator)
        run.wait_until(EVENING + timedelta(hours=35, minutes=10))
        *_, empty = run.notifications
        assert len(run.notifications) == 5
        assert empty["since"] == summary["until"]
        assert empty["text"] == "Nobody passed.\nNo sensor had a fault."


def test_a_summary_that_is_switched_on_begins_with_the_next_one(tmp_path):
    with Run(tmp_path) as run:
        run.wait_until(EVENING)
        run.notifying.wording = replace(run.notifying.wording, rules=Rules(zone=BERLIN, summary_at=at(7)))
        run.wait_until(EVENING + timedelta(minutes=1))
        assert run.notifications == []
        run.wait_until(EVENING + timedelta(hours=12))
        assert [body["about"] for body in run.notifications] == ["summary"]


def test_the_status_counts_passages_of_the_local_day_and_knows_the_last_one(tmp_path):
    with Run(tmp_path) as run:
        assert run.notifying.as_dict() == {"passages_today": 0, "last_passage": None}
        told = three()
        run.hear(*told[:-2])
        status = run.notifying.as_dict()
        assert (status["passages_today"], status["last_passage"]["passage"]) == (2, "r.p20000")
        run.hear(*told[-2:])
        assert run.notifying.as_dict()["passages_today"] == 3
    with Run(tmp_path, "two") as run:
        run.wait_until(EVENING + timedelta(hours=3))
        assert run.notifying.as_dict()["passages_today"] == 3
        run.wait_until(EVENING + timedelta(hours=5))
        status = run.notifying.as_dict()
        assert (status["passages_today"], status["last_passage"]["passage"]) == (0, "r.p40000")


@pytest.mark.parametrize("probability", [0.5, 0.95])
def test_the_least_probability_is_that_of_the_verdict(tmp_path, probability):
    with Run(tmp_path, rules=Rules(zone=BERLIN, least_probability=probability)) as run:
        run.hear(*three())
        assert len(run.passages) == (3 if probability < 0.9 else 0)


def test_a_passage_that_only_began_is_not_notified_while_it_goes_on(tmp_path):
    with Run(tmp_path) as run:
        one = passage("r", 5, 13)
        run.hear(*evening(one)[:1], PassageStarted(one.start, one), Paced(50 * RATE, 10.0, 10 * RATE))
        assert run.passages == []
