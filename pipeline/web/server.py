"""From an address to a running server."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable
from contextlib import closing
from threading import Thread
from typing import Any

from pipeline.errors import GemmedError
from pipeline.service.companion import Snapshot
from pipeline.service.logs import log
from pipeline.service.settings import Settings
from pipeline.web.app import create_app
from pipeline.web.context import Context

_BACKLOG = 128
_GOODBYE_SECONDS = 1


class AddressTaken(GemmedError):
    """Another process listens there."""


def serve(settings: Settings, snapshots: Iterable[Snapshot]) -> None:
    """Until there are no more snapshots: then the daemon is gone."""
    with closing(listening(settings)) as listener:
        log.info("the dashboard is open", url=settings.web.url)
        asyncio.run(_serve(settings, snapshots, listener))


def listening(settings: Settings) -> socket.socket:
    """A socket at the address of the settings."""
    web = settings.web
    family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((web.host, web.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(
                f"web.address = {web.address} is used by another process; stop that, or give another port"
            ) from error
        raise
    return listener


async def _serve(settings: Settings, snapshots: Iterable[Snapshot], listener: socket.socket) -> None:
    import uvicorn

    context = Context(settings)
    options: dict[str, Any] = {}
    if settings.web.certificate is not None:
        options = {"ssl_certfile": settings.web.certificate, "ssl_keyfile": settings.web.key}
    config = uvicorn.Config(
        create_app(context),
        access_log=False,
        log_config=None,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
        **options,
    )
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()

    def follow() -> None:
        for snapshot in snapshots:
            loop.call_soon_threadsafe(context.live.tell, snapshot)
        server.should_exit = True

    Thread(target=follow, name="snapshots", daemon=True).start()
    telling = asyncio.create_task(context.live.run())
    # Not `serve`, which would take over the signals of a process that ends with the daemon.
    await server._serve(sockets=[listener])
    telling.cancel()
