"""Facts of a source as messages between machines, each with all that somebody needs who missed those before it.

4 bytes  check sum of the rest
4 bytes  length of the header
header   JSON: version, recording, number, kind, numbers of the kind
body     samples, if it is sound: FLAC where they are 16-bit numbers of at most eight sensors, else compressed
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from struct import Struct
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import SourceError
from pipeline.core.events import (
    Block,
    Gap,
    Notice,
    NoticeKind,
    Paced,
    RecordingEnded,
    RecordingStarted,
    Samples,
    SourceTrouble,
    Tick,
)

VERSION = 1
_PREFIX = Struct("<II")
_FULL_SCALE = 32768.0
_MOST_FLAC_CHANNELS = 8
_FAST = 1
_NOMINAL_HZ = 16_000
"""What FLAC is told: it takes not every rate, and the header has the true one."""
_MOST = 1 << 63
_MOST_SAMPLES = 1 << 26
"""Of all sensors of a block: more than a broker takes in one message."""
_SAMPLES = ("start", "stop", "sample", "samples")
"""Fields that count samples."""
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class StreamNames:
    """The names under which a broker keeps what arrays send."""

    name: str = "gemmed"

    @property
    def stream(self) -> str:
        return f"{self.name}-sound"

    def subject(self, array: str) -> str:
        """Of one array; "*" for all."""
        return f"{self.name}.sound.{array}"


class WrongVersion(SourceError):
    """A message of another gemmed: later ones will be, too."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A fact on its way: which recording it belongs to, and its number there."""

    recording: RecordingStarted
    number: int
    fact: object
    stands_for: int = 1
    """So many facts: more than one if it is the gap that others left."""
    follows: str | None = None
    """The recording that was published before this one, by which it is missed if it never came."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a message says of itself; `fields` are those of its kind, too."""

    recording: RecordingStarted
    fields: Mapping[str, Any]
    body: bytes

    @property
    def sample(self) -> int | None:
        """Where in the recording it is; None if it could be anywhere."""
        if self.fields["kind"] == "started":
            return 0
        named = (self.fields.get(name) for name in ("start", "sample", "samples"))
        return next((sample for sample in named if sample is not None), None)


def packed(parcel: Parcel) -> bytes:
    """A message."""
    recording = parcel.recording
    kind, fields, body = _described(parcel.fact)
    header = {
        "version": VERSION,
        "recording": recording.recording,
        "rate_hz": recording.rate_hz,
        "sensors": recording.sensors,
        "started_at": recording.started_at.isoformat() if recording.started_at else None,
        "follows": parcel.follows,
        "number": parcel.number,
        "stands_for": parcel.stands_for,
        "kind": kind,
        **fields,
    }
    told = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    rest = len(told).to_bytes(4, "little") + told + body
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def unpacked(message: bytes) -> Parcel:
    """The fact in a message; a `SourceError` says why there is none."""
    return _read(message, _parcel)


def header(message: bytes) -> Header:
    """What a message is about, without the cost of decoding its sound; a `SourceError` as of `unpacked`."""
    return _read(message, _placed)


def _read(message: bytes, understood: Callable[[Header], Told]) -> Told:
    if len(message) < _PREFIX.size or zlib.crc32(message[4:]) != int.from_bytes(message[:4], "little"):
        raise SourceError(f"a message of {len(message)} bytes is damaged; check who else writes to this subject")
    try:
        return understood(_opened(message))
    except (LookupError, ValueError, TypeError, RuntimeError, OverflowError, zlib.error) as error:
        raise SourceError(f"a message of {len(message)} bytes is none of gemmed publish: {error}") from error


def _parcel(told: Header) -> Parcel:
    fields = told.fields
    fact = _READERS[fields["kind"]](fields, told.body, told.recording)
    follows = None if fields["follows"] is None else _text(fields, "follows")
    return Parcel(told.recording, _whole(fields, "number"), fact, _whole(fields, "stands_for", least=1), follows)


