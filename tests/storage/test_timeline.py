"""What happened in a time, against a journal whose history is known."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import UsageError
from pipeline.storage import labels as labelling
from pipeline.storage.intervals import Band
from pipeline.storage.journal import Journal, JournalEntry
from pipeline.storage.labels import LabelSpan, LabelSubmission
from pipeline.storage.rollups import MINUTE, Rollup, gather, store
from pipeline.storage.timeline import Timeline, timeline

START = datetime(2026, 5, 1, 4, 0, 0, 500_400, UTC)
RATE = 1000


class History:
    """A journal that is written as a daemon would write it, by a clock of its own."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._run, self._recording, self._started_at = "", "", START

    def run(self, name: str) -> None:
        self._run = name

    def recording(self, name: str, after_seconds: float, *, samples: int | None = None) -> None:
        self._recording, self._started_at = name, START + timedelta(seconds=after_seconds)
        self.journal.execute(
            "INSERT INTO recordings (name, run, rate_hz, sensors, choices, started_at, samples) VALUES (?,?,?,?,?,?,?)",
            (name, self._run, RATE, 2, "{}", self._started_at.isoformat(), samples),
        )

    def tell(self, kind: str, sample: int | None = None, **fields: Any) -> int:
        moment = None if sample is None else self._started_at + timedelta(seconds=sample / RATE)
        body = {"type": kind, "recording": self._recording, **fields}
        return self.journal.append([JournalEntry(self._run, body, self._recording, sample, moment)])[0]

    def state(self, sample: int, sensor: int, to: str, *causes: str) -> int:
        return self.tell("state_changed", sample, sensor=sensor, to=to, causes=causes)

    def trust(self, sample: int, *trusted: bool, by: str = "auto") -> int:
        return self.tell("trust_changed", sample, by=by, trusted=trusted)

    def gap(self, start: int, stop: int) -> int:
        return self.tell("gap", stop, start_sample=start, stop_sample=stop, reason="the buffer was full")

    def decide(self, stop: int, label: str | None, *roles: str) -> int:
        outcome = {"label": label, "probability": 0.9, "reason": None if label else "they disagree"}
        place = {"start_sample": stop - 1500, "stop_sample": stop}
        return self.tell("decision", stop, **place, **outcome, fused_log_odds=2.0, roles=roles or ("used", "used"))

    def piece(self, start: int, stop: int, *, kept: bool = True) -> None:
        file = f"{start}.flac" if kept else None
        self.journal.execute(
            "INSERT INTO pieces (recording, start, stop, delivered, file, bytes, kept_at) VALUES (?,?,?,?,?,1,'')",
            (self._recording, start, stop, "[true, true]", file),
        )


@pytest.fixture
def history(tmp_path: Path) -> History:
    with Journal(tmp_path / "journal.sqlite") as journal:
        made = History(journal)
        made.run("first")
        made.recording("one", 0, samples=100_000)
        made.tell("model_changed", 0, model="aaa")
        made.state(2_000, 1, "good")
        made.state(2_000, 2, "good")
        made.gap(20_000, 30_000)
        made.trust(40_000, True, False)
        made.state(40_000, 2, "bad", "flat")
        made.trust(60_000, True, True)
        made.state(60_000, 2, "degraded", "flapping", "gap")
        made.tell("model_changed", 70_000, model="bbb")
        made.piece(0, 10_000, kept=False)
        made.piece(10_000, 50_000)
        made.recording("two", 100)  # follows at once; a kill leaves it unfinished
        made.tell("model_changed", 0, model="bbb")
        made.state(3_000, 1, "good")
        made.tell("event_noticed", 30_000, sensors=[1, 2], reason="new", evidence={})
        made.decide(50_000, "human")
        made.run("second")
        made.tell("run_died", run_that_died="first")
        made.recording("three", 400, samples=10_000)
        made.trust(0, False, True, by="operator")
        made.recording("four", 450, samples=50_000)
        made.tell("run_stopped", why="SIGTERM")
        yield made


def at(seconds: float) -> float:
    """Seconds after the beginning of all."""
    return START.timestamp() + seconds


def asked(history: History, begin: float, end: float, *, bins: int = 1000, **more: Any) -> Timeline:
    options = {"now": at(1000), "running": None} | more
    return timeline(history.journal, at(begin), at(end), bins=bins, **options)


