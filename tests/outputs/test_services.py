"""Messages to services by apprise, against a real SMTP server and a real web server."""

from __future__ import annotations

import email
import email.policy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from aiosmtpd.controller import Controller

from pipeline.core.errors import LinkError, UsageError
from pipeline.outputs.clip_links import Links
from pipeline.outputs.services import MessageTarget, ServiceAddress, message_of, readable_by_others, service_addresses
from pipeline.storage.journal import Journal, JournalEntry, StoredEvent
from pipeline.storage.outbox import Forwarder, Pauses, Position, Route
from tests.conftest import TIMEOUT, free_port
from tests.outputs.receiver import answer, serving

SECRET = "swordfish-and-more"
LINKS = Links("https://field.example.org", b"k" * 32, 3600)
BODY = {
    "type": "notification", "about": "passage", "passage": "r.p1", "title": "Human at 20:00", "text": "Human, 91%",
}  # fmt: skip


class Mailbox:
    """Keeps the mail that a server gets."""

    def __init__(self) -> None:
        self.got: list[email.message.EmailMessage] = []

    async def handle_DATA(self, server: object, session: object, envelope: object) -> str:
        self.got.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 OK"


@contextmanager
def mail_server() -> Iterator[tuple[Mailbox, int]]:
    box, port = Mailbox(), free_port()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield box, port
    finally:
        controller.stop()


def address(url: str, line: int = 1) -> ServiceAddress:
    return ServiceAddress(line, url)


def mail(port: int) -> ServiceAddress:
    return address(f"mailto://127.0.0.1:{port}?from=gemmed@example.org&to=ada@example.org")


def stored(number: int = 1, body: dict | None = None) -> StoredEvent:
    body = body or BODY
    return StoredEvent(number, "a-run", None, None, "2026-05-01T18:00:00.000Z", body["type"], body)


def text_of(message: email.message.EmailMessage) -> str:
    part = message.get_body(("plain", "html"))
    assert part is not None
    return part.get_content()


def test_an_e_mail_has_title_text_link_and_on_request_the_clip():
    with mail_server() as (box, port):
        target = MessageTarget(mail(port), links=LINKS, clip=lambda passage: f"sound of {passage}".encode())
        target.connect()
        assert list(target.send([stored(7)])) == [7]
    (got,) = box.got
    assert got["Subject"] == "Human at 20:00"
    assert got["To"] == "ada@example.org"
    assert "Human, 91%" in text_of(got)
    assert "https://field.example.org/api/v1/passages/r.p1/clip?mix=true" in text_of(got).replace("&#61;", "=")
    (clip,) = [part for part in got.walk() if part.get_filename()]
    assert (clip.get_filename(), clip.get_content_type()) == ("r.p1.flac", "audio/flac")
    assert clip.get_payload(decode=True) == b"sound of r.p1"


def test_sound_that_is_no_longer_kept_is_left_out():
    def gone(passage: str) -> bytes:
        raise UsageError("it had to make room")

    with mail_server() as (box, port):
        target = MessageTarget(mail(port), clip=gone)
        target.connect()
        assert list(target.send([stored()])) == [1]
    assert not [part for part in box.got[0].walk() if part.get_filename()]


def test_a_web_service_gets_title_and_text():
    with serving() as server:
        target = MessageTarget(address(f"json://127.0.0.1:{server.server_address[1]}/{SECRET}"), links=LINKS)
        target.connect()
        assert list(target.send([stored(3), stored(4)])) == [3, 4]
        bodies = [json.loads(body) for _, _, body, *_ in server.asked]
    assert [one["title"] for one in bodies] == ["Human at 20:00"] * 2
    assert bodies[0]["message"].startswith("Human, 91%\nListen: https://field.example.org/api/v1/passages/r.p1/clip?")


def test_a_service_that_fails_is_named_without_its_secrets(caplog, capfd):
    """Neither in the error nor on standard error, where apprise writes whole addresses."""
    with serving() as server:
        server.moods = [answer(500)]
        url = f"json://user:{SECRET}@127.0.0.1:{server.server_address[1]}/path-{SECRET}?+token={SECRET}x"
        target = MessageTarget(address(url, 3))
        target.connect()
        with pytest.raises(LinkError, match=r"json \(line 3 of notifications\.urls_file\) did not take") as error:
            list(target.send([stored()]))
    target = MessageTarget(
        address(f"mailto://user:{SECRET}@127.0.0.1:{free_port()}?from=bob@example.org&to=ada@example.org")
    )
    target.connect()
    with pytest.raises(LinkError, match=r"127\.0\.0\.1") as other:
        list(target.send([stored()]))
    told = f"{error.value} {other.value} {caplog.text} {capfd.readouterr()} {address(url)!r}"
    assert SECRET not in told


@pytest.mark.parametrize("text", ["error for swordfish-and-more", "path-swordfish%2Dand", "token=swordfish-and"])
def test_parts_of_an_address_are_taken_out_of_messages(text):
    url = "tgram://swordfish-and-more/-100/path-swordfish%2Dand?+token=swordfish-and"
    assert "swordfish" not in address(url).without_secrets(text)


