"""What happened."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from pipeline.errors import NotFound
from pipeline.web.context import TheContext
from pipeline.web.schemas import Event, Events

router = APIRouter(prefix="/api/v1/events", tags=["events"])
MOST = 1000
EventId = Annotated[int, Path(ge=1, le=2**62, description="The id of an event.")]


@router.get("")
def events(
    context: TheContext,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only events with a larger id.")] = 0,
    types: Annotated[list[str] | None, Query(max_length=50, description="Only of these types.")] = None,
    most: Annotated[int, Query(ge=1, le=MOST)] = 100,
    newest_first: bool = False,
) -> Events:
    """Events of the journal."""
    with context.reading() as journal:
        found = journal.events(after=after, types=types or [], most=most, newest_first=newest_first)
        return Events(events=[Event(**event.as_dict()) for event in found], last_id=journal.last_id)


@router.get("/{number}")
def event(context: TheContext, number: EventId) -> Event:
    """One event by its id."""
    with context.reading() as journal:
        found = journal.event(number)
    if found is None:
        raise NotFound(f"there is no event {number}; /api/v1/events lists them")
    return Event(**found.as_dict())
