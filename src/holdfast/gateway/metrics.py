"""What Prometheus reads: requests as they pass, and the state of the log and the agenda when asked; and one
OpenTelemetry span for each request, which costs nothing without an SDK.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from opentelemetry import propagate, trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import __version__
from holdfast.errors import Unavailable
from holdfast.log import SYSTEM, Tx, changes, entries
from holdfast.log.tables import agenda, sessions

if TYPE_CHECKING:
    from holdfast.gateway.context import Gateway

log = logging.getLogger(__name__)

METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "holdfast_http_requests", "Requests.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "holdfast_http_seconds", "Time to answer.", ["route"], registry=self.registry
        )
        self.head = Gauge("holdfast_log_position", "Newest entry of the log.", registry=self.registry)
        self.changes = Gauge("holdfast_change_seq", "Newest change.", registry=self.registry)
        self.agenda = Gauge("holdfast_agenda_items", "Agenda items.", ["status"], registry=self.registry)
        self.sessions = Gauge("holdfast_sessions_active", "Active sessions.", registry=self.registry)
        self.skew = Gauge(
            "holdfast_clock_skew_seconds",
            "How far this machine's clock is ahead of the database's.",
            registry=self.registry,
        )
        self.damaged = Gauge("holdfast_index_damaged", "Damage found here.", registry=self.registry)
        self.unsearched = Gauge("holdfast_index_unsearched", "To be indexed again.", registry=self.registry)
        self.running = Gauge("holdfast_agenda_running_here", "Items run here.", registry=self.registry)
        self.store = Gauge(
            "holdfast_store_usable", "1: read, and written when last tried.", registry=self.registry
        )
        self.parts = Gauge("holdfast_part_well", "1: the part works.", ["part"], registry=self.registry)
        self.restarts = Gauge("holdfast_part_restarts", "Begun anew.", ["part"], registry=self.registry)
        self.errors = Gauge("holdfast_part_errors", "Passes that failed.", ["part"], registry=self.registry)


class Measured:
    """Counts requests by route, not by path: an id in a path must not become a label."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            method = scope["method"] if scope["method"] in METHODS else "other"
            took = time.perf_counter() - started
            self._metrics.requests.labels(method, route, status).inc()
            if route != "/api/stream":
                self._metrics.seconds.labels(route).observe(took)
            _log(method, route, status, took)


def _log(method: str, route: str, status: int, took: float) -> None:
    level = logging.WARNING if status >= 500 else logging.DEBUG
    if log.isEnabledFor(level):
        told = {"method": method, "route": route, "status": status, "ms": round(took * 1000, 1)}
        log.log(level, "%s %s %s", method, route, status, extra={"data": told})


def exposition(gateway: Gateway) -> Response:
    """What a store that cannot be read would tell is left as it was; that it cannot be is told."""
    metrics = gateway.metrics
    try:
        with gateway.hold.store.read(SYSTEM) as tx:
            _count_log(tx, metrics)
        metrics.store.set(int(gateway.hold.store.write_error is None))
    except Unavailable:
        metrics.store.set(0)
    metrics.skew.set(gateway.hold.store.skew_ms / 1000)
    memory = gateway.hold.opened_memory
    if memory is not None:
        health = memory.health
        metrics.damaged.set(len(health.damaged))
        metrics.unsearched.set(health.unsearched)
    if gateway.services is not None:
        metrics.running.set(len(gateway.services.runner.running))
        for part in gateway.services.supervisor.parts():
            metrics.parts.labels(part.name).set(int(part.state in ("ok", "done")))
            metrics.restarts.labels(part.name).set(part.restarts)
            metrics.errors.labels(part.name).set(part.errors)
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _count_log(tx: Tx, metrics: Metrics) -> None:
    metrics.head.set(entries.head(tx))
    metrics.changes.set(changes.bounds(tx)[1])
    _count_agenda(tx, metrics)
    active = sa.select(sa.func.count()).where(sessions.c.status == sa.literal_column("'active'"))
    metrics.sessions.set(tx.conn.execute(active).scalar() or 0)


def _count_agenda(tx: Tx, metrics: Metrics) -> None:
    for status in ("queued", "running"):
        query = sa.select(sa.func.count()).where(agenda.c.status == sa.literal_column(f"'{status}'"))
        metrics.agenda.labels(status).set(tx.conn.execute(query).scalar() or 0)


class Traced:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._tracer = trace.get_tracer("holdfast", __version__)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_mute():
            await self.app(scope, receive, send)
            return
        parent = propagate.extract(Headers(scope=scope))
        with self._tracer.start_as_current_span(
            "holdfast.http", parent, kind=trace.SpanKind.SERVER, record_exception=False
        ) as span:
            span.set_attribute("http.request.method", scope["method"])

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _note(span, message["status"])
                await send(message)

            try:
                await self.app(scope, receive, watched)
            finally:
                span.set_attribute("http.route", getattr(scope.get("route"), "path", "unmatched"))

    def _is_mute(self) -> bool:
        """Whether nobody has set up an SDK, so that a span would only cost."""
        proxied = isinstance(self._tracer, trace.ProxyTracer)
        return proxied and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _note(span: trace.Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(trace.StatusCode.ERROR)
