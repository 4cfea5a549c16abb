"""What every request may need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Depends, Request

from pipeline.config.schema import Settings
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.activity import ActivityKind, Portion
from pipeline.storage.journal import Journal
from pipeline.storage.labels import somebody
from pipeline.storage.passage_history import PassageHistory, PassageOverview
from pipeline.storage.passage_sources import least_confidence
from pipeline.storage.review_queue import Review
from pipeline.web.event_stream import Live
from pipeline.web.sessions import Visitors

_AT_ONCE = 2


class Context:
    """One served state directory."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state = StateDirectory(settings.storage.directory)
        self.visitors = Visitors(settings.web, self.state.session_key)
        self.live = Live(self.state)
        self.review = Review()
        self.newest_activity: dict[tuple[ActivityKind, ...], tuple[float, Portion]] = {}
        self._memory = PassageOverview()
        self.at_work = asyncio.Semaphore(_AT_ONCE)

    @contextmanager
    def reading(self) -> Iterator[Journal]:
        """The journal, for one request in its own thread."""
        with Journal(self.state.journal, read_only=True) as journal:
            yield journal

    @contextmanager
    def writing(self) -> Iterator[Journal]:
        """The same for what must survive whatever happens next."""
        with Journal(self.state.journal, durable=True) as journal:
            yield journal

    def history(self, journal: Journal) -> PassageHistory:
        """The passages of the journal; what has not changed is not read again."""
        return PassageHistory(
            journal,
            running=self.live.living_run,
            least_confidence=least_confidence(journal),
            memory=self._memory,
        )


def _context(request: Request) -> Any:
    return request.app.state.context


TheContext = Annotated[Context, Depends(_context)]


async def _few_at_once(context: TheContext) -> AsyncIterator[None]:
    async with context.at_work:
        yield


Laborious = Depends(_few_at_once, scope="function")
"""For what takes a core for a moment, or a hundred megabytes: whoever asks for it too often waits, and nobody else."""


def _who(request: Request) -> str:
    return getattr(request.state, "who", None) or somebody()


Who = Annotated[str, Depends(_who)]
"""Who asks: the name of his token, or of the user of this machine."""
