"""Kinds of corruption do what they say, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.experiments.corruption import BURST_SEGMENTS, KINDS, CorruptedSet, Supplies

N, SEGMENTS, SENSORS = 60, 24, 4


def marked() -> tuple[CorruptedSet, Supplies]:
    """Features that say where they come from: recording, segment, sensor; loud ones are 1000 higher, silence is -1."""
    places = np.stack(np.meshgrid(np.arange(N), np.arange(SEGMENTS), np.arange(SENSORS), indexing="ij"), axis=-1)
    values = places.astype(np.float32)
    clean = CorruptedSet.clean(values, np.arange(N) % 2)
    return clean, Supplies(values + 1000, np.full(3, -1, np.float32))


def corrupted(kind: str, rate: float, sensors=(0, 2), seed=0) -> CorruptedSet:
    clean, supplies = marked()
    return KINDS[kind](clean, supplies, rate, sensors, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_only_what_is_called_anomalous_is_changed(kind, rate):
    """Elsewhere, and at sensors not concerned, every bit is as before, and the given training set always is."""
    clean, supplies = marked()
    before = clean.values.copy()
    dirty = KINDS[kind](clean, supplies, rate, (0, 2), np.random.default_rng(1))
    np.testing.assert_array_equal(clean.values, before)
    changed = (dirty.values != clean.values).any(axis=-1)
    np.testing.assert_array_equal(changed, dirty.anomalous)
    assert not dirty.anomalous[:, :, [1, 3]].any()
    np.testing.assert_array_equal(dirty.labels != clean.labels, dirty.mislabelled)
    np.testing.assert_array_equal(dirty.spoiled(), changed | dirty.mislabelled[:, None, None])


@pytest.mark.parametrize("kind", ["loud", "dead", "stale"])
@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4])
def test_bursts_have_the_rate_and_the_length(kind, rate):
    """Over many draws the share is the rate, and a burst that is seen whole is as long as a geometric one can be."""
    shares, starts, ends = [], 0, 0
    for seed in range(30):
        bad = corrupted(kind, rate, seed=seed).anomalous[:, :, 0]
        shares.append(bad.mean())
        starts += int((~bad[:, :-1] & bad[:, 1:]).sum())
        ends += int(bad[:, :-1].sum())
    assert np.mean(shares) == pytest.approx(rate, abs=4 * np.std(shares) / np.sqrt(30))
    # In a stationary chain as many bursts begin as end: one of BURST_SEGMENTS bad steps is the last.
    assert starts / ends == pytest.approx(1 / BURST_SEGMENTS, rel=0.15)


def test_loud_is_the_same_moment_and_dead_is_silence():
    """The crackling replaces what the sensor heard then and there."""
    supplies = marked()[1]
    dirty = corrupted("loud", 0.4)
    np.testing.assert_array_equal(dirty.values[dirty.anomalous], supplies.loud[dirty.anomalous])
    dirty = corrupted("dead", 0.4)
    assert (dirty.values[dirty.anomalous] == -1).all()


def test_stale_is_another_recording_of_the_same_sensor():
    """The same segment number of one other recording, for all of a recording's stale segments."""
    dirty = corrupted("stale", 0.4)
    recording, segment, sensor = np.nonzero(dirty.anomalous)
    heard = dirty.values[dirty.anomalous]
    assert (heard[:, 0] != recording).all()
    np.testing.assert_array_equal(heard[:, 1], segment)
    np.testing.assert_array_equal(heard[:, 2], sensor)
    for number in range(N):
        for s in (0, 2):
            assert len(set(heard[(recording == number) & (sensor == s), 0])) <= 1


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4])
def test_mislabelled_is_an_exact_share_of_each_class(rate):
    """So the classes stay of equal size."""
    dirty = corrupted("mislabelled", rate)
    truth = np.arange(N) % 2
    for label in (0, 1):
        assert dirty.mislabelled[truth == label].sum() == round(rate * N / 2)
    assert (dirty.labels == 1).sum() == N / 2


def test_polluted_recordings_of_one_class_hold_the_other():
    """Whole recordings of class 1 with the sound of class 0; labels stay."""
    dirty = corrupted("polluted", 0.4)
    whole = dirty.anomalous[:, :, 0]
    assert (whole.all(axis=1) == whole.any(axis=1)).all()
    assert whole.any(axis=1).sum() == round(0.4 * N / 2)
    assert not whole[np.arange(N) % 2 == 0].any()
    assert (dirty.values[dirty.anomalous][:, 0] % 2 == 0).all()
    assert not dirty.mislabelled.any()


def test_mixed_is_loud_stale_and_mislabelled():
    """The first sensor crackles, the other repeats, half of the rate is mislabelled."""
    dirty = corrupted("mixed", 0.4)
    assert (dirty.values[:, :, 0][dirty.anomalous[:, :, 0]] >= 1000).all()
    stale = dirty.anomalous[:, :, 2]
    assert stale.any()
    assert (dirty.values[:, :, 2][stale][:, 0] != np.nonzero(stale)[0]).all()
    assert dirty.mislabelled.sum() == round(0.2 * N)
