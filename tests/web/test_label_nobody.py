"""The label `nobody`, end to end: a daemon takes rain drops for people, a person says so, the next model knows."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from pipeline.core.choices import Choices
from pipeline.core.events import Block, PassageEnded, RecordingStarted
from pipeline.model.build import whole_chain
from pipeline.model.model import Model
from pipeline.retraining.job import Job
from pipeline.retraining.registry import Registry
from pipeline.retraining.worker import TrainingOutcome, run
from pipeline.runtime.state_dir import StateDirectory
from pipeline.simulation.day import Day, Site
from pipeline.simulation.distractors import DROPS, Distractor
from pipeline.storage.journal import Journal
from tests.conftest import eventually
from tests.web.asking import CHANGE, ask
from tests.web.conftest import Dashboard

pytestmark = pytest.mark.soak  # three trainings

RATE = 4000
CLASSES = ("human", "human_animal")
DROPPED = 'kind = "folder"\npath = "drop"\nsettle = "0.2 s"'
LEARNING = {"components": 20, "folds": 2}
LEAD_SECONDS = 18.0
EDGE_SECONDS = 2.0
"""At the beginning and the end of a passage nothing is to be heard yet."""
Span = tuple[float, float]


@dataclass(frozen=True, eq=False)
class RainyDay(Day):
    """People come by chance; every minute drops fall from a tree for a quarter of it, unless somebody is near."""

    minutes_of_drops: int = 0

    @cached_property
    def distractors(self) -> tuple[Distractor, ...]:
        people = [(one.start_seconds - 20, one.end_seconds + 20) for one in self.passages]
        drops = [Distractor(n, DROPS, 60.0 * n + 40, 60.0 * n + 55, None) for n in range(self.minutes_of_drops)]
        return tuple(one for one in drops if not any(overlap(span(one), other) for other in people))


def a_day(seed: int, seconds: float, *, people_per_day: float, minutes_of_drops: int = 0) -> RainyDay:
    return RainyDay(
        Site(seed=seed, rate_hz=RATE),
        seconds / 3600,
        people_per_day,
        distractors_per_day=0,
        classes=CLASSES,
        minutes_of_drops=minutes_of_drops,
    )


def sound_of(day: Day) -> np.ndarray:
    return day.read(0, day.length)


def span(one: Any) -> Span:
    return one.start_seconds, one.end_seconds


def overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@dataclass(frozen=True, slots=True)
class Heard:
    """What a daemon with the first model heard, before anybody labeled anything."""

    dashboard: Dashboard
    day: RainyDay
    false: list[str]
    """Ids of the passages in which only drops fell."""


@pytest.fixture(scope="module")
def heard(tmp_path_factory) -> Iterator[Heard]:
    directory = tmp_path_factory.mktemp("rain")
    write_recordings(directory / "recordings")
    job = Job(recordings=(directory / "recordings",), labels=directory / "recordings" / "labels.csv", **LEARNING)
    assert run(directory / "state", job, starter=True) is TrainingOutcome.PASSED
    (directory / "drop").mkdir()
    made = Dashboard(directory, None, source=DROPPED)
    try:
        made.start()
        day = a_day(9, 840, people_per_day=200, minutes_of_drops=14)
        drop_into(directory / "drop", sound_of(day))
        eventually(lambda: made.answer("/api/v1/events?types=recording_finished").get("events"), "all is heard")
        found = made.answer("/api/v1/passages?most=100")["passages"]
        yield Heard(made, day, [one["passage"] for one in found if is_drops(one, day)])
    finally:
        made.close()


def write_recordings(directory: Path) -> None:
    """People who walk by, each in a recording that begins when nobody is there yet; no rain."""
    day = a_day(3, 1400, people_per_day=940)
    sound = sound_of(day)
    directory.mkdir(parents=True)
    with (directory / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("recording", "start_seconds", "end_seconds", "label"))
        for one in day.passages:
            begin = max(0.0, one.start_seconds - LEAD_SECONDS)
            name = f"walk{one.number:02d}"
            part = sound[:, round(begin * RATE) : round(one.end_seconds * RATE)]
            soundfile.write(directory / f"{name}.flac", part.T, RATE)
            table.writerow((name, 0, one.start_seconds - begin, "nobody"))
            start, end = one.start_seconds + EDGE_SECONDS, one.end_seconds - EDGE_SECONDS
            table.writerow((name, start - begin, end - begin, one.label))


def drop_into(directory: Path, sound: np.ndarray) -> None:
    """A file that appears as a whole."""
    soundfile.write(directory.parent / "night.wav", sound.T, RATE, subtype="PCM_16")
    shutil.move(directory.parent / "night.wav", directory)


def is_drops(passage: dict[str, Any], day: RainyDay) -> bool:
    own = passage["start_seconds"], passage["end_seconds"]
    return any(overlap(own, span(one)) for one in day.distractors) and not any(
        overlap(own, span(one)) for one in day.passages
    )


def taught(heard: Heard, label: str, directory: Path) -> Model:
    """Label the false passages through the API, and return what the next training makes of it."""
    directory.mkdir()
    numbers = []
    for passage in heard.false:
        numbers += changed(heard, "/api/v1/labels", label=label, passage=passage)["numbers"]
    heard.dashboard.copy_state(directory / "taught")
    for number in numbers:
        changed(heard, f"/api/v1/labels/{number}/take-back")
    assert run(directory / "taught", Job(**LEARNING)) is TrainingOutcome.PASSED
    with Journal(StateDirectory(directory / "taught").journal) as journal:
        registry = Registry(directory / "taught" / "models", journal)
        return registry.load(registry.all()[0].name)


def changed(heard: Heard, path: str, **body: Any) -> Any:
    """What the API answers to a change."""
    answer = ask(heard.dashboard.port, path, "POST", headers=CHANGE, body=body)
    assert answer.code == 200, answer.json
    return answer.json


def passages(model: Model, sound: np.ndarray) -> list[Span]:
    """What the chain of a daemon finds in a new recording."""
    chain = whole_chain(model, Choices())
    facts = [*chain.push(RecordingStarted("new", RATE, tuple("1234")))]
    for start in range(0, sound.shape[1], 10 * RATE):
        facts += chain.push(Block(start, sound[:, start : start + 10 * RATE], np.ones(4, np.bool_)))
    facts += chain.flush()
    ended = [one.passage for one in facts if isinstance(one, PassageEnded)]
    return [(one.start / RATE, one.stop / RATE) for one in ended]


def found(wanted: list[Span], by: list[Span]) -> int:
    return sum(any(overlap(one, other) for other in by) for one in wanted)


def test_a_label_nobody_changes_the_next_model_and_a_wrong_one_does_not(heard, tmp_path):
    """On another day with the same kind of rain: drops start no passage any more, walkers still do."""
    assert len(heard.false) >= 5, "the first model takes drops for people"
    day = a_day(10, 840, people_per_day=400, minutes_of_drops=14)
    sound, drops, people = sound_of(day), list(map(span, day.distractors)), list(map(span, day.passages))
    with heard.dashboard.journal() as journal:
        first = Registry(heard.dashboard.state.models, journal).load_champion()
    assert first is not None
    before = passages(first, sound)
    right, wrong = (passages(taught(heard, label, tmp_path / label), sound) for label in ("nobody", "human"))
    assert len(drops) >= 5
    assert len(people) >= 3
    assert found(drops, before) >= 5
    assert found(drops, right) == 0
    assert found(people, right) == found(people, before) == len(people)
    assert found(drops, wrong) >= 5
