"""Passages from decisions whose evidence is given: when they start and end, what they say, what ends them."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.checkpoint import restore, snapshot
from pipeline.core.errors import SettingsError
from pipeline.core.events import (
    Decision,
    Features,
    Outcome,
    PassageEnd,
    PassageEnded,
    PassageStarted,
    PassageUpdated,
    PresenceAudited,
    RecordingFinished,
    RecordingStarted,
    Role,
    Screened,
    Span,
    Verdicts,
    Views,
)
from pipeline.core.framing import Grid
from pipeline.learners.array_presence import LEAST_EVIDENCE, sustained
from pipeline.stages import Passages
from tests.stages import laws

GRID = Grid(rate_hz=2000)
SENSORS = 4
STARTED = RecordingStarted("field", 2000, ("1", "2", "3", "4"))
PLACES = ((-7.5, 3.0), (-2.5, -3.0), (2.5, 3.0), (7.5, -3.0))


def stage(threshold: float = 1.0, **options) -> Passages:
    return Passages(GRID, threshold=threshold, least=LEAST_EVIDENCE, sustained=sustained, n_mels=100, **options)


def decision(number: int, presence: float | None, p=0.8, roles=None, levels=0.0, onsets=0.0, p_known=0.5) -> Decision:
    """Segment `number`, with the probability of the second of two classes."""
    span = Span(number * GRID.stride, number * GRID.stride + GRID.segment)
    everyone, nothing = np.ones(SENSORS, bool), np.zeros((SENSORS, 1), np.float32)
    summary = np.zeros((SENSORS, 2), np.float32)
    summary[:, 0] = 10 * np.asarray(levels)  # ten times decibels with 100 bands
    n_frames = GRID.stride // GRID.hop
    frames = np.broadcast_to(np.asarray(onsets, np.float32), (SENSORS, n_frames))
    views = Views(span, span, summary, nothing, everyone, everyone, frames, np.zeros_like(summary), 120.0)
    log_odds = np.full(SENSORS, presence or 0.0)
    features = Features(span, span, nothing, nothing, everyone, everyone, views, log_odds)
    usual = np.full(SENSORS, p_known)
    screened = Screened(features, usual, usual, usual, usual, ~everyone)
    verdicts = Verdicts(screened, np.zeros(SENSORS), np.zeros((SENSORS, 2)))
    label = None if presence is not None and presence <= 0 else ("a", "b")[int(p > 0.5)]
    outcome = Outcome(label, max(p, 1 - p), log(p / (1 - p)), None, (1 - p, p))
    roles = roles or (Role.USED,) * SENSORS
    return Decision(verdicts, outcome, np.ones(SENSORS), roles, (outcome,) * SENSORS, ("a", "b"), presence)


def audits(evidence, **options) -> list[PresenceAudited]:
    facts = [STARTED, *(decision(n, one) for n, one in enumerate(evidence))]
    return [fact for fact in laws.fed(stage(**options), facts) if isinstance(fact, PresenceAudited)]


def run(evidence, *, made: Passages | None = None, start: int = 0, **options) -> list[object]:
    """Passage facts of a recording with this evidence, the end of the recording included."""
    made = made or stage()
    facts = [STARTED, *(decision(start + n, one, **options) for n, one in enumerate(evidence))]
    return [
        fact for fact in laws.fed(made, facts) if not isinstance(fact, Decision | RecordingStarted | PresenceAudited)
    ]


def ends(facts) -> list[PassageEnded]:
    return [fact for fact in facts if isinstance(fact, PassageEnded)]


def test_nobody_is_no_passage():
    assert run([-2.0] * 100) == []


def test_a_passage_has_one_start_and_one_end_with_the_same_id():
    """Somebody from segment 20 to 59: 10.5 s to 31 s, a quarter of a segment within its first and last one."""
    facts = run([-2.0] * 20 + [2.0] * 40 + [-2.0] * 40)
    started, ended = facts[0], facts[-1]
    assert isinstance(started, PassageStarted)
    assert isinstance(ended, PassageEnded)
    assert all(isinstance(fact, PassageUpdated) for fact in facts[1:-1])
    assert {fact.passage.id for fact in facts} == {"field.p21000"}
    assert (ended.passage.start, ended.passage.stop) == (21_000, 62_000)
    assert ended.reason is PassageEnd.QUIET
    assert ended.passage.segments == 40
    # Known once four of six segments exceed the threshold, and four seconds after the sustained evidence fell.
    assert started.sample == 23 * GRID.stride + GRID.segment
    assert ended.sample == 61 * GRID.stride + GRID.segment + 4 * 2000


def test_evidence_that_stays_below_the_threshold_starts_nothing_and_less_than_it_goes_on():
    assert run([-2.0] * 10 + [0.9] * 40 + [-2.0] * 20) == []
    (ended,) = ends(run([-2.0] * 10 + [2.0] * 6 + [0.6] * 40 + [-2.0] * 20))
    assert ended.passage.segments == 46


def test_a_dip_shorter_than_the_quiet_time_does_not_split_a_passage():
    dip = [2.0] * 20 + [-3.0] * 6 + [2.0] * 20
    (ended,) = ends(run([-2.0] * 10 + dip + [-2.0] * 20))
    assert ended.passage.segments == len(dip)
    assert len(ends(run([-2.0] * 10 + [2.0] * 20 + [-3.0] * 20 + [2.0] * 20 + [-2.0] * 20))) == 2


@pytest.mark.parametrize(("missing", "n"), [(4, 1), (30, 2)])
def test_a_gap_shorter_than_the_quiet_time_is_passed_over(missing, n):
    """Segments that never came: 2 s more of a gap keep one passage, 15 s make two."""
    made = stage()
    facts = [STARTED, *(decision(k, 2.0) for k in range(20)), *(decision(k, 2.0) for k in range(20 + missing, 60))]
    found = ends(laws.fed(made, facts))
    assert len(found) == n
    assert len({one.passage.id for one in found}) == n


def test_somebody_at_the_end_of_a_recording_says_so():
    (ended,) = ends(run([-2.0] * 10 + [2.0] * 20))
    assert ended.reason is PassageEnd.RECORDING_ENDED


def test_nothing_is_said_of_a_recording_after_it_is_finished():
    """The end of an open passage, and an audit, come before."""
    facts = [STARTED, *(decision(n, -2.0) for n in range(150)), *(decision(n, 2.0) for n in range(150, 170))]
    finished = RecordingFinished("field", 1, "x")
    found = laws.fed(stage(audited=(0.5,)), [*facts, finished])
    assert found[-1] is finished
    assert {type(one) for one in found[-3:-1]} == {PassageEnded, PresenceAudited}


def test_what_lasts_longer_than_90_seconds_is_another_background():
    """It ends, and starts again only after the evidence has fallen."""
    facts = run([-2.0] * 10 + [3.0] * 400 + [-2.0] * 10 + [3.0] * 20 + [-2.0] * 20)
    first, second = ends(facts)
    assert first.reason is PassageEnd.BACKGROUND_CHANGED
    assert (first.passage.stop - first.passage.start) / 2000 == pytest.approx(90, abs=2)
    assert second.reason is PassageEnd.QUIET
    assert second.passage.start == 420 * GRID.stride + GRID.segment // 4


def test_the_verdict_adds_tempered_log_probabilities_weighted_by_presence():
    """The closed form: 0.02 a segment of half a second, by the probability that somebody was there."""
    evidence, p = [2.0] * 30, 0.8
    (ended,) = ends(run([-2.0] * 10 + evidence + [-2.0] * 20, p=p))
    weight = 0.02 * 30 / (1 + exp(-2.0))
    total = {"a": weight * log(1 - p), "b": weight * log(p)}
    assert ended.passage.evidence == pytest.approx(total)
    odds = total["b"] - total["a"]
    assert ended.passage.outcome.label == "b"
    assert ended.passage.outcome.probability == pytest.approx(1 / (1 + exp(-odds)))


def test_a_passage_whose_segments_contradict_each_other_has_no_label():
    made, facts = stage(), [STARTED]
    facts += [decision(n, 2.0, p=0.9 if n % 2 else 0.1) for n in range(40)]
    (ended,) = ends(laws.fed(made, facts))
    assert ended.passage.outcome.label is None
    assert ended.passage.outcome.reason == "too close to call"


@pytest.mark.parametrize(("role", "reason"), [(Role.UNTRAINED, "no classifier"), (Role.MASKED, "no usable sensor")])
def test_without_a_classifier_or_sensor_a_passage_has_no_label_and_says_so(role, reason):
    made, facts = stage(), [STARTED]
    for n in range(40):
        one = decision(n, 2.0, roles=(role,) * SENSORS)
        facts.append(
            Decision(one.verdicts, Outcome(None, None, None, "x"), one.weights, one.roles, one.without, (), 2.0)
        )
    (ended,) = ends(laws.fed(made, facts))
    assert (ended.passage.outcome.label, ended.passage.outcome.reason) == (None, reason)


def test_updates_come_every_ten_seconds_and_when_the_label_changes():
    made, facts = stage(), [STARTED]
    facts += [decision(n, 2.0, p=0.9 if n < 30 else 0.01) for n in range(100)]
    updates = [fact for fact in laws.fed(made, facts) if isinstance(fact, PassageUpdated)]
    labels = [fact.passage.outcome.label for fact in updates]
    assert "b" in labels
    assert labels[-1] == "a"
    assert max(np.diff([fact.sample for fact in updates])) <= 10 * 2000
    assert len(updates) < 10


def test_sensors_used_and_excluded_with_their_share():
    made, facts = stage(), [STARTED]
    for n in range(40):
        roles = (Role.USED, Role.MASKED if n < 20 else Role.USED, Role.OFF, Role.USED)
        facts.append(decision(n, 2.0, roles=roles, levels=[n, -n, 99.0, 5.0 if n == 7 else 1.0]))
    (ended,) = ends(laws.fed(made, facts))
    passage = ended.passage
    assert passage.sensors_used == (0, 1, 3)
    assert [(one.sensor, one.role, one.share) for one in passage.excluded] == [
        (1, Role.MASKED, 0.5),
        (2, Role.OFF, 1.0),
    ]
    peaks = {peak.sensor: peak for peak in passage.peaks}
    assert peaks[3].level_db == pytest.approx(5.0)
    assert peaks[3].sample == 7 * GRID.stride + GRID.segment // 2
    assert 2 not in peaks
    assert [peak.sample for peak in passage.peaks] == sorted(peak.sample for peak in passage.peaks)


def test_cadence_of_steps_every_half_second():
    course = np.zeros(GRID.stride // GRID.hop)
    course[10:16] = 1.0
    (ended,) = ends(run([2.0] * 40, onsets=course))
    assert ended.passage.cadence_per_minute == pytest.approx(120, rel=0.02)


def test_movement_needs_positions():
    """A source that passes the four sensors from left to right at 1.5 m/s, from its levels alone."""
    made, facts = stage(positions_m=PLACES), [STARTED]
    for n in range(40):
        x = 1.5 * (n - 20) * GRID.stride / 2000
        levels = [30 - 20 * np.log10(np.hypot(np.hypot(x - a, 0.5 - b), 0.5)) for a, b in PLACES]
        facts.append(decision(n, 2.0, levels=levels))
    (ended,) = ends(laws.fed(made, facts))
    moved = ended.passage.movement
    assert moved.speed_mps == pytest.approx(1.5, rel=0.05)
    assert min(moved.direction_degrees, 360 - moved.direction_degrees) < 5
    assert ends(laws.fed(stage(), facts))[0].passage.movement is None


def test_nothing_is_said_of_passages_where_presence_is_unknown():
    facts = [STARTED, *(decision(n, None) for n in range(30))]
    assert laws.same(laws.fed(stage(), facts), facts)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([-3.0, 0.3, 0.8, 3.0]), min_size=1, max_size=25).map(
        lambda values: [value for value in values for _ in range(4)]
    ),
    st.integers(0, 100),
)
def test_passages_are_disjoint_in_order_and_go_on_from_any_snapshot(evidence, place):
    """Whatever the evidence: starts and ends alternate, passages do not overlap, and a restored stage says the same."""
    facts = [STARTED, *(decision(n, one) for n, one in enumerate(evidence))]
    whole = laws.fed(stage(), facts)
    told = [fact for fact in whole if isinstance(fact, PassageStarted | PassageEnded)]
    assert [type(fact) for fact in told] == [PassageStarted, PassageEnded] * (len(told) // 2)
    spans = [(fact.passage.start, fact.passage.stop) for fact in told if isinstance(fact, PassageEnded)]
    assert all(start < stop for start, stop in spans)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    place = min(place, len(facts))
    first, second = stage(), stage()
    before = laws.pushed(first, facts[:place])
    restore(second, snapshot(first))
    assert laws.same(before + laws.fed(second, facts[place:]), whole)


def test_rises_of_the_background_are_counted_by_threshold_and_passages_are_not():
    """Rises to 0.7 and 0.9 that start nothing; what rises to 2 is a passage, not background."""
    low, rise, higher, passage = [-2.0] * 20, [0.7] * 10, [0.9] * 10, [2.0] * 10
    (audit,) = audits(low + rise + low + higher + low + passage + low + rise + low, audited=(0.5, 0.8, 1.0, 3.0))
    assert audit.thresholds == (0.5, 0.8)
    assert audit.starts == (3, 1)
    assert audit.threshold == 1.0
    assert 60 <= audit.seconds <= 70


def test_audits_come_every_hour_and_add_up():
    """Three hours with a rise every minute: the same counts in every hour."""
    found = audits(([-2.0] * 50 + [0.7] * 20 + [-2.0] * 50) * 180, audited=(0.5,))
    assert [one.starts for one in found] == [(60,), (60,), (60,)]
    assert [one.seconds for one in found] == [3600.0] * 3


def test_a_threshold_below_the_least_evidence_is_refused():
    with pytest.raises(SettingsError, match=r"threshold=0\.1"):
        stage(threshold=0.1)
