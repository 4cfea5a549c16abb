"""PCM streams over real pipes and sockets. Samples carry their own index."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import SettingsError, SourceError
from pipeline.core.events import Block, RecordingStarted, SourceTrouble, Tick
from pipeline.sources.pcm import PcmSource, open_pcm
from tests.conftest import program
from tests.sources.timeline import Played, play

RATE = 8000
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
GUID_TAIL = bytes.fromhex("0000 0000 1000 8000 00aa 0038 9b71")


def ramp(n, channels=4):
    """int16 (time, channels): sample i of channel c is 4 i + c, wrapped."""
    index = 4 * np.arange(n)[:, None] + np.arange(channels)
    return (index % 65536 - 32768).astype("<i2")


def floats(values):
    """What int16 samples must become, as (channels, time)."""
    return (values.T / 32768).astype(np.float32)


def header(*, size, channels=4, rate=RATE, tag=PCM, bits=16, extensible=False, before=b"", magic=b"RIFF", riff=None):
    """A WAV header up to the first sample."""
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", EXTENSIBLE if extensible else tag, channels, rate, rate * frame, frame, bits)
    if extensible:
        fmt += struct.pack("<HHIH", 22, bits, 0x33, tag) + GUID_TAIL
    body = b"WAVE" + before + b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", size)
    return magic + struct.pack("<I", (len(body) + size) % 2**32 if riff is None else riff) + body


@contextmanager
def pipe_of(data):
    """The reading end of a pipe into which a thread writes and then closes it."""
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as stream, suppress(BrokenPipeError):
            stream.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reading, "rb", buffering=0) as stream:
        yield stream
    thread.join()


def play_bytes(data, **options):
    with pipe_of(data) as stream:
        return play(PcmSource(stream, **options))


def play_raw(data, **options):
    return play_bytes(data, **{"rate_hz": RATE, "n_sensors": 4} | options)


# Raw PCM


@pytest.mark.parametrize(
    ("sample_format", "values", "truth"),
    [
        ("s16le", struct.pack("<4h", -32768, -1, 1, 32767), [-1, -1 / 2**15, 1 / 2**15, 1 - 1 / 2**15]),
        (
            "s24le",
            b"\x00\x00\x80\xff\xff\xff\x01\x00\x00\xff\xff\x7f",
            [-1, -1 / 2**23, 1 / 2**23, 1 - 1 / 2**23],
        ),
        ("s32le", struct.pack("<4i", -(2**31), -(2**20), 1, 2**30), [-1, -1 / 2**11, 1 / 2**31, 0.5]),
        ("f32le", struct.pack("<4f", -1.5, 0.25, 1e-30, 0), [-1.5, 0.25, 1e-30, 0]),
    ],
)
def test_sample_formats(sample_format, values, truth):
    """Values computed by hand, in all four formats."""
    played = play_raw(values, sample_format=sample_format)
    np.testing.assert_array_equal(played.only.samples[:, 0], np.array(truth, np.float32))
    assert played.only.stop == 1


def test_facts_of_a_stream():
    """The recording is named and dated as asked, its sensors are called by channel."""
    time = datetime(2026, 8, 21, tzinfo=UTC)
    played = play_raw(ramp(5).tobytes(), recording="roof", started_at=time)
    assert played.only.started == RecordingStarted("roof", RATE, ("1", "2", "3", "4"), time)
    np.testing.assert_array_equal(played.only.samples, floats(ramp(5)))


@pytest.mark.parametrize("block_samples", [1, 7, 333, 10**6])
def test_any_block_length_gives_the_same(block_samples):
    """And none is longer than asked."""
    values = ramp(3000)
    played = play_raw(values.tobytes(), block_samples=block_samples)
    np.testing.assert_array_equal(played.only.samples, floats(values))
    assert all(block.samples.shape[1] <= block_samples for block in played.only.blocks)


STREAMS = {
    "raw": (ramp(40).tobytes(), {"rate_hz": RATE, "n_sensors": 4}),
    "odd": (ramp(40).tobytes() + b"xyz", {"rate_hz": RATE, "n_sensors": 4}),
    "wav": (header(size=320) + ramp(40).tobytes() + b"LIST\4\0\0\0INFO", {}),
    "open wav": (header(size=0xFFFFFFFF, extensible=True, before=b"JUNK\3\0\0\0abc\0") + ramp(40).tobytes(), {}),
    "short wav": (header(size=400) + ramp(40).tobytes(), {}),
    "almost wav": (b"RIFF\0\0\0\0WAVX" + ramp(40).tobytes()[12:], {"rate_hz": RATE, "n_sensors": 4}),
    "float": (
        np.where(np.arange(160) % 7 == 3, np.nan, np.arange(160)).astype("<f4").tobytes(),
        {"rate_hz": RATE, "n_sensors": 4, "sample_format": "f32le"},
    ),
}


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=25)
@given(cuts=st.sets(st.integers(1, 900), max_size=40))
def test_bytes_may_arrive_in_any_cuts(name, cuts):
    """Over a real socket, each piece awaited before the next is sent, the facts are those of one piece."""
    data, options = STREAMS[name]
    truth = play_bytes(data, **options)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    assert_same(play_pieces([data[a:b] for a, b in pairwise(edges)], **options), truth)


@pytest.mark.parametrize("name", STREAMS)
def test_bytes_may_arrive_one_at_a_time(name):
    """The finest of all cuts."""
    data, options = STREAMS[name]
    assert_same(play_pieces([bytes([byte]) for byte in data], **options), play_bytes(data, **options))


@pytest.mark.parametrize("name", STREAMS)
def test_what_trickles_in_is_gathered_and_none_of_it_lost(name):
    """Many small writes, all there before the first read: blocks end at multiples, the facts are those of one piece."""
    data, options = STREAMS[name]
    ours, theirs = socket.socketpair()
    played = Played()
    with ours, theirs, PcmSource(ours, gather_samples=5, **options) as source:
        writer = threading.Thread(target=lambda: [theirs.sendall(data[n : n + 3]) for n in range(0, len(data), 3)])
        writer.start()
        for fact in source:
            played.add(fact)
            if isinstance(fact, Tick):
                writer.join()
                theirs.shutdown(socket.SHUT_WR)
    writer.join()
    assert_same(played, play_bytes(data, **options))


def play_pieces(pieces, **options):
    """Send a piece whenever the source says that it waits."""
    ours, theirs = socket.socketpair()
    played, waiting = Played(), list(reversed(pieces))
    with ours, theirs, PcmSource(ours, tick_seconds=0.001, **options) as source:
        for fact in source:
            played.add(fact)
            if isinstance(fact, Tick) and waiting:
                theirs.sendall(waiting.pop())
            elif isinstance(fact, Tick):
                theirs.shutdown(socket.SHUT_WR)
    return played


def assert_same(played, truth):
    np.testing.assert_array_equal(played.only.samples, truth.only.samples)
    np.testing.assert_array_equal(played.only.delivered, truth.only.delivered)
    assert played.only.gap_spans == truth.only.gap_spans
    assert played.only.started == truth.only.started
    assert played.troubles == truth.troubles


def test_an_unfinished_frame_at_the_end_is_told():
    """With the number of its bytes; the frames before it are played."""
    played = play_raw(ramp(10).tobytes()[:-3])
    assert played.only.stop == 9
    assert "5 bytes of an unfinished frame" in played.troubles[0].message


@pytest.mark.parametrize("data", [b"RIF\0\0\0\0\0", b"RIFFabcd", b"RF64\1\2\3\4WAV\0\0\0\0\0"])
def test_samples_that_look_like_the_beginning_of_a_header_are_samples(data):
    """Also if the stream is shorter than a header."""
    played = play_raw(data)
    expected = np.frombuffer(data, "<i2").reshape(-1, 4)
    np.testing.assert_array_equal(played.only.samples, floats(expected))


def test_non_finite_samples_are_masked_and_told_once():
    """Of their sensor only, exactly; where all fail there is a gap."""
    values = np.random.default_rng(0).standard_normal((500, 4)).astype("<f4")
    values[100:110, 2] = np.nan
    values[105:107] = np.inf
    values[400, 0] = -np.inf
    played = play_raw(values.tobytes(), sample_format="f32le")
    finite = np.isfinite(values.T)
    np.testing.assert_array_equal(played.only.delivered, finite)
    np.testing.assert_array_equal(played.only.samples, np.where(finite, values.T, 0))
    assert played.only.gap_spans == [(105, 107)]
    (trouble,) = played.troubles
    assert "sample 100 of channel 3" in trouble.message


@pytest.mark.parametrize("missing", ["rate_hz", "n_sensors"])
def test_raw_sound_needs_rate_and_sensors(missing):
    """There is nothing that could tell them."""
    with pytest.raises(SettingsError, match=f"{missing} is not set.*; set {missing}"):
        play_raw(ramp(100).tobytes(), **{missing: None})


@pytest.mark.parametrize("data", [b"", b"abc", header(size=0xFFFFFFFF)])
def test_a_stream_without_a_sample_is_an_error(data):
    """The writer probably did not start."""
    with pytest.raises(SourceError, match=r"ended before its first sample; check"):
        play_raw(data)


@pytest.mark.parametrize(
    "options",
    [
        {"rate_hz": 0},
        {"n_sensors": -1},
        {"block_samples": 0},
        {"tick_seconds": 0},
        {"sample_format": "u8"},
    ],
    ids=str,
)
def test_settings_outside_their_range_are_refused(options):
    """The error names the setting and its value."""
    ((name, value),) = options.items()
    with pytest.raises(SettingsError, match=f"{name}={value!r}"):
        PcmSource(sys.__stdin__, **options)


# WAV headers


@pytest.mark.parametrize(
    ("writer", "head"),
    [
        ("arecord", header(size=0x80000000, riff=0x80000024)),
        ("older arecord", header(size=0x7FFFFFFF - 35, riff=0x7FFFFFFF)),
        (
            "sox",
            header(size=0x7FFFF000, extensible=True).replace(b"data", b"fact\4\0\0\0\0\xfe\xff\x0fdata"),
        ),
        (
            "ffmpeg",
            header(size=0xFFFFFFFF, riff=0xFFFFFFFF, extensible=True).replace(
                b"data", b"LIST\x1a\0\0\0INFOISFT\x0e\0\0\0Lavf59.27.100\0data"
            ),
        ),
        ("Python's wave, GStreamer", header(size=0, riff=36)),
        ("RF64", header(size=0xFFFFFFFF, riff=0xFFFFFFFF, magic=b"RF64", before=b"ds64\x1c\0\0\0" + bytes(28))),
    ],
)
def test_headers_of_writers_that_cannot_know_the_length(writer, head):
    """As they were seen in pipes: everything to the end of the stream is sound."""
    values = ramp(1000)
    played = play_bytes(head + values.tobytes())
    assert not played.troubles
    assert played.only.started == RecordingStarted("stream", RATE, ("1", "2", "3", "4"))
    np.testing.assert_array_equal(played.only.samples, floats(values))


@pytest.mark.parametrize(
    ("tag", "bits", "dtype"), [(PCM, 16, "<i2"), (PCM, 24, None), (PCM, 32, "<i4"), (FLOAT, 32, "<f4")]
)
@pytest.mark.parametrize("extensible", [False, True])
def test_formats_come_from_the_header(tag, bits, dtype, extensible):
    """Whatever sample_format says."""
    numbers = np.array([[1, 2], [-3, 4]])
    if dtype is None:
        data = b"".join(int(number).to_bytes(3, "little", signed=True) for number in numbers.flat)
    else:
        data = numbers.astype(dtype).tobytes()
    head = header(size=len(data), channels=2, tag=tag, bits=bits, extensible=extensible)
    played = play_bytes(head + data, sample_format="s16le" if bits != 16 else "f32le")
    scale = 1 if tag == FLOAT else 2 ** (bits - 1)
    np.testing.assert_array_equal(played.only.samples, (numbers.T / scale).astype(np.float32))


def test_an_honest_length_is_honoured():
    """Bytes after it are not sound; the source ends though the writer may go on."""
    values = ramp(100)
    played = play_bytes(header(size=800) + values.tobytes() + b"LIST" + bytes(10000))
    np.testing.assert_array_equal(played.only.samples, floats(values))
    assert not played.troubles


def test_rf64_tells_its_length_elsewhere():
    """In its ds64 chunk, since 32 bits are too few."""
    ds64 = b"ds64\x1c\0\0\0" + struct.pack("<QQQI", 2**33, 80, 10, 0)
    head = header(size=0xFFFFFFFF, magic=b"RF64", before=ds64)
    assert play_bytes(head + ramp(50).tobytes()).only.stop == 10


def test_a_stream_shorter_than_it_declares_ends_with_a_gap():
    """And a trouble says how much is missing."""
    played = play_bytes(header(size=800) + ramp(60).tobytes())
    assert played.only.gap_spans == [(60, 100)]
    assert "40 samples before the end" in played.troubles[0].message


@pytest.mark.parametrize(("name", "value", "found"), [("rate_hz", 16000, 8000), ("n_sensors", 2, 4)])
def test_a_header_that_contradicts_the_settings_is_an_error(name, value, found):
    """It names both values and what to do."""
    with pytest.raises(SourceError, match=rf"{name}={value} is set but .* says {found}; leave {name} out"):
        play_bytes(header(size=800) + ramp(100).tobytes(), **{name: value})


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (header(size=80)[:30], "ended within its WAV header"),
        (header(size=80, tag=7, bits=8), "format 7 with 8 bits"),
        (header(size=80, tag=FLOAT, bits=64), "format 3 with 64 bits"),
        (header(size=80, channels=0), "0 channels"),
        (header(size=80).replace(b"fmt ", b"junk"), "no fmt chunk"),
        (b"RIFF\0\0\0\0WAVEfmt \2\0\0\0\1\0data\0\0\0\0", "fmt chunk of 2 bytes"),
        (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xff" + bytes(2 << 20), "no sound in the first"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_headers_that_cannot_be_used_are_errors(data, fault):
    """Guessing would give noise; memory stays bounded."""
    with pytest.raises(SourceError, match=fault + r".*;"):
        play_bytes(data)


@pytest.mark.parametrize(
    "command",
    [
        "sox -q -V1 -n -r 8000 -c 4 -b 16 -t wav - synth 1 sine 440",
        "sox -q -V1 -n -r 8000 -c 4 -b 24 -t wav - synth 1 sine 440",
        "sox -q -V1 -n -r 8000 -c 4 -e float -b 32 -t wav - synth 1 sine 440",
        "ffmpeg -v error -f lavfi -i sine=440:duration=1:sample_rate=8000 -ac 4 -f wav -",
        "ffmpeg -v error -f lavfi -i sine=440:duration=1:sample_rate=8000 -ac 4 -c:a pcm_s24le -f wav -",
        "arecord -q -D null -f S16_LE -c 4 -r 8000 -s 8000 -t wav -",
    ],
)
def test_what_the_writers_really_write(command):
    """The programs themselves, where they are installed: one second of four channels, whatever their header says."""
    name, *arguments = command.split()
    process = subprocess.run([program(name), *arguments], check=True, capture_output=True)
    played = play_bytes(process.stdout)
    assert not played.troubles
    assert played.only.started == RecordingStarted("stream", 8000, ("1", "2", "3", "4"))
    assert played.only.stop == 8000


# Waiting


def test_silence_of_the_line_ticks_and_loses_nothing():
    """Ticks tell the next sample and a time that grows until something arrives, then begins again."""
    ours, theirs = socket.socketpair()
    values = ramp(20)
    seen = []
    with ours, theirs, PcmSource(ours, rate_hz=RATE, n_sensors=4, tick_seconds=0.002) as source:
        facts = iter(source)
        assert isinstance(next(facts), RecordingStarted)
        seen += [next(facts), next(facts), next(facts)]
        theirs.sendall(values[:10].tobytes() + b"\1")
        block = next(fact for fact in facts if isinstance(fact, Block))
        seen.append(next(facts))
        theirs.sendall(values[10:].tobytes()[1:])
        theirs.close()
        rest = list(facts)
    assert block.stop == 10
    assert [tick.sample for tick in seen] == [0, 0, 0, 10]
    waits = [tick.waited_seconds for tick in seen]
    assert waits[0] >= 0.002
    assert waits[1] - waits[0] >= 0.002
    assert waits[2] - waits[1] >= 0.002
    assert waits[3] >= 0.002
    assert sum(fact.samples.shape[1] for fact in rest if isinstance(fact, Block)) == 10


def test_what_has_arrived_is_given_at_once():
    """No block waits to be full, and without ticks nothing else comes."""
    ours, theirs = socket.socketpair()
    with ours, theirs, PcmSource(ours, rate_hz=RATE, n_sensors=4, tick_seconds=None) as source:
        facts = iter(source)
        next(facts)
        for _ in range(3):
            theirs.sendall(ramp(1).tobytes())
            assert next(facts).samples.shape[1] == 1


def test_a_slow_listener_makes_no_ticks():
    """If sound is there when the source is asked again, no time passed without sound."""
    ours, theirs = socket.socketpair()
    with ours, theirs, PcmSource(ours, rate_hz=RATE, n_sensors=4, tick_seconds=0.001) as source:
        theirs.sendall(ramp(10).tobytes())
        facts = iter(source)
        next(facts)
        subprocess.run([sys.executable, "-c", ""], check=True)  # takes much longer than a tick
        assert isinstance(next(facts), Block)


# Standard input and TCP

WRITER = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 100)"
READER = """
import sys
import numpy
from pipeline.core.events import Block
from pipeline.sources.pcm import open_pcm
with open_pcm("-", rate_hz=8000, n_sensors=4) as source:
    blocks = [fact.samples for fact in source if isinstance(fact, Block)]
