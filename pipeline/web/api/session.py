"""Who is here, and what he may do."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from pipeline import __version__
from pipeline.web.dependencies import Context, TheContext
from pipeline.web.guard import SESSION, RequestRefused, cookie_name, patient, peer
from pipeline.web.sessions import SESSION_SECONDS, Visitor

router = APIRouter(tags=["session"])


class Session(BaseModel):
    """What a page must know of its reader; nothing of the machine is told to somebody unknown."""

    tokens_needed: bool = Field(description="Whether one must log in; else everybody on this machine is its operator.")
    who: str | None
    role: str | None = Field(description="viewer or operator; none for somebody unknown.")
    warning: str | None = Field(description="What is wrong with the way in.")
    version: str | None


class Ticket(BaseModel):
    """A token as `gemmed token` shows it."""

    token: Annotated[str, Field(min_length=1, max_length=200)]


@router.get(SESSION)
async def session(context: TheContext, request: Request) -> Session:
    """Who asks."""
    who = getattr(request.state, "who", None)
    return _session(context, None if who is None else Visitor(who, operator=request.state.role == "operator"))


@router.post(SESSION)
async def log_in(context: TheContext, request: Request, response: Response, ticket: Ticket) -> Session:
    """A cookie for a token, so that a browser need not keep it."""
    visitors, sender = context.visitors, peer(request.scope)
    if not visitors.tokens_needed:
        return _session(context, visitors.anybody)
    patient(visitors, request.scope)
    found, cookie = visitors.by_token(ticket.token), visitors.cookie(ticket.token)
    if found is None or cookie is None:
        visitors.wrong.count(sender)
        raise RequestRefused(401, "this token is not known; make one with gemmed token")
    visitors.wrong.forgive(sender)
    web = context.settings.web
    response.set_cookie(
        cookie_name(web),
        cookie,
        max_age=SESSION_SECONDS,
        path="/",
        secure=web.certificate is not None,
        httponly=True,
        samesite="strict",
    )
    return _session(context, found)


@router.delete(SESSION)
async def log_out(context: TheContext, response: Response) -> Session:
    """The browser forgets its cookie."""
    web = context.settings.web
    secure = web.certificate is not None
    response.delete_cookie(cookie_name(web), path="/", secure=secure, httponly=True, samesite="strict")
    return _session(context, None)


def _session(context: Context, visitor: Visitor | None) -> Session:
    known = visitor is not None
    return Session(
        tokens_needed=context.visitors.tokens_needed,
        who=visitor.name if visitor else None,
        role=visitor.role if visitor else None,
        warning=context.settings.web.unencrypted_warning if known else None,
        version=__version__ if known else None,
    )
