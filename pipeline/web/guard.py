"""Who may ask for what; and what browsers are told not to do.

Pure ASGI, because an event stream passes through it for hours.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.config.schema import Web
from pipeline.outputs.clip_links import refused as refused_link
from pipeline.runtime.keys import stored_key
from pipeline.runtime.logs import log
from pipeline.web.sessions import Visitor, Visitors

LONGEST_HEADERS = 16 * 1024
LONGEST_BODY = 64 * 1024
BODY_SECONDS = 10.0
MOST_STREAMS = 200
STREAM = "/api/v1/stream"
SESSION = "/api/v1/session"

OPEN = {SESSION, "/login", "/healthz"}
_OPEN_BELOW = "/static/"
_API = "/api/"
_SAFE = {"GET", "HEAD", "OPTIONS"}
_OURS = {"same-origin", "none"}
_CLIP = re.compile(r"/api/v1/passages/([^/]+)/clip")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::\d{1,5})?")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
        "connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",
}
_ONLY_ENCRYPTED = {"Strict-Transport-Security": "max-age=31536000"}
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="gemmed"'}
_CLOSE = {"Connection": "close"}


class RequestRefused(Exception):
    """A request that is not let through, and what its sender is told."""

    def __init__(self, code: int, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.code, self.headers = code, dict(headers or {})


def cookie_name(web: Web) -> str:
    """Browsers send cookies to all ports of a host, so each dashboard has its own; with TLS no other can plant it."""
    return f"{'__Host-' if web.certificate else ''}gemmed-{web.port}"


class Guard:
    """Lets through what was addressed to us by somebody who may, and sends all with what browsers must know."""

    def __init__(self, app: ASGIApp, web: Web, visitors: Visitors, link_key: Path) -> None:
        self._app, self._visitors, self._link_key = app, visitors, link_key
        self._hosts = {"localhost", "127.0.0.1", "::1", web.host.lower(), *web.hosts}
        self._cookie = cookie_name(web)
        self._headers = _HEADERS | (_ONLY_ENCRYPTED if web.certificate else {})
        self._streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            receive = await self._admitted(scope, receive)
            with self._counted(scope["path"]):
                await self._app(scope, receive, guarded)
        except RequestRefused as refused:
            await self._refusal(scope, refused)(scope, receive, guarded)
        except Exception:
            # What is inside stays inside; a path is no secret, a query might be one.
            log.exception("a request failed", method=scope["method"], path=scope["path"])
            if not started:
                told = {"error": "this was not foreseen; the log of the daemon says more"}
                await JSONResponse(told, 500)(scope, receive, guarded)

    async def _admitted(self, scope: Scope, receive: Receive) -> Receive:
        """Whoever comes through is known to the handlers as `request.state.who` and `.role`."""
        headers, method = Headers(scope=scope), scope["method"]
        _well_formed(scope, headers)
        self._addressed_to_us(headers)
        if self._has_signed_link(scope):
            return receive
        visitor = self._visitor(scope, headers)
        # Only a token that was asked for and is right proves that no browser was led here.
        if self._visitors.anybody or "authorization" not in headers:
            _from_our_pages(scope, headers)
        if method in _SAFE:
            return receive
        if visitor is not None and not visitor.operator and scope["path"] != SESSION:
            raise RequestRefused(403, f"{visitor.name} is a viewer, and this needs the role operator; use such a token")
        return await _whole(receive, headers)

    def _has_signed_link(self, scope: Scope) -> bool:
        """Whether a valid link of a notification asks for the one clip that it was made for."""
        query = scope["query_string"].decode("latin-1")
        found = _CLIP.fullmatch(scope["path"])
        if found is None or scope["method"] != "GET" or "signature=" not in query:
            return False
        if why := refused_link(stored_key(self._link_key), found[1], query, time.time()):
            raise RequestRefused(403, why)
        return True

    def _addressed_to_us(self, headers: Headers) -> None:
        """Else a foreign page could give its own name our address, and read along."""
        host = headers.get("host", "")
        found = _HOST.fullmatch(host.lower())
        if found is None or found[1].strip("[]").rstrip(".") not in self._hosts:
            raise RequestRefused(
                421, f"host {host[:200]!r} is not served here; add it to web.hosts if it is this machine's"
            )

    def _visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        found = self._visitors.anybody or self._by_token(scope, headers) or self._by_cookie(headers)
        if found is not None:
            scope.setdefault("state", {}).update(who=found.name, role=found.role)
        elif not (scope["path"] in OPEN or scope["path"].startswith(_OPEN_BELOW)):
            raise RequestRefused(
                401, "this needs a token; log in at /login, or send one as Authorization: Bearer", _CHALLENGE
            )
        return found

    def _by_token(self, scope: Scope, headers: Headers) -> Visitor | None:
        """A right token is heard at once, whoever guesses at the same address: 256 bits are not guessed."""
        given = headers.get("authorization")
        if given is None:
            return None
        kind, _, token = given.partition(" ")
        found = self._visitors.by_token(token.strip()) if kind.lower() == "bearer" else None
        if found is None:
            patient(self._visitors, scope)
            self._visitors.wrong.count(peer(scope))
            raise RequestRefused(401, "this token is not known; make one with gemmed token", _CHALLENGE)
        return found

    def _by_cookie(self, headers: Headers) -> Visitor | None:
        # Others at this host set cookies as they like; the parser of Python would give up at their first slip.
        found = cookie_parser(headers.get("cookie", "")).get(self._cookie)
        return None if found is None else self._visitors.by_cookie(found)

    @contextmanager
    def _counted(self, path: str) -> Iterator[None]:
        """Pages hold a connection for hours; some must remain for everything else."""
        if path != STREAM:
            yield
            return
        if self._streams >= MOST_STREAMS:
            raise RequestRefused(503, f"{MOST_STREAMS} pages are open already; close some", {"Retry-After": "10"})
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def _refusal(self, scope: Scope, refused: RequestRefused) -> Response:
        """People are led to where they can log in, programs are told."""
        if refused.code == 401 and wants_page(scope):
            query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
            return RedirectResponse(f"/login?next={quote(scope['path'] + query, safe='')}", 303)
        return JSONResponse({"error": str(refused)}, refused.code, refused.headers)


def wants_page(scope: Scope) -> bool:
    """Whether somebody typed it or followed a link, and can read more than JSON."""
    page = "text/html" in Headers(scope=scope).get("accept", "")
    return page and scope["method"] == "GET" and not scope["path"].startswith(_API)


def peer(scope: Scope) -> str:
    """Whoever is connected; what a header says of others anybody can write."""
    client = scope.get("client")
    return "unknown" if client is None else str(client[0])


def patient(visitors: Visitors, scope: Scope) -> None:
    """Whoever guessed wrongly too often waits."""
    wait = math.ceil(visitors.wrong.wait_seconds(peer(scope)))
    if wait:
        raise RequestRefused(429, f"too many wrong tokens; try again in {wait} s", {"Retry-After": str(wait)})


def _well_formed(scope: Scope, headers: Headers) -> None:
    if scope["http_version"] not in ("1.0", "1.1"):
        raise RequestRefused(400, "only HTTP/1.0 and HTTP/1.1 are spoken here; use one of them", _CLOSE)
    length = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(a) + len(b) for a, b in headers.raw)
    if length > LONGEST_HEADERS:
        raise RequestRefused(
            431, f"address and headers are longer than {LONGEST_HEADERS // 1024} KB; send less", _CLOSE
        )
    if any(not char.isprintable() for char in scope["path"]):
        raise RequestRefused(400, "the path has characters that cannot be printed; leave them out")
    if "transfer-encoding" in headers and "content-length" in headers:
        # Two who read the same bytes, a proxy and we, could see different requests.
        raise RequestRefused(400, "a request has either Transfer-Encoding or Content-Length; send one", _CLOSE)
    if scope["method"] in _SAFE and ("transfer-encoding" in headers or headers.get("content-length", "0") != "0"):
        raise RequestRefused(400, f"{scope['method']} has no body; send none", _CLOSE)


def _from_our_pages(scope: Scope, headers: Headers) -> None:
    """A browser adds cookies to what a foreign page sends; such a page cannot set headers, nor lie about itself."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    safe = scope["method"] in _SAFE
    if site is not None and site not in _OURS and (not safe or scope["path"].startswith(_API)):
        raise RequestRefused(403, "another site asked for this; open the dashboard itself")
    if safe:
        return
    if origin is not None and _place(origin) != headers.get("host", "").lower():
        raise RequestRefused(403, f"origin {origin[:200]!r} is not this dashboard; open the dashboard itself")
    if "x-gemmed" not in headers:
        raise RequestRefused(403, "changes need the header X-Gemmed, with any value, or a token; add one of them")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused(415, "changes are sent as JSON; set Content-Type: application/json")


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


async def _whole(receive: Receive, headers: Headers) -> Receive:
    """The body, if it is short and comes soon; then whatever follows."""
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or int(length[:20]) > LONGEST_BODY:
        raise _too_long()
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > LONGEST_BODY:
                    raise _too_long()
    except TimeoutError:
        raise RequestRefused(
            408, f"the body did not come within {BODY_SECONDS:.0f} s; send it faster", _CLOSE
        ) from None
    first: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def again() -> Message:
        nonlocal first
        if first is not None:
            message, first = first, None
            return message
        return await receive()

    return again


def _too_long() -> RequestRefused:
    told = f"the body is longer than {LONGEST_BODY // 1024} KB; send less"
    return RequestRefused(413, told, _CLOSE)
