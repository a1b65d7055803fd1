"""Traces across a queue: a span's `traceparent` is kept with what happens later, and taken up by it.

No span holds what an agent wrote: of a reason or a task there is its length and a hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

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


def about_text(text: str | None) -> dict[str, Any]:
    """All that a span may say of words that an agent wrote."""
    if not text:
        return {"reason.present": False}
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return {
        "reason.present": True,
        "reason.length": len(text),
        "reason.hash": digest,
        "reason.redacted": True,
    }


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, Any],
    *,
    parent: str | None = None,
    links: Sequence[str | None] = (),
) -> Iterator[str | None]:
    """A span under a kept parent, or a root; gives its own `traceparent`, None when nobody records."""
    tracer = _tracer()
    if tracer is None:
        yield parent
        return
    context = context_of(parent)
    linked = [link for one in links if (link := _link(one)) is not None]
    kept = {key: value for key, value in attributes.items() if value is not None}
    with tracer.start_as_current_span(name, context, attributes=kept, links=linked) as current:
        yield traceparent_of(current) or parent


def mark(name: str, attributes: Mapping[str, Any], **options: Any) -> str | None:
    """A span for something that happens in a moment."""
    with span(name, attributes, **options) as own:
        return own


def _tracer() -> trace.Tracer | None:
    """None while nobody has set up an SDK, so that a span would only cost."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace.get_tracer("holdfast.continuation")


def _link(traceparent: str | None) -> trace.Link | None:
    context = context_of(traceparent)
    return None if context is None else trace.Link(trace.get_current_span(context).get_span_context())
