"""A daemon that hears an array by way of a real broker decides what a replay decides, and loses nothing on the way."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.events import Block, Idle, RecordingEnded, RecordingStarted, SourceTrouble
from pipeline.fleet.topology import Places
from pipeline.runtime.state_dir import StateDirectory
from pipeline.sources.jetstream import StreamedArray
from pipeline.sources.reconnecting import RetryPolicy
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal
from pipeline.transport.nats import Broker
from pipeline.transport.wire import Parcel, packed
from tests.conftest import TIMEOUT, eventually
from tests.daemon.equality import decided
from tests.daemon.live import Running, settings
from tests.fleet.broker import Nats
from tests.fleet.fleets import gemmed, recordings_of, replayed
from tests.fleet.hosted import parcels_of
from tests.forked import gemmed as done_by

_RATE_HZ = 4000
_BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> Path:
    return recordings_of(0, tmp_path_factory.mktemp("sound") / "north")


@pytest.fixture(scope="module")
def sound(recordings) -> list[Parcel]:
    """With the time at which each recording began, by which its parts are told apart."""
    return [_dated(parcel) for parcel in parcels_of(recordings)]


def _dated(parcel: Parcel) -> Parcel:
    recording = replace(parcel.recording, started_at=_BEGAN)
    return replace(
        parcel, recording=recording, fact=recording if isinstance(parcel.fact, RecordingStarted) else parcel.fact
    )


@pytest.fixture
def nats(tmp_path) -> Iterator[Nats]:
    with Nats(tmp_path / "nats") as broker, Broker(broker.access(), name="test") as connection:
        Places().make(connection)
        yield broker


class Heard:
    """A directory in which one daemon after the other hears the same array, and what its journal says."""

    def __init__(self, directory: Path, nats: Nats, model: Path) -> None:
        self._nats, self._directory, self._model = nats, directory, model
        self.state = StateDirectory(directory / "state")
        self._sent = 0
        self.configure()

    def configure(self, *, array: str = "north", rate_hz: int = _RATE_HZ, begin: str = "oldest", model: bool = True):
        self.config = settings(
            self._directory,
            model=self._model if model else None,
            rate_hz=rate_hz,
            source=f'kind = "stream"\narray = "{array}"\nbegin = "{begin}"\n'
            'retry_first = "100 ms"\nretry_most = "200 ms"',
            more=f'[broker]\naddress = "{self._nats.address}"\n',
        )

    def start(self) -> Running:
        self._daemon = Running(self.config)
        return self._daemon

    def publish(self, messages: list[Parcel | bytes]) -> None:
        """All that there is at once; a middle is where they end."""
        log = Places().sound
        with Broker(self._nats.access(), name="test") as broker:
            for one in messages:
                self._sent += 1
                data = one if isinstance(one, bytes) else packed(one)
                broker.publish(log.subject("north"), data, stream=log.stream, id=f"message {self._sent}")

    def query(self, query: str, *values: object) -> list[Row]:
        """As any program would read the journal; nothing while there is none."""
        if not self.state.journal.exists():
            return []
        with closing(
            sqlite3.connect(f"{self.state.journal.as_uri()}?mode=ro", uri=True, timeout=TIMEOUT)
        ) as connection:
            try:
                return connection.execute(query, values).fetchall()
            except sqlite3.OperationalError:  # its tables are just being made
                return []

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        marks = ", ".join("?" * len(kinds))
        where = f"WHERE type IN ({marks})" if kinds else ""
        rows = self.query(f"SELECT id, run, body FROM events {where} ORDER BY id", *kinds)
        return [{"id": number, "run": run, **json.loads(body)} for number, run, body in rows]

    def place(self) -> dict[str, Any]:
        rows = self.query("SELECT body FROM places WHERE source = 'gemmed/north'")
        return json.loads(rows[0][0]) if rows else {"next": 1, "sample": 0, "recording": None}

    def until(self, holds: Callable[[], object]) -> None:
        def lives_and_holds() -> object:
            assert self._daemon.process.poll() is None, self._daemon.errors.decode()
            return holds()

        eventually(lives_and_holds, every=0.05)

    def until_heard(self, messages: int) -> None:
        self.until(lambda: self.place()["next"] > messages)

    def until_tidy(self) -> None:
        """No piece of sound of a run that was killed is as that one left it."""
        run = self.events("run_started")[-1]["run"]
        self.until(lambda: all(part.name.startswith(run) or part.parent.name.startswith(run)
                               for part in self.state.sound.glob("*/*.part")))  # fmt: skip

    def pages(self) -> list[tuple[str, str, datetime, int | None]]:
        """Name, title, beginning and length of what was heard, in order."""
        rows = self.query("SELECT name, started_at, samples FROM recordings ORDER BY rowid")
        return [(name, name.rpartition("-")[2], datetime.fromisoformat(at), samples) for name, at, samples in rows]

    def stop(self, daemon: Running) -> None:
        daemon.process.terminate()
        assert daemon.wait() == 0, daemon.errors.decode()

    def require_verified(self) -> None:
        done = done_by("replay", "--verify", "all", "--config", str(self.config))
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def heard(tmp_path, nats, model) -> Heard:
    return Heard(tmp_path / "daemon", nats, model)


def lengths(sound: list[Parcel]) -> dict[str, int]:
    ends = [parcel.fact for parcel in sound if isinstance(parcel.fact, RecordingEnded)]
    return {end.recording: end.samples for end in ends}


def require_tiled(heard: Heard, sound: list[Parcel]) -> None:
    """Pages of one recording follow each other without a hole, and without a sample decided about twice."""
    expected = lengths(sound)
    pages = heard.pages()
    assert list(dict.fromkeys(title for _, title, _, _ in pages)) == list(expected)
    with Journal(heard.state.journal, read_only=True) as journal:
        store = SoundStore(heard.state.sound, journal)
        for title, length in expected.items():
            mine = [(name, round((at - _BEGAN) / timedelta(seconds=1) * _RATE_HZ), samples)
                    for name, of, at, samples in pages if of == title]  # fmt: skip
            assert mine[0][1] == 0
            ends = [start for _, start, _ in mine[1:]] + [length]
            for (name, start, samples), end in zip(mine, ends, strict=True):
                assert samples in (None, end - start), name
                assert sum(block.stop - block.start for block in store.read(name, 0, end - start)) == end - start, name
                told = [event for event in heard.events() if event.get("recording") == name]
                assert max(event.get("stop_sample") or 0 for event in told) <= end - start, name
                segments = [event["start_sample"] for event in told if event["type"] == "decision"]
                assert segments == sorted(set(segments)), name


def test_it_decides_what_a_replay_decides(heard, nats, recordings, model):
    where = ["--array", "north", "--broker", nats.address, "--state", heard.config.parent / "edge"]
    publisher = gemmed("publish", recordings, *where, "--config", heard.config, log=heard.config.parent / "log")
    assert publisher.wait(TIMEOUT) == 0, (heard.config.parent / "log").read_text()
    expected = replayed(model, recordings)
    with heard.start() as daemon:
        heard.until(lambda: len(heard.events("recording_finished")) == 2)
        heard.stop(daemon)
    assert decided(heard.events()) == decided(expected)
    assert [title for _, title, _, _ in heard.pages()] == [event["recording"] for event in expected
                                                           if event["type"] == "recording_finished"]  # fmt: skip
    assert heard.events("source_trouble", "tick", "gap") == [e for e in expected if e["type"] in ("tick", "gap")]
    heard.require_verified()


def test_killed_in_the_middle_again_and_again(heard, sound):
    """Also right before the end of a recording, and right behind it."""
    ends = [number for number, parcel in enumerate(sound, start=1) if isinstance(parcel.fact, RecordingEnded)]
    places = [4, ends[0] - 1, ends[0], ends[0] + 5]
    sent = 0
    for place in places:
        heard.publish(sound[sent:place])
        sent = place
        with heard.start() as daemon:
            heard.until_heard(place)
            daemon.process.kill()
            daemon.wait()
    heard.publish(sound[sent:])
    with heard.start() as daemon:
        heard.until_heard(len(sound))
        heard.until_tidy()
        heard.stop(daemon)
    require_tiled(heard, sound)
    heard.require_verified()
    assert len(heard.events("run_died")) == len(places)
    assert heard.events("source_trouble", "gap") == []


def test_killed_while_there_is_much_to_hear(heard, sound):
    heard.publish(sound)
    for place in (5, len(sound) // 2):
        with heard.start() as daemon:
            heard.until_heard(place)
            daemon.process.kill()
            daemon.wait()
    with heard.start() as daemon:
        heard.until_heard(len(sound))
        heard.until_tidy()
        heard.stop(daemon)
    require_tiled(heard, sound)
    heard.require_verified()


def test_the_broker_killed_and_back(heard, nats, sound, recordings, model):
    half = len(sound) // 4
    heard.publish(sound[:half])
    with heard.start() as daemon:
        heard.until_heard(half)
        nats.kill()
        heard.until(lambda: len(heard.events("source_trouble")) >= 2)
        nats.start()
        heard.publish(sound[half:])
        heard.until_heard(len(sound))
        heard.stop(daemon)
    assert decided(heard.events()) == decided(replayed(model, recordings))
    told = heard.events("source_trouble")
    assert {event["where"] for event in told} == {"array north"}
    assert all("start it" in event["message"] or "check the broker" in event["message"] for event in told)
    assert heard.events("tick", "gap", "recording_interrupted") == []
    assert len(heard.pages()) == 2


def test_an_array_that_nobody_publishes(heard, sound):
    heard.publish(sound[:2])
    heard.configure(array="nroth")
    with heard.start() as daemon:
        message = daemon.told("source_trouble")["message"]
        heard.stop(daemon)
    assert "did you mean north?" in message
    assert heard.pages() == []


def test_another_rate_than_the_settings_say(heard, sound):
    """Is told for as long as it is so, and nothing is lost once the settings are right."""
    heard.publish(sound)
    heard.configure(rate_hz=8000, model=False)
    with heard.start() as daemon:
        told = [daemon.told("source_trouble")["message"] for _ in range(3)]
        heard.stop(daemon)
    assert set(told) == {told[0]}
    assert "4 sensors at 4000 Hz, the settings say 4 at 8000 Hz; change array.sensors and array.rate" in told[0]
    assert heard.pages() == []
    heard.configure()
    with heard.start() as daemon:
        heard.until_heard(len(sound))
        heard.stop(daemon)
    require_tiled(heard, sound)


def test_the_newest_begins_with_what_comes_next(heard, sound):
    """Wherever that is in a recording; and what comes while nobody hears is not passed over by the next start."""
    middle = 6
    heard.publish(sound[:middle])
    heard.configure(begin="newest")
    with heard.start() as daemon:
        heard.until(lambda: heard.place()["next"] == middle + 1)
        daemon.process.kill()
        daemon.wait()
    heard.publish(sound[middle:])
    with heard.start() as daemon:
        heard.until_heard(len(sound))
        heard.stop(daemon)
    first = sound[middle].fact.start
    (gap,) = heard.events("gap")
    assert (gap["start_sample"], gap["stop_sample"], gap["reason"]) == (0, first, "before the log begins")
    assert [samples for _, _, _, samples in heard.pages()] == list(lengths(sound).values())
    heard.require_verified()


def of_two_sensors(parcel: Parcel) -> Parcel:
    """The same of half the sensors."""
    recording, block = replace(parcel.recording, sensors=parcel.recording.sensors[:2]), parcel.fact
    assert isinstance(block, Block)
    return replace(parcel, recording=recording, fact=Block(block.start, block.samples[:2], block.delivered[:2]))


def test_messages_that_cannot_be_read(heard, sound):
    """Neither the first of all, nor one behind a recording, nor one where a daemon goes on, nor one of other sensors
    stops anybody."""
    end = next(n for n, parcel in enumerate(sound, start=1) if isinstance(parcel.fact, RecordingEnded))
    heard.publish([b"damaged", *sound[:5]])
    with heard.start() as daemon:
        heard.until_heard(6)
        daemon.process.kill()
        daemon.wait()
    heard.publish([b"damaged", *sound[5:7], of_two_sensors(sound[7]), *sound[7:end], b"damaged", *sound[end:]])
    with heard.start() as daemon:
        heard.until_heard(len(sound) + 4)
        heard.until_tidy()
        heard.stop(daemon)
    assert [event["where"] for event in heard.events("source_trouble")] == [
        "message 1",
        "message 7",
        "message 10",
        f"message {end + 4}",
    ]
    require_tiled(heard, sound)
    heard.require_verified()


def source(nats: Nats, place: str | None, *, rate_hz: int = _RATE_HZ) -> StreamedArray:
    return StreamedArray(nats.access(), Places().sound, "north", rate_hz=rate_hz, n_sensors=4, place=place,
                         from_newest=False, name=str, retry_policy=RetryPolicy(retry_first_seconds=0.05))  # fmt: skip


def blocks(array: StreamedArray, most: int) -> Iterator[tuple[datetime, Block]]:
    """So many facts of sound, each with the time at which its page began; the place is behind all that were taken."""
    began = _BEGAN
    for fact in islice((fact for fact in array if not isinstance(fact, Idle)), most):
        assert not isinstance(fact, SourceTrouble), fact
        if isinstance(fact, RecordingStarted):
            began = fact.started_at
        elif isinstance(fact, Block):
            yield began, fact


@pytest.mark.parametrize("first", range(3, 10))
def test_a_run_that_ends_among_the_facts_of_one_message_leaves_the_others_to_the_next(heard, nats, sound, first):
    """A late message completes all that were held for it."""
    late, whole = 3, sound[: len(sound) // 2]
    heard.publish([*whole[:late], *whole[late + 1 : 9], whole[late], *whole[9:12]])
    with source(nats, None) as array:
        taken = list(blocks(array, first))
        place = array.place
    with source(nats, place) as array:
        taken += list(blocks(array, 13 - first))
    starts = [round((began - _BEGAN) / timedelta(seconds=1) * _RATE_HZ) + block.start for began, block in taken]
    assert starts == [parcel.fact.start for parcel in whole[1:12] if isinstance(parcel.fact, Block)]


def test_another_rate_is_heard_once_the_last_recording_of_the_old_one_is_over(heard, nats, sound):
    end = next(n for n, parcel in enumerate(sound, start=1) if isinstance(parcel.fact, RecordingEnded))
    heard.publish(sound[:end])
    with source(nats, None) as array:
        assert list(blocks(array, end))
        place = array.place
    faster = [replace(parcel, recording=replace(parcel.recording, rate_hz=8000)) for parcel in sound[end:]]
    faster[0] = replace(faster[0], fact=faster[0].recording)
    heard.publish(faster)
    with source(nats, place, rate_hz=8000) as array:
        assert [block.start for _, block in blocks(array, 5)] == [parcel.fact.start for parcel in faster[1:5]]
