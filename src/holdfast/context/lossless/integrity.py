"""Whether every entry can be reached, and how to mend it if not: for `holdfast doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import sqlalchemy as sa

from holdfast.context.lossless import debts, nodes, projections, spans
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.projections import Item, Projection, own_start
from holdfast.context.lossless.settings import Settings
from holdfast.context.lossless.spans import END, Span
from holdfast.context.lossless.tables import projections as projection_table
from holdfast.errors import NotFound
from holdfast.log import Tx, agenda


@dataclass(frozen=True, slots=True)
class Problem:
    """`code` is one of dangling, shape, overlap, uncovered, order, lost_debt."""

    code: str
    session_id: str
    detail: str


def check(tx: Tx, session_id: str | None = None) -> list[Problem]:
    """What is wrong with one session's projection, or with all; an empty list if nothing is."""
    if session_id is not None:
        return list(_problems(tx, session_id))
    ids = tx.conn.execute(sa.select(projection_table.c.session_id).order_by(projection_table.c.session_id))
    return [problem for one in list(ids.scalars()) for problem in _problems(tx, one)]


def repair(tx: Tx, session_id: str) -> Projection:
    """The projection built anew from the log and the summaries that are whole; it covers everything.

    Nothing is deleted: what cannot be trusted is left aside and its entries are shown as they are.
    """
    known = projections.find(tx, session_id)
    if known is None:
        return projections.of(tx, session_id, retain_depth=Settings().retain_depth)
    universe = [*_base(tx, known.base), Span(session_id, own_start(known.base), END)]
    candidates = [*nodes.of_session(tx, session_id), *_named(tx, known.base)]
    taken, chosen = _cover(tx, candidates, universe)
    raw = [
        Item(session_id=left.session_id, first=left.first, until=None if left.until == END else left.until)
        for span in universe
        for left in spans.without(span, taken)
    ]
    rebuilt = sorted(
        [*raw, *(n.item for n in chosen)], key=lambda i: (i.first, END if i.until is None else i.until)
    )
    for debt in [d for d in [debts.find(tx, session_id)] if d is not None and d.pending]:
        debts.enqueue(tx, debt)
    if tuple(rebuilt) == known.items:
        return known
    return projections.save(tx, replace(known, items=tuple(rebuilt)))


def _problems(tx: Tx, session_id: str) -> Iterator[Problem]:
    known = projections.find(tx, session_id)
    if known is None:
        return
    broken = list(_nodes_below(tx, known))
    yield from (Problem(code, session_id, detail) for code, detail in broken)
    places = [(i.first, END if i.until is None else i.until) for i in known.items]
    if any(a[1] > b[0] for a, b in pairwise(places)):
        yield Problem("order", session_id, "items are not in the order of the log")
    if not broken:
        yield from _coverage(tx, known)
    debt = debts.find(tx, session_id)
    if debt is not None and debt.pending and not _on_agenda(tx, session_id):
        yield Problem("lost_debt", session_id, "compaction is owed but not on the agenda")


def _coverage(tx: Tx, known: Projection) -> Iterator[Problem]:
    shown = spans.behind(tx, known.items)
    if spans.overlap(shown):
        yield Problem("overlap", known.session_id, "an entry is behind more than one item")
    owed = [*_base(tx, known.base), Span(known.session_id, own_start(known.base), END)]
    for span in spans.joined(owed):
        for left in spans.without(span, shown):
            detail = f"entries {left.first} to {left.until} of {left.session_id} are behind nothing"
            yield Problem("uncovered", known.session_id, detail)


def _nodes_below(tx: Tx, known: Projection) -> Iterator[tuple[str, str]]:
    """What is wrong with the nodes that the projection names, and with those below them, level by level.

    Each level must be one less deep than the one above, so a DAG that passes has no circle.
    """
    level = {i.summary_id: i.depth for i in known.summaries if i.summary_id is not None}
    while level:
        found = nodes.get_many(tx, level)
        links = nodes.sources(tx, [one for one, node in found.items() if not node.is_leaf])
        below: dict[str, int] = {}
        for id_, depth in level.items():
            node = found.get(id_)
            if node is None:
                yield "dangling", f"summary {id_} is gone"
            elif (fault := _fault(node, depth, links.get(id_, []))) is not None:
                yield "shape", fault
            elif not node.is_leaf:
                below |= dict.fromkeys(links[id_], depth - 1)
        level = below


def _fault(node: Node, depth: int, sources: Sequence[str]) -> str | None:
    if node.depth != depth:
        return f"summary {node.id} has depth {node.depth}, not {depth}"
    if node.is_leaf:
        return None if depth == 0 and node.first < node.until else f"leaf {node.id} covers nothing"
    if depth < 1 or not sources or node.id in sources:
        return f"summary {node.id} has no sources below it"
    return None


def _base(tx: Tx, base: Sequence[Item]) -> list[Span]:
    """The entries that a session was given, as well as can be told."""
    found: list[Span] = []
    for item in base:
        try:
            found += spans.behind(tx, [item])
        except NotFound:
            found.append(spans.of_item(item))
    return found


def _named(tx: Tx, base: Sequence[Item]) -> list[Node]:
    return list(nodes.get_many(tx, [i.summary_id for i in base if i.summary_id is not None]).values())


def _cover(tx: Tx, candidates: Sequence[Node], universe: Sequence[Span]) -> tuple[list[Span], list[Node]]:
    """The deepest and newest whole nodes that fit side by side."""
    taken: list[Span] = []
    chosen: list[Node] = []
    for node in sorted(candidates, key=lambda n: (-n.depth, -n.created_at, n.id)):
        below = _whole(tx, node)
        if below and spans.within(below, universe) and not spans.overlap([*taken, *below]):
            taken += below
            chosen.append(node)
    return taken, chosen


def _whole(tx: Tx, node: Node) -> list[Span]:
    """The spans behind a node, or none if something below it is missing or misshapen."""
    item = node.item
    if any(_nodes_below(tx, Projection(session_id=node.session_id, items=(item,)))):
        return []
    return spans.behind(tx, [item])


def _on_agenda(tx: Tx, session_id: str) -> bool:
    return bool(agenda.listing(tx, lane=f"{debts.KIND}:{session_id}", kinds=[debts.KIND], limit=1))
