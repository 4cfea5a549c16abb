"""What machines ask for: metrics, health and readiness."""

from __future__ import annotations

from typing import Any, Self

from fastapi import APIRouter, Response
from pydantic import BaseModel

from pipeline.daemon import readiness
from pipeline.daemon.readiness import reasons_not_healthy, reasons_not_ready
from pipeline.web.dependencies import TheContext
from pipeline.web.metrics import CONTENT_TYPE, exposition


class HealthReason(BaseModel):
    """Why not, and what to do about it."""

    problem: readiness.ReadinessProblem
    what: str
    cure: str


class HealthAnswer(BaseModel):
    """Fine if there is no reason against it."""

    ok: bool
    reasons: list[HealthReason]

    @classmethod
    def of(cls, reasons: list[readiness.ReadinessReason]) -> Self:
        listed = [HealthReason(problem=one.problem, what=one.what, cure=one.cure) for one in reasons]
        return cls(ok=not reasons, reasons=listed)


router = APIRouter(tags=["monitoring"])
_NOT_OK: dict[int | str, dict[str, Any]] = {503: {"model": HealthAnswer, "description": "No, with the reasons."}}


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(context: TheContext) -> Response:
    """Return all metrics for Prometheus."""
    live = context.live
    healthy = not reasons_not_healthy(live.status, live.age_seconds)
    return Response(exposition(live.status, healthy=healthy), media_type=CONTENT_TYPE)


@router.get("/healthz", responses=_NOT_OK)
async def healthz(context: TheContext, response: Response) -> HealthAnswer:
    """Say whether data passes through all stages of the daemon."""
    return _answered(reasons_not_healthy(context.live.status, context.live.age_seconds), response)


@router.get("/readyz", responses=_NOT_OK)
async def readyz(context: TheContext, response: Response) -> HealthAnswer:
    """Say whether sound arrives, is decided about and is stored."""
    return _answered(reasons_not_ready(context.live.status, context.live.age_seconds), response)


def _answered(reasons: list[readiness.ReadinessReason], response: Response) -> HealthAnswer:
    response.status_code = 503 if reasons else 200
    return HealthAnswer.of(reasons)
