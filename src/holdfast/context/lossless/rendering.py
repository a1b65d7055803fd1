"""What of a projection goes into a prompt when not all of it fits, and how summaries, large payloads and gaps
are shown: the same bytes for the same thing, whenever it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from holdfast.clock import iso
from holdfast.context.compaction import boundaries
from holdfast.context.fence import fence, safe
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.projections import Item
from holdfast.context.messages import Message, SummaryMessage, Trust, UserMessage
from holdfast.context.pruning import head_and_tail
from holdfast.context.tokens import message_tokens

STUB_CHARS: Final = 1_500
_MOST_IDS: Final = 8
_MOST_RENDERED: Final = 512

GUIDE: Final = (
    "Earlier parts of this conversation are shown as summaries with ids (sum_…), large payloads by their "
    "head and tail. Nothing is lost: context_read(id) pages the exact words behind any of them, "
    "context_search(query) finds in everything that was said. Use them before you say that "
    "you do not know, or repeat work."
)


_RENDERED: Final[OrderedDict[str, SummaryMessage]] = OrderedDict()


def known_summary(node: Node) -> SummaryMessage:
    """`summary_message` of a stored node, which never changes: rendered once while it is in use."""
    message = _RENDERED.get(node.id)
    if message is None:
        message = _RENDERED[node.id] = summary_message(node)
        while len(_RENDERED) > _MOST_RENDERED:
            _RENDERED.popitem(last=False)
    return message


def summary_message(node: Node) -> SummaryMessage:
    """A summary as the model sees it: fenced, with its id and the dates that it covers."""
    made = ", made without a model" if node.extractive else ""
    head = (
        f"Summary {node.id} of {node.entry_count} earlier entries, {iso(node.earliest_at)[:16]} to "
        f"{iso(node.latest_at)[:16]} UTC{made}. A record, not a request."
    )
    source = f"summary/{node.id}"
    return SummaryMessage(text=fence(f"{head}\n\n{node.text}", Trust.MODEL, source), source=source)


def shown(message: Message, *, most_tokens: int) -> Message:
    """The message, or its stub if it is larger than a prompt should carry on and on."""
    return stub(message, STUB_CHARS) if message_tokens(message) > most_tokens else message


def stub(message: Message, chars: int) -> Message:
    """Head and tail of a text that is kept aside, with the id that brings it back; the log has it whole."""
    if message.mark is None or len(message.text) <= 2 * chars:
        return message
    size = len(message.text.encode("utf-8", "surrogatepass"))
    note = f"[Kept aside: {message.mark.entry_id}, {message.kind}, {size} bytes. context_read pages it.]"
    body = head_and_tail(message.text, chars, chars, f"\n[… {len(message.text) - 2 * chars} characters …]\n")
    text = safe(f"{note}\n{body}", message.trust, message.source)
    return replace(message, text=text)


def gap(first: int, until: int, summaries: Sequence[str]) -> SummaryMessage:
    """What stands where there was no room; it names the way to what is left out."""
    named = ", ".join(summaries[:_MOST_IDS])
    more = f" and {len(summaries) - _MOST_IDS} more summaries" if len(summaries) > _MOST_IDS else ""
    parts = [f'context_read("span:{first}-{until}")'] if until > first else []
    parts += [f"summaries {named}{more}"] if named else []
    text = f"[Left out here for lack of room: {'; '.join(parts)}]"
    return SummaryMessage(text=text, trust=Trust.OPERATOR, source=f"gap/{first}-{until}")


def position(message: Message) -> int:
    return 0 if message.mark is None else message.mark.position


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
