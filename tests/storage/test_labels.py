"""Labels for what was heard: given, corrected, taken back; by event, by time, by place, by a file that is watched."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.core.errors import UsageError
from pipeline.storage.journal import Journal, JournalEntry
from pipeline.storage.labels import (
    LabelSpan,
    LabelSubmission,
    WatchedLabels,
    check_word,
    give,
    moment_at,
    moment_in,
    moment_of_event,
    parsed_time,
    take_back,
)
from pipeline.training.labeled_spans import LabeledSpan, current_labels
from tests.forked import gemmed

RATE = 1000
NIGHT, DAY = datetime(2026, 5, 1, 2, 0, tzinfo=UTC), datetime(2026, 5, 1, 8, 0, tzinfo=UTC)
ME = LabelSubmission("human", "me", "heard it")
HEADER = "recording,start_seconds,end_seconds,label,who,why\n"


@pytest.fixture
def journal(tmp_path) -> Journal:
    """A finished recording of an hour, and one that goes on, of which a minute was heard."""
    with Journal(tmp_path / "journal.sqlite") as journal:
        for name, started_at, samples in (("run-0001", NIGHT, 3600 * RATE), ("run-0002", DAY, None)):
            values = (name, "run", RATE, 4, "{}", started_at.isoformat(), samples)
            journal.execute("INSERT INTO recordings VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        journal.append([JournalEntry("run", {"type": "tick"}, "run-0002", 60 * RATE)])
        yield journal


def current(journal: Journal) -> dict[str, list[LabeledSpan]]:
    """What training makes of all that was said."""
    rows = journal.rows("SELECT recording, start, stop, label, void FROM label_rows ORDER BY id")
    return {name: list(stretches) for name, stretches in current_labels(rows).items()}


def test_the_latest_word_counts_and_every_word_is_kept(journal):
    moment = LabelSpan("run-0001", 1000, 3000)
    number = give(journal, moment, ME)
    assert current(journal) == {"run-0001": [LabeledSpan(1000, 3000, "human")]}
    give(journal, moment, LabelSubmission("human_animal", "you", "a dog, look at the traces"))
    assert current(journal) == {"run-0001": [LabeledSpan(1000, 3000, "human_animal")]}
    second = take_back(journal, number, LabelSubmission(None, "me")) - 1
    assert current(journal) == {"run-0001": [LabeledSpan(1000, 3000, "human_animal")]}
    take_back(journal, second, LabelSubmission(None, "me"))
    assert current(journal) == {"run-0001": []}
    for again, why in ((number, "is taken back already"), (second + 1, "is no label, it takes back")):
        with pytest.raises(UsageError, match=why):
            take_back(journal, again, LabelSubmission(None, "me"))
    said = [(row["label"], row["who"]) for row in journal.rows("SELECT label, who FROM labels ORDER BY id")]
    assert said == [("human", "me"), ("human_animal", "you"), (None, "me"), (None, "me")]
    given = [(event.body["label"], event.body["takes_back"]) for event in journal.events(types=["label_given"])]
    assert given == [("human", None), ("human_animal", None), (None, number), (None, second)]


def test_what_people_wrote_is_shown_as_it_is(journal, tmp_path):
    """Brackets are no commands to the terminal."""
    moment = LabelSpan("run-0001", 0, 10 * RATE)
    give(journal, moment, LabelSubmission("human", "[bold]me", "see [/mail]"))
    done = gemmed("label", "--list", "--state", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "[bold]me" in done.stdout
    assert "see [/mail]" in done.stdout


def test_a_label_reaches_as_far_as_was_heard(journal):
    """By the end of a recording that is finished, or by the last that was told of one that is not."""
    give(journal, LabelSpan("run-0001", 3599 * RATE, 4000 * RATE), ME)
    give(journal, LabelSpan("run-0002", 59 * RATE, 70 * RATE), ME)
    assert current(journal) == {
        "run-0001": [LabeledSpan(3599 * RATE, 3600 * RATE, "human")],
        "run-0002": [LabeledSpan(59 * RATE, 60 * RATE, "human")],
    }


def test_a_label_saves_its_sound(journal):
    journal.execute("INSERT INTO pieces VALUES ('run-0001', 0, 2000, '[]', 'f', 1, '2026', NULL, NULL)")
    give(journal, LabelSpan("run-0001", 1000, 3000), ME)
    assert journal.rows("SELECT worth FROM pieces")[0]["worth"] == 4


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (LabelSpan("nowhere", 0, 10), "'nowhere' is not in the journal; gemmed status names"),
        (LabelSpan("run-0001", 10, 10), "has no length; end it after its start"),
        (LabelSpan("run-0001", -5, 10), "has no length"),
        (LabelSpan("run-0001", 3600 * RATE, 3601 * RATE), "of which 3600 s were heard; label what was heard"),
        (LabelSpan("run-0002", 61 * RATE, 62 * RATE), "of which 60 s were heard"),
    ],
)
def test_a_label_for_what_was_not_heard_is_refused(journal, moment, message):
    with pytest.raises(UsageError, match=message):
        give(journal, moment, ME)
    assert journal.rows("SELECT * FROM labels") == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--from", "0", "--to", "inf"), "--to=inf must be a finite number of seconds; for example 12.5"),
        (("--from", "nan", "--to", "1"), "--from=nan must be a finite number of seconds; for example 12.5"),
        (("--at", "-60s", "--for", "inf"), "--for=inf must be a finite number of seconds; for example 12.5"),
    ],
)
def test_a_label_without_an_end_is_refused(journal, tmp_path, options, told):
    done = gemmed("label", "human", *options, "--state", str(tmp_path))
    assert (done.returncode, done.stderr) == (1, f"gemmed: {told}\n")
    assert journal.rows("SELECT * FROM labels") == []


def test_what_was_never_said_cannot_be_taken_back(journal):
    with pytest.raises(UsageError, match="there is no label 3; gemmed label --list"):
        take_back(journal, 3, LabelSubmission(None, "me"))


def test_by_the_id_of_a_decision(journal):
    body = {"type": "decision", "start_sample": 500, "stop_sample": 2000}
    tick, decision = journal.append(
        [JournalEntry("run", {"type": "tick"}), JournalEntry("run", body, "run-0002", 2000)]
    )
    assert moment_of_event(journal, decision) == LabelSpan("run-0002", 500, 2000)
    with pytest.raises(UsageError, match="must be a decision, and it is a tick"):
        moment_of_event(journal, tick)
    with pytest.raises(UsageError, match="there is no such event"):
        moment_of_event(journal, 99)


def test_by_the_time_on_the_wall(journal):
    assert moment_at(journal, NIGHT + timedelta(seconds=90), 10) == LabelSpan("run-0001", 90 * RATE, 100 * RATE)
    assert moment_at(journal, DAY + timedelta(hours=9), 1).recording == "run-0002"
    for nobody_listened in (NIGHT - timedelta(seconds=1), NIGHT + timedelta(hours=2)):
        with pytest.raises(UsageError, match="nothing was heard at"):
            moment_at(journal, nobody_listened, 10)


def test_by_seconds_of_a_recording_named_by_its_end_or_of_the_last_one(journal):
    assert moment_in(journal, "0001", 1.5, 2.0) == LabelSpan("run-0001", 1500, 2000)
    assert moment_in(journal, None, 0, 1) == LabelSpan("run-0002", 0, 1000)
    for part_of_a_word in ("", "9", "1", "001"):
        with pytest.raises(UsageError, match="is not in the journal"):
            moment_in(journal, part_of_a_word, 0, 1)
    values = ("other-0002", "other", RATE, 4, "{}", DAY.isoformat(), None)
    journal.execute("INSERT INTO recordings VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    with pytest.raises(UsageError, match="ends the names of 2 recordings; write more of it"):
        moment_in(journal, "0002", 0, 1)


def test_times_are_read_as_people_write_them():
    now = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
    assert parsed_time("-90s", now=now) == parsed_time("-1.5 min", now=now) == now - timedelta(seconds=90)
    assert parsed_time("2026-05-01T04:30:00Z") == datetime(2026, 5, 1, 4, 30, tzinfo=UTC)
    assert parsed_time("2026-05-01T04:30:00") == datetime(2026, 5, 1, 4, 30, tzinfo=UTC)
    assert parsed_time("2026-05-01T06:30:00+02:00") == datetime(2026, 5, 1, 4, 30, tzinfo=UTC)
    for wrong in ("yesterday", "-soon"):
        with pytest.raises(UsageError, match="must be"):
            parsed_time(wrong)


def write(file: Path, text: str) -> None:
    """A version of the file that is told from the one before, however fast they follow each other."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(HEADER + text)
    os.utime(file, ns=(before + 1, before + 1))


