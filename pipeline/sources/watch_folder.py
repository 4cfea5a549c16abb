"""Sound files that are dropped into a folder."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Container, Generator, Iterator
from pathlib import Path
from typing import Self

from pipeline.core.errors import SettingsError, SourceError
from pipeline.core.events import FileHeard, SourceTrouble, Tick
from pipeline.sources._chunks import require
from pipeline.sources._naming import AUDIO_SUFFIXES, NamePattern, compile_pattern, natural_key
from pipeline.sources.files import FileSource, Piece, Recording


class FolderSource:
    """Plays every sound file that comes to lie in a folder, once, each as a recording of its own; it never ends.

    A file is taken when its size and its time of change have stayed the same for `settle_seconds`, which must be longer
    than its writer ever pauses; where finished files are only moved in, 0 will do. Those that are ready are taken in
    the order of their names. Folders below, hidden files and what is not named like sound are ignored. From a name
    `pattern` reads `{recording}` and `{time:...}` (UTC).

    A file is known by its name, size and time of change, so that one that was replaced, or touched, is another one.
    After a file, also after one that could not be used, `FileHeard` tells what it is known by; whoever keeps that and
    gives it as `known` never hears a file twice. Ticks come only between files, where no recording is under way: a
    folder in which nothing arrives is no fault of the sensors.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        rate_hz: int,
        n_sensors: int,
        pattern: str | None = None,
        resample: bool = False,
        known: Container[str] = (),
        settle_seconds: float = 2.0,
        tick_seconds: float = 1.0,
    ) -> None:
        require("rate_hz", rate_hz, least=1)
        require("n_sensors", n_sensors, least=1)
        require("settle_seconds", settle_seconds, least=0)
        require("tick_seconds", tick_seconds, least=0.001)
        self._folder = Path(folder)
        self._pattern = None if pattern is None else compile_pattern(pattern)
        if self._pattern and "sensor" in self._pattern.expression.groupindex:
            raise SettingsError(
                f"pattern {pattern!r} has the field {{sensor}}, but nobody knows whether another sensor's file is "
                "still to come; drop files that hold all sensors"
            )
        self._rate_hz, self._n_sensors, self._resample = rate_hz, n_sensors, resample
        self._settle_seconds, self._tick_seconds = settle_seconds, tick_seconds
        self._known, self._heard = known, set[str]()
        self._unchanged_since: dict[str, float] = {}
        self._facts: Generator[object, None, None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._facts is not None:
            self._facts.close()

    def __iter__(self) -> Iterator[object]:
        self.__exit__()
        self._facts = self._play()
        return self._facts

    def _play(self) -> Generator[object, None, None]:
        waiting_since = time.monotonic()
        while True:
            for path, identity in self._ready():
                yield from self._hear(path, identity)
                waiting_since = time.monotonic()
            time.sleep(self._tick_seconds)
            yield Tick(0, time.monotonic() - waiting_since)

    def _ready(self) -> list[tuple[Path, str]]:
        """Files that nobody writes any more. Only our own clock counts: that of a file's disk may be another."""
        new = {
            identity: path
            for path, identity in self._look()
            if identity not in self._heard and identity not in self._known
        }
        now = time.monotonic()
        self._unchanged_since = {identity: self._unchanged_since.get(identity, now) for identity in new}
        settled = [
            (path, identity)
            for identity, path in new.items()
            if now - self._unchanged_since[identity] >= self._settle_seconds
        ]
        return sorted(settled, key=lambda found: natural_key(found[0].name))

    def _look(self) -> Iterator[tuple[Path, str]]:
        for path in self._listed():
            named_like_sound = path.suffix.lower() in AUDIO_SUFFIXES and not path.name.startswith(".")
            identity = _identity(path) if named_like_sound else None
            if identity:
                yield path, identity

    def _listed(self) -> list[Path]:
        try:
            # Without the right to enter a folder one reads names, but no file.
            os.stat(os.path.join(self._folder, "."))
            return list(self._folder.iterdir())
        except OSError as error:
            raise SourceError(
                f"folder {self._folder} cannot be watched: {error.strerror}; "
                "it must be there and this user must be allowed to read it, create it or change its permissions"
            ) from error

    def _hear(self, path: Path, identity: str) -> Iterator[object]:
        if _identity(path) != identity:
            return
        yield from self._sound(path)
        if _identity(path) not in (None, identity):
            message = "changed while it was played, so it will be played again; let settle_seconds be longer"
            yield SourceTrouble(_text(path.name), message)
        self._heard.add(identity)
        yield FileHeard(identity, _text(str(path)))

    def _sound(self, path: Path) -> Iterator[object]:
        told = False
        try:
            with self._player(path) as source:
                for fact in source:
                    told = told or isinstance(fact, SourceTrouble)
                    yield fact
        except SourceError as error:
            # After troubles it only sums them up.
            if not told:
                yield SourceTrouble(_text(path.name), str(error))

    def _player(self, path: Path) -> FileSource:
        if _text(path.name) != path.name:
            raise SourceError("has a name that is not UTF-8; rename it")
        recording = Recording(path.stem, (Piece((path,)),)) if self._pattern is None else _read(self._pattern, path)
        return FileSource([recording], rate_hz=self._rate_hz, n_sensors=self._n_sensors, resample=self._resample)


def _read(pattern: NamePattern, path: Path) -> Recording:
    fields = pattern.read(path.name)
    if fields is None:
        raise SourceError(f"does not fit the pattern {pattern.text!r}; rename it, or change the pattern and touch it")
    return Recording(fields.recording or path.stem, (Piece((path,), fields.time),))


def _identity(path: Path) -> str | None:
    """Tells a file from others, and from itself before it was changed; None if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return f"{_text(path.name)} {status.st_size} {status.st_mtime_ns}" if stat.S_ISREG(status.st_mode) else None


def _text(name: str) -> str:
    """A file's name as text that can be stored: bytes that are not UTF-8 are spelled out."""
    return os.fsencode(name).decode(errors="backslashreplace")
