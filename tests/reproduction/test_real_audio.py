"""Recordings made of real clips keep their sources apart."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from benchmarks.real_audio import N_SENSORS, RATE_HZ, SECONDS, families_of, recording_of


@pytest.fixture
def audio(tmp_path):
    """Tones that tell their source: humans from 200 Hz on, hooves from 1000, noise from 3000; two clips each."""
    rows = ["path,class,source_id"]
    for kind, n_sources, lowest in (("human_footsteps", 5, 200), ("hoof", 2, 1000), ("noise_wind", 3, 3000)):
        (tmp_path / kind).mkdir()
        for source in range(n_sources):
            for clip in range(2):
                path = f"{kind}/{source}_{clip}.flac"
                tone = 0.3 * np.sin(2 * np.pi * (lowest + 50 * source) * np.arange(RATE_HZ) / RATE_HZ)
                soundfile.write(tmp_path / path, tone, RATE_HZ)
                rows.append(f"{path},{kind},{kind}{source}")
    (tmp_path / "meta.csv").write_text("\n".join(rows))
    return tmp_path


def test_families_share_no_source_and_leave_none_out(audio):
    """One family for each source of hooves; every clip is in exactly one."""
    families = families_of(audio, np.random.default_rng(0))
    clips = [[path.stem.split("_")[0] + path.parent.name for path in f.humans + f.hooves + f.noises] for f in families]
    assert len(families) == 2
    assert not set(clips[0]) & set(clips[1])
    assert len(clips[0]) + len(clips[1]) == 20


def test_hooves_are_heard_only_with_an_animal(audio):
    """Power at the frequencies of hooves: as loud as the human or louder, or nothing; noise 25 dB below."""
    family = families_of(audio, np.random.default_rng(0))[0]

    def power(sound, lowest):
        spectrum = np.abs(np.fft.rfft(sound * np.hanning(sound.shape[1]))) ** 2
        hertz = np.fft.rfftfreq(sound.shape[1], 1 / RATE_HZ)
        return spectrum[:, (hertz > lowest - 40) & (hertz < lowest + 290)].sum(axis=1)

    alone, together = (recording_of(family, animal=a, rng=np.random.default_rng(1)) for a in (False, True))
    assert alone.shape == together.shape == (N_SENSORS, round(SECONDS * RATE_HZ))
    assert (power(alone, 1000) < 1e-4 * power(alone, 200)).all()
    # 0 to 9 dB louder at the source; at a sensor the gains of both differ by up to 6 dB.
    ratio = 10 * np.log10(power(together, 1000) / power(together, 200))
    assert (ratio > -6.5).all()
    assert (ratio < 15.5).all()
    noise = 10 * np.log10(power(alone, 3000) / power(alone, 200))
    assert (noise > -26).all()
    assert (noise < -18).all()
