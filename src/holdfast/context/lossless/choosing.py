"""What of a projection goes into a prompt when not all of it fits: decided without effects.

Last to go are the newest user turn and the deepest summaries; what lies between them goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.context.compaction import boundaries
from holdfast.context.lossless.items import Item
from holdfast.context.lossless.rendering import gap, position, stub
from holdfast.context.messages import Message, SummaryMessage, UserMessage
from holdfast.context.transcript import whole_pairs

Estimate = Callable[[Message], int]
Shown = tuple[Item, SummaryMessage]

_STUBS = (6_000, 1_500, 300, 60)


@dataclass(frozen=True, slots=True)
class Chosen:
    messages: list[Message]
    tokens: int
    left_out: int = 0


def choose(
    summaries: Sequence[Shown], raw: Sequence[Message], estimate: Estimate, *, budget: int, floor: int = 0
) -> Chosen:
    """The messages within the budget, in order. `floor` is the position from which raw entries are shown
    when there is room; if `raw` begins later, the rest of it is left out too."""
    everything: list[Message] = [*(m for _, m in summaries), *raw]
    total = sum(map(estimate, everything))
    if total <= budget and not (raw and floor):
        return Chosen(everything, total)
    return _evicted(summaries, _units(raw), estimate, budget, floor)


def _evicted(
    summaries: Sequence[Shown], units: list[list[Message]], estimate: Estimate, budget: int, floor: int
) -> Chosen:
    marker = estimate(gap(10**9, 2 * 10**9, ["sum_0123456789abcdef"] * 9))
    room = budget - marker
    start = max((i for i, u in enumerate(units) if isinstance(u[0], UserMessage)), default=len(units) - 1)
    turn = _shrunk([m for unit in units[max(start, 0) :] for m in unit], estimate, room)
    room -= sum(map(estimate, turn))
    kept: set[int] = set()
    order = sorted(range(len(summaries)), key=lambda i: (-summaries[i][0].depth, -i))
    deep = [i for i in order if summaries[i][0].depth > 0]
    room = _take(deep, summaries, estimate, room, kept)
    older = units[: max(start, 0)]
    cut, room = _tail(older, estimate, room // 2, room)
    room = _take([i for i in order if summaries[i][0].depth == 0], summaries, estimate, room, kept)
    cut, room = _tail(older[:cut], estimate, room, room)
    chosen = [m for i, (_, m) in enumerate(summaries) if i in kept]
    history = [m for unit in older[cut:] for m in unit] + turn
    lost = [item.summary_id or "" for i, (item, _) in enumerate(summaries) if i not in kept]
    left_out = sum(map(len, units)) - len(history)
    marks = _gap(floor, units, history, lost)
    messages: list[Message] = [*chosen, *(marks if budget > marker else ()), *history]
    return Chosen(messages, sum(map(estimate, messages)), left_out + len(lost))


def _gap(
    floor: int, units: Sequence[Sequence[Message]], history: Sequence[Message], lost: Sequence[str]
) -> list[SummaryMessage]:
    positions = [position(m) for unit in units for m in unit]
    if not positions:
        return [gap(0, 0, lost)] if lost else []
    first = floor or min(positions)
    shown = {position(m) for m in history}
    missing = [p for p in positions if p not in shown]
    until = max(missing) + 1 if missing else min(positions)
    return [gap(first, until, lost)] if until > first or lost else []


def _units(raw: Sequence[Message]) -> list[list[Message]]:
    """Messages that stand or fall together: a call and its results."""
    cuts = [i for i in boundaries(raw) if 0 < i < len(raw)]
    edges = [0, *cuts, len(raw)]
    return [list(raw[a:b]) for a, b in zip(edges, edges[1:], strict=False) if a < b]


def _take(
    order: Sequence[int], summaries: Sequence[Shown], estimate: Estimate, room: int, kept: set[int]
) -> int:
    for index in order:
        cost = estimate(summaries[index][1])
        if cost <= room:
            kept.add(index)
            room -= cost
    return room


def _tail(units: Sequence[Sequence[Message]], estimate: Estimate, most: int, room: int) -> tuple[int, int]:
    """From where on the newest units fit into `most`, and what room that leaves."""
    index = len(units)
    while index > 0:
        cost = sum(map(estimate, units[index - 1]))
        if cost > most:
            break
        most -= cost
        room -= cost
        index -= 1
    return index, room


def _shrunk(turn: list[Message], estimate: Estimate, room: int) -> list[Message]:
    """The newest turn within the room: its long texts by head and tail, then its beginning and its end."""
    if sum(map(estimate, turn)) <= room:
        return turn
    for chars in _STUBS:
        shorter = [stub(m, chars) for m in turn]
        if sum(map(estimate, shorter)) <= room:
            return shorter
    units = _units([stub(m, _STUBS[-1]) for m in turn])
    first = units[0] if units and isinstance(units[0][0], UserMessage) else []
    head = sum(map(estimate, first))
    if head > room:
        return []
    rest = units[1:] if first else units
    cut, _ = _tail(rest, estimate, room - head, room - head)
    return whole_pairs([*first, *(m for unit in rest[cut:] for m in unit)])
