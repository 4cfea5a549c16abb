"""Recordings in files. Samples carry their own index, so that every sample proves where it came from."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import wave
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import SettingsError, SourceError
from pipeline.core.events import RecordingStarted
from pipeline.sources._tracks import FILTER_REACH, READ_FRAMES, resampled_length
from pipeline.sources.files import FileSource, find_recordings
from tests.sources.timeline import play

RATE = 8000
TIMES = "{time:%Y%m%d_%H%M%S}.wav"


def ramp(n, channels=4, *, first=0):
    """int16 (time, channels): sample i of channel c is 4 i + c, wrapped."""
    index = 4 * np.arange(first, first + n)[:, None] + np.arange(channels)
    return (index % 65536 - 32768).astype(np.int16)


def write(path, values, rate=RATE, **options):
    sf.write(path, values, rate, **options)
    return path


def floats(values):
    """What int16 samples must become, as (channels, time)."""
    return (values.T / 32768).astype(np.float32)


def play_path(path, *, pattern=None, **options):
    return play(FileSource(find_recordings(path, pattern=pattern), **options))


def cut_off(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


def complaints(played):
    return [(trouble.where, trouble.message) for trouble in played.troubles]


def wav_bytes(frames, *, data_size, riff_size=0, rate=RATE):
    """A WAV of 16 bits with any lie in its size fields."""
    fmt = struct.pack("<HHIIHH", 1, frames.shape[1], rate, rate * frames.shape[1] * 2, frames.shape[1] * 2, 16)
    head = b"RIFF" + struct.pack("<I", riff_size) + b"WAVEfmt " + struct.pack("<I", 16) + fmt
    return head + b"data" + struct.pack("<I", data_size) + frames.astype("<i2").tobytes()


# Formats


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.wav", {"subtype": "PCM_16"}),
        ("x.wav", {"subtype": "PCM_24"}),
        ("x.wav", {"subtype": "PCM_32"}),
        ("x.wav", {"subtype": "FLOAT"}),
        ("x.wav", {"subtype": "DOUBLE"}),
        ("x.wav", {"subtype": "PCM_24", "format": "WAVEX"}),
        ("x.flac", {"subtype": "PCM_16"}),
        ("x.flac", {"subtype": "PCM_24"}),
        ("x.aiff", {"subtype": "PCM_16"}),
        ("x.aiff", {"subtype": "PCM_24"}),
        ("x.aiff", {"subtype": "FLOAT"}),
        ("x.w64", {"subtype": "PCM_16"}),
        ("x.w64", {"subtype": "FLOAT"}),
        ("x.rf64", {"subtype": "PCM_16"}),
        ("x.rf64", {"subtype": "PCM_32"}),
        ("x.caf", {"subtype": "PCM_16"}),
        ("x.caf", {"subtype": "ALAC_16"}),
        ("x.au", {"subtype": "PCM_32"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()),
)
def test_every_lossless_format_gives_the_samples_that_were_written(tmp_path, name, options):
    """The integer k of n bits becomes exactly k / 2 ** (n - 1), rounded once to float32."""
    bits = {"PCM_16": 16, "ALAC_16": 16, "PCM_24": 24, "FLOAT": 24, "DOUBLE": 32}.get(options["subtype"], 32)
    extremes = [[-(2**31)] * 4, [2**31 - 1] * 4, [0, 2**16, -(2**16), 2**17]]
    values = np.random.default_rng(1).integers(-(2**31), 2**31, (5000, 4))
    values = np.vstack([values, extremes]) >> (32 - bits) << (32 - bits)
    if options["subtype"] in ("FLOAT", "DOUBLE"):
        sf.write(tmp_path / name, values / 2.0**31, RATE, **options)
    else:
        sf.write(tmp_path / name, values.astype(np.int32), RATE, **options)
    played = play_path(tmp_path)
    assert not played.troubles
    np.testing.assert_array_equal(played.only.samples, (values.T / 2.0**31).astype(np.float32))
    assert played.only.delivered.all()


@pytest.mark.parametrize("name", ["x.ogg", "x.opus", "x.mp3"])
def test_lossy_formats_give_the_sound(tmp_path, name):
    """A sine comes back at its place, up to the loss of the codec."""
    rate = 48000
    sine = 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    options = {"format": "OGG", "subtype": "OPUS"} if name == "x.opus" else {}
    sf.write(tmp_path / name, np.stack([sine, sine], axis=1), rate, **options)
    played = play_path(tmp_path)
    assert not played.troubles
    assert played.only.stop == rate
    assert np.abs(played.only.samples[:, 5000:-5000] - sine[5000:-5000]).max() < 0.03


def test_facts_of_a_file(tmp_path):
    """One recording, named by the stem, at the file's rate, its sensors called by channel."""
    write(tmp_path / "north.wav", ramp(10, 3), 44100)
    assert play_path(tmp_path).only.started == RecordingStarted("north", 44100, ("1", "2", "3"))


