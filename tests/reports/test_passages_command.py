"""`gemmed passages` on files of a replay and on state directories that the real recorder wrote."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import soundfile
from rich.console import Console

from pipeline.core.event_json import SCHEMA, line
from pipeline.core.events import (
    Block,
    Exclusion,
    ModelChanged,
    Movement,
    Notice,
    NoticeKind,
    PassageEnd,
    PassageStarted,
    Peak,
    RecordingStarted,
    Role,
)
from pipeline.core.passages import PASSAGE_EVENTS, joined, passages_of
from pipeline.daemon.recorder import Recorder
from pipeline.reports.passage_tables import replay_table
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.audio import AudioSpool, SoundStore
from pipeline.storage.decision_file import totals
from pipeline.storage.journal import Journal
from pipeline.training.labels import NOBODY_WORDS, read_labels
from tests.forked import ROOT, gemmed
from tests.passages import MODEL, RATE, events, facts, passage

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIKELY_ANIMAL = {"human": -3.0, "human+animal": -0.05}
UNCLEAR = {"human": -0.7, "human+animal": -0.6}


def recordings(*, started_at: datetime | None = None) -> list[object]:
    """Two recordings of a minute; the last passage of the first goes on in the second, if their times are known."""
    later = started_at + timedelta(seconds=60) if started_at else None
    masked = (Exclusion(2, Role.MASKED, 1.0), Exclusion(1, Role.ANOMALOUS, 0.25))
    return [
        *facts(
            "run-0001",
            passage("run-0001", 5, 15.5, cadence=(112.4, 0.5)),
            passage("run-0001", 50, 60, LIKELY_ANIMAL, excluded=masked),
            started_at=started_at,
            last_end=PassageEnd.RECORDING_ENDED,
        ),
        *facts(
            "run-0002",
            passage("run-0002", 1, 9, LIKELY_ANIMAL, excluded=()),
            passage("run-0002", 30, 35, UNCLEAR),
            started_at=later,
        ),
    ]


def sound(recording: int) -> np.ndarray:
    """Sixteen bits of noise of three sensors."""
    return np.random.default_rng(recording).integers(-9000, 9000, (3, 60 * RATE)).astype(np.float32) / 32768


@pytest.fixture
def replayed(tmp_path) -> Path:
    """A file of a replay of recordings without times."""
    return write_replay(tmp_path / "decisions.jsonl", recordings())


def write_replay(path: Path, told: list[object]) -> Path:
    header = {
        "type": "replay_started",
        "schema": SCHEMA,
        "rate_hz": RATE,
        "sensors": 3,
        "resample": False,
        "least_confidence": 0.6,
    }
    path.write_text("".join(map(line, [header, *events(told)])))
    return path


@pytest.fixture
def state(tmp_path) -> Path:
    """What a daemon leaves that heard the same, and keeps the sound of the first recording."""
    return write_state(tmp_path / "state", recordings(started_at=NOON))


def write_state(path: Path, told: list[object]) -> Path:
    directory = StateDirectory(path)
    directory.create()
    recorder = Recorder(directory.journal, "run")
    recorder.choices = json.dumps({"least_confidence": 0.6})
    for fact in [Notice(NoticeKind.RUN_STARTED), ModelChanged(0, MODEL), *told]:
        recorder.observe(fact)
        recorder.commit()
    keep_sound(directory, recorder.journal)
    recorder.close()
    return path


def keep_sound(directory: StateDirectory, journal: Journal) -> None:
    store = SoundStore(directory.sound, journal)
    spool = AudioSpool(directory.sound, piece_seconds=10, finished=store.keep)
    for number in (1, 2):
        spool.begin(f"run-{number:04d}", RATE)
        spool.write(Block(0, sound(number), np.ones(3, bool)))
    spool.finish()


def listed(*arguments: str | Path) -> list[dict]:
    done = gemmed("passages", *map(str, arguments), "--json")
    assert done.returncode == (0 if json.loads(done.stdout) else 1), done.stderr
    return json.loads(done.stdout)


def test_a_replay_is_listed_as_its_events_say(replayed):
    found = listed(replayed)
    assert found == [row.as_dict() for row in passages_of(events(recordings()))]
    assert [one["passage"] for one in found] == [
        "run-0001.p5000",
        "run-0001.p50000",
        "run-0002.p1000",
        "run-0002.p30000",
    ]


def test_a_daemon_lists_what_a_replay_with_times_lists(state, tmp_path):
    """And a passage over the border of two recordings once."""
    found = listed(state)
    assert found == [row.as_dict() for row in joined(passages_of(events(recordings(started_at=NOON))))]
    assert found == listed(write_replay(tmp_path / "timed.jsonl", recordings(started_at=NOON)))
    assert [len(one["parts"]) for one in found] == [1, 2, 1]
    assert (found[1]["start_time"], found[1]["end_time"]) == ("2026-05-01T12:00:50.000Z", "2026-05-01T12:01:09.000Z")
    assert [one["label"] for one in found] == ["human", "human+animal", None]


def test_the_table_tells_people_the_same(state, replayed):
    done = gemmed("passages", str(state))
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    for part in (
        "run-0001.p5000",
        "2026-05-01 12:00:05",
        "10.5",
        "human 91 %",
        "human+animal >99 %",
        "112/min",
        "3 bad health",
        "1 2",
    ):
        assert part in text, part
    assert "2 anomalous 12 %, 3 bad health 50 %" in text
    assert "no label (too close to call)" in text
    assert done.stdout.rstrip().splitlines()[-1] == "3 passages: 1 human, 1 human+animal, 1 no label"
    done = gemmed("passages", str(replayed))
    assert "run-0001, 5.0-15.5" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1] == "4 passages: 2 human+animal, 1 human, 1 no label"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--label", "human"], [0]),
        (["--label", "no label", "--label", "human"], [0, 2]),
        (["--least-probability", "0.93"], [1]),
        (["--recording", "run-0002"], [1, 2]),
        (["--recording", "0001", "--label", "human"], [0]),
        (["--since", "2026-05-01T12:00:20Z"], [1, 2]),
        (["--since", "2026-05-01T12:01:05Z"], [1, 2]),
        (["--until", "2026-05-01T14:00:30+02:00"], [0]),
        (["--since", "2026-05-01T12:00:20", "--until", "2026-05-01T12:01:20"], [1]),
        (["--since", "-1h"], []),
        (["--label", "cow"], []),
        (["--recording", "other"], []),
    ],
)
def test_filters(options, expected, state):
    all_of_them = listed(state)
    assert listed(state, *options) == [all_of_them[number] for number in expected]


def test_ids_choose_passages_also_by_their_end_and_by_any_part(state):
    all_of_them = listed(state)
    assert listed(state, "run-0001.p5000") == all_of_them[:1]
    assert listed(state, "0002.p30000", "run-0002.p1000") == [all_of_them[2], all_of_them[1]]


def test_csv_comes_back(state, tmp_path):
    done = gemmed("passages", str(state), "--csv", "-")
    assert done.returncode == 0
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    for row, one in zip(found, listed(state), strict=True):
        for name in ("passage", "recording", "start_time", "end_time", "end", "model"):
            assert row[name] == one[name]
        for name in ("start_seconds", "end_seconds", "duration_seconds", "presence", "segments"):
            assert float(row[name]) == one[name]
        assert row["label"] == (one["label"] or "")
        assert [int(sensor) for sensor in row["sensors_used"].split()] == one["sensors_used"]
        excluded = [part.split(":") for part in row["sensors_excluded"].split()]
        assert [(int(sensor), role, float(share)) for sensor, role, share in excluded] == [
            tuple(part.values()) for part in one["sensors_excluded"]
        ]
    gemmed("passages", str(state), "--label", "human", "--csv", str(tmp_path / "new" / "labels.csv"))
    (label,) = read_labels(tmp_path / "new" / "labels.csv")
    assert (label.recording, label.start_seconds, label.end_seconds, label.label) == ("run-0001", 5.0, 15.5, "human")


def test_an_audacity_track_comes_back_and_holds_one_recording(state, tmp_path):
    done = gemmed("passages", str(state), "--recording", "run-0002", "--audacity", str(tmp_path / "run-0002.txt"))
    assert done.returncode == 0, done.stderr
    found = [(one.start_seconds, one.end_seconds, one.label) for one in read_labels(tmp_path / "run-0002.txt")]
    assert found == [(1.0, 9.0, "human+animal"), (30.0, 35.0, "no label")]
    done = gemmed("passages", str(state), "--recording", "run-0001", "--audacity", "-")
    assert done.stdout == "5.000000\t15.500000\thuman\n50.000000\t60.000000\thuman+animal\n"


def test_clips_hold_the_sound_of_their_passage(state, replayed, tmp_path):
    done = gemmed("passages", str(state), "run-0001.p50000", "--clips", str(tmp_path / "clips"))
    assert done.returncode == 0, done.stderr
    found, rate = soundfile.read(tmp_path / "clips" / "run-0001.p50000.flac", dtype="float32")
    assert rate == RATE
    expected = np.concatenate([sound(1)[:, 50 * RATE :], sound(2)[:, RATE : 9 * RATE]], axis=1)
    assert np.array_equal(found.T, expected)
    folder = tmp_path / "sound"
    folder.mkdir()
    for number in (1, 2):
        soundfile.write(folder / f"run-{number:04d}.wav", sound(number).T, RATE, subtype="PCM_16")
    done = gemmed("passages", str(replayed), "--clips", str(tmp_path / "all"), "--recordings", str(folder))
    assert done.returncode == 0, done.stderr
    assert sorted(path.stem for path in (tmp_path / "all").iterdir()) == [one["passage"] for one in listed(replayed)]
    found, _ = soundfile.read(tmp_path / "all" / "run-0002.p30000.flac", dtype="float32")
    assert np.array_equal(found.T, sound(2)[:, 30 * RATE : 35 * RATE])


def test_sound_that_is_gone_is_named_and_the_rest_is_written(state, tmp_path):
    with Journal(state / "journal.sqlite") as journal:
        journal.execute("UPDATE pieces SET file = NULL WHERE recording = 'run-0001' AND start < 20000")
    done = gemmed("passages", str(state), "--clips", str(tmp_path / "clips"))
    assert done.returncode == 0
    assert "the sound of passage run-0001.p5000 is no longer kept" in done.stderr
    assert len(list((tmp_path / "clips").iterdir())) == 2
    done = gemmed("passages", str(state), "run-0001.p5000", "--clips", str(tmp_path / "clips"))
    assert done.returncode == 2


def test_settings_lead_to_their_state(state, tmp_path):
    (tmp_path / "gemmed.toml").write_text('[storage]\ndirectory = "state"\n')
    assert listed(tmp_path / "gemmed.toml") == listed(state)
    assert listed("--config", tmp_path / "gemmed.toml") == listed("--state", state) == listed(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}/none.jsonl"], "none.jsonl cannot be read"),
        (["{tmp}/nothing/"], "is not there; start gemmed run first"),
        (["{tmp}/text.txt"], "must be a state directory, settings (.toml) or decisions (.jsonl)"),
        (["{tmp}/text.jsonl"], "line 1 is not an event of gemmed replay"),
        (["{state}", "nobody"], "there is no passage 'nobody'"),
        (["{state}", "--since", "noon"], "time 'noon' must be like 2026-05-01T04:30:00Z"),
        (["{state}", "--since", "2026-05-02", "--until", "2026-05-01"], "must be before --until"),
        (["{state}", "--least-probability", "97"], "--least-probability=97 must be 0 to 1"),
        (["{replayed}", "--since", "-1h"], "need recordings with a start time"),
        (["{state}", "--json", "--csv", "-"], "both write to standard output"),
        (["{state}", "--audacity", "-"], "add --recording, for example --recording run-0001"),
        (["{replayed}", "--clips", "{tmp}/clips"], "add --recordings"),
        (["{replayed}", "--clips", "{tmp}/text.txt"], "is a file; give a directory"),
        (["{state}", "--recordings", "{tmp}", "--clips", "{tmp}/clips"], "--recordings belongs to a .jsonl"),
        (["{state}", "--state", "{state}"], "name two places"),
        (["{state}", "--nothing"], "No such option"),
    ],
)
def test_wrong_usage_is_named_and_has_exit_code_2(arguments, message, state, replayed, tmp_path):
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "text.jsonl").write_text("hello\n")
    places = {"tmp": tmp_path, "state": state, "replayed": replayed}
    done = gemmed("passages", *(argument.format(**places) for argument in arguments))
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_none_is_exit_code_1_and_said(tmp_path):
    file = write_replay(tmp_path / "empty.jsonl", facts("run-0001"))
    done = gemmed("passages", str(file))
    assert (done.returncode, done.stdout) == (1, "0 passages\n")
    assert gemmed("passages", str(file), "--json").stdout.strip() == "[]"


def test_a_passage_without_an_end_was_interrupted_unless_its_daemon_runs(tmp_path):
    one = passage("run-0001", 5, 8)
    told = [RecordingStarted("run-0001", RATE, ("1", "2", "3"), NOON), PassageStarted(8000, one)]
    state = StateDirectory(write_state(tmp_path / "state", told))
    assert [row["end"] for row in listed(state.path)] == ["interrupted"]
    with state.locked():
        assert [row["end"] for row in listed(state.path)] == [None]
        assert "going on" in gemmed("passages", str(state.path)).stdout


def labels(state: Path) -> list[tuple]:
    with Journal(state / "journal.sqlite", read_only=True) as journal:
        rows = journal.rows("SELECT recording, start, stop, label, who, why FROM labels ORDER BY id")
        return [tuple(row.values()) for row in rows]


def test_a_label_covers_all_of_a_passage(state):
    """By option or as a second word; of one across two recordings in both."""
    done = gemmed("label", "human", "--passage", "run-0002.p30000", "--who", "ada", "--state", str(state))
    assert done.returncode == 0, done.stderr
    assert "human in run-0002, 30.00 to 35.00 s" in done.stdout
    done = gemmed("label", "nobody", "0001.p50000", "--who", "ada", "--why", "wind", "--state", str(state))
    assert done.returncode == 0, done.stderr
    assert labels(state) == [
        ("run-0002", 30_000, 35_000, "human", "ada", ""),
        ("run-0001", 50_000, 60_000, "nobody", "ada", "wind"),
        ("run-0002", 1000, 9000, "nobody", "ada", "wind"),
    ]


def test_nobody_is_a_word_that_needs_no_model_and_others_are_checked(state):
    facts = json.dumps({"classes": ["human", "human+animal"]})
    with Journal(state / "journal.sqlite") as journal:
        values = ("m", "m", "", "given", None, "champion", "", "", facts)
        journal.execute("INSERT INTO models VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    for word in NOBODY_WORDS:
        assert gemmed("label", word, "0001.p5000", "--state", str(state)).returncode == 0
    done = gemmed("label", "humann", "0001.p5000", "--state", str(state))
    assert done.returncode == 1
    assert "did you mean human?" in done.stderr
    assert len(labels(state)) == len(NOBODY_WORDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--passage", "p1"], "there is no passage 'p1'; gemmed passages lists them"),
        (["0001.p5000", "--passage", "0001.p5000"], "name two passages"),
        (["0001.p5000", "--at", "-90s"], "a label needs a place, and only one"),
        ([], "a label needs a place, and only one: give --passage ID"),
    ],
)
def test_a_label_for_no_passage_is_refused(arguments, message, state):
    done = gemmed("label", "human", *arguments, "--state", str(state))
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert labels(state) == []


def test_events_of_passages_are_as_the_schema_says():
    """Also one with all that is optional, one without a classifier and one that is going on."""
    schema = json.loads((ROOT / "pipeline" / "core" / "events.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    path = Movement(10.0, 2.0, 1.4, 0.1, (0.5, -2.0), 0.3)
    full = replace(passage("r", 1, 9, peaks=(Peak(0, 4000, 7.5),), cadence=(110.0, 0.4)), movement=path)
    told = events(facts("r", full, passage("r", 20, 30, {}), passage("r", 40, 45, {"x": -math.inf, "y": -1.0})))
    for event in told:
        validator.validate(event)
    assert {event["type"] for event in told} >= set(PASSAGE_EVENTS)
    assert told[-1]["passages"] == {"human": 1, "no label": 1, "y": 1}
    broken = {**told[1], "presence": 1.5}
    assert not validator.is_valid(broken)


def test_totals_of_a_replay_count_passages(tmp_path):
    told = [event | {"troubles": 0} for event in events(recordings()) if event["type"] == "recording_finished"]
    assert totals(told)["passages"] == {"human": 1, "human+animal": 2, "no label": 1}
    older = [{name: value for name, value in event.items() if name != "passages"} for event in told]
    assert totals(older)["passages"] == {}


def test_a_replay_shows_passages_by_recording():
    told = events([*recordings(), *facts("run-0003", seconds=9), *facts("run-0004", seconds=0)])
    summaries = [
        event
        | {"trained_on": event["recording"] == "run-0002", "decisions": 20, "labels": {"human": 15}, "abstained": 5}
        | {"nobody": 5}
        for event in told
        if event["type"] == "recording_finished"
    ]
    console = Console(width=120, record=True, file=io.StringIO(), markup=False, emoji=False)
    console.print(replay_table(summaries, passages_of(told)))
    cells = [
        [cell.strip() for cell in row.split("│")[1:-1]] for row in console.export_text().splitlines() if "│" in row
    ]
    assert cells == [
        ["run-0001", "5.0-15.5", "human", "91 %", "112/min", "15 human, 5 nobody"],
        ["", "50.0-60.0", "human+animal", "95 %", "", ""],
        ["run-0002*", "1.0-9.0", "human+animal", "95 %", "", "15 human, 5 nobody"],
        ["", "30.0-35.0", "no label (too close to call)", "52 %", "", ""],
        ["run-0003", "", "nobody", "", "", "15 human, 5 nobody"],
        ["run-0004", "", "not usable", "", "", "15 human, 5 nobody"],
    ]
