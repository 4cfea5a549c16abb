"""Sound as a picture, against sines of which everything is known."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from pipeline.config.schema import read_settings
from pipeline.core.errors import NotFound
from pipeline.core.events import Block
from pipeline.storage.audio import AudioPart, AudioSpool, SoundStore, piece_end, raw_tail
from pipeline.storage.journal import Journal
from pipeline.web.audio import latest
from pipeline.web.dependencies import Context
from pipeline.web.live_audio import Listener
from pipeline.web.spectrogram import CEILING_DB, FLOOR_DB, N_BANDS, bands, columns

RATE = 8000


@pytest.fixture
def spool(tmp_path):
    made = AudioSpool(tmp_path, piece_seconds=60.0, finished=lambda part: None)
    made.begin("r", RATE)
    yield made
    made.finish()


def sine(hz: float, amplitude: float, seconds: float = 1.0) -> np.ndarray:
    return (amplitude * np.sin(2 * np.pi * hz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


@pytest.mark.parametrize("hz", [120.0, 500.0, 1000.0, 3000.0])
def test_a_tone_is_brightest_in_the_band_of_its_frequency(hz):
    made = columns(sine(hz, 0.1)[None], RATE)
    brightest = made[0].argmax(axis=1)
    centres = bands(RATE).edges_hz
    assert (abs(np.log(centres[brightest] / hz)) <= np.log(centres[1] / centres[0])).all()


def test_a_tone_that_fills_one_bin_of_one_band_has_its_level():
    """Low bands are a single bin wide; a sine of full scale there has 0 dB, one of a tenth 20 dB less."""
    hz = float(np.fft.rfftfreq(bands(RATE).length, 1 / RATE)[6])
    for amplitude, decibels in ((0.3, -10.46), (0.01, -40.0), (0.0001, -80.0)):
        byte = columns(sine(hz, amplitude)[None], RATE)[0].max()
        shown = FLOOR_DB + int(byte) * (CEILING_DB - FLOOR_DB) / 255
        # A band may share its bin with its neighbour, which takes at most half of it.
        assert decibels - 3.3 <= shown <= decibels + 0.3


def test_silence_is_black_and_every_column_has_every_band():
    made = columns(np.zeros((2, RATE), np.float32), RATE)
    assert made.shape == (2, 19, N_BANDS)
    assert not made.any()
    assert columns(np.zeros((2, 10), np.float32), RATE).shape == (2, 0, N_BANDS)


def test_a_click_is_seen_when_it_happens():
    sound = np.zeros((1, RATE), np.float32)
    sound[0, 4000] = 1.0
    bright = np.flatnonzero(columns(sound, RATE)[0].max(axis=1))
    hop = bands(RATE).hop
    assert all(column * hop <= 4000 < (column + 2) * hop for column in bright)
    assert len(bright)


def test_what_is_being_written_is_seen_as_the_whole_is(tmp_path, spool):
    """Columns that come piece by piece are those of the sound as a whole."""
    rng = np.random.default_rng(0)
    sound = np.rint(3000 * rng.standard_normal((3, 6 * RATE))).clip(-32768, 32767).astype(np.float32) / 32768
    listener, found = Listener(tmp_path), []
    for start in range(0, sound.shape[1], 3000):
        spool.write(Block(start, sound[:, start : start + 3000], np.ones(3, np.bool_)))
        if (told := listener.heard("r", RATE, 3)) is not None:
            data = np.frombuffer(base64.b64decode(told["data"]), np.uint8).reshape(3, -1, N_BANDS)
            found.append((told["start_sample"] // told["hop"], data))
    assert found[0][0] == 0
    expected = columns(sound, RATE)
    for first, data in found:
        assert (data == expected[:, first : first + data.shape[1]]).all()
    assert sum(data.shape[1] for _, data in found) == expected.shape[1]


def test_pieces_that_end_meanwhile_leave_no_gap(tmp_path):
    """Raw, or finished and only then looked for: every column is told once."""
    rng = np.random.default_rng(1)
    sound = np.rint(3000 * rng.standard_normal((2, 6 * RATE))).astype(np.float32) / 32768
    listener, found, turn = Listener(tmp_path), [], iter(range(100))
    with Journal(tmp_path / "journal.sqlite") as journal:
        store = SoundStore(tmp_path, journal)
        spool = AudioSpool(
            tmp_path, piece_seconds=0.5, finished=lambda part: store.keep(part) if next(turn) % 2 else None
        )
        spool.begin("r", RATE)
        for start in range(0, sound.shape[1], 3000):
            spool.write(Block(start, sound[:, start : start + 3000], np.ones(2, np.bool_)))
            if (told := listener.heard("r", RATE, 2)) is not None:
                found.append(np.frombuffer(base64.b64decode(told["data"]), np.uint8).reshape(2, -1, N_BANDS))
        spool.finish()
    told = np.concatenate(found, axis=1)
    assert (told == columns(sound, RATE)[:, : told.shape[1]]).all()
    assert told.shape[1] > 100


def test_the_tail_tells_who_delivered_and_only_what_is_new(tmp_path, spool):
    spool.write(Block(0, np.full((2, 100), 0.25, np.float32), np.array([True, False])))
    first, samples, delivered = raw_tail(tmp_path / "r", 2, after=None, most=1000)
    assert (first, delivered) == (0, (True, False))
    assert (samples[0] == 0.25).all()
    assert raw_tail(tmp_path / "r", 2, after=100, most=1000) is None
    assert raw_tail(tmp_path / "r", 2, after=40, most=10)[0] == 90
    assert raw_tail(tmp_path / "nothing", 2, after=None, most=10) is None


def test_of_a_piece_that_is_damaged_there_is_no_end(tmp_path):
    (tmp_path / "000000000000.flac").write_bytes(b"no sound at all")
    assert piece_end(tmp_path, 2, 10, 20) is None


@pytest.mark.parametrize("n_stored", [3, 2])
def test_the_last_seconds_are_those_of_the_whole_sound(tmp_path, n_stored):
    """Pieces that are stored, one that is finished but perhaps not stored yet, and one that is being written."""
    rng = np.random.default_rng(2)
    sound = np.rint(3000 * rng.standard_normal((2, 6 * RATE + 1234))).clip(-32768, 32767).astype(np.float32) / 32768
    config = tmp_path / "gemmed.toml"
    config.write_text(f'[storage]\ndirectory = "{tmp_path}"\n[source]\nkind = "pcm"\n')
    context = Context(read_settings(config))
    with Journal(context.state.journal) as journal:
        journal.execute(
            "INSERT INTO recordings (name, run, rate_hz, sensors, choices, started_at) VALUES ('r', '', ?, 2, '', '')",
            (RATE,),
        )
        parts: list[AudioPart] = []
        spool = AudioSpool(context.state.sound, piece_seconds=2.0, finished=parts.append)
        spool.begin("r", RATE)
        for start in range(0, sound.shape[1], 1000):
            spool.write(Block(start, sound[:, start : start + 1000], np.ones(2, np.bool_)))
        for part in parts[:n_stored]:
            SoundStore(context.state.sound, journal).keep(part)
    context.live.tell({"status": {"recording": "r"}, "last_id": 0})
    found = latest(context, 5)
    spool.finish()
    hop = bands(RATE).hop
    assert len(parts) == 4
    assert (found.start % hop, found.missing) == (0, [])
    assert found.start + found.samples.shape[1] == sound.shape[1]
    assert 5 * RATE - hop < found.samples.shape[1] <= 5 * RATE
    assert (found.samples == sound[:, found.start :]).all()


def test_before_the_first_sound_there_are_no_last_seconds(tmp_path):
    config = tmp_path / "gemmed.toml"
    config.write_text(f'[storage]\ndirectory = "{tmp_path}"\n[source]\nkind = "pcm"\n')
    with pytest.raises(NotFound, match="nothing has been recorded yet"):
        latest(Context(read_settings(config)), 5)
