"""Traces across a queue: a span's `traceparent` is kept with what happens later, and taken up by it."""

from __future__ import annotations

import re
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_carrier: Final = TraceContextTextMapPropagator()


def is_traceparent(text: str) -> bool:
    """Whether this is a W3C `traceparent` that names a trace and a span."""
    return _FORM.fullmatch(text) is not None


def context_of(traceparent: object) -> Context | None:
    """The context to begin a span in that goes on with a trace; None if this is no `traceparent`."""
    if not isinstance(traceparent, str) or not is_traceparent(traceparent):
        return None
    return _carrier.extract({"traceparent": traceparent}, Context())


def traceparent_of(span: trace.Span) -> str | None:
    """What to keep of a span; None when nobody records."""
    if not span.get_span_context().is_valid:
        return None
    carried: dict[str, str] = {}
    _carrier.inject(carried, trace.set_span_in_context(span))
    return carried.get("traceparent")


def here() -> str | None:
    """The span that is under way, to be gone on with later."""
    return traceparent_of(trace.get_current_span())
