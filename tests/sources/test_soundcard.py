"""Real recordings through PortAudio and ALSA, from a virtual sound card that plays what is written into a FIFO."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.core.errors import SettingsError, SourceError
from pipeline.core.events import Block, Gap, RecordingStarted, SourceTrouble, Tick
from pipeline.sources.soundcard import Device, SoundcardSource, _Arrival, _Capture, _Tape, choose, devices
from tests.conftest import TIMEOUT, component, library
from tests.sources.timeline import Played

ROOT = Path(__file__).parents[2]
RATE = 16000
# With four channels of 16 bits a period is 4096 bytes, the most that a pipe takes in one piece: if ALSA's file plugin
# found less than a period in it, it would fill the rest with old frames.
PERIOD = 512
# PortAudio insists on a default device.
CARDS = """
pcm.array {{ type file slave.pcm {{ type null }} file /dev/null infile {fifo} format raw }}
pcm.frail {{ type file slave.pcm {{ type null }} file {line} infile {fifo} format raw }}
pcm.stereo {{
    type multi
    slaves.a {{ pcm {{ type null }} channels 2 }}
    bindings {{ 0 {{ slave a channel 0 }} 1 {{ slave a channel 1 }} }}
}}
pcm.default {{ type null }}
"""


def numbered(n_periods, *, first=0):
    """int16 (time, 4): the index of a sample in two channels, and again upside down."""
    index = np.arange(first * PERIOD, (first + n_periods) * PERIOD)
    low, high = index % 65536, index // 65536
    return np.stack([low, high, 65535 - low, 65535 - high], axis=1).astype("<u2").view("<i2")


def floats(values):
    """What int16 samples must become, as (channels, time)."""
    return (values.T / 32768).astype(np.float32)


@dataclass
class Card:
    """The virtual sound card; while nothing is fed, its driver is stuck in reading."""

    path: Path
    opened: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self):
        self.fifo, self.line, self.conf = self.path / "fifo", self.path / "line", self.path / "asound.conf"
        for pipe in (self.fifo, self.line):
            os.mkfifo(pipe)
        # Opened for both, so that neither side ever waits for the other to open it.
        self.feed_end = os.open(self.fifo, os.O_RDWR)
        self.opened.callback(self.hang_up)
        self.line_end = os.open(self.line, os.O_RDONLY | os.O_NONBLOCK)
        self.opened.callback(self.unplug)
        self.configure(CARDS)

    def configure(self, text):
        self.conf.write_text(text.format(fifo=self.fifo, line=self.line))

    def feed(self, values):
        """Blocks while the pipe is full."""
        for start in range(0, len(values), PERIOD):
            os.write(self.feed_end, values[start : start + PERIOD].tobytes())

    def hang_up(self):
        """The driver is stuck no longer: it delivers nonsense, which nobody shall hear."""
        with suppress(OSError):
            os.close(self.feed_end)

    def unplug(self):
        """The frail card fails as soon as nobody is at the other end of its line."""
        with suppress(OSError):
            os.close(self.line_end)

    def run(self, *arguments):
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | {"ALSA_CONFIG_PATH": str(self.conf)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        watchdog = threading.Timer(30, process.kill)
        watchdog.start()
        for undo in (process.communicate, process.kill, watchdog.cancel):
            self.opened.callback(undo)
        return process

    def record(self, device="array", **options):
        chosen = {"rate_hz": RATE, "n_sensors": 4, "block_seconds": PERIOD / RATE, "tick_seconds": 0.1} | options
        return Recorder(self.run("-m", "tests.sources.capture", json.dumps({"device": device} | chosen)))

    def ask(self, expression, before=""):
        """What an expression over the module is worth in a process that has this card, and ends by itself."""
        code = f"import json; import pipeline.sources.soundcard as module; {before}\nprint(json.dumps({expression}))"
        process = self.run("-c", code)
        out, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0
        return json.loads(out)


class Recorder:
    """A process that records; its facts obey the law of all sources."""

    def __init__(self, process):
        self.process, self.played, self.errors = process, Played(), []

    def until(self, kind, times=1):
        """Hear facts until so many of a kind have come."""
        while times:
            told = json.loads(self.process.stdout.readline())
            times -= told["kind"] == kind
            self._add(**told)

    def _add(self, kind, **fields):
        if kind == "error":
            self.errors.append(fields["message"])
        elif kind == "Block":
            values = np.frombuffer(bytes.fromhex(fields["frames"]), "<i2").reshape(-1, 4)
            self.played.add(Block(fields["start"], floats(values), np.ones(4, np.bool_)))
        elif kind != "closed":
            fields |= {"sensors": tuple(fields["sensors"])} if "sensors" in fields else {}
            kinds = {one.__name__: one for one in (RecordingStarted, Gap, SourceTrouble, Tick)}
            self.played.add(kinds[kind](**fields))

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """It ends by itself, although its driver may be stuck."""
        self.until("closed")
        assert self.process.wait(timeout=TIMEOUT) == 0
        return self.played


@pytest.fixture
def card(tmp_path):
    library("portaudio", "libportaudio2")
    component("sounddevice")
    card = Card(tmp_path)
    with card.opened:
        yield card


# What is recorded


def test_every_bit_arrives(card):
    """Eight seconds of noise in all values that 16 bits have."""
    values = np.random.default_rng(0).integers(-32768, 32768, (250 * PERIOD, 4)).astype("<i2")
    recorder = card.record(samples=len(values), recording="roof")
    for start in range(0, len(values), 50 * PERIOD):
        card.feed(values[start : start + 50 * PERIOD])
        recorder.until("Block", 50)
    card.hang_up()
    played = recorder.end()
    assert played.only.started == RecordingStarted("roof", RATE, ("1", "2", "3", "4"))
    np.testing.assert_array_equal(played.only.samples, floats(values))
    assert not played.only.gaps
    assert not played.troubles


def test_a_stuck_device_is_noticed_and_left(card):
    """Ticks come while its thread hangs in the driver; it may go on later, and closing does not wait for it."""
    recorder = card.record(samples=4 * PERIOD)
    card.feed(numbered(2))
    recorder.until("Block", 2)
    recorder.until("Tick", 3)
    assert {tick.sample for tick in recorder.played.ticks[-3:]} == {2 * PERIOD}
    card.feed(numbered(2, first=2))
    played = recorder.end()
    np.testing.assert_array_equal(played.only.samples, floats(numbered(4)))
    during = [tick.waited_seconds for tick in played.ticks if tick.sample == 2 * PERIOD]
    assert all(later > earlier for earlier, later in pairwise(during))


def test_what_nobody_takes_is_dropped_and_counted(card):
    """The queue holds five seconds; after the gap every sample stands where it belongs."""
    recorder = card.record(samples=210 * PERIOD, hold=True)
    # The pipe holds 16 periods, so that at least 184 have been read when the last one is written.
    card.feed(numbered(200))
    recorder.go_on()
    recorder.until("Block", 156)
    card.feed(numbered(10, first=200))
    card.hang_up()
    played = recorder.end()
    assert played.only.stop == 210 * PERIOD
    truth = floats(numbered(210))
    for block in played.only.blocks:
        np.testing.assert_array_equal(block.samples, truth[:, block.start : block.stop])
    (begin, end), *_ = played.only.gap_spans
    assert begin == 156 * PERIOD
    assert end > begin
    lost = sum(stop - start for start, stop in played.only.gap_spans)
    assert lost + sum(block.samples.shape[1] for block in played.only.blocks) == 210 * PERIOD


def test_an_unplugged_device_ends_with_an_error(card):
    """PortAudio's stream dies; what it delivered before was heard."""
    recorder = card.record("frail", samples=10**6)
    card.feed(numbered(3))
    recorder.until("Block", 3)
    card.unplug()
    card.feed(numbered(5, first=3))
    played = recorder.end()
    (error,) = recorder.errors
    assert error.startswith(f"sound card 'frail' ended after {played.only.stop} samples")
    assert "plugged in" in error
    np.testing.assert_array_equal(played.only.samples, floats(numbered(8))[:, : played.only.stop])


