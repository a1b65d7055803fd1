"""One OpenTelemetry span for each request, child of the caller's; costs nothing without an SDK."""

from __future__ import annotations

from opentelemetry import propagate, trace
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import __version__


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
