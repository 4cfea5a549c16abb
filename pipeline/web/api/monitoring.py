"""What machines ask: how it goes in numbers, whether it lives, whether it is ready."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from pipeline.web.context import TheContext
from pipeline.web.health import Health, health_of, readiness_of
from pipeline.web.metrics import CONTENT_TYPE, exposition

router = APIRouter(tags=["monitoring"])
_NOT_OK: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "No, and why not."}}


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(context: TheContext) -> Response:
    """For Prometheus."""
    live = context.live
    healthy = health_of(live.status, live.age_seconds).ok
    return Response(exposition(live.status, healthy=healthy), media_type=CONTENT_TYPE)


@router.get("/healthz", responses=_NOT_OK)
async def healthz(context: TheContext, response: Response) -> Health:
    """Whether facts still pass through all stages of the daemon."""
    return _answered(health_of(context.live.status, context.live.age_seconds), response)


@router.get("/readyz", responses=_NOT_OK)
async def readyz(context: TheContext, response: Response) -> Health:
    """Whether sound arrives, is decided about, and what was decided can be stored."""
    return _answered(readiness_of(context.live.status, context.live.age_seconds), response)


def _answered(health: Health, response: Response) -> Health:
    response.status_code = 200 if health.ok else 503
    return health
