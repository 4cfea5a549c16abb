"""What somebody is asked to label, from a journal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.core.errors import NotFound
from pipeline.storage.journal import Journal, JournalEntry, utc
from pipeline.storage.labels import LabelSpan, LabelSubmission, give, new_labels, take_back
from pipeline.storage.review_queue import Review, given_since

RATE = 1000
ME = LabelSubmission("human", "me")


def decision(
    second: float,
    probability: float | None = 0.99,
    *,
    recording: str = "night",
    odds=(-2.0,) * 4,
    rate_hz: int = RATE,
) -> JournalEntry:
    label = "human" if probability is not None and probability > 0.6 else None
    body = {
        "type": "decision",
        "recording": recording,
        "start_sample": round(second * rate_hz),
        "stop_sample": round((second + 2) * rate_hz),
        "label": label,
        "probability": probability,
        "reason": None if label else "too close to call",
        "roles": ["used"] * 4,
        "weights": [0.5] * 4,
        "p_values": [0.5] * 4,
        "log_odds": list(odds),
        "fused_log_odds": odds[0],
        "without": [{"label": label}] * 4,
        "model": "0123456789ab",
    }
    return JournalEntry("run", body, recording, body["stop_sample"])


def noticed(second: float, kind: str = "event_noticed") -> JournalEntry:
    body = {"type": kind, "recording": "night", "sample": round(second * RATE), "sensors": [1], "reason": "a roar"}
    return JournalEntry("run", body, "night", body["sample"])


def keep(journal: Journal, first: int, last: int, *, recording: str = "night") -> None:
    """Pieces of ten seconds."""
    for second in range(first, last, 10):
        journal.execute(
            "INSERT INTO pieces (recording, start, stop, delivered, file, bytes, kept_at) VALUES (?, ?, ?, ?, ?, 1, ?)",
            (recording, second * RATE, (second + 10) * RATE, "[true]", f"{recording}/{second}.flac", "2026-01-01"),
        )


def champion(journal: Journal, time: str) -> None:
    facts = json.dumps({"classes": ["human", "animal"]})
    journal.execute(
        "INSERT OR REPLACE INTO models VALUES ('0123456789ab', '0', ?, 'given', NULL, 'champion', ?, 'given', ?)",
        (time, time, facts),
    )


@pytest.fixture
def journal(tmp_path: Path):
    """Two recordings of four minutes, all of it kept."""
    with Journal(tmp_path / "journal.sqlite") as journal:
        for name in ("night", "day"):
            journal.execute(
                "INSERT INTO recordings VALUES (?, 'run', ?, 4, '{}', '2026-01-01T00:00:00Z', NULL)", (name, RATE)
            )
            keep(journal, 0, 240, recording=name)
        champion(journal, "2026-01-01T00:00:00.000Z")
        yield journal


def asked(journal: Journal, review: Review | None = None, *, most: int = 20, event: int | None = None):
    """Where, and why."""
    found = (review or Review()).questions(journal, most=most, event=event)
    return [(one.asked, one.recording, one.start // RATE) for one in found.first]


def test_the_most_instructive_comes_first_with_reasons(journal):
    """Undecided and divided before certain; the words tell why."""
    journal.append([decision(10), decision(60, 0.54, odds=(-1, 1, 1, -1)), decision(120, 0.7)])
    assert asked(journal) == [("instructive", "night", 60), ("instructive", "night", 120), ("instructive", "night", 10)]
    first, *_ = Review().questions(journal, most=1).first
    assert first.why == (
        "undecided (too close to call), probability 0.54",
        "sensors 1 and 4 say human, sensors 2 and 3 say animal",
    )
    assert first.decision is not None
    assert (first.stop - first.start, first.rate_hz) == (2 * RATE, RATE)


def test_what_cannot_be_heard_from_begin_to_end_is_not_asked(journal):
    """Nor what had to make room; nor a moment across a piece that did."""
    journal.append([decision(10), decision(68, 0.5), decision(120), decision(239, 0.5), decision(180, recording="day")])
    journal.execute("UPDATE pieces SET file = NULL WHERE recording = 'night' AND start = 60000")
    review = Review()
    assert sorted(asked(journal, review)) == sorted(
        [("instructive", "night", 10), ("instructive", "night", 120), ("instructive", "day", 180)]
    )
    journal.execute("UPDATE pieces SET file = NULL WHERE recording = 'day'")
    assert ("instructive", "day", 180) not in asked(journal, review)
    assert review.questions(journal, most=1).with_sound == 2


def test_a_label_removes_its_passage_until_it_is_taken_back(journal):
    """The same process sees it at once, whoever gave it."""
    journal.append([decision(10, 0.5), decision(30, 0.7), decision(100), decision(10, 0.52, recording="day")])
    review = Review()
    before = asked(journal, review)
    number = give(journal, LabelSpan("night", 10_000, 12_000), ME)
    assert asked(journal, review) == [one for one in before if one != ("instructive", "night", 10)]
    take_back(journal, number, ME)
    assert asked(journal, review) == before


def test_asked_again_it_gives_what_it_would_give_anew(journal):
    """Decision by decision, anomaly by anomaly."""
    review = Review(most_decisions=30)
    for second in range(0, 230, 3):
        journal.append([decision(second, 0.5 + (37 * second % 50) / 100)])
        if second % 60 == 0:
            journal.append([noticed(second + 1.0)])
        assert asked(journal, review) == asked(journal, Review(most_decisions=30))
    assert review.questions(journal, most=1).decisions == 30
    assert min(place for _, _, place in asked(journal, review)) >= 3 * 76 - 3 * 30


def test_what_happened_nearby_is_told_and_counts(journal):
    """A noticed event makes a certain decision worth a question; others are only told."""
    journal.append([decision(10), decision(100), noticed(103), decision(180), noticed(184, "fault_suspected")])
    found = Review().questions(journal, most=5).first
    assert found[0].start == 100 * RATE
    assert found[0].why[-1] == "an event was noticed: a roar"
    assert [one["type"] for question in found for one in question.near] == ["event_noticed", "fault_suspected"]


def test_the_decision_that_somebody_wants_comes_first(journal):
    """Even if it is labelled, and only once."""
    _, wanted, _ = journal.append([decision(10, 0.5), decision(100), decision(180)])
    give(journal, LabelSpan("night", 100_000, 102_000), LabelSubmission("animal", "you"))
    assert asked(journal, event=wanted)[0] == ("wanted", "night", 100)
    assert len(asked(journal, event=wanted)) == 3
    first, *_ = Review().questions(journal, most=3, event=wanted).first
    assert first.labelled is not None
    assert (first.labelled["label"], first.labelled["who"]) == ("animal", "you")
    for nothing in (journal.last_id, 10_000):
        with pytest.raises(NotFound, match=f"event {nothing} is no decision"):
            Review().questions(journal, most=3, event=nothing)


def refuse(journal: Journal, second: float, believed: float) -> None:
    for sensor in range(1, 5):
        journal.execute(
            "INSERT INTO refusals VALUES ('0123456789ab', 'night', ?, ?, 'label doubted', ?)",
            (round(second * RATE), sensor, believed),
        )


def test_doubted_labels_come_first_until_somebody_speaks_again(journal):
    """Doubts of training and of the sensors; the least believed first. Who confirms a label is not asked again."""
    journal.append([decision(10, 0.5), decision(130, 0.8)])
    journal.execute("UPDATE models SET time = '2999-01-01'")
    first = give(journal, LabelSpan("night", 100_000, 104_000), ME)
    give(journal, LabelSpan("night", 200_000, 203_000), LabelSubmission("animal", "you"))
    refuse(journal, 101, 0.3)
    refuse(journal, 201, 0.1)
    refuse(journal, 30, 0.1)  # nobody says anything there any more
    doubted = [("doubt", "night", 200), ("doubt", "night", 100), ("instructive", "night", 10)]
    assert asked(journal) == doubted
    question, *_ = Review().questions(journal, most=1).first
    assert question.why[0] == "either you or the sensors are wrong here: labelled animal"
    assert (question.start, question.stop) == (200_000, 203_000)
    take_back(journal, first, ME)
    assert asked(journal) == [doubted[0], doubted[2], ("instructive", "night", 130)]
    journal.execute("UPDATE models SET time = ?", (utc(datetime.now(UTC)),))
    give(journal, LabelSpan("night", 200_000, 203_000), LabelSubmission("animal", "me", "I was there"))
    assert asked(journal) == [doubted[2], ("instructive", "night", 130)]


def test_a_label_that_the_sensors_contradict_is_asked_about(journal):
    """`label_doubted` is told at the end of a segment inside it."""
    give(journal, LabelSpan("night", 100_000, 110_000), ME)
    doubt = noticed(106, "label_doubted")
    journal.append([JournalEntry("run", doubt.body, "night", doubt.sample, datetime(2999, 1, 1, tzinfo=UTC))])
    assert asked(journal) == [("doubt", "night", 100)]


def test_labels_are_counted_for_today_and_for_the_next_round(journal):
    """Taken back, they no longer count for today; a correction is news for training all the same."""
    begin = datetime.now(UTC)
    number = give(journal, LabelSpan("night", 1000, 2000), ME)
    give(journal, LabelSpan("night", 5000, 6000), ME)
    assert (given_since(journal, begin), new_labels(journal)) == (2, 2)
    take_back(journal, number, ME)
    assert (given_since(journal, begin), new_labels(journal)) == (1, 3)
    journal.append([JournalEntry("run", {"type": kind}) for kind in ("retraining_started", "retraining_finished")])
    assert new_labels(journal) == 0


def test_an_empty_journal_asks_nothing(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        found = Review().questions(journal, most=5)
    assert (found.first, found.waiting, found.decisions) == ((), 0, 0)


def add_passage(journal: Journal, begin: float, end: float, *, ended: str | None = "quiet") -> str:
    name = f"night.p{round(begin * RATE)}"
    journal.execute(
        "INSERT INTO passages VALUES (?, 'night', 'run', '2026-01-01T00:00:00Z', '2026-01-01T00:01:00Z', ?, ?, "
        "'human', 0.93, 0.9, 104, '[1]', ?, '0123456789ab', '{}')",
        (name, round(begin * RATE), round(end * RATE), ended),
    )
    return name


def test_a_passage_is_asked_about_as_a_whole_and_once(journal):
    """Two instructive moments 50 s apart lie in one passage; one is outside, one in a passage that goes on."""
    journal.append([decision(20, 0.55), decision(70, 0.6), decision(150, 0.5), decision(220, 0.52)])
    whole = add_passage(journal, 15.5, 80)
    add_passage(journal, 218, 224, ended=None)
    found = {one.passage: one for one in Review().questions(journal, most=10).first}
    assert len(found) == 2  # moments outside of a passage share the key None
    asked = found[whole]
    assert (asked.start, asked.stop) == (15_500, 80_000)
    assert "passage of 64 s: human, probability 0.93" in asked.why
    outside = [one for one in Review().questions(journal, most=10).first if one.passage is None]
    assert sorted(one.start for one in outside) == [150_000, 220_000]


def test_a_passage_can_be_asked_for(journal):
    """By its id; one that is not there is named."""
    journal.append([decision(20, 0.99), decision(30, 0.99), decision(150, 0.5)])
    whole = add_passage(journal, 15, 45)
    first = Review().questions(journal, most=10, passage=whole).first[0]
    assert (first.asked, first.passage, first.decision.body["start_sample"]) == ("wanted", whole, 30_000)
    with pytest.raises(NotFound, match=r"night\.p99"):
        Review().questions(journal, most=10, passage="night.p99")


def test_every_passage_is_asked_about_however_close_to_others_or_to_something_strange(journal):
    """Two passages 5 s apart, one of them labeled; and a moment beside them that is more instructive than both."""
    journal.append([decision(22, 0.9), decision(37, 0.9), decision(46, 0.5)])
    labeled, other = add_passage(journal, 20, 30), add_passage(journal, 35, 45)
    found = Review().questions(journal, most=10).first
    assert [one.passage for one in found] == [labeled, other] or [one.passage for one in found] == [other, labeled]
    give(journal, LabelSpan("night", 20_000, 30_000), ME)
    assert [one.passage for one in Review().questions(journal, most=10).first] == [other]


def test_at_most_every_fourth_question_is_about_a_moment_outside_of_passages(journal):
    """Until there are no passages left; each kind in the order of what it teaches."""
    for n in range(4):
        add_passage(journal, 10 + 15 * n, 20 + 15 * n)
        journal.append([decision(12 + 15 * n, 0.95 - 0.05 * n)])
    journal.append([decision(second, 0.5) for second in (110, 150, 190)])
    found = Review().questions(journal, most=10).first
    assert [one.passage is None for one in found] == [False, False, False, True, False, True, True]
    starts = [one.start // RATE for one in found if one.passage is not None]
    assert starts == [55, 40, 25, 10]
