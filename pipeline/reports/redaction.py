"""What must not leave the machine: secrets, names of people, of machines and of places in a network."""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

_SECRET_WORDS = {
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "key",
    "apikey",
    "credential",
    "authorization",
}
_LONGEST_WORD = 5
"""A secret no longer than that, such as `false`, is removed where it stands, not wherever else it occurs."""
_GONE = "<removed>"

_ENTRY = re.compile(
    r"""(?P<key>["']?(?P<name>[\w.-]+)["']?\s*[=:]\s*)"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|\[[^\]]*\]|(?:Bearer|Basic)\s+[^\s,;}\]]+|[^\s,;}\]"'\[]+)"""
)
_PEM = re.compile(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----", re.DOTALL)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")
_LOGIN = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s\"'<>]*@")
_EMAIL = re.compile(r"[\w.+-]+@(?:[\w-]+\.)+[A-Za-z]{2,}")
_HOME = re.compile(r"/(?:home|Users)/[^/\s\"':,;]+")
_ADDRESS = re.compile(
    r"(?<![\w.:])[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?![\w:])|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\d)"
)


_NOBODY = {"gemmed", "settings", "label file", "unknown", "root"}
"""Who acts without being a person."""
_SHORTEST_NAME = 2


class Redactor:
    """Replaces what must not leave the machine, the same thing always by the same, and counts what it did.

    First `learn` from all texts, then `redact` them: what is a secret or a name in one place is so in all.
    """

    def __init__(self, *, home: Path | None = None, host: str | None = None) -> None:
        self.replaced: Counter[str] = Counter()
        self._home = str(Path.home() if home is None else home)
        self._host = socket.gethostname() if host is None else host
        self._people: dict[str, str] = {}
        self._secrets: set[str] = set()

    def learn(self, text: str) -> None:
        """Note which names and secrets there are."""
        for document in _documents(text):
            for name, value in _entries(document):
                self._note(name, value)

    def redact(self, text: str) -> str:
        """The same without them; JSON stays JSON."""
        text = _PEM.sub(self._with("secret", _GONE), text)
        return "\n".join(
            self._text(document) if isinstance(document, str) else json.dumps(self._walk(document), ensure_ascii=False)
            for document in _documents(text)
        )

    def _note(self, name: str, value: Any) -> None:
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            for one in inner:
                self._note(name, one)
        elif isinstance(value, str) and name == "who" and value.strip() and value.strip() not in _NOBODY:
            person = self._people.setdefault(value.strip(), f"person-{len(set(self._people.values())) + 1}")
            for part in value.split():
                if len(part) > _SHORTEST_NAME:
                    self._people.setdefault(part, person)
        elif isinstance(value, str) and len(value) > _LONGEST_WORD and _is_secret(name):
            self._secrets.add(value)

    def _walk(self, value: Any, name: str = "") -> Any:
        if _is_secret(name) and value not in (None, "", [], {}):
            self.replaced["secret"] += 1
            return _GONE
        if isinstance(value, dict):
            return {self._text(key): self._walk(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [self._walk(one, name) for one in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = _ENTRY.sub(self._entry, text)
        text = _BEARER.sub(self._with("secret", rf"\1 {_GONE}"), text)
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = self._word(secret, "secret", _GONE, text)
        text = _LOGIN.sub(self._with("login", rf"\1{_GONE}@"), text)
        text = _EMAIL.sub(self._with("email", "<email>"), text)
        # A service without a home has "/", which is part of every path.
        if self._home != "/":
            text = re.sub(rf"{re.escape(self._home)}(?![\w.-])", self._with("home", "~"), text)
        text = _HOME.sub(self._with("home", "~"), text)
        for person in sorted(self._people, key=len, reverse=True):
            text = self._word(person, "person", self._people[person], text)
        text = _ADDRESS.sub(self._address, text)
        return text if self._host in ("", "localhost") else self._word(self._host, "host", "<host>", text)

    def _entry(self, found: re.Match[str]) -> str:
        if not _is_secret(found["name"]) or found["value"].strip("\"'[]") in ("", _GONE):
            return found[0]
        self.replaced["secret"] += 1
        return f'{found["key"]}"{_GONE}"'

    def _word(self, word: str, kind: str, instead: str, text: str) -> str:
        pattern = rf"(?<!\w){re.escape(word)}(?!\w)"
        return re.sub(pattern, self._with(kind, instead), text, flags=re.IGNORECASE)

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ip_address(found[0].rstrip("."))
        except ValueError:
            return found[0]
        # Which machine, nobody shall know; that it is this one, or any, tells nobody.
        if address.is_loopback or address.is_unspecified:
            return found[0]
        self.replaced["address"] += 1
        return "<address>"

    def _with(self, kind: str, instead: str) -> Callable[[re.Match[str]], str]:
        def replace(found: re.Match[str]) -> str:
            self.replaced[kind] += 1
            return found.expand(instead) if found.re.groups else instead

        return replace


def _is_secret(name: str) -> bool:
    """Whether one of its words is, be it api_key, apiKey or API-KEY."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return any(word.lower().removesuffix("s") in _SECRET_WORDS for word in words)


def _documents(text: str) -> Iterator[Any]:
    """The text as JSON, or its lines: those that are JSON objects, and between them plain text."""
    try:
        yield json.loads(text)
        return
    except ValueError:
        pass
    plain: list[str] = []
    for line in text.split("\n"):
        parsed = _object(line)
        if parsed is None:
            plain.append(line)
            continue
        if plain:
            yield "\n".join(plain)
            plain = []
        yield parsed
    if plain:
        yield "\n".join(plain)


def _object(line: str) -> Any:
    try:
        return json.loads(line) if line.lstrip().startswith("{") else None
    except ValueError:
        return None


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(document, str):
        for found in _ENTRY.finditer(document):
            yield found["name"], found["value"].strip("\"'")
    elif isinstance(document, dict):
        for name, value in document.items():
            yield name, value
            yield from _entries(value)
    elif isinstance(document, list):
        for value in document:
            yield from _entries(value)