def test_blocks_are_no_longer_than_asked(tmp_path):
    """And a file is never read as a whole."""
    write(tmp_path / "a.wav", ramp(40000))
    assert max(block.samples.shape[1] for block in play_path(tmp_path, block_samples=300).only.blocks) == 300
    assert max(block.samples.shape[1] for block in play_path(tmp_path, block_samples=10**9).only.blocks) <= READ_FRAMES


# Listing


def test_recordings_come_in_natural_order_and_strangers_are_ignored(tmp_path):
    """Numbers by value; labels, pictures, hidden and partial files and directories do not matter."""
    for name in ["r10.wav", "r2.WAV", "r1.flac"]:
        write(tmp_path / name, ramp(10))
    for name in ["labels.csv", "map.png", ".hidden.wav", "r3.wav.partial"]:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "r4.wav").mkdir()
    played = play_path(tmp_path)
    assert [timeline.started.recording for timeline in played.recordings] == ["r1", "r2", "r10"]
    assert not played.troubles


def test_several_paths_keep_their_order(tmp_path):
    """Files and directories can be mixed."""
    for folder in ("b", "a"):
        (tmp_path / folder).mkdir()
        for number in (10, 9):
            write(tmp_path / folder / f"{folder}{number}.wav", ramp(10))
    listing = find_recordings([tmp_path / "b", tmp_path / "a" / "a10.wav", tmp_path / "a" / "a9.wav"])
    assert [recording.name for recording in listing.recordings] == ["b9", "b10", "a10", "a9"]


def test_two_files_of_one_name_are_a_trouble(tmp_path):
    """The second is left out: recordings must be told apart."""
    write(tmp_path / "a.flac", ramp(10))
    write(tmp_path / "a.wav", ramp(20))
    (tmp_path / "sub").mkdir()
    played = play_path([tmp_path, write(tmp_path / "sub" / "a.ogg", ramp(30))])
    assert [where for where, _ in complaints(played)] == ["a.wav", "a.ogg"]
    assert played.only.stop == 10


@pytest.mark.parametrize("name", ["missing", "missing.wav"])
def test_a_path_that_is_not_there_is_an_error(tmp_path, name):
    """It names the path."""
    with pytest.raises(SourceError, match=rf"{name}.*No such file.*; check the path"):
        find_recordings(tmp_path / name)


def test_nothing_to_play_is_an_error(tmp_path):
    """A directory without sound, no path at all, and a listing without recordings."""
    with pytest.raises(SourceError, match=r"no sound file.*; give"):
        find_recordings(tmp_path)
    with pytest.raises(SourceError, match="; name a file"):
        find_recordings([])
    with pytest.raises(SourceError, match="none of 0"):
        play(FileSource([]))


def test_names_that_do_not_fit_the_pattern_are_troubles(tmp_path):
    """The rest is played; if nothing fits that is an error."""
    write(tmp_path / "a_mic1.wav", ramp(10, 1))
    write(tmp_path / "other.wav", ramp(10, 1))
    played = play_path(tmp_path, pattern="{recording}_mic{sensor}.wav")
    assert complaints(played)[0][0] == "other.wav"
    assert played.only.started == RecordingStarted("a", RATE, ("1",))
    with pytest.raises(SourceError, match=r"none of the 2 files fits.*a_mic1\.wav"):
        find_recordings(tmp_path, pattern="{recording}-{sensor}.wav")


# One file per sensor


def write_sensors(folder, values, name="{recording}_mic{sensor}.wav", recording="a", numbers=None):
    for channel, number in enumerate(numbers or range(1, values.shape[1] + 1)):
        write(folder / name.format(recording=recording, sensor=number), values[:, channel])


def test_files_of_sensors_are_put_side_by_side(tmp_path):
    """Grouped by recording, sensors in natural order."""
    values = ramp(40000)
    write_sensors(tmp_path, values, recording="r10", numbers=[2, 9, 10, 11])
    write_sensors(tmp_path, values[:30], recording="r9", numbers=[2, 9, 10, 11])
    played = play_path(tmp_path, pattern="{recording}_mic{sensor}.wav")
    assert [t.started for t in played.recordings] == [
        RecordingStarted(name, RATE, ("2", "9", "10", "11")) for name in ("r9", "r10")
    ]
    assert not played.troubles
    np.testing.assert_array_equal(played.recordings[1].samples, floats(values))
    assert played.recordings[1].delivered.all()


