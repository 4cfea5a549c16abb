"""Passages from events: what is read, when two are one, and what remains of both."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

import numpy as np
import pytest

from pipeline.core.errors import UsageError
from pipeline.core.events import Exclusion, PassageEnd, PassageStarted, PassageUpdated, Peak, RecordingStarted, Role
from pipeline.core.passages import INTERRUPTED, PassageRow, joined, passages_of, verdict_of
from tests.passages import events, facts, passage, rows

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
CUT = PassageEnd.RECORDING_ENDED


def cut_in_two(gap: float, *, first_end: PassageEnd = CUT, **other: object) -> list[PassageRow]:
    """A passage up to one second before the end of a recording of a minute, and one that starts `gap` s after it."""
    one = passage("a", 50, 59, {"x": -1.0, "y": -2.0}, **other)
    another = passage("b", gap - 1, gap + 9, {"x": -3.0, "y": -0.5}, segments=30)
    later = NOON + timedelta(seconds=60)
    return rows(*facts("a", one, started_at=NOON, last_end=first_end), *facts("b", another, started_at=later))


@pytest.mark.parametrize("n", [2, 3, 7])
def test_probabilities_are_the_softmax_of_the_evidence(n):
    rng = np.random.default_rng(n)
    for _ in range(50):
        evidence = {f"class {k}": float(value) for k, value in enumerate(rng.normal(0, 3, n))}
        raised = np.exp(list(evidence.values()))
        expected = dict(zip(evidence, raised / raised.sum(), strict=True))
        verdict = verdict_of(evidence, 0.6)
        assert verdict.probabilities == pytest.approx(tuple(expected.values()))
        best = max(expected, key=expected.get)
        assert verdict.probability == pytest.approx(expected[best])
        assert verdict.label == (best if expected[best] >= 0.6 else None)
        assert verdict.reason == (None if expected[best] >= 0.6 else "too close to call")
        shifted = verdict_of({name: value + 1e6 for name, value in evidence.items()}, 0.6)
        assert shifted.probabilities == pytest.approx(verdict.probabilities, abs=1e-8)


def test_two_classes_have_log_odds_of_the_second():
    verdict = verdict_of({"x": -2.0, "y": -0.5}, 0.6)
    assert verdict.log_odds == 1.5
    assert verdict.probability == pytest.approx(1 / (1 + math.exp(-1.5)))


def test_without_a_classifier_there_is_no_label_and_a_reason():
    verdict = verdict_of({}, 0.6)
    assert (verdict.label, verdict.probability, verdict.reason) == (None, None, "no classifier")


def test_a_class_that_was_ruled_out_has_no_chance_and_others_share_it():
    """JSON cannot say minus infinity and says null."""
    event = events(facts("a", passage("a", 1, 2, {"x": -math.inf, "y": -3.0})))[1]
    assert event["evidence"] == {"x": None, "y": -3.0}
    verdict = verdict_of(PassageRow.of(event).evidence, 0.6)
    assert (verdict.label, verdict.probability) == ("y", 1.0)
    assert verdict_of(dict.fromkeys("xy", -math.inf), 0.6).probability == 0.5


def test_a_row_says_what_its_events_say():
    one = passage("a", 1.5, 9.25, peaks=(Peak(1, 4000, 12.5),), cadence=(112.0, 0.4))
    (row,) = rows(*facts("a", one, started_at=NOON))
    (*_, ended, _) = events(facts("a", one))
    said = row.as_dict()
    shared = said.keys() & ended.keys()
    assert len(shared) == 21
    assert {name: said[name] for name in shared} == {name: ended[name] for name in shared}
    assert (said["start_time"], said["end_time"]) == ("2026-05-01T12:00:01.500Z", "2026-05-01T12:00:09.250Z")
    assert said["duration_seconds"] == 7.75
    assert said["parts"] == [{"passage": "a.p1500", "recording": "a", "start_sample": 1500, "stop_sample": 9250}]
    assert json.loads(json.dumps(said, allow_nan=False)) == said


def test_one_without_an_end_ends_with_its_last_update():
    begun, grown = passage("a", 1, 3), passage("a", 1, 13)
    told = [RecordingStarted("a", 1000, ("1",)), PassageStarted(3000, begun), PassageUpdated(13000, grown)]
    (row,) = rows(*told)
    assert (row.end, row.end_seconds, row.start_time) == (INTERRUPTED, 13.0, None)


@pytest.mark.parametrize("missing", ["evidence", "start_seconds", "sensors_excluded"])
def test_an_event_of_another_version_is_named(missing):
    event = events(facts("a", passage("a", 1, 2)))[1]
    del event[missing]
    with pytest.raises(UsageError, match=rf"a\.p1000' has no '{missing}'"):
        passages_of([event])


@pytest.mark.parametrize("gap", [1.0, 2.0, 3.5, 4.0])
def test_two_halves_within_the_quiet_time_are_one(gap):
    one, other = cut_in_two(gap)
    (whole,) = joined([one, other])
    assert (whole.passage, whole.recording, whole.start_seconds) == ("a.p50000", "a", 50.0)
    assert whole.end_seconds == pytest.approx(60 + gap + 9)
    assert whole.end_time == other.end_time
    assert whole.end == "quiet"
    assert [part.recording for part in whole.parts] == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [
        lambda one, other: (replace(one, end="quiet"), other),
        lambda one, other: (replace(one, end="background changed"), other),
        lambda one, other: (replace(one, end=INTERRUPTED), other),
        lambda one, other: (one, replace(other, start_time=other.start_time + timedelta(seconds=2.2))),
        lambda one, other: (one, replace(other, start_time=other.start_time - timedelta(seconds=60))),
        lambda one, other: (one, replace(other, recording=one.recording)),
        lambda one, other: (replace(one, start_time=None), other),
        lambda one, other: (one, replace(other, start_time=None)),
    ],
    ids=["quiet", "background", "interrupted", "too late", "long before", "same recording", "no time", "none either"],
)
def test_others_stay_two(change):
    given = list(change(*cut_in_two(1.9)))
    assert joined(given) == given


def test_a_recording_that_runs_beside_is_not_the_next_one():
    """Two arrays: the passage of the second begins where the first recording ends, in a recording long under way."""
    one = passage("a", 50, 60)
    another = passage("b", 45.5, 50)
    beside = NOON + timedelta(seconds=15)
    given = rows(*facts("a", one, started_at=NOON, last_end=CUT), *facts("b", another, started_at=beside))
    assert abs((given[1].start_time - given[0].end_time).total_seconds()) < 1
    assert joined(given) == given


def test_what_remains_of_both():
    one = passage(
        "a", 50, 60, {"x": -1.0, "y": -2.0}, segments=10, used=(0, 1), excluded=(Exclusion(2, Role.MASKED, 1.0),),
        peaks=(Peak(0, 55_000, 10.0), Peak(1, 58_000, 3.0)), cadence=(100.0, 0.2),
    )  # fmt: skip
    other = passage(
        "b", 0, 10, {"x": -3.0, "y": -0.5}, segments=30, used=(0, 2), excluded=(Exclusion(1, Role.ANOMALOUS, 0.4),),
        peaks=(Peak(1, 2000, 9.0), Peak(0, 3000, 4.0)), cadence=(118.0, 0.6),
    )  # fmt: skip
    later = NOON + timedelta(seconds=60)
    given = rows(*facts("a", one, started_at=NOON, last_end=CUT), *facts("b", other, started_at=later))
    given[1] = replace(given[1], presence=0.5, p_known=None)
    (whole,) = joined(given)
    assert whole.evidence == {"x": -4.0, "y": -2.5}
    assert whole.label == "y"
    assert whole.probability == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert (whole.segments, whole.decided) == (40, 38)
    assert whole.presence == pytest.approx((10 * 0.9 + 30 * 0.5) / 40)
    assert whole.p_known == 0.5
    assert whole.sensors_used == (1, 2, 3)
    assert [(one.sensor, one.role, one.share) for one in whole.sensors_excluded] == [
        (2, "anomalous", 0.3),
        (3, "masked", 0.25),
    ]
    assert [(peak.sensor, peak.seconds, peak.level_db) for peak in whole.peaks] == [(1, 55.0, 10.0), (2, 62.0, 9.0)]
    assert (whole.cadence_per_minute, whole.cadence_confidence) == (118.0, 0.6)


def test_the_least_confidence_decides_whether_the_whole_has_a_label():
    given = cut_in_two(1.5)
    (whole,) = joined(given, least_confidence=0.8)
    assert whole.label == "y"
    assert whole.probability == pytest.approx(1 / (1 + math.exp(-1.5)))
    (doubtful,) = joined(given, least_confidence=0.9)
    assert (doubtful.label, doubtful.reason) == (None, "too close to call")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {"x": -1.0, "y": -2.0}, {"x": -1.0, "y": -2.0}),
        ({"x": -1.0, "y": -2.0}, {}, {"x": -1.0, "y": -2.0}),
        ({"x": -1.0, "y": -2.0}, {"x": -3.0, "z": -0.1}, {"x": -3.0, "z": -0.1}),
        ({}, {}, {}),
    ],
)
def test_models_without_classes_or_with_others_at_the_border(first, second, expected):
    """What cannot be added is not: the longer part counts."""
    one, other = passage("a", 50, 60, first), passage("b", 0, 10, second, segments=30)
    later = NOON + timedelta(seconds=60)
    given = rows(*facts("a", one, started_at=NOON, last_end=CUT), *facts("b", other, started_at=later))
    (whole,) = joined(given)
    assert whole.evidence == expected


def chain(n: int) -> list[PassageRow]:
    """One passage through `n` recordings of ten seconds each, and another in the last one."""
    told: list[object] = []
    for k in range(n):
        own = [passage(f"r{k}", 0, 10, {"x": -1.0, "y": -1.5})]
        if k == n - 1:
            own = [passage(f"r{k}", 0, 2, {"x": -1.0, "y": -1.5}), passage(f"r{k}", 8, 9)]
        end = CUT if k < n - 1 else PassageEnd.QUIET
        told += facts(f"r{k}", *own, started_at=NOON + timedelta(seconds=10 * k), last_end=end, seconds=10)
    return rows(*told)


def test_through_many_recordings_it_is_still_one():
    whole, after = joined(chain(5))
    assert len(whole.parts) == 5
    assert whole.duration_seconds == pytest.approx(42)
    assert whole.evidence == pytest.approx({"x": -5.0, "y": -7.5})
    assert after.passage == "r4.p8000"


def test_joining_depends_on_neither_order_nor_repetition():
    given = chain(4)
    once = joined(given)
    assert joined(once) == once
    for order in permutations(given):
        assert sorted(joined(order), key=lambda row: row.passage) == sorted(once, key=lambda row: row.passage)


def test_no_sample_is_lost_and_none_is_there_twice():
    """Parts, segments and evidence of all rows together stay the same, whatever is joined (random recordings)."""
    rng, n_joined = np.random.default_rng(3), 0
    for _ in range(100):
        told, at = list[object](), NOON
        for k in range(6):
            seconds = float(rng.integers(20, 40))
            begins = sorted(rng.choice(int(seconds) - 1, 3, replace=False).tolist())
            own = [
                passage(f"r{k}", begin, min(begin + float(rng.integers(1, 6)), seconds), {"x": -1.0, "y": -2.0})
                for begin in begins
            ]
            end = CUT if rng.random() < 0.7 else PassageEnd.QUIET
            told += facts(f"r{k}", *own, started_at=at, last_end=end, seconds=seconds)
            at += timedelta(seconds=seconds + float(rng.integers(0, 4)))
        given = rows(*told)
        found = joined(given)
        parts = [part for row in found for part in row.parts]
        assert len(parts) == len(given)
        assert set(parts) == {row.parts[0] for row in given}
        n_joined += len(given) - len(found)
        assert sum(row.segments for row in found) == sum(row.segments for row in given)
        assert sum(row.evidence["y"] for row in found) == pytest.approx(sum(row.evidence["y"] for row in given))
        for row in found:
            assert len({part.recording for part in row.parts}) == len(row.parts)
    assert n_joined > 20
