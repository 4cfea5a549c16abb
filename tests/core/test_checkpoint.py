"""Values as bytes and back: every bit of them, nothing else, and no damage unnoticed."""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter, deque
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from pipeline.core import checkpoint
from pipeline.core.checkpoint import packed, restore, snapshot, unpacked, value
from pipeline.core.errors import StateError
from pipeline.core.events import Authority, FaultOpened, Span, TrustChanged
from pipeline.core.sensor_state import Cause, State


def bits(one: object) -> object:
    """Something that is equal only if kind, order and every bit are."""
    if isinstance(one, np.ndarray | np.generic):
        return type(one), one.dtype.str, one.shape, one.tobytes()
    if isinstance(one, float):
        return float, struct.pack("<d", one)
    if isinstance(one, dict):
        return type(one), [(bits(key), bits(item)) for key, item in one.items()]
    if isinstance(one, set | frozenset):
        return type(one), sorted(map(repr, map(bits, one)))
    if isinstance(one, list | tuple | deque):
        return type(one), getattr(one, "maxlen", None), [bits(item) for item in one]
    if is_dataclass(one):
        return type(one), [bits(getattr(one, field.name)) for field in fields(one)]
    return type(one), one


KEYS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.sampled_from([*Cause, *State, *Authority])
    | st.builds(Span, st.integers(), st.integers()),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
