"""How summaries, large payloads and gaps are shown: the same bytes for the same thing, whenever it is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.clock import iso
from holdfast.context.fence import fence, safe
from holdfast.context.forms import head_and_tail
from holdfast.context.lossless.nodes import Node
from holdfast.context.messages import Message, SummaryMessage, Trust
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