def _placed(told: Header) -> Header:
    """The same, if its kind and its samples can be used."""
    if told.fields["kind"] not in _READERS:
        raise _refused(told.fields, "kind")
    for name in _SAMPLES:
        if told.fields.get(name) is not None:
            _whole(told.fields, name)
    if told.fields["kind"] in ("block", "gap"):
        _span(told.fields)
    if told.fields["kind"] == "block":
        _delivered(told.fields, told.recording)
    return told


def _opened(message: bytes) -> Header:
    _, length = _PREFIX.unpack_from(message)
    fields = json.loads(message[_PREFIX.size : _PREFIX.size + length], parse_constant=_no_number)
    if fields["version"] != VERSION:
        raise WrongVersion(
            f"a message has the version {fields['version']}, this gemmed knows {VERSION}; use the same gemmed on both "
            "sides"
        )
    at = fields["started_at"]
    recording = RecordingStarted(
        _text(fields, "recording"),
        _whole(fields, "rate_hz", least=1),
        _sensors(fields),
        datetime.fromisoformat(at) if at else None,
    )
    return Header(recording, fields, message[_PREFIX.size + length :])


# Whoever may write to the subject may write anything; behind this door a number is one.


def _refused(told: Mapping[str, Any], name: str) -> ValueError:
    return ValueError(f"{name} = {told[name]!r:.100}")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _whole(told: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    found = told[name]
    if type(found) is not int or not least <= found < _MOST:
        raise _refused(told, name)
    return found


def _seconds(told: Mapping[str, Any], name: str) -> float:
    found = told[name]
    if type(found) not in (int, float) or not 0 <= found < _MOST:
        raise _refused(told, name)
    return float(found)


def _text(told: Mapping[str, Any], name: str) -> str:
    if not isinstance(told[name], str):
        raise _refused(told, name)
    return str(told[name])


def _truth(told: Mapping[str, Any], name: str) -> bool:
    if not isinstance(told[name], bool):
        raise _refused(told, name)
    return bool(told[name])


def _sensors(told: Mapping[str, Any]) -> tuple[str, ...]:
    found = told["sensors"]
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise _refused(told, "sensors")
    return tuple(found)


def _span(told: Mapping[str, Any]) -> tuple[int, int]:
    start = _whole(told, "start")
    return start, _whole(told, "stop", least=start)


def _described(fact: object) -> tuple[str, dict[str, Any], bytes]:
    """Kind, fields and body."""
    match fact:
        case Block():
            form, body = _encoded(fact)
            fields = {"start": fact.start, "stop": fact.stop, "delivered": fact.delivered.tolist(), "form": form}
            return "block", fields, body
        case Gap():
            return (
                "gap",
                {"start": fact.start, "stop": fact.stop, "reason": fact.reason, "recorded": fact.recorded},
                b"",
            )
        case Tick():
            return "tick", {"sample": fact.sample, "waited_seconds": fact.waited_seconds}, b""
        case Paced():
            return "paced", {"sample": fact.sample, "seconds": fact.seconds, "samples": fact.samples}, b""
        case SourceTrouble():
            return "trouble", {"where": fact.where, "message": fact.message}, b""
        case Notice():
            return "notice", {"told": str(fact.kind), "details": dict(fact.details), "sample": fact.sample}, b""
        case RecordingStarted():
            return "started", {}, b""
        case RecordingEnded():
            return "ended", {"samples": fact.samples}, b""
    raise TypeError(f"{type(fact).__name__} does not travel")


def travels(fact: object) -> bool:
    """Whether it can be sent."""
    return isinstance(fact, Block | Gap | Tick | Paced | SourceTrouble | Notice | RecordingStarted | RecordingEnded)


def _encoded(block: Block) -> tuple[str, bytes]:
    # What a sensor did not deliver has no meaning, and zeros cost nothing.
    samples = np.where(block.delivered[:, None], block.samples, np.float32(0))
    with np.errstate(invalid="ignore", over="ignore"):  # numbers of any size are stored as they are
        whole = samples * np.float32(_FULL_SCALE)
        rounded = np.clip(np.nan_to_num(whole), -_FULL_SCALE, _FULL_SCALE - 1).astype(np.int16)
    # By their bits: whole numbers have no negative zero.
    if not np.array_equal(rounded.astype(np.float32).view(np.int32), whole.view(np.int32)):
        return "f32", zlib.compress(samples.T.astype("<f4").tobytes(), _FAST)
    if len(samples) > _MOST_FLAC_CHANNELS:
        return "s16", zlib.compress(rounded.T.astype("<i2").tobytes(), _FAST)
    import soundfile

    file = BytesIO()
    soundfile.write(file, rounded.T, _NOMINAL_HZ, subtype="PCM_16", format="FLAC")
    return "flac", file.getvalue()


def _decoded(form: str, body: bytes, n_sensors: int, length: int) -> Samples:
    """So many samples, and no more: a few bytes could be made to unfold to more than there is memory."""
    if n_sensors * length > _MOST_SAMPLES:
        raise ValueError(f"{length} samples of {n_sensors} sensors")
    if form == "flac":
        samples = _played(body, n_sensors, length)
    elif form == "s16":
        samples = _unfolded(body, "<i2", n_sensors, length) / np.float32(_FULL_SCALE)
    elif form == "f32":
        samples = _unfolded(body, "<f4", n_sensors, length)
    else:
        raise ValueError(f"form = {form!r:.100}")
    if samples.shape != (length, n_sensors):
        raise ValueError(f"{samples.shape} samples and sensors instead of {(length, n_sensors)}")
    return np.ascontiguousarray(samples.T, np.float32)


def _played(body: bytes, n_sensors: int, length: int) -> NDArray[Any]:
    import soundfile

    with soundfile.SoundFile(BytesIO(body)) as file:
        held = (file.format, file.frames, file.channels)
        if held != ("FLAC", length, n_sensors):
            raise ValueError(f"{held} instead of {('FLAC', length, n_sensors)}")
        return np.asarray(file.read(dtype="float32", always_2d=True))


def _unfolded(body: bytes, kind: str, n_sensors: int, length: int) -> NDArray[Any]:
    size = n_sensors * length * np.dtype(kind).itemsize
    return np.frombuffer(zlib.decompressobj().decompress(body, size + 1), kind).reshape(-1, n_sensors)


def _block(told: Mapping[str, Any], body: bytes, recording: RecordingStarted) -> Block:
    (start, stop), delivered = _span(told), _delivered(told, recording)
    return Block(start, _decoded(told["form"], body, len(delivered), stop - start), np.array(delivered, np.bool_))


def _delivered(told: Mapping[str, Any], recording: RecordingStarted) -> list[bool]:
    found = told["delivered"]
    if not isinstance(found, list) or [type(one) for one in found] != [bool] * len(recording.sensors):
        raise _refused(told, "delivered")
    return found


def _notice(told: Mapping[str, Any], *_: object) -> Notice:
    if not isinstance(told["details"], dict):
        raise _refused(told, "details")
    return Notice(NoticeKind(told["told"]), told["details"], None if told["sample"] is None else _whole(told, "sample"))


_READERS: dict[str, Callable[[Mapping[str, Any], bytes, RecordingStarted], object]] = {
    "block": _block,
    "gap": lambda told, *_: Gap(*_span(told), _text(told, "reason"), _truth(told, "recorded")),
    "tick": lambda told, *_: Tick(_whole(told, "sample"), _seconds(told, "waited_seconds")),
    "paced": lambda told, *_: Paced(_whole(told, "sample"), _seconds(told, "seconds"), _whole(told, "samples")),
    "trouble": lambda told, *_: SourceTrouble(_text(told, "where"), _text(told, "message")),
    "notice": _notice,
    "started": lambda told, body, recording: recording,
    "ended": lambda told, body, recording: RecordingEnded(recording.recording, _whole(told, "samples")),
}