DTYPES = numpy_st.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc")
ARRAYS = numpy_st.arrays(DTYPES, numpy_st.array_shapes(min_dims=0, min_side=0, max_side=4))
VALUES = st.recursive(
    KEYS
    | st.binary().map(bytearray)
    | ARRAYS
    | DTYPES.flatmap(lambda dtype: numpy_st.arrays(dtype, ()).map(lambda a: a[()])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
        | st.builds(deque, st.lists(inner, max_size=4), st.none() | st.integers(4, 9))
        | st.dictionaries(KEYS, st.integers(), max_size=4).map(Counter)
        | st.builds(FaultOpened, st.integers(), st.integers(), st.integers(), st.sampled_from(Cause), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(VALUES)
def test_values_come_back_to_the_last_bit(content):
    """NaN with its sign, the order of a dictionary, the length of a deque; the same values are the same bytes."""
    data = packed(content)
    assert bits(unpacked(data)) == bits(content)
    assert packed(unpacked(data)) == data


@settings(max_examples=100)
@given(numpy_st.arrays(np.int16, (2, 50)), st.sampled_from([0.0, -0.0, 1e-6, np.nan, np.inf, 1.0, -1.0, 1 / 32768]))
def test_sound_comes_back_whatever_it_was_recorded_with(whole, odd):
    """16 bits, or anything else: the sign of a zero, full scale, what is no number."""
    sound = whole.astype(np.float32) / np.float32(32768)
    sound[1, 7] = odd
    assert bits(unpacked(packed(sound))) == bits(sound)


def test_sound_of_16_bits_needs_no_more_than_these():
    """Half of single precision, and less where it is quiet."""
    rng = np.random.default_rng(0)
    loud, quiet = (rng.normal(0, level, (4, 16_000)).astype(np.int16) / np.float32(32768) for level in (5000, 50))
    assert len(packed(loud)) < 2.02 * loud.size
    loud[:, ::100] = -0.0
    assert len(packed(loud)) < 2.02 * loud.size
    assert len(packed(quiet)) < 1.3 * quiet.size


@settings(max_examples=50)
@given(
    st.lists(
        st.builds(
            lambda seed, size, spread: np.random.default_rng(seed).integers(0, spread, size, np.int64),
            st.integers(0, 99), st.integers(0, 20_000), st.sampled_from([1, 2, 200, 2**40]),
        ), max_size=5,
    )
)  # fmt: skip
def test_large_arrays_among_small_ones_are_one_stream_of_zlib(arrays):
    """Noise as it is, the rest compressed: as any program unpacks it that knows nothing of the pieces."""
    data = packed(arrays)
    text = json.dumps(["list", [["array", "<i8", [len(one)], True] for one in arrays]], separators=(",", ":")).encode()
    planes = [bytes(one.tobytes()[byte::8]) for one in arrays for byte in range(8)]
    assert zlib.decompress(data[40:]) == struct.pack("<I", len(text)) + text + b"".join(planes)
    assert bits(unpacked(data)) == bits(arrays)


def test_noise_is_stored_as_it_is_and_all_else_gets_small():
    rng = np.random.default_rng(0)
    assert len(packed(rng.bytes(1) * 100_000)) < 5_000
    assert len(packed(rng.integers(0, 256, 100_000, np.uint8))) < 100_200
    assert len(packed(rng.integers(0, 256, 100_000, np.int64))) < 100_200 + 8 * 2_000
    assert len(packed(np.zeros((4, 50_000), bool))) < 1_000


def test_arrays_may_be_written_to_if_they_might_be_before():
    array = np.arange(3)
    frozen = TrustChanged(0, np.ones(2, bool))
    array_again, frozen_again = unpacked(packed([array, frozen]))
    array_again[0] = 7
    assert not frozen_again.trusted.flags.writeable


def sealed(text: object, arrays: bytes = b"", version: int = checkpoint.VERSION) -> bytes:
    """What somebody might write who knows the format."""
    told = json.dumps(text).encode()
    rest = zlib.compress(struct.pack("<I", len(told)) + told + arrays)
    return struct.pack("<6sH32s", b"GEMMED", version, sha256(rest).digest()) + rest


@pytest.mark.parametrize("place", [0, 3, 10, 39, 40, 60, -1])
def test_damage_is_seen(place):
    """One bit anywhere, or an end that is missing."""
    data = bytearray(packed({"a": np.arange(100.0), "b": "text"}))
    for short in (data[:place], data[: len(data) // 2]):
        with pytest.raises(StateError):
            unpacked(bytes(short))
    data[place] ^= 4
    with pytest.raises(StateError, match=r"damaged|no stored state|version"):
        unpacked(bytes(data))


def test_another_version_is_refused_by_name():
    with pytest.raises(StateError, match="has version 1, this program reads 2"):
        unpacked(sealed(None, version=1))


@pytest.mark.parametrize(
    "text",
    [
        ["value", "Path", [["x", 1]]],
        ["value", "subprocess.Popen", [["args", "true"]]],
        ["value", "Span", [["start", 1]]],
        ["value", "Span", [["start", 1], ["stop", 2], ["more", 3]]],
        ["word", "Cause", "no such word"],
        ["word", "Span", 1],
        ["eval", "1"],
        ["__class__"],
        ["array", "O", [1], True],
        ["array", "V8", [1], True],
        ["array", "<f8", [-1], True],
        ["array", "<f8", [10**30], True],
        ["array", "no type", [1], True],
        ["sound", [["array", "|u1", [0], True]], True],
        ["sound", [["list", []], None], True],
        ["set", [["list", []]]],
        ["tuple"],
        ["float", "00"],
        [],
        [[["list", []]]],
        {"a": ["float"]},
    ],
    ids=str,
)
def test_nothing_else_can_be_made_of_bytes(text):
    """What is not in the table, or not as it must be, is refused; what is no list stays plain JSON."""
    try:
        made = unpacked(sealed(text))
    except StateError:
        return
    assert type(made) is dict
    assert made == text


def test_more_than_it_says_is_refused():
    with pytest.raises(StateError, match="more than it says"):
        unpacked(sealed(None, b"more"))


def test_few_bytes_that_unfold_to_many_are_refused(monkeypatch):
    monkeypatch.setattr(checkpoint, "_MOST_BYTES", 1000)
    with pytest.raises(StateError, match="its end is missing"):
        unpacked(packed(np.zeros(1000)))


def test_what_nobody_allowed_is_not_stored():
    """Neither a function nor a class of the same name as one that is allowed."""

    @dataclass
    class Span:
        start: int = 0

    for one in (len, object(), Span(), np.array(["text"]), np.array([None])):
        with pytest.raises(StateError, match="cannot be stored"):
            packed([one])


def test_a_name_in_the_table_has_one_meaning():
    with pytest.raises(TypeError, match="a name of its own"):

        @value
        @dataclass
        class Span:
            start: int


class Part:
    remembers = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Whole:
    remembers = ("parts", "by_name", "late")

    def __init__(self, n_parts: int) -> None:
        self.parts = tuple(Part() for _ in range(n_parts))
        self.by_name = {"a": Part()}
        self.late: Part | None = None

    def prepare(self, state) -> None:
        if state["late"] is not None:
            self.late = Part()


def test_the_parts_of_a_whole_are_filled_where_they_are():
    """Also those in tuples and dictionaries, and those that are made on the way."""
    whole, other = Whole(2), Whole(2)
    whole.parts[1].count, whole.by_name["a"].count, whole.late = 3, 4, Part()
    parts = other.parts
    restore(other, snapshot(whole))
    assert all(one is before for one, before in zip(other.parts, parts, strict=True))
    assert (other.parts[1].count, other.by_name["a"].count, other.late.count) == (3, 4, 0)


@pytest.mark.parametrize("n_parts", [0, 1, 3])
def test_a_state_of_something_else_does_not_fit(n_parts):
    """More parts or fewer, or something of another kind."""
    with pytest.raises(StateError, match="another number of parts"):
        restore(Whole(2), snapshot(Whole(n_parts)))
    with pytest.raises(StateError, match="has Part in the place of Whole"):
        restore(Whole(2), snapshot(Part()))
    with pytest.raises(StateError, match="a value by itself"):
        restore(Whole(2), packed(None))
