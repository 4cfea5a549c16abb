"""Background that nobody labeled: minutes of kept sound far from passages and labels; and what an audit says of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from pipeline.learners.array_presence import THRESHOLDS
from pipeline.model.hot_swap import ArrayInput
from pipeline.retraining.background import is_presumed, presumed_background
from pipeline.storage.journal import Journal, JournalEntry
from pipeline.storage.presence_audit import audit_words, presence_audit
from pipeline.training.labeled_spans import LabeledPassage, LabeledSpan

RATE = 2000
HEARING = ArrayInput.usual(RATE, 4)
MINUTE = 60 * RATE


def journal_of(path, minutes=20, holes=(), choices=None) -> Journal:
    """A recording of some minutes in pieces of 10 s."""
    journal = Journal(path / "journal.sqlite")
    began = datetime.now(UTC) - timedelta(hours=1)
    journal.execute(
        "INSERT INTO recordings VALUES ('night', 'run', ?, 4, ?, ?, NULL)",
        (RATE, json.dumps(choices or {}), began.isoformat()),
    )
    piece = 10 * RATE
    for start in range(0, minutes * MINUTE, piece):
        if start // piece not in holes:
            journal.execute(
                "INSERT INTO pieces VALUES ('night', ?, ?, '[true, true, true, true]', 'x.flac', 1, 'now', NULL, NULL)",
                (start, start + piece),
            )
    return journal


def passed(journal, start, stop):
    """Store a passage as the recorder does; only its place matters."""
    names = ("passage", "recording", "run", "start_time", "end_time", "start_sample", "stop_sample")
    given = (f"night.p{start}", "night", "run", "then", "then", start, stop)
    others = {"presence": 0.9, "sensors_used": "[]", "model": "", "body": "{}"}
    columns = [*names, *others]
    journal.execute(
        f"INSERT INTO passages ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        (*given, *others.values()),
    )


def minutes_of(found: list[LabeledPassage]) -> list[int]:
    return [one.start // MINUTE for one in found]


def test_all_minutes_of_a_quiet_night(tmp_path):
    with journal_of(tmp_path) as journal:
        found = presumed_background(journal, {}, HEARING)
    assert minutes_of(found) == list(range(20))
    assert all(is_presumed(one) and one.stop - one.start == MINUTE for one in found)


def test_minutes_near_passages_labels_and_holes_are_left_out(tmp_path):
    """A passage in the fourth minute, a label at the end of the eighth, a hole in the twelfth."""
    with journal_of(tmp_path, holes=(11 * 6 + 2,)) as journal:
        passed(journal, 3 * MINUTE + 10 * RATE, 3 * MINUTE + 20 * RATE)
        labels = {"night": [LabeledSpan(8 * MINUTE - 10 * RATE, 8 * MINUTE - RATE, "human")]}
        found = presumed_background(journal, labels, HEARING)
    # What is nearer than 30 s to the passage at 190 s or to the label at 470 s is left out, in both directions.
    assert sorted({*range(20)} - {*minutes_of(found)}) == [2, 3, 7, 8, 11]


def test_at_most_an_hour_is_taken_evenly(tmp_path):
    with journal_of(tmp_path, minutes=200) as journal:
        found = minutes_of(presumed_background(journal, {}, HEARING))
    assert len(found) == 60
    assert found[0] == 0
    assert found[-1] == 199
    assert max(b - a for a, b in pairwise(found)) <= 4


def test_sound_of_another_array_is_none_of_it(tmp_path):
    with journal_of(tmp_path) as journal:
        assert presumed_background(journal, {}, ArrayInput.usual(RATE, 3)) == []
        assert presumed_background(journal, {}, ArrayInput.usual(4000, 4)) == []


def test_labels_given_by_people_are_not_presumed():
    assert not is_presumed(LabeledPassage("night", (LabeledSpan(0, 10, "nobody"),)))


def audited(seconds, threshold, starts):
    names = [one for one in THRESHOLDS.tolist() if one < threshold]
    counts = [*starts, *[0] * (len(names) - len(starts))]
    return {
        "type": "presence_audited", "recording": "night", "sample": 1, "seconds": seconds, "threshold": threshold,
        "thresholds": names, "starts": counts, "model": "0" * 12,
    }  # fmt: skip


def test_an_audit_adds_up_the_hours_since_the_threshold_changed(tmp_path):
    with journal_of(tmp_path, choices={"false_passages_per_day": 3.0}) as journal:
        bodies = [audited(3600, 1.0, [99]), audited(3600, 2.0, [5, 3, 1]), audited(1800, 2.0, [4, 2])]
        journal.append([JournalEntry("run", body) for body in bodies])
        found = presence_audit(journal)
    assert found["configured_per_day"] == 3.0
    assert found["threshold"] == 2.0
    assert found["heard_hours"] == 1.5
    rate, low, high = found["estimated_per_day"]
    assert 0 < low < rate < high
    assert found["guaranteed_per_day"] is None
    assert "3 a day configured; nothing guaranteed" in audit_words(found)
    assert "from 1.5 h heard" in audit_words(found)


@pytest.mark.parametrize("background", [None, 0.0])
def test_without_background_nothing_is_guaranteed_and_large_rates_are_written_in_full(background):
    audit = {
        "configured_per_day": 24.0, "background_hours": background, "guaranteed_per_day": None, "heard_hours": 0.73,
        "estimated_per_day": [19.2, 2.46, 154.0],
    }  # fmt: skip
    words = audit_words(audit)
    assert words.startswith("24 a day configured; nothing guaranteed")
    assert words.endswith("19 (2.5 to 154) estimated from 0.7 h heard")


def test_what_is_guaranteed_is_one_more_than_counted_in_the_background_of_training(tmp_path):
    """The lowest threshold that keeps the rate starts two passages in 16 hours: at most three in the next 16."""
    starts = [9, 5, 2, 2, 1, *[0] * (len(THRESHOLDS) - 5)]
    with journal_of(tmp_path, choices={"false_passages_per_day": 3.0}) as journal:
        facts = json.dumps({"background": {"hours": 16.0, "starts": starts}})
        journal.execute(
            "INSERT INTO models VALUES ('m', 'm', 'now', 'given', NULL, 'champion', 'now', 'why', ?)", (facts,)
        )
        found = presence_audit(journal)
    assert found["guaranteed_per_day"] == pytest.approx(3 * 24 / 16)
    assert "at most 4.5 guaranteed by 16.0 h" in audit_words(found)


def test_a_journal_in_which_nothing_happened_says_so(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert audit_words(presence_audit(journal)) == "none yet"
