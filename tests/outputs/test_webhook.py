"""A webhook whose receiver is a real server with moods."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from threading import Thread

import pytest

from pipeline.core.errors import LinkError
from pipeline.outputs.webhook import Receiver, WebhookTarget
from pipeline.storage.journal import Journal, JournalEntry, StoredEvent
from pipeline.storage.outbox import EventRefused, Forwarder, Pauses, Position, Route
from tests.outputs.receiver import TIMEOUT, Server, answer, hang, hang_up_after, reset, serving

SECRET = "a secret of some length"


@pytest.fixture
def server():
    with serving() as server:
        yield server


def event(number: int, kind: str = "event_noticed", **body: object) -> StoredEvent:
    return StoredEvent(number, "a-run", None, None, "2026-01-01T00:00:00.000Z", kind, {"type": kind, **body})


@contextmanager
def connected(server: Server, *, timeout: float = TIMEOUT, secret: Path | None = None):
    target = WebhookTarget(Receiver(server.url, timeout, secret))
    target.connect()
    yield target
    target.close()


def test_an_event_is_one_post_signed_and_all_over_one_connection(server, tmp_path):
    """Verified as a receiver would."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    started = event(8, "run_started", settings={"mqtt": {"user": "somebody"}}, version="1")
    with connected(server, secret=file) as target:
        assert list(target.send([event(7, reason="wind"), started])) == [7, 8]
    assert server.ids == [7, 8]
    path, headers, body, _, _ = server.asked[0]
    assert path == "/hook?key=hidden"
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Gemmed-Event-Id"] == "7"
    assert headers["X-Gemmed-Signature"] == "sha256=" + hmac.digest(SECRET.encode(), body, hashlib.sha256).hex()
    assert json.loads(body) == event(7, reason="wind").as_dict()
    assert len({address for *_, address, _ in server.asked}) == 1
    assert "settings" not in json.loads(server.asked[1][2])


def test_a_connection_that_was_closed_meanwhile_is_nobodys_fault(server):
    server.moods = [hang_up_after, answer(200), reset]
    with connected(server) as target:
        assert list(target.send([event(number) for number in (1, 2, 3)])) == [1, 2, 3]
    assert list(dict.fromkeys(server.ids)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("mood", "words"),
    [
        (answer(500), "answers 500 Internal Server Error"),
        (answer(429), "answers 429"),
        (answer(408), "answers 408"),
        (answer(302, Location="http://127.0.0.2:1/elsewhere"), "answers 302 Found, which is not followed"),
        (hang, "does not answer: it takes too long"),
        (reset, "does not answer: Connection reset by peer"),
    ],
)
def test_what_is_a_matter_of_the_link(server, mood, words):
    """The rest of the address may be a secret, and is not told."""
    server.moods = [mood]
    timeout = 0.3 if mood is hang else TIMEOUT
    with connected(server, timeout=timeout) as target, pytest.raises(LinkError, match=words) as error:
        list(target.send([event(1)]))
    assert not isinstance(error.value, EventRefused)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(("status", "tries"), [(400, 3), (422, 3), (413, 3), (401, 60), (404, 60), (410, 60)])
def test_what_is_refused(server, status, tries):
    server.moods = [answer(200), answer(status)]
    with connected(server) as target:
        sending = target.send([event(1), event(2), event(3)])
        assert next(sending) == 1
        with pytest.raises(EventRefused, match=f"answers {status}") as error:
            next(sending)
    assert (error.value.event, error.value.tries) == (2, tries)


def test_when_to_come_again_is_heeded_in_seconds_and_as_a_date(server):
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for asked, least, most in (("7", 7, 7), (in_an_hour, 3500, 3600), ("soon", 0, 0), ("-3", 0, 0)):
        server.moods = [answer(503, Retry_After=asked)]
        with connected(server) as target, pytest.raises(LinkError) as error:
            list(target.send([event(1)]))
        assert least <= error.value.retry_after_seconds <= most


def test_every_event_arrives_in_order_whatever_the_mood(server, tmp_path):
    """The same event is tried again until it is taken; one that is refused is skipped, and that is told."""
    with Journal(tmp_path / "journal.sqlite") as journal:
        Position(journal, "webhook")
        ids = journal.append([JournalEntry("a-run", {"type": "event_noticed"}) for _ in range(20)])
        ok = answer(200)
        server.moods = [ok, answer(500), ok, hang, reset, ok, *[answer(422)] * 3, answer(503, Retry_After="1")]
        route = Route("webhook", ("event_noticed",), 1000)
        target = WebhookTarget(Receiver(server.url, 3.0))
        forwarder = Forwarder(journal.path, route, target, run="a-run", pauses=Pauses(0.01, 0.02))
        thread = Thread(target=forwarder.run)
        thread.start()
        server.until(lambda: server.ids.count(ids[-1]) > 0)
        forwarder.stop(seconds=TIMEOUT)
        thread.join(TIMEOUT)
        assert list(dict.fromkeys(server.ids)) == ids
        assert server.ids.count(ids[3]) == 3
        (dropped,) = journal.events(types=["output_dropped"])
        assert dropped.body["event"] == ids[3]
        later = [at for number, (*_, at) in zip(server.ids, server.asked, strict=True) if number == ids[4]]
        assert later[1] - later[0] >= 1


def test_a_secret_that_cannot_be_read_and_a_receiver_that_is_not_there_are_told_with_a_cure(server, tmp_path):
    for content, words in ((None, "cannot be read: No such file"), ("\n", "is empty")):
        file = tmp_path / "secret"
        if content is not None:
            file.write_text(content)
        with connected(server, secret=file) as target, pytest.raises(LinkError, match=f"webhook.secret_file.*{words}"):
            list(target.send([event(1)]))
    assert server.asked == []
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/?key=hidden"
        with pytest.raises(LinkError, match=r"cannot be reached: Connection refused; check webhook\.url") as error:
            WebhookTarget(Receiver(url, 1.0)).connect()
    assert "hidden" not in str(error.value)
