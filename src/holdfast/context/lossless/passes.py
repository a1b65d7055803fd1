"""What the next pass of a compaction takes: decided from plain values, without effects."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.context.compaction import boundaries
from holdfast.context.lossless.projections import Item, Projection
from holdfast.context.lossless.settings import Settings
from holdfast.context.messages import AssistantMessage, Message, ToolResult, UserMessage
from holdfast.context.tokens import message_tokens


def tail_start(messages: Sequence[Message], *, most: int, tokens: int) -> int:
    """The index where the fresh tail begins, in messages in log order.

    The last `most` messages within `tokens`, but always back to the newest user message, never between a
    call and its result, and never behind a recent call whose result is still to come.
    """
    start = len(messages)
    used = 0
    while start > 0 and len(messages) - start < most:
        used += message_tokens(messages[start - 1])
        if used > tokens:
            break
        start -= 1
    users = [i for i, m in enumerate(messages) if isinstance(m, UserMessage)]
    start = min([start, *users[-1:], *_waiting(messages, since=len(messages) - most)])
    return max((i for i in boundaries(messages) if i <= start), default=0)


def leaf_end(messages: Sequence[Message], *, tokens: int, complete: bool) -> int:
    """How many of these messages one leaf takes: about `tokens`, at least one whole exchange; 0 if the end
    of the first exchange is not in sight. `complete` says that nothing more follows."""
    open_from = len(messages) if complete else min(_waiting(messages, since=0), default=len(messages))
    allowed = [i for i in boundaries(messages) if 0 < i <= open_from]
    if not complete:
        allowed = [i for i in allowed if i < len(messages)]
    used = 0
    within = 0
    for index, message in enumerate(messages):
        used += message_tokens(message)
        if used <= tokens:
            within = index + 1
    fitting = [i for i in allowed if i <= within]
    return fitting[-1] if fitting else (allowed[0] if allowed else 0)


def condensable(known: Projection, settings: Settings, *, budget: int, over: bool) -> tuple[Item, ...]:
    """The run of summaries to be condensed next, if any: the shallowest depth first, the oldest run of it.

    Only while summaries take more than their share, or the whole is over its target (`over`).
    """
    if known.summary_tokens <= settings.prefix_target(budget) and not over:
        return ()
    runs = _runs(known)
    least = max(settings.condensed_target_tokens, settings.leaf_chunk_tokens // 10)
    for hard in (False, True):
        for depth in sorted({run[0].depth for run in runs}):
            fanout = settings.leaf_fanout if depth == 0 else settings.condensed_fanout
            fanout = settings.hard_fanout if hard else fanout
            for run in runs:
                chosen = _capped(run, settings.leaf_chunk_tokens)
                enough = hard or sum(i.tokens for i in chosen) >= least
                if run[0].depth == depth and len(chosen) >= fanout and enough:
                    return chosen
    return ()


def _runs(known: Projection) -> list[tuple[Item, ...]]:
    runs: list[list[Item]] = []
    before: Item | None = None
    for item in known.items:
        if not item.is_summary:
            before = None
            continue
        if before is not None and before.depth == item.depth:
            runs[-1].append(item)
        else:
            runs.append([item])
        before = item
    return [tuple(run) for run in runs]


def _capped(run: Sequence[Item], tokens: int) -> tuple[Item, ...]:
    """The head of a run that a summariser can take at once; two at least, or none could ever be joined."""
    used = 0
    for index, item in enumerate(run):
        used += item.tokens
        if used > tokens and index >= 2:
            return tuple(run[:index])
    return tuple(run)


def _waiting(messages: Sequence[Message], *, since: int) -> list[int]:
    """Where calls stand that have no result among these messages."""
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            waiting |= {call.id: index for call in message.calls}
        elif isinstance(message, ToolResult):
            waiting.pop(message.call_id, None)
    return [index for index in waiting.values() if index >= since]
