"""Measures of a second against what is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.health import measures
from pipeline.health.measures import LOW, MANY_VALUES, MIDDLE, measure, nothing_measured

RATE = 16_000
T = np.arange(RATE) / RATE
RATES = pytest.mark.parametrize("rate", [2000, 8000, 16_000, 44_100, 96_000])


def noise(rms=0.01, n=RATE, seed=0, rows=None):
    rng = np.random.default_rng(seed)
    return rms * rng.standard_normal(n if rows is None else (rows, n))


def sixteen_bits(x):
    return np.round(np.asarray(x) * 32768) / 32768


@pytest.mark.parametrize(("amplitude", "offset"), [(1.0, 0.0), (0.1, 0.3), (1e-4, -0.9)])
def test_a_sine_has_the_level_of_its_amplitude_whatever_the_offset(amplitude, offset):
    """20 lg (a / sqrt 2)."""
    x = offset + amplitude * np.sin(2 * np.pi * 440 * T)
    found, level_db = measures.offset_and_level_db(x)
    assert found == pytest.approx(offset, abs=1e-9)
    assert level_db == pytest.approx(20 * np.log10(amplitude / np.sqrt(2)), abs=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.3, -1.0, 1 / 3])
def test_where_nothing_moves_the_level_is_minus_infinity(value):
    """Never 0 dB: that would be full scale."""
    assert measures.offset_and_level_db(np.full(RATE, value))[1] == -np.inf
    assert measures.offset_and_level_db(np.full(RATE, np.float32(value), np.float64))[1] == -np.inf


@pytest.mark.parametrize("n", [1, 2, 3, 15, 16, 400])
def test_distinct_values_are_counted_up_to_many(n):
    x = np.random.default_rng(n).permutation(np.arange(RATE) % n) / 32768
    assert measures.distinct_values(x) == min(n, MANY_VALUES)


def test_a_rare_value_is_not_overlooked():
    """Two values, one of them only once."""
    x = np.zeros(RATE)
    x[7777] = 1 / 32768
    assert measures.distinct_values(x) == 2


def test_clipped_samples_are_those_in_a_row_at_full_scale():
    """Runs of 1, 2, 3 and 10 at either rail: 16 samples at the rail, 13 of them clipped."""
    x = noise()
    x[100] = 1.0
    x[200:202] = -1.0
    x[300:303] = 1.0
    x[400:410] = -1.0
    assert measures.clipped_shares(x) == (16 / RATE, 13 / RATE)
    assert measures.clipped_shares(noise()) == (0.0, 0.0)


@RATES
def test_pauses_are_long_stretches_of_one_value_that_break_off(rate):
    """Ten pauses of 20 ms are a fifth of a second; shorter ones do not count."""
    x = sixteen_bits(noise(0.01, rate, seed=1))
    length, short = round(0.02 * rate), 5
    for k in range(10):
        x[k * rate // 10 + 7 : k * rate // 10 + 7 + length] = 0.0
        x[k * rate // 10 + 7 + 2 * length : k * rate // 10 + 7 + 2 * length + short] = 0.0
    assert measures.pauses_share(x, rate) == pytest.approx(10 * length / rate, abs=4 / rate)
    assert measures.pauses_share(sixteen_bits(noise(0.01, rate)), rate) == 0.0


def test_what_is_too_quiet_for_the_converter_does_not_pause():
    """Half a bit of noise stands still for long, but never breaks off; nor does a tread after it; nor clipping."""
    x = sixteen_bits(noise(0.2 / 32768))
    assert (np.diff(x) == 0).mean() > 0.9
    assert measures.pauses_share(x, RATE) == 0.0
    x[8000:8400] = sixteen_bits(0.1 * np.exp(-np.arange(400) / 60) * np.cos(np.arange(400) / 3))
    assert measures.pauses_share(x, RATE) == 0.0
    assert measures.pauses_share(np.clip(30 * np.sin(2 * np.pi * 5 * T), -1, 1), RATE) == 0.0


@RATES
@pytest.mark.parametrize("n", [0, 1, 7])
def test_spikes_are_counted(rate, n):
    """Single samples of 0.5 in quiet noise."""
    x = noise(0.005, rate)
    x[np.linspace(50, rate - 50, n, dtype=int)] = 0.5
    assert measures.count_spikes(x[None].astype(np.float32)) == [n]


@pytest.mark.parametrize("seconds", [0.0005, 0.002, 0.02])
def test_what_rings_is_no_spike(seconds):
    """A knock that begins at once and dies away, as footfalls do, however hard it is."""
    x = noise(1e-4)
    n = 2000
    x[4000 : 4000 + n] += np.exp(-np.arange(n) / (seconds * RATE)) * np.cos(2 * np.pi * 1500 * np.arange(n) / RATE)
    assert measures.count_spikes(x[None].astype(np.float32)) == [0]


@pytest.mark.parametrize("mains", [50, 60])
@pytest.mark.parametrize("ratio", [0.2, 1.0, 20.0])
def test_hum_is_measured_against_the_rest(mains, ratio):
    """Four harmonics of equal power, together `ratio` times that of the noise."""
    tones = sum(np.sin(2 * np.pi * k * mains * T + k) for k in (1, 2, 3, 4))
    x = np.stack([np.sqrt(ratio / 2) * 0.01 * tones + noise(), noise(seed=1)]).astype(np.float32)
    found = measures.hum_ratios(x, RATE)
    assert found[0] == pytest.approx(ratio, rel=0.1)
    assert found[1] == 0.0


def test_one_tone_is_a_whistle_and_no_hum():
    """Three harmonics must stand out."""
    x = (np.sin(2 * np.pi * 100 * T) + noise()).astype(np.float32)
    assert measures.hum_ratios(x[None], RATE) == 0.0


@RATES
def test_the_floor_of_white_noise_is_its_density_times_the_band(rate):
    """Power density 2 rms² / rate; the quietest tenth of the frames is about 1 to 3 dB below the mean."""
    x = noise(0.01, rate, rows=2).astype(np.float32)
    found = measures.floors_db(x, rate)
    for band in (LOW, MIDDLE):
        low, high = measures.BANDS_HZ[band]
        mean_db = 10 * np.log10(2 * 0.01**2 / rate * (high - low))
        assert (found[:, band] < mean_db).all()
        assert (found[:, band] > mean_db - 5).all()


def test_the_floor_does_not_hear_what_comes_and_goes():
    """Bursts of 40 dB more for half of the time move it by less than 1 dB; twice the gain moves it by 6."""
    x = noise(0.001, rows=1).astype(np.float32)
    quiet = measures.floors_db(x, RATE)
    bursts = x.copy()
    bursts[:, (np.arange(RATE) // 1600) % 2 == 0] *= 100
    assert np.abs(measures.floors_db(bursts, RATE) - quiet).max() < 1.5
    np.testing.assert_allclose(measures.floors_db(2 * x, RATE) - quiet, 20 * np.log10(2), atol=1e-3)


def test_who_crackles_alone_is_told_from_whom_all_hear():
    """White bursts for half of the time at one sensor; the same at all sensors 20 dB lower is a sound out there."""
    quiet = noise(1e-4, rows=4).astype(np.float32)
    on = (np.arange(RATE) // 1600) % 2 == 0
    alone = quiet.copy()
    alone[2, on] = noise(0.2, seed=3)[on]
    found = measures.alone_shares(alone, RATE)
    assert found[2] == pytest.approx(0.5, abs=0.05)
    assert (np.delete(found, 2) == 0).all()
    heard = alone + 0.1 * alone[2]
    assert (measures.alone_shares(heard, RATE) == 0).all()
    assert (measures.alone_shares(alone[2:3], RATE) == 0).all()


def test_two_that_crackle_excuse_each_other():
    """Of two that hear the same nobody knows that it is not out there."""
    x = noise(1e-4, rows=3).astype(np.float32)
    x[:2] = noise(0.2, seed=3)
    assert (measures.alone_shares(x, RATE) == 0).all()


def test_missing_samples_are_counted_and_the_rest_is_measured():
    """A quarter is missing, one sensor delivers nothing; the level is that of what came."""
    x = np.stack([0.1 * np.sin(2 * np.pi * 400 * T)] * 3).astype(np.float32)
    delivered = np.ones(x.shape, bool)
    delivered[1, : RATE // 4] = False
    delivered[2] = False
    found = measure(x, delivered, RATE, start=RATE)
    assert (found.start, found.stop) == (RATE, 2 * RATE)
    np.testing.assert_array_equal(found.missing, [0, 0.25, 1])
    np.testing.assert_allclose(found.level_db[:2], 20 * np.log10(0.1 / np.sqrt(2)), atol=1e-3)
    for name in ("level_db", "offset", "values", "spikes", "hum", "alone"):
        assert np.isnan(getattr(found, name)[2])
    assert np.isnan(found.floor_db[1:]).all()


def test_nothing_is_measured_of_nothing():
    found = nothing_measured(0, RATE, 4)
    assert (found.missing == 1).all()
    assert np.isnan(found.level_db).all()


def test_bad_sound_never_breaks_a_measure():
    """Zeros, full scale, one LSB, huge numbers, a single sensor: finite or -inf, no warning."""
    rows = np.stack([
        np.zeros(RATE), np.ones(RATE), -np.ones(RATE), np.arange(RATE) % 2 / 32768, np.full(RATE, 1e30), 1e-30 * T,
    ]).astype(np.float32)  # fmt: skip
    for x in (rows, rows[:1], rows[4:5]):
        found = measure(x, np.ones(x.shape, bool), RATE, start=0)
        assert not np.isnan(found.level_db).any()
        assert np.isfinite(found.spikes).all()
        assert np.isfinite(found.hum).all()
        assert not np.isinf(found.floor_db).any()


@RATES
def test_every_sensor_is_measured_as_if_it_were_alone(rate):
    """To the bit, whatever the others are: the look at all at once excludes nothing that is there."""
    rows = strange_sounds(rate)
    together = measure(rows, np.ones(rows.shape, bool), rate, start=0)
    for sensor, row in enumerate(rows):
        alone = measure(row[None], np.ones((1, rate), bool), rate, start=0)
        for name in ("level_db", "offset", "values", "at_rail", "clipped", "pauses", "spikes", "hum", "floor_db"):
            np.testing.assert_array_equal(getattr(together, name)[sensor], getattr(alone, name)[0], err_msg=name)


@RATES
def test_what_is_rare_is_found_by_one_look_at_all_as_by_a_search_through_each(rate):
    """Pauses, spikes and few values, against plain loops over what the docstrings say."""
    rows = strange_sounds(rate)
    found = measure(rows, np.ones(rows.shape, bool), rate, start=0)
    assert found.spikes.tolist() == [spikes_one_by_one(row.astype(float)) for row in rows]
    assert found.pauses.tolist() == [measures.pauses_share(row.astype(float), rate) for row in rows]
    assert found.values.tolist() == [min(len(set(row.tolist())), MANY_VALUES) for row in rows]
    assert found.spikes.any()
    assert found.pauses.any()


def strange_sounds(rate):
    """Pauses just long enough at any place; spikes in noise and ringing, at the ends, just far enough; few values."""
    rng = np.random.default_rng(rate)
    t, shortest = np.arange(rate) / rate, max(round(0.004 * rate), 12)
    rows = [sixteen_bits(noise(0.01, rate, seed=k)) for k in range(10)]
    for k in range(8):
        rows[k][100 + k : 100 + k + shortest] = 0.3
    rows[8][:: rate // 9] = 0.5
    rows[8][[1, -2]] = -0.5
    rows.append(np.where(np.arange(rate) % 2, 0.01, -0.01))
    rows[-1][40 :: rate // 30] = 0.0405
    ringing = np.exp(-30 * (t % 0.2)) * np.cos(2 * np.pi * 0.4 * rate * t)
    rows += [ringing + (rng.random(rate) < 0.002) * rng.choice([-1, 1], rate), np.round(3 * np.sin(9 * t)) / 3]
    return np.array(rows, np.float32)


def spikes_one_by_one(x):
    count = looked_at = 0
    for k in range(1, len(x) - 1):
        before, after = x[k] - x[k - 1], x[k + 1] - x[k]
        if min(abs(before), abs(after)) > 0.02 and before * after < 0 and looked_at < 1000:
            looked_at += 1
            around = sorted(x[min(max(k + d, 0), len(x) - 1)] for d in range(-8, 9) if d)
            middle = (around[7] + around[8]) / 2
            count += abs(x[k] - middle) > 4 * max(middle - around[0], around[-1] - middle)
    return count


@pytest.mark.parametrize("rate", [2000, 11_025, 16_000, 44_100])
@pytest.mark.parametrize("share", [1e-4, 1e-3, 0.02, 0.3])
def test_hum_is_the_same_as_of_the_whole_spectrum(rate, share):
    """Also under noise ten thousand times as strong, most of it far above the harmonics."""
    t = np.arange(rate) / rate
    tones = sum(np.sin(2 * np.pi * k * 50 * t + k) for k in (1, 2, 3, 5))
    hiss = np.diff(noise(0.1, rate + 1, seed=3))
    x = (hiss + np.sqrt(share * hiss.var() / 2) * tones).astype(np.float32)
    found = measures.hum_ratios(np.stack([x, hiss.astype(np.float32)]), rate)
    assert found[0] == pytest.approx(hum_of_the_whole_spectrum(x), rel=1e-4)
    assert found[0] > 0 or share < 0.3
    assert found[1] == 0


def hum_of_the_whole_spectrum(x):
    power = np.abs(np.fft.rfft((x - x.mean()) * np.hanning(len(x)))) ** 2
    best = 0.0
    for mains in (50, 60):
        tones = [power[f - 2 : f + 3].sum() for f in mains * np.arange(1, 7)]
        usual = [5 * np.r_[power[f - 20 : f - 6], power[f + 6 : f + 20]].mean() for f in mains * np.arange(1, 7)]
        out = [(tone - less) for tone, less in zip(tones, usual, strict=True) if tone > 10 * less]
        if len(out) >= 3:
            best = max(best, sum(out) / (power[1:].sum() - sum(out)))
    return best


def test_crackling_is_compared_with_all_others_wherever_it_is():
    """Against a plain loop over frames: short and long bursts at changing sensors, some of them heard by others."""
    crackling = [bursts(seed) for seed in range(8)]
    found = np.array([measures.alone_shares(x, RATE) for x in crackling])
    np.testing.assert_array_equal(found, [alone_frame_by_frame(x) for x in crackling])
    assert (found > 0).any(axis=1).mean() > 0.5


def bursts(seed):
    rng = np.random.default_rng(seed)
    x = 0.001 * rng.standard_normal((4, RATE))
    for begin in rng.integers(0, RATE - 1600, 5):
        sensor, length, later = rng.integers(4), rng.integers(300, 1600), rng.integers(-900, 900)
        burst = rng.choice([0.05, 0.3]) * rng.standard_normal(length)
        x[sensor, begin : begin + length] += burst
        rival = x[(sensor + 1) % 4, max(begin + later, 0) : begin + later + length]
        rival += rng.choice([0, 0.1]) * burst[: len(rival)]
    return x.astype(np.float32)


def alone_frame_by_frame(x):
    frames = np.diff(x)[:, : 39 * 400].reshape(4, 39, 400)
    middle = np.sort(frames, axis=2)[:, :, 200, None]
    spread = np.sort(np.abs(frames - middle), axis=2)[:, :, 200].astype(float)
    loud = 20 * np.log10(1.4826 * spread)
    alone = np.zeros((4, 39))
    for sensor in range(4):
        others = np.delete(loud, sensor, axis=0)
        for k in range(39):
            near = others[:, max(k - 2, 0) : k + 3].max()
            alone[sensor, k] = loud[sensor, k] > -28 and loud[sensor, k] > near + 25
    return alone.mean(axis=1)