sys.stdout.buffer.write(numpy.concatenate(blocks, axis=1).T.astype("<f4").tobytes())
assert not sys.stdin.buffer.closed
"""


def test_standard_input_of_a_process():
    """What one process writes another reads through a pipe, and standard input stays open."""
    with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE) as writer:
        reader = subprocess.run([sys.executable, "-c", READER], stdin=writer.stdout, capture_output=True, check=True)
    expected = np.frombuffer(bytes(range(256)) * 100, "<i2") / 32768
    np.testing.assert_array_equal(np.frombuffer(reader.stdout, "<f4"), expected.astype(np.float32))


def test_standard_input_may_be_a_file(tmp_path):
    """A file is always ready to be read."""
    path = tmp_path / "sound.raw"
    path.write_bytes(ramp(50000).tobytes())
    with path.open("rb") as stream:
        np.testing.assert_array_equal(
            play(PcmSource(stream, rate_hz=RATE, n_sensors=4)).only.samples, floats(ramp(50000))
        )


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def serve(listening, data):
    """Accept one connection, send and close."""

    def run():
        connection, _ = listening.accept()
        with connection:
            connection.sendall(data)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_connecting_over_tcp(server):
    """The other side listens."""
    values = ramp(100000)
    thread = serve(server, values.tobytes())
    played = play(open_pcm(f"tcp://127.0.0.1:{server.getsockname()[1]}", rate_hz=RATE, n_sensors=4))
    thread.join()
    np.testing.assert_array_equal(played.only.samples, floats(values))


@pytest.mark.parametrize("query", ["listen", "listen=1"])
def test_listening_over_tcp(query):
    """One caller is heard; a second finds the door closed; nothing stays open."""
    values = ramp(1000)
    before = len(os.listdir("/proc/self/fd"))
    with open_pcm(f"tcp://127.0.0.1:0?{query}", rate_hz=RATE, n_sensors=4, tick_seconds=0.002) as source:
        facts = iter(source)
        assert isinstance(next(facts), RecordingStarted)
        assert isinstance(next(facts), Tick), "nobody called yet"
        with socket.create_connection(("127.0.0.1", source.port)) as caller:
            caller.sendall(values.tobytes())
            first = next(fact for fact in facts if isinstance(fact, Block))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", source.port))
        rest = [fact for fact in facts if isinstance(fact, Block)]
    samples = np.concatenate([block.samples for block in [first, *rest]], axis=1)
    np.testing.assert_array_equal(samples, floats(values))
    assert len(os.listdir("/proc/self/fd")) == before


def test_leaving_early_closes_the_connection(server):
    """Also while somebody still holds the iterator."""
    before = len(os.listdir("/proc/self/fd"))
    with open_pcm(f"tcp://127.0.0.1:{server.getsockname()[1]}", rate_hz=RATE, n_sensors=4) as source:
        facts = iter(source)
        next(facts)
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(facts) == []


def test_a_refused_connection_is_an_error():
    """With the address and the cure."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(SourceError, match=rf"tcp://127.0.0.1:{port} .*refused; start the other side"):
        open_pcm(f"tcp://127.0.0.1:{port}", rate_hz=RATE, n_sensors=4)


