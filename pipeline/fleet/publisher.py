"""`gemmed publish`: a source at the edge, a spool on disk, a broker elsewhere.

source ─► gathering ─► spool ─► uplink (a thread) ─► JetStream

Facts are published as a daemon would hear them: whoever replays them decides what it would have decided.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread, Timer
from types import FrameType
from typing import Protocol, Self

import numpy as np

from pipeline.config import schema as chosen
from pipeline.core.errors import LinkError, SettingsError, SourceError, UsageError
from pipeline.core.events import (
    Block,
    FileHeard,
    Gap,
    Notice,
    NoticeKind,
    RecordingEnded,
    RecordingStarted,
    SourceTrouble,
)
from pipeline.fleet.spool import PublishSpool, SpoolPlace
from pipeline.fleet.uplink import Channel, Uplink
from pipeline.runtime.logs import log
from pipeline.runtime.state_dir import new_run
from pipeline.runtime.systemd import Notifier
from pipeline.sources.factory import door, folder, retry_policy
from pipeline.sources.files import FileSource, Listing, Recording, files_of, sound_identity
from pipeline.sources.live_folder import WatchedFolder
from pipeline.sources.reconnecting import LiveSource
from pipeline.storage.outbox import Pauses
from pipeline.transport.wire import StreamNames, travels

AWAY = "the publisher was away"
_LONGEST_AWAY_SECONDS = 30 * 24 * 3600.0
"""Beyond that a clock was wrong: the beginning of the next recording tells enough."""
_MOST_BYTES = 500_000
"""Of the samples in a message; brokers take a million unless they are told otherwise."""
_FORGOTTEN = 1 << 20
"""So many facts of a recording the broker may have that the disk has forgotten when the power failed: days of them."""
_MOST_BETWEEN = 64
_LAST_WORDS_SECONDS = 3.0
_LOOK_SECONDS = 0.25
_TELL_SECONDS = 60.0
_SHOW_SECONDS = 2.0
"""Of files somebody wants to see them go by; a live source is for the log."""


class Stoppable(Protocol):
    """A source that somebody may stop from a signal handler."""

    def __enter__(self) -> Self: ...

    def __iter__(self) -> Iterator[object]: ...

    def __exit__(self, *exc: object) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """Seconds of sound that were taken from the source, and messages that wait for the broker."""

    seconds: float
    waiting: int
    is_last: bool = False
    """Whether this life sends nothing more: what waits is for the next start."""


class Gathering:
    """Blocks that follow each other become one, up to the next multiple of `seconds`; any other fact comes behind them.

    What was gathered for longer than that by the clock is given out, too: a trickle does not wait.
    """

    def __init__(
        self,
        seconds: float,
        *,
        within: RecordingStarted | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds, self._steady = seconds, steady
        self._length = self._most(within) if within else 1
        self._parts: list[Block] = []
        self._since = 0.0

    def push(self, fact: object) -> Iterator[object]:
        if not isinstance(fact, Block):
            yield from self.flush()
            if isinstance(fact, RecordingStarted):
                self._length = self._most(fact)
            yield fact
            return
        if self._parts and not _continues(self._parts[-1], fact):
            yield from self.flush()
        for part in _cut(fact, self._length):
            self._since = self._since if self._parts else self._steady()
            self._parts.append(part)
            if part.stop % self._length == 0 or self._steady() - self._since >= self._seconds:
                yield from self.flush()

    def _most(self, recording: RecordingStarted) -> int:
        """Samples of a message."""
        return max(1, min(round(self._seconds * recording.rate_hz), _MOST_BYTES // (4 * len(recording.sensors))))

    def flush(self) -> Iterator[Block]:
        parts, self._parts = self._parts, []
        if len(parts) == 1:
            yield parts[0]
        elif parts:
            samples = np.concatenate([part.samples for part in parts], axis=1)
            yield Block(parts[0].start, samples, parts[0].delivered)


def _continues(before: Block, block: Block) -> bool:
    return before.stop == block.start and np.array_equal(before.delivered, block.delivered)


def _cut(block: Block, length: int) -> Iterator[Block]:
    """At multiples of a length."""
    start = block.start
    while start < block.stop:
        stop = min(block.stop, (start // length + 1) * length)
        yield Block(start, block.samples[:, start - block.start : stop - block.start], block.delivered)
        start = stop


class Playback:
    """Recordings in files, each to its end, from where an earlier life was; those that are published are left out."""

    def __init__(
        self,
        listing: Listing,
        *,
        resample: bool,
        block_seconds: float,
        place: SpoolPlace | None,
        done: set[str],
        speed: float | None = None,
    ) -> None:
        self._whole, self._block_seconds = FileSource(listing, resample=resample), block_seconds
        self._place, self._done, self._speed = place, frozenset(done), speed
        self._stopped = False
        self._played, self._sample = 0.0, 0
        self._began = time.monotonic()
        self._facts: Generator[object, None, None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._facts is not None:
            self._facts.close()

    def __iter__(self) -> Iterator[object]:
        self._facts = self._play()
        return self._facts

    def stop(self) -> None:
        self._stopped = True  # nothing that locks: a signal may have come in the middle of a lock

    @property
    def left(self) -> tuple[Recording, ...]:
        """Recordings that were not published to their end before; one that was begun comes first."""
        left = (one for one in self._whole.listing.recordings if one.name not in self._done)
        return tuple(sorted(left, key=lambda one: not self._was_begun(one)))

    def _was_begun(self, recording: Recording) -> bool:
        place = self._place
        return place is not None and not place.ended and place.recording.recording == recording.name

    def _play(self) -> Generator[object, None, None]:
        _warn(self._whole.listing.troubles)
        rate_hz, n_sensors = self._whole.format()
        usable, reason = not self.left, ""
        for recording in self.left:
            source = FileSource(
                [recording],
                rate_hz=rate_hz,
                n_sensors=n_sensors,
                resample=self._whole.resample,
                block_samples=max(1, round(self._block_seconds * rate_hz)),
            )
            try:
                with source:
                    yield from self._recording(recording, source)
                usable = True
            except SourceError as error:
                reason = reason or str(error)
            if self._stopped:
                return
        if not usable:
            raise SourceError(reason)

    def _recording(self, recording: Recording, source: FileSource) -> Iterator[object]:
        begun, came = self._was_begun(recording), False
        facts, self._sample = _beginning_first(source), self._place.sample if begun and self._place else 0
        try:
            for fact in self._behind_place(facts) if begun else facts:
                if isinstance(fact, Block | Gap):
                    self._sample = fact.stop
                yield fact
                came = True
                self._keep_pace(fact, source.rate_hz or 1)
                if self._stopped:
                    return
        except SourceError:
            if not came:  # what was begun by an earlier life stays so: the file may come back
                raise
        yield RecordingEnded(recording.name, self._sample)

    def _behind_place(self, facts: Iterator[object]) -> Iterator[object]:
        place = self._place
        assert place is not None
        others = place.others
        for fact in facts:
            if isinstance(fact, RecordingStarted):
                _require_same(fact, place.recording)
            elif isinstance(fact, Block):
                yield from _behind(fact, place.sample)
            elif isinstance(fact, Gap):
                if fact.stop > place.sample:
                    yield replace(fact, start=max(fact.start, place.sample))
            elif others:
                others -= 1
            else:
                yield fact

    def _keep_pace(self, fact: object, rate_hz: int) -> None:
        if self._speed is None or not isinstance(fact, Block | Gap):
            return
        self._played += (fact.stop - fact.start) / rate_hz
        until = self._began + self._played / self._speed
        while not self._stopped and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))


def _beginning_first(source: FileSource) -> Iterator[object]:
    """What is said before a recording begins belongs to it; if none begins, it is said here only."""
    held: list[SourceTrouble] = []
    facts = iter(source)
    try:
        for fact in facts:
            if isinstance(fact, RecordingStarted):
                yield fact
                break
            assert isinstance(fact, SourceTrouble)
            held.append(fact)
    except SourceError:
        _warn(held)
        raise
    yield from held
    yield from facts


def _warn(troubles: Iterable[SourceTrouble]) -> None:
    for trouble in troubles:
        log.warning("source trouble", where=trouble.where, why=trouble.message)


def _behind(block: Block, sample: int) -> Iterator[Block]:
    if block.stop > sample:
        start = max(block.start, sample)
        yield Block(start, block.samples[:, start - block.start :], block.delivered)


def _require_same(now: RecordingStarted, before: RecordingStarted) -> None:
    if now != before:
        raise UsageError(
            f"recording {now.recording} was begun with {len(before.sensors)} sensors at {before.rate_hz} Hz, now it "
            f"has {len(now.sensors)} at {now.rate_hz} Hz; publish the file as it was, or rename it: to whoever "
            "listens a recording has one format"
        )


class Publisher:
    """One life of `gemmed publish`, from its start to its stop."""

    def __init__(
        self,
        settings: chosen.Settings,
        array: str,
        *,
        seconds: float | None = None,
        show: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.settings, self.array, self._seconds, self._show = settings, array, seconds, show
        self._run_name = new_run()
        self._notifier = Notifier.from_environment()
        self._stop_asked = False
        self._samples_seconds = 0.0
        self._shown_at = self._fed_at = time.monotonic()
        self._show_seconds = _SHOW_SECONDS
        self._drops = _Drops()
        self._between: deque[SourceTrouble] = deque(maxlen=_MOST_BETWEEN)
        """Troubles that belong to no recording, for the next one."""
        self._sounds: dict[str, str] = {}
        """Of recordings in files, what tells each from any other."""

    def live(self) -> None:
        """What the settings name as source, until it ends or somebody wants it to stop."""
        settings = self.settings
        if isinstance(settings.source, chosen.StreamSourceSettings):
            raise SettingsError(
                'source.kind = "stream" would publish what is published; name the source that hears the array'
            )
        with self._open() as spool:
            finish(spool, now=time.time())
            spool.is_live = is_live(settings)
            waits = settings.buffer.overload == "wait" or (settings.buffer.overload == "auto" and not spool.is_live)
            self._show_seconds = _TELL_SECONDS
            self._publish(self._source(spool), spool, waits=waits)

    def recordings(self, listing: Listing, *, resample: bool = False, speed: float | None = None) -> None:
        """Files, each once; what waits is sent before it returns, unless somebody wants it to stop."""
        with self._open() as spool:
            listing, self._sounds = _under_free_names(listing, spool)
            _finish_others(listing, spool)
            source = Playback(
                listing,
                resample=resample,
                block_seconds=self.settings.publish.block_seconds,
                place=spool.place,
                done=spool.done,
                speed=speed,
            )
            if len(source.left) < len(listing.recordings):
                passed = len(listing.recordings) - len(source.left)
                log.info("recordings that were published before are passed over", recordings=passed)
            self._publish(source, spool, waits=True, remember=True)

    def _open(self) -> PublishSpool:
        publish = self.settings.publish
        directory = publish.spool or self.settings.storage.directory / "spool"
        return PublishSpool(directory / self.array, budget_bytes=publish.budget_bytes, report=self._tell)

    def _source(self, spool: PublishSpool) -> Stoppable:
        settings, source = self.settings, self.settings.source
        if isinstance(source, chosen.FolderSourceSettings):
            open_folder = partial(folder, settings, source)
            return WatchedFolder(
                open_folder, known=set(spool.done), name=self._name, retry_policy=retry_policy(settings)
            )
        return LiveSource(
            door(settings),
            rate_hz=settings.array.rate_hz,
            n_sensors=settings.array.sensors,
            buffer_seconds=settings.buffer.seconds,
            drop_oldest=settings.overload == "drop_oldest",
            recording_seconds=settings.storage.recording_seconds,
            beat=max(1, round(settings.publish.block_seconds * settings.array.rate_hz)),
            name=self._name,
            retry_policy=retry_policy(settings),
        )

    def _name(self, number: int) -> str:
        return f"{self._run_name}-{number:04d}"

    def _publish(self, source: Stoppable, spool: PublishSpool, *, waits: bool, remember: bool = False) -> None:
        uplink = self._uplink(spool)
        self._sending = thread = Thread(target=uplink.run, name="uplink", daemon=True)
        with ExitStack() as stack:
            self._handle_signals(stack, source)
            self._set_alarm(stack, source)
            thread.start()
            self._notifier.ready()
            try:
                self._take(source, spool, waits=waits, remember=remember)
                while not (self._stop_asked or spool.is_empty):
                    spool.wait_until_empty(_LOOK_SECONDS)
                    self._beat(spool)
            finally:
                self._notifier.stopping()
                uplink.stop(seconds=_LAST_WORDS_SECONDS)
                thread.join(2 * _LAST_WORDS_SECONDS)
                self._drops.tell()
                left = spool.waiting()
                log.info("stopped", messages_sent=uplink.sent, messages_waiting=left)
                self._show(Progress(self._samples_seconds, left, is_last=True))

    def _uplink(self, spool: PublishSpool) -> Uplink:
        settings, publish = self.settings, self.settings.publish
        channel = Channel(
            log=StreamNames(settings.broker.name),
            array=self.array,
            keep_seconds=publish.keep_seconds,
            keep_bytes=publish.keep_bytes,
        )
        pauses = Pauses(publish.retry_first_seconds, publish.retry_most_seconds)
        return Uplink(spool, settings.broker.access(), channel, pauses=pauses, report=self._tell)

    def _handle_signals(self, stack: ExitStack, source: Stoppable) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            self._stop(source)

        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, stop))

    def _set_alarm(self, stack: ExitStack, source: Stoppable) -> None:
        """For the end of its time, whatever it waits for then: sound, space, or a broker that is away."""
        if self._seconds is None:
            return
        alarm = Timer(self._seconds, self._stop, [source])
        alarm.daemon = True
        alarm.start()
        stack.callback(alarm.cancel)

    def _stop(self, source: Stoppable) -> None:
        self._stop_asked = True
        source.stop()

    def _take(self, source: Stoppable, spool: PublishSpool, *, waits: bool, remember: bool) -> None:
        """All that the source gives, to the spool."""
        within = spool.place.recording if spool.place else None
        gathering = Gathering(self.settings.publish.block_seconds, within=within)
        with source:
            for given in source:
                for fact in gathering.push(given):
                    self._append(spool, fact, remember=remember)
                self._beat(spool)
                while waits and not self._stop_asked and not spool.wait_for_space(_LOOK_SECONDS):
                    self._beat(spool)
            for fact in gathering.flush():
                self._append(spool, fact, remember=remember)
        # Files go on where they were; a live source never does, and a folder begins anew with the file it was in.
        if isinstance(self.settings.source, chosen.FolderSourceSettings) and not remember:
            _cut_off(spool)
        if not remember:
            _end(spool)

    def _append(self, spool: PublishSpool, fact: object, *, remember: bool) -> None:
        if isinstance(fact, SourceTrouble):
            _warn([fact])
        if isinstance(fact, RecordingStarted):
            if remember:  # a file that was begun, and cannot be read any more
                _cut_off(spool)
            _end(spool)
        if isinstance(fact, FileHeard):
            spool.note_done(fact.identity)  # first: killed in between it would come again, under another name
            _end(spool)
        elif isinstance(fact, RecordingStarted):
            self._begin(spool, fact)
        elif spool.place is None or spool.place.ended:
            # Whoever listens takes nothing more of a recording that is over; a tick between two is of no use to him.
            if isinstance(fact, SourceTrouble):
                self._between.append(fact)
        elif travels(fact):
            spool.append(fact)
        if isinstance(fact, Block | Gap) and spool.place is not None:
            self._samples_seconds += (fact.stop - fact.start) / spool.place.recording.rate_hz
        if remember and isinstance(fact, RecordingEnded):
            spool.note_done(fact.recording)

    def _begin(self, spool: PublishSpool, recording: RecordingStarted) -> None:
        """A recording, and in it what was wrong since the last one."""
        if recording.recording in self._sounds:
            spool.note_sound(recording.recording, self._sounds[recording.recording])
        spool.append(recording)
        while self._between:
            spool.append(self._between.popleft())

    def _beat(self, spool: PublishSpool) -> None:
        if not self._sending.is_alive():
            raise LinkError("the thread that sends ended by mistake; start gemmed publish again, nothing is lost")
        now = time.monotonic()
        watched = self._notifier.watchdog_seconds
        if watched and now - self._fed_at > watched / 4:
            self._fed_at = now
            self._notifier.alive()
        self._drops.tell_now_and_then()
        if now - self._shown_at > self._show_seconds:
            self._shown_at = now
            self._show(Progress(self._samples_seconds, spool.waiting()))

    def _tell(self, notice: Notice) -> None:
        if notice.kind == NoticeKind.OUTPUT_DROPPED and "samples" in notice.details:
            self._drops.add(notice)
            return
        fine = notice.kind in (NoticeKind.OUTPUT_LINK_UP, NoticeKind.STORAGE_RECOVERED)
        (log.info if fine else log.warning)(notice.kind.replace("_", " "), **notice.details)


class _Drops:
    """Samples that became gaps, told at once and then in sum."""

    def __init__(self) -> None:
        self._samples, self._why, self._told_at = 0, "", 0.0

    def add(self, notice: Notice) -> None:
        self._samples += notice.details["samples"]
        self._why = notice.details["why"]
        self.tell_now_and_then()

    def tell_now_and_then(self) -> None:
        if time.monotonic() - self._told_at > _TELL_SECONDS:
            self.tell()

    def tell(self) -> None:
        if self._samples:
            log.warning("output dropped", samples=self._samples, why=self._why)
            self._samples, self._told_at = 0, time.monotonic()


def is_live(settings: chosen.Settings) -> bool:
    """Whether the source has a clock of its own, so that what nobody took from it is gone."""
    source = settings.source
    if isinstance(source, chosen.SimulatedSourceSettings):
        return source.speed == 1.0
    return isinstance(source, chosen.PcmSourceSettings | chosen.SoundcardSourceSettings)


def finish(spool: PublishSpool, *, now: float) -> None:
    """The end of a recording in whose middle an earlier life was killed, with what it missed since."""
    place = spool.place
    if place is None:
        return
    if place.ended:
        if not place.is_live and place.recording.recording not in spool.cut_off:
            spool.note_done(place.recording.recording)  # it may have been killed right before that
        return
    missed = round((now - place.heard_at) * place.recording.rate_hz)
    if not place.is_live:
        _cut_off(spool)
    elif 0 < missed <= _LONGEST_AWAY_SECONDS * place.recording.rate_hz:
        spool.append(Gap(place.sample, place.sample + missed, AWAY), stands_for=_FORGOTTEN)
    _end(spool, stands_for=_FORGOTTEN)


def _cut_off(spool: PublishSpool) -> None:
    """Of a recording that is not over there is more; noted before its end, for a kill in between must not hide it."""
    place = spool.place
    if place is None or place.ended:
        return
    name, heard = place.recording.recording, place.sample / place.recording.rate_hz
    told = "something else is published before its end; published again, it comes whole, under another name"
    log.warning("recording cut off", recording=name, seconds=round(heard, 3), why=told)
    spool.note_cut_off(name)


def _under_free_names(listing: Listing, spool: PublishSpool) -> tuple[Listing, dict[str, str]]:
    """Recordings under names that no other sound has, and by name what tells their sound from any other.

    Whoever listens knows the end of a recording that was cut off, too, and takes no more under its name.
    """
    named: list[Recording] = []
    sounds: dict[str, str] = {}
    for one in listing.recordings:
        sound = _sound_of(one)
        name = _free_name(one.name, sound, spool, taken=sounds)
        if name != one.name and name not in spool.sounds:
            log.warning("recording published under another name", recording=one.name, instead=name,
                        why="under that name other sound was published, or its end was cut off")  # fmt: skip
        named.append(replace(one, name=name))
        sounds[name] = sound or ""
    return replace(listing, recordings=tuple(named)), {name: sound for name, sound in sounds.items() if sound}


def _sound_of(recording: Recording) -> str | None:
    """What tells it from any other; None if it cannot be read now, and may be what it was once it can."""
    try:
        is_there = all(path.stat().st_size for path in files_of([recording]))
    except OSError:
        return None
    return sound_identity([recording]) if is_there else None


def _free_name(name: str, sound: str | None, spool: PublishSpool, *, taken: Container[str]) -> str:
    while name in taken or name in spool.cut_off or (sound and spool.sounds.get(name, sound) != sound):
        name += "-again"
    return name


def _finish_others(listing: Listing, spool: PublishSpool) -> None:
    """The last recording is ended here unless it goes on."""
    place = spool.place
    if place is None or place.ended or place.recording.recording not in {one.name for one in listing.recordings}:
        finish(spool, now=time.time())


def _end(spool: PublishSpool, *, stands_for: int = 1) -> None:
    """Say that the recording is over, and how long it was, so that a loss at its end is seen, too."""
    place = spool.place
    if place is not None and not place.ended:
        spool.append(RecordingEnded(place.recording.recording, place.sample), stands_for=stands_for)