def test_a_driver_that_hangs_in_opening_is_left(card):
    """ALSA opens a FIFO that nobody will ever write into."""
    os.mkfifo(card.path / "nobody")
    card.configure(CARDS.replace("{fifo}", str(card.path / "nobody")))
    attempt = """
module._OPEN_SECONDS = 0.5
try:
    module.probe("array", rate_hz=16000, n_sensors=4)
except module.SourceError as error:
    message = str(error)
"""
    assert card.ask("message", attempt).startswith("sound card 'array' did not answer within 0.5 s; unplug it")


def test_a_device_that_is_plugged_in_later_is_found(card):
    """PortAudio lists devices when it is loaded; a second attempt looks again."""
    card.configure("pcm.default {{ type null }}")
    recorder = card.record("arr", samples=PERIOD, attempts=2)
    recorder.until("error")
    assert recorder.errors[0].startswith("device='arr' is no sound card here; choose one of 0 'default'")
    card.configure(CARDS)
    recorder.go_on()
    card.feed(numbered(1))
    recorder.until("Block")
    card.hang_up()
    np.testing.assert_array_equal(recorder.end().only.samples, floats(numbered(1)))


@pytest.mark.parametrize(
    ("device", "options", "message"),
    [
        ("stereo", {}, "(ALSA, 2 channels) has fewer channels than the 4 sensors; choose another device or lower"),
        ("array", {"rate_hz": 3_000_000}, "rate_hz=3000000: Error opening RawInputStream: Invalid sample rate"),
        ("microphone", {}, "device='microphone' is no sound card here; choose one of 0 'array'"),
        (17, {}, "device=17 is no sound card here; choose one of 0 'array'"),
        ("R", {}, "device='R' fits 3 sound cards; give the index of one of 0 'array'"),
    ],
)
def test_a_device_that_cannot_serve(card, device, options, message):
    """Refused before anything is recorded."""
    recorder = card.record(device, samples=1, **options)
    assert not recorder.end().recordings
    assert message in recorder.errors[0]


