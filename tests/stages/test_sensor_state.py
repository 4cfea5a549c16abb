"""Measures, physical faults, sensor states, anomaly alarms, label audit: what the stages of health say, and when."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pipeline.core.errors import SettingsError
from pipeline.core.events import (
    AnomalyJudged,
    Authority,
    Block,
    CalibrationChanged,
    Decision,
    FaultClosed,
    FaultOpened,
    Features,
    Gap,
    Labelled,
    Outcome,
    RecordingStarted,
    Role,
    Screened,
    Span,
    StateChanged,
    Tick,
    TrustChanged,
    Verdicts,
)
from pipeline.core.framing import Grid
from pipeline.core.sensor_state import Cause, Liveness, Pattern, State
from pipeline.health.measures import Measures
from pipeline.stages import (
    AnomalyAlarms,
    Chain,
    Fusion,
    LabelAudit,
    LabelNotice,
    Measure,
    OperatorMask,
    PhysicalFaults,
    SensorStates,
)
from tests.stages import laws

RATE = 4000
NAMES = ("1", "2", "3", "4")
STARTED = RecordingStarted("r", RATE, NAMES)
GRID = Grid(rate_hz=RATE)


def sound(seconds, seed=0, sensors=4):
    rng = np.random.default_rng(seed)
    noise = 0.01 * rng.standard_normal((sensors, round(seconds * RATE)))
    return (np.round(noise * 32768) / 32768).astype(np.float32)


def chain():
    return Chain(Measure(RATE), PhysicalFaults(), SensorStates(RATE))


def played(samples, *, delivered=None, size=1000, stages=None, before=()):
    """Facts of a recording of which each sensor delivers some blocks."""
    stages, out = stages or chain(), []
    facts = [STARTED, *before]
    for start in range(0, samples.shape[1], size):
        there = np.ones(len(samples), bool) if delivered is None else delivered(start / RATE)
        facts.append(Block(start, samples[:, start : start + size], np.asarray(there)))
    for fact in facts:
        out += stages.push(fact)
    return out + stages.flush()


def states(out, sensor):
    return [(str(f.state), str(f.liveness)) for f in out if isinstance(f, StateChanged) and f.sensor == sensor]


def opened(out):
    return {(f.sensor, str(f.cause)) for f in out if isinstance(f, FaultOpened)}


@pytest.mark.parametrize("size", [1, 7, 333, 4096, 100_000])
def test_any_cut_of_the_sound_gives_the_same_measures_in_the_same_places(size):
    """Behind the last sample of each second, whatever the blocks were; samples pass unchanged."""
    audio = sound(3.4)
    whole = played(audio, size=audio.shape[1], stages=Chain(Measure(RATE)))
    cut = played(audio, size=size, stages=Chain(Measure(RATE)))
    measures = [fact for fact in cut if isinstance(fact, Measures)]
    assert [(fact.start, fact.stop) for fact in measures] == [(0, RATE), (RATE, 2 * RATE), (2 * RATE, 3 * RATE)]
    assert laws.same([fact for fact in whole if isinstance(fact, Measures)], measures)
    blocks = [fact for fact in cut if isinstance(fact, Block)]
    np.testing.assert_array_equal(np.concatenate([block.samples for block in blocks], axis=1), audio)
    position = 0
    for fact in cut[1:]:
        if isinstance(fact, Block):
            assert fact.start == position
            position = fact.stop
        else:
            assert fact.stop == position


def test_a_gap_is_measured_as_missing_sound_also_if_it_lasts_a_week():
    """Seconds in detail at first, then all the rest at once; the second in which sound comes back is partly missing."""
    stage = Chain(Measure(RATE))
    audio = sound(2)
    out = stage.push(STARTED) + stage.push(Block(0, audio[:, :RATE], np.ones(4, bool)))
    week = 7 * 86_400 * RATE + RATE // 2
    out += stage.push(Gap(RATE, RATE + week, "lost"))
    out += stage.push(Block(RATE + week, audio, np.ones(4, bool)))
    measures = [fact for fact in out if isinstance(fact, Measures)]
    assert len(measures) < 50
    for one, other in pairwise(measures):
        assert one.stop == other.start
    assert (measures[0].missing == 0).all()
    assert all((fact.missing == 1).all() for fact in measures[1:-2])
    np.testing.assert_allclose(measures[-2].missing, 0.5)


@pytest.mark.parametrize("length", [1, 7, RATE // 3, RATE, 7 * RATE // 4, 12 * RATE])
def test_gaps_one_after_the_other_are_measured_as_one_time(length):
    """Whatever their length, also when none of them ends with a second, and long after the last sound."""
    stage = Chain(Measure(RATE))
    out = stage.push(STARTED) + stage.push(Block(0, sound(1), np.ones(4, bool)))
    start = RATE
    for _ in range(min(200, 90 * RATE // length)):
        out += stage.push(Gap(start, start + length, "lost"))
        start += length
    measures = [fact for fact in out if isinstance(fact, Measures)]
    for one, other in pairwise(measures):
        assert one.stop == other.start
    assert measures[-1].stop == start // RATE * RATE
    assert all((fact.missing == 1).all() for fact in measures[1:])


def test_healthy_sensors_become_good_and_stay_so():
    out = played(sound(80))
    for sensor in range(4):
        assert states(out, sensor) == [("good", "healthy")]
    assert opened(out) == set()


SPECIAL = {
    "all zeros": (lambda x: 0 * x, {"flat"}),
    "a stuck value": (lambda x: 0 * x + np.float32(0.3), {"flat"}),
    "digital silence with one bit of noise": (lambda x: np.float32(2**-15) * (x > 0), {"flat"}),
    "far too quiet, of 24 bits": (lambda x: np.float32(1e-4) * x, {"silent"}),
    "pegged": (lambda x: 0 * x + 1, {"pegged"}),
}


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("sensor", [0, 3])
def test_special_inputs_are_bad_from_the_beginning_and_never_good(name, sensor):
    """Unknown, then bad, with the right causes; the level is -inf or far below, never 0 dB; others are untouched."""
    make, causes = SPECIAL[name]
    audio = sound(20)
    audio[sensor] = make(audio[sensor])
    out = played(audio)
    assert [state for state, _ in states(out, sensor)] == ["bad"]
    assert opened(out) == {(sensor, cause) for cause in causes}
    levels = [fact.level_db[sensor] for fact in out if isinstance(fact, Measures)]
    assert max(levels) < -90
    for other in set(range(4)) - {sensor}:
        assert states(out, other) == [("good", "healthy")]


def test_an_unplugged_channel_is_bad_and_comes_back():
    """Delivered until 10 s and from 30 s on: no frames after 5 s, trusted no more, well again afterwards."""
    out = played(sound(110), delivered=lambda t: [True, True, not 10 <= t < 30, True])
    assert states(out, 2)[0] == ("good", "healthy")
    assert states(out, 2)[1] == ("bad", "alarmed")
    assert states(out, 2)[-1] == ("good", "healthy")
    faults = [f for f in out if isinstance(f, FaultOpened) and f.cause is Cause.NO_FRAMES]
    assert [f.sensor for f in faults] == [2]
    assert faults[0].sample <= 15 * RATE
    assert faults[0].since == 10 * RATE
    closed = [f for f in out if isinstance(f, FaultClosed) and f.cause is Cause.NO_FRAMES]
    assert closed[0].sample <= 35 * RATE
    trust = [f for f in out if isinstance(f, TrustChanged)]
    assert [f.trusted.tolist() for f in trust] == [[True, True, False, True], [True] * 4]
    assert {f.by for f in trust} == {Authority.HEALTH}
    assert {s for s, _ in opened(out)} == {2}


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_a_sensor_that_is_missing_again_and_again_has_gaps(shift):
    """Three of every eight seconds, whole ones or not."""
    out = played(sound(40), delivered=lambda t: [True, (t + shift) % 8 >= 3, True, True])
    assert (1, "gap") in opened(out)
    assert opened(out) <= {(1, "gap"), (1, "flapping")}


def test_a_channel_that_never_starts_is_unknown_and_fails_in_time():
    """Never good, never 0 dB; the others are good."""
    out = played(sound(20), delivered=lambda t: [True, True, False, True])
    assert states(out, 2) == [("unknown", "alarmed")]
    assert opened(out) == {(2, "no_frames")}
    long = played(np.zeros((4, 620 * RATE), np.float32), delivered=lambda t: [False] * 4, size=RATE)
    assert states(long, 1)[-1] == ("unknown", "failed")


def ticked(seconds_of_waiting, sound_between=20):
    """Sound, then a source that waits and says so every second, then sound again."""
    audio = sound(2 * sound_between)
    stages, out = chain(), []
    out += stages.push(STARTED) + stages.push(Block(0, audio[:, : sound_between * RATE], np.ones(4, bool)))
    for waited in range(1, seconds_of_waiting + 1):
        out += stages.push(Tick(sound_between * RATE, waited + 0.01))
    return out + stages.push(Block(sound_between * RATE, audio[:, sound_between * RATE :], np.ones(4, bool)))


def test_a_source_that_waits_is_deaf_and_comes_back():
    """After five seconds all sensors deliver nothing, which is told while it waits; after a minute it escalates."""
    out = ticked(100)
    waiting = out[: next(n for n, fact in enumerate(out) if isinstance(fact, Block) and fact.start == 20 * RATE)]
    for sensor in range(4):
        assert states(waiting, sensor) == [("good", "healthy"), ("bad", "alarmed"), ("bad", "escalated")]
        assert states(out, sensor)[3] == ("good", "recovering")
    assert opened(out) == {(sensor, "no_frames") for sensor in range(4)}
    assert [fact.reason.split()[0] for fact in out if isinstance(fact, AnomalyJudged)] == ["no_frames"]
    assert opened(ticked(4)) == set()


def test_a_source_that_stalls_again_and_again_is_too_slow():
    """Two seconds of waiting for every second of sound; a single wait is no stall."""
    audio = sound(60)
    stages = chain()
    out = stages.push(STARTED)
    for second in range(60):
        start = second * RATE
        out += stages.push(Block(start, audio[:, start : start + RATE], np.ones(4, bool)))
        if 20 <= second < 40:
            out += stages.push(Tick(start + RATE, 1.0)) + stages.push(Tick(start + RATE, 2.0))
    assert opened(out) == {(sensor, "stalled_rate") for sensor in range(4)}
    closed = [fact for fact in out if isinstance(fact, FaultClosed)]
    assert len(closed) == 4
    assert all(fact.until <= 55 * RATE for fact in closed)


def test_an_operator_switches_off_and_on_and_health_goes_on_measuring():
    """Off is not bad: the sensor is measured, its faults are known, and it is what it is when switched on again."""
    audio = sound(40)
    audio[1, 5 * RATE : 15 * RATE] = 0
    stages = chain()
    out = stages.push(STARTED) + stages.push(TrustChanged(0, np.array([True, False, True, True])))
    for start in range(0, audio.shape[1], RATE):
        if start == 20 * RATE:
            out += stages.push(TrustChanged(start, np.ones(4, bool)))
        out += stages.push(Block(start, audio[:, start : start + RATE], np.ones(4, bool)))
    assert states(out, 1) == [("off", "muted"), ("good", "healthy")]
    assert (1, "flat") in opened(out)
    own = [f.trusted.tolist() for f in out if isinstance(f, TrustChanged) and f.by is Authority.HEALTH]
    assert own == [[True, False, True, True], [True] * 4]


def test_the_same_fault_everywhere_is_told_as_common():
    """A converter that delivers zeros on all channels is no event out there, and no four faults."""
    audio = sound(20)
    audio[:, 8 * RATE :] = 0
    judged = [f for f in played(audio) if isinstance(f, AnomalyJudged)]
    assert {f.pattern for f in judged} == {Pattern.COMMON_FAULT}
    assert all(f.sensors == (0, 1, 2, 3) for f in judged)
    assert [f.reason.split()[0] for f in judged] == ["flat"]
    audio[0] = sound(20, seed=1)[0]
    assert not [f for f in played(audio) if isinstance(f, AnomalyJudged)]


def test_a_loose_contact_flaps_and_is_told_of_a_few_times():
    """Ten dropouts of 5 s in 4 minutes: flapping opens, and few changes are notified."""
    audio = sound(240)
    for k in range(10):
        audio[3, (24 * k + 10) * RATE : (24 * k + 15) * RATE] = 0
    out = played(audio, size=RATE)
    changes = [f for f in out if isinstance(f, StateChanged) and f.sensor == 3]
    assert len(changes) > 15
    assert sum(f.notify for f in changes) <= 4
    assert (3, "flapping") in opened(out)
    assert all(f.notify for f in out if isinstance(f, StateChanged) and f.sensor != 3)


def test_state_changes_say_since_when_why_and_what_to_do():
    audio = sound(20)
    audio[2, 8 * RATE :] = 0
    changed = [f for f in played(audio) if isinstance(f, StateChanged) and f.state is State.BAD]
    (bad,) = changed
    assert (bad.sensor, bad.before, bad.liveness) == (2, State.GOOD, Liveness.ALARMED)
    assert bad.since == 8 * RATE
    assert bad.sample == 10 * RATE
    assert bad.causes == (Cause.FLAT,)
    assert bad.evidence[Cause.FLAT] == {"distinct_values": 1.0, "limit": 2}
    assert all(bad.cures)


def features(start=0, *, trusted=None):
    trusted = np.ones(4, bool) if trusted is None else trusted
    span = Span(start, start + GRID.segment)
    nothing = np.zeros((4, 2), np.float32)
    return Features(span, span, nothing, nothing, np.ones(4, bool), trusted)


def screened(start, p_values, p_own=None, p_known=None):
    p = np.asarray(p_values, float)
    own, known = (p if given is None else np.asarray(given, float) for given in (p_own, p_known))
    return Screened(features(start), own, p, p, known, np.zeros(4, bool))


def suspected(p_rows, *, own_rows=None, known_rows=None, before=(), **settings):
    """Facts about segments that do not overlap, one for each row of p-values."""
    stage, out = AnomalyAlarms(GRID, **settings), []
    for fact in before:
        out += stage.push(fact)
    for n, row in enumerate(p_rows):
        own, known = (None if rows is None else rows[n] for rows in (own_rows, known_rows))
        out += stage.push(screened(n * GRID.segment, row, own, known))
    return [fact for fact in out if not isinstance(fact, Screened)]


def usual_rows(n, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, 4))


def test_one_sensor_against_the_others_is_a_fault():
    """Small p-values at one sensor: anomalous is opened and judged a fault; usual ones close it again."""
    rows = usual_rows(200)
    rows[50:70, 1] = 0.004
    out = suspected(rows)
    kinds = [(type(f).__name__, getattr(f, "sensor", None)) for f in out if not isinstance(f, AnomalyJudged)]
    assert kinds == [("FaultOpened", 1), ("FaultClosed", 1)]
    (judged,) = [f for f in out if isinstance(f, AnomalyJudged)]
    assert (judged.pattern, judged.sensors) == (Pattern.FAULT, (1,))
    assert 50 * GRID.segment <= out[0].since < out[0].sample <= 60 * GRID.segment


def test_all_together_are_an_event_and_nobody_is_blamed():
    """All p-values small at once, by timing and by summary: the scene is new."""
    rows = usual_rows(200)
    rows[50:70] = 0.004
    out = suspected(rows)
    assert [(f.pattern, f.sensors) for f in out] == [(Pattern.EVENT, (0, 1, 2, 3))]


def test_a_sound_unlike_every_class_is_an_event_though_the_sensors_agree():
    """It is the summary that tells: usual timing at every sensor, and nobody is blamed while it lasts."""
    known = usual_rows(200, seed=1)
    known[50:70] = 0.004
    rows = usual_rows(200)
    out = suspected(rows, known_rows=known)
    assert [(f.pattern, f.sensors) for f in out] == [(Pattern.EVENT, (0, 1, 2, 3))]
    rows[50:70, 1] = 0.004
    assert [f.pattern for f in suspected(rows, known_rows=known)] == [Pattern.EVENT]


def test_unusual_timing_of_a_known_sound_is_the_fault_of_each_sensor():
    """Where the sound is like that of a class nothing excuses the sensors."""
    rows = usual_rows(200)
    rows[50:70] = 0.004
    judged = [f for f in suspected(rows, known_rows=usual_rows(200, seed=1)) if isinstance(f, AnomalyJudged)]
    assert [(f.pattern, f.sensors) for f in judged] == [(Pattern.FAULT, (sensor,)) for sensor in range(4)]


def test_what_physics_explains_is_no_suspicion():
    """A sensor with an open physical fault is left out of evidence, calibration and event alike."""
    rows = usual_rows(400)
    rows[:, 2] = 0.004
    fault = FaultOpened(0, 0, 2, Cause.CLIPPING)
    assert suspected(rows, before=[fault]) == [fault]
    closed = FaultClosed(0, 0, 0, 2, Cause.CLIPPING)
    assert any(isinstance(f, AnomalyJudged) for f in suspected(rows, before=[fault, closed]))


def test_overlapping_segments_do_not_count_twice():
    stage, facts = AnomalyAlarms(GRID), []
    for n in range(12):
        facts += stage.push(screened(n * GRID.stride, [0.004, 0.5, 0.5, 0.5]))
    assert all(isinstance(fact, Screened) for fact in facts)


def test_a_sensor_alone_is_accused_and_is_no_event():
    """Where the others have faults of their own nobody can say that all hear something new."""
    rows = usual_rows(200)
    rows[50:70, 1] = 0.004
    faults = [FaultOpened(0, 0, sensor, Cause.SPIKES) for sensor in (0, 2, 3)]
    out = suspected(rows, before=faults)[3:]
    assert [f.pattern for f in out if isinstance(f, AnomalyJudged)] == [Pattern.FAULT]


@pytest.mark.parametrize("overlap", [0.0, 0.5, 0.6, 0.65, 0.75])
def test_every_overlap_gives_a_test_for_about_every_length_of_a_segment(overlap):
    grid = Grid(rate_hz=RATE, overlap=overlap)
    stage, n = AnomalyAlarms(grid, alarms_per_day=20_000.0), 0
    for start in range(0, 100 * grid.segment, grid.stride):
        span = Span(start, start + grid.segment)
        stage.push(screened(start, np.full(4, 0.01), np.full(4, 0.9), np.full(4, 0.9)))
        n += stage._next == span.stop
    assert 70 <= n <= 100


def test_false_alarms_of_a_day_stay_below_what_was_asked_for():
    """A day of four usual sensors at five alarms a day: not more than a Poisson law allows once in a hundred times."""
    rows = usual_rows(43_200, seed=5)
    out = [f for f in suspected(rows, alarms_per_day=5.0) if isinstance(f, AnomalyJudged)]
    assert len(out) <= 11


def test_losing_calibration_is_told_with_its_interval():
    """Eight percent refused at 1 %, spread evenly: no alarm of one moment, but not the rate that was asked for."""
    rows = usual_rows(2000, seed=3)
    rows[500:1500:12, 0] = 0.009
    lost = [f for f in suspected(rows, alarms_per_day=1e-9) if isinstance(f, CalibrationChanged)]
    assert lost[0].lost
    assert lost[0].sensor == 0
    assert 0.02 < lost[0].low < lost[0].realised < lost[0].high
    assert lost[0].nominal == 0.01


def test_contamination_over_budget_is_a_fault_from_the_beginning():
    out = suspected(usual_rows(3), contamination=[0.1, 0.5, 0.0, 0.29])
    assert [(f.sensor, f.cause) for f in out] == [(1, Cause.CONTAMINATED)]


def test_a_place_that_changes_drifts():
    """p-values of their own that get smaller for good, sensor 4 alone."""
    own = usual_rows(1500, seed=4)
    own[600:, 3] **= 4
    out = suspected(usual_rows(1500), own_rows=own)
    assert {(f.sensor, f.cause) for f in out if isinstance(f, FaultOpened)} == {(3, Cause.DRIFT)}


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"alpha": 1.0}, {"alarms_per_day": 0.0}])
def test_rates_that_cannot_be_are_refused(settings):
    with pytest.raises(SettingsError, match=f"{next(iter(settings))}=.* usual"):
        AnomalyAlarms(GRID, **settings)


def verdicts(log_odds=(2.0,) * 4, **masks):
    p = np.ones(4)
    given = Screened(features(**masks), p, p, p, p, np.zeros(4, bool))
    return Verdicts(given, np.asarray(log_odds, float), np.column_stack([np.zeros(4), log_odds]))


def changed(sensor, state):
    return StateChanged(0, 0, sensor, State.GOOD, state, Liveness.ALARMED, ())


def test_health_weighs_in_fusion():
    """Bad has no say, degraded half of it, and both come back; the operator's off is told apart from health's mask."""
    fusion = Fusion(("a", "b"), lambda log_odds, values, weights: weights @ log_odds)
    fusion.push(changed(0, State.BAD))
    fusion.push(changed(1, State.DEGRADED))
    fusion.push(TrustChanged(0, np.array([True, True, True, False])))
    off = np.array([True, True, True, False])
    (decision,) = fusion.push(verdicts(trusted=off))
    assert decision.roles == (Role.MASKED, Role.USED, Role.USED, Role.OFF)
    np.testing.assert_array_equal(decision.weights, [0, 0.5, 1, 0])
    (before_trust_is_back,) = fusion.push(verdicts(trusted=np.array([True, True, False, False])))
    assert before_trust_is_back.roles[2:] == (Role.MASKED, Role.OFF)
    for sensor in (0, 1):
        fusion.push(changed(sensor, State.GOOD))
    fusion.push(TrustChanged(0, np.ones(4, bool)))
    (decision,) = fusion.push(verdicts())
    np.testing.assert_array_equal(decision.weights, np.ones(4))


def decision(start, log_odds, roles=(Role.USED,) * 4):
    p = np.ones(4)
    inner = Verdicts(screened(start, p), p, np.column_stack([np.zeros(4), np.asarray(log_odds, float)]))
    outcome = Outcome("b", 0.9, 2.0)
    return Decision(inner, outcome, p, roles, (outcome,) * 4)


@pytest.mark.parametrize(
    ("log_odds", "label", "doubted"),
    [
        ([3.0] * 4, "a", True),
        ([3.0] * 4, "b", False),
        ([-3.0] * 4, "b", True),
        ([3.0, 3.0, 3.0, -3.0], "a", False),
        ([0.1] * 4, "a", False),
        ([3.0] * 4, "c", False),
    ],
)
def test_a_label_is_doubted_if_all_sensors_contradict_it(log_odds, label, doubted):
    """Told once; one sensor on the label's side, or too little evidence, doubts nothing."""
    stages = Chain(LabelNotice({"r": [Labelled(Span(0, 10 * GRID.segment), label)]}), LabelAudit(("a", "b")))
    out = stages.push(STARTED)
    for n in range(10):
        out += stages.push(decision(n * GRID.segment, log_odds))
    judged = [fact for fact in out if isinstance(fact, AnomalyJudged)]
    assert [fact.pattern for fact in judged] == [Pattern.DOUBTED_LABEL] * doubted


