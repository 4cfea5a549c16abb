"""What happened: passages, faults and their recoveries, models, storage and outputs."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query

from pipeline.storage.activity import ActivityKind, Portion, activities
from pipeline.storage.journal import utc
from pipeline.storage.labels import parsed_time
from pipeline.web.dependencies import Context, Laborious, TheContext

router = APIRouter(prefix="/api/v1", tags=["activity"], dependencies=[Laborious])
_SAME_SECONDS = 2.0
"""Pages that ask for the newest entries within this time share one answer."""


@router.get("/activity")
def activity(
    context: TheContext,
    kind: Annotated[
        list[ActivityKind], Query(max_length=4, description="Only these kinds; all if none is given.")
    ] = [],  # noqa: B006
    before: Annotated[str | None, Query(max_length=40, description="`next` of the portion before.")] = None,
) -> Portion:
    """What happened, the newest first; a fault and its recovery are one entry."""
    kinds = tuple(sorted(set(kind)))
    if before is not None:
        return _portion(context, kinds, utc(parsed_time(before)))
    computed_at, newest = context.newest_activity.get(kinds, (0.0, None))
    if newest is None or time.monotonic() - computed_at > _SAME_SECONDS:
        newest = _portion(context, kinds, None)
        context.newest_activity[kinds] = (time.monotonic(), newest)
    return newest


def _portion(context: Context, kinds: tuple[ActivityKind, ...], before: str | None) -> Portion:
    with context.reading() as journal:
        return activities(
            journal,
            context.history(journal),
            kinds=kinds,
            before=before,
            names=context.settings.labels.names,
            running=context.live.living_run,
        )
