"""A watched folder as the daemon's source: files become recordings with names of their own, and it can be stopped."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Self

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, FileHeard, Gap, RecordingStarted, SourceTrouble, Tick
from pipeline.core.protocols import Source
from pipeline.sources.reconnecting import RetryPolicy

_LOOK_UP_SECONDS = 0.25


class WatchedFolder:
    """Plays what a folder gives; a folder that vanishes is looked for again. Files wait, so nothing is ever lost."""

    lost = 0
    backlog_seconds = 0.0
    place = None

    def __init__(self, open_folder: Callable[[set[str]], Source], *, known: set[str], name: Callable[[int], str],
                 retry_policy: RetryPolicy) -> None:  # fmt: skip
        self._open, self._known, self._name, self._retry_policy = open_folder, known, name, retry_policy
        self._number = 0
        self._stopped = False
        self.position = 0
        """The next sample of the recording."""
        self.openings = 0
        self._facts = self._play()

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[object]:
        return self._facts

    def __exit__(self, *exc: object) -> None:
        self._facts.close()

    def stop(self) -> None:
        self._stopped = True

    def turn_page(self) -> None:
        """Every file is a recording anyway."""

    def _play(self) -> Generator[object, None, None]:
        wait = self._retry_policy.retry_first_seconds
        while not self._stopped:
            self.openings += 1
            try:
                with self._open(self._known) as source:
                    for fact in source:
                        wait = self._retry_policy.retry_first_seconds
                        yield self._named(fact)
                        if self._stopped:
                            return
            except SourceError as error:
                yield SourceTrouble("watched folder", str(error))
                yield from self._pause(wait)
                wait = min(2 * wait, self._retry_policy.retry_most_seconds)

    def _pause(self, seconds: float) -> Iterator[Tick]:
        since = time.monotonic()
        while not self._stopped and (waited := time.monotonic() - since) < seconds:
            time.sleep(_LOOK_UP_SECONDS)
            yield Tick(0, round(waited, 3))

    def _named(self, fact: object) -> object:
        if isinstance(fact, RecordingStarted):
            self._number += 1
            self.position = 0
            name, at = titled(self._name(self._number), fact.recording), fact.started_at or datetime.now(UTC)
            return replace(fact, recording=name, started_at=at)
        if isinstance(fact, Block | Gap):
            self.position = fact.stop
        elif isinstance(fact, FileHeard):
            self._known.add(fact.identity)
        elif isinstance(fact, Tick):
            return replace(fact, waited_seconds=round(fact.waited_seconds, 3))
        return fact


def titled(name: str, title: str) -> str:
    """A name that nothing else has, and that still tells whose recording it is."""
    return f"{name}-{re.sub(r'[^A-Za-z0-9._-]+', '_', title)[:80]}"
