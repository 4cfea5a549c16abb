"""A simulated night at speed: what every output says of it, against the truth of the simulator.

Three subjects pass, sensor 3 is dead most of the time, and the broker is away for an hour of sound, in which two of
them pass. Seed 10 was chosen because the starter model finds exactly these three passages, with the right classes. So
that the hour takes seconds, nothing was recorded for most of it; the last passage is cut by the border of two files.
"""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import soundfile

from pipeline.model.model import Model
from pipeline.model.starter import STARTER
from pipeline.outputs.clip_links import Links
from pipeline.reports.stored_explanation import explain_stored
from pipeline.runtime.state_dir import StateDirectory
from pipeline.simulation import Day
from pipeline.simulation.day import PassageTruth
from pipeline.simulation.options import site_of
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal
from pipeline.web.tokens import hash_of, new_token
from tests.conftest import eventually, free_port
from tests.daemon.live import Running, children, settings
from tests.forked import gemmed, is_stopped
from tests.outputs.broker import Mosquitto, Subscriber
from tests.outputs.receiver import Server, serving
from tests.web.asking import ask

RATE = 16_000
BEGIN = datetime(2026, 1, 1, 6, 52, 12, tzinfo=UTC)
FILES = ((0, 135), (135, 360), (360, 540))
"""Seconds of the simulated sound."""
EARLIER_SECONDS = 3600
"""The first file is from this time before the others."""
PATTERN = "{recording}_{time:%Y%m%dT%H%M%S}.flac"
TOKEN = new_token()
SETTINGS = """
[labels]
names = {{ human = "A person" }}
[web]
address = "127.0.0.1:{web}"
tokens = [{{name = "ada", role = "viewer", hash = "{hash}"}}]
[notifications]
summary_at = "07:00"
zone = "UTC"
[mqtt]
address = "{broker}"
name = "night"
retry_first = "20 ms"
retry_most = "100 ms"
[webhook]
url = "{webhook}"
retry_first = "20 ms"
retry_most = "100 ms"
"""


@dataclass
class Night:
    """What was heard of a night, and what it was."""

    config: Path
    port: int
    truth: list[PassageTruth]
    webhook: list[dict]
    mqtt: dict[str, list[dict]]
    presence: dict
    listed: list[dict]

    def notified(self, about: str = "passage") -> list[dict]:
        return [one for one in self.webhook if one["type"] == "notification" and one["about"] == about]

    def ask(self, path: str, token: str | None = TOKEN):
        return ask(self.port, path, token=token)


def day() -> Day:
    site = site_of(
        seed=10, rate_hz=RATE, seconds=14.0, n_sensors=4, spacing_m=5.0, surface="gravel", faults="dead",
        fault_share="0,0,0.9,0", fault_seconds=60.0, clips=None,
    )  # fmt: skip
    return Day(site, hours=FILES[-1][1] / 3600, passages_per_day=400, distractors_per_day=0, start_hour=6.87)


def deliver(simulated: Day, number: int, folder: Path) -> None:
    """Put a file into the watched folder, at once."""
    start, stop = FILES[number]
    begin = BEGIN + timedelta(seconds=start - (0 if number else EARLIER_SECONDS))
    partial = folder.parent / "partial.flac"
    soundfile.write(partial, simulated.read(start * RATE, stop * RATE).T, RATE, subtype="PCM_16")
    partial.rename(folder / f"night_{begin:%Y%m%dT%H%M%S}.flac")