def test_the_list_of_devices(card):
    """Only the names that our own configuration gives."""
    found = card.ask("[[device.name, device.channels, device.default] for device in module.devices()]")
    assert [name for name, _, _ in found] == ["array", "frail", "stereo", "default"]
    assert [default for _, _, default in found] == [False, False, False, True]
    assert found[2][1] == 2


def test_a_probe_tells_levels(card):
    """Half, a quarter and an eighth of full scale, and nothing: each six decibels below the one before."""
    sign = np.where(np.arange(PERIOD) % 2, 1, -1)[:, None]
    values = (sign * np.array([16384, 8192, 4096, 0])).astype("<i2")
    done = threading.Event()

    def feed():
        while not done.is_set():
            card.feed(values)

    feeder = threading.Thread(target=feed)
    feeder.start()
    expression = (
        "[(p := module.probe('array', rate_hz=16000, n_sensors=4)).levels_dbfs, p.seconds, p.device.name, p.rate_hz]"
    )
    levels, seconds, name, rate_hz = card.ask(expression)
    done.set()
    os.read(card.feed_end, 1 << 16)
    feeder.join()
    np.testing.assert_allclose(levels, [-6.0206, -12.0412, -18.0618, -math.inf], atol=1e-4)
    assert (seconds, name) == (0.5, "array")
    assert rate_hz > 0


# What the machine lacks


def test_without_the_package(monkeypatch):
    """The cure is its extra."""
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(SourceError, match=r"needs the package sounddevice; pip install 'gemmed\[live\]'"):
        devices()


