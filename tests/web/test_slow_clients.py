"""Clients that do nothing, very slowly. A real server, of which the patience is short where that is tested."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore, Thread

import pytest

from pipeline.config.schema import Settings, Storage
from pipeline.storage.journal import Journal
from pipeline.web import guard, slow_clients
from pipeline.web.dependencies import Context
from tests.conftest import eventually
from tests.web.asking import TIMEOUT, ask, connected, rest, status_of


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Its port, and what it serves."""
    import uvicorn

    from pipeline.web.app import create_app

    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", TIMEOUT)
    monkeypatch.setattr(slow_clients, "MOST_CONNECTIONS", 20)
    Journal(tmp_path / "journal.sqlite").close()
    context = Context(Settings(storage=Storage(directory=tmp_path)))
    config = uvicorn.Config(
        create_app(context),
        http=slow_clients.Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
    )
    serving, started = uvicorn.Server(config), Event()
    listener = socket.create_server(("127.0.0.1", 0))

    async def serve() -> None:
        task = asyncio.create_task(serving._serve(sockets=[listener]))
        started.set()
        await task

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(TIMEOUT)
    yield listener.getsockname()[1], context, serving
    serving.should_exit = True
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    listener.close()


@pytest.mark.parametrize(
    "begin", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"GET / HTTP/1.1\r\nHost: local"]
)
def test_a_request_that_does_not_come_ends_the_connection(server, begin, monkeypatch):
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", 1.0)
    with connected(server[0]) as peer:
        peer.sendall(begin)
        assert rest(peer) == b""


def test_drops_do_not_keep_it_open(server, monkeypatch):
    """One header after the other, each in time, and never the last."""
    port, *_ = server
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", 1.0)
    with connected(port) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        eventually(lambda: _refuses(peer, b"X: y\r\n"), "nobody listens any more")
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", TIMEOUT)
    assert ask(port, "/login").code == 200


def _refuses(peer: socket.socket, text: bytes) -> bool:
    try:
        peer.sendall(text)
    except OSError:
        return True
    return False


def test_a_body_that_does_not_come_is_not_waited_for(server, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    with connected(server[0]) as peer:
        peer.sendall(
            b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nX-Gemmed: 1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 20\r\n\r\n{"
        )
        answer = rest(peer)
    assert status_of(answer) == 408
    assert b"did not come within" in answer


def test_an_answer_that_nobody_reads_ends_the_connection(server, monkeypatch):
    """Else it would take the place of another for ever."""
    port, context, serving = server
    monkeypatch.setattr(slow_clients, "STUCK_SECONDS", 3.0)  # long enough to see that the page is known
    context.live.status = {"much": "x" * 10_000_000}
    with connected(port) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in peer.recv(100)
        eventually(lambda: context.live.pages == 1, "the page is known")
        eventually(lambda: not context.live.pages, "the page is given up")
        assert not serving.server_state.connections


def test_more_connections_than_there_is_room_for_are_closed(server, monkeypatch):
    """And there is room again at once when others have gone."""
    port, _, serving = server
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", 1.0)
    peers = [socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) for _ in range(40)]
    ends = [rest(peer) for peer in peers]
    assert ends == [b""] * 40
    for peer in peers:
        peer.close()
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", TIMEOUT)
    assert ask(port, "/login").code == 200
    assert len(serving.server_state.connections) <= 20


def test_what_takes_long_is_done_for_few_at_once_and_keeps_nobody_else_waiting(server, monkeypatch):
    """Many who wait take no thread from others: all but two of these wait, and there are forty threads."""
    from pipeline.web.api import timeline

    port, *_ = server
    begun, end, made = Semaphore(0), Event(), timeline.timeline

    def slowly(*arguments, **named):
        begun.release()
        assert end.wait(TIMEOUT)
        return made(*arguments, **named)

    monkeypatch.setattr(timeline, "timeline", slowly)
    monkeypatch.setattr(slow_clients, "MOST_CONNECTIONS", 100)
    with ThreadPoolExecutor(50) as pool:
        answers = [pool.submit(ask, port, "/api/v1/timeline") for _ in range(50)]
        try:
            assert begun.acquire(timeout=TIMEOUT)
            assert begun.acquire(timeout=TIMEOUT)
            assert ask(port, "/api/v1/events").code == 200
            assert not begun.acquire(blocking=False)
        finally:
            end.set()
        assert [answer.result().code for answer in answers] == [200] * 50
