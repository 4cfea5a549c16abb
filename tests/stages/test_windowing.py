"""Segments lie where they say, and the sensors choose the window together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import SettingsError
from pipeline.core.events import Block, RecordingStarted, TrustChanged
from pipeline.core.framing import Grid
from pipeline.stages import Windowing
from pipeline.stages.windowing import strongest_window
from tests.stages.laws import cut, fed, size_of

GRID = Grid(rate_hz=2000, window_seconds=0.3, segment_seconds=0.52)
SEGMENT, STRIDE = 1040, 260


def ramp(start: int, stop: int, n_sensors: int = 2) -> np.ndarray:
    """Every sample is its own number; sensors are told apart by their sign."""
    index = np.arange(start, stop, dtype=np.float32)
    return np.stack([index * (-1) ** sensor for sensor in range(n_sensors)])


def test_defaults_are_those_of_the_paper():
    """1.5 s in 150 frames of 50 ms every 10 ms, segments that overlap by three quarters, at 16 kHz."""
    grid = Grid(rate_hz=16_000)
    assert (grid.frame, grid.hop, grid.window_frames) == (800, 160, 150)
    assert grid.stride * 4 == grid.segment
    assert grid.window == 149 * 160 + 800


@pytest.mark.parametrize("rate_hz", [2000, 11_025, 22_050, 44_100, 96_000])
def test_at_every_rate_a_window_has_as_many_frames(rate_hz):
    """The number of values does not depend on the rate, and all frames lie inside the segment."""
    grid = Grid(rate_hz=rate_hz)
    assert grid.window_frames == 150
    assert grid.window <= grid.segment
    assert (grid.segment_frames - 1) * grid.hop + grid.frame <= grid.segment


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate_hz": 1999}, "rate_hz=1999 must be a whole number from 2000 to 96000; resample"),
        ({"rate_hz": 192_000}, "rate_hz=192000"),
        ({"rate_hz": 8000, "hop_seconds": 1e-4}, "hop_seconds=0.0001 must be at least one sample"),
        ({"rate_hz": 8000, "hop_seconds": 0.1}, "frame_seconds=0.05 must be at least hop_seconds=0.1; shorten"),
        ({"rate_hz": 8000, "overlap": 1.0}, "overlap=1.0 must be at least 0 and leave"),
        ({"rate_hz": 8000, "overlap": -0.1}, "overlap=-0.1"),
        ({"rate_hz": 8000, "segment_seconds": 1.5}, "window_seconds=1.5 and one frame of 0.05 must fit"),
        ({"rate_hz": 8000, "window_seconds": float("nan")}, "window_seconds=nan must be a positive number"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    """The message names the setting, its value, the rule and the cure."""
    with pytest.raises(SettingsError, match=message):
        Grid(**settings)


@given(start=st.integers(0, 5000), length=st.integers(0, 6000), size=st.integers(1, 2500))
@settings(max_examples=50)
def test_every_sample_is_where_its_number_says(start, length, size):
    """A signal that carries its own index proves the place of every segment and window."""
    for segment in fed(Windowing(GRID), cut(ramp(start, start + length), size, start=start)):
        expected = ramp(segment.span.start, segment.span.stop)
        assert (segment.samples == expected).all()
        assert segment.span.start % STRIDE == 0
        assert len(segment.span) == SEGMENT
        assert segment.span.start <= segment.window.start
        assert segment.window.stop <= segment.span.stop
        assert (segment.window.start - segment.span.start) % GRID.hop == 0
        assert len(segment.window) == GRID.window


@given(gap_start=st.integers(1, 4000), gap=st.integers(1, 3000))
@settings(max_examples=50)
def test_no_segment_reaches_over_a_gap(gap_start, gap):
    """Segments lie on the absolute grid before and after, and none holds a missing sample."""
    resumed = gap_start + gap
    blocks = cut(ramp(0, gap_start), 700) + cut(ramp(resumed, resumed + 4000), 700, start=resumed)
    segments = fed(Windowing(GRID), blocks)
    starts = [segment.span.start for segment in segments]
    end = resumed + 4000
    before = [start for start in range(0, gap_start, STRIDE) if start + SEGMENT <= gap_start]
    after = [start for start in range(0, end, STRIDE) if start >= resumed and start + SEGMENT <= end]
    assert starts == before + after
    for segment in segments:
        assert (segment.samples == ramp(segment.span.start, segment.span.stop)).all()


def test_going_back_in_time_is_an_error():
    """Samples that were there already are not taken twice."""
    stage = Windowing(GRID)
    stage.push(Block(0, ramp(0, 100), np.ones(2, bool)))
    with pytest.raises(ValueError, match="2 sensors from sample 99 on cannot follow one of 2 sensors up to sample 100"):
        stage.push(Block(99, ramp(99, 200), np.ones(2, bool)))
    with pytest.raises(ValueError, match="block of 1 sensors from sample 100 on cannot follow one of 2 sensors"):
        stage.push(Block(100, ramp(100, 200)[:1], np.ones(1, bool)))


def test_a_grid_for_another_rate_is_refused():
    """Features of a recording cut by the wrong grid would be wrong without anybody noticing."""
    stage = Windowing(GRID)
    assert stage.push(RecordingStarted("r", 2000, ("1",)))
    with pytest.raises(SettingsError, match="recording 'r' has 8000 samples per second, the grid is made for 2000"):
        stage.push(RecordingStarted("r", 8000, ("1",)))


@given(lost=st.integers(0, 3999), length=st.integers(1, 1500))
@settings(max_examples=50)
def test_a_sensor_is_present_only_where_it_delivered_everything(lost, length):
    """Sensor 2 misses some samples: absent in the segments that hold one of them, and nothing else changes."""
    stop = min(lost + length, 4000)
    audio = ramp(0, 4000)
    pieces = [(0, lost, [True, True]), (lost, stop, [True, False]), (stop, 4000, [True, True])]
    blocks = [Block(a, audio[:, a:b], np.array(mask)) for a, b, mask in pieces if b > a]
    for segment in fed(Windowing(GRID), blocks):
        overlaps = segment.span.start < stop and segment.span.stop > lost
        assert segment.present.tolist() == [True, not overlaps]
        missing = slice(max(lost - segment.span.start, 0), max(stop - segment.span.start, 0))
        assert (segment.samples[1, missing] == 0).all()
        assert (segment.samples[0] == np.arange(segment.span.start, segment.span.stop)).all()


def test_segments_that_nobody_delivered_are_left_out():
    """Both sensors miss one sample each: no segment holds either of them complete."""
    end = STRIDE + SEGMENT
    audio = ramp(0, end)
    masks = [(0, 200, [True, False]), (200, STRIDE, [False, True]), (STRIDE, end, [True, True])]
    blocks = [Block(a, audio[:, a:b], np.array(mask)) for a, b, mask in masks]
    assert [segment.span.start for segment in fed(Windowing(GRID), blocks)] == [STRIDE]


def loud_at(place: int, n_sensors: int, length: int = SEGMENT) -> np.ndarray:
    """Quiet noise with one loud event of 100 samples."""
    audio = 0.01 * np.random.default_rng(place).standard_normal((n_sensors, length))
    audio[:, place : place + 100] += np.sin(np.arange(100))
    return audio.astype(np.float32)


def window_of(audio: np.ndarray, *before: object, delivered=None) -> tuple[int, int]:
    """The window of the first segment."""
    segments = fed(Windowing(GRID), [*before, *cut(audio, 333, delivered=delivered)])
    window = next(fact for fact in segments if not isinstance(fact, TrustChanged)).window
    return window.start, window.stop


def test_the_window_holds_the_event():
    """The loudest third of a second of half a second."""
    for place in (0, 130, 480, 900):
        start, stop = window_of(loud_at(place, 4))
        assert start <= place
        assert place + 100 <= stop


@pytest.mark.parametrize("scream", [30.0, 1e4])
def test_one_screaming_sensor_does_not_choose_for_all(scream):
    """Three hear the event early, one screams late: the window is the event's."""
    audio = loud_at(50, 4)
    audio[2, 800:] = scream * np.random.default_rng(1).standard_normal(SEGMENT - 800)
    start, stop = window_of(audio)
    assert start <= 50
    assert 150 <= stop <= 800


