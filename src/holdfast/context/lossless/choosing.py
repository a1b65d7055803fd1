"""What of a projection goes into a prompt when not all of it fits: decided without effects.

Last to go are the newest user turn and the deepest summaries; what lies between them goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.context.compaction import boundaries
from holdfast.context.lossless.items import Item
from holdfast.context.lossless.rendering import gap, position, stub
from holdfast.context.messages import Message, SummaryMessage, UserMessage

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
    turn, dropped = _shrunk([m for unit in units[max(start, 0) :] for m in unit], estimate, room)
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
    dropped = [m for unit in older[:cut] for m in unit] + dropped
    marks = _gap(floor, dropped, history, lost)
    messages: list[Message] = [*chosen, *(marks if budget > marker else ()), *history]
    return Chosen(messages, sum(map(estimate, messages)), len(dropped) + len(lost))


def _gap(
    floor: int, dropped: Sequence[Message], history: Sequence[Message], lost: Sequence[str]
) -> list[SummaryMessage]:
    """A note of what is missing: raw entries as one span of positions, summaries by id."""
    missing = [position(m) for m in dropped if m.mark is not None]
    shown = [position(m) for m in history if m.mark is not None]
    first = floor or min(missing, default=0)
    until = max(missing) + 1 if missing else min(shown, default=first) if floor else first
    return [gap(first, until, lost)] if until > first or lost else []


def _units(raw: Sequence[Message]) -> list[list[Message]]:
    """Messages that stand or fall together: a call and its results."""
    cuts = [i for i in boundaries(raw) if 0 < i < len(raw)]
    edges = [0, *cuts, len(raw)]
    return [list(raw[a:b]) for a, b in pairwise(edges) if a < b]


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


def _shrunk(turn: list[Message], estimate: Estimate, room: int) -> tuple[list[Message], list[Message]]:
    """The newest turn within the room, and what of it had to go: first its long texts are shown by head and
    tail, then only its beginning and its end."""
    if sum(map(estimate, turn)) <= room:
        return turn, []
    for chars in _STUBS:
        shorter = [stub(m, chars) for m in turn]
        if sum(map(estimate, shorter)) <= room:
            return shorter, []
    units = _units(turn)
    small = [[stub(m, _STUBS[-1]) for m in unit] for unit in units]
    head = 1 if units and isinstance(units[0][0], UserMessage) else 0
    left = room - sum(estimate(m) for unit in small[:head] for m in unit)
    if left < 0:
        return [], turn
    cut, _ = _tail(small[head:], estimate, left, left)
    kept = [m for unit in (*small[:head], *small[head + cut :]) for m in unit]
    return kept, [m for unit in units[head : head + cut] for m in unit]