def kinds(found: list[Band]) -> list[tuple[float, float, str]]:
    """In tenths of a second after the beginning."""
    return [(round(one.begin - at(0), 1), round(one.end - at(0), 1), one.kind) for one in found]


def rows(found: Timeline) -> list[list[Band]]:
    return [found.listening, found.sound, found.models, *(r for s in found.sensors for r in (s.states, s.trust))]


@pytest.mark.parametrize(("begin", "end"), [(-50, 1100), (25, 26), (45, 120), (100, 100.2), (300, 420), (2000, 2100)])
@pytest.mark.parametrize("bins", [10, 100, 2000])
def test_every_row_tiles_the_time_that_was_asked_for(history, begin, end, bins):
    for row in rows(asked(history, begin, end, bins=bins)):
        assert (row[0].begin, row[-1].end) == (at(begin), at(end))
        assert all(one.end == other.begin for one, other in pairwise(row))
        assert all(one.begin < one.end for one in row)


def test_gaps_waiting_and_times_without_anybody_are_told_apart(history):
    found = asked(history, -10, 1100).listening
    assert kinds(found) == [
        (-10, 0, "not_listening"),
        (0, 20, "heard"),
        (20, 30, "gap"),
        (30, 150, "heard"),
        (150, 400, "not_listening"),
        (400, 410, "heard"),
        (410, 450, "waiting"),
        (450, 500, "heard"),
        (500, 1000, "not_listening"),
        (1000, 1100, "future"),
    ]
    assert [one.why for one in found if one.kind in ("gap", "not_listening")] == [
        "gemmed had not been started yet",
        "the buffer was full",
        "gemmed died: it was killed, or the power failed",
        "gemmed was stopped: SIGTERM",
    ]


def test_a_part_of_the_time_looks_like_the_same_part_of_the_whole(history):
    """States at the begin come from the last event before it."""
    whole = asked(history, -10, 600, bins=2000)
    for begin, end in [(25, 28), (45, 55), (61, 69), (70, 101), (110, 149), (160, 390), (405, 460), (475, 550)]:
        part = asked(history, begin, end, bins=2000)
        for row, all_of_it in zip(rows(part), rows(whole), strict=True):
            clipped = [
                (max(one.begin, at(begin)), min(one.end, at(end)), one.kind)
                for one in all_of_it
                if one.end > at(begin) and one.begin < at(end)
            ]
            assert [(one.begin, one.end, one.kind) for one in row] == clipped


def test_states_and_masks_are_those_of_the_events_and_nothing_is_good_that_nobody_heard(history):
    found = asked(history, 0, 600, bins=2000)
    states = kinds(found.sensors[1].states)
    assert states[:4] == [(0, 2, "unknown"), (2, 40, "good"), (40, 60, "bad"), (60, 100, "degraded")]
    assert {kind for _, _, kind in states[4:]} == {"unknown"}
    assert [one.why for one in found.sensors[1].states][2:4] == ["flat", "flapping, gap"]
    assert kinds(found.sensors[1].trust) == [(0, 40, "trusted"), (40, 60, "masked"), (60, 600, "trusted")]
    assert (400, 410, "off") in kinds(found.sensors[0].trust)
    assert [one for one in kinds(found.models) if one[2] != "none"] == [(0, 70, "aaa"), (70, 150, "bbb")]


def test_sound_that_was_removed_differs_from_sound_that_was_never_kept(history):
    assert kinds(asked(history, 0, 100, bins=2000).sound) == [
        (0, 10, "removed"),
        (10, 50, "kept"),
        (50, 100, "never_kept"),
    ]


def test_what_a_living_run_hears_now_is_not_missing(history):
    history.run("third")
    history.recording("five", 900)
    history.decide(95_000, "human")
    assert kinds(asked(history, 900, 1100, running="third").listening) == [(900, 1000, "heard"), (1000, 1100, "future")]
    late = asked(history, 900, 1100, running="third", now=at(1050)).listening
    assert kinds(late) == [(900, 995, "heard"), (995, 1050, "waiting"), (1050, 1100, "future")]
    dead = asked(history, 900, 1100).listening
    assert kinds(dead)[1][2] == "not_listening"
    assert "without a word" in dead[1].why


