"""Everything on one axis of time."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query

from pipeline.core.errors import UsageError
from pipeline.storage.labels import parsed_time
from pipeline.storage.timeline import Timeline, timeline
from pipeline.web.dependencies import Laborious, TheContext

router = APIRouter(prefix="/api/v1", tags=["timeline"], dependencies=[Laborious])
_LATEST = 32_503_680_000.0
"""The year 3000: nothing is later, and numbers of seconds stay what they are."""
_HOUR = 3600.0


@router.get("/timeline")
def whole(
    context: TheContext,
    begin: Annotated[
        str | None, Query(max_length=40, description="ISO 8601, or so long ago, such as -6h; an hour before the end.")
    ] = None,
    end: Annotated[str | None, Query(max_length=40, description="The same; now if none is given.")] = None,
    bins: Annotated[int, Query(ge=10, le=2000, description="About so many steps are told apart.")] = 300,
) -> Timeline:
    """Decisions, anomalies, states of the sensors, gaps, masks, models and labels of a time.

    Also what is not known: when sound was missing, when nothing ran, and of what the sound is no longer kept.
    """
    now = time.time()
    last = now if end is None else _seconds(end)
    first = last - _HOUR if begin is None else _seconds(begin)
    with context.reading() as journal:
        return timeline(
            journal,
            first,
            last,
            bins=bins,
            now=now,
            running=context.live.living_run,
            names=context.settings.labels.names,
            history=context.history(journal),
        )


def _seconds(text: str) -> float:
    moment = parsed_time(text).timestamp()
    if not _HOUR <= moment < _LATEST:
        raise UsageError(f"time {text!r} must lie between 1970 and 3000; give another")
    return moment
