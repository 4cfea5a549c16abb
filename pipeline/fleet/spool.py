"""Facts on their way to a broker, on disk before they are sent: in order, numbered, within a budget.

lock              held by the publisher that runs here
cursor.json       who we are, and up to where the broker has everything
notes.jsonl       what was published to its end: recordings of files, files of a folder; what was cut off; and which
                  sound a recording of files has
SERIAL.parcels    a segment: records from this serial number on, one behind the other
SERIAL.unreadable a segment that the disk did not give back, set aside

A kill costs nothing: what was appended is in the hands of the system. The power failing may cost what the system had
not written yet, some seconds: numbers of a recording are then given twice, and whoever listens keeps what came first.
The end of such a recording stands for all numbers that may have been given, so that it is heard. What the disk damages
later is passed over: whoever listens sees a hole in the numbers, and makes a gap of it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from struct import Struct
from threading import Condition
from typing import IO, Any, Self

from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import StorageError, UsageError
from pipeline.core.events import Block, Gap, Notice, NoticeKind, RecordingEnded, RecordingStarted, SourceTrouble
from pipeline.transport.wire import Parcel, packed, unpacked

SPOOL_FULL = "spool full: the link was down too long"
DISK_FULL = "spool full: the disk took nothing more"
_HEAD, _CHECK = Struct("<IQQQId??"), Struct("<I")
_SEGMENTS = 8
"""The budget has at least so many."""
_LARGEST_SEGMENT = 2**19
_MOST_IN_MEMORY = 2**21
"""Bytes that wait for a disk that takes nothing."""
_PER_LIFE = 2**32
"""Serial numbers: what the disk may have forgotten after the power failed, the broker may know."""
_STORE_SECONDS = 2.0
"""So much is sent twice after a kill; the disk is not worn out by every single acknowledgement."""
_HARSH_SHARE = 4
_OF_THE_MACHINE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Why a file could not be opened that is nothing of its own, and passes."""


@dataclass(frozen=True, slots=True)
class SpoolPlace:
    """How far the last recording has come."""

    recording: RecordingStarted
    number: int = 0
    """Of its next fact."""
    sample: int = 0
    """The next one."""
    others: int = 0
    """Facts that are no sound, its beginning aside."""
    heard_at: float = 0.0
    """When its last sample came, by the clock on the wall."""
    ended: bool = False
    is_live: bool = False
    """Whether its source has a clock of its own, and goes on without us."""
    follows: str | None = None
    """The recording before it."""

    def behind(self, fact: object, now: float, stands_for: int = 1) -> SpoolPlace:
        number = self.number + stands_for
        if isinstance(fact, Block | Gap):
            return replace(self, number=number, sample=fact.stop, heard_at=now)
        if isinstance(fact, RecordingStarted):
            return replace(self, number=number, heard_at=now)
        return replace(
            self, number=number, others=self.others + 1, ended=self.ended or isinstance(fact, RecordingEnded)
        )


@dataclass(frozen=True, slots=True)
class Record:
    """A packed parcel with the serial numbers that it has, or whose place it took; and the place behind it."""

    first: int
    last: int
    sample: int
    others: int
    heard_at: float
    ended: bool
    is_live: bool
    data: bytes

    def __len__(self) -> int:
        return _HEAD.size + _CHECK.size + len(self.data)

    def as_bytes(self) -> bytes:
        marks = (self.first, self.last, self.sample, self.others, self.heard_at, self.ended, self.is_live)
        head = _HEAD.pack(len(self.data), *marks)
        return head + _CHECK.pack(zlib.crc32(head)) + self.data

    def place(self) -> SpoolPlace:
        parcel = unpacked(self.data)
        return SpoolPlace(
            parcel.recording,
            parcel.number + parcel.stands_for,
            self.sample,
            self.others,
            self.heard_at,
            self.ended,
            self.is_live,
            parcel.follows,
        )

    @property
    def is_whole(self) -> bool:
        return len(self.data) > 4 and zlib.crc32(self.data[4:]) == int.from_bytes(self.data[:4], "little")


