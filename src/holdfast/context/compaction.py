"""What a compaction would summarise and what it would keep: decided from plain values, without effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from holdfast.context.messages import AssistantMessage, Message, ToolResult, UserMessage

_ROOMY: Final = 2


def boundaries(messages: Sequence[Message]) -> list[int]:
    """Where history may be cut: nowhere between a tool call and its result."""
    barred = [False] * (len(messages) + 1)
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            waiting |= {call.id: index for call in message.calls}
        elif isinstance(message, ToolResult):
            start = waiting.pop(message.call_id, index - 1)
            barred[start + 1 : index + 1] = [True] * (index - start)
    return [index for index, bar in enumerate(barred) if not bar]


def first_kept(
    messages: Sequence[Message],
    tokens: Callable[[Message], int],
    *,
    keep_recent: int,
    keep_turns: int = 0,
    force: bool = False,
) -> int:
    """The index of the first message to keep; 0 if there is nothing to summarise.

    At least `keep_recent` tokens stay, and always the newest user turn; the last `keep_turns` turns and
    whole turns stay too where that does not double what is kept. `force` halves what there is if need be.
    """
    behind = _suffix_sums([tokens(m) for m in messages])
    if force:
        keep_recent = min(keep_recent, behind[0] // 2)
    users = [i for i, m in enumerate(messages) if isinstance(m, UserMessage)]
    latest = users[-1] if users else len(messages) - 1
    fitting = [i for i in boundaries(messages) if i <= latest and behind[i] >= keep_recent]
    if not fitting:
        return 0
    cut = fitting[-1]
    wider = [i for i in users if i <= cut and behind[i] <= keep_recent * _ROOMY]
    if keep_turns and len(users) >= keep_turns:
        whole = [i for i in wider if i <= users[-keep_turns]]
        return whole[-1] if whole else (wider[-1] if wider else cut)
    return wider[-1] if wider else cut


def fit(
    messages: Sequence[Message],
    tokens: Callable[[Message], int],
    *,
    budget: int,
    keep_newest: bool = True,
) -> int:
    """The index from which messages fit a budget when they do not all: cut once and by a good piece.

    Leaves a quarter of the budget free, so that the next turns can append without moving the cut again.
    The newest user message stays, whatever it costs, unless the turn's own words stand elsewhere
    (`keep_newest=False`).
    """
    behind = _suffix_sums([tokens(m) for m in messages])
    if behind[0] <= budget:
        return 0
    users = [i for i, m in enumerate(messages) if isinstance(m, UserMessage)]
    latest = users[-1] if users and keep_newest else len(messages)
    allowed = [i for i in boundaries(messages) if i <= latest]
    roomy = [i for i in allowed if behind[i] <= budget * 3 // 4]
    if roomy:
        starts = [i for i in roomy if i in set(users)]
        return starts[0] if starts else roomy[0]
    return allowed[-1] if allowed else 0


def _suffix_sums(values: Sequence[int]) -> list[int]:
    sums = [0] * (len(values) + 1)
    for index in range(len(values) - 1, -1, -1):
        sums[index] = sums[index + 1] + values[index]
    return sums
