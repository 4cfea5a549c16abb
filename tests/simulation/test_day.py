"""A simulated day: the same bits in any order, seamless, and true to its tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt
from scipy.stats import chisquare, kstest

from pipeline.config.schema import Settings
from pipeline.config.schema import SimulatedSourceSettings as SourceSettings
from pipeline.core.errors import UsageError
from pipeline.core.events import Block, RecordingStarted
from pipeline.simulation import CLASSES, NOBODY, Day, FaultPlan, Site, record
from pipeline.simulation.climate import PIECE_SECONDS
from pipeline.simulation.day import BACKWARD, FORWARD, LEAST_GAP_SECONDS, quiet_stretches
from pipeline.simulation.day_files import label_rows
from pipeline.simulation.distractors import BIRD, CAR, DROPS, KINDS, THUNDER
from pipeline.simulation.footsteps import Path
from pipeline.simulation.propagation import Air
from pipeline.simulation.vehicle import draw_vehicle, drive_by
from pipeline.sources.factory import door
from pipeline.sources.simulated import SimulatedSource

RATE = 4000
SITE = Site(seed=7, rate_hz=RATE)
BUSY = Day(SITE, hours=0.2, passages_per_day=700, distractors_per_day=2000, start_hour=5)
FAULTY = replace(BUSY, site=replace(SITE, faults=FaultPlan(("hum", "dead", "spikes", "stale"), (0.1, 0, 0.2, 0.5), 20)))


def whole(day: Day) -> np.ndarray:
    return np.concatenate([day.piece(number) for number in range(day.n_pieces)], axis=1)


def in_band(sound: np.ndarray, low: float = 100.0, high: float = 1900.0) -> np.ndarray:
    """By another filter than the simulation's; at 4 kHz the band ends below its half."""
    return sosfiltfilt(butter(6, (low, high), "band", fs=RATE, output="sos"), sound)


def test_any_piece_is_made_by_itself_to_the_bit():
    """Forwards, backwards and by a fresh copy of the day; with passages, distractors and faults across borders."""
    sound = whole(FAULTY)
    assert sound.dtype == np.float32
    for number in (FAULTY.n_pieces - 1, 20, 7, 8, 0):
        alone = replace(FAULTY).piece(number)
        assert (alone == sound[:, number * alone.shape[1] : (number + 1) * alone.shape[1]]).all()
    assert (FAULTY.read(59_000, 130_001) == sound[:, 59_000:130_001]).all()
    assert (sound * 2**15 == np.rint(sound * 2**15)).all()


def test_other_seeds_and_days_are_others():
    piece = BUSY.piece(1)
    assert (replace(BUSY, site=replace(SITE, seed=8)).piece(1) != piece).any()
    assert (replace(BUSY, number=1).piece(1) != piece).any()
    assert replace(BUSY, number=1).passages[0] != BUSY.passages[0]


def test_faults_and_passages_do_not_change_the_background():
    empty = replace(BUSY, passages_per_day=0, distractors_per_day=0)
    assert not empty.passages
    assert not empty.distractors
    numbers = [
        number
        for number in range(BUSY.n_pieces)
        if all(one.end_seconds + 1 < number * 15 or one.start_seconds > number * 15 + 15 for one in BUSY.passages)
        and all(one.end_seconds < number * 15 or one.start_seconds > number * 15 + 15 for one in BUSY.distractors)
    ]
    assert len(numbers) > 3
    for number in numbers:
        assert (BUSY.clean(number) == empty.clean(number)).all()