@pytest.fixture(scope="module")
def night(tmp_path_factory) -> Iterator[Night]:
    directory = tmp_path_factory.mktemp("night")
    folder, port, simulated = directory / "sound", free_port(), day()
    folder.mkdir()
    with serving() as server, Mosquitto(directory / "broker") as broker:
        config = settings(
            directory / "daemon",
            model=STARTER,
            rate_hz=RATE,
            source=f'kind = "folder"\npath = "{folder}"\npattern = "{PATTERN}"\nsettle = "100 ms"',
            more=SETTINGS.format(web=port, hash=hash_of(TOKEN), broker=broker.address, webhook=server.url),
        )
        with Subscriber(broker.port, "gemmed/night/#") as subscriber, Running(config) as running:
            subscriber.told("gemmed/night/status", b"online")
            deliver(simulated, 0, folder)
            subscriber.until(lambda: len(subscriber.payloads("gemmed/night/notification")) == 1)
            broker.kill()
            for number in range(1, len(FILES)):
                deliver(simulated, number, folder)
            server.until(lambda: "summary" in abouts(server))
            running.until(lambda event: running.count("recording_finished") == len(FILES))
            come_back(broker, subscriber, running, config)
            subscriber.until(lambda: len(once(subscriber, "notification")) == 4)
            done = gemmed("passages", "--json", "--config", str(config))
            yield Night(
                config,
                port,
                truth_of(simulated),
                [json.loads(body) for _, _, body, *_ in server.asked],
                {name: once(subscriber, name) for name in ("passage", "notification")},
                json.loads(subscriber.payloads("gemmed/night/presence")[-1]),
                json.loads(done.stdout),
            )


def once(subscriber: Subscriber, topic: str) -> list[dict]:
    """The messages of a topic without repetitions, which an interruption may cause."""
    told = [json.loads(payload) for payload in subscriber.payloads(f"gemmed/night/{topic}")]
    return list({one["id"]: one for one in told}.values())


def truth_of(simulated: Day) -> list[PassageTruth]:
    first, *others = (simulated.truth(number) for number in range(len(simulated.passages)))
    begin, end = (moment - EARLIER_SECONDS for moment in (first.start_seconds, first.end_seconds))
    return [replace(first, start_seconds=begin, end_seconds=end), *others]


def abouts(server: Server) -> list[str]:
    return [json.loads(body).get("about", "") for _, _, body, *_ in server.asked]


def come_back(broker: Mosquitto, subscriber: Subscriber, running: Running, config: Path) -> None:
    """Start the broker again; nothing is sent before the subscriber is there, which could not know of it."""
    (process,) = children(running.process.pid, "pipeline.outputs.process")
    with Journal(config.parent / "state" / "journal.sqlite") as journal, journal.transaction():
        # Not while it writes: it would keep the journal locked.
        os.kill(process, signal.SIGSTOP)
        eventually(lambda: is_stopped(process))
    broker.start()
    subscriber.until(lambda: subscriber.subscriptions == 2)
    os.kill(process, signal.SIGCONT)


def seconds(moment: str) -> float:
    return (datetime.fromisoformat(moment) - BEGIN).total_seconds()


def test_there_are_exactly_three_notifications_in_order_and_they_are_the_truth(night):
    found = night.notified()
    assert [one["label"] for one in found] == [one.label for one in night.truth] == ["vehicle", "animal", "human"]
    assert [one["name"] for one in found] == ["Vehicle", "Animal", "A person"]
    assert sorted(one["id"] for one in found) == [one["id"] for one in found]
    for one, truth in zip(found, night.truth, strict=True):
        start, end = seconds(one["start_time"]), seconds(one["end_time"])
        shared = min(end, truth.end_seconds) - max(start, truth.start_seconds)
        assert shared / (max(end, truth.end_seconds) - min(start, truth.start_seconds)) > 0.7
    assert 3 not in found[2]["sensors_used"]


def test_the_summary_of_the_morning_agrees(night):
    (summary,) = night.notified("summary")
    assert summary["labels"] == {"vehicle": 1, "animal": 1, "human": 1}
    assert (summary["passages"], summary["not_notified"]) == (3, 0)
    assert summary["until"] == "2026-01-01T07:00:00.000Z"
    assert summary["title"] == "3 passages since 2025-12-31 07:00"
    assert summary["text"].splitlines()[3:5] == ["05:00-06:00: 1", "06:00-07:00: 2"]
    assert [one["sensor"] for one in summary["faults"]] == [3]