@pytest.mark.parametrize("url", ["bogus://user:swordfish@host", "no address at all", "mailto://", "json://"])
def test_an_address_that_nobody_knows_is_named_by_its_line(url):
    with pytest.raises(
        LinkError, match=r"line 12 of notifications\.urls_file is not an address that apprise can use"
    ) as error:
        MessageTarget(address(url, 12)).connect()
    assert "swordfish" not in str(error.value)


def test_a_file_of_addresses_has_comments_and_repeated_lines_count_once(tmp_path):
    file = tmp_path / "urls"
    file.write_text("# people\n\njson://a.example\n  mailto://b:c@d.example  \njson://a.example\n")
    found = service_addresses(file)
    assert [(one.line, one.url) for one in found] == [(3, "json://a.example"), (4, "mailto://b:c@d.example")]
    assert [one.target.partition("-")[0] for one in found] == ["json", "mailto"]
    targets = {one.target for one in found}
    # A password that was wrong and is corrected: what waits still belongs to this service.
    file.write_text("mailto://b:other:p@ss@d.example\njson://e.example\njson://a.example\n")
    assert targets < {one.target for one in service_addresses(file)}


@pytest.mark.parametrize(("mode", "others"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_a_file_that_others_can_read_is_known(tmp_path, mode, others):
    file = tmp_path / "urls"
    file.touch()
    file.chmod(mode)
    assert readable_by_others(file) == others


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    file = tmp_path / "urls"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=r"notifications\.urls_file = .*urls' cannot be read"):
        service_addresses(file)


@pytest.mark.parametrize(
    ("body", "title", "text"),
    [
        (
            {"type": "state_changed", "sensor": 3, "to": "bad", "causes": ["gain_loss"], "cures": ["Check the gain."]},
            "Sensor 3 is bad", "Gain loss. Check the gain.",
        ),
        ({"type": "run_died", "run_that_died": "x"}, "Run died", "Run died"),
        ({"type": "source_trouble", "where": "sound card", "message": "gone"}, "Source trouble", "sound card: gone"),
        ({"type": "common_fault", "sensors": [1, 2], "reason": "wind"}, "Common fault: sensors 1, 2", "wind"),
        (
            {"type": "notification", "about": "summary", "title": "No passages", "text": "Nobody passed."},
            "No passages", "Nobody passed.\nHistory: https://field.example.org/history",
        ),
        ({"type": "notification", "about": "test", "title": "Test", "text": "x"}, "Test", "x"),
    ],
)  # fmt: skip
def test_every_kind_of_event_has_words(body, title, text):
    assert message_of(body, LINKS) == (title, text)


def test_of_the_states_of_a_sensor_only_bad_ones_are_messages():
    """Every recording begins with good ones, and a passing car makes a sensor degraded for a moment."""
    changes = [("unknown", "good"), ("good", "degraded"), ("degraded", "bad"), ("bad", "good"), ("unknown", "bad")]
    told = [
        stored(number, {"type": "state_changed", "sensor": 3, "from": before, "to": after})
        for number, (before, after) in enumerate(changes)
    ]
    with serving() as server:
        target = MessageTarget(address(f"json://127.0.0.1:{server.server_address[1]}"))
        target.connect()
        assert list(target.send(told)) == [0, 1, 2, 3, 4]
        titles = [json.loads(body)["title"] for _, _, body, *_ in server.asked]
    assert titles == ["Sensor 3 is bad", "Sensor 3 is good", "Sensor 3 is bad"]


def test_messages_wait_for_a_service_that_is_away_and_arrive_once_in_order(tmp_path: Path):
    """The link is down once and up once, and the journal says so without secrets."""
    with serving() as server, Journal(tmp_path / "journal.sqlite") as journal:
        service = address(f"json://127.0.0.1:{server.server_address[1]}/{SECRET}")
        Position(journal, service.target).close()
        server.moods = [answer(503)] * 3
        route = Route(service.target, ("notification",), 1000, notable=True)
        forwarder = Forwarder(journal.path, route, MessageTarget(service), run="a-run", pauses=Pauses(0.01, 0.05))
        thread = Thread(target=forwarder.run)
        thread.start()
        try:
            journal.append([JournalEntry("a-run", BODY | {"title": f"Number {number}"}) for number in range(3)])
            server.until(lambda: len(server.asked) == 6)
        finally:
            forwarder.stop(seconds=TIMEOUT)
            thread.join(TIMEOUT)
        told = list(journal.events(types=["output_link_down", "output_link_up"]))
        titles = [json.loads(body)["title"] for _, _, body, *_ in server.asked]
    assert titles == ["Number 0"] * 3 + ["Number 0", "Number 1", "Number 2"]
    assert [event.type for event in told] == ["output_link_down", "output_link_up"]
    assert told[0].body["target"].startswith("json-")
    assert SECRET not in json.dumps([event.body for event in told])
