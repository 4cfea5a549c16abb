"""The state of stages as bytes, and back into newly made ones, which then go on to the last bit.

Whoever has a state names the attributes that hold it in `remembers`. What comes from a model or from settings is not
among them: it is there already where the state is put. Bytes are data and never code: only what stands in a table of
this program can be made of them.

A stored state is `GEMMED`, the version (two bytes), the SHA-256 of the rest, and the rest, compressed: the length of a
text (four bytes), the text in JSON, and the arrays it speaks of, one behind the other.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from itertools import groupby
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.core import events, sensor_state
from pipeline.core.errors import StateError

VERSION = 2
_MAGIC = b"GEMMED"
_HEAD = struct.Struct("<6sH32s")
_MOST_BYTES = 1 << 28
"""A few bytes could be made to unfold to more than there is memory."""
_LARGE_BYTES, _WORTHWHILE = 4096, 0.85
_FOR_TEXT, _FOR_RUNS, _AS_IT_IS = (1, zlib.Z_DEFAULT_STRATEGY), (1, zlib.Z_RLE), (0, zlib.Z_DEFAULT_STRATEGY)
_ZLIB_HEAD, _ZLIB_END = b"\x78\x01", b"\x03\x00"
"""Of a stream whose pieces were packed by themselves: before them, and the last one, which is empty."""
_COLLECTIONS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple, "list": list, "set": set, "frozenset": frozenset, "dict": dict, "counter": Counter,
}  # fmt: skip
_NAMES: dict[Any, str] = {made: name for name, made in _COLLECTIONS.items()}
_CANNOT_BE = (
    zlib.error, struct.error, LookupError, TypeError, ValueError, OverflowError, AttributeError, RecursionError,
)  # fmt: skip
_FULL_SCALE = np.float32(32768)
_LEAST_SOUND = 64
"""Numbers in an array that is worth the question whether it is sound."""

Class = TypeVar("Class", bound=type)

_WORDS: dict[str, type[Enum]] = {
    one.__name__: one
    for one in (
        sensor_state.State, sensor_state.Liveness, sensor_state.Cause, sensor_state.Pattern, events.Authority,
        events.Role,
    )
}  # fmt: skip
_VALUES: dict[str, Any] = {
    one.__name__: one
    for one in (
        events.Span, events.Labelled, events.Paced, events.TrustChanged, events.FaultOpened, events.FaultClosed,
        events.StateChanged,
    )
}  # fmt: skip


def value(kind: Class) -> Class:
    """Let instances of a dataclass be stored: nothing but its fields makes them what they are."""
    if not is_dataclass(kind) or kind.__name__ in _VALUES:
        raise TypeError(f"{kind.__name__} must be a dataclass with a name of its own")
    _VALUES[kind.__name__] = kind
    return kind


class Taken(dict[str, Any]):
    """What something remembers, by the names of its attributes."""

    def __init__(self, kind: str, remembered: dict[str, Any]) -> None:
        super().__init__(remembered)
        self.kind = kind


def snapshot(thing: object) -> bytes:
    """What something remembers, all that it consists of included."""
    return packed(taken(thing))


def restore(thing: object, data: bytes) -> None:
    """Put a snapshot into something newly made with the same settings; if it fails, the thing is of no use."""
    state = unpacked(data)
    _require(isinstance(state, Taken), "it is a value by itself")
    put(thing, state)


def taken(thing: Any) -> Any:
    """What something remembers, as values."""
    if hasattr(type(thing), "remembers"):
        return Taken(type(thing).__name__, {name: taken(getattr(thing, name)) for name in thing.remembers})
    if type(thing) in (list, tuple):
        return type(thing)(map(taken, thing))
    if type(thing) is dict:
        return {key: taken(one) for key, one in thing.items()}
    return thing


def put(thing: Any, state: Any) -> Any:
    """What an attribute must be: the thing that is there, with its state put into it, or a plain value.

    Something that is made only on the way must be made first: its owner does so in `prepare`.
    """
    if isinstance(state, Taken):
        _fill(thing, state)
        return thing
    if type(state) in (list, tuple) and (_has_parts(state) or _has_parts(thing)):
        _require(type(thing) is type(state) and len(thing) == len(state), "it has another number of parts")
        return type(state)(map(put, thing, state))
    if type(state) is dict and _has_parts(state.values()):
        _require(type(thing) is dict and thing.keys() == state.keys(), "it has other parts")
        return {key: put(thing[key], one) for key, one in state.items()}
    return state


def _has_parts(things: Any) -> bool:
    """Whether some of them remember something by themselves."""
    return isinstance(things, Iterable) and any(
        isinstance(one, Taken) or hasattr(type(one), "remembers") for one in things
    )


def _fill(thing: Any, state: Taken) -> None:
    _require(type(thing).__name__ == state.kind, f"it has {state.kind} in the place of {type(thing).__name__}")
    _require(tuple(state) == thing.remembers, f"its {state.kind} remembers other things")
    if hasattr(thing, "prepare"):
        thing.prepare(state)
    for name, one in state.items():
        setattr(thing, name, put(getattr(thing, name, None), one))


def _require(fits: bool, otherwise: str) -> None:
    if not fits:
        raise StateError(f"stored state does not fit: {otherwise}; it needs the program and the settings it is from")


def packed(content: Any) -> bytes:
    """Values as bytes, the same for the same values."""
    packing = _Packing()
    text = json.dumps(packing.told(content), separators=(",", ":")).encode()
    rest = _compressed(struct.pack("<I", len(text)) + text, packing.arrays)
    return _HEAD.pack(_MAGIC, VERSION, sha256(rest).digest()) + rest


def unpacked(data: bytes) -> Any:
    """The values; whatever is damaged, or not of this version, is refused."""
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise StateError(f"{len(data)} bytes are no stored state; begin anew without it")
    _, version, digest = _HEAD.unpack_from(data)
    if version != VERSION:
        raise StateError(f"stored state has version {version}, this program reads {VERSION}; begin anew without it")
    rest = data[_HEAD.size :]
    if sha256(rest).digest() != digest:
        raise StateError("stored state is damaged; take an earlier one, or begin anew without it")
    try:
        return _Unpacking(rest).content()
    except _CANNOT_BE as error:
        raise StateError(f"stored state has something that cannot be: {error}; begin anew without it") from error


def _compressed(text: bytes, arrays: list[bytes]) -> bytes:
    """All one behind the other, as one stream of zlib: small arrays together, large ones by themselves.

    Most large ones are sound: noise in the lower bytes, which never gets smaller and is stored as it is, and long runs
    in the upper ones.
    """
    stream, check = [_ZLIB_HEAD, _deflated(text, *_FOR_TEXT)], zlib.adler32(text)
    for is_large, group in groupby(arrays, lambda part: len(part) >= _LARGE_BYTES):
        for part in group if is_large else [b"".join(group)]:
            stream.append(_deflated(part, *_suitable(part) if is_large else _FOR_TEXT))
            check = zlib.adler32(part, check)
    return b"".join([*stream, _ZLIB_END, check.to_bytes(4, "big")])


def _cut(planes: bytes, length: int) -> list[bytes]:
    """Large planes by themselves."""
    return [planes[at : at + length] for at in range(0, len(planes), length)] if length >= _LARGE_BYTES else [planes]


def _suitable(part: bytes) -> tuple[int, int]:
    """Level and strategy for a large part, by some of its bytes."""
    some = part[:: len(part) // _LARGE_BYTES]
    return _FOR_RUNS if len(_deflated(some, *_FOR_RUNS)) < _WORTHWHILE * len(some) else _AS_IT_IS


def _deflated(part: bytes, level: int, strategy: int) -> bytes:
    """A piece of a stream that refers to nothing before it."""
    packing = zlib.compressobj(level, wbits=-zlib.MAX_WBITS, strategy=strategy)
    return packing.compress(part) + packing.flush(zlib.Z_FULL_FLUSH)


class _Packing:
    """JSON knows nothing, truth, whole numbers and text; all else is a list that begins with what it is."""

    def __init__(self) -> None:
        self.arrays: list[bytes] = []

    def told(self, one: Any) -> Any:
        kind = type(one)
        if one is None or kind in (bool, int, str):
            return one
        if kind is float:
            return ["float", struct.pack("<d", one).hex()]
        if kind in (bytes, bytearray):
            return [kind.__name__, one.hex()]
        if kind is np.ndarray:
            return self._array(one)
        if isinstance(one, np.generic):
            _check_numbers(one.dtype)
            return ["scalar", one.dtype.str, one.tobytes().hex()]
        if kind is deque:
            return ["deque", [self.told(item) for item in one], one.maxlen]
        if kind in _NAMES:
            return [_NAMES[kind], self._items(one)]
        return self._of_ours(one, kind.__name__)

    def _items(self, collection: Any) -> list[Any]:
        if isinstance(collection, dict):
            return [[self.told(key), self.told(item)] for key, item in collection.items()]
        if isinstance(collection, set | frozenset):  # its order is one of chance
            collection = sorted(collection, key=lambda item: json.dumps(_Packing().told(item)))
        return [self.told(item) for item in collection]

    def _of_ours(self, one: Any, name: str) -> Any:
        if isinstance(one, Taken):
            return ["taken", one.kind, [[key, self.told(item)] for key, item in one.items()]]
        if _WORDS.get(name) is type(one):
            return ["word", name, one.value]
        if _VALUES.get(name) is type(one):
            return ["value", name, [[field.name, self.told(getattr(one, field.name))] for field in fields(one)]]
        raise StateError(f"{name} cannot be stored: it is not in the table of what can")

    def _array(self, array: NDArray[Any]) -> list[Any]:
        _check_numbers(array.dtype)
        writeable, whole = bool(array.flags.writeable), _as_whole_numbers(array)
        if whole is not None:
            return ["sound", [self._array(part) for part in whole], writeable]
        # The first bytes of all numbers, then the second ones: like beside like is half as large.
        planes = np.frombuffer(array.tobytes(), np.uint8).reshape(-1, array.itemsize).T.tobytes()
        self.arrays += _cut(planes, len(planes) // array.itemsize)
        return ["array", array.dtype.str, list(array.shape), writeable]


class _Unpacking:
    def __init__(self, rest: bytes) -> None:
        unfolding = zlib.decompressobj()
        self._data = unfolding.decompress(rest, _MOST_BYTES)
        if not unfolding.eof:
            raise ValueError("its end is missing")
        (length,) = struct.unpack_from("<I", self._data)
        self._text, self._place = self._data[4 : 4 + length], 4 + length
        self._makers: dict[str, Callable[..., Any]] = {
            "float": lambda packed: struct.unpack("<d", bytes.fromhex(packed))[0],
            "bytes": bytes.fromhex,
            "bytearray": bytearray.fromhex,
            "array": self._array,
            "sound": self._sound,
            "scalar": _scalar,
            "deque": lambda items, maxlen: deque(map(self._made, items), maxlen),
            "taken": lambda kind, items: Taken(kind, self._named(items)),
            "word": lambda name, word: _WORDS[name](word),
            "value": self._value,
        }

    def content(self) -> Any:
        content = self._made(json.loads(self._text))
        if self._place != len(self._data):
            raise ValueError("there is more than it says")
        return content

    def _made(self, told: Any) -> Any:
        if not isinstance(told, list):
            return told
        kind, *rest = told
        if kind in _COLLECTIONS:
            (items,) = rest
            pairs = kind in ("dict", "counter")
            made = ((self._made(key), self._made(item)) for key, item in items) if pairs else map(self._made, items)
            return _COLLECTIONS[kind](dict(made) if pairs else made)
        return self._makers[kind](*rest)

    def _named(self, items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: self._made(item) for name, item in items}

    def _value(self, name: str, items: list[tuple[str, Any]]) -> Any:
        kind, given = _VALUES[name], self._named(items)
        if list(given) != [field.name for field in fields(kind)]:
            raise ValueError(f"{name} has other fields")
        return kind(**given)

    def _sound(self, parts: list[Any], writeable: bool) -> NDArray[Any]:
        sound = _as_sound(*map(self._made, parts))
        sound.flags.writeable = writeable
        return sound

    def _array(self, dtype: str, shape: list[int], writeable: bool) -> NDArray[Any]:
        kind = _numbers(dtype)
        size = prod(shape) * kind.itemsize
        if min(shape, default=0) < 0:
            raise ValueError(f"an array has the shape {shape}")
        planes = np.frombuffer(self._data, np.uint8, size, self._place).reshape(kind.itemsize, -1)
        self._place += size
        array = np.frombuffer(bytearray(planes.T.tobytes()), kind).reshape(shape)
        array.flags.writeable = writeable
        return array


def _scalar(dtype: str, packed: str) -> Any:
    return np.frombuffer(bytes.fromhex(packed), _numbers(dtype), count=1)[0]


def _numbers(dtype: str) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    _check_numbers(kind)
    return kind


def _check_numbers(kind: np.dtype[Any]) -> None:
    if kind.kind not in "biufc":
        raise StateError(f"an array of {kind} cannot be stored: it does not hold numbers")


def _as_whole_numbers(sound: NDArray[Any]) -> tuple[NDArray[np.int16], NDArray[np.uint8]] | None:
    """Sound of 16 bits in half the space, and which of its zeros are negative; None if it is of anything else."""
    if (
        sound.dtype != np.float32
        or not sound.ndim
        or sound.size < _LEAST_SOUND
        or not ((sound >= -1) & (sound < 1)).all()
    ):
        return None
    whole = (sound * _FULL_SCALE).astype(np.int16)
    negative = np.packbits((whole == 0) & np.signbit(sound))
    return (whole, negative) if _as_sound(whole, negative).tobytes() == sound.tobytes() else None


def _as_sound(whole: NDArray[np.int16], negative: NDArray[np.uint8]) -> NDArray[np.float32]:
    sound = whole.astype(np.float32) / _FULL_SCALE
    sound[np.unpackbits(negative, count=whole.size).reshape(whole.shape).astype(np.bool_)] = -0.0
    return sound