def test_a_port_in_use_is_an_error(server):
    """With the address and the cure."""
    with pytest.raises(SourceError, match=r"in use.*; choose a free port"):
        open_pcm(f"tcp://127.0.0.1:{server.getsockname()[1]}?listen", rate_hz=RATE, n_sensors=4)


@pytest.mark.parametrize("read_before", [True, False])
def test_a_reset_connection_ends_the_stream_with_a_trouble(server, read_before):
    """All that arrived before it is played first, even if it had not yet been read."""
    with open_pcm(f"tcp://127.0.0.1:{server.getsockname()[1]}", rate_hz=RATE, n_sensors=4) as source:
        facts = iter(source)
        other, _ = server.accept()
        other.sendall(ramp(100).tobytes())
        received = [next(facts), next(facts)] if read_before else []
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        received += facts
    assert isinstance(received[-1], SourceTrouble)
    assert "reset" in received[-1].message
    assert received[-2].stop == 100


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:0?listen", "tcp://[::]:0?listen"])
def test_others_may_not_call_unless_allowed(address):
    """Listening beyond this machine is refused with the cure."""
    with pytest.raises(SettingsError, match=r"other machines.*; listen on 127.0.0.1 or allow"):
        open_pcm(address, rate_hz=RATE, n_sensors=4)


def test_others_may_call_if_allowed():
    """And the port is known."""
    with open_pcm("tcp://0.0.0.0:0?listen", rate_hz=RATE, n_sensors=4, allow_remote=True) as source:
        assert source.port


@pytest.mark.parametrize(
    "address",
    ["", "file.wav", "udp://127.0.0.1:9", "tcp://127.0.0.1", "tcp://:9000?listen", "tcp://h:x", "tcp://h:1?l"],
)
def test_addresses_that_are_none_are_refused(address):
    """The error shows the address and how one looks."""
    with pytest.raises(SettingsError, match=r"tcp://host:port\?listen"):
        open_pcm(address, rate_hz=RATE, n_sensors=4)


@pytest.mark.parametrize(("magic", "name"), [(b"fLaC", "FLAC"), (b"OggS", "Ogg")])
def test_compressed_sound_is_not_taken_for_pcm(magic, name):
    """It says what it is in its first four bytes; fewer of them may be anything."""
    with pytest.raises(SourceError, match=f"and so is {name}, not PCM; let sox or ffmpeg decode it"):
        play_raw(magic + bytes(100))
    assert play_raw(magic[:2], n_sensors=1).only.stop == 1
