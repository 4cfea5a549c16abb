"""Cepstra by librosa's conventions, and their principal components."""

from __future__ import annotations

from dataclasses import replace

import librosa
import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from benchmarks.features import by_librosa
from pipeline.core.errors import SettingsError
from pipeline.core.events import Block, TrustChanged, Views
from pipeline.core.fourier import rfft
from pipeline.core.framing import Grid
from pipeline.core.segment_views import N_COEFFICIENTS, PAPER, TWO_VIEWS, Summary
from pipeline.learners.array_components import ArrayComponents
from pipeline.stages import Chain, Mfcc, Projection, Viewing, Windowing
from pipeline.stages.mel import cosines, hann, mel_basis
from tests.stages.laws import cut, fed


def footsteps(rate_hz: int, seconds: float = 2.6, seed: int = 0) -> np.ndarray:
    """Steep spectrum, quiet passages, loud impacts: 90 dB between them."""
    rng = np.random.default_rng(seed)
    n = round(seconds * rate_hz)
    rumble = np.cumsum(rng.standard_normal((2, n)), axis=1) * 1e-4
    impacts = np.exp(-((np.arange(n) / rate_hz) % 0.53) * 40) * rng.standard_normal((2, n)) * 0.3
    return (rumble - rumble.mean(axis=1, keepdims=True) + impacts).astype(np.float32)


@pytest.mark.parametrize("rate_hz", [2000, 8000, 11_025, 16_000, 22_050, 44_100, 96_000])
def test_equal_to_librosa_at_every_rate(rate_hz):
    """Within 1e-3 dB, every frame of every segment, wherever the stream was cut."""
    grid = Grid(rate_hz=rate_hz)
    mfcc, sound = Mfcc(grid), footsteps(rate_hz)
    cepstra = fed(Chain(Windowing(grid), mfcc), cut(sound, 1234))
    assert len(cepstra) == 2
    for fact in cepstra:
        expected = by_librosa(sound[:, fact.span.start : fact.span.stop], mfcc.cepstrum)
        assert fact.values.shape == expected.shape == (2, grid.segment_frames, 13)
        np.testing.assert_allclose(fact.values, expected, atol=1e-3)


@settings(max_examples=200)
@given(
    rate_hz=st.sampled_from([2000, 11_025, 16_000, 44_100, 96_000]),
    n_fft=st.integers(2, 5000),
    n_mels=st.integers(1, 140),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)).filter(lambda pair: pair[1] - pair[0] > 1e-3),
)
@pytest.mark.filterwarnings("ignore:Empty filters")
def test_bands_are_those_of_librosa_to_the_last_bit(rate_hz, n_fft, n_mels, shares):
    """A stored model means the same numbers whoever computes its basis."""
    low, high = (share * rate_hz / 2 for share in shares)
    expected = librosa.filters.mel(sr=rate_hz, n_fft=n_fft, n_mels=n_mels, fmin=low, fmax=high)
    np.testing.assert_array_equal(mel_basis(rate_hz, n_fft, n_mels, low, high), expected, strict=True)


@pytest.mark.parametrize("length", [2, 3, 100, 551, 800, 4800])
def test_the_window_is_that_of_librosa_to_the_last_bit(length):
    """Of even and odd length."""
    np.testing.assert_array_equal(hann(length), librosa.filters.get_window("hann", length), strict=True)


@settings(max_examples=15)
@given(
    n_mels=st.integers(10, 60), n_coefficients=st.integers(1, 10), f_min=st.floats(0, 500), f_max=st.floats(2500, 4000)
)
def test_equal_to_librosa_with_other_settings(n_mels, n_coefficients, f_min, f_max):
    """Bands, coefficients and limits mean what they mean to librosa."""
    mfcc = Mfcc(Grid(rate_hz=8000), n_coefficients=n_coefficients, n_mels=n_mels, f_min_hz=f_min, f_max_hz=f_max)
    sound = footsteps(8000, seconds=0.4)
    np.testing.assert_allclose(mfcc.cepstrum(sound), by_librosa(sound, mfcc.cepstrum), atol=1e-3)


