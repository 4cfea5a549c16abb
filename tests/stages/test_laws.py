"""The common law, for every stage; and that any cut of the sound gives the same, for every chain of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.events import (
    Block,
    Cepstra,
    FaultOpened,
    Features,
    Gap,
    Labelled,
    Paced,
    RecordingStarted,
    Screened,
    Segment,
    Span,
    TrustChanged,
    Views,
)
from pipeline.core.framing import Grid
from pipeline.core.segment_views import N_COEFFICIENTS, PAPER, TWO_VIEWS, Summary
from pipeline.core.sensor_state import Cause
from pipeline.learners.array_components import ArrayComponents
from pipeline.learners.array_presence import LEAST_EVIDENCE, fused, sustained
from pipeline.learners.array_screen import SensorPValues
from pipeline.stages import (
    AnomalyAlarms,
    Background,
    Chain,
    Classification,
    Fingerprint,
    Fusion,
    LabelAudit,
    LabelNotice,
    Measure,
    Mfcc,
    OperatorMask,
    Passages,
    PhysicalFaults,
    Presence,
    Projection,
    SampleRate,
    Screening,
    SensorStates,
    Viewing,
    Windowing,
)
from tests.stages import laws

GRID = Grid(rate_hz=4000, window_seconds=0.3, segment_seconds=0.52)
SENSORS = 3
PLACES = ((0.0, 0.0), (5.0, 1.0), (10.0, 0.0))


def sound(seconds: float, grid: Grid = GRID, seed: int = 0) -> np.ndarray:
    """Noise whose loudness wanders, so that the strongest windows are not trivial."""
    rng = np.random.default_rng(seed)
    n = round(seconds * grid.rate_hz)
    loudness = np.exp(np.interp(np.arange(n), 400 * np.arange(n // 400 + 2), rng.standard_normal(n // 400 + 2)))
    return (0.1 * loudness * rng.standard_normal((SENSORS, n))).astype(np.float32)


def viewing(grid: Grid = GRID, features: str = TWO_VIEWS) -> Viewing:
    return Viewing(grid, n_coefficients=N_COEFFICIENTS, features=features)


def components(n_values: int, n_components: int) -> ArrayComponents:
    rng = np.random.default_rng(n_components)
    axes = rng.standard_normal((SENSORS, n_components, n_values)) / n_values
    means, scales = rng.standard_normal((SENSORS, n_values)), rng.uniform(0.5, 2.0, n_values)
    return ArrayComponents(means, scales, np.full(n_values, 8.0), axes)


def projection(grid: Grid = GRID) -> Projection:
    return Projection(
        components(len(Summary(grid, N_COEFFICIENTS).parts), 6), components(4 * (grid.segment_frames // 4), 5)
    )


class Screen:
    """p-values by the size of the features; in every other segment, as it falls, sensors are of two opinions."""

    ready = np.ones(SENSORS, bool)
    smallest_p_values = np.full(SENSORS, 1e-3)

    def distances(self, X, present, compared):
        return list(zip(X, compared, strict=True))

    def ranked(self, distances, present, partners, novelty):
        x, is_compared = distances
        p = 1 / (1 + np.abs(x).sum(axis=1, dtype=float) + novelty)
        agree = np.ones((SENSORS, SENSORS), bool)
        if is_compared and round(100 * float(np.abs(x).sum())) % 2:
            agree[:2, 2:] = agree[2:, :2] = False
        return SensorPValues(p, p, p, agree)


class Reference:
    """p-values by the largest feature."""

    def measured(self, X, present):
        return np.abs(X).max(axis=2).astype(float)

    def p_values(self, measured):
        return 1 / (1 + measured)


class Machines:
    def margins(self, X, present):
        return np.where(present, X.sum(axis=2, dtype=float), np.nan)

    def log_odds(self, margins):
        return margins[:, :, None] * [0, 3]


class PresenceRule:
    """Somebody is there for a while and then not, by the level of the sound."""

    def log_odds(self, summary, background, seconds):
        return 0.2 * (summary - background).sum(axis=1, dtype=float) + 2 * np.sin(summary[:, 0].astype(float))


def passages(grid: Grid = GRID) -> Passages:
    return Passages(grid, threshold=0.6, least=LEAST_EVIDENCE, sustained=sustained, n_mels=40, positions_m=PLACES)


def whole_chain(grid: Grid = GRID) -> Chain:
    return Chain(Windowing(grid), Mfcc(grid), viewing(grid), Background(grid), projection(grid))


BLOCKS = laws.cut(sound(12), 333)
SEGMENTS = laws.fed(Windowing(GRID), BLOCKS)
CEPSTRA = laws.fed(Mfcc(GRID), SEGMENTS)
VIEWS = laws.fed(Background(GRID), laws.fed(viewing(), CEPSTRA))
PROJECTED = laws.fed(projection(), VIEWS)
FEATURES = laws.fed(Presence(PresenceRule(), fused, is_learned=True), PROJECTED)
SCREENED = laws.fed(Screening(Screen(), Reference()), FEATURES)
VERDICTS = laws.fed(Classification(Machines()), SCREENED)
STARTED = RecordingStarted("r", 4000, ("1", "2", "3"))
HOURS = [STARTED, *laws.cut(sound(30), 20_000), Gap(120_000, 280_000, "lost")]
SECONDS = [fact for fact in laws.fed(Measure(4000), HOURS) if not isinstance(fact, STARTED.__class__ | Block | Gap)]
FAULTS = [FaultOpened(0, 0, 1, Cause.SPIKES), *SECONDS]
LABELS = [Labelled(Span(0, 4000), "a")]
PACES = [Paced(20_000 * n, 10.0, samples) for n, samples in enumerate(([40_000, 20_000, 20_000, 40_000] * 9)[:35])]
FUSION = {"somebody": fused}
DECISIONS = laws.fed(Fusion(("a", "b"), lambda log_odds, values, weights: weights @ log_odds, **FUSION), VERDICTS)
STAGES = {
    "measuring": (lambda: Measure(4000), HOURS),
    "inspection": (PhysicalFaults, SECONDS),
    "pacing": (lambda: SampleRate(4000), [STARTED, *PACES]),
    "health": (lambda: SensorStates(4000), FAULTS),
    "suspicion": (lambda: AnomalyAlarms(GRID), SCREENED),
    "doubting": (lambda: LabelAudit(("a", "b")), [STARTED, *LABELS, *DECISIONS]),
    "labelling": (lambda: LabelNotice({"r": LABELS}), [STARTED] * 9),
    "windowing": (lambda: Windowing(GRID), [TrustChanged(0, np.array([True, False, False])), *BLOCKS]),
    "mfcc": (lambda: Mfcc(GRID), SEGMENTS),
    "viewing": (viewing, CEPSTRA),
    "viewing as published": (lambda: viewing(features=PAPER), CEPSTRA),
    "background": (lambda: Background(GRID), VIEWS),
    "projection": (projection, VIEWS),
    "presence": (lambda: Presence(PresenceRule(), fused, is_learned=True), PROJECTED),
    "screening": (lambda: Screening(Screen(), Reference()), FEATURES),
    "classification": (lambda: Classification(Machines()), SCREENED),
    "fusion": (lambda: Fusion(("a", "b"), lambda log_odds, values, weights: weights @ log_odds, **FUSION), VERDICTS),
    "passages": (passages, [STARTED, *DECISIONS]),
    "fingerprint": (Fingerprint, [RecordingStarted("r", 4000, ("1", "2", "3")), *BLOCKS]),
    "masking": (lambda: OperatorMask([1], SENSORS), [RecordingStarted("r", 4000, ("1", "2", "3"))] * 9),
}


# The windows of river's detector of drift grow with the logarithm of time; background and passages are bounded by
# minutes, not by seconds.
LARGER = ("suspicion", "background", "passages")
CASES = [
    (name, check)
    for name in STAGES
    for check in laws.ALL
    if name not in LARGER or check is not laws.check_state_is_bounded
]


@pytest.mark.parametrize(("name", "check"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_every_stage(name, check):
    """Input left alone, output read-only and final, strangers pass, flush forgets, state bounded."""
    check(*STAGES[name])


def test_suspicion_grows_by_the_logarithm_at_most():
    """Ten times as many segments: less than half as large again."""
    stage, sizes = AnomalyAlarms(GRID), []
    rng = np.random.default_rng(0)
    features = FEATURES[0]
    for n in range(20_000):
        span = Span(n * GRID.segment, (n + 1) * GRID.segment)
        p = rng.uniform(size=SENSORS)
        stage.push(Screened(replace(features, span=span), p, p, p, p, np.zeros(SENSORS, bool)))
        if n + 1 in (2000, 20_000):
            sizes.append(laws.size_of(stage))
    assert sizes[1] < 1.5 * sizes[0]


@pytest.mark.parametrize(("name", "facts"), [("background", VIEWS), ("passages", DECISIONS)])
def test_what_lasts_for_minutes_is_bounded_too(name, facts):
    """After an hour no larger than after ten minutes."""
    stage, sizes, stride = STAGES[name][0](), [], GRID.stride
    fact = facts[0] if name == "background" else next(one for one in facts if one.presence > 1)
    for n in range(3600 * GRID.rate_hz // stride):
        stage.push(_moved(fact, Span(n * stride, n * stride + GRID.segment)))
        if n + 1 in (600 * GRID.rate_hz // stride, 3600 * GRID.rate_hz // stride):
            sizes.append(laws.size_of(stage))
    assert sizes[1] <= 1.05 * sizes[0]


def _moved(fact, span):
    if isinstance(fact, Views):
        return replace(fact, span=span)
    verdicts = fact.verdicts
    screened = replace(verdicts.screened, features=replace(fact.features, span=span))
    return replace(fact, verdicts=replace(verdicts, screened=screened))


@pytest.mark.parametrize("size", [1, 7, 333, 4096])
def test_any_blocking_gives_the_features_of_the_whole(size):
    """Blocks of 1, 7, 333 and 4096 samples: the same bits as the whole at once."""
    audio = sound(6)
    whole = laws.fed(whole_chain(), laws.cut(audio, audio.shape[1]))
    assert len(whole) == (6 * 4000 - GRID.segment) // GRID.stride + 1
    assert all(isinstance(fact, Features) for fact in whole)
    assert laws.same(laws.fed(whole_chain(), laws.cut(audio, size)), whole)


@settings(max_examples=60)
@given(
    rate_hz=st.sampled_from([2000, 4000, 8000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000]),
    seconds=st.floats(0.1, 2.5),
    overlap=st.sampled_from([0.0, 0.3, 0.5, 0.75, 0.9]),
    start=st.integers(0, 100_000),
    sizes=st.lists(st.integers(1, 9000), max_size=40),
)
def test_any_cut_at_any_rate_gives_the_same(rate_hz, seconds, overlap, start, sizes):
    """Over rates, lengths, overlaps, starts and cuts: bit-identical, and each segment where it belongs."""
    grid = Grid(rate_hz=rate_hz, window_seconds=0.3, segment_seconds=0.5, overlap=overlap)
    audio = sound(seconds, grid)
    stop = start + audio.shape[1]
    whole = laws.fed(whole_chain(grid), laws.cut(audio, audio.shape[1], start=start))
    assert laws.same(laws.fed(whole_chain(grid), laws.cut(audio, sizes, start=start)), whole)
    expected = [s for s in range(0, stop, grid.stride) if s >= start and s + grid.segment <= stop]
    assert [fact.span.start for fact in whole] == expected


def test_a_chain_is_a_stage_and_starts_anew_with_each_recording():
    """Nothing of one recording reaches into the next, whose samples count from 0 again."""
    audio, chain = sound(2), whole_chain()
    started = RecordingStarted("r", GRID.rate_hz, ("1", "2", "3"))
    blocks = laws.cut(audio, 1000)
    once = [fact for item in [started, *blocks] for fact in chain.push(item)]
    again = [fact for item in [started, *blocks] for fact in chain.push(item)]
    assert once[0] == started
    assert laws.same(once, again)


def test_each_stage_gives_its_own_kind():
    """Blocks become segments, cepstra, views, features."""
    assert {type(fact) for fact in SEGMENTS} == {Segment}
    assert {type(fact) for fact in CEPSTRA} == {Cepstra}
    assert {type(fact) for fact in VIEWS} == {Views}
    assert {type(fact) for fact in laws.fed(projection(), VIEWS)} == {Features}


@pytest.mark.parametrize("size", [1, 7, 333, 4096, 48_000])
def test_a_fingerprint_knows_the_sound_and_not_how_it_was_cut(size):
    """Any blocking gives the same; another sample, an absent sensor or another length does not."""
    audio = sound(3)

    def fingerprint(samples, **how):
        started = RecordingStarted("r", 4000, ("1", "2", "3"))
        return laws.fed(Fingerprint(), [started, *laws.cut(samples, size, **how)])[-1]

    whole = laws.fed(Fingerprint(), [RecordingStarted("r", 4000, ("1", "2", "3")), *laws.cut(audio, audio.shape[1])])
    assert fingerprint(audio) == whole[-1]
    assert whole[-1].samples == audio.shape[1]
    other = audio.copy()
    other[1, 16 * 77] += 1e-3
    assert fingerprint(other) != whole[-1]
    assert fingerprint(audio, delivered=[True, False, True]) != whole[-1]
    assert fingerprint(audio[:, :-1]) != whole[-1]
