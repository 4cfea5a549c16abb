"""Recordings made of real clips keep their sources apart."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import soundfile

from benchmarks.real_audio import GRID, N_SENSORS, RATE_HZ, SECONDS, cast_of, clip, false_alarms, recording_of
from pipeline.core.segment_views import N_COEFFICIENTS, Summary
from pipeline.experiments.corpus import CorpusEntry, _path
from pipeline.experiments.footsteps import FootstepPlan


@pytest.fixture
def audio(tmp_path):
    """Tones that tell their source: humans from 200 Hz on, hooves from 1000, noise from 3000; two clips each."""
    rows = ["path,class,source_id"]
    for kind, n_sources, lowest in (("human_footsteps", 5, 200), ("hoof", 2, 1000), ("noise_wind", 3, 3000)):
        (tmp_path / kind).mkdir()
        for source in range(n_sources):
            for take in range(2):
                path = f"{kind}/{source}_{take}.flac"
                tone = 0.3 * np.sin(2 * np.pi * (lowest + 50 * source) * np.arange(RATE_HZ) / RATE_HZ)
                soundfile.write(tmp_path / path, tone, RATE_HZ)
                rows.append(f"{path},{kind},{kind}{source}")
    (tmp_path / "meta.csv").write_text("\n".join(rows))
    return tmp_path


def sources(cast):
    """Of all clips that a recording may be made of."""
    return {path.stem.split("_")[0] + path.parent.name for path in cast.voices + cast.hooves + cast.noises}


def test_families_share_no_source_and_leave_none_out(audio):
    """One family for each source of hooves; every source is in exactly one, and recordings of one family in one."""
    cast = cast_of(audio, "steps", 0, by_time=False)
    families = {one.source: set() for one in cast}
    for one in cast:
        families[one.source] |= sources(one)
    assert len(families) == 2
    first, second = families.values()
    assert not first & second
    assert len(first | second) == 5 + 2 + 3
    assert Counter(one.label for one in cast) == {"human": 84, "human_animal": 66}
    assert all(bool(one.hooves) == (one.label == "human_animal") for one in cast)


def test_by_time_every_clip_is_on_both_sides_with_another_half_of_it(audio):
    """Two sides, of first and of second halves."""
    cast = cast_of(audio, "steps", 0, by_time=True)
    sides = {(one.source, one.half): set() for one in cast}
    for one in cast:
        sides[one.source, one.half] |= sources(one)
    assert len(sides) == len({source for source, _ in sides}) == len({half for _, half in sides}) == 2
    first, second = sides.values()
    assert first == second
    path = cast[0].voices[0]
    np.testing.assert_array_equal(np.concatenate([clip(path, 0), clip(path, 1)]), clip(path, None))


def test_hooves_are_heard_only_with_an_animal(audio):
    """Power at the frequencies of hooves: as loud as the human or louder, or nothing; noise 25 dB below."""
    cast = cast_of(audio, "steps", 0, by_time=False)
    human, animal = (next(one for one in cast if one.label == label) for label in ("human", "human_animal"))

    def power(sound, lowest):
        spectrum = np.abs(np.fft.rfft(sound * np.hanning(sound.shape[1]))) ** 2
        hertz = np.fft.rfftfreq(sound.shape[1], 1 / RATE_HZ)
        return spectrum[:, (hertz > lowest - 40) & (hertz < lowest + 290)].sum(axis=1)

    alone, together = (recording_of(one, np.random.default_rng(1)) for one in (human, animal))
    assert alone.shape == together.shape == (N_SENSORS, round(SECONDS * RATE_HZ))
    assert (power(alone, 1000) < 1e-4 * power(alone, 200)).all()
    # 0 to 9 dB louder at the source; at a sensor the gains of both differ by up to 6 dB.
    ratio = 10 * np.log10(power(together, 1000) / power(together, 200))
    assert (ratio > -6.5).all()
    assert (ratio < 15.5).all()
    noise = 10 * np.log10(power(alone, 3000) / power(alone, 200))
    assert (noise > -26).all()
    assert (noise < -18).all()


def test_false_alarms_of_exchangeable_recordings_are_as_rare_as_alpha(tmp_path):
    """Gaussian features, two classes far apart: p-values of recordings from the same sources as the training set."""
    rng, n_segments = np.random.default_rng(0), 8
    n_timing = 60
    n_values = len(Summary(GRID, N_COEFFICIENTS).parts) + n_timing + GRID.window_frames * N_COEFFICIENTS
    entries = [CorpusEntry(f"r{n:02d}", ("human", "human_animal")[n % 2], f"s{n // 2}") for n in range(48)]
    for n, entry in enumerate(entries):
        scene = rng.normal(size=(n_segments, 1, n_values)) + 2 * (n % 2)
        np.savez(_path(tmp_path, entry), clean=scene + rng.normal(size=(n_segments, N_SENSORS, n_values)))
    plan = FootstepPlan(24, 24, n_train=12, splits=1, cells=(), tables=False, seed=0)
    found = false_alarms(plan, tmp_path, entries)
    assert {kind.split(",")[0] for kind in found} == {
        f"{what} at {alpha}" for what in ("sensor fault", "unknown sound") for alpha in ("0.01", "0.05")
    }
    for alpha in (0.01, 0.05):
        assert found[f"sensor fault at {alpha}, by recording"].low <= alpha