def test_decisions_are_counted_by_label_and_refusals_by_sensor(history):
    labels = ["human", "human_animal", None, "human", "human"] * 40
    for place, label in enumerate(labels):
        history.decide(100 + 240 * place, label, "used", "anomalous" if place % 4 == 0 else "used")
    found = asked(history, 450, 510, bins=12)
    truth = Counter(labels)
    assert found.tally.bin_seconds == 5
    assert all(count.begin % 5 == 0 for count in found.tally.bins)
    assert sum((Counter(count.labels) for count in found.tally.bins), Counter()) == {
        "human": truth["human"],
        "human_animal": truth["human_animal"],
    }
    assert sum(count.undecided for count in found.tally.bins) == truth[None]
    assert [sum(column) for column in zip(*(count.refused for count in found.tally.bins), strict=True)] == [0, 50]
    assert found.decisions is not None
    assert [one.label for one in found.decisions].count(None) == truth[None]
    for count in found.tally.bins:
        own = [one for one in found.decisions if count.begin <= one.time < count.begin + 5]
        assert Counter(one.label for one in own if one.label) == count.labels


def test_a_long_time_is_counted_by_its_minutes_and_says_since_when(history):
    first = int(at(0) // 86400 * 86400) + 86400  # a day before, nobody counted by the minute
    for place in range(3):
        summary = Rollup(Counter({"human": place + 1}), undecided=1)
        summary.sensor(1).refused = 2
        store(history.journal, MINUTE, first + 60 * place, summary)
    gather(history.journal, first)
    found = asked(history, -3600, 30 * 3600, now=first + 7200)
    assert found.decisions is None
    assert sum(count.labels["human"] for count in found.tally.bins) == 6
    assert sum(count.undecided for count in found.tally.bins) == 3
    assert found.tally.uncounted_until == first


def test_anomalies_that_are_too_close_together_are_one_mark_with_their_number(history):
    for sample in (5_100, 5_200, 5_400, 25_000):
        history.tell("event_noticed", sample, sensors=[1], reason="again", evidence={})
    wide = asked(history, 0, 600, bins=60).anomalies
    assert [(one.reason, one.n) for one in wide] == [("new", 1), ("again", 3), ("again", 1)]
    assert len(asked(history, 450, 480, bins=1000).anomalies) == 4


def test_labels_lie_where_their_sound_is_and_those_taken_back_are_gone(history):
    journal = history.journal
    number = labelling.give(journal, LabelSpan("one", 5_000, 8_000), LabelSubmission("human", "me", "heard it"))
    wrong = labelling.give(journal, LabelSpan("one", 50_000, 60_000), LabelSubmission("human_animal", "me"))
    labelling.take_back(journal, wrong, LabelSubmission(None, "me"))
    (said,) = asked(history, 0, 100).labels
    assert (said.number, said.label, said.who, said.why) == (number, "human", "me", "heard it")
    assert (round(said.begin - at(0), 2), round(said.end - at(0), 2)) == (5, 8)
    assert asked(history, 9, 100).labels == []


@pytest.mark.parametrize(("begin", "end"), [(5, 5), (5, 4), (0, 401 * 86400)])
def test_a_time_that_cannot_be_told_is_refused_in_words(history, begin, end):
    with pytest.raises(UsageError, match="at most 400 days"):
        asked(history, begin, end)


def test_an_empty_journal_has_nothing_to_tell(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        found = timeline(journal, 1000.0, 2000.0, bins=10, now=3000.0, running=None)
    assert [one.kind for one in found.listening] == ["not_listening"]
    assert (found.known_since, found.sensors, found.tally.bins, found.decisions) == (None, [], [], [])


def test_too_many_changes_of_state_are_told_by_their_sums(history, monkeypatch):
    """The worst state of every bin stays visible."""
    monkeypatch.setattr("pipeline.storage.timeline._MOST_CHANGES", 3)
    minute = int(at(0) // 60 * 60)
    for place, state in enumerate(("good", "bad")):
        summary = Rollup()
        summary.sensor(0).spend(state, 60.0)
        summary.sensor(1).spend("good", 60.0)
        store(history.journal, MINUTE, minute + 60 * place, summary)
    found = timeline(history.journal, minute, minute + 180.0, bins=3, now=at(1000), running=None)
    assert [one.kind for one in found.sensors[0].states] == ["good", "bad", "unknown"]
    assert [one.kind for one in found.sensors[0].trust] == ["trusted", "masked", "trusted"]
    assert [one.kind for one in found.sensors[1].states] == ["good", "unknown"]
