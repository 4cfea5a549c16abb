"""Who asks: known by a token, or by the cookie that a browser got for one."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from pipeline.config.schema import Token, Web
from pipeline.runtime.keys import KEY_BYTES, stored_key
from pipeline.runtime.logs import log
from pipeline.storage.labels import somebody
from pipeline.web.tokens import hash_of

SESSION_SECONDS = 7 * 86400
_FREE_GUESSES = 5
_LONGEST_WAIT_SECONDS = 60.0
_MOST_PEERS = 4096


@dataclass(frozen=True, slots=True)
class Visitor:
    """A name for the journal, and whether more than looking is allowed."""

    name: str
    operator: bool

    @property
    def role(self) -> str:
        return "operator" if self.operator else "viewer"


class Visitors:
    """Those that the settings know; without tokens everybody on this machine is its operator."""

    def __init__(self, web: Web, key_file: Path) -> None:
        self.tokens_needed = bool(web.tokens)
        self.wrong = Guesses()
        self._tokens = web.tokens
        self._key = session_key(key_file) if web.tokens else b""
        self._anybody = None if web.tokens else Visitor(somebody(), operator=True)

    @property
    def anybody(self) -> Visitor | None:
        """Who needs not be known."""
        return self._anybody

    def by_token(self, token: str) -> Visitor | None:
        found = self._with_token(token)
        return None if found is None else _visitor(found)

    def by_cookie(self, cookie: str) -> Visitor | None:
        """A cookie is good until it ends, or its token is no longer in the settings."""
        ends, _, signature = cookie.partition(".")
        if not (ends.isascii() and ends.isdigit() and len(ends) < 12 and signature.isascii()):
            return None
        if int(ends) < time.time():
            return None
        for token in self._tokens:
            if hmac.compare_digest(self._signature(token, ends), signature):
                return _visitor(token)
        return None

    def cookie(self, token: str) -> str | None:
        """For a browser that brought a token."""
        found = self._with_token(token)
        if found is None:
            return None
        ends = str(int(time.time()) + SESSION_SECONDS)
        return f"{ends}.{self._signature(found, ends)}"

    def _with_token(self, token: str) -> Token | None:
        given = hash_of(token) or ""
        # All are compared, and each in a time that does not depend on where it differs.
        same = [one for one in self._tokens if hmac.compare_digest(one.hash, given)]
        return same[0] if same else None

    def _signature(self, token: Token, ends: str) -> str:
        return hmac.new(self._key, f"{token.hash} {ends}".encode(), hashlib.sha256).hexdigest()


def _visitor(token: Token) -> Visitor:
    return Visitor(token.name, operator=token.role == "operator")


def session_key(path: Path) -> bytes:
    """The key that signs cookies; it outlives the process, so that a restart logs nobody out."""
    try:
        return stored_key(path)
    except OSError as error:
        log.warning("a restart of the dashboard will end all sessions", why=str(error))
        return secrets.token_bytes(KEY_BYTES)


@dataclass(slots=True)
class _Peer:
    wrong: int = 0
    wait_until: float = 0.0


class Guesses:
    """Wrong tokens by the address they came from: after some, each costs a longer pause. Others do not notice."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def wait_seconds(self, address: str) -> float:
        """How long nobody from there is heard."""
        peer = self._peers.get(_network(address))
        return 0.0 if peer is None else max(0.0, peer.wait_until - self._clock())

    def count(self, address: str) -> None:
        network = _network(address)
        peer = self._peers.setdefault(network, _Peer())
        self._peers.move_to_end(network)
        if len(self._peers) > _MOST_PEERS:
            self._peers.popitem(last=False)
        peer.wrong += 1
        excess = peer.wrong - _FREE_GUESSES
        if excess >= 0:
            peer.wait_until = self._clock() + min(2.0 ** min(excess, 10), _LONGEST_WAIT_SECONDS)
        # The more, the rarer: a log is not to be filled from outside.
        if peer.wrong & (peer.wrong - 1) == 0:
            log.warning("wrong tokens", address=address, times=peer.wrong)

    def forgive(self, address: str) -> None:
        """Somebody from there is known."""
        self._peers.pop(_network(address), None)


def _network(address: str) -> str:
    """Who has one IPv6 address has 2^64 of them."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return found.packed[:8].hex()
    return str(getattr(found, "ipv4_mapped", None) or found)
