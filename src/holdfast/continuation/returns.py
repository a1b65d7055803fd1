"""What a delegate's return says to whoever gets it, and how its sender shaped that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from holdfast.context import disarmed
from holdfast.continuation import notices
from holdfast.continuation.record import Record

MOST: Final = 16_000
OPTIONS: Final = "returnOptions"
CONTEXT: Final = "recipientContext"


class ReturnOptions(BaseModel):
    """How the result comes back."""

    model_config = ConfigDict(extra="forbid")

    maxChars: Annotated[  # noqa: N815
        int, Field(ge=100, le=MOST, description="The longest result; the rest stays in the child's session.")
    ] = MOST
    includeTask: Annotated[bool, Field(description="Quote the task with the result.")] = True  # noqa: N815
    includeStats: Annotated[  # noqa: N815
        bool, Field(description="Tell run time, tokens and cost.")
    ] = False


def kept(options: ReturnOptions | None, recipient_context: str | None) -> dict[str, Any]:
    """What of it stands in the record."""
    shaped = None if options is None else options.model_dump(exclude_defaults=True)
    given = {OPTIONS: shaped or None, CONTEXT: recipient_context}
    return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Return:
    """What a delegate's run came to: its last word, and how many it had said until then."""

    said: str
    status: str
    stats: str = ""
    parts: int = 1


def account(record: Record, back: Return) -> str:
    """The runtime's own account of a return, and what its sender says of it: none of the delegate's words."""
    options = _options(record.election.options)
    lines = [
        f"[continuation:delegate-return] [continuation:chain-hop:{record.hop}] "
        f"A delegate ended with status {back.status}; what it says follows, as data."
    ]
    if options.includeTask:
        lines.append(f"Its task was: {notices.own(record)}")
    if back.parts > 1:
        lines.append(f"It spoke {back.parts} times; the parts before the last are in its session.")
    if options.includeStats and back.stats:
        lines.append(f"Stats: {back.stats}")
    context = record.election.options.get(CONTEXT)
    if context:
        lines.append(f"Who sent it off says to whom it goes: {disarmed(str(context))}")
    return "\n".join(lines)


def words(record: Record, back: Return) -> str:
    """The delegate's last word, as long as its sender wants it."""
    most = _options(record.election.options).maxChars
    if len(back.said) <= most:
        return back.said or "(nothing)"
    where = record.child_session_key or "the delegate's session"
    return f"{back.said[:most]}\n[… {len(back.said) - most:,} characters more in {where} …]"


def _options(given: Mapping[str, Any]) -> ReturnOptions:
    """As they were checked when the delegate was elected; what an older record holds otherwise is ignored."""
    known = {name: value for name, value in (given.get(OPTIONS) or {}).items() if name in _NAMES}
    return ReturnOptions.model_validate(known)


_NAMES: Final = frozenset(ReturnOptions.model_fields)
