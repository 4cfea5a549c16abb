"""All sensors of an array on one sound card, through PortAudio."""

from __future__ import annotations

import atexit
import math
import queue
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Thread
from typing import Any, Self, TypeVar

import numpy as np

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, Gap, RecordingStarted, SourceTrouble, Tick
from pipeline.sources._chunks import channel_names, require
from pipeline.sources._wav import decode

T = TypeVar("T")

_FORMAT = "s16le"
_QUEUE_SECONDS = 5.0
_OPEN_SECONDS = 10.0
_CLOSE_SECONDS = 2.0

# Looking for new devices would close every stream of this process, so it is done only while there is none.
_open_streams: set[Any] = set()


@dataclass(frozen=True, slots=True)
class Device:
    """Something to record from; a name may occur twice, an index only once."""

    index: int
    name: str
    driver: str
    channels: int
    usual_rate_hz: int
    default: bool

    def __str__(self) -> str:
        return f"{self.index} {self.name!r} ({self.driver}, {self.channels} channels)"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a device delivered when it was tried."""

    device: Device
    seconds: float
    n_sensors: int
    rate_hz: float | None
    """As measured by the device's time stamps, None if these do not move."""
    levels_dbfs: tuple[float, ...]
    """Of each sensor, minus infinity where nothing moves."""


class SoundcardSource:
    """Records one device until it is closed; while nothing arrives it yields a `Tick` every `tick_seconds`.

    The device is named by its index, its name or any part of its name that no other has; None is the default. PortAudio
    calls from a thread of its own, which only fills a queue of a few seconds: a driver that hangs in it, or in opening
    and closing, hangs nobody else. What does not fit into the queue is dropped and becomes a gap of as many samples.
    Where the device itself lost samples, the gap is as long as its time stamps say, and at least one sample.
    """

    def __init__(
        self,
        device: str | int | None = None,
        *,
        rate_hz: int,
        n_sensors: int,
        recording: str = "soundcard",
        started_at: datetime | None = None,
        block_seconds: float = 0.1,
        tick_seconds: float = 1.0,
    ) -> None:
        require("rate_hz", rate_hz, least=1)
        require("n_sensors", n_sensors, least=1)
        require("block_seconds", block_seconds, least=0.001)
        require("tick_seconds", tick_seconds, least=0.001)
        self._capture = _Capture(device, rate_hz, n_sensors, block_seconds)
        self._started = RecordingStarted(recording, rate_hz, channel_names(n_sensors), started_at)
        self._tape = _Tape(self._started)
        self._tick_seconds = tick_seconds
        self._facts = self._play()

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[object]:
        return self._facts

    def __exit__(self, *exc: object) -> None:
        self._facts.close()

    def _play(self) -> Generator[object, None, None]:
        with self._capture as capture:
            yield self._started
            arrived_at = time.monotonic()
            while True:
                arrival = capture.next(self._tick_seconds)
                if arrival is not None:
                    arrived_at = time.monotonic()
                    yield from self._tape.take(arrival)
                elif capture.active:
                    yield Tick(self._tape.position, time.monotonic() - arrived_at)
                else:
                    yield from self._tape.drop(capture.dropped)
                    raise SourceError(
                        f"sound card {capture.device} ended after {self._tape.position} samples, a device must go on "
                        "for ever; check that it is plugged in and that nothing else uses it"
                    )


def devices() -> list[Device]:
    """All devices that one can record from."""
    return _within(_OPEN_SECONDS, _devices, "the list of sound cards")


def probe(device: str | int | None = None, *, rate_hz: int, n_sensors: int, seconds: float = 0.5) -> Probe:
    """Really record for a moment; a `SourceError` says why it cannot be done."""
    with _Capture(device, rate_hz, n_sensors, block_seconds=seconds / 10) as capture:
        arrivals = list(_fetch(capture, round(seconds * rate_hz)))
        samples = decode(b"".join(arrival.data for arrival in arrivals), _FORMAT, n_sensors)
        passed = arrivals[-1].adc_seconds - arrivals[0].adc_seconds
        before_last = samples.shape[1] - arrivals[-1].frames
        power = np.square(samples, dtype=np.float64).mean(axis=1).tolist()
        return Probe(
            device=capture.found,
            seconds=samples.shape[1] / rate_hz,
            n_sensors=n_sensors,
            rate_hz=before_last / passed if passed > 0 else None,
            levels_dbfs=tuple(10 * math.log10(value) if value else -math.inf for value in power),
        )