def test_mqtt_has_the_same_messages_although_the_broker_was_away(night):
    """Start, changes and end of each passage with one id; one that a border of recordings cuts ends twice."""
    assert [one["id"] for one in night.mqtt["notification"]] == [
        one["id"] for one in night.webhook if one["type"] == "notification"
    ]
    told = night.mqtt["passage"]
    assert [one["id"] for one in told] == sorted({one["id"] for one in told})
    assert list(dict.fromkeys(one["passage"] for one in told)) == [row["passage"] for row in night.listed]
    for row in night.listed:
        own = [one for one in told if one["passage"] == row["passage"]]
        events = [one["event"] for one in own]
        assert list(dict.fromkeys(one["part"] for one in own)) == [part["passage"] for part in row["parts"]]
        assert (events[0], events[-1]) == ("start", "end")
        assert events.count("start") == 1
        assert [one["end"] for one in own if one["event"] == "end"][:-1] == ["recording ended"] * (
            len(row["parts"]) - 1
        )
    last = night.presence
    assert (last["somebody"], last["last_passage"]["name"]) == ("OFF", "A person")


def test_every_list_says_the_same(night):
    """`gemmed passages`, the API, the CSV and the calendar."""
    found = [(one["passage"], one["label"], one["start_time"]) for one in night.notified()]
    assert [(one["passage"], one["label"], one["start_time"]) for one in night.listed] == found
    listed = night.ask("/api/v1/passages").json["passages"]
    assert [(one["passage"], one["label"], one["start_time"]) for one in reversed(listed)] == found
    rows = list(csv.DictReader(io.StringIO(night.ask("/api/v1/passages.csv").body.decode())))
    assert [row["passage"] for row in rows] == [one[0] for one in found]
    assert [row["label"] for row in rows] == [one[1] for one in found]
    calendar = night.ask("/api/v1/passages/calendar?zone=UTC&days=400").json
    (one,) = [one for one in calendar["days"] if one["passages"]]
    assert (one["day"], one["labels"]) == ("2026-01-01", {"vehicle": 1, "animal": 1, "human": 1})
    assert one["hours"][5:7] == [{"vehicle": 1}, {"animal": 1, "human": 1}]


def test_decisions_with_and_without_anybody_are_explained_by_what_they_were_made_from(night):
    """P-values, computed again from the kept sound, are those of the event; without anybody they are other ones."""
    state, model = StateDirectory(night.config.parent / "state"), Model.load(STARTER)
    with Journal(state.journal, read_only=True) as journal:
        sound, decisions = SoundStore(state.sound, journal), list(journal.events(types=["decision"]))[::20]
        same = [explain_stored(one, journal, sound, model).same for one in decisions]
    assert {one.body["reason"] for one in decisions} >= {"nobody", None}
    assert all(same)


def test_every_clip_can_be_fetched_with_its_link_alone(night):
    for one in night.notified():
        link = urlsplit(one["clip"])
        answer = night.ask(f"{link.path}?{link.query}", token=None)
        assert (answer.code, answer.headers["content-type"]) == (200, "audio/flac")
        sound, rate = soundfile.read(io.BytesIO(answer.body))
        assert rate == RATE
        assert sound.ndim == 1
        assert len(sound) / rate == pytest.approx(one["duration_seconds"], abs=1.0)


def test_a_link_opens_nothing_else(night):
    """Not without its signature, not with that of another, not after its time, and no other path."""
    first, second = (urlsplit(one["clip"]) for one in night.notified()[:2])
    assert night.ask(first.path, token=None).code == 401
    for query in (second.query, f"{first.query}&sensor=1", first.query[:-1], "mix=true&expires=1&signature="):
        answer = night.ask(f"{first.path}?{query}", token=None)
        assert answer.code == 403
        assert "link" in answer.json["error"]
    for path in ("/api/v1/passages", first.path.removesuffix("/clip"), "/api/v1/status", "/"):
        assert night.ask(f"{path}?{first.query}", token=None).code in (401, 303)
    state = StateDirectory(night.config.parent / "state")
    old = urlsplit(Links("", state.link_key.read_bytes(), 60).clip(night.notified()[0]["passage"], time.time() - 61))
    expired = night.ask(f"{old.path}?{old.query}", token=None)
    assert (expired.code, "expired" in expired.json["error"]) == (403, True)
    assert stat.S_IMODE(state.link_key.stat().st_mode) == 0o600


def test_a_link_from_a_mail_page_opens_in_a_browser(night):
    """A browser says that another site asked for it."""
    link = urlsplit(night.notified()[0]["clip"])
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert ask(night.port, f"{link.path}?{link.query}", headers=headers).code == 200
    assert ask(night.port, "/api/v1/passages", headers=headers, token=None).code in (401, 403)
