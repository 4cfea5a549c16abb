"""What a kill leaves behind, and how the next start deals with it."""

from __future__ import annotations

import json
from pathlib import Path
from queue import Queue

import numpy as np
import pytest

from pipeline.config.schema import Settings
from pipeline.core.events import Block, Gap, Notice, NoticeKind
from pipeline.daemon.housekeeping import Housekeeper
from pipeline.model.model import Model
from pipeline.reports.verify import verify
from pipeline.retraining.controller import RetrainingProcess
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.audio import AudioPart, AudioSpool, SoundStore
from pipeline.storage.journal import Journal, JournalEntry
from tests.conftest import TIMEOUT

RATE_HZ, SECONDS = 2000, 3
RECORDING = "r-0001"


@pytest.fixture
def state(tmp_path) -> StateDirectory:
    """That of a run which was killed while it heard its fourth second."""
    found = StateDirectory(tmp_path / "state")
    found.create()
    with Journal(found.journal) as journal:
        journal.execute(
            "INSERT INTO recordings (name, run, rate_hz, sensors, choices, started_at) VALUES (?, 'r', ?, 4, '{}', '')",
            (RECORDING, RATE_HZ),
        )
    parts: list[AudioPart] = []
    spool = AudioSpool(found.sound, piece_seconds=1.0, finished=parts.append)
    spool.begin(RECORDING, RATE_HZ)
    spool.write(Block(0, noise(), np.ones(4, np.bool_)))
    spool.finish()
    return found


def noise() -> np.ndarray:
    values = np.random.default_rng(0).integers(-(2**15), 2**15, (4, RATE_HZ * SECONDS + 700))
    return (values / 2**15).astype(np.float32)


def tidy(state: StateDirectory, *more: AudioPart) -> None:
    """A housekeeper starts, does its work and stops."""
    told: list[Notice] = []
    housekeeper = Housekeeper(state, budget_bytes=10**9, least_free_bytes=0, report=told.append)
    for part in more:
        housekeeper.hand_over(part)
    housekeeper.finish(seconds=60.0)
    assert told == []


def files(state: StateDirectory) -> list[str]:
    return sorted(path.name for path in state.sound.glob("*/*"))


def heard(state: StateDirectory) -> list[Block | Gap]:
    with Journal(state.journal, read_only=True) as journal:
        return list(SoundStore(state.sound, journal).read(RECORDING))


def test_raw_pieces_are_finished_by_the_next_start(state):
    """Every sample that was on the disk is there again, and nothing raw is left."""
    assert len(files(state)) == SECONDS + 1
    tidy(state)
    assert {Path(name).suffix for name in files(state)} == {".flac"}
    np.testing.assert_array_equal(np.concatenate([one.samples for one in heard(state)], axis=1), noise())


def test_a_piece_that_is_gone_does_not_keep_others_waiting(state):
    """Somebody has removed a raw piece; the next one is finished all the same."""
    spare = state.sound / RECORDING / "000000010000-s16-15.part"
    spare.write_bytes(bytes(8 * RATE_HZ))
    everybody = (True,) * 4
    gone = AudioPart(spare.with_name("000000008000-s16-15.part"), RECORDING, 8000, "s16", everybody, RATE_HZ)
    tidy(state, gone, AudioPart(spare, RECORDING, 10_000, "s16", everybody, RATE_HZ))
    assert heard(state)[-1].start == 10_000


def test_a_removal_that_was_cut_short_is_finished(state):
    """First from the list, then from the disk: a kill in between must not leave a file that nobody ever removes."""
    tidy(state)
    stray = state.sound / "unknown" / "000000000000.flac"
    stray.parent.mkdir()
    stray.write_bytes(b"perhaps of a journal that was lost")
    with Journal(state.journal) as journal:
        journal.execute("UPDATE pieces SET file = NULL, removed = 'now' WHERE start = ?", (RATE_HZ,))
    tidy(state)
    assert files(state) == ["000000000000.flac", "000000000000.flac", "000000004000.flac", "000000006000.flac"]
    assert stray.exists()


def test_the_budget_holds_from_the_start(state):
    """A daemon that is killed every few seconds would else fill the disk."""
    tidy(state)
    told: Queue[Notice] = Queue()
    housekeeper = Housekeeper(state, budget_bytes=1, least_free_bytes=0, report=told.put)
    pruned = told.get(timeout=TIMEOUT)
    assert pruned.kind is NoticeKind.STORAGE_PRUNED
    assert pruned.details["removed_pieces"] == {"ordinary": SECONDS + 1}
    housekeeper.finish(seconds=60.0)
    assert files(state) == []


@pytest.mark.parametrize("end", ["retraining_finished", "retraining_failed", None])
def test_what_a_killed_retraining_did_not_learn_is_learned_by_the_next(state, model, end):
    """A label counts as learned from once a round that began after it has come to its end."""
    half_written = state.path / "retraining.json.17.partial"
    half_written.write_text("{")
    with Journal(state.journal) as journal:
        registry = Registry(state.models, journal)
        champion = registry.add(Model.load(model), origin=ModelOrigin.GIVEN, status=ModelStatus.CHALLENGER, why="given")
        registry.promote(champion.name, who="somebody", why="for a test")
        for kind in ("label_given", "retraining_started", *([end] if end else [])):
            journal.append([JournalEntry("r", {"type": kind})])
        retraining = RetrainingProcess(state, "next")
        chosen = Settings.model_validate({"training": {"pause": 0.0, "new_labels": 1}}, by_name=True)
        try:
            assert list(retraining.look(journal, registry, chosen)) == []
            assert retraining.running == (end is None)
        finally:
            retraining.stop()
    assert half_written.exists() == (end is not None)


def test_events_that_were_removed_cannot_be_compared(state):
    """For want of space the oldest decisions go; that is no difference."""
    with Journal(state.journal) as journal:
        entries = [JournalEntry("r", {"type": kind, "start_sample": 0, "model": None}, RECORDING, 0)
                   for kind in ("recording_started", "model_changed", "decision", "state_changed")]  # fmt: skip
        journal.append(entries)
        journal.execute("UPDATE recordings SET choices = ?", (json.dumps(Settings().choices().as_dict()),))
        journal.execute("DELETE FROM events WHERE type = 'decision'")
        verdict = verify(state, journal, RECORDING)
    assert verdict.why_not == f"events of {RECORDING} are no longer kept"
    assert verdict.different == 0


def test_decisions_of_an_older_version_are_not_compared(state):
    """Bits that another version rounded in another way are no difference of the daemon's."""
    choices = Settings().choices().as_dict()
    del choices["arithmetic"]
    with Journal(state.journal) as journal:
        journal.append([JournalEntry("r", {"type": "recording_started", "model": None}, RECORDING, 0)])
        journal.execute("UPDATE recordings SET choices = ?", (json.dumps(choices),))
        verdict = verify(state, journal, RECORDING)
    assert not verdict.equal
    assert verdict.different == 0
    assert "decided with the arithmetic '1 scipy'" in verdict.why_not
