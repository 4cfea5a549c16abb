"""From an address to a running server."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from pipeline.config.schema import Settings, Web
from pipeline.core.errors import SettingsError
from pipeline.runtime.child_process import Snapshot
from pipeline.runtime.endpoint import changed_at, doubts, encryption, listening, load_certificate
from pipeline.runtime.logs import log
from pipeline.web.app import create_app
from pipeline.web.dependencies import Context
from pipeline.web.guard import LONGEST_HEADERS

if TYPE_CHECKING:
    import uvicorn

_GOODBYE_SECONDS = 1
_RENEW_SECONDS = 2.0


def serve(settings: Settings, snapshots: Iterable[Snapshot], *, signals: Iterable[signal.Signals] = ()) -> None:
    """Until there are no more snapshots, for then the daemon is gone; or until one of the signals."""
    web = settings.web
    encrypted = encryption(web)
    with closing(listening(web)) as listener:
        for doubt in doubts(web):
            log.warning(doubt)
        log.info("the dashboard is open", url=web.url)
        asyncio.run(_serve(settings, snapshots, listener, encrypted, signals))


async def _serve(
    settings: Settings,
    snapshots: Iterable[Snapshot],
    listener: socket.socket,
    encrypted: ssl.SSLContext | None,
    signals: Iterable[signal.Signals],
) -> None:
    import uvicorn

    from pipeline.web.slow_clients import Connection

    context = Context(settings)
    server = _server(
        uvicorn.Config(
            create_app(context),
            http=Connection,
            ws="none",
            lifespan="off",
            # Else whoever is on this machine could write the address of anybody into a header.
            proxy_headers=False,
            server_header=False,
            access_log=False,
            # It would tell of every malformed request, in a format of its own; what fails here is told by the guard.
            log_config=None,
            log_level="critical",
            h11_max_incomplete_event_size=LONGEST_HEADERS,
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
            ssl_context_factory=None if encrypted is None else lambda *_: encrypted,
        )
    )
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_told)

    def end() -> None:
        server.should_exit = True

    def follow() -> None:
        with suppress(RuntimeError):  # the loop has ended
            for snapshot in snapshots:
                loop.call_soon_threadsafe(context.live.tell, snapshot)
            loop.call_soon_threadsafe(end)

    for number in signals:
        loop.add_signal_handler(number, end)
    Thread(target=follow, name="snapshots", daemon=True).start()
    tasks = [asyncio.create_task(context.live.run())]
    # Else pages would look alive, and be told nothing any more.
    tasks[0].add_done_callback(lambda _: end())
    if encrypted is not None:
        tasks.append(asyncio.create_task(_renewing(encrypted, settings.web)))
    await server.serve(sockets=[listener])
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended


def _server(config: uvicorn.Config) -> uvicorn.Server:
    """Return a server that leaves the signals to this process, which ends with the daemon."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

    return Server(config)


async def _renewing(encrypted: ssl.SSLContext, web: Web) -> None:
    """New connections get the certificate that lies there now."""
    known = changed_at(web)
    while True:
        await asyncio.sleep(_RENEW_SECONDS)
        if (now := changed_at(web)) != known:
            known = now
            try:
                load_certificate(encrypted, web)
                log.info("the certificate was renewed")
            except SettingsError as error:
                log.error("the certificate stays as it was", why=str(error))


def _told(loop: asyncio.AbstractEventLoop, found: dict[str, Any]) -> None:
    """Broken connections are the business of those who broke them."""
    error = found.get("exception")
    if not isinstance(error, OSError):
        log.error("the dashboard", what=found["message"], why=error)