def test_a_recording_without_a_name_is_called_like_its_directory(tmp_path):
    """A pattern may speak of sensors only."""
    folder = tmp_path / "site"
    folder.mkdir()
    write_sensors(folder, ramp(10), name="{sensor}.wav")
    assert play_path(folder, pattern="{sensor}.wav").only.started.recording == "site"


def test_a_missing_file_of_a_sensor_masks_it(tmp_path):
    """In that recording only, whose other sensors stay in their rows, and a trouble names the sensor."""
    for recording in "ab":
        write_sensors(tmp_path, ramp(100), recording=recording)
    (tmp_path / "a_mic2.wav").unlink()
    played = play_path(tmp_path, pattern="{recording}_mic{sensor}.wav")
    ((where, message),) = complaints(played)
    assert where == "a"
    assert "sensor 2" in message
    first, second = played.recordings
    assert first.delivered.all(axis=1).tolist() == [True, False, True, True]
    np.testing.assert_array_equal(first.samples[[0, 2, 3]], floats(ramp(100))[[0, 2, 3]])
    assert second.delivered.all()


def test_an_unreadable_file_of_a_sensor_masks_it(tmp_path):
    """The recording goes on with the others."""
    write_sensors(tmp_path, ramp(100))
    (tmp_path / "a_mic1.wav").write_bytes(b"no sound")
    played = play_path(tmp_path, pattern="{recording}_mic{sensor}.wav")
    assert [where for where, _ in complaints(played)] == ["a_mic1.wav"]
    assert played.only.delivered.any(axis=1).tolist() == [False, True, True, True]


@pytest.mark.parametrize("length", [1, READ_FRAMES - 1, READ_FRAMES, READ_FRAMES + 1])
def test_a_shorter_sensor_is_masked_after_its_end(tmp_path, length):
    """Exactly from its last sample on, and a trouble names its file."""
    values = ramp(READ_FRAMES + 500)
    write_sensors(tmp_path, values)
    write(tmp_path / "a_mic3.wav", values[:length, 2])
    played = play_path(tmp_path, pattern="{recording}_mic{sensor}.wav")
    assert [where for where, _ in complaints(played)] == ["a_mic3.wav"]
    assert f"ends after {length} samples" in complaints(played)[0][1]
    assert played.only.delivered.sum(axis=1).tolist() == [len(values), len(values), length, len(values)]
    np.testing.assert_array_equal(played.only.samples[2, :length], floats(values)[2, :length])


def test_sensors_of_several_channels_or_rates_are_troubles(tmp_path):
    """A file per sensor has one channel and the pipeline's rate."""
    write_sensors(tmp_path, ramp(100))
    write(tmp_path / "a_mic2.wav", ramp(100, 2))
    write(tmp_path / "a_mic3.wav", ramp(100, 1), 11025)
    played = play_path(tmp_path, pattern="{recording}_mic{sensor}.wav")
    assert [where for where, _ in complaints(played)] == ["a_mic2.wav", "a_mic3.wav"]
    assert played.only.delivered.all(axis=1).tolist() == [True, False, False, True]


def test_sensors_of_different_rates_are_resampled_together(tmp_path):
    """Each by its own ratio, all to the pipeline's length."""
    rates = [8000, 16000, 11025, 48000]
    for number, rate in enumerate(rates, start=1):
        write(
            tmp_path / f"a_mic{number}.wav", np.sin(2 * np.pi * 300 * np.arange(3 * rate) / rate), rate, subtype="FLOAT"
        )
    played = play_path(tmp_path, pattern="{recording}_mic{sensor}.wav", resample=True)
    assert not played.troubles
    truth = np.sin(2 * np.pi * 300 * np.arange(24000) / 8000)
    assert np.abs(played.only.samples - truth)[:, 500:-500].max() < 1e-3


def test_another_number_of_sensors_than_demanded_is_a_trouble(tmp_path):
    """Rows would otherwise change their meaning."""
    write_sensors(tmp_path, ramp(100))
    with FileSource(find_recordings(tmp_path, pattern="{recording}_mic{sensor}.wav"), n_sensors=3) as source:
        facts = iter(source)
        assert "has 4 sensors, the pipeline has 3;" in next(facts).message
        with pytest.raises(SourceError, match="none of 4 sound files"):
            next(facts)


# Pieces in time


def piece(folder, second, n, *, first, name="20260821_1000{:02d}.wav"):
    """Samples `first` to `first + n` of the ramp in a file that says it began at that second."""
    return write(folder / name.format(second), ramp(n, first=first))