def _fetch(capture: _Capture, n_samples: int) -> Iterator[_Arrival]:
    while n_samples > 0:
        arrival = capture.next(_OPEN_SECONDS)
        if arrival is None:
            raise SourceError(
                f"sound card {capture.device} was opened but delivered nothing for {_OPEN_SECONDS:g} s; "
                "unplug it and plug it in again, or restart what feeds it"
            )
        n_samples -= arrival.frames
        yield arrival


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Sound as PortAudio hands it over."""

    data: bytes
    frames: int
    adc_seconds: float  # when its first sample was taken
    overflow: bool  # the device lost something before it
    dropped_before: int  # so many samples found no place in the queue


class _Tape:
    """Arrivals become blocks and gaps that tile the time of the recording; `position` is its next sample."""

    def __init__(self, started: RecordingStarted) -> None:
        self.position = 0
        self._name, self._rate_hz, self._n_sensors = started.recording, started.rate_hz, len(started.sensors)
        self._due_seconds: float | None = None

    def take(self, arrival: _Arrival) -> Iterator[Block | Gap | SourceTrouble]:
        yield from self.drop(arrival.dropped_before)
        if arrival.overflow and self._due_seconds is not None:
            missing_seconds = arrival.adc_seconds - self._due_seconds
            yield from self._lose(max(1, round(missing_seconds * self._rate_hz) - arrival.dropped_before))
        samples = decode(arrival.data, _FORMAT, self._n_sensors)
        yield Block(self.position, samples, np.ones(self._n_sensors, np.bool_))
        self.position += arrival.frames
        self._due_seconds = arrival.adc_seconds + arrival.frames / self._rate_hz

    def drop(self, length: int) -> Iterator[Gap]:
        """So many samples arrived and found no place."""
        if length:
            yield self._gap(length, "arrived faster than it was taken")

    def _lose(self, length: int) -> Iterator[Gap | SourceTrouble]:
        message = (
            f"lost about {length} samples before sample {self.position + length}, since nobody fetched them in time; "
            "give this machine less to do, or the blocks more seconds"
        )
        yield SourceTrouble(self._name, message)
        yield self._gap(length, "the sound card lost samples")

    def _gap(self, length: int, reason: str) -> Gap:
        start = self.position
        self.position += length
        return Gap(start, self.position, reason)


class _Capture:
    """An open device and the queue that its thread fills."""

    def __init__(self, device: str | int | None, rate_hz: int, n_sensors: int, block_seconds: float) -> None:
        self.device = "default" if device is None else repr(device)
        self.found: Device  # known once it is open
        self.dropped = 0
        self._wanted, self._rate_hz, self._n_sensors = device, rate_hz, n_sensors
        self._block_samples = max(1, round(block_seconds * rate_hz))
        self._overflow = False
        self._queue: queue.Queue[_Arrival] = queue.Queue(max(2, round(_QUEUE_SECONDS / block_seconds)))
        self._stream: Any = None

    def __enter__(self) -> Self:
        self._stream = _within(_OPEN_SECONDS, self._open, f"sound card {self.device}", undo=_close)
        # At exit sounddevice would wait for a driver that hangs, and for ever; the system cleans up as well.
        atexit.unregister(_sounddevice()._exit_handler)
        return self

    def __exit__(self, *exc: object) -> None:
        stream = self._stream
        # A driver that hangs stays behind in a thread of its own.
        with suppress(SourceError):
            _within(_CLOSE_SECONDS, lambda: _close(stream), f"sound card {self.device}")

    @property
    def active(self) -> bool:
        return bool(self._stream.active)

    def next(self, patience_seconds: float) -> _Arrival | None:
        try:
            return self._queue.get(timeout=patience_seconds)
        except queue.Empty:
            return None

    def _open(self) -> Any:
        self.found = found = _find(self._wanted)
        if found.channels < self._n_sensors:
            raise SourceError(
                f"sound card {found} has fewer channels than the {self._n_sensors} sensors; "
                "choose another device or lower n_sensors"
            )
        sounddevice = _sounddevice()
        stream = None
        try:
            stream = sounddevice.RawInputStream(
                device=found.index,
                samplerate=self._rate_hz,
                channels=self._n_sensors,
                dtype="int16",
                blocksize=self._block_samples,
                callback=self._take,
            )
            _open_streams.add(stream)
            stream.start()
        except sounddevice.PortAudioError as error:
            if stream is not None:
                _close(stream)
            raise SourceError(
                f"sound card {found} cannot record {self._n_sensors} channels at rate_hz={self._rate_hz}: {error}; "
                f"choose a rate it knows, such as {found.usual_rate_hz}, and check that nothing else uses it"
            ) from error
        return stream

    def _take(self, data: Any, frames: int, times: Any, status: Any) -> None:
        """Called by PortAudio, which must not be kept waiting."""
        self._overflow = self._overflow or bool(status.input_overflow)
        arrival = _Arrival(bytes(data), frames, times.inputBufferAdcTime, self._overflow, self.dropped)
        try:
            self._queue.put_nowait(arrival)
        except queue.Full:
            self.dropped += frames
        else:
            self.dropped, self._overflow = 0, False


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ImportError as error:
        raise SourceError("a sound card needs the package sounddevice; pip install 'gemmed[live]'") from error
    except OSError as error:
        raise SourceError(f"a sound card needs PortAudio: {error}; apt-get install libportaudio2") from error
    return sounddevice


def _devices() -> list[Device]:
    sounddevice = _sounddevice()
    drivers = [driver["name"] for driver in sounddevice.query_hostapis()]
    default_index = sounddevice.default.device["input"]
    return [
        Device(
            index=entry["index"],
            name=entry["name"],
            driver=drivers[entry["hostapi"]],
            channels=entry["max_input_channels"],
            usual_rate_hz=round(entry["default_samplerate"]),
            default=entry["index"] == default_index,
        )
        for entry in sounddevice.query_devices()
        if entry["max_input_channels"]
    ]


def _find(wanted: str | int | None) -> Device:
    try:
        return choose(_devices(), wanted)
    except SourceError:
        if _open_streams:
            raise
        # PortAudio knows only what was plugged in when it was loaded.
        sounddevice = _sounddevice()
        sounddevice._terminate()
        sounddevice._initialize()
        return choose(_devices(), wanted)


def choose(found: list[Device], wanted: str | int | None) -> Device:
    """The one device that is meant."""
    if wanted is None:
        fitting = [device for device in found if device.default]
    elif isinstance(wanted, int):
        fitting = [device for device in found if device.index == wanted]
    else:
        fitting = [device for device in found if device.name == wanted]
        fitting = fitting or [device for device in found if wanted.casefold() in device.name.casefold()]
    if len(fitting) == 1:
        return fitting[0]
    listed = "; ".join(map(str, fitting or found)) or "none at all, so plug one in"
    if fitting:
        raise SourceError(f"device={wanted!r} fits {len(fitting)} sound cards; give the index of one of {listed}")
    meant = "there is no default sound card" if wanted is None else f"device={wanted!r} is no sound card here"
    raise SourceError(f"{meant}; choose one of {listed}")


def _close(stream: Any) -> None:
    stream.abort(ignore_errors=True)
    stream.close(ignore_errors=True)
    _open_streams.discard(stream)


def _within(seconds: float, action: Callable[[], T], what: str, *, undo: Callable[[T], None] | None = None) -> T:
    """The result of an action, or an error if it takes longer: its thread is left behind, and its result undone."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name=what, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if undo is not None:
            future.add_done_callback(lambda done: done.exception() or undo(done.result()))
        raise SourceError(
            f"{what} did not answer within {seconds:g} s; unplug it and plug it in again, or restart what feeds it"
        ) from None
