"""The application: routes, pages and what stands before them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limen._version import __version__
from limen.web import api, pages
from limen.web.batching import BusyError
from limen.web.guard import Buckets, Guard
from limen.web.metrics import Metrics
from limen.web.refusals import RefusedError
from limen.web.schemas import Health
from limen.web.service import Service
from limen.web.settings import ServerSettings

_WRONG_TOKENS = 10  # a minute and address


def create_app(settings: ServerSettings) -> FastAPI:
    """The server as an ASGI application. The model is loaded here: what is wrong shows at once."""
    settings.check()
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="limen",
        version=__version__,
        description="Names what a model knows, and lets a person name what it has never seen.",
        lifespan=lifespan,
        docs_url=None,  # its scripts come from elsewhere; the schema is at /openapi.json
        redoc_url=None,
    )
    app.state.service = service
    app.state.wrong_tokens = Buckets(_WRONG_TOKENS / 60, _WRONG_TOKENS)
    app.include_router(api.router)
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=str(resources.files("limen.web") / "static")))
    _add_probes(app, service)
    _add_errors(app)
    _add_description(app, service)
    app.add_middleware(Guard, settings=settings, wrong=app.state.wrong_tokens, answer=_problem)
    app.add_middleware(_Counted, metrics=service.metrics)
    return app


class _Counted:
    """Counts and times every request, also those that are refused."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")
            self._metrics.requests.labels(scope["method"], route, status).inc()
            if route != "/v1/events":
                self._metrics.seconds.observe(time.perf_counter() - start)


def _add_probes(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", response_model=Health)
    async def healthz() -> Health:
        """The process is alive."""
        return Health(status="alive")

    @app.get("/readyz", response_model=Health, responses={503: {"model": Health}})
    def readyz(response: Response) -> Health:
        """The model is loaded and the database answers."""
        try:
            with service.database.session() as session:
                session.execute(text("SELECT 1"))
        except SQLAlchemyError:
            response.status_code = 503
            return Health(status="the database does not answer")
        if not service.alive:
            response.status_code = 503
            return Health(status="learning or looking after the model has stopped")
        return Health(status="ready")

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_description(app: FastAPI, service: Service) -> None:
    general = app.openapi

    def particular() -> dict[str, Any]:
        if app.openapi_schema is None:
            inputs = service.serving.current.model.inputs
            api.describe_inputs(general(), inputs, service.settings.limits)
        return general()

    app.openapi = particular  # type: ignore[method-assign]


def _allowed(request: Request) -> str:
    """Every method that a path knows; one route alone would name only its own."""
    routes = (*api.router.routes, *pages.router.routes, *request.app.routes)
    return ", ".join(
        sorted(
            method
            for route in routes
            if isinstance(route, Route) and route.path_regex.match(request.url.path)
            for method in route.methods or ()
        )
    )


def _add_errors(app: FastAPI) -> None:
    """Every refusal as JSON for programs and as a page for people."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        return _problem(request, error.status, error.reason)

    async def busy(request: Request, _: Exception) -> Response:
        return _problem(request, 503, "too much is waiting: try again", {"Retry-After": "1"})

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
        return _problem(request, error.status_code, error.detail, headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [
            {k: v for k, v in e.items() if k in ("loc", "msg", "type")} for e in error.errors()
        ]
        if _wants_page(request):
            return _problem(request, 422, "; ".join(str(fault["msg"]) for fault in faults))
        return _problem(request, 422, jsonable_encoder(faults))

    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(BusyError, busy)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def _problem(request: Request, status: int, detail: Any, headers: Any = None) -> Response:
    if _wants_page(request):
        return pages.error_page(status, str(detail))
    return JSONResponse({"detail": detail}, status, headers)


def _wants_page(request: Request) -> bool:
    path = request.url.path
    return not path.startswith("/v1/") and "text/html" in request.headers.get("accept", "")