def records_in(content: bytes) -> Iterator[Record]:
    """Those before the first that was cut off, or is none."""
    at, last = 0, 0
    while (begin := at + _HEAD.size + _CHECK.size) <= len(content):
        length, first, until, sample, others, heard_at, ended, is_live = _HEAD.unpack_from(content, at)
        record = Record(first, until, sample, others, heard_at, ended, is_live, content[begin : begin + length])
        is_head = _CHECK.unpack_from(content, at + _HEAD.size)[0] == zlib.crc32(content[at : at + _HEAD.size])
        if not is_head or len(record.data) < max(length, 1) or not last < record.first <= record.last:
            return
        yield record
        at, last = at + len(record), record.last


def condensed(records: Iterable[Record], reason: str, *, harsh: bool = False) -> list[Record]:
    """The same time and the same numbers without sound: one gap for each stretch of it.

    Beginnings and ends of recordings stay, and unless it is `harsh` what somebody should read.
    """
    stays = (RecordingStarted, RecordingEnded) if harsh else (RecordingStarted, RecordingEnded, SourceTrouble, Notice)
    out: list[Record] = []
    stretch: list[tuple[Record, Parcel]] = []
    for record in records:
        parcel = unpacked(record.data)
        if stretch and stretch[-1][1].recording != parcel.recording:  # what was between them is damaged
            out, stretch = out + _one(stretch, reason), []
        if isinstance(parcel.fact, stays):
            out += [*_one(stretch, reason), record]
            stretch = []
        else:
            stretch.append((record, parcel))
    return out + _one(stretch, reason)


def _one(stretch: list[tuple[Record, Parcel]], reason: str) -> list[Record]:
    """What is left of a stretch: a gap, or where no time went by its last fact."""
    if not stretch:
        return []
    (first, begin), (last, end) = stretch[0], stretch[-1]
    sound = [parcel.fact for _, parcel in stretch if isinstance(parcel.fact, Block | Gap)]
    fact = end.fact
    if sound and (len(sound) < len(stretch) or len(sound) > 1 or isinstance(sound[0], Block)):
        recorded = any(isinstance(one, Block) or one.recorded for one in sound)
        fact = Gap(sound[0].start, sound[-1].stop, reason, recorded)
    count = end.number + end.stands_for - begin.number  # some between them may be damaged
    data = packed(Parcel(begin.recording, begin.number, fact, count, begin.follows))
    return [replace(last, first=first.first, data=data)]


@dataclass(slots=True)
class _Segment:
    path: Path
    last: int = 0
    bytes: int = 0
    count: int = 0
    is_condensed: bool = False
    is_damaged: bool = False
    """What would be written behind the damage could not be found."""

    @classmethod
    def of(cls, path: Path, records: list[Record], *, is_condensed: bool = False) -> Self:
        return cls(path, records[-1].last, sum(map(len, records)), len(records), is_condensed)

    def records(self) -> list[Record]:
        """Those that are whole."""
        with self.path.open("rb") as file:
            return [record for record in records_in(file.read(self.bytes)) if record.is_whole]