def test_borders_cannot_be_heard():
    """Steps from one sample to the next, and the power nearby, are those of the rest; also from one day to the next."""
    quiet = Day(SITE, hours=0.1, passages_per_day=0, distractors_per_day=0)
    both = np.concatenate([whole(quiet), whole(replace(quiet, number=1))], axis=1).astype(float)
    length = PIECE_SECONDS * RATE
    borders = np.arange(length, both.shape[1], length)
    steps = np.diff(both)
    at_borders = np.sqrt(np.mean(steps[:, borders - 1] ** 2))
    assert 0.85 < at_borders / np.sqrt(np.mean(steps**2)) < 1.15
    power = np.square(in_band(both))
    near = np.mean([power[:, border - RATE // 4 : border + RATE // 4].mean() for border in borders])
    assert abs(10 * np.log10(near / power.mean())) < 0.5
    low = np.square(in_band(both, 20, 60))
    near = np.mean([low[:, border - RATE // 4 : border + RATE // 4].mean() for border in borders])
    assert abs(10 * np.log10(near / low.mean())) < 1.0


def test_passages_cross_borders_whole():
    """What a day has more than one without passages is the sound of the passages, in one piece."""
    empty = replace(BUSY, passages_per_day=0)
    sound = np.concatenate([BUSY.clean(n) - empty.clean(n) for n in range(BUSY.n_pieces)], axis=1)
    expected = np.zeros_like(sound)
    for passage in BUSY.passages:
        made, start = BUSY.passage_sound(passage.number), round(passage.start_seconds * RATE)
        expected[:, start : start + made.shape[1]] += made
    assert len(BUSY.passages) > 3
    assert np.abs(sound - expected).max() < 1e-6


@pytest.mark.parametrize("seed", [1, 2])
def test_truth_agrees_with_the_sound(seed):
    """Measured with other filters: the peak ratio, and a loudest sensor above the background from start to end."""
    day = Day(Site(seed=seed, rate_hz=RATE), hours=0.14, passages_per_day=800, distractors_per_day=0, start_hour=12)
    empty = replace(day, passages_per_day=0)
    with_all = np.concatenate([day.clean(n) for n in range(day.n_pieces)], axis=1).astype(float)
    without = np.concatenate([empty.clean(n) for n in range(day.n_pieces)], axis=1).astype(float)
    total = np.cumsum(np.square(in_band(with_all - without)), axis=1)
    signal = np.full(total.shape, 1e-20)
    signal[:, RATE // 2 : -RATE // 2] += np.maximum(total[:, RATE:] - total[:, :-RATE], 0) / RATE
    noise = np.square(in_band(without))
    assert len(day.passages) >= 2
    for passage in day.passages:
        truth = day.truth(passage.number)
        start, end = (round(edge * RATE) for edge in (truth.start_seconds, truth.end_seconds))
        around = slice(round(passage.start_seconds * RATE), round(passage.end_seconds * RATE))
        # Birds sing in it; the median of some seconds knows nothing of them.
        floor = np.median(noise[:, around].reshape(4, -1)[:, : RATE * 8].reshape(4, 8, RATE).mean(axis=2), axis=1)
        ratio = 10 * np.log10(signal / floor[:, None])
        assert truth.peak_db == pytest.approx(np.median(ratio[:, around].max(axis=1)), abs=2.0)
        assert truth.loudest_db == pytest.approx(ratio[:, around].max(), abs=2.0)
        assert truth.enters_seconds <= truth.start_seconds < truth.end_seconds <= truth.leaves_seconds + 1
        loudest = ratio.max(axis=0)
        assert loudest[start : start + RATE].max() > -2
        assert loudest[end - RATE : end].max() > -2
        assert np.median(loudest[start:end]) > 0
        assert loudest[around.start : max(start - RATE, around.start + 1)].max() < 2
        assert loudest[min(end + RATE, around.stop - 1) : around.stop].max() < 2


def test_expected_power_is_that_of_the_background():
    """Wind, leaves, rain and self-noise; without gusts' chance, over many minutes."""
    day = Day(SITE, hours=0.25, passages_per_day=0, distractors_per_day=0, start_hour=1)
    power = np.square(in_band(whole(day).astype(float), 100, 1950)).mean(axis=1)
    expected = day.background.band_power(np.arange(0.0, day.seconds)).mean(axis=1)
    assert np.abs(10 * np.log10(power / expected)).max() < 0.7


def test_the_background_changes_through_the_day():
    """By 12 to 30 dB, and by less than 1.5 dB a minute while there is no shower."""
    grid = np.arange(0.0, 86_400.0, 60.0)
    for seed in range(5):
        day = Day(replace(SITE, seed=seed))
        level = 10 * np.log10(day.background.band_power(grid)[0])
        assert 12 < np.ptp(level) < 30
        dry = [not day.climate.showers(at, at + 60) for at in grid[:-1]]
        assert np.abs(np.diff(level))[dry].max() < 1.5
        assert day.climate.cricket_share(np.array([0.0, 12 * 3600.0])).tolist() == [1.0, 0.0]
        dawn, noon, night = day.climate.birds_per_second(3600 * np.array([5.5, 12.0, 1.0]))
        assert dawn > noon > night == 0


def test_arrivals_are_poisson_and_apart():
    """Count and times of 150 days: mean and variance of a Poisson law, evenly over the day, 20 s apart."""
    days = [Day(replace(SITE, seed=seed)) for seed in range(150)]
    counts = np.array([len(day.passages) for day in days])
    assert abs(counts.mean() - 40) < 4 * np.sqrt(40 / 150)
    assert 0.65 < counts.var() / counts.mean() < 1.45
    starts = np.concatenate([[one.start_seconds for one in day.passages] for day in days])
    assert kstest(starts / 86_400, "uniform").pvalue > 0.001
    for day in [*days, BUSY]:
        spans = [(one.start_seconds, one.end_seconds) for one in day.passages]
        assert all(8 <= end - start <= 60 for start, end in spans)
        assert all(after[0] - before[1] >= LEAST_GAP_SECONDS - 1e-6 for before, after in pairwise(spans))
        assert not spans or (spans[0][0] >= 0 and spans[-1][1] < day.seconds)
    labels = [one.label for day in days for one in day.passages]
    assert chisquare([labels.count(name) for name in CLASSES]).pvalue > 0.001
    forward = np.mean([np.cos(one.subject.path.heading_rad) > 0 for day in days for one in day.passages])
    assert abs(forward - 0.5) < 0.03
    kinds = [one.kind for day in days for one in day.distractors]
    assert set(kinds) == set(KINDS)
    assert abs(len(kinds) / 150 - 60) < 4 * np.sqrt(60 / 150)


def test_a_first_passage_can_be_asked_for():
    day = Day(SITE, hours=1, passages_per_day=24, first_passage_seconds=5)
    assert 0 <= day.passages[0].start_seconds <= 5
    daemon = door(Settings(source=SourceSettings())).open()._day
    assert daemon.passages[0].start_seconds < 20
    assert len(daemon.passages) / 24 == pytest.approx(40, abs=5)


@pytest.mark.parametrize("label", CLASSES)
def test_each_class_passes_from_one_end_to_the_other(label):
    """It reaches the sensor last that is at the end which the direction names; the cadence is that of the class."""
    day = Day(SITE, hours=1, passages_per_day=240, classes=(label,))
    for number in range(2):
        truth, sound = day.truth(number), in_band(day.passage_sound(number).astype(float))
        assert truth.label == label
        power = np.stack([np.convolve(row**2, np.hanning(RATE), "same") for row in sound])
        middle = (power * np.arange(sound.shape[1])).sum(axis=1) / power.sum(axis=1)
        assert truth.direction == (FORWARD if middle[-1] > middle[0] else BACKWARD)
        assert (truth.cadence_per_minute is None) == (label == "vehicle")
        assert (truth.second_cadence_per_minute is None) == (label != "two_humans")
        if label == "human":
            assert 95 <= truth.cadence_per_minute <= 160
            assert (
                abs(_beats_per_minute(sound[truth.nearest_sensor - 1], 80, 180) / truth.cadence_per_minute - 1) < 0.04
            )
        if label == "two_humans":
            assert truth.cadence_per_minute != truth.second_cadence_per_minute
        if label == "vehicle":
            assert 3 <= truth.speed_mps <= 8


def _beats_per_minute(sound: np.ndarray, least: float, most: float) -> float:
    """The strongest rate in the course of the power of the loudest 12 s."""
    course = np.sqrt(np.convolve(sound**2, np.hanning(RATE // 20), "same"))[:: RATE // 100]
    loudest = int(np.argmax(np.convolve(course, np.ones(1200), "valid")))
    spectrum = np.abs(np.fft.rfft((course[loudest : loudest + 1200] - course.mean()) * np.hanning(1200), 16_384))
    rates = np.arange(len(spectrum)) * 100 / 16_384 * 60
    inside = (rates > least) & (rates < most)
    return float(rates[inside][spectrum[inside].argmax()])


def test_an_engine_is_heard_higher_before_it_passes_than_afterwards():
    """By the ratio of the classical Doppler shifts; the orders are multiples of one pitch."""
    rng, air = np.random.default_rng(1), Air()
    path = Path(middle_m=(0.0, 0.0), heading_rad=0.0, speed_m_per_s=8.0, middle_seconds=10.0)
    vehicle = replace(draw_vehicle(rng, 8.0), jitter=0.0, tire_db=20.0)
    sound = drive_by(vehicle, path, rng, sensors_m=np.array([[0.0, 3.0]]), length=20 * RATE, rate_hz=RATE, air=air)[0]
    before, after = _pitch_hz(sound[2 * RATE : 6 * RATE]), _pitch_hz(sound[14 * RATE : 18 * RATE])
    mach = 8 / air.speed_m_per_s
    assert before == pytest.approx(vehicle.firing_hz / (1 - mach), rel=0.002)
    assert after == pytest.approx(vehicle.firing_hz / (1 + mach), rel=0.002)


def _pitch_hz(sound: np.ndarray) -> float:
    """The pitch whose multiples hold the most power, from 27 to 62 Hz."""
    power = np.abs(np.fft.rfft(sound * np.hanning(len(sound)), 8 * len(sound))) ** 2
    per_bin = RATE / (8 * len(sound))
    pitches = np.arange(27, 62, 0.01)
    sums = [sum(np.log(power[round(k * pitch / per_bin)]) for k in range(1, 5)) for pitch in pitches]
    return float(pitches[int(np.argmax(sums))])


def distractor_sounds(kind: str, n: int) -> list[tuple[int | None, np.ndarray]]:
    day = Day(SITE, hours=4, distractors_per_day=1000, passages_per_day=0)
    places = [place for place, one in enumerate(day.distractors) if one.kind == kind][:n]
    return [(day.distractors[place].sensor, day.distractor_sound(place)) for place in places]


def test_a_bird_on_a_housing_is_in_one_sensor_only():
    for sensor, sound in distractor_sounds(BIRD, 5):
        assert sound[sensor].any()
        assert not np.delete(sound, sensor, axis=0).any()
    day = replace(BUSY, passages_per_day=0)
    bird = next(one for one in day.distractors if one.kind == BIRD)
    others = replace(day, distractors_per_day=0)
    number = int(bird.start_seconds // PIECE_SECONDS)
    change = day.clean(number) - others.clean(number)
    alone = [one for one in day.distractors if one.start_seconds < 15 * number + 15 and one.end_seconds > 15 * number]
    touched = {one.sensor for one in alone}
    assert change[bird.sensor].any()
    assert None in touched or not np.delete(change, list(touched), axis=0).any()


def test_thunder_and_cars_are_low_and_everywhere_drops_are_not():
    for kind, high in ((THUNDER, 400), (CAR, 700)):
        for sensor, sound in distractor_sounds(kind, 4):
            power = np.abs(np.fft.rfft(sound.astype(float))) ** 2
            low = power[:, : round(high * sound.shape[1] / RATE)].sum(axis=1) / power.sum(axis=1)
            assert sensor is None
            assert low.min() > 0.85
            assert np.ptp(10 * np.log10((sound.astype(float) / SITE.gains[:, None]) ** 2 @ np.ones(sound.shape[1]))) < 2
    for sensor, sound in distractor_sounds(DROPS, 4):
        assert sensor is None
        assert (sound != 0).any(axis=1).all()
        assert np.abs(np.corrcoef(sound) - np.eye(4)).max() < 0.15


def test_faults_have_their_share_and_last_across_borders():
    """One sensor fails a tenth of the time; dead means zeros exactly where the truth says so, and hum does not jump."""
    day = Day(replace(SITE, faults=FaultPlan(("dead",), (0, 0, 0, 0.1), 10)))
    assert {one.sensor for one in day.episodes} == {3}
    assert sum(one.stop - one.start for one in day.episodes) / day.length == pytest.approx(0.1, abs=0.02)
    one = next(one for one in day.episodes if one.start // (15 * RATE) != one.stop // (15 * RATE))
    sound = day.read(one.start - RATE, one.stop + RATE)
    assert not sound[3, RATE:-RATE].any()
    assert sound[3, :RATE].any()
    assert sound[3, -RATE:].any()
    assert sound[0].any()
    humming = replace(day, site=replace(SITE, faults=FaultPlan(("hum",), (0, 0, 0, 0.3), 40)))
    one = next(one for one in humming.episodes if one.start // (15 * RATE) < one.stop // (15 * RATE))
    healthy = replace(humming, site=SITE)
    hum = (humming.read(one.start, one.stop) - healthy.read(one.start, one.stop))[3]
    border = (one.start // (15 * RATE) + 1) * 15 * RATE - one.start
    again = hum[border - 40 : border + 40] - hum[border - 120 : border - 40]  # of 50 Hz at 4 kHz: a whole period before
    assert np.abs(again).max() < 2**-14


def test_labels_are_disjoint_and_keep_their_distance():
    """Nobody is labeled so 5 s around passages and 1 s around distractors; all spans lie within the day."""
    rows = label_rows(BUSY, [BUSY.truth(number) for number in range(len(BUSY.passages))])
    assert {label for _, _, label in rows} > {NOBODY}
    assert all(start < end for start, end, _ in rows)
    assert all(before[1] <= after[0] for before, after in pairwise(rows))
    assert rows[0][0] >= 0
    assert rows[-1][1] <= BUSY.seconds
    for start, end in quiet_stretches(BUSY):
        assert end - start >= 10
        for one in BUSY.passages:
            assert end <= one.start_seconds - 5 + 1e-9 or start >= one.end_seconds + 5
        for other in BUSY.distractors:
            assert end <= other.start_seconds - 1 + 1e-9 or start >= other.end_seconds + 1 - 1e-9


@pytest.mark.parametrize("block_samples", [4096, 999])
def test_a_source_plays_the_day_and_goes_on_with_the_next(block_samples):
    day = Day(SITE, hours=0.0125, passages_per_day=900)
    assert day.n_pieces == 3
    with SimulatedSource(day, seconds=70, block_samples=block_samples) as source:
        started, *blocks = list(source)
    assert isinstance(started, RecordingStarted)
    assert all(isinstance(block, Block) for block in blocks)
    sound = np.concatenate([block.samples for block in blocks], axis=1)
    days = np.concatenate([whole(day), whole(replace(day, number=1))], axis=1)
    assert (sound == days[:, : 70 * RATE]).all()


def test_walks_remain_a_scene_of_the_daemon():
    source = door(Settings(source=SourceSettings(scene="walks"))).open()
    assert source._day is None
    assert source.scene(0)[1].walker is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hours": 0}, "0 hours must be above 0 and at most 744; for example 24"),
        ({"passages_per_day": 2000}, "2000 passages a day leave no 20 s between them; use at most 972"),
        ({"distractors_per_day": -1}, "-1 distractors a day must be at least 0; for example 40"),
        ({"classes": ("ghost",)}, "classes ['ghost'] cannot pass the array; choose some of human, human_animal, "),
    ],
)
def test_impossible_days_are_refused(options, message):
    with pytest.raises(UsageError) as refusal:
        Day(SITE, **options)
    assert message in str(refusal.value)


def test_short_recordings_have_all_classes():
    """The same number with somebody in it is louder than with nobody; the published classes have the same bits."""
    site = Site(seed=5, rate_hz=RATE, duration_seconds=6.0)
    power = {label: np.square(record(site, 3, label=label).samples.astype(float)).sum() for label in (*CLASSES, NOBODY)}
    assert all(power[label] > 1.2 * power[NOBODY] for label in CLASSES)
    assert record(site, 3, label="vehicle").walker is None
    assert record(site, 3, label="animal").walker.animal is not None
    assert (record(site, 3, label="vehicle").samples == record(site, 3, label="vehicle").samples).all()
