"""Server-sent events: what a page is told while it looks, and after it was away."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from threading import Event
from typing import Any

import pytest

from pipeline.config.schema import read_settings
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal, JournalEntry
from pipeline.web.event_stream import Live
from pipeline.web.server import serve
from tests.conftest import awaited, eventually, free_port
from tests.daemon.live import settings
from tests.web.asking import Answer, ask
from tests.web.conftest import TIMEOUT


@contextmanager
def stream(dashboard, path: str = "/api/v1/stream", **headers: str) -> Iterator[Iterator[tuple[str, Any, str | None]]]:
    """Messages as they come: kind, data and id."""
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=TIMEOUT)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    try:
        yield _messages(answer)
    finally:
        answer.close()
        connection.close()


def _messages(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any, str | None]]:
    fields: dict[str, str] = {}
    while line := answer.readline().decode():
        if line == "\n" and "data" in fields:
            yield fields["event"], json.loads(fields["data"]), fields.get("id")
        if line == "\n":
            fields = {}
        else:
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value


def first(messages, kind: str):
    return next(message for message in messages if message[0] == kind)


def test_the_status_comes_at_once_and_moves_on(dashboard):
    with stream(dashboard) as messages:
        _, now, _ = first(messages, "status")
        later = now
        while later["sample"] == now["sample"]:  # a busy machine may say the same again
            _, later, _ = first(messages, "status")
    assert later["sample"] > now["sample"]
    assert [sensor["sensor"] for sensor in now["sensors"]] == [1, 2, 3, 4]


def test_events_come_as_they_are_stored_each_once_and_in_order(dashboard):
    with stream(dashboard) as messages:
        told = []
        while len(told) < 8:
            _, events, number = first(messages, "events")
            assert int(number) == events[-1]["id"]
            told += events
    with dashboard.journal() as journal:
        stored = [event.as_dict() for event in journal.events(after=told[0]["id"] - 1, most=len(told))]
    assert told == stored


def test_who_was_away_gets_what_he_missed(dashboard):
    with dashboard.journal() as journal:
        known = journal.last_id
    eventually(
        lambda: dashboard.status().get("decisions") and _newest(dashboard) > known + 2, "something happens meanwhile"
    )
    with stream(dashboard, **{"Last-Event-ID": str(known)}) as messages:
        _, events, _ = first(messages, "events")
    assert events[0]["id"] == known + 1


def _newest(dashboard) -> int:
    with dashboard.journal() as journal:
        return journal.last_id


@pytest.mark.parametrize("path", ["/api/v1/stream?spectrogram=true", "/api/v1/stream"])
def test_sound_comes_only_if_asked_for(dashboard, path):
    with stream(dashboard, path) as messages:
        kinds: list[str] = []
        while kinds.count("status") < 4:
            kind, data, _ = next(messages)
            kinds.append(kind)
            if kind == "columns":
                assert len(data["levels_dbfs"]) == 4
    assert ("columns" in kinds) == ("true" in path)


def test_the_same_recording_has_the_same_columns_live_and_afterwards(dashboard):
    """Of a moment that a page has seen, the stored spectrogram shows the same bytes."""
    with stream(dashboard, "/api/v1/stream?spectrogram=true") as messages:
        first(messages, "columns")
        _, heard, _ = first(messages, "columns")
    start, hop = heard["start_sample"], heard["hop"]
    path = f"/api/v1/spectrogram/{heard['recording']}?start={start}&stop={start + 2 * hop}"
    kept = eventually(lambda: (found := dashboard.answer(path)) and not found["missing"] and found, "the sound is kept")
    live = base64.b64decode(heard["data"])
    n_columns = len(live) // (4 * 64)
    stored = base64.b64decode(kept["data"])
    for sensor in range(4):
        assert live[sensor * n_columns * 64 :][:64] == stored[sensor * 64 :][:64]


def test_a_page_misses_nothing_from_the_moment_it_comes(tmp_path):
    """Also if it is the first one, and something happens before the daemon speaks again."""
    state = StateDirectory(tmp_path)

    async def first_events() -> bytes:
        with Journal(state.journal) as journal:
            journal.append([JournalEntry("r", {"type": "tick"})])
            live = Live(state)
            live.tell({"status": {"run": "r"}, "last_id": journal.last_id})
            telling = asyncio.create_task(live.run())
            page = live.stream(after=None, spectrogram=False)
            assert await anext(page) == b"retry: 1000\n\n"
            journal.append([JournalEntry("r", {"type": "tick"})])
            live.tell({"status": {"run": "r"}, "last_id": journal.last_id})
            async with asyncio.timeout(TIMEOUT):
                async for told in page:
                    if b"event: events" in told:
                        break
            await page.aclose()
            telling.cancel()
            return told

    assert b"id: 2\n" in awaited(first_events())


def test_pages_that_cannot_be_told_anything_any_more_end_the_server(tmp_path):
    """A mistake in what is told: whoever started it starts it again, and pages come back to a sound one."""
    port, over = free_port(), Event()
    config = settings(tmp_path, model=None, more=f'[web]\naddress = "127.0.0.1:{port}"\n')
    Journal(StateDirectory(tmp_path / "state").journal).close()

    def snapshots() -> Iterator[Any]:
        while not over.wait(0.05):
            yield {"status": {"run": "r"}, "last_id": 0}

    with ThreadPoolExecutor(1) as pool, ExitStack() as ends:
        ends.callback(over.set)
        serving = pool.submit(serve, read_settings(config), snapshots())
        page = eventually(lambda: _opened(port, "/api/v1/stream?spectrogram=true"), "it is served")
        with closing(page), pytest.raises(KeyError, match="recording"):
            serving.result(TIMEOUT)


def _opened(port: int, path: str) -> http.client.HTTPConnection | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
    except OSError:
        return None
    return connection


def test_sound_that_is_not_whole_yet_is_asked_for_again(dashboard):
    """A browser keeps what never changes; what is being written still it must not keep as silence."""
    status = dashboard.status()
    second, minute_ago = status["rate_hz"], max(0, status["sample"] - 60 * status["rate_hz"])

    def sound(start: int, seconds: int) -> Answer:
        stop = start + seconds * second
        return ask(dashboard.port, f"/api/v1/sound/{status['recording']}?start={start}&stop={stop}&sensor=1")

    eventually(lambda: sound(minute_ago, 1).code == 200, "the first second is kept")
    assert "max-age" in sound(minute_ago, 1).headers["cache-control"]
    reaching_beyond_now = sound(minute_ago, 119)
    assert (reaching_beyond_now.code, reaching_beyond_now.headers["cache-control"]) == (200, "no-cache")
