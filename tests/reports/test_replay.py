"""Replay: the same bytes however it is done, and every line as the schema says."""

from __future__ import annotations

import json
import os
import shutil
import signal
from io import StringIO
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import soundfile
from rich.console import Console

from pipeline.core.choices import Choices
from pipeline.core.errors import UsageError
from pipeline.core.events import Decision
from pipeline.model.build import whole_chain
from pipeline.model.model import Model
from pipeline.model.starter import STARTER
from pipeline.reports.replay import Replay, replay
from pipeline.runtime.process_pool import ThisProcess, progress_bar
from pipeline.sources.files import FileSource, find_recordings
from pipeline.storage.decision_file import DecisionFile, read_events
from tests.arrays import ALPHA
from tests.conftest import eventually
from tests.forked import ROOT, Process, gemmed

CHOICES, SAME = Choices(alpha=ALPHA), ("--alpha", str(ALPHA))


def events(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def decided(path: Path) -> list[dict]:
    return [event for event in events(path) if event["type"] == "decision"]


def replayed(model: Path, recordings: Path, out: Path, *, block_samples=None, choices=None) -> Path:
    """In this process, which is fast."""
    task = Replay(model, choices or CHOICES, block_samples=block_samples)
    listing = find_recordings(recordings)
    with DecisionFile(out, task.header(listing)) as file, progress_bar(Console(file=StringIO())) as bar:
        replay(task, listing, file, engine=ThisProcess(), bar=bar)
    return out


@pytest.mark.parametrize("block_samples", [1999, 333, 50_000])
def test_any_block_size_gives_the_same_bytes(block_samples, model, unseen, decisions, tmp_path):
    """Cut otherwise, one process instead of several: not a bit differs."""
    again = replayed(model, unseen, tmp_path / "again.jsonl", block_samples=block_samples)
    assert again.read_bytes() == decisions.read_bytes()


def test_the_command_gives_the_same_bytes_again(model, unseen, decisions, tmp_path):
    """Another process, another number of workers; to standard output too."""
    out = tmp_path / "again.jsonl"
    assert gemmed("replay", str(unseen), "--model", str(model), "--out", str(out), *SAME, "--jobs", "2").returncode == 0
    assert out.read_bytes() == decisions.read_bytes()
    done = gemmed("replay", str(unseen), "--model", str(model), "--out", "-", *SAME)
    assert done.stdout == decisions.read_text()
    assert "Passages per recording" in done.stderr


@pytest.mark.parametrize("share", [0.0005, 0.31, 0.77])
def test_cut_off_anywhere_it_is_completed_to_the_same_bytes(share, model, unseen, decisions, tmp_path):
    """As a crash leaves it: nothing is repeated, nothing skipped."""
    whole = decisions.read_bytes()
    header = whole.index(b"\n") + 1
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(whole[: header + round(share * (len(whole) - header))])
    assert replayed(model, unseen, broken).read_bytes() == whole


def test_a_finished_file_is_left_alone(model, unseen, decisions, tmp_path):
    """Nothing is written to it; without its header it is refused."""
    copy = tmp_path / "copy.jsonl"
    shutil.copy(decisions, copy)
    before = copy.stat().st_mtime_ns
    replayed(model, unseen, copy)
    assert copy.stat().st_mtime_ns == before
    assert copy.read_bytes() == decisions.read_bytes()


def test_killed_for_real_and_started_again(model, unseen, tmp_path):
    """SIGKILL while it writes; the same command continues, and the bytes are those of an undisturbed run."""
    many = tmp_path / "many"
    many.mkdir()
    for number in range(12):
        for path in sorted(unseen.glob("*.wav")):
            (many / f"{number:02d}_{path.name}").symlink_to(path)
    whole = replayed(model, many, tmp_path / "whole.jsonl")
    out = tmp_path / "killed.jsonl"
    command = ["replay", str(many), "--model", str(model), "--out", str(out), *SAME]
    process = Process([*command, "--jobs", "1"], start_new_session=True)
    eventually(lambda: process.poll() is not None or (out.exists() and out.read_bytes().count(b"_finished") > 1))
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert b"replay_finished" not in out.read_bytes()
    done = gemmed(*command)
    assert done.returncode == 0, done.stderr
    assert "continuing:" in done.stdout
    assert out.read_bytes() == whole.read_bytes()


def test_every_line_obeys_the_schema(decisions, model, tmp_path):
    """Also those of gaps, troubles and masks."""
    schema = json.loads((ROOT / "pipeline" / "core" / "events.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    strange = tmp_path / "strange"
    strange.mkdir()
    sound = np.random.default_rng(0).normal(0, 0.1, (20_000, 4))
    sound[8000:9000] = np.nan
    soundfile.write(strange / "nan.wav", sound, 4000, subtype="FLOAT")
    soundfile.write(strange / "short.wav", sound[:400], 4000)
    (strange / "text.wav").write_text("not audio")
    out = replayed(model, strange, tmp_path / "strange.jsonl", choices=Choices(masked=(2, 3)))
    found = [*events(decisions), *events(out)]
    for event in found:
        validator.validate(event)
    expected = {"gap", "source_trouble", "trust_changed", "decision", "recording_finished", "replay_finished"}
    expected |= {"fault_opened", "state_changed", "common_fault"}
    assert expected <= {event["type"] for event in found}


def test_decisions_say_what_the_stages_said(decisions, model, unseen):
    """The file against the facts: labels, spans, weights, and one decision for every segment."""
    loaded = Model.load(model)
    with FileSource(unseen) as source:
        chain = whole_chain(loaded, CHOICES)
        facts = [fact for item in source for fact in chain.push(item) if isinstance(fact, Decision)]
    told = decided(decisions)
    assert len(told) == len(facts) == 6 * 10
    for event, fact in zip(told, facts, strict=True):
        assert event["label"] == fact.outcome.label
        assert (event["start_sample"], event["stop_sample"]) == (fact.features.span.start, fact.features.span.stop)
        assert event["weights"] == pytest.approx(fact.weights.tolist(), abs=1e-6)
        assert event["sensors_used"] == sum(weight > 0 for weight in event["weights"])
        assert event["degraded"] == (event["sensors_used"] < 4)
        assert event["model"] == loaded.identity[:12]


def test_a_masked_sensor_has_no_say_and_the_others_keep_their_places(decisions, model, unseen, tmp_path):
    """What if sensor 2 were not there: weight zero, no margin shifted, the difference is told."""
    out = tmp_path / "decisions.jsonl"
    shutil.copy(decisions, out)
    done = gemmed("replay", str(unseen), "--model", str(model), "--out", str(out), *SAME, "--what-if", "mask=2")
    assert done.returncode == 0, done.stderr
    other = tmp_path / "decisions.mask=2.jsonl"
    before, after = decided(out), decided(other)
    changed = sum(a["label"] != b["label"] for a, b in zip(before, after, strict=True))
    assert f"with mask=2: {changed} of {len(before)} decisions have another label" in done.stdout
    for a, b in zip(before, after, strict=True):
        assert b["weights"][1] == 0
        assert b["roles"][1] == "off"
        if a["window_start_sample"] == b["window_start_sample"]:
            assert a["margins"] == b["margins"]
            assert a["p_known"] == b["p_known"]
    assert out.read_bytes() == decisions.read_bytes()


def test_a_stricter_alpha_believes_more(decisions, model, unseen, tmp_path):
    """Nobody who was believed at 0.05 is refused at 0.02; weights do not fall."""
    variant = replayed(model, unseen, tmp_path / "v.jsonl", choices=Choices(alpha=0.02))
    for a, b in zip(decided(decisions), decided(variant), strict=True):
        assert all(y >= x for x, y in zip(a["weights"], b["weights"], strict=True))


def test_features_side_by_side_are_the_other_way_to_fuse(model, unseen, decisions, tmp_path):
    """Another rule, the same sensors, weights and p-values; most labels agree."""
    variant = replayed(model, unseen, tmp_path / "f.jsonl", choices=Choices(alpha=ALPHA, fusion="features"))
    pairs = list(zip(decided(decisions), decided(variant), strict=True))
    assert all(a["weights"] == b["weights"] and a["p_values"] == b["p_values"] for a, b in pairs)
    assert any(a["fused_log_odds"] != b["fused_log_odds"] for a, b in pairs)
    both = [(a, b) for a, b in pairs if a["label"] and b["label"]]
    assert sum(a["label"] == b["label"] for a, b in both) > 0.6 * len(both)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--what-if", "colour=2"), "must be name=value with one of mask, alpha, confidence, fusion"),
        (("--what-if", "mask=x"), "must be sensors counted from 1"),
        (("--what-if", "mask=9"), "mask=9 must name sensors from 1 to 4"),
        (("--alpha", "2"), "alpha=2.0 must lie between 0 and 1"),
        (("--fusion", "magic"), "fusion='magic' must be one of votes, features"),
        (("--out", "."), "is a directory; give a file"),
        (("--what-if", "mask=2", "--out", "-"), "give --out a file"),
    ],
)
def test_wrong_options_are_named(options, message, model, unseen, tmp_path):
    """One line with the value, the rule and the cure."""
    out = () if "--out" in options else ("--out", str(tmp_path / "o.jsonl"))
    done = gemmed("replay", str(unseen), "--model", str(model), *out, *options)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_decisions_of_another_replay_are_not_mixed_up(decisions, model, unseen, tmp_path):
    """The difference is named; --restart begins anew; a file of something else is refused."""
    out = tmp_path / "d.jsonl"
    shutil.copy(decisions, out)
    with pytest.raises(UsageError, match=r"another replay \(alpha 0.05 there, 0.01 here\).*--restart"):
        replayed(model, unseen, out, choices=Choices())
    assert out.read_bytes() == decisions.read_bytes()
    out.write_text("my notes\n")
    with pytest.raises(UsageError, match="is not a file of decisions"):
        replayed(model, unseen, out)
    assert out.read_text() == "my notes\n"


def test_the_exit_code_tells_the_outcome(model, unseen, tmp_path):
    """0 all decided, 3 some sound was of no use, 4 nothing to decide, 1 nothing replayed."""
    some = tmp_path / "some"
    shutil.copytree(unseen, some)
    (some / "r003.wav").write_bytes((some / "r003.wav").read_bytes()[:60_000])
    (some / "r009.wav").write_text("not audio")
    out = str(tmp_path / "o.jsonl")
    done = gemmed("replay", str(some), "--model", str(model), "--out", out)
    assert done.returncode == 3
    assert "r009.wav" in done.stdout
    assert "not usable" in done.stdout
    short = tmp_path / "short"
    short.mkdir()
    soundfile.write(short / "s.wav", np.zeros((4000, 4)), 4000)
    done = gemmed("replay", str(short), "--model", str(model), "--out", str(tmp_path / "s.jsonl"))
    assert done.returncode == 4
    assert "too short for a segment" in done.stdout
    assert gemmed("replay", str(tmp_path / "none"), "--model", str(model), "--out", out).returncode == 1


def test_a_recording_in_which_nobody_is_heard_is_decided(tmp_path):
    """A quiet night is no failure."""
    quiet, rng = tmp_path / "quiet", np.random.default_rng(0)
    quiet.mkdir()
    soundfile.write(quiet / "q.wav", rng.normal(0, 0.003, (8 * 16_000, 4)), 16_000)
    done = gemmed("replay", str(quiet), "--model", str(STARTER), "--out", str(tmp_path / "q.jsonl"))
    assert done.returncode == 0, done.stderr
    assert "13 nobody" in done.stdout
    assert "no label" not in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("0 passages; written")


def test_recordings_that_were_trained_on_are_marked(model, tmp_path):
    """By their sound, under any name."""
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    shutil.copy(ROOT / "fixtures" / "array" / "r002.flac", renamed / "holiday.flac")
    out = replayed(model, renamed, tmp_path / "o.jsonl")
    finished = [event for event in read_events(out) if event["type"] == "recording_finished"]
    assert [(one["recording"], one["trained_on"]) for one in finished] == [("holiday", True)]


def test_names_are_shown_as_they_are(model, unseen, tmp_path):
    """Brackets in them, or in a path, are no commands to the terminal."""
    some = tmp_path / "some [day"
    some.mkdir()
    shutil.copy(unseen / "r003.wav", some / "[night] walk.wav")
    (some / "[red]r009.wav").write_text("not audio")
    out = tmp_path / "out [" / "day].jsonl"
    out.parent.mkdir()
    done = gemmed("replay", str(some), "--model", str(model), "--out", str(out))
    assert done.returncode == 3, done.stderr
    for name in ("[night] walk", "[red]r009.wav", str(out)):
        assert name in done.stdout


def test_other_sound_of_the_same_name_is_another_replay(decisions, model, unseen, tmp_path):
    """Names are not what is decided about."""
    other = tmp_path / "other"
    shutil.copytree(unseen, other)
    samples, rate_hz = soundfile.read(other / "r002.wav")
    soundfile.write(other / "r002.wav", samples[::-1], rate_hz)
    out = tmp_path / "d.jsonl"
    shutil.copy(decisions, out)
    with pytest.raises(UsageError, match=r"another replay \(sound "):
        replayed(model, other, out)
    assert out.read_bytes() == decisions.read_bytes()
    moved = tmp_path / "moved"
    shutil.copytree(unseen, moved)
    assert replayed(model, moved, tmp_path / "m.jsonl").read_bytes() == decisions.read_bytes()


def test_a_recording_without_sound_reaches_into_no_other(model, unseen, tmp_path):
    """All NaN between good ones, one process or two, begun again or not: the same bytes, one end for each."""
    some = tmp_path / "some"
    some.mkdir()
    for name in ("r001.wav", "r003.wav"):
        shutil.copy(unseen / name, some / name)
    soundfile.write(some / "r002.wav", np.full((20_000, 4), np.nan), 4000, subtype="FLOAT")
    one = replayed(model, some, tmp_path / "one.jsonl")
    again = replayed(model, some, tmp_path / "one.jsonl")
    two = tmp_path / "two.jsonl"
    assert gemmed("replay", str(some), "--model", str(model), "--out", str(two), *SAME, "--jobs", "2").returncode == 3
    assert one.read_bytes() == again.read_bytes() == two.read_bytes()
    ends = [event["recording"] for event in events(one) if event["type"] == "recording_finished"]
    assert ends == ["r001", "r002", "r003"]


def test_two_replays_do_not_write_into_one_file(decisions, model, unseen, tmp_path):
    """The second is refused while the first has the file."""
    out = tmp_path / "d.jsonl"
    task, listing = Replay(model, CHOICES), find_recordings(unseen)
    with DecisionFile(out, task.header(listing)), pytest.raises(UsageError, match="another replay writes to"):
        DecisionFile(out, task.header(listing))


def test_a_file_without_any_decision_does_not_stand_in_the_way(model, unseen, tmp_path):
    """As after a first attempt with a wrong option."""
    out = tmp_path / "d.jsonl"
    with DecisionFile(out, {"type": "replay_started", "schema": 1, "resample": True}):
        pass
    assert decided(replayed(model, unseen, out))