def drowning(rate_hz: int, offset: float) -> np.ndarray:
    """Loud rumble, and 130 dB below it, next to nothing."""
    rng, t = np.random.default_rng(0), np.arange(rate_hz // 2) / rate_hz
    quiet = 1e-7 * rng.standard_normal((2, len(t)))
    return (0.4 * np.sin(2 * np.pi * 30 * t) + quiet + offset).astype(np.float32)


@pytest.mark.parametrize("n_bands", [1, 2, 13, 40, 128])
def test_cosines_are_those_of_scipy_and_orthonormal(n_bands):
    """To a few units of the last place."""
    expected = scipy.fft.dct(np.eye(n_bands), axis=0, norm="ortho").T
    found = cosines(n_bands, n_bands)
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-16)
    np.testing.assert_allclose(found.T @ found, np.eye(n_bands), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(cosines(n_bands, 1), found[:, :1])


@pytest.mark.parametrize("offset", [0.0, 0.5, -0.5])
@pytest.mark.parametrize("rate_hz", [2000, 16_000, 96_000])
def test_equal_to_librosa_where_a_band_drowns_in_rounding(rate_hz, offset):
    """Single precision alone would be off by decibels."""
    mfcc, sound = Mfcc(Grid(rate_hz=rate_hz)), drowning(rate_hz, offset)
    sound[1, rate_hz // 4 :] = 0.3 * np.random.default_rng(1).standard_normal(rate_hz // 2 - rate_hz // 4)
    np.testing.assert_allclose(mfcc.cepstrum(sound), by_librosa(sound, mfcc.cepstrum), atol=1e-3)


def test_silence_is_the_floor():
    """A dead sensor gives -100 dB in every band: the first coefficient is -100 times the root of their number."""
    mfcc = Mfcc(Grid(rate_hz=8000))
    values = mfcc.cepstrum(np.zeros((1, 4000), np.float32))
    assert values[..., 0] == pytest.approx(-100 * np.sqrt(mfcc.cepstrum.n_mels), rel=1e-5)
    assert values[..., 1:] == pytest.approx(0, abs=1e-3)


def test_a_tone_ten_times_stronger_is_twenty_decibels_louder():
    """Only the first coefficient moves, by 20 dB times the root of the number of bands."""
    mfcc = Mfcc(Grid(rate_hz=8000))
    sound = footsteps(8000)
    difference = mfcc.cepstrum(10 * sound) - mfcc.cepstrum(sound)
    assert difference[..., 0] == pytest.approx(20 * np.sqrt(mfcc.cepstrum.n_mels), rel=1e-4)
    assert difference[..., 1:] == pytest.approx(0, abs=5e-3)


def test_shared_frames_are_transformed_once(monkeypatch):
    """With an overlap of three quarters, each segment after the first brings one stride of new frames only."""
    grid, transformed = Grid(rate_hz=4000), []

    def counting(frames):
        if frames.dtype == np.float32:
            transformed.append(len(frames))
        return rfft(frames)

    monkeypatch.setattr("pipeline.stages.features.rfft", counting)
    sound = footsteps(4000, seconds=6)
    n_segments = len(fed(Chain(Windowing(grid), Mfcc(grid)), cut(sound, 999)))
    assert n_segments == 9
    assert transformed == [2 * grid.segment_frames] + [2 * grid.stride_hops] * (n_segments - 1)


def test_an_absent_sensor_is_nan_and_shifts_nobody_and_comes_back():
    """Sensor 2 misses the first tenth of a second: NaN while that is in a segment, and then what it would have been;
    sensor 1 is bit for bit what it is in an array in which nobody is missing."""
    grid = Grid(rate_hz=4000)
    sound = footsteps(4000, seconds=6)
    only_first = TrustChanged(0, np.array([True, False]))
    whole = fed(Chain(Windowing(grid), Mfcc(grid)), [only_first, *cut(sound, 1000)])[1:]
    pieces = [Block(0, sound[:, :400], np.array([True, False])), *cut(sound[:, 400:], 1000, start=400)]
    masked = fed(Chain(Windowing(grid), Mfcc(grid)), [only_first, *pieces])[1:]
    assert [fact.present[1] for fact in masked] == [False] + [True] * (len(whole) - 1)
    for one, other in zip(masked, whole, strict=True):
        assert one.window == other.window
        assert (one.values[0] == other.values[0]).all()
        assert np.isnan(one.values[1]).all() if not one.present[1] else (one.values[1] == other.values[1]).all()


def test_segments_out_of_order_are_an_error():
    """Frames of the last segment are kept, so the next must be a later one."""
    grid = Grid(rate_hz=4000)
    segments = fed(Windowing(grid), cut(footsteps(4000, seconds=4), 4000))
    stage = Mfcc(grid)
    stage.push(segments[1])
    for segment in segments[:2]:
        with pytest.raises(ValueError, match="not after the last one at 2000"):
            stage.push(segment)


@pytest.mark.parametrize("bad", [np.nan, 1e25])
def test_what_one_sensor_delivers_never_changes_another(bad):
    """Not even by rounding, where bands drown and are computed again."""
    mfcc, sound = Mfcc(Grid(rate_hz=16_000)), drowning(16_000, 0.0)
    alone = mfcc.cepstrum(sound)
    sound[1, 100] = bad
    with np.errstate(all="ignore"):
        assert (mfcc.cepstrum(sound)[0] == alone[0]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"f_max_hz": 4001.0}, "f_max_hz=4001.0 must be ordered and lie in 0 to 4000"),
        ({"f_min_hz": 3000.0, "f_max_hz": 2000.0}, "f_min_hz=3000.0 and f_max_hz=2000.0 must be ordered"),
        ({"n_coefficients": 0}, "n_coefficients=0 must lie in 1 to n_mels=128"),
        ({"n_coefficients": 20, "n_mels": 15}, "n_coefficients=20 must lie in 1 to n_mels=15; lower"),
        ({"n_mels": 0}, "n_mels=0 must be at least 1"),
        ({"f_min_hz": 1001.0, "f_max_hz": 1005.0}, "leave no frequency at 8000 Hz and 400 samples a frame; move them"),
        ({"n_mels": 300}, "n_mels=300 leaves bands without a frequency at 8000 Hz .* set n_mels to at most"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    """The message names the setting, its value, the rule and the cure."""
    with pytest.raises(SettingsError, match=message):
        Mfcc(Grid(rate_hz=8000), **settings)


def test_every_band_has_a_frequency_at_every_rate():
    """The default number of bands is librosa's where the frames are long enough, else what they can carry."""
    assert Mfcc(Grid(rate_hz=16_000)).cepstrum.n_mels == 128
    low = Mfcc(Grid(rate_hz=2000)).cepstrum
    assert 13 <= low.n_mels < 128
    assert low(footsteps(2000)).std() > 0


def views(features: str, seconds: float = 12.0) -> list[Views]:
    """Of two sensors at 4 kHz."""
    grid = Grid(rate_hz=4000)
    viewing = Viewing(grid, n_coefficients=N_COEFFICIENTS, features=features)
    return fed(Chain(Windowing(grid), Mfcc(grid), viewing), cut(footsteps(4000, seconds=seconds), 4000))


def unscaled(means, axes) -> ArrayComponents:
    """Components of values as they are."""
    n_values = np.shape(means)[-1]
    return ArrayComponents(np.asarray(means), np.ones(n_values), np.full(n_values, np.inf), np.asarray(axes))


def test_projection_is_the_peers_projection():
    """Mean and axes of scikit-learn's PCA give scikit-learn's scores, per sensor."""
    heard = views(PAPER)
    vectors = np.stack([fact.summary for fact in heard])
    assert vectors.shape == (21, 2, 1950)
    peers = [PCA(5).fit(vectors[:, sensor]) for sensor in range(2)]
    components = unscaled([peer.mean_ for peer in peers], [peer.components_ for peer in peers])
    projected = fed(Projection(components, components), heard)
    for sensor, peer in enumerate(peers):
        for ours in (np.stack([getattr(fact, view)[sensor] for fact in projected]) for view in ("summary", "timing")):
            np.testing.assert_allclose(ours, peer.transform(vectors[:, sensor]), atol=1e-2)


def test_projection_is_what_was_learned_to_single_precision_also_where_it_clips():
    """Both views of the stage equal `ArrayComponents.transform`, with a tenth of the summary beyond its limits."""
    heard = views(TWO_VIEWS)
    weights = Summary(Grid(rate_hz=4000), N_COEFFICIENTS).weights
    everyone = np.ones((len(heard), 2), bool)
    summaries, timings = (np.stack([getattr(fact, view) for fact in heard]) for view in ("summary", "timing"))
    # As loud as nothing that was learned from: such values are what the limits are for.
    loud = np.random.default_rng(0).random(summaries.shape) < 0.1
    strange = np.where(loud, summaries + 1e3 * np.sign(summaries), summaries)
    summary = ArrayComponents.learn(summaries, everyone, 6, weights=weights)
    timing = ArrayComponents.learn(timings, everyone, 5)
    clipped = np.abs(strange - summary.means) / summary.scales > summary.limits
    assert 0.05 < clipped.mean() < 0.15
    assert np.isinf(timing.limits).all()
    given = [replace(fact, summary=one) for fact, one in zip(heard, strange.astype(np.float32), strict=True)]
    found = fed(Projection(summary, timing), given)
    for fact in found:
        assert (fact.summary.shape, fact.timing.shape) == ((2, 6), (2, 5))
        assert fact.summary.dtype == fact.timing.dtype == np.float32
    for ours, learned, values in (
        (np.stack([fact.summary for fact in found]), summary, strange),
        (np.stack([fact.timing for fact in found]), timing, timings),
    ):
        exact = learned.transform(values.astype(np.float64))
        np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    unclipped = replace(summary, limits=np.full_like(summary.limits, np.inf)).transform(strange)
    assert np.abs(unclipped).max() > 10 * np.abs(summary.transform(strange)).max()


@pytest.mark.parametrize("view", ["summary", "timing"])
@pytest.mark.parametrize(
    ("means", "axes", "message"),
    [
        ((2, 1950), (3, 5, 1950), "must be .sensors, values. and .sensors, components, values."),
        ((2, 5, 1950), (2, 1950), "must be .* learn them with ArrayComponents"),
        ((3, 1950), (3, 5, 1950), "view of 2 sensors with 1950 values does not fit components of 3 sensors"),
        ((2, 130), (2, 5, 130), "view .* does not fit components of 2 sensors with 130 values; use the settings"),
    ],
)
def test_components_of_another_array_are_refused(view, means, axes, message):
    """By their shapes, at the latest when the first views come; the view is named."""
    fitting, other = unscaled(np.ones((2, 1950)), np.ones((2, 5, 1950))), unscaled(np.ones(means), np.ones(axes))
    with pytest.raises(SettingsError, match=rf"{view} view {message.removeprefix('view ')}"):
        fed(Projection(**{"summary": fitting, "timing": fitting} | {view: other}), views(PAPER, seconds=2.6))
