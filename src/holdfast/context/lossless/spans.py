"""Runs of log positions: what an item leads back to, and arithmetic on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from holdfast.context.lossless import nodes
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.projections import Item
from holdfast.log import Tx

END: Final = 1 << 62


class Span(NamedTuple):
    """The entries of a session from `first` up to, not including, `until`."""

    session_id: str
    first: int
    until: int

    def holds(self, session_id: str | None, position: int) -> bool:
        return self.session_id == session_id and self.first <= position < self.until


def of_item(item: Item) -> Span:
    return Span(item.session_id, item.first, END if item.until is None else item.until)


def of_leaf(node: Node) -> Span:
    assert node.source_session_id is not None
    return Span(node.source_session_id, node.first, node.until)


def behind(tx: Tx, items: Iterable[Item]) -> list[Span]:
    """The runs of entries behind items, in order. `NotFound` if a summary on the way is missing."""
    found: list[Span] = []
    for item in items:
        if item.summary_id is None:
            found.append(of_item(item))
        else:
            found += map(of_leaf, nodes.leaves(tx, item.summary_id))
    return found


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that touch made one."""
    found: list[Span] = []
    for span in sorted(spans):
        last = found[-1] if found else None
        if last is not None and last.session_id == span.session_id and span.first <= last.until:
            found[-1] = last._replace(until=max(last.until, span.until))
        else:
            found.append(span)
    return found


def overlap(spans: Sequence[Span]) -> bool:
    ordered = sorted(spans)
    return any(a.session_id == b.session_id and b.first < a.until for a, b in pairwise(ordered))


def within(spans: Iterable[Span], scope: Sequence[Span]) -> bool:
    """Whether every span lies in the scope as a whole."""
    wide = joined(scope)
    return all(
        any(w.session_id == s.session_id and w.first <= s.first and s.until <= w.until for w in wide)
        for s in spans
    )


def without(span: Span, taken: Iterable[Span]) -> list[Span]:
    """What is left of a span."""
    left: list[Span] = []
    start = span.first
    for one in sorted(t for t in taken if t.session_id == span.session_id):
        if one.until <= start or one.first >= span.until:
            continue
        if one.first > start:
            left.append(span._replace(first=start, until=one.first))
        start = max(start, one.until)
    if start < span.until:
        left.append(span._replace(first=start))
    return left
