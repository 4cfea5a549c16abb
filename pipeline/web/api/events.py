"""What happened."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from pipeline.core.errors import NotFound
from pipeline.core.event_json import EVENT_TYPES
from pipeline.web.dependencies import TheContext
from pipeline.web.schemas import Event, Events

router = APIRouter(tags=["events"])
MOST = 1000


def _known(name: str) -> str:
    if name not in EVENT_TYPES:
        raise PydanticCustomError("rule", "is no type of event")
    return name


EventType = Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(EVENT_TYPES)})]
EventId = Annotated[int, Path(ge=1, le=2**62, description="The id of an event.")]


@router.get("/api/v1/events")
def events(
    context: TheContext,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only events with a larger id.")] = 0,
    types: Annotated[list[EventType], Query(max_length=50, description="Only of these types.")] = [],  # noqa: B006
    most: Annotated[int, Query(ge=1, le=MOST)] = 100,
    newest_first: bool = False,
) -> Events:
    """Events of the journal."""
    with context.reading() as journal:
        found = journal.events(after=after, types=types, most=most, newest_first=newest_first)
        return Events(events=[Event(**event.as_dict()) for event in found], last_id=journal.last_id)


@router.get("/api/v1/events/{number}")
def event(context: TheContext, number: EventId) -> Event:
    """One event by its id."""
    with context.reading() as journal:
        found = journal.event(number)
    if found is None:
        raise NotFound(f"there is no event {number}; /api/v1/events lists them")
    return Event(**found.as_dict())


@router.get(
    "/events.schema.json", response_class=Response, responses={200: {"content": {"application/schema+json": {}}}}
)
async def schema() -> Response:
    """The JSON schema of events, here and in what `gemmed replay` writes."""
    return Response(_schema(), media_type="application/schema+json")


@cache
def _schema() -> bytes:
    return files("pipeline.core").joinpath("events.schema.json").read_bytes()
