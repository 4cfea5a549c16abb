"""Sound on its way to the disk, while the disk does not want it."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import numpy as np
import pytest

from pipeline.core.events import Block, Notice, NoticeKind, RecordingStarted
from pipeline.daemon import housekeeping
from pipeline.daemon.housekeeping import Housekeeper, SoundKeeper
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.audio import AudioPart, SoundStore
from pipeline.storage.journal import Journal
from tests.conftest import TIMEOUT

RATE, SENSORS = 1000, 2


@pytest.fixture
def state(tmp_path) -> StateDirectory:
    state = StateDirectory(tmp_path)
    state.create()
    with Journal(state.journal) as journal:
        for name in ("first", "second"):
            values = (name, "run", RATE, SENSORS, "{}", "2026-01-01")
            journal.execute("INSERT INTO recordings VALUES (?, ?, ?, ?, ?, ?, NULL)", values)
    return state


def housekeeper(state: StateDirectory) -> Housekeeper:
    return Housekeeper(state, budget_bytes=10**9, least_free_bytes=0, report=lambda notice: None)


def block(start: int, stop: int) -> Block:
    return Block(start, np.full((SENSORS, stop - start), start / 32768, np.float32), np.ones(SENSORS, np.bool_))


def started(name: str) -> RecordingStarted:
    return RecordingStarted(name, RATE, ("1", "2"))


def pieces(state: StateDirectory) -> list[tuple[str, int, int]]:
    with Journal(state.journal, read_only=True) as journal:
        rows = journal.rows(
            "SELECT recording, start, stop FROM pieces WHERE file IS NOT NULL ORDER BY recording, start"
        )
    return [(row["recording"], row["start"], row["stop"]) for row in rows]


def test_what_cannot_be_kept_is_counted_and_what_can_lies_in_its_own_recording(state, monkeypatch):
    """Also if a recording began while the disk refused."""
    monkeypatch.setattr(housekeeping, "_RETRY_SECONDS", 0.0)
    reports: list[Notice] = []
    house = housekeeper(state)
    keeper = SoundKeeper(state, house, piece_seconds=0.1, report=reports.append)
    for fact in (started("first"), block(0, 250)):
        keeper.keep(fact)
    aside = state.path / "aside"
    state.sound.rename(aside)
    state.sound.write_text("in the way")
    keeper.keep(block(250, 330))  # to 300 into the file that is open, and then nowhere
    for fact in (started("second"), block(0, 70)):
        keeper.keep(fact)
    state.sound.unlink()
    aside.rename(state.sound)
    keeper.keep(block(70, 150))
    keeper.close()
    house.finish(seconds=TIMEOUT)
    assert keeper.lost == 30 + 70
    assert [notice.kind for notice in reports] == [NoticeKind.STORAGE_READ_ONLY, NoticeKind.STORAGE_RECOVERED]
    assert reports[1].details["samples_lost"] == 100
    whole = [("first", 0, 100), ("first", 100, 200), ("first", 200, 300), ("second", 70, 100), ("second", 100, 150)]
    assert pieces(state) == whole
    assert not list(state.sound.glob("*/*.part"))


def test_hearing_does_not_wait_for_a_disk_that_refuses_and_nothing_is_thrown_away(state):
    """A hundred pieces, and a journal that is not there any more; the next start finds them all."""
    house = housekeeper(state)
    for file in state.path.glob("journal.sqlite*"):
        file.rename(str(file).replace("journal.sqlite", "aside.sqlite"))
    state.journal.mkdir()
    (state.sound / "first").mkdir()
    for number in range(100):
        file = state.sound / "first" / f"{100 * number:012d}-s16-3.part"
        file.write_bytes(bytes(4 * 100))
        house.hand_over(AudioPart(file, "first", 100 * number, "s16", (True, True), RATE))
    house.finish(seconds=TIMEOUT)
    assert len(list(state.sound.glob("*/*.part"))) == 100
    state.journal.rmdir()
    for file in state.path.glob("aside.sqlite*"):
        file.rename(str(file).replace("aside.sqlite", "journal.sqlite"))
    again = housekeeper(state)
    again.finish(seconds=TIMEOUT)
    assert pieces(state) == [("first", start, start + 100) for start in range(0, 10_000, 100)]


def test_a_full_disk_is_cleared_although_nothing_can_be_written_to_it(state, monkeypatch):
    """Room is made before what waits is tried again."""
    monkeypatch.setattr(housekeeping, "_RETRY_SECONDS", 0.0)
    tries: list[int] = []
    keep = SoundStore.keep

    def full_until_something_goes(store: SoundStore, part: AudioPart) -> None:
        tries.append(len(list(Path(state.sound).glob("old/*"))))
        if tries[-1]:
            house.least_free_bytes = 10**18
            raise OSError(28, "No space left on device")
        keep(store, part)

    monkeypatch.setattr(SoundStore, "keep", full_until_something_goes)
    (state.sound / "old").mkdir()
    (state.sound / "first").mkdir()
    (state.sound / "old" / "0.flac").write_bytes(bytes(100))
    with Journal(state.journal) as journal:
        journal.execute("INSERT INTO pieces VALUES ('old', 0, 100, '[]', 'old/0.flac', 100, '2026', 0, NULL)")
    reports: list[Notice] = []
    told = Event()

    def report(notice: Notice) -> None:
        reports.append(notice)
        told.set()

    house = Housekeeper(state, budget_bytes=10**9, least_free_bytes=0, report=report)
    file = state.sound / "first" / f"{0:012d}-s16-3.part"
    file.write_bytes(bytes(400))
    house.hand_over(AudioPart(file, "first", 0, "s16", (True, True), RATE))
    assert told.wait(TIMEOUT)
    house.finish(seconds=TIMEOUT)
    assert tries[0] == 1
    assert tries[-1] == 0
    assert reports[0].kind is NoticeKind.STORAGE_PRUNED
    assert reports[0].details["removed_pieces"] == {"ordinary": 1}
    assert ("first", 0, 100) in pieces(state)
