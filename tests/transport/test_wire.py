"""A fact as a message is the same fact, to the bit; what is damaged, of another version, or a stranger's is refused."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.core.errors import SourceError
from pipeline.core.events import (
    Block,
    Gap,
    Idle,
    Notice,
    NoticeKind,
    Paced,
    RecordingEnded,
    RecordingStarted,
    SourceTrouble,
    Tick,
)
from pipeline.transport.wire import VERSION, Header, Parcel, WrongVersion, header, packed, travels, unpacked
from tests.stages.laws import bits

RNG = np.random.default_rng(0)
WHOLE = RNG.integers(-32768, 32768, (3, 50)) / np.float32(32768)
SOUNDS = {
    "16 bits": (WHOLE, "flac"),
    "one sample": (WHOLE[:, :1], "flac"),
    "one sensor": (WHOLE[:1], "flac"),
    "more sensors than FLAC has": (np.tile(WHOLE, (4, 1)), "s16"),
    "64 sensors": (np.tile(WHOLE[:1], (64, 1)), "s16"),
    "64 sensors between the steps": (np.tile(WHOLE[:1], (64, 1)) + np.float32(1e-6), "f32"),
    "full scale": (np.where(WHOLE > 0.9, np.float32(1), WHOLE), "f32"),
    "between the steps": (WHOLE + np.float32(1e-6), "f32"),
    "not finite": (
        np.where(WHOLE > 0.9, np.float32(np.nan), np.where(WHOLE < -0.9, np.float32(np.inf), WHOLE)),
        "f32",
    ),
    "beyond all measure": (WHOLE * np.float32(3e38), "f32"),
    "negative zero": (np.where(WHOLE > 0.9, np.float32(-0.0), WHOLE), "f32"),
}
COUNTS = st.integers(0, 2**53)
SECONDS = st.floats(0, 1e9)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
TIMES = st.none() | st.datetimes(timezones=st.just(UTC))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def recordings(n_sensors: int) -> st.SearchStrategy[RecordingStarted]:
    names = tuple(str(number) for number in range(1, n_sensors + 1))
    return st.builds(RecordingStarted, TEXTS, st.integers(1, 655_350), st.just(names), TIMES)


@st.composite
def spans(draw) -> tuple[int, int]:
    start = draw(COUNTS)
    return start, start + draw(st.integers(0, 2**31))


@st.composite
def blocks(draw, n_sensors: int) -> Block:
    """Any numbers at all, or 16-bit ones, of which some rows were not delivered."""
    shape = n_sensors, draw(st.integers(1, 20))
    anything = arrays(np.uint32, shape).map(lambda found: found.view(np.float32))
    whole = arrays(np.int16, shape).map(lambda found: found.astype(np.float32) / np.float32(32768))
    delivered = draw(arrays(np.bool_, n_sensors))
    return Block(draw(COUNTS), draw(st.one_of(whole, anything)), delivered)


@st.composite
def parcels(draw) -> Parcel:
    """Every kind of fact."""
    n_sensors = draw(st.sampled_from([1, 2, 4, 8, 9, 64]))
    recording = draw(recordings(n_sensors))
    start, stop = draw(spans())
    fact = draw(
        st.one_of(
            blocks(n_sensors),
            st.builds(Gap, st.just(start), st.just(stop), TEXTS, st.booleans()),
            st.builds(Tick, COUNTS, SECONDS),
            st.builds(Paced, COUNTS, SECONDS, COUNTS),
            st.builds(SourceTrouble, TEXTS, TEXTS),
            st.builds(
                Notice, st.sampled_from(NoticeKind), st.dictionaries(TEXTS, JSON, max_size=3), st.none() | COUNTS
            ),
            st.just(recording),
            st.builds(RecordingEnded, st.just(recording.recording), COUNTS),
        )
    )
    return Parcel(recording, draw(COUNTS), fact, draw(st.integers(1, 1000)), draw(st.none() | TEXTS))


def told(parcel: Parcel) -> object:
    """Every bit that means something: rows of sensors that did not deliver do not."""
    fact = parcel.fact
    if isinstance(fact, Block):
        fact = Block(fact.start, np.where(fact.delivered[:, None], fact.samples, np.float32(0)), fact.delivered)
    return bits(replace(parcel, fact=fact))


@settings(max_examples=300)
@given(parcels())
def test_every_kind_of_fact_arrives_as_it_was(parcel):
    assert travels(parcel.fact)
    assert told(unpacked(packed(parcel))) == told(parcel)


@pytest.mark.parametrize("name", SOUNDS)
def test_every_bit_arrives(name):
    """By each of the three ways, also if a sensor did not deliver."""
    sound, form = SOUNDS[name]
    samples = sound.astype(np.float32)
    recording = RecordingStarted("r", 16_000, tuple(map(str, range(len(samples)))))
    delivered = np.arange(len(samples)) != 1
    message = packed(Parcel(recording, 7, Block(30, samples, delivered)))
    assert header_of(message)["form"] == form
    arrived = unpacked(message)
    assert (arrived.recording, arrived.number, arrived.fact.start) == (recording, 7, 30)
    assert np.array_equal(arrived.fact.delivered, delivered)
    assert arrived.fact.samples[delivered].tobytes() == samples[delivered].tobytes()


def test_what_a_sensor_did_not_deliver_costs_nothing():
    """Whatever its row holds, the message is that of silence."""
    recording, heard = RecordingStarted("r", 4000, ("1", "2", "3")), np.array([True, False, True])
    rows = [np.where(heard[:, None], WHOLE, np.float32(noise)).astype(np.float32) for noise in (0, np.nan, -0.0, 0.3)]
    assert len({packed(Parcel(recording, 1, Block(0, samples, heard))) for samples in rows}) == 1


def test_what_does_not_travel_is_said():
    assert not travels(Idle())
    with pytest.raises(TypeError, match="Idle does not travel"):
        packed(Parcel(RecordingStarted("r", 4000, ("1",)), 0, Idle()))


SENT = Parcel(
    RecordingStarted("r", 4000, ("1", "2", "3"), datetime(2026, 1, 2, tzinfo=UTC)),
    7,
    Block(30, WHOLE.astype(np.float32), np.array([True, False, True])),
)


def test_damage_at_every_position_is_refused():
    """One bit or a whole byte, and at every length."""
    message = packed(SENT)
    for place in range(len(message)):
        for flipped in (0x01, 0x80, 0xFF):
            damaged = bytearray(message)
            damaged[place] ^= flipped
            with pytest.raises(SourceError, match=f"a message of {len(message)} bytes is damaged; check"):
                unpacked(bytes(damaged))
        with pytest.raises(SourceError, match="is damaged"):
            unpacked(message[:place])
    with pytest.raises(SourceError, match="is damaged"):
        unpacked(message + b"\0")


def sealed(rest: bytes) -> bytes:
    """With a check sum that is right."""
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def with_header(fields: object, body: bytes = b"") -> bytes:
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return sealed(len(text).to_bytes(4, "little") + text + body)


def header_of(message: bytes) -> dict:
    return json.loads(message[8 : 8 + int.from_bytes(message[4:8], "little")])


def body_of(message: bytes) -> bytes:
    return message[8 + int.from_bytes(message[4:8], "little") :]


@pytest.mark.parametrize("version", [VERSION + 1, 0, "1", None])
def test_another_version_is_told_as_such(version):
    """Whatever else is in it: nobody here can know what that means."""
    message = with_header(header_of(packed(SENT)) | {"version": version, "kind": "of tomorrow"})
    with pytest.raises(WrongVersion, match=f"version {version}, this gemmed knows {VERSION}; use the same gemmed"):
        unpacked(message)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_json_does_not_know_is_no_number(number):
    """Some libraries write it all the same; whoever tells it further could not."""
    notice = Parcel(SENT.recording, 3, Notice(NoticeKind.SOURCE_OPENED, {"seconds": 12345}, 7))
    message = packed(notice)
    text = json.dumps(header_of(message)).encode().replace(b"12345", number)
    with pytest.raises(SourceError, match=f"{number.decode()} is no number"):
        unpacked(with_header(text))


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=200).map(sealed), JSON.map(with_header), st.binary(max_size=60).map(with_header)))
def test_what_strangers_send_is_refused(message):
    """With a check sum that is right; never another exception."""
    with pytest.raises(SourceError):
        unpacked(message)


OURS = [
    packed(Parcel(SENT.recording, 3, fact))
    for fact in (
        SENT.fact,
        Block(30, WHOLE.astype(np.float32) + np.float32(1e-6), np.ones(3, np.bool_)),
        Gap(0, 20, "lost"),
        Tick(3, 1.0),
        Paced(3, 1.0, 4000),
        SourceTrouble("here", "that"),
        Notice(NoticeKind.SOURCE_OPENED, {"a": 1}, 3),
        SENT.recording,
        RecordingEnded("r", 20),
    )
]


@settings(max_examples=500)
@given(message=st.sampled_from(OURS), data=st.data())
def test_a_header_that_is_almost_ours_is_refused_or_of_the_right_types(message, data):
    """One value replaced by any other, or missing: nobody behind the door meets a number that is none."""
    ours = header_of(message)
    name = data.draw(st.sampled_from(sorted(ours)))
    changed = {**ours, name: data.draw(JSON)}
    if data.draw(st.booleans()):
        del changed[name]
    almost = with_header(changed, body_of(message))
    try:
        parcel = unpacked(almost)
    except SourceError:
        pass
    else:
        require_sound(parcel)
    try:
        told = header(almost)
    except SourceError:
        return
    require_placed(told)


def require_placed(told: Header) -> None:
    """Who looks for a place in the log by headers alone compares numbers, and nothing else."""
    assert told.fields["kind"] in {header_of(message)["kind"] for message in OURS}
    counted = [told.sample, *(told.fields.get(name) for name in ("start", "stop", "sample", "samples"))]
    assert all(one is None or (type(one) is int and one >= 0) for one in counted), counted
    if told.fields["kind"] in ("block", "gap"):
        assert told.fields["start"] <= told.fields["stop"]


def require_sound(parcel: Parcel) -> None:
    """As a source makes them."""
    recording, fact = parcel.recording, parcel.fact
    assert isinstance(recording.recording, str)
    assert all(isinstance(sensor, str) for sensor in recording.sensors)
    numbers = [recording.rate_hz - 1, parcel.number, parcel.stands_for - 1]
    if isinstance(fact, Block):
        assert fact.samples.shape[0] == len(fact.delivered) == len(recording.sensors)
        numbers.append(fact.start)
    elif isinstance(fact, Gap):
        assert isinstance(fact.reason, str)
        assert isinstance(fact.recorded, bool)
        numbers += [fact.start, fact.stop - fact.start]
    elif isinstance(fact, Tick):
        numbers.append(fact.sample)
        assert fact.waited_seconds >= 0
    elif isinstance(fact, Paced):
        numbers += [fact.sample, fact.samples]
        assert fact.seconds >= 0
    elif isinstance(fact, SourceTrouble):
        assert isinstance(fact.where, str)
        assert isinstance(fact.message, str)
    elif isinstance(fact, Notice):
        assert isinstance(fact.details, dict)
        numbers.append(fact.sample or 0)
    elif isinstance(fact, RecordingEnded):
        numbers.append(fact.samples)
    assert all(type(number) is int and number >= 0 for number in numbers), numbers


def test_a_bomb_is_refused():
    """A few bytes that unfold to more than a block can be."""
    fields, bomb = header_of(OURS[1]), zlib.compress(bytes(300_000_000), 9)
    with pytest.raises(SourceError, match="none of gemmed publish"):
        unpacked(with_header(fields, bomb))
    with pytest.raises(SourceError, match="25000000 samples of 3 sensors"):
        unpacked(with_header(fields | {"start": 0, "stop": 25_000_000}, bomb))


@pytest.mark.parametrize(("n_channels", "form"), [(8, "FLAC"), (3, "WAV"), (1, "FLAC")])
def test_sound_that_is_other_than_announced_is_refused_before_it_is_decoded(n_channels, form):
    """A message of one sensor could hold eight, and take eight times the memory."""
    import soundfile

    length, file = 1 << 20, BytesIO()
    soundfile.write(file, np.zeros((length, n_channels), np.int16), 16_000, subtype="PCM_16", format=form)
    fields = header_of(OURS[0]) | {"start": 0, "stop": length}
    message = with_header(fields, file.getvalue())
    tracemalloc.start()
    with pytest.raises(SourceError, match="instead of"):
        unpacked(message)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * length + 3 * len(message)
