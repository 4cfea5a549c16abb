"""A watched folder with real files. Samples carry their own index."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import soundfile as sf

from pipeline.core.errors import SettingsError, SourceError
from pipeline.core.event_json import EventLines
from pipeline.core.events import Block, FileHeard, RecordingFinished, RecordingStarted, Tick
from pipeline.health.measures import Measures
from pipeline.sources.watch_folder import FolderSource
from pipeline.stages import Chain, Fingerprint, Measure
from tests.sources.timeline import Played

RATE = 8000
SCHEMA = Path(__file__).parents[2] / "pipeline" / "core" / "events.schema.json"


def ramp(n, channels=4, *, first=0):
    """int16 (time, channels): sample i of channel c is 4 i + c, wrapped."""
    index = 4 * np.arange(first, first + n)[:, None] + np.arange(channels)
    return (index % 65536 - 32768).astype(np.int16)


def floats(values):
    """What int16 samples must become, as (channels, time)."""
    return (values.T / 32768).astype(np.float32)


def watch(folder, **options):
    """A source that takes files at once and does not keep a test waiting."""
    return FolderSource(
        folder, **{"rate_hz": RATE, "n_sensors": 4, "settle_seconds": 0, "tick_seconds": 0.001} | options
    )


def hear(source, *, files=0, ticks=0, played=None):
    """Facts until so many more files have come to their end and so many more ticks have passed."""
    played = played or Played()
    n_files, n_ticks = len(played.heard) + files, len(played.ticks) + ticks
    facts = iter(source)
    while len(played.heard) < n_files or len(played.ticks) < n_ticks:
        played.add(next(facts))
    return played


@contextmanager
def as_ordinary_user(folder):
    """The superuser may read everything, so that he becomes somebody else, to whom the folder belongs."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(folder, 65534, -1)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def names(played):
    return [timeline.started.recording for timeline in played.recordings]


def complaints(played):
    return {trouble.where: trouble.message for trouble in played.troubles}


# Which files, and when


def test_files_are_heard_once_in_the_order_of_their_names(tmp_path):
    """However they are called; each is a recording that begins at sample 0."""
    for number in (10, 2, 1):
        sf.write(tmp_path / f"r{number}.wav", ramp(100 * number), RATE)
    sf.write(tmp_path / "Birds.FLAC", ramp(50), RATE, format="FLAC")
    with watch(tmp_path) as source:
        played = hear(source, files=4, ticks=5)
    assert names(played) == ["Birds", "r1", "r2", "r10"]
    assert played.recordings[0].started == RecordingStarted("Birds", RATE, ("1", "2", "3", "4"))
    for timeline, n in zip(played.recordings, [50, 100, 200, 1000], strict=True):
        np.testing.assert_array_equal(timeline.samples, floats(ramp(n)))
    assert [Path(heard.path).name for heard in played.heard] == ["Birds.FLAC", "r1.wav", "r2.wav", "r10.wav"]


def test_what_is_known_is_not_heard_again(tmp_path):
    """A second source, as after a restart, hears only what is new."""
    sf.write(tmp_path / "old.wav", ramp(10), RATE)
    with watch(tmp_path) as source:
        known = {heard.identity for heard in hear(source, files=1).heard}
    sf.write(tmp_path / "new.wav", ramp(20), RATE)
    with watch(tmp_path, known=known) as source:
        assert names(hear(source, files=1, ticks=3)) == ["new"]


def test_a_file_is_known_by_name_size_and_time(tmp_path):
    """So that the caller can tell which file an identity means."""
    path = tmp_path / "a b.wav"
    sf.write(path, ramp(10), RATE)
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    with watch(tmp_path) as source:
        (heard,) = hear(source, files=1).heard
    assert heard == FileHeard(f"a b.wav {44 + 10 * 8} 1700000000123456789", str(path))


def test_files_that_arrive_later(tmp_path):
    """Also under a name that was heard before, of the same size: another time is another file."""
    with watch(tmp_path) as source:
        facts = iter(source)
        played = Played()
        played.add(next(facts))
        assert not played.recordings
        for number in range(2):
            sf.write(tmp_path / "a.wav", ramp(100, first=number), RATE)
            os.utime(tmp_path / "a.wav", (number, number))
            while len(played.heard) == number:
                played.add(next(facts))
    assert names(played) == ["a", "a"]
    for number, timeline in enumerate(played.recordings):
        np.testing.assert_array_equal(timeline.samples, floats(ramp(100, first=number)))


def test_a_folder_that_vanishes_for_a_while_is_not_heard_again(tmp_path):
    """A disk that was unmounted comes back with the same files; the source may be iterated again."""
    folder, away = tmp_path / "in", tmp_path / "away"
    folder.mkdir()
    sf.write(folder / "a.wav", ramp(10), RATE)
    with watch(folder) as source:
        played = hear(source, files=1)
        folder.rename(away)
        with pytest.raises(SourceError, match=r"in cannot be watched: No such file or directory; .* create it"):
            hear(source, ticks=2, played=played)
        away.rename(folder)
        hear(source, ticks=3, played=played)
    assert names(played) == ["a"]


