"""Recordings: reproducible, physical, and true to what they claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.core.errors import GemmedError, UsageError
from pipeline.core.events import Block, RecordingStarted
from pipeline.simulation import FAULTS, HUMAN, HUMAN_WITH_ANIMAL, FaultPlan, Site, array_positions, record
from pipeline.simulation.clips import Clips, cut_impacts
from pipeline.sources.simulated import SimulatedSource

RATE = 4000
SITE = Site(seed=3, rate_hz=RATE, duration_seconds=6.0)
FAULTY = replace(SITE, faults=FaultPlan(tuple(FAULTS), (0.3,) * 4, 2.0))


def test_the_same_seed_gives_the_same_bits_and_another_gives_others():
    """Recordings are reproducible one by one."""
    first, again = record(FAULTY, 5), record(FAULTY, 5)
    assert first.samples.tobytes() == again.samples.tobytes()
    assert first.episodes == again.episodes
    assert record(replace(FAULTY, seed=4), 5).samples.tobytes() != first.samples.tobytes()
    assert record(FAULTY, 6).samples.tobytes() != first.samples.tobytes()


def test_faults_leave_the_scene_under_them_alone():
    """Outside the episodes a recording with faults is the one without, to the bit."""
    for number in range(4):
        clean, faulty = record(SITE, number), record(FAULTY, number)
        assert (clean.label, clean.walker, clean.weather) == (faulty.label, faulty.walker, faulty.weather)
        inside = np.zeros(clean.samples.shape, bool)
        for episode in faulty.episodes:
            inside[episode.sensor, episode.start : episode.stop] = True
        assert (clean.samples == faulty.samples)[~inside].all()


def test_samples_are_those_of_a_sixteen_bit_converter():
    """Whole codes within full scale, so that a file holds exactly what was simulated."""
    codes = record(FAULTY, 0).samples.astype(np.float64) * 2**15
    assert (codes == np.rint(codes)).all()
    assert codes.min() >= -(2**15)
    assert codes.max() <= 2**15 - 1


def test_two_in_five_lead_an_animal():
    """66 of 150, as in the published recordings, within four standard errors."""
    from pipeline.simulation.scene import drawn_label

    drawn = [drawn_label(SITE, number) for number in range(1000)]
    assert set(drawn) == {HUMAN, HUMAN_WITH_ANIMAL}
    assert np.mean([label == HUMAN_WITH_ANIMAL for label in drawn]) == pytest.approx(0.44, abs=4 * np.sqrt(0.25 / 1000))
    assert all((record(SITE, n).walker.animal is not None) == (drawn[n] == HUMAN_WITH_ANIMAL) for n in range(5))


def test_the_nearer_sensor_hears_more_and_earlier():
    """A walker passes: levels follow the distance, so the loudest moment comes in the order of the sensors."""
    calm = None
    for number in range(40):
        found = record(SITE, number, label=HUMAN)
        if found.weather.wind_m_per_s < 1 and not found.weather.rain_drops_per_second:
            calm = found
            break
    assert calm is not None
    seconds = np.arange(calm.samples.shape[1]) / RATE
    power = calm.samples.astype(float) ** 2
    moments = (power**2 * seconds).sum(axis=1) / (power**2).sum(axis=1)
    direction = np.sign(np.cos(calm.walker.path.heading_rad))
    assert (direction * np.diff(moments) > 0).all()


def test_sensors_stand_beside_the_track():
    """As many as asked for, evenly spaced, centred."""
    places = array_positions(5, 4.0)
    assert places.shape == (5, 2)
    assert places.mean(axis=0)[0] == pytest.approx(0)
    assert np.diff(places[:, 0]) == pytest.approx(4.0)
    assert record(replace(SITE, sensors_m=places), 0).samples.shape == (5, 6 * RATE)


@pytest.mark.parametrize("rate_hz", [2000, 11_025, 48_000])
def test_any_rate_will_do(rate_hz):
    """The scene is the same, only sampled otherwise."""
    one, other = record(replace(SITE, rate_hz=rate_hz), 1), record(SITE, 1)
    assert one.walker == other.walker
    assert one.samples.shape == (4, 6 * rate_hz)
    assert np.abs(one.samples).max() > 0.001


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate_hz": 500}, "rate_hz=500"),
        ({"duration_seconds": 0.4}, "recordings of 0.4 s must be at least 0.5 s long"),
        ({"duration_seconds": float("nan")}, "recordings of nan s must be"),
        ({"duration_seconds": 3600.0}, "made in memory and must be at most 1250 s long with 4 sensors at 4000 Hz"),
        ({"sensors_m": array_positions(65)}, "65 sensors must be 1 to 64"),
        ({"surface": "mud"}, "surface 'mud' is not known; choose one of gravel, grass"),
        ({"sensors_m": np.empty((0, 2))}, "0 sensors must be 1 to 64"),
        ({"faults": FaultPlan(("dead",), (0.1, 0.2))}, "2 fault shares for 4 sensors"),
    ],
)
def test_impossible_sites_are_refused(change, message):
    """By name and value."""
    with pytest.raises(GemmedError, match=message):
        replace(SITE, **change)


def played(site: Site, **options) -> list[object]:
    with SimulatedSource(site, **options) as source:
        return list(source)


def test_the_simulated_source_is_one_stream_however_it_is_cut():
    """Blocks of any size, the same samples, numbered without a gap, as long as asked for."""
    whole = played(FAULTY, seconds=13.3)
    assert whole[0] == RecordingStarted("simulated", RATE, ("1", "2", "3", "4"))
    sound = np.concatenate([block.samples for block in whole[1:]], axis=1)
    assert sound.shape == (4, round(13.3 * RATE))
    for size in (1000, 777, 100_000):
        blocks = [fact for fact in played(FAULTY, seconds=13.3, block_samples=size) if isinstance(fact, Block)]
        assert [block.start for block in blocks] == [0, *np.cumsum([b.samples.shape[1] for b in blocks])[:-1]]
        assert np.concatenate([block.samples for block in blocks], axis=1).tobytes() == sound.tobytes()


def test_scenes_of_the_stream_are_where_the_source_says():
    """Away from the fades the stream is the recording, to the bit; in them it does not jump."""
    source = SimulatedSource(FAULTY, seconds=18)
    sound = np.concatenate([fact.samples for fact in source if isinstance(fact, Block)], axis=1)
    fade = round(0.1 * RATE)
    for number in range(3):
        start, recording = source.scene(number)
        length = recording.samples.shape[1]
        inner = sound[:, start + fade : start + length - fade]
        assert (inner == recording.samples[:, fade : fade + inner.shape[1]]).all()
        if number:
            rise = np.sin(np.linspace(0, np.pi / 2, fade))
            before = source.scene(number - 1)[1].samples[:, -fade:]
            mixed = before * np.cos(np.linspace(0, np.pi / 2, fade)) + recording.samples[:, :fade] * rise
            assert np.abs(sound[:, start : start + fade] - np.clip(mixed, -1, 1)).max() <= 2**-15


def test_an_endless_source_ends_when_left():
    """It goes on as long as somebody listens, and can begin anew."""
    with SimulatedSource(SITE) as source:
        stream = iter(source)
        first = [next(stream) for _ in range(20)]
        assert next(iter(source)) == first[0]
    with pytest.raises(StopIteration):
        next(stream)


def clip_folder(directory: Path) -> Path:
    """Three knocks a second, a hoof and some noise."""
    rng = np.random.default_rng(0)
    knock = np.exp(-np.arange(800) / 100) * np.sin(np.arange(800) * 0.7)
    passage = 0.001 * rng.standard_normal(3 * 8000)
    for start in (2000, 10_000, 18_000):
        passage[start : start + 800] += 0.5 * knock
    for folder, sound in (("steps", passage), ("hooves", 0.3 * knock), ("noise", 0.1 * rng.standard_normal(9000))):
        (directory / folder).mkdir(parents=True)
        soundfile.write(directory / folder / "a.wav", sound, 8000)
    return directory


def test_single_impacts_are_cut_out_of_a_clip(tmp_path):
    """Each begins where it is heard."""
    clip, _ = soundfile.read(clip_folder(tmp_path) / "steps" / "a.wav")
    hits = cut_impacts(clip, 8000)
    assert len(hits) == 3
    for hit in hits:
        assert np.abs(hit).argmax() < 0.05 * 8000
        assert len(hit) <= 0.35 * 8000


def test_real_clips_take_the_place_of_synthetic_steps(tmp_path):
    """Same walk, other sound; reproducible; what is missing stays synthetic."""
    clips = Clips(clip_folder(tmp_path), RATE)
    real = replace(SITE, clips=clips)
    one, other = record(real, 2, label=HUMAN_WITH_ANIMAL), record(SITE, 2, label=HUMAN_WITH_ANIMAL)
    assert one.walker == other.walker
    assert one.samples.tobytes() == record(real, 2, label=HUMAN_WITH_ANIMAL).samples.tobytes()
    assert one.samples.tobytes() != other.samples.tobytes()
    digest = clips.digest
    (tmp_path / "noise" / "a.wav").unlink()
    without = Clips(tmp_path, RATE)
    assert without.digest != digest
    assert without.noises(np.random.default_rng(0), duration_seconds=6) == []


def test_unusable_clips_are_named(tmp_path):
    """A folder without sound, and a file that is none."""
    with pytest.raises(UsageError, match="holds no sound files in steps/, hooves/, noise/; put WAV"):
        Clips(tmp_path, RATE)
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "a.wav").write_text("not sound")
    with pytest.raises(UsageError, match=r"a\.wav cannot be read as sound; remove it"):
        Clips(tmp_path, RATE)


def test_stale_sound_is_nominal_of_the_same_sensor_and_of_another_time():
    """It equals no part of its own recording, and is what that sensor, and no other, heard in another one."""
    from pipeline.simulation import FaultEpisode
    from pipeline.simulation.scene import _another, converted

    span = slice(RATE, 4 * RATE)
    episode = FaultEpisode(2, span.start, span.stop, "stale", 0.5, 0, (1,))
    found = record(SITE, 3, episodes=[episode]).samples
    assert (found[2, span] == converted(_another(SITE, 3))[2, span]).all()
    own = record(SITE, 3).samples
    assert max(abs(np.corrcoef(found[2, span], row[span])[0, 1]) for row in own) < 0.1
    assert 0.1 < found[2, span].std() / own[2, span].std() < 10


def test_sensors_differ_in_gain_and_hear_no_infrasound():
    """A site's sensors keep their gains from recording to recording, about 1 dB apart; below 25 Hz they fall off."""
    from pipeline.simulation.scene import FULL_SCALE_PA, _sensed

    t = np.arange(4 * RATE) / RATE
    levels = {}
    for hz in (5.0, 25.0, 500.0):
        heard = _sensed(np.tile(np.sin(2 * np.pi * hz * t), (4, 1)), SITE) * FULL_SCALE_PA
        levels[hz] = 20 * np.log10(np.sqrt(2) * heard[:, RATE:-RATE].std(axis=1))
    assert 0.1 < levels[500.0].std() < 2.5
    np.testing.assert_allclose(levels[25.0] - levels[500.0], -3.01, atol=0.05)
    np.testing.assert_allclose(levels[5.0] - levels[500.0], -28, atol=0.5)


def test_hooves_do_not_fold_at_low_rates():
    """A knock above half the rate is left out, not heard at another pitch."""
    from pipeline.simulation.footsteps import Foot, contact

    foot = Foot(60, 40, 0.03, (300, 800), 0.03, -60, 0, knock_hz=1300)
    spectrum = np.abs(np.fft.rfft(contact(foot, np.random.default_rng(0), 2000)))
    folded = np.fft.rfftfreq(700, 1 / 2000) > 600
    assert spectrum[folded].max() < 0.01 * spectrum.max()