@pytest.mark.parametrize(
    ("log_odds", "label", "doubted"),
    [
        ([[0, 3, 9]] * 4, "a", True),
        ([[0, 3, 9]] * 4, "b", True),
        ([[0, 3, 9]] * 4, "c", False),
        (
            [[0, 3, 9], [0, 9, 3], [0, 3, 9], [0, 9, 3]],
            "a",
            True,
        ),  # all are for another class, if not the same one most
        ([[0, 9, 0], [0, -9, 9], [0, 9, 0], [0, 9, 0]], "a", False),  # one is against every other class of the others
    ],
)
def test_a_label_of_several_classes_is_doubted_if_all_sensors_are_for_one_other(log_odds, label, doubted):
    stages = Chain(LabelNotice({"r": [Labelled(Span(0, 10 * GRID.segment), label)]}), LabelAudit(("a", "b", "c")))
    out = stages.push(STARTED)
    for n in range(10):
        two = decision(n * GRID.segment, [0.0] * 4)
        out += stages.push(replace(two, verdicts=replace(two.verdicts, log_odds=np.array(log_odds, float))))
    judged = [fact for fact in out if isinstance(fact, AnomalyJudged)]
    assert [fact.pattern for fact in judged] == [Pattern.DOUBTED_LABEL] * doubted


