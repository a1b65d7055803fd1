"""The app factory: routes, the gate before them, and the services that run while it serves."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from holdfast import __version__
from holdfast.gateway import problems
from holdfast.gateway.context import Gateway
from holdfast.gateway.cookies import Cookies
from holdfast.gateway.guard import Draining, Guard, Limits
from holdfast.gateway.metrics import Measured
from holdfast.gateway.routes import feed, log, sessions, system
from holdfast.gateway.stream import Stream
from holdfast.gateway.tokens import TokenBook
from holdfast.runtime import Holdfast, Services


def create_app(hold: Holdfast) -> FastAPI:
    """An ASGI app over an open home. Everything but `/healthz` and the login needs a token."""
    gateway = _gateway(hold)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services = Services(hold)
        async with services.running():
            gateway.services = services
            gateway.stream = Stream(hold.store, hold.threads, services.feed, gateway.views)
            yield
        gateway.services = gateway.stream = None

    app = FastAPI(
        title="Holdfast",
        version=__version__,
        summary="A context runtime for persistent AI agents.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.gateway = gateway
    problems.install(app)
    for router in (log.router, feed.router, sessions.router, system.router):
        app.include_router(router)
    limits = hold.settings.gateway.limits
    app.add_middleware(Draining, gateway=gateway)
    app.add_middleware(
        Guard,
        book=gateway.book,
        cookies=gateway.cookies,
        threads=hold.threads,
        limits=Limits(limits.entry_bytes, limits.body_bytes),
    )
    app.add_middleware(Measured, metrics=gateway.metrics)
    return app


def _gateway(hold: Holdfast) -> Gateway:
    auth = hold.settings.gateway.auth
    configured = "" if auth.token is None else auth.token.reveal(os.environ)
    admin = [hold.home.admin_token(), configured, os.environ.get("HOLDFAST_TOKEN", "")]
    book = TokenBook(hold.store, admin)
    cookies = Cookies(hold.home.secret("cookie_key"), hold.clock, days=auth.cookie_days)
    return Gateway(hold, book, cookies)
