"""A state directory with a past: passages of some days, written by the real recorder, and some of their sound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from pipeline.core.events import (
    Block,
    Exclusion,
    ModelChanged,
    Movement,
    Notice,
    NoticeKind,
    Passage,
    PassageEnd,
    Peak,
    Role,
)
from pipeline.daemon.recorder import Recorder
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.audio import AudioSpool, SoundStore
from pipeline.storage.journal import Journal
from pipeline.storage.labels import LabelSpan, LabelSubmission, give
from pipeline.storage.passage_history import PassageHistory
from tests.passages import MODEL, facts, passage

SURE = {"human": {"human": -0.02, "human_animal": -4.0}, "human_animal": {"human": -3.0, "human_animal": -0.05}}
UNCLEAR = {"human": -0.7, "human_animal": -0.69}
RATE = 4000
SECONDS = 60.0
"""Length of each recording; a passage begins 10 s after its recording."""
LEAD = 10.0
SENSORS = 3


@dataclass(frozen=True, slots=True)
class Past:
    """A passage of the past, alone in its recording."""

    start: datetime
    label: str | None = "human"
    seconds: float = 20.0
    crosses_border: bool = False
    """Whether it goes on in the recording that follows."""
    kept: float = 0.0
    """Seconds of its recording of which sound is kept."""
    moves: bool = False


def write_past(state: StateDirectory, passages: Sequence[Past]) -> list[str]:
    """Write the journal and the sound of an array that heard these passages; return the recordings."""
    state.create()
    recorder = Recorder(state.journal, "run")
    recorder.choices = json.dumps({"least_confidence": 0.6})
    names = [f"r{number:04d}" for number in range(1, len(passages) + 1)]
    for fact in (Notice(NoticeKind.RUN_STARTED), ModelChanged(0, MODEL)):
        recorder.observe(fact)
    for name, one in zip(names, passages, strict=True):
        observe_passage(recorder, name, one)
    store = SoundStore(state.sound, recorder.journal)
    for name, one in zip(names, passages, strict=True):
        if one.kept:
            spool = AudioSpool(state.sound, piece_seconds=10, finished=store.keep)
            spool.begin(name, RATE)
            spool.write(Block(0, sound(name)[:, : round(one.kept * RATE)], np.ones(SENSORS, np.bool_)))
            spool.finish()
    recorder.close()
    return names


def observe_passage(recorder: Recorder, name: str, one: Past) -> None:
    """Record a passage, and the rest of it in the next recording if it has one."""
    began = one.start - timedelta(seconds=LEAD)
    border = one.seconds / 2 if one.crosses_border else one.seconds
    told = facts(
        name,
        _passage(name, LEAD, LEAD + border, one),
        started_at=began,
        seconds=LEAD + border if one.crosses_border else SECONDS,
        last_end=PassageEnd.RECORDING_ENDED if one.crosses_border else PassageEnd.QUIET,
        rate_hz=RATE,
    )
    if one.crosses_border:
        rest = _passage(f"{name}-rest", 0, one.seconds - border, one)
        told += facts(f"{name}-rest", rest, started_at=began + timedelta(seconds=LEAD + border), rate_hz=RATE)
    for fact in told:
        recorder.observe(fact)
    recorder.commit()


def _passage(recording: str, begin: float, end: float, one: Past) -> Passage:
    made = passage(
        recording,
        begin,
        end,
        SURE.get(one.label or "", UNCLEAR),
        peaks=(Peak(0, round((begin + 2) * RATE), 12.0), Peak(1, round((begin + 4.5) * RATE), 15.5)),
        excluded=(Exclusion(0, Role.ANOMALOUS, 0.1), Exclusion(2, Role.MASKED, 0.4)),
        cadence=(112.0, 0.41),
        rate_hz=RATE,
    )
    return replace(made, movement=Movement(84.0, 5.0, 1.3, 0.2, 4.0, 0.8)) if one.moves else made


def sound(recording: str) -> np.ndarray:
    """Sixteen bits of noise of all sensors, different for each recording."""
    seed = sum(map(ord, recording))
    made = np.random.default_rng(seed).integers(-9000, 9000, (SENSORS, round(SECONDS * RATE)))
    return made.astype(np.float32) / 32768


def some_days(last: datetime, *, days: int = 4, each: int = 20) -> list[Past]:
    """The same number of passages on each day, at hours that repeat, the oldest first; the last is at `last`."""
    return [
        Past(
            last - timedelta(days=days - 1 - day, minutes=37 * (each - 1 - number)),
            label=("human", "human_animal", None)[(day + number) % 3],
            kept=SECONDS if number % 4 == 0 else 15.0 if number % 4 == 1 else 0.0,
            moves=number % 4 == 0,
        )
        for day in range(days)
        for number in range(each)
    ]


def label_passage(journal: Journal, passage_id: str, label: str, who: str = "anna") -> None:
    """Label a passage as the command does."""
    for part in PassageHistory(journal).row(passage_id).parts:
        give(journal, LabelSpan(part.recording, part.start_sample, part.stop_sample), LabelSubmission(label, who))


NOW = datetime(2031, 11, 18, 7, 40, tzinfo=UTC)
"""Later than any clock that runs these tests: the present of an array is that of its newest passage."""
