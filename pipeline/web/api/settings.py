"""How it is set."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from pipeline.service.settings import effective, without_secrets
from pipeline.web.context import TheContext

router = APIRouter(prefix="/api/v1", tags=["settings"])


class Effective(BaseModel):
    """Every setting as it counts now, with its unit, as one would write it in the file."""

    file: str | None
    tables: dict[str, dict[str, Any]]


@router.get("/settings")
def settings(context: TheContext) -> Effective:
    """What counts, whether the file says it or not."""
    path = context.settings.path
    return Effective(file=None if path is None else str(path), tables=without_secrets(effective(context.settings)))