def test_pieces_within_a_second_of_each_other_are_one(tmp_path):
    """Indices continue exactly, though names have whole seconds only."""
    piece(tmp_path, 0, 2 * RATE + 7000, first=0)
    piece(tmp_path, 2, RATE, first=2 * RATE + 7000)
    piece(tmp_path, 4, RATE, first=3 * RATE + 7000)
    played = play_path(tmp_path, pattern=TIMES)
    assert not played.troubles
    assert not played.only.gaps
    assert played.only.started == RecordingStarted(
        tmp_path.name, RATE, ("1", "2", "3", "4"), datetime(2026, 8, 21, 10, tzinfo=UTC)
    )
    np.testing.assert_array_equal(played.only.samples, floats(ramp(4 * RATE + 7000)))


def test_a_later_piece_comes_after_a_gap(tmp_path):
    """Its samples lie where its name says."""
    piece(tmp_path, 0, RATE, first=0)
    piece(tmp_path, 5, RATE, first=5 * RATE)
    timeline = play_path(tmp_path, pattern=TIMES).only
    assert timeline.gap_spans == [(RATE, 5 * RATE)]
    np.testing.assert_array_equal(timeline.samples[:, 5 * RATE :], floats(ramp(RATE, first=5 * RATE)))


def test_join_seconds_decides_what_is_a_gap(tmp_path):
    """A deviation of exactly join_seconds joins, one sample more does not."""
    piece(tmp_path, 0, RATE, first=0)
    piece(tmp_path, 3, RATE, first=RATE)
    assert not play_path(tmp_path, pattern=TIMES, join_seconds=2.0).only.gaps
    assert play_path(tmp_path, pattern=TIMES, join_seconds=2.0 - 1 / RATE).only.gap_spans == [(RATE, 3 * RATE)]


@pytest.mark.parametrize("n_second", [20000, 40000])
def test_what_overlaps_is_dropped(tmp_path, n_second):
    """Every sample is played once, and a trouble says how many were not."""
    piece(tmp_path, 0, 4 * RATE, first=0)
    piece(tmp_path, 1, n_second, first=RATE)
    played = play_path(tmp_path, pattern=TIMES)
    ((where, message),) = complaints(played)
    assert where == "20260821_100001.wav"
    assert f"{3 * RATE} samples" in message
    np.testing.assert_array_equal(played.only.samples, floats(ramp(max(4 * RATE, RATE + n_second))))


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_unreadable_piece_is_a_trouble_and_a_gap(tmp_path, bad):
    """Wherever it is, the others stay where they were; of the last the length is not known."""
    for number in range(3):
        piece(tmp_path, 2 * number, 2 * RATE, first=2 * number * RATE)
    (tmp_path / f"20260821_10000{2 * bad}.wav").write_bytes(b"no sound")
    played = play_path(tmp_path, pattern=TIMES)
    assert [where for where, _ in complaints(played)] == [f"20260821_10000{2 * bad}.wav"]
    timeline = played.only
    assert timeline.started.started_at == datetime(2026, 8, 21, 10, tzinfo=UTC)
    assert timeline.gap_spans == ([] if bad == 2 else [(2 * bad * RATE, 2 * (bad + 1) * RATE)])
    there = timeline.delivered.all(axis=0)
    np.testing.assert_array_equal(timeline.samples[:, there], floats(ramp(6 * RATE))[:, : timeline.stop][:, there])


def test_a_truncated_piece_leaves_a_gap_before_the_next(tmp_path):
    """The declared length counts, so the next piece still joins."""
    cut_off(piece(tmp_path, 0, 2 * RATE, first=0), 44 + 8 * 500)
    piece(tmp_path, 2, RATE, first=2 * RATE)
    timeline = play_path(tmp_path, pattern=TIMES).only
    assert timeline.gap_spans == [(500, 2 * RATE)]
    assert timeline.stop == 3 * RATE


def test_pieces_of_sensors_with_one_time_belong_together(tmp_path):
    """A continuous recording from one file per sensor and time; a missing one masks its sensor in that piece."""
    pattern = "mic{sensor}_{time:%Y%m%d_%H%M%S}.wav"
    for second in (0, 2):
        values = ramp(2 * RATE, first=second * RATE)
        for channel in range(4):
            write(tmp_path / f"mic{channel}_20260821_10000{second}.wav", values[:, channel])
    (tmp_path / "mic1_20260821_100002.wav").unlink()
    played = play_path(tmp_path, pattern=pattern)
    assert len(played.troubles) == 1
    expected = np.ones((4, 4 * RATE), bool)
    expected[1, 2 * RATE :] = False
    np.testing.assert_array_equal(played.only.delivered, expected)
    np.testing.assert_array_equal(played.only.samples[expected], floats(ramp(4 * RATE))[expected])


