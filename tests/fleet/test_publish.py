"""What an array hears arrives whole at a real broker, whoever is killed on the way, and whatever refuses."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from pipeline.core.errors import LinkError
from pipeline.core.events import Block, Gap, Notice, RecordingEnded, RecordingStarted, SourceTrouble
from pipeline.fleet.publisher import AWAY, Gathering, Playback
from pipeline.fleet.spool import DISK_FULL, SPOOL_FULL
from pipeline.sources.files import FileSource, find_recordings
from pipeline.sources.reorder import Sorting
from pipeline.transport.nats import Broker
from pipeline.transport.wire import Parcel
from tests.arrays import ARRAY
from tests.conftest import TIMEOUT, eventually, program
from tests.fleet.broker import Certificates, Nats
from tests.fleet.consumer import heard, sound_of
from tests.fleet.publishing import Publishing, settings
from tests.forked import gemmed

RATE = 4000
NOISE = np.random.default_rng(0).integers(-20_000, 20_000, (100 * RATE, 4)).astype("<i2")
STREAM, SUBJECT = "gemmed-sound", "gemmed.sound.north"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> Path:
    """Four whole ones, and one whose end is missing."""
    directory = tmp_path_factory.mktemp("recordings")
    for name in ("r001", "r002", "r003", "r004"):
        shutil.copy(ARRAY / f"{name}.flac", directory)
    import soundfile

    samples, rate_hz = soundfile.read(ARRAY / "r005.flac")
    soundfile.write(directory / "r0025.wav", samples, rate_hz)
    whole = (directory / "r0025.wav").read_bytes()
    (directory / "r0025.wav").write_bytes(whole[: len(whole) * 2 // 3])
    return directory


def at(nats: Nats) -> str:
    return f'address = "{nats.address}"'


def stored(nats: Nats) -> int:
    try:
        with Broker(nats.access(), name="test") as broker:
            return broker.subjects(STREAM, SUBJECT).get(SUBJECT, 0)
    except LinkError:
        return 0


def require_recordings(parcels: list[Parcel], directory: Path) -> None:
    """Those of the files, to the bit, in order, each with its end."""
    told = heard(parcels)
    expected: dict[str, list[object]] = {}
    early: list[object] = []
    for fact in FileSource(directory):
        if isinstance(fact, RecordingStarted):
            expected[fact.recording] = [fact, *early]
            early = []
        elif isinstance(fact, SourceTrouble) and not expected:
            early.append(fact)
        else:
            list(expected.values())[-1].append(fact)
    assert list(told) == list(expected)
    for name, facts in expected.items():
        published = [parcel.fact for parcel in told[name]]
        length = max(fact.stop for fact in facts if isinstance(fact, Block | Gap))
        assert published.pop() == RecordingEnded(name, length)
        assert [parcel.number for parcel in told[name]] == list(range(len(told[name])))
        blocks = [fact for fact in facts if isinstance(fact, Block)]
        assert np.array_equal(sound_of(told[name]), np.concatenate([block.samples for block in blocks], axis=1))
        assert [one for one in published if not isinstance(one, Block)] == [
            one for one in facts if not isinstance(one, Block)
        ]


def test_files_arrive_whole_and_once(nats, recordings, tmp_path):
    """Samples, order, numbers, troubles; the same command again sends nothing."""
    config = settings(tmp_path / "edge", broker=at(nats))
    with Publishing(config, recordings) as publishing:
        assert publishing.wait() == 0, publishing.lines
    first = nats.parcels("north")
    require_recordings(first, recordings)
    assert any(isinstance(parcel.fact, SourceTrouble) for parcel in first)
    assert any(isinstance(parcel.fact, Gap) for parcel in first)
    with Publishing(config, recordings) as publishing:
        publishing.logged("recordings that were published before are passed over")
        assert publishing.wait() == 0
    assert stored(nats) == len(first)


def test_a_killed_broker_costs_nothing(nats, recordings, tmp_path):
    """SIGKILL in the middle, and its return: each fact once, in order."""
    config = settings(tmp_path / "edge", broker=at(nats))
    with Publishing(config, recordings, "--speed", 8) as publishing:
        eventually(lambda: stored(nats) > 5)
        nats.kill()
        publishing.logged("output link down")
        nats.start()
        publishing.logged("output link up")
        assert publishing.wait() == 0, publishing.lines
    require_recordings(nats.parcels("north"), recordings)


def test_a_killed_publisher_goes_on_where_it_was(nats, recordings, tmp_path):
    """SIGKILL again and again in the middle of files: to whoever listens, it looks as if nothing had happened."""
    config = settings(tmp_path / "edge", broker=at(nats))
    for _ in range(4):
        before = stored(nats)
        # Some of 75 messages, four in a second: also one who looks late finds it in the middle.
        with Publishing(config, recordings, "--speed", 2) as publishing:
            eventually(lambda: stored(nats) > before + 5)  # noqa: B023
            publishing.kill()
    with Publishing(config, recordings) as publishing:
        assert publishing.wait() == 0, publishing.lines
    parcels = nats.parcels("north")
    require_recordings(parcels, recordings)
    assert len(parcels) < 200  # in blocks as before


def test_what_the_budget_dropped_is_a_gap(tmp_path):
    """A link that is down from the start: blocks and gaps tile the time, and what is there is what was heard."""
    nats = Nats(tmp_path / "nats")
    config = settings(tmp_path / "edge", broker=at(nats), publish='budget = "1 MB"')
    with Publishing(config) as publishing:
        publishing.feed(NOISE.tobytes())
        dropped = publishing.logged("output dropped")
        assert "publish.budget" in dropped["fields"]["why"]
        publishing.process.stdin.close()
        with nats:
            assert publishing.wait() == 0, publishing.lines
            (told,) = heard(nats.parcels("north")).values()
    # Usually one, in parts if the link came while sound was still being dropped.
    gaps = [parcel for parcel in told if isinstance(parcel.fact, Gap)]
    assert {(parcel.fact.reason, parcel.fact.recorded) for parcel in gaps} == {(SPOOL_FULL, True)}
    assert max(parcel.stands_for for parcel in gaps) > 1
    require_noise(told, len(NOISE))


def require_noise(told: list[Parcel], samples: int) -> None:
    spans = [parcel.fact for parcel in told if isinstance(parcel.fact, Block | Gap)]
    assert spans[-1].stop == samples
    for fact in spans:
        if isinstance(fact, Block):
            assert np.array_equal(np.rint(fact.samples.T * 32768).astype("<i2"), NOISE[fact.start : fact.stop])
    assert isinstance(told[-1].fact, RecordingEnded)


def test_a_live_source_arrives_as_a_daemon_would_hear_it(nats, tmp_path):
    """With what is told of the source, and an end; SIGTERM is exit code 0."""
    with Publishing(settings(tmp_path / "edge", broker=at(nats))) as publishing:
        publishing.feed(NOISE[: 3 * RATE + 100].tobytes())
        eventually(lambda: stored(nats) >= 9)  # beginning, notice, six whole blocks and a piece of one
        assert publishing.stop() == 0, publishing.lines
    (told,) = heard(nats.parcels("north")).values()
    assert isinstance(told[1].fact, Notice)
    assert [one.fact.stop - one.fact.start for one in told if isinstance(one.fact, Block)] == [2000] * 6 + [100]
    require_noise(told, 3 * RATE + 100)


def test_a_killed_live_publisher_says_how_long_it_was_away(nats, tmp_path):
    """The recording of the former life gets a gap and its end; a new one begins, under another name."""
    config = settings(tmp_path / "edge", broker=at(nats))
    began = time.time()
    with Publishing(config) as publishing:
        publishing.feed(NOISE[: 2 * RATE].tobytes())
        eventually(lambda: stored(nats) >= 6)
        publishing.kill()
    with Publishing(config) as publishing:
        publishing.feed(NOISE[:RATE].tobytes())
        assert publishing.end() == 0, publishing.lines
    first, second = heard(nats.parcels("north")).values()
    gap, end = (parcel.fact for parcel in first[-2:])
    assert isinstance(gap, Gap)
    assert (gap.start, gap.reason, gap.recorded) == (2 * RATE, AWAY, True)
    assert 0 < gap.stop - gap.start < (time.time() - began) * RATE
    assert end == RecordingEnded(first[0].recording.recording, gap.stop)
    require_noise(second, RATE)


def test_after_a_power_failure_the_broker_may_know_more_than_the_disk(nats, tmp_path):
    """Of a live recording: its end is heard, and a gap from the last sample on that arrived."""
    config = settings(tmp_path / "edge", broker=at(nats))
    spool, disk = tmp_path / "edge" / "state" / "spool", tmp_path / "disk"
    with Publishing(config) as publishing:
        publishing.feed(NOISE[: 2 * RATE].tobytes())
        eventually(lambda: stored(nats) >= 6)  # beginning, notice and four blocks
        shutil.copytree(spool, disk)
        publishing.feed(NOISE[2 * RATE : 5 * RATE].tobytes())
        eventually(lambda: stored(nats) >= 12)
        publishing.kill()
    shutil.rmtree(spool)
    disk.rename(spool)
    with Publishing(config) as publishing:
        publishing.feed(NOISE[:RATE].tobytes())
        assert publishing.end() == 0, publishing.lines
    sorting = Sorting()
    told = [fact for parcel in nats.parcels("north") for fact in sorting.push(sorting.resume_at, parcel)]
    first, *gaps, end, second, _ = (one for one in told if isinstance(one, RecordingStarted | Gap | RecordingEnded))
    # As long as the clock says, which may be less than was fed in that time.
    assert [(gap.start, gap.reason) for gap in gaps] in ([], [(5 * RATE, AWAY)])
    assert end == RecordingEnded(first.recording, gaps[0].stop if gaps else 5 * RATE)
    assert isinstance(second, RecordingStarted)


def test_what_waits_at_the_end_is_sent_by_the_next_start(tmp_path):
    """SIGTERM while the link is down; and nobody else may publish from the same spool meanwhile."""
    nats = Nats(tmp_path / "nats")
    config = settings(tmp_path / "edge", broker=at(nats))
    with Publishing(config) as publishing:
        publishing.feed(NOISE[: 2 * RATE].tobytes())
        publishing.logged("output link down")
        other = gemmed("publish", "--config", str(config))
        assert other.returncode == 1
        assert "is used by another gemmed publish, process" in other.stderr
        spool = tmp_path / "edge" / "state" / "spool" / "north"
        eventually(lambda: sum(file.stat().st_size for file in spool.glob("*.parcels")) > 2 * RATE * 4)
        assert publishing.stop() == 0, publishing.lines
        assert publishing.logged("stopped")["fields"]["messages_waiting"] >= 6
    with nats, Publishing(config) as publishing:
        publishing.feed(NOISE[:RATE].tobytes())
        assert publishing.end() == 0, publishing.lines
        first, _ = heard(nats.parcels("north")).values()
    require_noise(first, 2 * RATE)


@pytest.mark.parametrize(
    ("budget", "options"),
    [("1 GB", ()), ("1 MB", ()), ("1 GB", ("--speed", "0.001"))],
    ids=["it waits for the broker", "it waits for space", "it waits for the next block"],
)
def test_files_stop_at_the_end_of_their_time(recordings, tmp_path, budget, options):
    """While the broker is away, whatever it waits for; it says how much is left, and the next start sends it."""
    nats = Nats(tmp_path / "nats")
    config = settings(tmp_path / "edge", broker=at(nats), publish=f'budget = "{budget}"')
    done = gemmed("publish", str(recordings), "--config", str(config), "--for", "1", *options)
    assert done.returncode == 0, done.stderr
    left = re.search(r" s of sound taken, (\d+) messages wait in the spool for the next start\n$", done.stdout)
    assert left, done.stdout
    assert int(left[1]) > 0
    with nats, Publishing(config, recordings) as publishing:
        assert publishing.wait() == 0, publishing.lines
        require_recordings(nats.parcels("north"), recordings)


USERS = """
authorization {{ users = [
  {{ user: admin, password: right }}
  {{ user: north, password: right, permissions: {{ publish: [{allowed}], subscribe: ["_INBOX.>"] }} }}
] }}
"""
SEND = f'"{SUBJECT}", "$JS.API.STREAM.INFO.{STREAM}"'
MAKE = f'{SEND}, "$JS.API.STREAM.CREATE.{STREAM}"'


class Edge:
    """A publisher that has something to send as user north, and its broker."""

    def __init__(self, directory: Path, *, tls: Certificates | None = None, allowed: str = MAKE, **options) -> None:
        self.directory = directory
        self.nats = Nats(directory / "nats", tls=tls, more=USERS.format(allowed=allowed), **options)
        self.password = directory / "password"
        self.password.write_text("right\n")
        (directory / "admin").write_text("right")
        broker = [f'address = "{self.nats.address}"', 'user = "north"', f'password_file = "{self.password}"']
        broker += [f'ca_file = "{tls.ca}"'] if tls else []
        self.config = settings(directory / "edge", broker="\n".join(broker))

    def admin(self) -> Broker:
        return Broker(self.nats.access(user="admin", password_file=self.directory / "admin"), name="admin")

    def again(self, *, tls: Certificates | None = None, allowed: str = MAKE) -> None:
        self.nats.kill()
        self.nats.configure(USERS.format(allowed=allowed), tls=tls)
        self.nats.start()


def wrong_password(directory: Path) -> tuple[Edge, Callable[[Edge], None]]:
    edge = Edge(directory)
    edge.password.write_text("wrong")
    return edge, lambda edge: edge.password.write_text("right") and None


def expired_certificate(directory: Path) -> tuple[Edge, Callable[[Edge], None]]:
    edge = Edge(directory, tls=Certificates.made(directory / "tls", expired=True))
    return edge, lambda edge: edge.again(tls=Certificates.made(directory / "tls"))


def not_allowed(directory: Path) -> tuple[Edge, Callable[[Edge], None]]:
    return Edge(directory, allowed=MAKE.replace(f'"{SUBJECT}", ', "")), Edge.again


def missing_stream(directory: Path) -> tuple[Edge, Callable[[Edge], None]]:
    def make(edge: Edge) -> None:
        with edge.admin() as broker:
            broker.ensure_stream(STREAM, "gemmed.sound.*", most_seconds=3600)

    return Edge(directory, allowed=SEND), make


def no_jetstream(directory: Path) -> tuple[Edge, Callable[[Edge], None]]:
    def repair(edge: Edge) -> None:
        edge.nats._jetstream = True
        edge.again()

    return Edge(directory, jetstream=False), repair


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (wrong_password, "does not let in user = 'north'; correct user and password_file"),
        (expired_certificate, "has a certificate that is not accepted: certificate has expired; renew it"),
        (not_allowed, "does not allow user = 'north' this"),
        (missing_stream, "stream gemmed-sound may be missing, or user = 'north' may not use it"),
        (no_jetstream, "start nats-server with -js"),
    ],
)
def test_a_broker_that_refuses_is_told_once_and_nothing_is_lost(tmp_path, trouble, message):
    """In words that say what to do; once that is done, everything follows."""
    edge, cure = trouble(tmp_path)
    with edge.nats, Publishing(edge.config) as publishing:
        publishing.feed(NOISE[: 2 * RATE].tobytes())
        why = publishing.logged("output link down")["fields"]["why"]
        assert message in why
        cure(edge)
        assert publishing.end() == 0, publishing.lines
        assert sum(message in line for line in publishing.lines) == 1
        access = edge.nats.access(user="admin", password_file=tmp_path / "admin")
        (told,) = heard(edge.nats.parcels("north", access=access)).values()
    require_noise(told, 2 * RATE)


def test_what_the_broker_took_too_early_follows_once_more(nats, tmp_path):
    """It refused a message, but not those behind it, which were on their way: all of them are sent again, in order."""
    with Broker(nats.access(), name="test") as broker:
        broker.ensure_stream(STREAM, "gemmed.sound.*", most_seconds=3600)

        def take_messages_of(most_bytes: int) -> None:
            config = broker._run(broker._js.stream_info(STREAM)).config
            broker._run(broker._js.update_stream(config.evolve(max_msg_size=most_bytes)))

        config = settings(tmp_path / "edge", broker=at(nats))
        with Publishing(config) as publishing:
            publishing.feed(NOISE[: 4 * RATE].tobytes())
            eventually(lambda: stored(nats) >= 10)
            take_messages_of(1000)
            publishing.feed(NOISE[4 * RATE : 20 * RATE].tobytes())
            assert "message size exceeds maximum allowed" in publishing.logged("output link down")["fields"]["why"]
            take_messages_of(-1)
            publishing.logged("output link up")
            publishing.feed(NOISE[20 * RATE : 21 * RATE].tobytes())
            assert publishing.end() == 0, publishing.lines
    (told,) = heard(nats.parcels("north"), ignore_early=True).values()
    require_noise(told, 21 * RATE)


def test_a_watched_folder_is_published_once(nats, tmp_path):
    """Each file is a recording with an end; what was heard in a former life is not heard again."""
    folder = tmp_path / "folder"
    folder.mkdir()
    source = f'kind = "folder"\npath = "{folder}"\nsettle = "0 s"\ntick = "50 ms"'
    config = settings(tmp_path / "edge", broker=at(nats), source=source)
    for name in ("r001", "r002"):
        shutil.copy(ARRAY / f"{name}.flac", folder)
        with Publishing(config) as publishing:
            eventually(lambda: ended(nats) == [one.stem for one in sorted(folder.iterdir())])
            assert publishing.stop() == 0, publishing.lines
    for name, told in zip(("r001", "r002"), heard(nats.parcels("north")).values(), strict=True):
        blocks = [fact for fact in FileSource(ARRAY / f"{name}.flac") if isinstance(fact, Block)]
        assert np.array_equal(sound_of(told), np.concatenate([block.samples for block in blocks], axis=1))


def test_what_is_wrong_between_two_files_is_told_in_the_next(nats, tmp_path):
    """A recording that is over takes no more, and a tick between two is of no use."""
    folder = tmp_path / "folder"
    folder.mkdir()
    source = f'kind = "folder"\npath = "{folder}"\nsettle = "0 s"\ntick = "50 ms"'
    with Publishing(settings(tmp_path / "edge", broker=at(nats), source=source)) as publishing:
        arrived(folder, "r001.flac")
        eventually(lambda: ended(nats) == ["r001"])
        (folder / "bad.flac").write_bytes(b"no sound")
        publishing.logged("bad.flac")
        arrived(folder, "r002.flac")
        eventually(lambda: ended(nats) == ["r001", "r002"])
        assert publishing.stop() == 0, publishing.lines
    sorting = Sorting()
    told = [fact for parcel in nats.parcels("north") for fact in sorting.push(sorting.resume_at, parcel)]
    kinds = [type(fact) for fact in told if not isinstance(fact, Block)]
    assert kinds == [RecordingStarted, RecordingEnded, RecordingStarted, SourceTrouble, RecordingEnded]
    (trouble,) = (fact for fact in told if isinstance(fact, SourceTrouble))
    assert "bad.flac" in trouble.where
    first, second = heard(nats.parcels("north")).values()
    assert isinstance(first[-1].fact, RecordingEnded)
    assert second[1].fact == trouble


def arrived(folder: Path, name: str) -> None:
    """A file that is whole from its first moment on."""
    shutil.copy(ARRAY / name, folder / f"{name}.part")
    (folder / f"{name}.part").rename(folder / name)


def ended(nats: Nats) -> list[str]:
    facts = [parcel.fact for parcel in nats.parcels("north")] if stored(nats) else []
    return [fact.recording.rpartition("-")[2] for fact in facts if isinstance(fact, RecordingEnded)]


def test_a_recording_that_was_begun_comes_first(nats, recordings, tmp_path):
    """Also if other files are named before it."""
    config = settings(tmp_path / "edge", broker=at(nats))
    kill_in_the_middle(config, recordings / "r003.flac", nats)
    with Publishing(config, recordings) as publishing:
        assert publishing.wait() == 0, publishing.lines
    told = heard(nats.parcels("north"))
    assert list(told) == ["r003", "r001", "r002", "r004", "r0025"]
    assert all(isinstance(one[-1].fact, RecordingEnded) for one in told.values())


def kill_in_the_middle(config: Path, recording: Path, nats: Nats) -> None:
    """Of a file, of which some is published then: so slowly that nobody can look too late."""
    before = n_blocks(nats)
    with Publishing(config, recording, "--speed", 0.02) as publishing:
        eventually(lambda: n_blocks(nats) > before)
        publishing.kill()


def n_blocks(nats: Nats) -> int:
    return sum(isinstance(parcel.fact, Block) for parcel in nats.parcels("north")) if stored(nats) else 0


def require_whole(told: list[Parcel], file: Path) -> None:
    blocks = [fact for fact in FileSource(file) if isinstance(fact, Block)]
    assert np.array_equal(sound_of(told), np.concatenate([block.samples for block in blocks], axis=1))
    assert isinstance(told[-1].fact, RecordingEnded)


def published(config: Path, *files: Path) -> Publishing:
    with Publishing(config, *files) as publishing:
        assert publishing.wait() == 0, publishing.lines
    return publishing


@pytest.mark.parametrize("between", ["another file", "a live source"])
def test_a_recording_that_was_cut_off_comes_whole_under_another_name(nats, recordings, tmp_path, between):
    """Its end is told, and that it is none; a file has no gap for a publisher that was away."""
    config, file = settings(tmp_path / "edge", broker=at(nats)), recordings / "r003.flac"
    kill_in_the_middle(config, file, nats)
    if between == "another file":
        cut = published(config, recordings / "r001.flac").logged("recording cut off")
    else:
        with Publishing(config) as publishing:
            cut = publishing.logged("recording cut off")
            publishing.feed(NOISE[:RATE].tobytes())
            assert publishing.end() == 0, publishing.lines
    assert cut["fields"]["recording"] == "r003"
    kill_in_the_middle(config, file, nats)
    published(config, file)
    before = stored(nats)
    published(config, file).logged("recordings that were published before are passed over")
    assert stored(nats) == before
    told = heard(nats.parcels("north"))
    assert not any(isinstance(parcel.fact, Gap) for parcel in told["r003"])
    half, end = sound_of(told["r003"]), told["r003"][-1].fact
    assert end == RecordingEnded("r003", half.shape[1])
    require_whole(told["r003-again"], file)


def test_a_recording_is_not_done_before_its_end_is_on_disk(nats, recordings, tmp_path):
    """The power may fail between the two."""
    config, file = settings(tmp_path / "edge", broker=at(nats)), recordings / "r003.flac"
    kill_in_the_middle(config, file, nats)
    notes = tmp_path / "edge" / "state" / "spool" / "north" / "notes.jsonl"
    with notes.open("a") as forged:
        forged.write("\n" + json.dumps({"done": "r003", "behind": 2**60}))
    published(config, file)
    require_whole(heard(nats.parcels("north"))["r003"], file)


@pytest.mark.parametrize("begun", [False, True])
def test_other_sound_of_the_same_name_is_published_under_another(nats, recordings, tmp_path, begun):
    """A day later a recorder counts from one again."""
    config, days = settings(tmp_path / "edge", broker=at(nats)), [tmp_path / "first", tmp_path / "second"]
    for day, name in zip(days, ("r003.flac", "r001.flac"), strict=True):
        day.mkdir()
        shutil.copy(recordings / name, day / "day.flac")
    if begun:
        kill_in_the_middle(config, days[0] / "day.flac", nats)
    else:
        published(config, days[0])
    told = published(config, days[1]).logged("recording published under another name")
    assert (told["fields"]["recording"], told["fields"]["instead"]) == ("day", "day-again")
    published(config, days[1]).logged("recordings that were published before are passed over")
    found = heard(nats.parcels("north"))
    assert list(found) == ["day", "day-again"]
    require_whole(found["day-again"], days[1] / "day.flac")


def test_a_file_that_was_begun_and_cannot_be_read_now_is_not_over(nats, recordings, tmp_path):
    """It goes on once it can be read; if something else is published before, it comes whole, under another name."""
    config, file = settings(tmp_path / "edge", broker=at(nats)), tmp_path / "day.flac"
    whole = (recordings / "r003.flac").read_bytes()
    file.write_bytes(whole)
    kill_in_the_middle(config, file, nats)
    file.write_bytes(b"")
    with Publishing(config, file) as publishing:
        assert publishing.wait() == 1
    file.write_bytes(whole)
    kill_in_the_middle(config, file, nats)
    file.write_bytes(b"")
    assert published(config, recordings / "r001.flac", file).logged("recording cut off")["fields"]["recording"] == "day"
    file.write_bytes(whole)
    published(config, recordings / "r001.flac", file)
    told = heard(nats.parcels("north"))
    assert list(told) == ["day", "r001", "day-again"]
    require_whole(told["day-again"], recordings / "r003.flac")


def test_a_full_disk_costs_sound_only_and_is_told(tmp_path):
    """A little waits in memory, then that is a gap; with space again it goes on."""
    nats = Nats(tmp_path / "nats")
    config = settings(tmp_path / "edge", broker=at(nats), publish='budget = "10 MB"')
    state = tmp_path / "edge" / "state"
    state.mkdir()
    with Publishing(config, before=[*small_disk("1m"), str(state)]) as publishing:
        publishing.feed(NOISE.tobytes())
        publishing.feed(NOISE.tobytes())
        publishing.logged("No space left on device")
        assert publishing.logged("output dropped")["fields"]["samples"] > RATE
        publishing.process.stdin.close()
        with nats:
            assert publishing.wait() == 0, publishing.lines
            publishing.logged("storage recovered")
            (told,) = heard(nats.parcels("north")).values()
    gaps = [parcel.fact for parcel in told if isinstance(parcel.fact, Gap)]
    assert {gap.reason for gap in gaps} == {DISK_FULL}
    blocks = [parcel.fact for parcel in told if isinstance(parcel.fact, Block)]
    assert sum(one.stop - one.start for one in [*gaps, *blocks]) == 2 * len(NOISE)


def test_files_wait_for_a_full_disk(recordings, tmp_path):
    """They are still there when it has space again: nothing becomes a gap."""
    nats = Nats(tmp_path / "nats")
    config = settings(tmp_path / "edge", broker=at(nats), publish='budget = "1 MB"')
    state = tmp_path / "edge" / "state"
    state.mkdir()
    with Publishing(config, recordings, before=[*small_disk("200k"), str(state)]) as publishing:
        publishing.logged("No space left on device")
        with nats:
            assert publishing.wait() == 0, publishing.lines
            require_recordings(nats.parcels("north"), recordings)


def small_disk(size: str) -> list[str]:
    """A command before a directory and another command, which alone sees the disk there."""
    mount = f'mount -t tmpfs -o size={size} tmpfs "$1" && shift && exec "$@"'
    return [program("unshare"), "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]


def test_what_cannot_be_is_said_at_once(tmp_path):
    """No name, a name that is none, a source that is published already: a line, and an exit code."""
    config = settings(tmp_path, source='kind = "stream"\narray = "south"')
    for arguments, code, message in [
        (["--state", str(tmp_path)], 1, "no array is named; give --array NAME"),
        (["--array", "a.b", "--state", str(tmp_path)], 1, "--array='a.b' must be letters, digits, - and _"),
        (["--array", "north", "--state", str(tmp_path)], 1, "there is nothing to publish: give recordings, or a file"),
        (["--config", str(config)], 2, 'source.kind = "stream" would publish what is published'),
        (["--config", str(config), "--broker", "nats://example.org"], 2, "would send sound in the clear"),
        (
            ["--array", "north", "--state", str(tmp_path), "--broker", "127.0.0.1:4222"],
            2,
            'gemmed: --broker: broker.address = "127.0.0.1:4222" must be an address; write for example',
        ),
    ]:
        done = gemmed("publish", *arguments)
        assert done.returncode == code, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("moment", range(20))
def test_files_can_be_stopped_at_any_moment(moment):
    """By a signal, which comes between any two steps of the thread that it stops: also while that waits."""
    playback = Playback(
        find_recordings(ARRAY / "r001.flac"),
        resample=False,
        block_seconds=0.5,
        place=None,
        done=set(),
        speed=0.001,
    )
    steps = count()

    def signalled(*_: object) -> None:
        if next(steps) == moment:
            playback.stop()

    def play() -> None:
        facts = iter(playback)
        while not isinstance(next(facts), Block):
            pass
        sys.setprofile(signalled)  # from here on: behind the first block it waits for the next
        try:
            assert list(facts) == []
        finally:
            sys.setprofile(None)

    thread = Thread(target=play, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def test_a_trickle_does_not_wait():
    """What was gathered for as long as a block is given out, also if it is less."""
    now = [0.0]
    gathering = Gathering(0.5, steady=lambda: now[0])
    assert list(gathering.push(RecordingStarted("r", 1000, ("1",))))
    given = []
    for number in range(10):
        now[0] += 0.2
        given += list(gathering.push(Block(number, np.zeros((1, 1), np.float32), np.array([True]))))
    assert [(block.start, block.stop) for block in given] == [(0, 4), (4, 8)]