def test_only_trusted_sensors_choose_from_the_sample_on_from_which_they_are_trusted():
    """Two sensors hear an early event, two a late one; trust decides, and where nobody is trusted all present do."""
    audio = np.concatenate([loud_at(0, 2), loud_at(900, 2)])
    early, late = window_of(loud_at(0, 2)), window_of(loud_at(900, 2))
    assert window_of(audio, TrustChanged(0, np.array([True, True, False, False]))) == early
    assert window_of(audio, TrustChanged(0, np.array([False, False, True, True]))) == late
    in_between = TrustChanged(STRIDE // 2, np.array([False, False, True, True]))
    assert window_of(audio, TrustChanged(0, np.array([True, True, False, False])), in_between) == early
    later = TrustChanged(1, np.array([False, False, True, True]))
    assert window_of(audio, later) == window_of(audio)
    nobody = TrustChanged(0, np.zeros(4, bool))
    assert window_of(audio, nobody) == window_of(audio)
    absent = [False, True, True, True]
    assert window_of(audio, TrustChanged(0, ~np.array(absent)), delivered=absent) == window_of(audio, delivered=absent)


@given(seed=st.integers(0, 1000), n=st.integers(1, 5), width=st.integers(1, 30))
@settings(max_examples=100)
def test_strongest_window_equals_brute_force(seed, n, width):
    """Against sums over all samples of all windows, with offsets and gains that must not matter."""
    rng = np.random.default_rng(seed)
    audio = rng.standard_normal((n, 30, 8)) * rng.exponential(size=(n, 30, 1))
    powers = (audio - audio.mean(axis=(1, 2), keepdims=True)) ** 2
    shares = [powers[:, a : a + width].sum(axis=(1, 2)) / powers.sum(axis=(1, 2)) for a in range(30 - width + 1)]
    medians = np.median(np.array(shares), axis=1)
    moved = audio * 10.0 ** rng.uniform(-3, 3, (n, 1, 1)) + rng.uniform(-1, 1, (n, 1, 1))
    for x in (audio, moved):
        found = strongest_window(x.sum(axis=2), (x**2).sum(axis=2), hop=8, width=width)
        assert medians[found] == pytest.approx(medians.max(), abs=1e-9)


def test_sensors_that_hear_nothing_do_not_vote():
    """Three dead sensors of four: the one that hears chooses; with none left the window is the first."""
    audio = np.zeros((4, SEGMENT), np.float32)
    audio[1] = loud_at(700, 1)[0]
    assert window_of(audio) == window_of(loud_at(700, 1))
    assert window_of(np.zeros((4, SEGMENT), np.float32)) == (0, GRID.window)


@pytest.mark.parametrize("offset", [0.5, -0.37])
def test_offset_and_gain_make_no_difference(offset):
    """Quiet sound on a large offset, in the single precision of a block: the windows are those without it."""
    audio = 3e-4 * np.concatenate([loud_at(place, 3) for place in (100, 900, 400, 700)], axis=1)
    moved = (audio * np.array([[1], [100], [3]], np.float32) + np.float32([[offset], [0], [0]])).astype(np.float32)
    plain, lifted = fed(Windowing(GRID), cut(audio, 333)), fed(Windowing(GRID), cut(moved, 333))
    shifts = [abs(one.window.start - other.window.start) for one, other in zip(plain, lifted, strict=True)]
    assert max(shifts) <= GRID.hop  # a sample on an offset is rounded


@pytest.mark.parametrize("value", [0.37, -0.123, 0.9, 1e-3])
def test_stuck_sensors_do_not_vote(value):
    """Two of four repeat one value, which rounding must not turn into a vote."""
    audio = np.concatenate([loud_at(place, 4) for place in (100, 900, 400, 700)], axis=1)
    audio[2:] = value
    alone = fed(Windowing(GRID), cut(audio[:2], 333))
    assert [s.window for s in fed(Windowing(GRID), cut(audio, 333))] == [s.window for s in alone]


def test_a_sensor_that_gives_no_numbers_is_not_present():
    """Sources keep such samples out; should one come through, it harms its own segments only."""
    audio = np.concatenate([loud_at(place, 3) for place in (100, 900)], axis=1)
    clean = fed(Windowing(GRID), cut(audio[:2], 333))
    audio[2, 5] = np.nan
    broken = fed(Windowing(GRID), cut(audio, 333))
    assert [segment.present.tolist() for segment in broken] == [[True, True, False]] + [[True] * 3] * (len(clean) - 1)
    assert broken[0].window == clean[0].window


def test_trust_comes_in_any_order_and_is_forgotten():
    """The change with the latest sample counts, of two for one sample the later word; old ones are not kept."""
    audio = np.concatenate([loud_at(0, 2), loud_at(900, 2)])
    early, late = window_of(loud_at(0, 2)), window_of(loud_at(900, 2))
    first = np.array([True, True, False, False])
    for changes, expected in [
        ([TrustChanged(-5, first), TrustChanged(-9, ~first)], early),
        ([TrustChanged(-9, ~first), TrustChanged(-5, first)], early),
        ([TrustChanged(-5, first), TrustChanged(-5, ~first)], late),
    ]:
        assert window_of(audio, *changes) == expected


def test_trust_takes_no_more_memory_however_often_it_changes():
    """Ten thousand changes while nobody delivers, and in a gap."""
    stage, nobody = Windowing(GRID), np.zeros(4, bool)
    silent = np.zeros((4, 100), np.float32)
    sizes = []
    for number in range(10_000):
        stage.push(TrustChanged(100 * number, np.arange(4) == number % 4))
        stage.push(Block(100 * number, silent, nobody))
        sizes.append(size_of(stage))
    assert max(sizes[5000:]) <= 1.05 * max(sizes[:1000])
    for number in range(10_000):
        stage.push(TrustChanged(1_000_000 + number % 50, np.arange(4) == number % 4))
    assert size_of(stage) <= 1.05 * max(sizes)
    stage.flush()
    assert size_of(stage) < size_of(Windowing(GRID)) + 1000