def test_pieces_of_named_recordings_are_kept_apart(tmp_path):
    """With recording and time in the pattern each recording has its own time axis."""
    for name in ("north", "south"):
        for second in (0, 1):
            piece(tmp_path, second, RATE, first=second * RATE, name=name + "_20260821_1000{:02d}.wav")
    played = play_path(tmp_path, pattern="{recording}_{time:%Y%m%d_%H%M%S}.wav")
    assert [(t.started.recording, t.stop) for t in played.recordings] == [("north", 2 * RATE), ("south", 2 * RATE)]


def test_pieces_of_another_rate_can_be_resampled(tmp_path):
    """Places are counted at the pipeline's rate."""
    piece(tmp_path, 0, RATE, first=0)
    write(tmp_path / "20260821_100005.wav", ramp(3 * RATE), 3 * RATE)
    timeline = play_path(tmp_path, pattern=TIMES, resample=True).only
    assert timeline.gap_spans == [(RATE, 5 * RATE)]
    assert timeline.stop == 6 * RATE


# Troubles


def make_text(path):
    path.write_text("this is not sound at all, whatever its name says\n" * 20)


def make_empty(path):
    path.touch()


def make_header_only(path):
    write(path, ramp(0))


def make_other_rate(path):
    write(path, ramp(100), 11025)


def make_other_channels(path):
    write(path, ramp(100, 2))


def make_dangling(path):
    path.symlink_to(path.parent / "nowhere")


