"""Cepstra by librosa's conventions, and their principal components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from benchmarks.features import by_librosa
from pipeline.errors import SettingsError
from pipeline.events import Block
from pipeline.grid import Grid
from pipeline.stages import Chain, Mfcc, Projection, Windowing
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
        expected = by_librosa(sound[:, fact.window.start : fact.window.stop], mfcc.cepstrum)
        assert fact.values.shape == expected.shape == (2, 150, 13)
        np.testing.assert_allclose(fact.values, expected, atol=1e-3)


@settings(max_examples=15, deadline=None)
@given(
    n_mels=st.integers(10, 60), n_coefficients=st.integers(1, 10), f_min=st.floats(0, 500), f_max=st.floats(2500, 4000)
)
def test_equal_to_librosa_with_other_settings(n_mels, n_coefficients, f_min, f_max):
    """Bands, coefficients and limits mean what they mean to librosa."""
    mfcc = Mfcc(Grid(rate_hz=8000), n_coefficients=n_coefficients, n_mels=n_mels, f_min_hz=f_min, f_max_hz=f_max)
    sound = footsteps(8000, seconds=0.4)
    np.testing.assert_allclose(mfcc.cepstrum(sound), by_librosa(sound, mfcc.cepstrum), atol=1e-3)


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_equal_to_librosa_where_a_band_drowns_in_rounding(offset):
    """Loud rumble, and 130 dB below it, next to nothing: single precision alone would be off by decibels."""
    mfcc, rng = Mfcc(Grid(rate_hz=16_000)), np.random.default_rng(0)
    t = np.arange(8000) / 16_000
    sound = 0.4 * np.sin(2 * np.pi * 30 * t) + 1e-7 * rng.standard_normal((2, 8000)) + offset
    sound[1, 4000:] = 0.3 * rng.standard_normal(4000)
    sound = sound.astype(np.float64)
    np.testing.assert_allclose(
        mfcc.cepstrum(sound.astype(np.float32)), by_librosa(sound.astype(np.float32), mfcc.cepstrum), atol=1e-3
    )


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
    import scipy.fft

    grid, transformed, rfft = Grid(rate_hz=4000), [], scipy.fft.rfft

    def counting(frames, **options):
        if frames.dtype == np.float32:
            transformed.append(len(frames))
        return rfft(frames, **options)

    monkeypatch.setattr(scipy.fft, "rfft", counting)
    sound = footsteps(4000, seconds=6)
    n_segments = len(fed(Chain(Windowing(grid), Mfcc(grid)), cut(sound, 999)))
    assert n_segments == 9
    assert transformed == [2 * grid.segment_frames] + [2 * grid.stride_hops] * (n_segments - 1)


def test_an_absent_sensor_is_nan_and_shifts_nobody():
    """The other sensors' values are bit for bit those of an array in which it was there."""
    grid = Grid(rate_hz=4000)
    sound = footsteps(4000)
    both = fed(Chain(Windowing(grid), Mfcc(grid)), [Block(0, sound, np.array([True, True]))])
    one = fed(Chain(Windowing(grid), Mfcc(grid)), [Block(0, sound, np.array([True, False]))])
    trusted_alone = fed(Chain(Windowing(grid), Mfcc(grid)), [Block(0, sound[:1], np.array([True]))])
    assert len(one) == len(both)
    for masked, full, alone in zip(one, both, trusted_alone, strict=True):
        assert masked.present.tolist() == [True, False]
        assert np.isnan(masked.values[1]).all()
        assert masked.window == alone.window
        if masked.window == full.window:
            assert (masked.values[0] == full.values[0]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"f_max_hz": 4001.0}, "f_max_hz=4001.0 must be ordered and lie in 0 to 4000"),
        ({"f_min_hz": 3000.0, "f_max_hz": 2000.0}, "f_min_hz=3000.0 and f_max_hz=2000.0 must be ordered"),
        ({"n_coefficients": 0}, "n_coefficients=0 must lie in 1 to n_mels=128"),
        ({"n_coefficients": 20, "n_mels": 15}, "n_coefficients=20 must lie in 1 to n_mels=15; lower"),
        ({"n_mels": 0}, "n_mels=0 must be at least 1"),
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


def test_projection_is_the_peers_projection():
    """Mean and axes of scikit-learn's PCA give scikit-learn's scores, per sensor."""
    grid = Grid(rate_hz=4000)
    cepstra = fed(Chain(Windowing(grid), Mfcc(grid)), cut(footsteps(4000, seconds=12), 4000))
    vectors = np.stack([fact.values.reshape(2, -1) for fact in cepstra])
    assert vectors.shape == (21, 2, 1950)
    peers = [PCA(5).fit(vectors[:, sensor]) for sensor in range(2)]
    projected = fed(Projection([peer.mean_ for peer in peers], [peer.components_ for peer in peers]), cepstra)
    for sensor, peer in enumerate(peers):
        ours = np.stack([fact.values[sensor] for fact in projected])
        np.testing.assert_allclose(ours, peer.transform(vectors[:, sensor]), atol=1e-2)
