"""Notifications of a fleet: a real broker, a real web server, a process that is killed."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.commands.fleet_notify import outputs_of
from pipeline.core.errors import GemmedError
from pipeline.fleet.config import read_fleet
from pipeline.fleet.notifier import FleetNotifying, StreamCursor
from pipeline.outputs.notification_text import problem_text
from pipeline.outputs.notifier import rules_of
from pipeline.storage.journal import Journal
from pipeline.transport.nats import Broker
from tests.conftest import TIMEOUT, eventually
from tests.fleet.broker import Nats
from tests.fleet.by_hand import NOON, empty_fleet, sent_events
from tests.forked import Running, gemmed, started
from tests.outputs.broker import Mosquitto, Subscriber
from tests.outputs.receiver import answer, serving

UNTIL_NOW = ["run-0001.p5000", "run-0001.p50000", "run-0002.p30000"]
_RETRIES = ('retry_first = "50 ms"', 'retry_most = "100 ms"')


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Nats]:
    with Nats(tmp_path_factory.mktemp("nats")) as nats:
        yield nats


def webhook(url: str, *lines: str) -> str:
    """The tables of outputs and rules."""
    own = ("[webhook]", f'url = "{url}"', 'events = ["notification"]', *_RETRIES)
    return "\n".join([*own, "[notifications]", 'zone = "UTC"', *lines, ""])


@contextmanager
def notifier(file: Path) -> Iterator[Running]:
    """`gemmed fleet notify`, once it knows where it is."""
    with (file.parent / "notify.log").open("ab") as log:
        process = started(["fleet", "notify", str(file)], stdout=log, stderr=log)
    try:
        eventually(lambda: b"following passages" in (file.parent / "notify.log").read_bytes(), "it runs")
        eventually(lambda: cursor_of(file) is not None, "its position")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT)


def cursor_of(file: Path) -> StreamCursor | None:
    with Journal(file.parent / "notify" / "journal.sqlite") as journal:
        return StreamCursor.read(journal)


def received(server: Any) -> list[dict[str, Any]]:
    return [json.loads(body) for _, _, body, _, _ in server.asked]


def test_people_are_notified_of_passages_that_end_after_the_start(server, tmp_path, request):
    """Of each once, with array and site in the title; SIGTERM ends it."""
    with serving() as receiver:
        hand, file = empty_fleet(server, tmp_path, request.node.name, more=webhook(receiver.url))
        hand.send("south", sent_events(prefix="old"))
        with notifier(file) as process:
            hand.send("north", sent_events())
            hand.send("south", sent_events(NOON + timedelta(hours=1))[:3])
            receiver.until(lambda: len(receiver.asked) == 4)
            notify = str(file.parent / "notify")
            eventually(lambda: gemmed("status", "--state", notify).returncode == 0, "it is ready")
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0
            assert gemmed("status", "--state", notify).returncode == 4
    found = received(receiver)
    assert [(one["array"], one["site"], one["passage"], one["title"]) for one in found if one["array"] == "north"] == [
        ("north", "north gate", "run-0001.p5000", "north (north gate): Human at 12:00"),
        ("north", "north gate", "run-0001.p50000", "north (north gate): Human with animal at 12:00"),
        ("north", "north gate", "run-0002.p30000", "north (north gate): Human at 12:01"),
    ]
    (south,) = (one for one in found if one["array"] == "south")
    assert (south["passage"], south["title"]) == ("run-0001.p5000", "south (south gate): Human at 13:00")
    assert [one["id"] for one in found] == sorted({one["id"] for one in found})


def test_a_kill_and_a_dead_link_lose_nothing_and_repeat_nothing_new(server, tmp_path, request):
    """Killed in the middle of a passage, while the receiver refuses; the rest passes while it is dead."""
    sent = sent_events()
    with serving() as receiver:
        receiver.moods = [answer(503)] * 10**4
        hand, file = empty_fleet(server, tmp_path, request.node.name, more=webhook(receiver.url))
        with notifier(file) as process:
            hand.send("north", sent[:5])
            receiver.until(lambda: len(receiver.asked) > 1)
            process.kill()
            process.wait(TIMEOUT)
        hand.send("north", sent[5:])
        hand.send("south", sent)
        receiver.moods, before = [], len(receiver.asked)
        with notifier(file):
            receiver.until(lambda: len({one["id"] for one in received(receiver)[before:]}) == 6)
    delivered = {one["id"]: (one["array"], one["passage"]) for one in received(receiver)[before:]}
    assert [passage for array, passage in delivered.values() if array == "north"] == UNTIL_NOW
    assert [passage for array, passage in delivered.values() if array == "south"] == UNTIL_NOW
    # Under the id that it had before the kill.
    assert received(receiver)[0]["id"] in delivered


def test_a_broker_that_was_away_is_followed_again(tmp_path, request):
    with serving() as receiver, Nats(tmp_path / "nats") as nats:
        hand, file = empty_fleet(nats, tmp_path, request.node.name, more=webhook(receiver.url))
        with notifier(file):
            hand.send("north", sent_events()[:3])
            receiver.until(lambda: len(receiver.asked) == 1)
            nats.kill()
            nats.start()
            hand.send("north", sent_events()[3:])
            receiver.until(lambda: len(receiver.asked) == 3)
    assert [one["passage"] for one in received(receiver)] == UNTIL_NOW


def test_an_mqtt_broker_gets_one_message_for_each_start_change_and_end(server, tmp_path, request):
    """And whether somebody is at any array; for Home Assistant the fleet is one device."""
    with Mosquitto(tmp_path) as mosquitto, Subscriber(mosquitto.port, "gemmed/#", "homeassistant/#") as subscriber:
        more = "\n".join(["[mqtt]", f'address = "{mosquitto.address}"', 'name = "hills"', *_RETRIES, ""])
        hand, file = empty_fleet(server, tmp_path, request.node.name, more=more)
        with notifier(file):
            subscriber.told("gemmed/hills/status", b"online")
            hand.send("north", sent_events()[:2])
            subscriber.until(lambda: somebody(subscriber) == ["ON"])
            hand.send("north", sent_events()[2:3])
            subscriber.until(lambda: somebody(subscriber) == ["ON", "OFF"])
            subscriber.until(lambda: len(subscriber.payloads("gemmed/hills/notification")) == 1)
    passages = [json.loads(one) for one in subscriber.payloads("gemmed/hills/passage")]
    assert [(one["array"], one["event"], one["passage"]) for one in passages] == [
        ("north", kind, "run-0001.p5000") for kind in ("start", "update", "end")
    ]
    (notification,) = map(json.loads, subscriber.payloads("gemmed/hills/notification"))
    assert (notification["array"], notification["site"]) == ("north", "north gate")
    device = json.loads(subscriber.payloads("homeassistant/device/gemmed_hills/config")[-1])
    assert set(device["components"]) == {"somebody", "last_class", "cadence", "passages_today"}


def somebody(subscriber: Subscriber) -> list[str]:
    """How the state changed, without the state at the start."""
    told = [json.loads(one)["somebody"] for one in subscriber.payloads("gemmed/hills/presence")]
    changes = [state for state, before in zip(told, [None, *told], strict=False) if state != before]
    return changes[1:] if changes[:1] == ["OFF"] else changes


class Followed:
    """A fleet whose notifications stay in the journal, step by step."""

    def __init__(self, server: Nats, directory: Path, test: str, *rules: str) -> None:
        self.hand, self.file = empty_fleet(server, directory, test, more=webhook("http://127.0.0.1:9/hook", *rules))
        self.fleet = read_fleet(self.file)
        self._journal, self._access = directory / "journal.sqlite", server.access()

    @contextmanager
    def following(self) -> Iterator[FleetNotifying]:
        rules = rules_of(outputs_of(self.fleet))
        with Broker(self._access, name="test") as broker, Journal(self._journal) as journal:
            yield FleetNotifying(self.fleet, rules, broker, journal, "run")

    def notifications(self) -> list[dict[str, Any]]:
        with Journal(self._journal) as journal:
            return [event.as_dict() for event in journal.events(types=["notification"])]


def until_settled(following: FleetNotifying, count: int, now: datetime = NOON) -> None:
    """Step until so many passages have ended."""

    def settled() -> bool:
        following.step(now, seconds=0.1)
        return following.as_dict()["presence"]["somebody"] is False and ended(following) == count

    eventually(settled, "all is read", every=0.0)


def ended(following: FleetNotifying) -> int:
    return len(list(following._journal.events(types=["passage_ended"])))


@pytest.mark.parametrize(
    ("rules", "notified"),
    [
        ((), [*UNTIL_NOW, *UNTIL_NOW]),
        (('labels = ["human_animal"]',), ["run-0001.p50000"] * 2),
        (("least_probability = 0.93",), ["run-0001.p50000"] * 2),
        (('quiet_hours = "11:30-12:30"',), []),
        (('cool_down = "1 h"',), UNTIL_NOW[:2] * 2),
    ],
    ids=("all", "labels", "probability", "quiet hours", "cool-down"),
)
def test_the_rules_are_those_of_a_daemon_for_each_array(server, tmp_path, request, rules, notified):
    followed = Followed(server, tmp_path, "rules-" + re.sub("[^a-z]+", "-", "".join(rules)), *rules)
    with followed.following() as following:
        followed.hand.send("north", sent_events())
        followed.hand.send("south", sent_events())
        until_settled(following, 8)
    assert sorted(one["passage"] for one in followed.notifications()) == sorted(notified)


def test_somebody_is_there_while_a_passage_goes_on_at_any_array(server, tmp_path, request):
    followed = Followed(server, tmp_path, request.node.name)
    with followed.following() as following:
        followed.hand.send("south", sent_events()[:2])
        eventually(lambda: following.step(NOON, seconds=0.1) or following.as_dict()["presence"]["somebody"])
        assert following.as_dict()["presence"]["passage"]["array"] == "south"
        followed.hand.send("south", sent_events()[2:3])
        until_settled(following, 1)
        last = following.as_dict()["last_passage"]
        assert (last["array"], last["name"]) == ("south", "Human")


def test_problems_of_sensors_are_added_with_their_array(server, tmp_path, request):
    """Titles name the array; the passage that goes on meanwhile is not disturbed."""
    followed = Followed(server, tmp_path, request.node.name)
    sent = sent_events()[:3]
    bad = {
        "type": "state_changed", "id": 2, "recording": "run-0001", "sample": 9000, "recording_started_at": None,
        "sensor": 2, "from": "good", "to": "bad", "causes": ["flat"], "cures": ["check the cable"], "notify": True,
    }  # fmt: skip
    with followed.following() as following:
        followed.hand.send("south", [sent[0], bad, sent[1] | {"id": 3}, sent[2] | {"id": 4}])
        until_settled(following, 1)
        (stored,) = following._journal.events(types=["state_changed"])
    assert problem_text(stored.body) == ("south: Sensor 2 is bad", "Flat. check the cable")
    assert (stored.body["site"], stored.body["array_event"]) == ("south gate", 2)
    assert [one["passage"] for one in followed.notifications()] == ["run-0001.p5000"]


def test_a_day_is_summed_up_once_for_the_whole_fleet(server, tmp_path, request):
    followed = Followed(server, tmp_path, request.node.name, 'summary_at = "20:00"', 'labels = ["human"]')
    evening = NOON.replace(hour=20) + timedelta(minutes=1)
    with followed.following() as following:
        followed.hand.send("north", sent_events())
        followed.hand.send("south", sent_events()[:3])
        until_settled(following, 5, NOON + timedelta(minutes=5))
        for _ in range(2):
            following.step(evening, seconds=0.1)
    with followed.following() as following:
        following.step(evening + timedelta(minutes=1), seconds=0.1)
    (summary,) = (one for one in followed.notifications() if one["about"] == "summary")
    assert summary["labels"] == {"north: Human": 2, "north: Human with animal": 1, "south: Human": 1}
    assert (summary["passages"], summary["not_notified"]) == (4, 1)
    assert "No sensor" not in summary["text"]


def test_old_events_go_once_every_output_has_them(server, tmp_path, request):
    """One that an output still waits for stays, however old it is."""
    followed = Followed(server, tmp_path, request.node.name)
    with followed.following() as following:
        followed.hand.send("north", sent_events()[:3])
        until_settled(following, 1)
        later = NOON + timedelta(days=91)
        following._journal.execute("INSERT INTO deliveries (target, last_id) VALUES ('webhook', 3)")
        following.step(later, seconds=0.05)
        left = [event.id for event in following._journal.events()]
    assert left == [4]


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ("", "has no output; add notifications.urls_file, webhook.url or mqtt.address"),
        (webhook("http://127.0.0.1:9/", 'link = "https://field.example.org"'), "a fleet has none: remove them here"),
        ('[notifications]\nurls_file = "missing"\n', "cannot be read"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_the_start(server, tmp_path, tables, words):
    file = tmp_path / "fleet.toml"
    file.write_text(f'[broker]\naddress = "{server.address}"\n{tables}[[arrays]]\nname = "north"\n')
    with pytest.raises(GemmedError, match=words):
        outputs_of(read_fleet(file))
    done = gemmed("fleet", "notify", str(file))
    assert done.returncode in (1, 2)
    assert words in done.stderr