def test_a_watched_file_gives_what_is_new_and_what_is_corrected(journal, tmp_path):
    """From one label to another and back again; what is no longer there is not taken back, what is empty is."""
    watched = WatchedLabels(tmp_path / "labels.csv")
    assert not watched.changed(journal)
    for text, given, now in [
        ("run-0001,1,3,human,me,why not\n", 1, "human"),
        ("run-0001,1,3,human_animal,,\n", 1, "human_animal"),
        ("run-0001,1,3,human,,\n", 1, "human"),
        ("run-0001,1,3,human,,\nrun-0002,5,6,human,,\n", 1, "human"),
        ("run-0002,5,6,human,,\n", 0, "human"),
        ("run-0001,1,3,,,\n", 1, None),
        ("run-0001,1,3,,,\n", 0, None),
    ]:
        write(tmp_path / "labels.csv", text)
        assert watched.changed(journal)
        assert watched.give_new(journal) == (given, [])
        assert not watched.changed(journal)
        stretches = current(journal).get("run-0001", [])
        assert [stretch.label for stretch in stretches] == ([now] if now else [])
    journal.execute("INSERT INTO recordings VALUES ('run-0003', 'run', 1000, 4, '{}', '2026', NULL)")
    assert watched.changed(journal)  # a line may have waited for it
    (first, *_) = journal.rows("SELECT * FROM labels ORDER BY id")
    assert (first["who"], first["why"], first["via"]) == ("me", "why not", "file")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nowhere,1,3,human,,", "line 3: recording 'nowhere' is not in the journal"),
        ("run-0001,one,3,human,,", "line 3: needs the columns recording, start_seconds"),
        ("run-0001,3,1,human,,", "line 3: a label from sample 3000 to 1000 has no length"),
        ("run-0001", "line 3: needs the columns"),
        ("run-0001,nan,3,human,,", "line 3: "),
        ("run-0001,1,inf,human,,", "line 3: "),
    ],
)
def test_a_bad_line_is_told_and_the_others_count(journal, tmp_path, line, message):
    write(tmp_path / "labels.csv", f"run-0001,1,3,human,,\n{line}\nrun-0001,5,6,human,,\n")
    given, wrong = WatchedLabels(tmp_path / "labels.csv").give_new(journal)
    assert given == 2
    assert len(wrong) == 1
    assert message in wrong[0]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"recording,start\nr,1\n", b"recording\n\x00\n", b"a" * 200_000])
def test_a_file_that_is_none_is_told(journal, tmp_path, content):
    (tmp_path / "labels.csv").write_bytes(content)
    given, wrong = WatchedLabels(tmp_path / "labels.csv").give_new(journal)
    assert given == 0
    assert len(wrong) <= 1


@pytest.mark.parametrize(("said", "classes", "word", "fine"), [
    ([], [], "anything", True),
    (["human"], [], "human_animal", True),
    (["human"], [], "humam", False),
    ([], ["human", "dog"], "dog", True),
    ([], ["human", "dog"], "cat", False),
])  # fmt: skip
def test_a_slip_is_no_new_class(journal, said, classes, word, fine):
    """Models say which words there are; before there is one, only what looks misspelt is refused."""
    for name in said:
        give(journal, LabelSpan("run-0001", 0, 10), LabelSubmission(name, "me"))
    if classes:
        facts = json.dumps({"classes": classes})
        values = ("m", "m", "2026", "given", None, "champion", "2026", "", facts)
        journal.execute("INSERT INTO models VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    if fine:
        check_word(journal, word)
    else:
        with pytest.raises(UsageError, match="is no label so far"):
            check_word(journal, word)
