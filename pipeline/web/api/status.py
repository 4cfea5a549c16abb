"""How things stand, once or all the time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from pipeline.web.dependencies import TheContext
from pipeline.web.schemas import StatusAnswer

router = APIRouter(prefix="/api/v1", tags=["status"])


@router.get("/status")
async def status(context: TheContext) -> StatusAnswer:
    """The latest that the daemon told."""
    live, age = context.live, context.live.age_seconds
    return StatusAnswer(
        running=live.living_run is not None, age_seconds=None if age is None else round(age, 2), status=live.status
    )


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream(
    context: TheContext,
    spectrogram: Annotated[bool, Query(description="Also columns of the live spectrogram.")] = False,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**62, description="The newest event that is known.")] = None,
) -> StreamingResponse:
    """Server-sent events: `status` every second, `events` as they are stored, `columns` of sound if asked for.

    An `events` message has the id of its last event; a browser that comes back gives it, and gets what it missed.
    """
    told = context.live.stream(after=last_event_id, spectrogram=spectrogram)
    return StreamingResponse(told, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