def test_a_file_that_is_being_written_is_left_until_it_rests(tmp_path):
    """It grows before every look, for longer than files must rest."""
    sf.write(tmp_path / "whole.flac", ramp(5000), RATE)
    content = (tmp_path / "whole.flac").read_bytes()
    (tmp_path / "whole.flac").unlink()
    steps = 40
    played = Played()
    with watch(tmp_path, settle_seconds=0.05, tick_seconds=0.01) as source, (tmp_path / "slow.flac").open("wb") as file:
        facts = iter(source)
        for step in range(steps):
            file.write(content[len(content) * step // steps : len(content) * (step + 1) // steps])
            file.flush()
            played.add(next(facts))
        assert len(played.ticks) == steps
        while not played.heard:
            played.add(next(facts))
    np.testing.assert_array_equal(played.only.samples, floats(ramp(5000)))
    assert not played.troubles


def test_who_rests_too_short_is_told(tmp_path):
    """A file that grows while it is played is played again, and the cure is said."""
    sf.write(tmp_path / "a.wav", ramp(100), RATE)
    played = Played()
    with watch(tmp_path) as source:
        facts = iter(source)
        played.add(next(facts))
        sf.write(tmp_path / "a.wav", ramp(200), RATE)
        while len(played.heard) < 2:
            played.add(next(facts))
    assert "changed while it was played" in complaints(played)["a.wav"]
    assert "settle_seconds" in complaints(played)["a.wav"]
    np.testing.assert_array_equal(played.recordings[1].samples, floats(ramp(200)))


def test_a_file_that_is_taken_away_before_its_turn(tmp_path):
    """Nobody heard it, and nobody complains."""
    for name in ("a.wav", "b.wav", "c.wav"):
        sf.write(tmp_path / name, ramp(10), RATE)
    played = Played()
    with watch(tmp_path) as source:
        facts = iter(source)
        played.add(next(facts))
        (tmp_path / "b.wav").unlink()
        while len(played.heard) < 2:
            played.add(next(facts))
    assert names(played) == ["a", "c"]
    assert not played.troubles


def test_what_is_not_a_sound_file_is_ignored(tmp_path):
    """Other endings, hidden files of copying programs, folders, pipes and links to nowhere."""
    sf.write(tmp_path / "a.wav", ramp(10), RATE)
    for name in (".b.wav", "c.wav.part", "d.txt"):
        shutil.copy(tmp_path / "a.wav", tmp_path / name)
    (tmp_path / "e.wav").mkdir()
    shutil.copy(tmp_path / "a.wav", tmp_path / "e.wav" / "below.wav")
    os.mkfifo(tmp_path / "f.wav")
    (tmp_path / "g.wav").symlink_to("nowhere.wav")
    (tmp_path / "h.wav").symlink_to("h.wav")
    with watch(tmp_path) as source:
        played = hear(source, files=1, ticks=3)
    assert names(played) == ["a"]
    assert len(played.heard) == 1
    assert not played.troubles


def test_a_pattern_reads_time_and_recording(tmp_path):
    """What does not fit is told, and left."""
    for name in ("yard_20260821_060000.wav", "20260821_070000.wav", "yard.wav"):
        sf.write(tmp_path / name, ramp(10), RATE)
    with watch(tmp_path, pattern="{recording}_{time:%Y%m%d_%H%M%S}.wav") as source:
        played = hear(source, files=3)
    assert played.only.started == RecordingStarted(
        "yard", RATE, ("1", "2", "3", "4"), datetime(2026, 8, 21, 6, tzinfo=UTC)
    )
    assert set(complaints(played)) == {"20260821_070000.wav", "yard.wav"}
    assert "does not fit the pattern" in complaints(played)["yard.wav"]


def test_a_pattern_without_a_recording(tmp_path):
    """The file's name is the recording's."""
    sf.write(tmp_path / "20260821_070000.wav", ramp(10), RATE)
    with watch(tmp_path, pattern="{time:%Y%m%d_%H%M%S}.wav") as source:
        assert names(hear(source, files=1)) == ["20260821_070000"]


def test_files_of_single_sensors_are_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"has the field \{sensor\}.*; drop files that hold all sensors"):
        watch(tmp_path, pattern="{recording}_{sensor}.wav")


# What is wrong with them


def test_what_cannot_be_used_is_told_once(tmp_path):
    """The source goes on, and does not come back to them."""
    (tmp_path / "a_text.wav").write_text("not sound")
    (tmp_path / "b_empty.wav").touch()
    sf.write(tmp_path / "c_stereo.wav", ramp(10, channels=2), RATE)
    sf.write(tmp_path / "d_rate.wav", ramp(10), 2 * RATE)
    sf.write(tmp_path / "e_good.wav", ramp(10), RATE)
    with watch(tmp_path) as source:
        played = hear(source, files=5, ticks=3)
    told = complaints(played)
    assert len(told) == len(played.troubles) == 4
    assert "is not sound that can be read" in told["a_text.wav"]
    assert "is empty (0 bytes)" in told["b_empty.wav"]
    assert "has 2 channels, here 4 must be" in told["c_stereo.wav"]
    assert "has 16000 samples per second, the pipeline has 8000" in told["d_rate.wav"]
    assert names(played) == ["e_good"]
    assert len({heard.identity for heard in played.heard}) == 5


def test_a_damaged_file_is_heard_as_far_as_it_goes(tmp_path):
    """The rest is a gap, as of any file."""
    sf.write(tmp_path / "a.wav", ramp(100), RATE)
    os.truncate(tmp_path / "a.wav", 44 + 60 * 8)
    with watch(tmp_path) as source:
        played = hear(source, files=1)
    assert played.only.gap_spans == [(60, 100)]
    assert "declares 100 samples but only the first 60 can be read" in complaints(played)["a.wav"]


def test_an_empty_file_is_heard_when_it_is_filled(tmp_path):
    """Its writer came back."""
    (tmp_path / "a.wav").touch()
    with watch(tmp_path) as source:
        played = hear(source, files=1)
        sf.write(tmp_path / "a.wav", ramp(10), RATE)
        hear(source, files=1, played=played)
    np.testing.assert_array_equal(played.only.samples, floats(ramp(10)))


def test_another_rate_is_resampled_if_allowed(tmp_path):
    sf.write(tmp_path / "a.wav", ramp(1000), 2 * RATE)
    with watch(tmp_path, resample=True) as source:
        assert hear(source, files=1).only.stop == 500


def test_a_name_that_is_no_text(tmp_path):
    """What is told of it can be stored anywhere."""
    name = b"r\xff.wav"
    sf.write(tmp_path / "a.wav", ramp(10), RATE)
    os.rename(tmp_path / "a.wav", os.path.join(os.fsencode(tmp_path), name))
    with watch(tmp_path) as source:
        played = hear(source, files=1, ticks=2)
    assert complaints(played) == {r"r\xff.wav": "has a name that is not UTF-8; rename it"}
    (heard,) = played.heard
    assert heard.identity.encode().startswith(rb"r\xff.wav 124 ")
    heard.path.encode()


@pytest.mark.parametrize(("folder", "reason"), [("missing", "No such file"), ("file.wav", "Not a directory")])
def test_a_folder_that_cannot_be_watched(tmp_path, folder, reason):
    (tmp_path / "file.wav").touch()
    with watch(tmp_path / folder) as source, pytest.raises(SourceError, match=f"{folder} cannot be watched: {reason}"):
        hear(source, ticks=1)


@pytest.mark.parametrize("rights", [0o000, 0o400])
def test_a_folder_that_may_not_be_read(rights):
    """Without the right to enter it one sees names, but no file."""
    with tempfile.TemporaryDirectory() as folder:
        sf.write(Path(folder) / "a.wav", ramp(10), RATE)
        with as_ordinary_user(folder), watch(folder) as source:
            os.chmod(folder, rights)
            with pytest.raises(SourceError, match="cannot be watched: Permission denied; "):
                hear(source, ticks=1)
            os.chmod(folder, 0o700)


@pytest.mark.parametrize("name", ["rate_hz", "n_sensors", "settle_seconds", "tick_seconds"])
def test_settings_have_a_least_value(tmp_path, name):
    with pytest.raises(SettingsError, match=f"{name}=-1 must be at least"):
        watch(tmp_path, **{name: -1})


# What the stages and the observers make of it


def test_waiting_between_files_is_no_fault_of_the_sensors(tmp_path):
    """The end of a file ends its recording at once; after it time passes, and nothing is measured."""
    sf.write(tmp_path / "a.wav", ramp(3 * RATE), RATE)
    chain = Chain(Fingerprint(), Measure(RATE))
    out = []
    with watch(tmp_path, tick_seconds=0.4) as source:
        for fact in source:
            out += chain.push(fact)
            if isinstance(fact, Tick) and fact.waited_seconds > 1.2:
                break
    kinds = [type(fact) for fact in out if not isinstance(fact, Block)]
    assert kinds[:6] == [RecordingStarted, *[Measures] * 3, RecordingFinished, FileHeard]
    assert set(kinds[6:]) == {Tick}
    waited = [fact.waited_seconds for fact in out if isinstance(fact, Tick)]
    assert len(waited) >= 2
    assert all(later > earlier for earlier, later in pairwise(waited))


def test_lines_of_a_folder_obey_the_schema(tmp_path):
    """The end of a file and the waiting after it belong to no recording."""
    sf.write(tmp_path / "a.wav", ramp(100), RATE)
    lines = []
    chain, observer = Chain(Fingerprint()), EventLines(lines.append, model="0" * 12)
    with watch(tmp_path) as source:
        for fact in source:
            for event in chain.push(fact):
                observer.observe(event)
            if isinstance(fact, Tick):
                break
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    for event in lines[2:]:
        validator.validate(event)
    assert [event["type"] for event in lines] == ["recording_started", "recording_finished", "file_heard", "tick"]
    assert lines[-1]["recording"] is None
    assert lines[2]["path"] == str(tmp_path / "a.wav")
