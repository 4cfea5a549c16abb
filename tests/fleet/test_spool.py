"""What waits on disk for a broker: in order, numbered, within a budget, through kills."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import StorageError, UsageError
from pipeline.core.events import Block, Gap, Notice, NoticeKind, RecordingEnded, RecordingStarted, SourceTrouble, Tick
from pipeline.fleet.publisher import AWAY, finish
from pipeline.fleet.spool import SPOOL_FULL, PublishSpool, Record, _Segment, condensed
from pipeline.sources.reorder import LOST, Sorting
from pipeline.transport.wire import Parcel, unpacked
from tests.fleet.consumer import heard

LARGE = 10**9


def killed(spool: PublishSpool) -> None:
    """What the system does to the files of a process that is killed."""
    spool._close_file()
    spool._lock.close()


def block(start: int, length: int = 40) -> Block:
    samples = (np.arange(2 * length) * 7919 % 65_000 - 32_500 + start % 97).reshape(2, length) / np.float32(32768)
    return Block(start, samples.astype(np.float32), np.array([True, True]))


def parcels(spool: PublishSpool, after: int = 0) -> list[Parcel]:
    return [unpacked(record.data) for record in records(spool, after)]


def records(spool: PublishSpool, after: int = 0) -> list[Record]:
    found: list[Record] = []
    while more := spool.read(found[-1].last if found else after, 3):
        found += more
    return found


class Author:
    """Makes facts that follow from each other, and remembers them."""

    def __init__(self) -> None:
        self.facts: dict[str, list[object]] = {}
        self.recording, self.sample = "", 0

    def next(self, kind: str) -> object:
        if kind == "started" or not self.recording:
            self.recording, self.sample = f"recording {len(self.facts)}", 0
            fact: object = RecordingStarted(self.recording, 4000, ("1", "2"))
            self.facts[self.recording] = []
        else:
            fact = self._other(kind)
        self.facts[self.recording].append(fact)
        return fact

    def _other(self, kind: str) -> object:
        start = self.sample
        if kind in ("block", "gap"):
            self.sample += 40
            return block(start) if kind == "block" else Gap(start, self.sample, "a pause", recorded=False)
        return {
            "tick": Tick(start, 1.0),
            "trouble": SourceTrouble("somewhere", f"trouble {len(self.facts[self.recording])}"),
            "notice": Notice(NoticeKind.SOURCE_OPENED, {"number": len(self.facts[self.recording])}, start),
            "ended": RecordingEnded(self.recording),
        }[kind]


ACTS = st.lists(
    st.one_of(
        st.sampled_from(["block", "block", "block", "gap", "tick", "trouble", "notice", "ended", "started"]),
        st.sampled_from(["killed", "lost"]),
        st.tuples(st.just("sent"), st.integers(1, 6), st.integers(0, 6)),
    ),
    max_size=80,
)


@settings(max_examples=150)
@given(acts=ACTS, budget=st.sampled_from([2000, 4000, 10_000, LARGE]))
def test_nothing_is_reordered_or_missing_without_a_gap(acts, budget):
    """Whatever is appended, killed, sent, acknowledged or lost on the way: numbers and time have no hole."""
    author, stored, sent_until = Author(), [], 0
    with TemporaryDirectory() as directory:
        spool = PublishSpool(Path(directory), budget_bytes=budget)
        for act in acts:
            if act == "killed":
                killed(spool)
                spool, sent_until = PublishSpool(Path(directory), budget_bytes=budget), 0
            if act in ("killed", "lost"):
                sent_until = spool.acknowledged
            elif isinstance(act, tuple):
                sent = spool.read(sent_until, act[1])
                stored += sent
                sent_until = sent[-1].last if sent else sent_until
                for record in sent[: act[2]]:
                    spool.acknowledge(record.last)
            else:
                spool.append(author.next(act))
        stored += records(spool, spool.acknowledged)
        killed(spool)
    require_told(author, heard(unpacked(record.data) for record in stored), complete=budget == LARGE)


def require_told(author: Author, told: dict[str, list[Parcel]], *, complete: bool) -> None:
    assert list(told) == list(author.facts)
    for name, facts in author.facts.items():
        assert sum(parcel.stands_for for parcel in told[name]) == len(facts)
        spans = [parcel.fact for parcel in told[name] if isinstance(parcel.fact, Block | Gap)]
        assert all(before.stop == after.start for before, after in pairwise(spans))
        assert sum(one.stop - one.start for one in spans) == sum(
            fact.stop - fact.start for fact in facts if isinstance(fact, Block | Gap)
        )
        for parcel in told[name]:
            if parcel.stands_for == 1 and not (isinstance(parcel.fact, Gap) and parcel.fact.reason == SPOOL_FULL):
                require_equal(parcel.fact, facts[parcel.number])
        if complete:
            assert all(parcel.stands_for == 1 for parcel in told[name])
        always = RecordingStarted | RecordingEnded
        assert [fact for fact in facts if isinstance(fact, always)] == [
            parcel.fact for parcel in told[name] if isinstance(parcel.fact, always)
        ]


def require_equal(one: object, other: object) -> None:
    if isinstance(one, Block):
        assert isinstance(other, Block)
        assert one.start == other.start
        assert np.array_equal(one.samples, other.samples)
    else:
        assert one == other


def test_a_record_that_a_kill_cut_off_is_written_anew(tmp_path):
    """At any byte: what was before it stays, and its number is given again."""
    author = Author()
    with PublishSpool(tmp_path / "whole", budget_bytes=LARGE) as spool:
        for kind in ("started", "block", "block"):
            spool.append(author.next(kind))
        (file,) = spool.path.glob("*.parcels")
        whole = file.read_bytes()
        last = len(records(spool)[-1])
    for size in [*range(len(whole) - last, len(whole), 17), len(whole) - 1]:
        shutil.copytree(tmp_path / "whole", tmp_path / "cut")
        (tmp_path / "cut" / file.name).write_bytes(whole[:size])
        with PublishSpool(tmp_path / "cut", budget_bytes=LARGE) as spool:
            assert spool.place is not None
            assert (spool.place.number, spool.place.sample) == (2, 40)
            spool.append(block(40))
            assert [parcel.number for parcel in parcels(spool)] == [0, 1, 2]
        shutil.rmtree(tmp_path / "cut")


def test_serial_numbers_are_never_used_twice(tmp_path):
    """Also when the disk has forgotten records that the broker knows."""
    ids: set[str] = set()
    for _ in range(3):
        with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
            author = Author()
            for kind in ("started", "block", "block"):
                spool.append(author.next(kind))
            fresh = [spool.message_id(record) for record in records(spool)][-3:]
            assert not ids & set(fresh)
            ids |= set(fresh)
            (file, *_) = spool.path.glob("*.parcels")
        file.write_bytes(file.read_bytes()[:10])


def test_a_gap_is_another_message_than_the_block_that_began_it(tmp_path):
    """Else the broker would take it for what it has already."""
    with PublishSpool(tmp_path, budget_bytes=4000) as spool:
        author = Author()
        ids = {}
        for _ in range(60):
            spool.append(author.next("block"))
            for record in records(spool):
                content = ids.setdefault(spool.message_id(record), record.data)
                same = content == record.data or unpacked(content).stands_for == unpacked(record.data).stands_for == 1
                assert same
    assert any(unpacked(data).stands_for > 1 for data in ids.values())


def test_what_is_acknowledged_is_removed_and_the_place_stays(tmp_path):
    author = Author()
    with PublishSpool(tmp_path, budget_bytes=4000) as spool:
        for _ in range(9):
            spool.append(author.next("block"))
            spool.acknowledge(records(spool, spool.acknowledged)[-1].last)
        assert len(list(tmp_path.glob("*.parcels"))) == 1
        assert spool.is_empty
        assert spool.waiting() == 0
        before = spool.place
    with PublishSpool(tmp_path, budget_bytes=4000) as spool:
        assert spool.place == before
        assert spool.is_empty


def test_a_year_without_a_link_stays_within_the_budget(tmp_path):
    """However long: what is left is one gap a recording."""
    author, budget, notices = Author(), 20_000, list[Notice]()
    with PublishSpool(tmp_path, budget_bytes=budget, report=notices.append) as spool:
        for number in range(1200):
            spool.append(author.next("started" if number % 200 == 0 else "block"))
        size = sum(file.stat().st_size for file in tmp_path.glob("*.parcels"))
        assert size <= budget
        told = heard(parcels(spool))
        assert sum(notice.details["samples"] for notice in notices) == sum(
            parcel.fact.stop - parcel.fact.start
            for one in told.values()
            for parcel in one
            if isinstance(parcel.fact, Gap)
        )
    require_told(author, told, complete=False)
    assert [len(one) for one in list(told.values())[:4]] == [2] * 4


def test_what_somebody_should_read_stays(tmp_path):
    """Of sound, ticks and pace one gap for each stretch is left."""
    author = Author()
    kinds = ["started", "tick", "notice", "block", "tick", "gap", "block", "trouble", "tick", "tick", "block", "ended"]
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        for kind in kinds:
            spool.append(author.next(kind))
        left = [unpacked(record.data) for record in condensed(records(spool), SPOOL_FULL)]
    assert [(type(one.fact).__name__, one.number, one.stands_for) for one in left] == [
        ("RecordingStarted", 0, 1),
        ("Tick", 1, 1),
        ("Notice", 2, 1),
        ("Gap", 3, 4),
        ("SourceTrouble", 7, 1),
        ("Gap", 8, 3),
        ("RecordingEnded", 11, 1),
    ]
    assert [one.fact for one in left if isinstance(one.fact, Gap)] == [
        Gap(0, 120, SPOOL_FULL),
        Gap(120, 160, SPOOL_FULL),
    ]


def test_troubles_by_the_thousand_go_last(tmp_path):
    """What somebody should read stays as long as it takes no more than its share."""
    author, budget = Author(), 20_000
    with PublishSpool(tmp_path, budget_bytes=budget) as spool:
        for number in range(600):
            spool.append(author.next("trouble" if number % 2 else "block"))
        assert sum(file.stat().st_size for file in tmp_path.glob("*.parcels")) <= budget
        (told,) = heard(parcels(spool)).values()
    assert sum(parcel.stands_for for parcel in told) == 600


@pytest.mark.parametrize(
    ("away_seconds", "is_live", "gap"),
    [(2.5, True, 10_000), (2.5, False, 0), (-60.0, True, 0), (90 * 86_400.0, True, 0)],
)
def test_the_end_of_a_recording_that_a_kill_left(tmp_path, away_seconds, is_live, gap):
    """With a gap as long as the clock says, unless that cannot be, or nothing was missed."""
    with PublishSpool(tmp_path, budget_bytes=LARGE, wall=lambda: 1000.0) as spool:
        author = Author()
        spool.is_live = is_live
        for kind in ("started", "block", "tick"):
            spool.append(author.next(kind))
    (tmp_path / "cursor.json").write_bytes(b"")  # as the power may leave it
    with PublishSpool(tmp_path, budget_bytes=LARGE, wall=lambda: 1000.0) as spool:
        finish(spool, now=1000.0 + away_seconds)
        finish(spool, now=2000.0)
        assert (spool.cut_off, spool.done) == (set() if is_live else {"recording 0"}, set())
        told = [parcel.fact for parcel in parcels(spool)][3:]
    assert told == ([Gap(40, 40 + gap, AWAY)] if gap else []) + [RecordingEnded("recording 0", 40 + gap)]


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("n_known", [1, 4, 9])
def test_what_the_disk_forgot_when_the_power_failed_does_not_hide_the_end(tmp_path, is_live, n_known):
    """The broker has more of the recording than the spool: who listens hears the end all the same, and what was missed
    since."""
    author, sorting = Author(), Sorting()
    with PublishSpool(tmp_path / "whole", budget_bytes=LARGE, wall=lambda: 1000.0) as spool:
        spool.is_live = is_live
        for number in range(10):
            if number == n_known:
                shutil.copytree(spool.path, tmp_path / "forgotten")
            spool.append(author.next("started" if number == 0 else "block"))
        told = pushed(sorting, parcels(spool))
    assert [type(fact) for fact in told] == [RecordingStarted, *[Block] * 9]
    with PublishSpool(tmp_path / "forgotten", budget_bytes=LARGE, wall=lambda: 1100.0) as spool:
        before = records(spool)[-1].last
        finish(spool, now=1100.0)
        spool.append(author.next("started"))
        told = pushed(sorting, parcels(spool, before))
    length = 40 * (n_known - 1) + 400_000 if is_live else 360
    gap = [Gap(360, length, AWAY)] if is_live else []
    assert told == [*gap, RecordingEnded("recording 0", length), RecordingStarted("recording 1", 4000, ("1", "2"))]


def pushed(sorting: Sorting, parcels: list[Parcel]) -> list[object]:
    """What whoever listens makes of messages that come behind what it has."""
    return [fact for parcel in parcels for fact in sorting.push(sorting.resume_at, parcel)]


SEVERAL_SEGMENTS = 80_000
"""Bytes of a budget, of which sixty blocks are less than the half."""


def filled(directory: Path) -> tuple[Author, list[Path]]:
    """Sixty blocks of a recording in several segments, nothing of which was sent; a kill follows."""
    author = Author()
    spool = PublishSpool(directory, budget_bytes=SEVERAL_SEGMENTS)
    for _ in range(61):
        spool.append(author.next("block"))
    killed(spool)
    segments = sorted(spool.path.glob("*.parcels"))
    assert len(segments) > 2
    return author, segments


def zeroed(path: Path, start: int, stop: int | None = None) -> None:
    """As a page that was never written, or that the disk lost."""
    content = bytearray(path.read_bytes())
    content[start:stop] = bytes(len(content[start:stop]))
    path.write_bytes(content)


def gaps_told(author: Author, spool: PublishSpool) -> list[Gap]:
    """By whoever listens, who hears all of the time once enough has followed."""
    for kind in [*["tick"] * 70, "ended"]:
        spool.append(author.next(kind))
    facts = pushed(Sorting(), parcels(spool))
    spans = [fact for fact in facts if isinstance(fact, Block | Gap)]
    assert spans[0].start == 0
    assert all(before.stop == after.start for before, after in pairwise(spans))
    assert spans[-1].stop == author.sample
    assert isinstance(facts[-1], RecordingEnded)
    return [fact for fact in spans if isinstance(fact, Gap)]


@pytest.mark.parametrize("start", [700, 0], ids=["in the middle", "from the beginning"])
def test_a_damaged_segment_costs_what_is_damaged(tmp_path, start):
    """Its damage is a gap for whoever listens; with the budget reached, what is whole is condensed around it."""
    author, segments = filled(tmp_path)
    zeroed(segments[1], start, start + 400)
    told: list[Notice] = []
    with PublishSpool(tmp_path, budget_bytes=SEVERAL_SEGMENTS, report=told.append) as spool:
        assert [notice.details["why"] for notice in told] == [f"{segments[1]} is damaged; check the disk. A gap tells"]
        assert [gap.reason for gap in gaps_told(author, spool)] == [LOST]
        spool.append(author.next("started"))
        for _ in range(400):
            spool.append(author.next("block"))
        assert sum(file.stat().st_size for file in tmp_path.glob("*.parcels")) <= SEVERAL_SEGMENTS
        last = parcels(spool)[-1]
        assert (last.number, last.fact.stop) == (400, 40 * 400)


def test_what_is_damaged_at_the_end_is_written_anew(tmp_path):
    """Also if it is the end of the last segment but one, because nothing of the last was written."""
    _, segments = filled(tmp_path)
    segments[-1].write_bytes(b"")
    zeroed(segments[-2], segments[-2].stat().st_size - 100)
    with PublishSpool(tmp_path, budget_bytes=SEVERAL_SEGMENTS) as spool:
        told = parcels(spool)
        assert spool.place is not None
        assert spool.place.number == told[-1].number + 1 == len(told)
        spool.append(block(spool.place.sample))
        assert [parcel.number for parcel in parcels(spool)] == list(range(len(told) + 1))


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("at_start", [True, False])
def test_a_segment_that_cannot_be_read_is_set_aside(tmp_path, which, at_start):
    """It is told, the rest follows, and the budget holds."""
    _, segments = filled(tmp_path)
    told: list[Notice] = []
    spool = None if at_start else PublishSpool(tmp_path, budget_bytes=SEVERAL_SEGMENTS, report=told.append)
    segments[which].unlink()
    segments[which].mkdir()  # what is no file gives an error of the system, whoever asks
    with spool or PublishSpool(tmp_path, budget_bytes=SEVERAL_SEGMENTS, report=told.append) as spool:
        found = parcels(spool)
        assert 30 < len(found) < 60
        assert spool.waiting() == len(found)
        (notice,) = told
        assert f"{segments[which]} cannot be read: Is a directory; check the disk" in notice.details["why"]
        for _ in range(400):
            assert spool.place is not None
            spool.append(block(spool.place.sample))
        assert sum(file.stat().st_size for file in tmp_path.glob("*.parcels")) <= SEVERAL_SEGMENTS
        spool.acknowledge(records(spool)[-1].last)
        assert spool.is_empty
    with PublishSpool(tmp_path, budget_bytes=SEVERAL_SEGMENTS, report=told.append) as spool:
        assert spool.place is not None
    assert len([one for one in told if "cannot be read" in one.details["why"]]) == 1


def test_an_end_that_is_damaged_while_it_is_written_is_not_waited_for(tmp_path):
    """What comes behind it is found, and the spool becomes empty."""
    told: list[Notice] = []
    author, segments = filled(tmp_path)
    with PublishSpool(tmp_path, budget_bytes=SEVERAL_SEGMENTS, report=told.append) as spool:
        known = records(spool)
        zeroed(segments[-1], 0)
        sent = next(record.last for record in reversed(known) if record.last < int(segments[-1].stem))
        assert spool.read(sent, 10) == []
        spool.acknowledge(sent)
        assert spool.is_empty
        assert ["is damaged; check the disk" in notice.details["why"] for notice in told] == [True]
        spool.append(author.next("block"))
        (record,) = records(spool, sent)
        assert unpacked(record.data).number == 61


def test_only_one_publisher_at_a_time(tmp_path):
    with (
        PublishSpool(tmp_path, budget_bytes=LARGE),
        pytest.raises(UsageError, match="is used by another gemmed publish"),
    ):
        PublishSpool(tmp_path, budget_bytes=LARGE)


def test_what_is_done_is_remembered(tmp_path):
    """Also behind a line that a kill cut off."""
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        spool.note_done("ä\nb")
    with (tmp_path / "notes.jsonl").open("a") as file:
        file.write('\n{"done": "ha')
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        assert spool.done == {"ä\nb"}
        spool.note_done("c")
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        assert spool.done == {"ä\nb", "c"}


def test_a_note_that_was_damaged_is_told_and_costs_no_other(tmp_path):
    told: list[Notice] = []
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        for name in "abc":
            spool.note_done(name)
    file = tmp_path / "notes.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"b"', b'"\xff"'))
    with PublishSpool(tmp_path, budget_bytes=LARGE, report=told.append) as spool:
        assert spool.done == {"a", "c"}
    assert ["notes.jsonl are damaged" in one.details["why"] for one in told] == [True]


def test_notes_that_cannot_be_read_are_told_with_a_cure(tmp_path):
    """Taken for none, all files would be published again."""
    (tmp_path / "notes.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"notes.jsonl cannot be read: Is a directory; repair the disk"):
        PublishSpool(tmp_path, budget_bytes=LARGE)


def test_a_note_about_what_the_disk_forgot_when_the_power_failed_is_none(tmp_path):
    author, later = Author(), tmp_path / "later"
    with PublishSpool(tmp_path / "spool", budget_bytes=LARGE) as spool:
        for kind in ("started", "block"):
            spool.append(author.next(kind))
        (file,) = spool.path.glob("*.parcels")
        known = file.stat().st_size
        spool.append(author.next("ended"))
        spool.note_done("recording 0")
        shutil.copytree(spool.path, later)
    os.truncate(later / file.name, known)
    for _ in range(2):  # and it does not come back with later lives
        with PublishSpool(later, budget_bytes=LARGE) as spool:
            assert not spool.done
            spool.append(author.next("tick"))
    with PublishSpool(tmp_path / "spool", budget_bytes=LARGE) as spool:
        assert spool.done == {"recording 0"}


@pytest.mark.parametrize("byte", range(0, 46, 3))
def test_a_record_with_damaged_marks_costs_no_other_segment(tmp_path, byte):
    """What is behind it in its own is lost, and told."""
    author, told = Author(), list[Notice]()
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        spool._segment_bytes = 2_000
        for _ in range(60):
            spool.append(author.next("block"))
        before = records(spool)
    damaged, behind = sorted(int(file.stem) for file in tmp_path.glob("*.parcels"))[1:3]
    file = tmp_path / f"{damaged:020d}.parcels"
    content = bytearray(file.read_bytes())
    content[byte] ^= 0x40
    file.write_bytes(content)
    with PublishSpool(tmp_path, budget_bytes=LARGE, report=told.append) as spool:
        assert records(spool) == [one for one in before if not damaged <= one.first < behind]
    assert ["is damaged; check the disk" in one.details["why"] for one in told] == [True]


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"told": "[\\"a\\", 99999999999999, 1]", "check": 1}', b"\xff"])
def test_a_damaged_cursor_costs_nothing(tmp_path, content):
    """All that is there is sent again: whoever listens drops what it has by number."""
    author = Author()
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        for kind in ("started", "block", "block"):
            spool.append(author.next(kind))
        before, identity = records(spool), spool.identity
        spool.acknowledge(before[1].last)
    (tmp_path / "cursor.json").write_bytes(content)
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        assert records(spool, spool.acknowledged) == before
        assert spool.identity != identity


def test_what_waits_is_sent_from_a_disk_that_is_full_at_the_start(tmp_path):
    """Nothing else would make space."""
    author = Author()
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        for kind in ("started", "block", "block"):
            spool.append(author.next(kind))
        before, identity = records(spool), spool.identity
    with disk_full(0), PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        assert records(spool) == before
        assert spool.identity != identity  # the next life would give the same ids as this one
        spool.append(author.next("block"))
        spool.acknowledge(before[-1].last)
        assert not spool.is_empty
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        assert spool.identity == identity


def test_too_many_open_files_are_ridden_out(tmp_path, monkeypatch):
    """How many wait is then told as well as it is known; nothing is set aside."""
    author = Author()
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        for kind in ("started", "block", "block"):
            spool.append(author.next(kind))
        with monkeypatch.context() as machine:
            machine.setattr(_Segment, "records", _too_many_open_files)
            assert spool.waiting() == 3
            with pytest.raises(OSError, match="open files"):
                spool.read(0, 3)
        assert len(records(spool)) == 3


def _too_many_open_files(segment: _Segment) -> list[Record]:
    raise OSError(errno.EMFILE, "too many open files")


def test_recordings_that_the_disk_lost_are_missed(tmp_path):
    """Numbers are those of a recording: the next one says which was before it."""
    author, sorting = Author(), Sorting()
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        spool._segment_bytes = 1_500
        for _ in range(30):
            for kind in ("started", "block", "ended"):
                spool.append(author.next(kind))
        for _ in range(70):
            spool.append(author.next("started" if author.sample == 0 else "block"))
    lost = sorted(tmp_path.glob("*.parcels"))[2]
    lost.unlink()
    with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
        facts = pushed(sorting, parcels(spool))
    heard = [fact.recording for fact in facts if isinstance(fact, RecordingStarted)]
    missing = [name for name in author.facts if name not in heard]
    assert missing
    troubles = [fact for fact in facts if isinstance(fact, SourceTrouble)]
    assert any(f"recording {missing[-1]}" in f"recording {one.message}" for one in troubles), troubles


def test_the_last_word_about_a_recording_counts(tmp_path):
    """Done or cut off, across lives."""
    for is_done in (True, False, True):
        with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
            (spool.note_done if is_done else spool.note_cut_off)("a")
        with PublishSpool(tmp_path, budget_bytes=LARGE) as spool:
            assert (spool.done, spool.cut_off) == (({"a"}, set()) if is_done else (set(), {"a"}))


def test_what_is_only_in_memory_is_not_noted_as_done(tmp_path):
    """On a disk that takes nothing: a kill would leave the note, and not the end; with space again both are there."""
    author = Author()
    with PublishSpool(tmp_path / "spool", budget_bytes=LARGE) as spool:
        for kind in ("started", "block"):
            spool.append(author.next(kind))
        (file,) = spool.path.glob("*.parcels")
        with disk_full(file.stat().st_size):
            spool.append(author.next("ended"))
            spool.note_done("recording 0")
            shutil.copytree(spool.path, tmp_path / "killed")
        assert not spool.wait_until_empty(0.0)
        shutil.copytree(spool.path, tmp_path / "with space")
    for name, is_done in (("killed", False), ("with space", True)):
        with PublishSpool(tmp_path / name, budget_bytes=LARGE) as spool:
            assert spool.place is not None
            assert (spool.place.ended, "recording 0" in spool.done) == (is_done, is_done)


@contextmanager
def disk_full(size: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes; the system says so by an error, and kills nobody."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