class PublishSpool:
    """Appended to by one thread, read and acknowledged by another.

    Beyond the budget the oldest segment that is not acknowledged becomes a gap. While the disk takes nothing, a little
    waits in memory, and then becomes one, too. `report` is told of both.
    """

    def __init__(
        self,
        directory: Path,
        *,
        budget_bytes: int,
        report: Callable[[Notice], None] = lambda notice: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.path, self._budget, self._report, self._wall = directory, budget_bytes, report, wall
        self._segment_bytes = min(_LARGEST_SEGMENT, budget_bytes // _SEGMENTS)
        self._changed = Condition()
        self._lock = _locked(directory)
        self._segments: list[_Segment] = []
        self._file: IO[bytes] | None = None
        self._unwritten: list[Record] = []
        self._notes: list[dict[str, Any]] = []
        self._disk_trouble = ""
        self._stored_at = -inf
        self.acknowledged = self._lives = 0
        self.is_live = False
        """Whether the next recordings come from a source with a clock of its own."""
        self.place: SpoolPlace | None = None
        self.done: set[str] = set()
        """What need not be published again."""
        self.cut_off: set[str] = set()
        """Recordings that need to be, under another name."""
        self.sounds: dict[str, str] = {}
        """What tells the sound of a recording from any other."""
        try:
            self._read_cursor()
            self._read_segments()
            self._read_notes()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            with suppress(OSError):
                self._store_cursor()
            self._close_file()
            self._lock.close()

    def append(self, fact: object, *, stands_for: int = 1) -> None:
        """A fact of the recording that began last; when this returns, a kill does not cost it."""
        with self._changed:
            before = self._beginning(fact) if isinstance(fact, RecordingStarted) else self.place
            if before is None:
                raise ValueError(f"{type(fact).__name__} before any recording")
            self.place = after = before.behind(fact, self._wall(), stands_for)
            data = packed(Parcel(before.recording, before.number, fact, stands_for, before.follows))
            marks = (after.sample, after.others, after.heard_at, after.ended, after.is_live)
            self._unwritten.append(Record(self._serial, self._serial, *marks, data))
            self._serial += 1
            self._write_out()
            self._changed.notify_all()

    def _beginning(self, recording: RecordingStarted) -> SpoolPlace:
        before = self.place.recording.recording if self.place else None
        return SpoolPlace(recording, is_live=self.is_live, follows=before)

    def read(self, after: int, most: int) -> list[Record]:
        """The next records behind a serial number, at most so many; none if there are none yet."""
        with self._changed:
            for segment in list(self._segments):
                if segment.last > after:
                    found = [record for record in self._records(segment) if record.last > after]
                    if found:
                        return found[:most]
                    self._pass_over(segment, after)
        return []

    def _pass_over(self, segment: _Segment, after: int) -> None:
        """What it has behind a serial number cannot be found any more."""
        if segment in self._segments:
            segment.last, segment.is_damaged = after, True
            self._tell_damage(f"the end of {segment.path} is damaged")

    def _records(self, segment: _Segment) -> list[Record]:
        """Those that are whole; a segment that cannot be read is set aside."""
        try:
            return segment.records()
        except OSError as error:
            self._set_aside(segment.path, error)
            self._close_file()
            self._segments.remove(segment)
            return []

    def _set_aside(self, path: Path, error: OSError) -> None:
        """Neither the uplink nor the budget can wait for a file that the disk does not give back."""
        if error.errno in _OF_THE_MACHINE:
            raise error
        with suppress(OSError):
            path.replace(path.with_suffix(".unreadable"))
        self._tell_damage(f"{path} cannot be read: {error.strerror}")

    def _tell_damage(self, what: str) -> None:
        self._report(Notice(NoticeKind.OUTPUT_DROPPED, {"why": f"{what}; check the disk. A gap tells"}))

    def wait(self, after: int, seconds: float) -> None:
        """Until there is something behind a serial number, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest > after, seconds)

    def wait_for_space(self, seconds: float) -> bool:
        """Whether it is less than half full, and the disk takes everything, within so many seconds."""
        with self._changed:
            self._try_disk_again()
            return self._changed.wait_for(
                lambda: not self._unwritten and self.waiting_bytes <= self._budget // 2, seconds
            )

    def wait_until_empty(self, seconds: float) -> bool:
        """Whether the broker has everything within so many seconds."""
        with self._changed:
            self._try_disk_again()
            return self._changed.wait_for(lambda: self.is_empty, seconds)

    def acknowledge(self, serial: int) -> None:
        """The broker has everything up to it."""
        with self._changed:
            self.acknowledged = max(self.acknowledged, serial)
            # The last one stays, since it tells where the recording was.
            while len(self._segments) > 1 and self._segments[0].last <= self.acknowledged:
                self._segments.pop(0).path.unlink(missing_ok=True)
            if time.monotonic() - self._stored_at > _STORE_SECONDS:
                with suppress(OSError):
                    self._store_cursor()
            self._changed.notify_all()

    def message_id(self, record: Record) -> str:
        """What the broker knows it by: a gap is another message than the block whose place it took."""
        serial = str(record.first) if record.first == record.last else f"{record.first}-{record.last}"
        return f"{self.identity}-{serial}"

    @property
    def is_empty(self) -> bool:
        """Whether the broker has everything."""
        return self._newest <= self.acknowledged and not self._unwritten

    @property
    def waiting_bytes(self) -> int:
        return sum(segment.bytes for segment in self._segments if segment.last > self.acknowledged)

    def waiting(self) -> int:
        """How many messages the broker has not acknowledged."""
        with self._changed:
            waiting = [segment for segment in self._segments if segment.last > self.acknowledged]
            in_first = self._waiting_in(waiting[0]) if waiting else 0
            return in_first + sum(segment.count for segment in waiting[1:]) + len(self._unwritten)

    def _waiting_in(self, segment: _Segment) -> int:
        try:
            return sum(one.last > self.acknowledged for one in self._records(segment))
        except OSError:  # of the machine, and it passes
            return segment.count

    def note_done(self, name: str) -> None:
        """Something was published to its end, and is not published again."""
        if name not in self.done:
            self._note({"done": name})

    def note_cut_off(self, name: str) -> None:
        """A recording was ended before all of it was published: whoever listens takes no more under its name."""
        if name not in self.cut_off:
            self._note({"cut_off": name})

    def note_sound(self, name: str, identity: str) -> None:
        """What a recording is about to be published with: under its name comes no other sound."""
        if self.sounds.get(name) != identity:
            self._note({"recording": name, "sound": identity})

    def _note(self, told: dict[str, Any]) -> None:
        with self._changed:
            self._remember(told)
            self._notes.append(told | {"behind": self._unwritten[-1].last if self._unwritten else self._known})
            self._write_notes()

    def _remember(self, told: object) -> None:
        """The last word about a name counts."""
        match told:
            case {"done": str(name)}:
                self.done.add(name)
                self.cut_off.discard(name)
            case {"cut_off": str(name)}:
                self.cut_off.add(name)
                self.done.discard(name)
            case {"recording": str(name), "sound": str(identity)}:
                self.sounds[name] = identity

    def _write_notes(self) -> None:
        """Behind what they are about: a kill must not leave one without the other."""
        if not self._notes or self._unwritten:
            return
        with suppress(OSError), self._notes_file.open("a") as file:
            # The line before them may be cut off.
            file.write("".join(f"\n{json.dumps(note)}" for note in self._notes))
            file.flush()
            self._notes.clear()

    @property
    def _notes_file(self) -> Path:
        return self.path / "notes.jsonl"

    @property
    def _newest(self) -> int:
        return self._segments[-1].last if self._segments else 0

    @property
    def _known(self) -> int:
        """The last that is on disk, or was."""
        return max(self._newest, self.acknowledged)

    def _read_cursor(self) -> None:
        try:
            self.identity, self.acknowledged, self._lives = _cursor_in((self.path / "cursor.json").read_bytes())
        except (OSError, ValueError):
            self.identity = secrets.token_hex(8)
        self._lives += 1
        try:
            write_whole(self.path / "cursor.json", self._cursor())
        except OSError:  # the next life will not know of this one, and must not give the same ids
            self.identity = secrets.token_hex(8)

    def _cursor(self) -> bytes:
        told = json.dumps([self.identity, self.acknowledged, self._lives])
        return json.dumps({"told": told, "check": zlib.crc32(told.encode())}).encode()

    def _store_cursor(self) -> None:
        """Without waiting for the disk: an older one is as good."""
        self._stored_at = time.monotonic()
        fresh = self.path / "cursor.json.partial"
        fresh.write_bytes(self._cursor())
        fresh.replace(self.path / "cursor.json")

    def _read_segments(self) -> None:
        for left in self.path.glob("*.partial"):
            left.unlink()
        newest: Record | None = None
        paths = sorted(self.path.glob("*.parcels"))
        for path in paths:
            newest = self._read_segment(path, is_last=path == paths[-1]) or newest
        if newest is not None:
            self.place = newest.place()
        self._serial = max(self._lives * _PER_LIFE, self._known + 1)

    def _read_segment(self, path: Path, *, is_last: bool) -> Record | None:
        """Its last record, if it has any that is not known. Where the last one was cut off, a kill or the power did."""
        try:
            content = path.read_bytes()
        except OSError as error:
            self._set_aside(path, error)
            return None
        records = list(records_in(content))
        if not is_last and (sum(map(len, records)) < len(content) or not all(one.is_whole for one in records)):
            self._tell_damage(f"{path} is damaged")
        while records and not records[-1].is_whole:
            records.pop()
        # Killed while it condensed: the segment before holds what is left of this one.
        if not records or records[-1].last <= self._newest:
            path.unlink()
            return None
        segment = _Segment.of(path, records)
        os.truncate(path, segment.bytes)
        self._segments.append(segment)
        return records[-1]

    def _read_notes(self) -> None:
        """Those about what is there: where the power failed, the disk may have kept a note and not what it is about."""
        try:
            lines = self._notes_file.read_bytes().splitlines()[1:]
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(
                f"{self._notes_file} cannot be read: {error.strerror}; repair the disk, or move the file away, and "
                "files that were published are published again"
            ) from error
        notes = [_note_in(line) for line in lines]
        known = [note for note in notes if note is not None and note["behind"] <= self._known]
        for note in known:
            self._remember(note)
        if None in notes[:-1]:  # the last one a kill may have cut off
            told = f"lines of {self._notes_file} are damaged; check the disk. What they spoke of may be published again"
            self._report(Notice(NoticeKind.OUTPUT_DROPPED, {"why": told}))
        if len(known) < len(lines):
            with suppress(OSError):
                write_whole(self._notes_file, "".join(f"\n{json.dumps(note)}" for note in known).encode())

    def _try_disk_again(self) -> None:
        if self._unwritten or self._notes:
            self._write_out()

    def _write_out(self) -> None:
        try:
            while self._unwritten:
                self._write(self._unwritten[0])
                del self._unwritten[0]
            self._write_notes()
            self._keep_within_budget()
        except OSError as error:
            self._disk_refused(error)
        else:
            self._disk_accepted()

    def _write(self, record: Record) -> None:
        segment = self._segments[-1] if self._segments else None
        if segment is None or segment.is_damaged or segment.bytes >= self._segment_bytes:
            self._begin_segment(record)
        else:
            self._write_behind(segment, record)

    def _begin_segment(self, record: Record) -> None:
        path = self.path / f"{record.first:020d}.parcels"
        fresh = _Segment(path)
        self._close_file()
        try:
            self._write_behind(fresh, record)
        except OSError:
            self._close_file()
            path.unlink(missing_ok=True)
            raise
        self._segments.append(fresh)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_behind(self, segment: _Segment, record: Record) -> None:
        if self._file is None:
            self._file = segment.path.open("ab", buffering=0)
        content = record.as_bytes()
        try:
            written = self._file.write(content)
            while written < len(content):
                written += self._file.write(content[written:])
        except OSError:
            os.truncate(segment.path, segment.bytes)
            raise
        segment.last = record.last
        segment.bytes += len(content)
        segment.count += 1

    def _keep_within_budget(self) -> None:
        while sum(segment.bytes for segment in self._segments) > self._budget:
            n_oldest = 2 if self._segments[0].is_condensed else 1
            # The one that is being written is never touched.
            if n_oldest >= len(self._segments):
                return
            self._condense(self._segments[:n_oldest])

    def _condense(self, oldest: list[_Segment]) -> None:
        """Segments become one. Killed in the middle, the next start finds the old ones, or one too many."""
        records = [one for segment in oldest for one in self._records(segment) if one.last > self.acknowledged]
        if self._segments[: len(oldest)] != oldest:
            return  # one of them was set aside
        harsh = oldest[0].is_condensed and oldest[0].bytes > self._budget // _HARSH_SHARE
        left = condensed(records, SPOOL_FULL, harsh=harsh)
        if left:
            fresh = oldest[0].path.with_suffix(".partial")
            try:
                fresh.write_bytes(b"".join(record.as_bytes() for record in left))
            except OSError:
                fresh.unlink(missing_ok=True)
                raise
            fresh.replace(oldest[0].path)
        for segment in oldest[1:] if left else oldest:
            segment.path.unlink(missing_ok=True)
        self._segments[: len(oldest)] = [_Segment.of(oldest[0].path, left, is_condensed=True)] if left else []
        self._note_dropped(records, "more waited than publish.budget allows")

    def _note_dropped(self, records: Iterable[Record], why: str) -> None:
        facts = (unpacked(record.data).fact for record in records)
        samples = sum(fact.stop - fact.start for fact in facts if isinstance(fact, Block))
        if samples:
            self._report(Notice(NoticeKind.OUTPUT_DROPPED, {"samples": samples, "why": f"{why}; a gap tells"}))

    def _disk_refused(self, error: OSError) -> None:
        if not self._disk_trouble:
            self._disk_trouble = error.strerror or str(error)
            told = f"{self.path} cannot be written to: {self._disk_trouble}; make space or change its rights"
            self._report(Notice(NoticeKind.STORAGE_READ_ONLY, {"why": told}))
        if sum(map(len, self._unwritten)) > _MOST_IN_MEMORY:
            before, self._unwritten = self._unwritten, condensed(self._unwritten, DISK_FULL)
            self._note_dropped(before, "the disk took nothing more")

    def _disk_accepted(self) -> None:
        if self._disk_trouble:
            self._disk_trouble = ""
            self._report(Notice(NoticeKind.STORAGE_RECOVERED, {"where": str(self.path)}))


def _cursor_in(content: bytes) -> tuple[str, int, int]:
    """Who we are, what the broker has, how often we lived; a `ValueError` of a file that was damaged."""
    match json.loads(content):
        case {"told": str(told), "check": int(check)} if zlib.crc32(told.encode()) == check:
            identity, acknowledged, lives = json.loads(told)
            return identity, acknowledged, lives
    raise ValueError("damaged")


def _note_in(line: bytes) -> dict[str, Any] | None:
    """None of a line that was cut off, or damaged."""
    with suppress(ValueError):
        match json.loads(line):
            case {"behind": int()} as note:
                return dict(note)
    return None


def _locked(directory: Path) -> IO[bytes]:
    """Nobody else publishes from here meanwhile; the system frees the lock of one that was killed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / "lock").open("a+b", buffering=0)
    except OSError as error:
        raise StorageError(
            f"{directory} cannot be written to: {error.strerror}; give another publish.spool, or change its rights"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        owner = file.read(20).decode(errors="replace").strip() or "unknown"
        file.close()
        raise UsageError(
            f"{directory} is used by another gemmed publish, process {owner}; stop it, or give another publish.spool"
        ) from error
    file.truncate(0)
    with suppress(OSError):  # a disk that is full: what waits on it must be sent all the same
        file.write(f"{os.getpid()}\n".encode())
    return file
