"""`gemmed simulate --day` and `--classes` as a user runs them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.core.events import Block, Gap
from pipeline.simulation import CLASSES, Day, Site
from pipeline.sources.files import FileSource, find_recordings
from tests.conftest import component
from tests.forked import gemmed

RATE = 4000
DAY = ("--day", "--hours", "0.1", "--rate", str(RATE), "--passages", "900", "--distractors", "1500", "--seed", "9")
FILES = ("--piece-seconds", "60", "--fault-share", "0,0,0,.2", "--faults", "dead,gain_loss")
TABLES = ("labels.csv", "truth.csv", "passages.csv", "distractors.csv", "simulation.json")
PATTERN = "{recording}_{time:%Y%m%d_%H%M%S}.flac"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    component("matplotlib")
    out = tmp_path_factory.mktemp("day") / "one"
    done = gemmed("simulate", str(out), *DAY, *FILES, "--start-hour", "6", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert "0.1 h from 06:00, recording day9" in done.stdout
    assert PATTERN in done.stdout
    return out


def test_files_join_into_one_recording_without_gaps(written):
    """As the file source reads them by the times in their names; the samples are those of the day."""
    listing = find_recordings(written, pattern=PATTERN)
    assert [recording.name for recording in listing.recordings] == ["day9"]
    with FileSource(listing) as source:
        facts = list(source)
    assert not any(isinstance(fact, Gap) for fact in facts)
    sound = np.concatenate([fact.samples for fact in facts if isinstance(fact, Block)], axis=1)
    assert sound.shape == (4, 360 * RATE)
    site = Site(seed=9, rate_hz=RATE)
    day = Day(site, hours=0.1, passages_per_day=900, distractors_per_day=1500, start_hour=6)
    assert (sound[:3] == day.read(0, day.length)[:3]).all()
    assert (written / "day9_20260101_060000.flac").exists()
    assert (written / "day9_20260101_060500.flac").exists()


def test_tables_name_the_recording_and_agree(written):
    tables = {name: rows(written / name) for name in TABLES[:-1]}
    assert {row["recording"] for table in tables.values() for row in table} == {"day9"}
    assert list(tables["labels.csv"][0]) == ["recording", "start_seconds", "end_seconds", "label"]
    spans = [(float(row["start_seconds"]), float(row["end_seconds"])) for row in tables["labels.csv"]]
    assert all(start < end <= 360 for start, end in spans)
    assert spans == sorted(spans)
    passed = [row for row in tables["passages.csv"] if float(row["end_seconds"]) > float(row["start_seconds"])]
    labeled = [row for row in tables["labels.csv"] if row["label"] in CLASSES]
    keys = ("start_seconds", "end_seconds", "label")
    assert [[row[key] for key in keys] for row in labeled] == [[row[key] for key in keys] for row in passed]
    assert len(passed) > 1
    assert {row["direction"] for row in passed} <= {"forward", "backward"}
    assert all((row["cadence_per_minute"] == "") == (row["label"] == "vehicle") for row in passed)
    assert {row["sensor"] for row in tables["distractors.csv"]} <= {"all", "1", "2", "3", "4"}
    assert {row["sensor"] for row in tables["truth.csv"]} == {"4"}
    assert {row["fault"] for row in tables["truth.csv"]} == {"dead", "gain_loss"}
    settings = json.loads((written / "simulation.json").read_text())
    assert (settings["kind"], settings["hours"], settings["pattern"]) == ("day", 0.1, PATTERN)


def test_the_timeline_is_a_picture(written):
    content = (written / "day.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(content) > 50_000


def test_an_interrupted_day_is_continued_to_the_same_bytes(written, tmp_path):
    """With missing and damaged files as after a kill, by two processes."""
    out = tmp_path / "again"
    out.mkdir()
    names = sorted(path.name for path in written.glob("*.flac"))
    assert len(names) == 6
    for name in (*names[:3], "simulation.json"):
        (out / name).write_bytes((written / name).read_bytes())
    (out / names[1]).write_bytes((written / names[1]).read_bytes()[:2000])
    (out / f"{names[4]}.123.partial").write_bytes(b"half")
    command = ("simulate", str(out), *DAY, *FILES, "--start-hour", "6", "--no-picture", "--jobs", "2")
    done = gemmed(*command)
    assert done.returncode == 0, done.stderr
    assert "continuing: 2 files are there, 4 to go" in done.stdout
    for name in (*names, *TABLES):
        assert (out / name).read_bytes() == (written / name).read_bytes(), name
    assert not (out / "day.png").exists()
    other = gemmed(*command, "--passages", "800")
    assert other.returncode == 1
    assert "holds another simulation (passages_per_day 900.0 there, 800.0 here)" in other.stderr


def test_the_sound_does_not_depend_on_the_length_of_files(written, tmp_path):
    out = tmp_path / "long"
    options = (*DAY, *FILES, "--start-hour", "6", "--no-picture", "--piece-seconds", "350", "--format", "wav")
    assert gemmed("simulate", str(out), *options).returncode == 0
    first = np.concatenate([soundfile.read(path)[0] for path in sorted(written.glob("*.flac"))])
    second = np.concatenate([soundfile.read(path)[0] for path in sorted(out.glob("*.wav"))])
    assert (first == second).all()


def test_short_recordings_have_the_classes_asked_for_equally_often(tmp_path):
    out = tmp_path / "classes"
    options = ("--rate", "2000", "--seconds", "3", "--recordings", "12", "--no-picture", "--faults", "none")
    done = gemmed("simulate", str(out), *options, "--classes", f"{','.join(CLASSES)},nobody")
    assert done.returncode == 0, done.stderr
    labels = [row["label"] for row in rows(out / "labels.csv")]
    assert sorted(labels) == sorted(2 * [*CLASSES, "nobody"])
    assert "2 two_humans, 2 vehicle, 2 nobody" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--classes", "human,ghost"), "class 'ghost' is not known; choose some of human, human_animal, animal"),
        (("--classes", "human,human"), "classes 'human,human' must be different names"),
        (("--day", "--classes", "human,nobody"), "class 'nobody' cannot pass the array; leave it out"),
        (("--day", "--hours", "-1"), "-1.0 hours must be above 0"),
        (("--day", "--start-hour", "24"), "start hour 24.0 must be at least 0 and below 24; for example 6"),
        (("--day", "--format", "mp3"), "format 'mp3' is not known; choose one of wav, flac"),
        (("--day", "--fault-share", "0,0.1"), "2 fault shares for 4 sensors"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path, options, message):
    done = gemmed("simulate", str(tmp_path / "none"), *options)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "none").exists()