def test_without_portaudio(tmp_path, monkeypatch):
    """The package is there, the library is not: it fails when it is imported."""
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with (
        pytest.raises(SourceError, match="needs PortAudio: PortAudio library not found; apt-get install libportaudio2"),
        SoundcardSource(rate_hz=RATE, n_sensors=4) as source,
    ):
        next(iter(source))


@pytest.mark.parametrize("name", ["rate_hz", "n_sensors", "block_seconds", "tick_seconds"])
def test_settings_have_a_least_value(name):
    with pytest.raises(SettingsError, match=f"{name}=0 must be at least"):
        SoundcardSource(**{"rate_hz": RATE, "n_sensors": 4} | {name: 0})


# Which device is meant


FOUND = [
    Device(0, "UMC404HD: USB Audio (hw:1,0)", "ALSA", 4, 48000, default=False),
    Device(3, "UMC404HD", "JACK", 4, 48000, default=False),
    Device(4, "default", "ALSA", 32, 44100, default=True),
]


@pytest.mark.parametrize(
    ("wanted", "index"), [(None, 4), (3, 3), ("UMC404HD", 3), ("usb audio", 0), ("hw:1,0", 0), ("DEFAULT", 4)]
)
def test_a_device_by_index_name_or_part_of_its_name(wanted, index):
    """A whole name wins over a part of one."""
    assert choose(FOUND, wanted).index == index


def test_no_device_at_all():
    with pytest.raises(SourceError, match="there is no default sound card; choose one of none at all, so plug one in"):
        choose([], None)


# What the device loses: ALSA's virtual devices never overflow, so PortAudio's words for it are put in here


def arrival(n, *, at, overflow=False, dropped=0):
    return _Arrival(np.zeros((n, 2), "<i2").tobytes(), n, at, overflow, dropped)


def played_tape(*arrivals):
    started = RecordingStarted("card", 1000, ("1", "2"))
    played, tape = Played(), _Tape(started)
    for fact in (started, *(fact for one in arrivals for fact in tape.take(one))):
        played.add(fact)
    return played


def test_a_gap_is_as_long_as_the_time_stamps_say():
    """100 samples end at 10.1 s, the next begin at 10.35 s: 250 are missing."""
    played = played_tape(arrival(100, at=10.0), arrival(100, at=10.35, overflow=True), arrival(100, at=10.45))
    assert played.only.gap_spans == [(100, 350)]
    assert played.only.stop == 550
    assert "lost about 250 samples before sample 350" in played.troubles[0].message


def test_what_was_dropped_is_not_lost_twice():
    """Of 250 missing samples we dropped 100 ourselves."""
    played = played_tape(arrival(100, at=10.0), arrival(100, at=10.35, overflow=True, dropped=100))
    assert [(gap.start, gap.stop) for gap in played.only.gaps] == [(100, 200), (200, 350)]


def test_an_overflow_without_time_is_one_sample():
    """Time stamps that stand still tell nothing, yet something was lost."""
    played = played_tape(arrival(100, at=0.0), arrival(100, at=0.0, overflow=True))
    assert played.only.gap_spans == [(100, 101)]


def test_what_was_lost_before_the_first_sample_is_no_gap():
    """The recording begins with what it has."""
    played = played_tape(arrival(100, at=5.0, overflow=True))
    assert not played.only.gaps
    assert not played.troubles


def test_an_overflow_in_what_was_dropped_is_not_forgotten():
    """The next sound that finds a place bears it."""
    capture = _Capture(None, 1000, 2, block_seconds=2.5)
    for number in range(4):
        times, status = SimpleNamespace(inputBufferAdcTime=2.5 * number), SimpleNamespace(input_overflow=number == 2)
        capture._take(bytes(10_000), 2500, times, status)
    assert [capture.next(0).overflow for _ in range(2)] == [False, False]
    capture._take(bytes(10_000), 2500, SimpleNamespace(inputBufferAdcTime=10.0), SimpleNamespace(input_overflow=False))
    heard = capture.next(0)
    assert (heard.overflow, heard.dropped_before, capture.dropped) == (True, 5000, 0)