def make_half_header(path):
    write(path, ramp(100))
    cut_off(path, 30)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_text, "not sound that can be read"),
        (make_empty, "0 bytes"),
        (make_header_only, "no samples"),
        (make_other_rate, "11025 samples per second, the pipeline has 8000; allow resampling"),
        (make_other_channels, "2 channels, here 4 must be"),
        (make_dangling, "No such file"),
        (make_half_header, "not sound that can be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_file_that_cannot_be_used_is_told_and_passed_over(tmp_path, make, message):
    """It gives a trouble by its name and no recording; those before and after it are whole."""
    write(tmp_path / "a.wav", ramp(100))
    make(tmp_path / "b.wav")
    write(tmp_path / "c.wav", ramp(50))
    played = play_path(tmp_path)
    ((where, told),) = complaints(played)
    assert where == "b.wav"
    assert message in told
    assert [(t.started.recording, t.stop) for t in played.recordings] == [("a", 100), ("c", 50)]


def test_a_file_that_may_not_be_read_is_told():
    """Also when the tests run as root, who may read everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "a.wav", ramp(100))
        write(folder / "b.wav", ramp(100)).chmod(0)
        folder.chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            played = play_path(folder)
        finally:
            os.seteuid(user)
    assert [where for where, _ in complaints(played)] == ["b.wav"]
    assert "Permission denied" in complaints(played)[0][1]


def test_raw_bytes_are_not_taken_for_sound(tmp_path):
    """libsndfile would read any bytes as telephone sound if the name ends in .au or .gsm."""
    write(tmp_path / "a.wav", ramp(100, 1), 8000)
    for name in ("b.au", "c.gsm", "d.raw"):
        (tmp_path / name).write_bytes(b"abc" * 100)
    played = play_path(sorted(tmp_path.iterdir()))
    assert [where for where, _ in complaints(played)] == ["b.au", "c.gsm", "d.raw"]
    assert played.only.started.recording == "a"


def test_rate_and_sensors_can_be_demanded(tmp_path):
    """Then the first file has no say."""
    write(tmp_path / "a.wav", ramp(100, 2), 44100)
    write(tmp_path / "b.wav", ramp(100, 3), 8000)
    assert play_path(tmp_path, rate_hz=8000, n_sensors=3).only.started.recording == "b"


def test_the_first_readable_recording_decides(tmp_path):
    """An unreadable first file does not."""
    make_text(tmp_path / "a.wav")
    write(tmp_path / "b.wav", ramp(100, 2), 11025)
    assert play_path(tmp_path).only.started == RecordingStarted("b", 11025, ("1", "2"))


def test_if_nothing_is_usable_that_is_an_error(tmp_path):
    """After all troubles, with the number of files and the first reason."""
    make_text(tmp_path / "a.wav")
    make_empty(tmp_path / "b.wav")
    with FileSource(find_recordings(tmp_path)) as source:
        facts = iter(source)
        assert [next(facts).where, next(facts).where] == ["a.wav", "b.wav"]
        with pytest.raises(SourceError, match=r"none of 2 sound files could be used; a\.wav is not sound"):
            next(facts)


@pytest.mark.parametrize(
    "options",
    [{"rate_hz": 0}, {"n_sensors": 0}, {"block_samples": 0}, {"join_seconds": -1.0}, {"join_seconds": np.nan}],
)
def test_settings_outside_their_range_are_refused(options):
    """The error names the setting and its value."""
    ((name, value),) = options.items()
    with pytest.raises(SettingsError, match=f"{name}={value} must be"):
        FileSource([], **options)


# Truncated and unfinished files


@pytest.mark.parametrize(
    ("name", "options", "present"),
    [
        ("b.wav", {}, 30000),
        ("b.wav", {"subtype": "FLOAT"}, 30000),
        ("b.wav", {"format": "WAVEX"}, 30000),
        ("b.aiff", {}, 30000),
        ("b.w64", {}, 30000),
        ("b.rf64", {}, 30000),
        ("b.au", {}, 30000),
        ("b.flac", {}, None),
    ],
    ids=lambda value: str(value),
)
def test_of_a_truncated_file_the_rest_is_a_gap(tmp_path, name, options, present):
    """What is readable is played, the gap reaches to the declared end, the next file follows."""
    values = np.random.default_rng(2).integers(-32768, 32768, (50000, 4)).astype(np.int16)
    path = write(tmp_path / name, values / 32768 if options.get("subtype") == "FLOAT" else values, **options)
    whole = path.stat().st_size
    frame = 16 if options.get("subtype") == "FLOAT" else 8
    cut_off(path, whole * 6 // 10 if present is None else whole - frame * (50000 - present) - 3 + frame)
    write(tmp_path / "c.wav", ramp(10))
    played = play_path(tmp_path)
    ((where, message),) = complaints(played)
    timeline = played.recordings[0]
    assert where == name
    ((begin, end),) = timeline.gap_spans
    assert "declares 50000 samples" in message
    assert f"first {begin} can" in message
    assert end == timeline.stop == 50000
    assert name in timeline.gaps[0].reason
    np.testing.assert_array_equal(timeline.samples[:, :begin], floats(values)[:, :begin])
    if present is not None:
        assert begin == present
    else:
        assert begin > 20000, "all whole frames of FLAC before the cut"
    assert played.recordings[1].stop == 10


def test_a_truncated_ogg_is_told(tmp_path):
    """Ogg declares no length, so there is no gap; that the last page is missing is a trouble."""
    path = write(tmp_path / "a.ogg", np.random.default_rng(8).uniform(-1, 1, 200000), 48000)
    cut_off(path, path.stat().st_size * 6 // 10)
    played = play_path(tmp_path)
    ((where, message),) = complaints(played)
    assert where == "a.ogg"
    assert "without its last page" in message
    assert 0 < played.only.stop < 200000
    assert not played.only.gaps


def test_a_truncated_mp3_is_told(tmp_path, capfd):
    """Its header declares the length; the decoder's own remarks on standard error are not ours."""
    path = write(tmp_path / "a.mp3", 0.5 * np.sin(np.arange(200000) / 20), 48000)
    cut_off(path, path.stat().st_size // 2)
    played = play_path(tmp_path)
    assert "declares 200000 samples" in complaints(played)[0][1]
    assert played.only.stop == 200000
    assert 80000 < played.only.gap_spans[0][0] < 120000


def test_an_mp3_that_does_not_tell_its_length_is_told(tmp_path):
    """libsndfile guesses from the first frames and reads no further, so its end may be missing."""
    path = write(tmp_path / "a.mp3", 0.5 * np.sin(np.arange(200000) / 20), 48000)
    path.write_bytes(path.read_bytes().replace(b"Xing", b"none").replace(b"Info", b"none"))
    played = play_path(tmp_path)
    ((where, message),) = complaints(played)
    assert where == "a.mp3"
    assert "does not tell its length" in message
    assert not played.only.gaps


@pytest.mark.parametrize("data_size", [0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], ids=hex)
def test_an_unfinished_wav_is_read_to_its_end(tmp_path, data_size):
    """Sizes that streaming writers put are no promise: everything is played, nothing is missing."""
    values = ramp(20000)
    (tmp_path / "a.wav").write_bytes(wav_bytes(values, data_size=data_size) + b"\1\2\3")
    played = play_path(tmp_path)
    assert not played.troubles
    np.testing.assert_array_equal(played.only.samples, floats(values))


def test_sox_rounds_its_unknown_size_to_whole_frames(tmp_path):
    """0x7FFFEFFC for three channels of 16 bits is no promise either."""
    (tmp_path / "a.wav").write_bytes(wav_bytes(ramp(100, 3), data_size=0x7FFFF000 // 6 * 6))
    played = play_path(tmp_path)
    assert not played.troubles
    assert played.only.stop == 100


def test_wav_of_a_writer_that_was_killed_is_read(tmp_path):
    """soundfile's own header says 0 samples until the file is closed."""
    script = """
import os, sys, numpy, soundfile
for name in ("a.wav", "b.rf64"):
    file = soundfile.SoundFile(os.path.join(sys.argv[1], name), "w", 8000, 4, subtype="PCM_16", format=name[2:].upper())
    file.write(numpy.full((5000, 4), 1000, numpy.int16))
    globals()[name] = file
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)
    played = play_path(tmp_path)
    assert not played.troubles
    assert [t.stop for t in played.recordings] == [5000, 5000]
    assert all((t.samples == np.float32(1000 / 32768)).all() for t in played.recordings)


def test_flac_that_declares_no_length_is_read_to_its_end(tmp_path):
    """As ffmpeg writes it into a pipe: the number of samples in its header is 0."""
    values = ramp(50000)
    path = write(tmp_path / "a.flac", values)
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)
    played = play_path(tmp_path)
    assert not played.troubles
    np.testing.assert_array_equal(played.only.samples, floats(values))


def test_a_flac_that_is_broken_inside_ends_there(tmp_path):
    """What comes before the damage is played exactly, the rest is a gap."""
    values = np.random.default_rng(3).integers(-2000, 2000, (50000, 4)).astype(np.int16)
    path = write(tmp_path / "a.flac", values)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path.write_bytes(data)
    played = play_path(tmp_path)
    ((begin, end),) = played.only.gap_spans
    assert end == 50000
    assert 20000 < begin < 30000
    np.testing.assert_array_equal(played.only.samples[:, :begin], floats(values)[:, :begin])
    assert len(played.troubles) == 1


def test_trailing_chunks_are_not_sound(tmp_path):
    """Python's wave module agrees on where the sound ends."""
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((4, 2, RATE, 0, "NONE", ""))
        file.writeframes(ramp(100).tobytes())
    with (tmp_path / "a.wav").open("ab") as file:
        file.write(b"LIST\x04\0\0\0INFO")
    np.testing.assert_array_equal(play_path(tmp_path).only.samples, floats(ramp(100)))


# Samples that are not numbers


def test_exactly_the_non_finite_samples_are_masked(tmp_path):
    """Of their sensor only; told once with the count and the first; where all sensors fail there is a gap."""
    values = np.random.default_rng(4).standard_normal((READ_FRAMES + 100, 4)).astype(np.float32)
    values[5, 2] = np.nan
    values[10:20, 0] = np.inf
    values[15:40, 1] = -np.inf
    values[READ_FRAMES - 3 : READ_FRAMES + 4] = np.nan
    write(tmp_path / "a.wav", values, subtype="FLOAT")
    played = play_path(tmp_path)
    ((where, message),) = complaints(played)
    assert where == "a.wav"
    assert f"{1 + 10 + 25 + 4 * 7} values" in message
    assert "sample 5 of channel 3" in message
    finite = np.isfinite(values.T)
    np.testing.assert_array_equal(played.only.delivered, finite)
    np.testing.assert_array_equal(played.only.samples, np.where(finite, values.T, 0))
    assert played.only.gap_spans == [(READ_FRAMES - 3, READ_FRAMES + 4)]


# Any blocks


@pytest.fixture(scope="module")
def difficult(tmp_path_factory):
    """A directory with pieces, gaps, overlaps, truncation, non-finite samples and several rates."""
    folder = tmp_path_factory.mktemp("difficult")
    rng = np.random.default_rng(5)
    for second, rate, n in [(0, 8000, 20000), (2, 11025, 30000), (9, 8000, 9000), (10, 16000, 50000)]:
        values = rng.standard_normal((n, 3)).astype(np.float32)
        values[n // 2 : n // 2 + 3, 1] = np.nan
        path = write(folder / f"20260821_1000{second:02d}.wav", values, rate, subtype="FLOAT")
        if second == 10:
            cut_off(path, path.stat().st_size - 12345)
    return folder


@settings(max_examples=10)
@given(block_samples=st.integers(50, 40000))
def test_any_block_length_gives_the_same_bits(difficult, block_samples):
    """Samples, masks and gaps do not depend on how the sound is cut, resampled or not."""
    for resample in (False, True):
        truth = play_path(difficult, pattern=TIMES, resample=resample)
        played = play_path(difficult, pattern=TIMES, resample=resample, block_samples=block_samples)
        np.testing.assert_array_equal(played.only.samples, truth.only.samples)
        np.testing.assert_array_equal(played.only.delivered, truth.only.delivered)
        assert played.only.gap_spans == truth.only.gap_spans
        assert played.troubles == truth.troubles


def test_a_second_iteration_begins_again(tmp_path):
    """And ends the first, of which no file stays open."""
    write(tmp_path / "a.wav", ramp(40000))
    with FileSource(find_recordings(tmp_path)) as source:
        first = iter(source)
        started = next(first)
        next(first)
        before = len(os.listdir("/proc/self/fd"))
        assert next(iter(source)) == started
        assert list(first) == []
    assert len(os.listdir("/proc/self/fd")) < before


def test_leaving_closes_the_files(tmp_path):
    """Even in the middle of an iteration that somebody still holds."""
    write(tmp_path / "a.wav", ramp(40000))
    before = len(os.listdir("/proc/self/fd"))
    with FileSource(find_recordings(tmp_path)) as source:
        facts = iter(source)
        next(facts), next(facts)
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(os.listdir("/proc/self/fd")) == before


# Resampling


@pytest.mark.parametrize(("old", "new"), [(48000, 16000), (44100, 16000), (8000, 44100), (16000, 48000), (96000, 8000)])
def test_a_resampled_sine_is_the_sine(tmp_path, old, new):
    """Away from the edges it equals the formula, at its own place: there is no delay."""
    frequencies = np.array([100.0, 440.0, 1000.0, 3000.0])
    phase = 2 * np.pi * frequencies / old * np.arange(2 * old)[:, None]
    write(tmp_path / "a.wav", 0.5 * np.sin(phase), old, subtype="FLOAT")
    timeline = play_path(tmp_path, rate_hz=new, resample=True).only
    assert timeline.stop == 2 * new
    truth = 0.5 * np.sin(2 * np.pi * frequencies[:, None] / new * np.arange(2 * new))
    edge = new // 10
    assert np.abs(timeline.samples - truth)[:, edge:-edge].max() < 1e-3
    assert timeline.delivered.all()


@settings(max_examples=40)
@given(
    n=st.integers(100, 40000),
    old=st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000, 96000]),
    new=st.sampled_from([8000, 12345, 16000, 44100, 48000]),
)
def test_the_resampled_length_is_rounded_to_the_nearest(tmp_path_factory, n, old, new):
    """Halves up, whatever the ratio."""
    folder = tmp_path_factory.mktemp("length")
    write(folder / "a.wav", ramp(n, 1), old)
    timeline = play_path(folder, rate_hz=new, resample=True).only
    assert timeline.stop == int(np.floor(n * new / old + 0.5)) == resampled_length(n, old_hz=old, new_hz=new)


@pytest.mark.parametrize(("old", "new"), [(48000, 16000), (16000, 44100), (44100, 16000)])
def test_masks_reach_as_far_as_the_filter(tmp_path, old, new):
    """What a non-finite sample could change by more than 1e-5 is masked, and not much more."""
    n = 3 * READ_FRAMES
    clean = np.random.default_rng(6).uniform(-1, 1, (n, 2)).astype(np.float32)
    holes = clean.copy()
    for position in (0, 5, READ_FRAMES - 1, READ_FRAMES + 40, 2 * READ_FRAMES, n - 1):
        holes[position, 1] = np.nan
    for name, values in (("clean", clean), ("holes", holes)):
        write(tmp_path / f"{name}.wav", values, old, subtype="FLOAT")
    whole, masked = play_path(tmp_path, rate_hz=new, resample=True).recordings
    assert masked.stop == whole.stop
    assert masked.delivered[0].all()
    good = masked.delivered[1]
    assert np.abs(masked.samples[1, good] - whole.samples[1, good]).max() < 1e-5
    assert (~good).sum() <= 6 * (2 * FILTER_REACH * max(1, new / old) + 3)
    hole_places = np.flatnonzero(np.isnan(holes[:, 1])) * new / old
    reach = FILTER_REACH * max(1, new / old)
    near = np.abs(np.arange(masked.stop)[:, None] - hole_places).min(axis=1) < reach - 1
    assert not good[near].any()


def test_a_truncated_length_is_resampled_too(tmp_path):
    """The gap reaches to the declared length at the new rate."""
    cut_off(write(tmp_path / "a.wav", ramp(48000), 48000), 44 + 8 * 30000)
    timeline = play_path(tmp_path, rate_hz=16000, resample=True).only
    assert timeline.gap_spans == [(10000, 16000)]


def test_a_path_may_be_text_and_given_to_the_source_at_once(tmp_path):
    """The obvious first try works."""
    write(tmp_path / "a.wav", ramp(50))
    for recordings in (
        str(tmp_path),
        tmp_path,
        find_recordings(str(tmp_path)),
        find_recordings([str(tmp_path / "a.wav")]),
    ):
        assert play(FileSource(recordings)).only.stop == 50
