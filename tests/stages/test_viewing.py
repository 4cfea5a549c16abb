"""The two views of a segment: what they are by definition, what moves them, and what does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal.windows import hann

from pipeline.core.errors import SettingsError
from pipeline.core.events import Block, Cepstra, Views
from pipeline.core.framing import Grid
from pipeline.core.segment_views import N_COEFFICIENTS, PAPER, TWO_VIEWS, Summary, timing
from pipeline.stages import Chain, Mfcc, Viewing, Windowing
from tests.stages.laws import cut, fed, same

GRID = Grid(rate_hz=4000)
BANDS_HZ = ((1, 3), (3, 6), (6, 12), (12, 25))
FRAMES = 196
"""Of 0.05 s every 0.01 s, all of which lie inside 2 s."""


def frames(seed: int = 0, sensors: int = 3, n_frames: int = FRAMES) -> np.ndarray:
    """Coefficients that wander: slow and fast, and each about a middle of its own."""
    rng = np.random.default_rng(seed)
    slow = np.cumsum(rng.standard_normal((sensors, n_frames, N_COEFFICIENTS)), axis=1)
    middle = 50 * rng.standard_normal((sensors, 1, N_COEFFICIENTS))
    return (middle + slow + 3 * rng.standard_normal(slow.shape)).astype(np.float32)


def walked(seconds: float = 8.0, *, rate_hz: int = 4000, step: int = 2000, sensors: int = 2) -> np.ndarray:
    """Two steps a second over steady noise: a sound that repeats itself with every step."""
    rng = np.random.default_rng(3)
    impact = np.exp(-np.arange(step) / rate_hz * 25) * rng.standard_normal((sensors, step))
    n_steps = round(seconds * rate_hz) // step
    noise = 0.01 * rng.standard_normal((sensors, n_steps * step))
    return (0.2 * np.tile(impact, n_steps) + noise).astype(np.float32)


def chain(features: str = TWO_VIEWS) -> Chain:
    return Chain(Windowing(GRID), Mfcc(GRID), Viewing(GRID, n_coefficients=N_COEFFICIENTS, features=features))


def seen(sound: np.ndarray, features: str = TWO_VIEWS) -> list[Views]:
    return fed(chain(features), cut(sound, 4000))


def by_definition(course: np.ndarray) -> list[float]:
    """Mean, deviation and modulation of one coefficient, as plainly as they can be written."""
    course = course.astype(np.float64)
    mean = sum(course) / len(course)
    deviation = (sum((value - mean) ** 2 for value in course) / len(course)) ** 0.5
    taper = hann(len(course), sym=True)
    power = np.abs(np.fft.rfft(taper * (course - mean), 256)) ** 2 / np.sum(taper**2)
    frequencies = np.arange(129) * 100 / 256
    bands = [np.mean([p for p, f in zip(power, frequencies, strict=True) if low <= f < high]) for low, high in BANDS_HZ]
    return [mean, deviation, *np.log(0.1 + np.array(bands))]


def named(summary: np.ndarray) -> dict[str, np.ndarray]:
    """(sensors, coefficients) of each statistic, (sensors, coefficients, bands) of the modulation."""
    mean, deviation, modulation = np.split(summary, [N_COEFFICIENTS, 2 * N_COEFFICIENTS], axis=1)
    return {
        "mean": mean,
        "deviation": deviation,
        "modulation": modulation.reshape(len(summary), N_COEFFICIENTS, len(BANDS_HZ)),
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_summary_is_what_it_is_by_definition(seed):
    """Mean, deviation and modulation in four bands, of every coefficient of every sensor, to single precision."""
    values = frames(seed)
    found = named(Summary(GRID, N_COEFFICIENTS)(values))
    for sensor in range(len(values)):
        for c in range(N_COEFFICIENTS):
            mean, deviation, *modulation = by_definition(values[sensor, :, c])
            assert found["mean"][sensor, c] == pytest.approx(mean, rel=1e-5, abs=1e-5)
            assert found["deviation"][sensor, c] == pytest.approx(deviation, rel=1e-5)
            assert found["modulation"][sensor, c] == pytest.approx(modulation, rel=1e-5, abs=1e-5)


def test_every_value_of_the_summary_is_named_and_weighed():
    """Names stand where the values stand; together means, deviations and modulations weigh 1, 1 and 0.8."""
    summary = Summary(GRID, N_COEFFICIENTS)
    names = [str(part) for part in summary.parts]
    assert len(names) == len(set(names)) == summary(frames()).shape[1] == len(summary.weights) == 13 * 6
    assert names[:2] == ["mean of c0", "mean of c1"]
    assert names[13] == "deviation of c0"
    assert names[26:31] == [
        *(f"modulation of c0 at {low} to {high} Hz" for low, high in BANDS_HZ),
        "modulation of c1 at 1 to 3 Hz",
    ]
    squares = named(summary.weights[None] ** 2)
    assert [part.sum() for part in squares.values()] == pytest.approx([1, 1, 0.64])


@pytest.mark.parametrize(("band", "hz"), list(enumerate((2.0, 4.5, 9.0, 18.0))))
def test_a_course_of_one_frequency_is_heard_in_its_band(band, hz):
    """A coefficient that swings by 5 dB 9 times a second raises the band from 6 to 12 Hz above all others."""
    values = np.zeros((1, FRAMES, N_COEFFICIENTS), np.float32)
    values[0, :, 2] = 5 * np.sin(2 * np.pi * hz * np.arange(FRAMES) / 100)
    found = named(Summary(GRID, N_COEFFICIENTS)(values))
    assert found["modulation"][0, 2].argmax() == band
    assert found["modulation"][0, 2, band] > 3 + np.delete(found["modulation"][0, 2], band).max()
    assert found["deviation"][0, 2] == pytest.approx(5 / np.sqrt(2), rel=0.05)
    # The others do not move: nothing but the floor is left of them.
    np.testing.assert_allclose(np.delete(found["modulation"][0], 2, axis=0), np.log(0.1), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "n_bands"),
    [({"segment_seconds": 0.52, "window_seconds": 0.3}, 4), ({"hop_seconds": 0.05}, 3), ({"hop_seconds": 0.2}, 1)],
)
def test_a_grid_with_slow_frames_has_the_bands_it_can_have(settings, n_bands):
    """Bands beyond half the frame rate are left out, and nothing is ever divided by none."""
    grid = Grid(rate_hz=4000, **{"frame_seconds": max(0.05, settings.get("hop_seconds", 0))} | settings)
    summary = Summary(grid, 3)
    found = summary(frames(n_frames=grid.segment_frames)[..., :3])
    assert found.shape == (3, 3 * (2 + n_bands)) == (3, len(summary.parts)) == (3, len(summary.weights))
    assert np.isfinite(found).all()


@given(shift=st.integers(1, 19))
def test_the_summary_hardly_depends_on_where_a_step_falls_and_the_timing_does(shift):
    """Steps every half second, moved round by 25 ms and more: in parts of the deviation, means and deviations move by
    less than a tenth and the timing by more than a half; modulation of the level by less than a fifth of
    what twice the swing would add."""
    sound = walked(2.0)
    (one,), (other,) = seen(sound), seen(np.roll(sound, 100 * shift, axis=1))
    before, moved = named(one.summary), named(np.abs(other.summary - one.summary))
    assert (moved["mean"] < 0.1 * before["deviation"]).all()
    assert (moved["deviation"] < 0.1 * before["deviation"]).all()
    assert (moved["modulation"][:, 0] < 0.2 * np.log(4)).all()
    timed = np.sqrt(np.mean((other.timing - one.timing).reshape(2, -1, 4) ** 2, axis=1))
    assert (timed > 0.5 * before["deviation"][:, :4]).all()


def test_the_timing_is_the_mean_of_four_frames_of_four_coefficients():
    """In order of time, the coefficients side by side, each less its mean; a rest at the end is left out."""
    for n_frames in (FRAMES, FRAMES + 3, 5):
        values = frames(n_frames=n_frames)
        places = [(slice(4 * block, 4 * block + 4), c) for block in range(n_frames // 4) for c in range(4)]
        expected = np.array([[sum(map(float, sensor[place])) / 4 for place in places] for sensor in values])
        for c in range(4):
            expected[:, c::4] -= expected[:, c::4].mean(axis=1, keepdims=True)
        np.testing.assert_allclose(timing(values), expected, rtol=1e-5, atol=1e-5)
    (cepstra,) = fed(Chain(Windowing(GRID), Mfcc(GRID)), cut(walked(2.0), 4000))
    (views,) = Viewing(GRID, n_coefficients=N_COEFFICIENTS, features=TWO_VIEWS).push(cepstra)
    assert views.timing.shape == (2, 4 * FRAMES // 4)
    np.testing.assert_array_equal(views.timing, timing(cepstra.values))


def test_as_published_both_views_are_all_frames_of_the_window():
    """150 frames of 13 coefficients, one after the other, where the window lies in the segment."""
    sound = walked(6.0) * np.linspace(1, 9, 24_000, dtype=np.float32) ** 2
    sound[:, 13_000:] /= 81  # so that windows do not all begin with their segments
    cepstra = fed(Chain(Windowing(GRID), Mfcc(GRID)), cut(sound, 4000))
    views = seen(sound, PAPER)
    starts = set()
    for one, fact in zip(views, cepstra, strict=True):
        frame = (fact.window.start - fact.span.start) // 40
        starts.add(frame)
        expected = [np.concatenate(list(values[frame : frame + 150])) for values in fact.values]
        np.testing.assert_array_equal(one.summary, expected)
        np.testing.assert_array_equal(one.timing, expected)
    assert len(starts) > 2


@pytest.mark.parametrize("features", [TWO_VIEWS, PAPER])
@given(sizes=st.lists(st.integers(1, 9000), max_size=30))
def test_any_blocking_of_the_sound_gives_the_same_views(features, sizes):
    """To the last bit, from blocks of sound to views."""
    sound = walked(4.0)
    whole = fed(chain(features), cut(sound, sound.shape[1]))
    assert len(whole) == 5
    assert same(fed(chain(features), cut(sound, sizes)), whole)


@pytest.mark.parametrize("gain", [0.2, 0.5, 3.0])
def test_a_gain_moves_the_mean_of_the_first_coefficient_and_nothing_else(gain):
    """By 10 lg g² in every band, which an orthonormal transform of n bands makes that times the root of n."""
    sound = walked(2.0)
    (one,), (other,) = seen(sound), seen((gain * sound).astype(np.float32))
    moved = named(other.summary - one.summary)
    expected = 10 * np.log10(gain**2) * np.sqrt(Mfcc(GRID).cepstrum.n_mels)
    assert moved["mean"][:, 0] == pytest.approx([expected] * 2, rel=1e-4)
    assert np.abs(moved["mean"][:, 1:]).max() < 5e-3
    assert np.abs(moved["deviation"]).max() < 5e-3
    assert np.abs(moved["modulation"]).max() < 5e-3
    assert np.abs(other.timing - one.timing).max() < 2e-2


@pytest.mark.parametrize("features", [TWO_VIEWS, PAPER])
@pytest.mark.parametrize("absent", [0, 1])
def test_an_absent_sensor_is_nan_and_changes_nobody_else(features, absent):
    """Sensors have no part in each other's views, to the last bit."""
    cepstra = fed(Chain(Windowing(GRID), Mfcc(GRID)), cut(walked(4.0), 4000))
    viewing = Viewing(GRID, n_coefficients=N_COEFFICIENTS, features=features)
    present = np.arange(2) != absent
    for fact in cepstra:
        values = np.where(present[:, None, None], fact.values, np.float32(np.nan))
        (whole,) = viewing.push(fact)
        (found,) = viewing.push(Cepstra(fact.span, fact.window, values, present, fact.trusted))
        assert (found.present == present).all()
        for one, other in ((found.summary, whole.summary), (found.timing, whole.timing)):
            assert np.isnan(one[absent]).all()
            np.testing.assert_array_equal(one[1 - absent], other[1 - absent])


def test_a_sensor_that_delivers_nothing_is_absent_from_the_views():
    """All the way from a block in which it is missing."""
    (found,) = fed(chain(), [Block(0, walked(2.0), np.array([True, False]))])
    assert found.present.tolist() == [True, False]
    assert np.isnan(found.summary[1]).all()
    assert np.isnan(found.timing[1]).all()
    assert np.isfinite(found.summary[0]).all()


@pytest.mark.parametrize("features", ["", "Views", "published"])
def test_features_of_an_unknown_name_are_refused(features):
    """The message names the setting, its value and what there is."""
    with pytest.raises(SettingsError, match=f"features='{features}' is unknown; use one of views, paper"):
        Viewing(GRID, n_coefficients=N_COEFFICIENTS, features=features)
