"""What was heard comes back from the disk to the last bit, however it was cut, also after a kill or a full disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import SourceError, StorageError
from pipeline.core.events import Block, Gap
from pipeline.storage.audio import AudioPart, AudioSpool, SoundStore
from pipeline.storage.journal import Journal

RATE, SENSORS = 1000, 3
ALL = np.ones(SENSORS, np.bool_)


def sixteen_bits(length: int, seed: int = 0) -> np.ndarray:
    """All that a converter can give, its ends included."""
    values = np.random.default_rng(seed).integers(-32768, 32768, (SENSORS, length))
    values[:, :1], values[:, 1:2] = -32768, 32767
    return (values / 32768).astype(np.float32)


def floats(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((SENSORS, length)).astype(np.float32)


class Kept:
    """A store with one recording, and a spool that writes into it."""

    def __init__(self, directory: Path, *, finish: bool = True, piece_seconds: float = 0.1) -> None:
        self.journal = Journal(directory / "journal.sqlite")
        self.store = SoundStore(directory / "sound", self.journal)
        self.parts: list[AudioPart] = []
        finished = self.store.keep if finish else self.parts.append
        self.spool = AudioSpool(directory / "sound", piece_seconds=piece_seconds, finished=finished)
        self.begin("r")

    def begin(self, name: str) -> None:
        self.journal.execute(
            "INSERT INTO recordings VALUES (?, 'a run', ?, ?, '{}', '2026-01-01', NULL)", (name, RATE, SENSORS)
        )
        self.spool.begin(name, RATE)

    def files(self) -> list[str]:
        return sorted(file.name for file in self.store.directory.glob("r/*"))

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *exc: object) -> None:
        self.spool.finish()
        self.journal.close()


def whole(facts: list[Block | Gap]) -> tuple[np.ndarray, np.ndarray]:
    """Samples and masks; blocks and gaps tile the time. Where nobody delivered, 0."""
    length, position = facts[-1].stop if facts else 0, facts[0].start if facts else 0
    first = position
    samples, delivered = np.zeros((SENSORS, length), np.float32), np.zeros((SENSORS, length), np.bool_)
    for fact in facts:
        assert fact.start == position < fact.stop
        position = fact.stop
        if isinstance(fact, Block):
            samples[:, fact.start : fact.stop] = np.where(fact.delivered[:, None], fact.samples, 0)
            delivered[:, fact.start : fact.stop] = fact.delivered[:, None]
    return samples[:, first:], delivered[:, first:]


PIECES = st.lists(
    st.tuples(
        st.integers(1, 250),
        st.lists(st.booleans(), min_size=SENSORS, max_size=SENSORS),
        st.sampled_from(["16 bits", "float", "gap"]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25)
@given(pieces=PIECES, place=st.tuples(st.integers(0, 800), st.integers(1, 800)))
def test_what_was_written_is_read_to_the_last_bit(tmp_path_factory, pieces, place):
    """In 16 bits or as floating point, with masks and gaps, from any sample to any other."""
    facts: list[Block | Gap] = []
    for number, (length, mask, kind) in enumerate(pieces):
        start = facts[-1].stop if facts else 0
        made = sixteen_bits(length, number) if kind == "16 bits" else floats(length, number)
        gap = kind == "gap" or not any(mask)
        facts.append(Gap(start, start + length, "lost") if gap else Block(start, made, np.array(mask)))
    with Kept(tmp_path_factory.mktemp("kept")) as kept:
        for fact in facts:
            if isinstance(fact, Block):
                kept.spool.write(fact)
        kept.spool.finish()
        expected, masks = whole(facts)
        samples, delivered = whole(list(kept.store.read("r", 0, facts[-1].stop)))
        assert (samples == expected).all()
        assert (delivered == masks).all()
        start, stop = place[0], place[0] + place[1]
        part, mask = whole(list(kept.store.read("r", start, stop)))
        padded = np.pad(expected, ((0, 0), (0, 1600)))[:, start:stop]
        assert (part == padded).all()
        assert (mask == np.pad(masks, ((0, 0), (0, 1600)))[:, start:stop]).all()
        assert not [name for name in kept.files() if not name.endswith((".flac", ".wav"))]


def test_sixteen_bits_take_sixteen_and_pieces_end_at_multiples_of_their_length(tmp_path):
    """FLAC as long as a converter can have given the samples, then floating point."""
    with Kept(tmp_path) as kept:
        kept.spool.write(Block(0, sixteen_bits(250), ALL))
        kept.spool.write(Block(250, floats(100), ALL))
        kept.spool.write(Block(350, sixteen_bits(50), ALL))
        kept.spool.finish()
        names = [f"{n:012d}" for n in (0, 100, 200, 250, 300)]
        assert kept.files() == [f"{name}.{'flac' if n < 3 else 'wav'}" for n, name in enumerate(names)]


@pytest.mark.parametrize("cut_bytes", [0, 1, 5, 6, 599])
@pytest.mark.parametrize("form", ["s16", "f32"])
def test_a_piece_that_was_cut_off_gives_its_whole_frames_at_the_next_start(tmp_path, cut_bytes, form):
    samples = sixteen_bits(100) if form == "s16" else floats(100)
    with Kept(tmp_path, finish=False, piece_seconds=1.0) as kept:
        kept.spool.write(Block(40, samples, np.array([True, False, True])))
        (file,) = (tmp_path / "sound" / "r").iterdir()
        assert file.name == f"000000000040-{form}-5.part"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) - cut_bytes])
    with Journal(tmp_path / "journal.sqlite") as journal:
        store = SoundStore(tmp_path / "sound", journal)
        for part in store.left_behind():
            store.keep(part)
            store.keep(part)
        frames = (len(data) - cut_bytes) // (SENSORS * (2 if form == "s16" else 4))
        facts = list(store.read("r", 40))
        assert store.left_behind() == []
    assert sum(fact.stop - fact.start for fact in facts) == frames
    for fact in facts:
        assert (fact.samples[[0, 2]] == samples[[0, 2], :frames]).all()


def test_a_recording_that_nobody_knows_is_left_alone(tmp_path):
    """Such as one whose row was lost: whoever looks into the directory may still want it."""
    with Kept(tmp_path) as kept:
        stranger = kept.store.directory / "stranger" / "000000000000-s16-7.part"
        stranger.parent.mkdir(parents=True)
        stranger.write_bytes(b"\0" * 60)
        assert kept.store.left_behind() == []
        assert stranger.exists()


class FullDisk:
    """A file that takes some bytes and then refuses, as the system does it: first with a part, then with an error."""

    def __init__(self, file, room: int) -> None:
        self._file, self.room = file, room

    def write(self, data) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        written = self._file.write(data[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_a_disk_that_takes_half_a_block_keeps_none_of_it(tmp_path):
    """Else all that follows would be shifted. What came before stays, and the next piece is in its place."""
    samples = sixteen_bits(300)
    with Kept(tmp_path, piece_seconds=10.0) as kept:
        kept.spool.write(Block(0, samples[:, :100], ALL))
        kept.spool._file = FullDisk(kept.spool._file, room=333)
        with pytest.raises(OSError, match="No space"):
            kept.spool.write(Block(100, samples[:, 100:200], ALL))
        assert kept.spool.position == 100
        kept.spool.finish()
        kept.spool.write(Block(200, samples[:, 200:], ALL))
        kept.spool.finish()
        facts = list(kept.store.read("r", 0, 300))
    assert [(type(fact), fact.start, fact.stop) for fact in facts] == [
        (Block, 0, 100),
        (Gap, 100, 200),
        (Block, 200, 300),
    ]
    assert (facts[2].samples == samples[:, 200:]).all()


def test_sound_whose_file_is_gone_or_short_says_so(tmp_path):
    with Kept(tmp_path) as kept:
        kept.spool.write(Block(0, sixteen_bits(200), ALL))
        first, second = sorted((kept.store.directory / "r").iterdir())
        first.unlink()
        with pytest.raises(SourceError, match=r"000000000000.flac cannot be read.*restore it from a copy"):
            list(kept.store.read("r"))
        kept.journal.execute("UPDATE pieces SET stop = stop + 5 WHERE start = 100")
        with pytest.raises(SourceError, match="shorter than the journal says"):
            list(kept.store.read("r", 100))
        assert second.exists()


def test_a_piece_is_not_given_up_for_a_journal_that_was_replaced_meanwhile(tmp_path):
    """It is listed in the old file, which nobody will read: the raw piece stays until the new one lists it."""
    with Kept(tmp_path, finish=False, piece_seconds=10.0) as kept:
        kept.spool.write(Block(0, sixteen_bits(100), ALL))
        kept.spool.finish()
        for file in tmp_path.glob("journal.sqlite*"):
            file.rename(tmp_path / f"old-{file.name}")
        Journal(tmp_path / "journal.sqlite").close()
        with pytest.raises(StorageError, match="open it again"):
            kept.store.keep(kept.parts[0])
        with Journal(tmp_path / "journal.sqlite") as journal:
            store = SoundStore(tmp_path / "sound", journal)
            store.keep(replace(kept.parts[0]))
            assert [(fact.start, fact.stop) for fact in store.read("r")] == [(0, 100)]
        assert not kept.parts[0].file.exists()
