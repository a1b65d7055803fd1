"""The app factory: routes, the gate before them, and the services that run while it serves."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from starlette.types import Lifespan

from holdfast import __version__
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.gateway import contract, mcp_door, page_sessions, problems, routing, site
from holdfast.gateway.context import Gateway
from holdfast.gateway.guard import Cors, Draining, Guard, HookPath, Limits
from holdfast.gateway.metrics import Measured, Traced
from holdfast.gateway.openai import routes as openai
from holdfast.gateway.openai.requests import OpenAIErrors
from holdfast.gateway.page_sessions import LoginCodes
from holdfast.gateway.routes import (
    agent,
    agents,
    allowlist,
    approvals,
    attachments,
    chains,
    channels,
    classifier,
    clawboard,
    context,
    context_block,
    continuation,
    conversation,
    cron,
    drafts,
    engine,
    feed,
    graph,
    heartbeat,
    hooks,
    me,
    memory,
    oidc,
    people,
    plugins,
    providers,
    search,
    sessions,
    settings,
    share,
    skills,
    spaces,
    system,
    tasks,
    team_files,
    tool_runs,
    topics,
    trail,
    versions,
)
from holdfast.gateway.routes import log as log_routes
from holdfast.gateway.rpc import connection
from holdfast.gateway.stream import Stream
from holdfast.gateway.tokens import TokenBook
from holdfast.log import SYSTEM, changes
from holdfast.runtime import Holdfast, chain_view
from holdfast.runtime.readers import Readers
from holdfast.services import Services

log = logging.getLogger(__name__)

_ROUTERS: Final = (
    clawboard.router,  # before the log's: `/api/log/chat-counts` is no entry
    *(part.router for part in (log_routes, feed, engine, context, tool_runs, sessions, system)),
    *(part.router for part in (spaces, topics, tasks, attachments, drafts, context_block, search, graph)),
    *(part.router for part in (classifier, memory, approvals, allowlist, skills, versions, agent, openai)),
    *(
        part.router
        for part in (connection, heartbeat, cron, hooks, continuation, chains, channels, share, plugins)
    ),
    *(
        part.router
        for part in (conversation, agents, settings, providers, people, team_files, me, oidc, trail)
    ),
    channels.inbound_router,
    mcp_door.router,
)


def description() -> dict[str, Any]:
    """What `/openapi.json` tells, without a home: the pages' types are made from it (`make wire`)."""
    return _described(None).openapi()


def _described(lifespan: Lifespan[FastAPI] | None) -> FastAPI:
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        summary="A context runtime for persistent AI agents.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    contract.install(app)
    for router in _ROUTERS:
        # As they were made: `include_router` has each made anew, for this app, at its first request.
        app.router.routes.extend(router.routes)
    return app


def create_app(hold: Holdfast) -> FastAPI:
    """An ASGI app over an open home. All but `/healthz`, the login and the pages' files needs a token."""
    gateway = _gateway(hold)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services = Services(hold)
        async with services.running():
            gateway.services = services
            gateway.stream = Stream(hold.store, hold.threads, services.feed, gateway.views, gateway.book)
            services.on_sweep(page_sessions.prune)
            services.supervisor.on_fatal = gateway.on_fatal
            services.supervise("home token", lambda: _watch_home_token(gateway, services.stopping))
            services.supervise("mcp servers", lambda: hold.agency.mcp.run(services.stopping))
            await _take_in_waiting(gateway)
            unsubscribe = hold.config.subscribe(_config_changed(gateway))
            try:
                yield
            finally:
                unsubscribe()
                await mcp.close()
                gateway.readers.close()
        gateway.services = gateway.stream = None

    app = _described(lifespan)
    app.state.gateway = gateway
    problems.install(app)
    mcp = mcp_door.Door(app)
    app.router.routes.append(mcp.route)
    routing.install(app)
    gateway.views.register("approval", lambda tx, ids: approvals.look(tx, ids, hold.settings.teams))
    gateway.views.register("heartbeat", lambda tx, ids: hold.agency.heartbeats.look(tx, ids))
    gateway.views.register("cron", lambda tx, ids: hold.agency.standing.look(tx, ids))
    gateway.views.register("continuation", lambda tx, ids: hold.agency.continuation.look(tx, ids))
    gateway.views.register("chain", lambda tx, ids: chain_view.look(tx, hold.settings, ids))
    app.add_middleware(site.Site, threads=hold.threads, folder=site.BUILT)
    app.add_middleware(Draining, gateway=gateway)
    app.add_middleware(
        Guard,
        book=gateway.book,
        threads=hold.threads,
        limits=Limits(lambda: hold.settings.gateway.limits, lambda: _upload_bytes(hold)),
        pace=hold.pace,
    )
    app.add_middleware(HookPath, path=lambda: hold.settings.hooks.path)
    app.add_middleware(OpenAIErrors)
    app.add_middleware(connection.FirstMessage, gateway=gateway)
    app.add_middleware(Cors, origins=lambda: hold.settings.gateway.cors_origins)
    app.add_middleware(Measured, metrics=gateway.metrics)
    app.add_middleware(Traced)
    return app


async def _take_in_waiting(gateway: Gateway) -> None:
    """What waits can go on waiting: a file that cannot be read is no reason not to start."""
    try:
        await gateway.hold.threads(log_routes.take_in_waiting, gateway)
    except (HoldfastError, OSError, ValueError) as error:
        log.warning("what hooks put aside was not taken in: %s", error)


def _upload_bytes(hold: Holdfast) -> int:
    """The largest form of attachments: every file at its largest, and the lines between them."""
    limits = hold.settings.board.attachments
    return limits.max_files * (limits.max_bytes + 8 * 1024)


def _gateway(hold: Holdfast) -> Gateway:
    book = TokenBook(hold.store, _admin_tokens(hold, hold.settings))
    return Gateway(hold, book, LoginCodes(hold.home, hold.clock), Readers(hold))


def _admin_tokens(hold: Holdfast, config: Config) -> list[str]:
    configured = config.gateway.auth.token
    text = "" if configured is None else configured.reveal(os.environ)
    return [hold.home.admin_token(), text, os.environ.get("HOLDFAST_TOKEN", "")]


def _config_changed(gateway: Gateway) -> Callable[[Config], None]:
    """Take over a new config, whether the file was edited or patched, and tell the pages."""

    def changed(config: Config) -> None:
        gateway.book.set_admin(_admin_tokens(gateway.hold, config))
        with gateway.hold.store.write(SYSTEM) as tx:
            changes.emit(tx, "config.updated", "config", {})

    return changed


async def _watch_home_token(gateway: Gateway, stop: asyncio.Event) -> None:
    """Take over a token file that was changed: what the old token opened is over at once.

    A look at each timeout catches a change that the file system did not report.
    """
    from watchfiles import awatch

    hold = gateway.hold
    changes = awatch(
        hold.home.credentials,
        watch_filter=lambda _, path: os.path.basename(path) == "token",
        stop_event=stop,
        recursive=False,
        debounce=200,
        step=100,
        rust_timeout=2000,
        yield_on_timeout=True,
    )
    async for _ in changes:
        try:
            await hold.threads(lambda: gateway.book.set_admin(_admin_tokens(hold, hold.settings)))
        except HoldfastError as error:
            log.warning("the home's token cannot be read anew: %s", error.message)