def test_segments_outside_the_label_say_nothing_about_it():
    stages = Chain(LabelNotice({"r": [Labelled(Span(0, 2 * GRID.segment), "a")]}), LabelAudit(("a", "b")))
    out = stages.push(STARTED)
    for n in range(10):
        out += stages.push(decision(n * GRID.segment, [9.0] * 4))
    assert not [fact for fact in out if isinstance(fact, AnomalyJudged)]


def test_masking_and_health_together_never_shift_a_sensor():
    """With the operator's mask before them the stages of health see all sensors in their places."""
    audio = sound(20)
    audio[3, 5 * RATE :] = 0
    stages = Chain(OperatorMask([1], 4), Measure(RATE), PhysicalFaults(), SensorStates(RATE))
    out = played(audio, stages=stages)
    assert states(out, 1) == [("off", "muted")]
    assert states(out, 3)[-1][0] == "bad"
    assert opened(out) == {(3, "flat")}


def test_inspection_keeps_what_it_found_with_the_last_seconds_only():
    """Measures that others keep do not grow behind it."""
    seconds = [fact for fact in played(sound(25)) if isinstance(fact, Measures)]
    assert all(one.relations is not None for one in seconds)
    assert [("kept" in vars(one.relations)) for one in seconds] == [False] * 15 + [True] * 10
