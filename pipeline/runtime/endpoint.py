"""Where the dashboard listens: the socket, its encryption, and who else may be there."""

from __future__ import annotations

import errno
import json
import socket
import ssl
import time
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from pipeline.config.schema import Web
from pipeline.core.errors import GemmedError, SettingsError

_BACKLOG = 128
_ASK_SECONDS = 5.0
_DAY_SECONDS = 86400.0
_SOON_DAYS = 14
_MISMATCHES = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}
"""The last one is told of a key of another kind."""


class AddressTaken(GemmedError):
    """Another process listens there."""


def listening(web: Web) -> socket.socket:
    """A socket at the address of the settings."""
    family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((web.host, web.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            other = "another gemmed" if is_gemmed(web) else "another process"
            raise AddressTaken(
                f"web.address = {web.address} is used by {other}; stop that, or give another port"
            ) from error
        raise SettingsError(
            f"web.address = {web.address} cannot be listened at: {error.strerror}; give an address of this machine"
        ) from error
    return listener


def is_gemmed(web: Web) -> bool:
    """Whether a dashboard answers there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(web.host, web.host)
    for connection in (HTTPConnection(host, web.port, timeout=_ASK_SECONDS), _unverified(host, web.port)):
        with closing(connection), suppress(OSError, HTTPException, ValueError):
            connection.request("GET", "/api/v1/session", headers={"Host": "localhost"})
            return "tokens_needed" in json.loads(connection.getresponse().read(10_000))
    return False


def _unverified(host: str, port: int) -> HTTPConnection:
    """It is only asked what it is, and told nothing."""
    return HTTPSConnection(host, port, timeout=_ASK_SECONDS, context=ssl._create_unverified_context())


def encryption(web: Web) -> ssl.SSLContext | None:
    """What the certificate and the key of the settings are good for; none without them."""
    if web.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, web)
    return context


def load_certificate(context: ssl.SSLContext, web: Web) -> None:
    assert web.certificate is not None
    assert web.key is not None
    for name, path in (("certificate", web.certificate), ("key", web.key)):
        _readable(name, path)
    try:
        # An empty password instead of a question on a terminal that nobody watches.
        context.load_cert_chain(web.certificate, web.key, password="")
    except ssl.SSLError as error:
        raise SettingsError(f"web.certificate = {_quoted(web.certificate)} {_why(error, web.key)}") from error


def changed_at(web: Web) -> list[int | None]:
    """When certificate and key were written."""
    return [None if path is None else _changed_at(path) for path in (web.certificate, web.key)]


def _changed_at(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _readable(name: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"web.{name} = {_quoted(path)} cannot be read: {error.strerror}; give a PEM file that gemmed may read"
        ) from error


def _why(error: ssl.SSLError, key: Path) -> str:
    if error.reason in _MISMATCHES:
        return f"does not belong to web.key = {_quoted(key)}; give the key that it was made for"
    return f"and web.key = {_quoted(key)} must be PEM files, the key without a password; make them anew"


def days_left(web: Web) -> float | None:
    """Until the certificate ends, below zero if it has; none without one.

    One shakes hands with oneself in memory, trusting just this certificate.
    """
    ours = encryption(web)
    if ours is None or web.certificate is None:
        return None
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname = False
    theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    theirs.load_verify_locations(cafile=web.certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = theirs.wrap_bio(to_client, to_server)
    server = ours.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise SettingsError(
            f"web.certificate = {_quoted(web.certificate)} is not valid now: {error.verify_message}; renew it, or set "
            "the clock"
        ) from error
    found = client.getpeercert()
    assert found is not None
    return (ssl.cert_time_to_seconds(str(found["notAfter"])) - time.time()) / _DAY_SECONDS


def doubts(web: Web) -> list[str]:
    """What works and is not good."""
    told = [] if web.unencrypted_warning is None else [web.unencrypted_warning]
    try:
        left = days_left(web)
    except SettingsError as error:
        return [*told, str(error)]
    if left is not None and left < _SOON_DAYS:
        told.append(f"web.certificate = {_quoted(web.certificate)} ends in {left:.0f} days; renew it")
    return told


def _quoted(path: Path | None) -> str:
    return f'"{path}"'
