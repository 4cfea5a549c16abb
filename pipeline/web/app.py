"""All routes together, and what holds for every one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from pipeline import __version__
from pipeline.core.errors import GemmedError, NotFound, UsageError
from pipeline.runtime.logs import log
from pipeline.web import api
from pipeline.web.dependencies import Context
from pipeline.web.guard import OPEN, Guard, wants_page
from pipeline.web.schemas import Problem

_STATIC = Path(__file__).parent / "static"
_REFUSALS = (400, 401, 403, 404, 413, 415, 422, 429, 503)
_PAGES = ("/", "/history", "/timeline", "/review", "/activity", "/models", "/sensors/{number}", "/settings")


def create_app(context: Context) -> FastAPI:
    app = FastAPI(
        title="gemmed",
        version=__version__,
        description="One array of sensors: what it hears, whom it believes and why, and what it learns.",
        # The pages that come with FastAPI load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
        responses={code: {"model": Problem} for code in _REFUSALS},
    )
    app.state.context = context
    for router in api.ROUTERS:
        app.include_router(router)
    for path in _PAGES:
        app.add_api_route(path, _page, include_in_schema=False)
    app.add_api_route("/login", _login, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_exception_handler(GemmedError, _curable)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(Guard, web=context.settings.web, visitors=context.visitors, link_key=context.state.link_key)
    if context.visitors.tokens_needed:
        _describe_tokens(app)
    return app


def _describe_tokens(app: FastAPI) -> None:
    """That one is needed, how it is sent, and for what not; the guard sees to it before any route does."""
    description = app.openapi()
    description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    description["security"] = [{"token": []}]
    for path in OPEN & description["paths"].keys():
        for operation in description["paths"][path].values():
            operation["security"] = []


async def _page() -> FileResponse:
    """Every page is the same file; its script shows what the address asks for."""
    return FileResponse(_STATIC / "index.html")


async def _login() -> FileResponse:
    return FileResponse(_STATIC / "login.html")


def _problem(code: int, message: str, headers: Any = None) -> Response:
    return JSONResponse({"error": message}, code, headers)


async def _curable(request: Request, error: Exception) -> Response:
    """In its own words, without the paths of the machine; what only its owner can cure is in his log."""
    directory = str(request.app.state.context.state.path)
    codes = {NotFound: 404, UsageError: 400}
    code = next((code for kind, code in codes.items() if isinstance(error, kind)), 503)
    if code == 503:
        log.warning("a request could not be answered", path=request.url.path, why=str(error))
    return _problem(code, str(error).replace(f"{directory}/", "").replace(directory, "the state directory"))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return _problem(422, f"{'; '.join(told)}; see /openapi.json for what may be asked")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and wants_page(request.scope):
        return FileResponse(_STATIC / "index.html", 404)
    return _problem(error.status_code, f"{request.url.path}: {error.detail}", error.headers)
