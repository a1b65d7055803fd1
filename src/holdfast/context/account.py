"""The account of a context: its sections in order, with what each weighs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.clock import Millis
from holdfast.context.manifest import JOINT, Manifest, Place, Section
from holdfast.context.messages import (
    AssistantMessage,
    Message,
    SummaryMessage,
    Trust,
    text_digest,
    whole_digest,
)
from holdfast.context.request import Text
from holdfast.context.tokens import PER_MESSAGE, Estimator
from holdfast.errors import TooLarge
from holdfast.ids import uuid7
from holdfast.log import FOR_ANYONE, Audience, Session, meet


def sections_of(
    estimate: Estimator,
    *,
    tools: str | None,
    tool_count: int,
    system: Iterable[Text],
    head: Sequence[Message],
    carrier: Iterable[Section],
    tail: Sequence[Message],
    has_input: bool,
    leads: int,
    heard: Audience,
) -> tuple[Section, ...]:
    """Every part of a context, in the order in which the model reads it.

    Of the tail the first `leads` were said around the chat before the words that are answered. Messages that
    are no entries were made in the session itself: who hears it (`heard`) may read them.
    """
    found: list[Section] = []
    if tools is not None:
        spec = Text("tools", tools, Trust.OPERATOR, "tools", FOR_ANYONE)
        found.append(section(spec, "tools", estimate, count=tool_count))
    parts = list(system)
    found += framed([section(part, "system", estimate) for part in parts], joint=len(JOINT))
    summaries = [m for m in head if isinstance(m, SummaryMessage)]
    found += _grouped("summary", "summary", summaries, estimate, heard)
    spoken = [m for m in head if not isinstance(m, SummaryMessage)]
    found += _grouped("history", "history", spoken, estimate, heard)
    found += carrier
    found += _grouped("said before", "input", tail[:leads], estimate, heard)
    tail = tail[leads:]
    if has_input:
        found += _grouped("input", "input", tail[:1], estimate, heard)
        tail = tail[1:]
    return (*found, *_grouped("this turn", "pending", tail, estimate, heard))


def framed(sections: Sequence[Section], *, joint: int, before: int = 0, after: int = 0) -> list[Section]:
    """Sections of one message with what holds them together there, so that their characters and tokens add up
    to the message's own: what joins a part to the next counts as its own, the frame as the first's and
    last's."""
    found = list(sections)
    for index, one in enumerate(found):
        more = joint if index < len(found) - 1 else after
        more += before if index == 0 else 0
        tokens = PER_MESSAGE if index == 0 else 0
        found[index] = replace(one, chars=one.chars + more, tokens=one.tokens + tokens + (more + 1) // 4)
    return found


def summary_account(
    session: Session, model: str, window: int, messages: Sequence[Message], now: Millis
) -> Manifest:
    """The account of a call that summarises: no turn of its own, so its number is 0."""
    estimate = Estimator()
    places: tuple[Place, Place] = ("system", "input")
    sections = [
        replace(
            section(Text(name, m.text, m.trust, f"summariser/{name}", session.audience), place, estimate),
            tokens=estimate.message(m),
        )
        for name, place, m in zip(("instructions", "history"), places, messages, strict=True)
    ]
    used = sum(one.tokens for one in sections)
    return Manifest(
        turn_id=f"summary:{uuid7()}",
        call=0,
        session_id=session.id,
        session_key=session.key,
        number=0,
        engine="summariser",
        model=model,
        window=window,
        budget=window,
        used=used,
        raw_tokens=used,
        revision=0,
        digest=text_digest(f"{whole_digest(messages)}\n"),
        sections=tuple(sections),
        created_at=now,
    )


def section(part: Text, place: Place, estimate: Estimator, count: int = 1) -> Section:
    return Section(
        name=part.name,
        place=place,
        source=part.source or part.name,
        trust=part.trust.label,
        chars=len(part.text),
        tokens=estimate.text(part.text),
        stable=place in ("tools", "system"),
        audience=part.audience,
        hash=text_digest(part.text),
        count=count,
    )


_SHRINKING: Final = {
    "tools": 'fewer tools (tools.catalogue: "core", tools.deny)',
    "system/skills": "fewer skills in the prompt (skills.prompt.maxChars, agents.defaults.skills)",
    "system/workspace": "shorter workspace files (agents.defaults.bootstrapMaxChars, bootstrapTotalMaxChars)",
    "system/daily": "shorter daily notes (memory.dailyLogs.maxChars)",
    "system/engine": "a shorter system_prompt_addition of the context engine",
    "system": "shorter instructions",
    "summary": "a new session (/new)",
    "history": "a compaction (/compact), or a new session (/new)",
    "carrier/continuity": "a shorter continuity block (board.contextMaxChars)",
    "carrier": "less that is told at once",
    "input": "a shorter message",
    "pending": "smaller tool results (tools.resultMaxChars)",
}


def too_large(manifest: Manifest, *, least_answer: int) -> TooLarge | None:
    """Why a context is not sent: it leaves no room for an answer. Names what takes most, and what helps."""
    if manifest.used + least_answer <= manifest.window:
        return None
    return TooLarge(
        f"the context needs {manifest.used:,} tokens and {least_answer:,} for an answer, and the window has "
        f"{manifest.window:,}",
        code="context_overflow",
        hint=how_to_shrink(manifest),
    )


def how_to_shrink(manifest: Manifest) -> str:
    """The largest part of a context, what makes it smaller, and where all parts can be seen."""
    parts: Counter[str] = Counter()
    for one in manifest.sections:
        parts[_part(one)] += one.tokens
    largest, tokens = max(parts.items(), key=lambda part: part[1], default=("input", 0))
    name = largest.rpartition("/")[2]
    return (
        f"The largest part is {name} with {tokens:,} tokens: {_SHRINKING[largest]} would help, or a model "
        f"with a larger window. `holdfast context show --session {manifest.session_key}` lists all parts."
    )


def _part(section: Section) -> str:
    """What a section counts as, where it is asked which setting makes it smaller."""
    if section.source.startswith("engine/"):
        return "system/engine"
    if section.source.startswith("workspace/memory/"):
        return "system/daily"
    if section.source.startswith("workspace/"):
        return "system/workspace"
    own = f"{section.place}/{section.name}"
    return own if own in _SHRINKING else section.place


def _grouped(
    name: str, place: Place, messages: Sequence[Message], estimate: Estimator, heard: Audience
) -> list[Section]:
    """One section for a run of messages; its trust is that of the least trusted among them."""
    if not messages:
        return []
    only = messages[0] if len(messages) == 1 else None
    values: dict[str, Any] = {"source": "log" if only is None else only.source}
    return [
        Section(
            name=name,
            place=place,
            trust=min(m.trust for m in messages).label,
            chars=sum(map(_chars, messages)),
            tokens=estimate.messages(messages),
            stable=place in ("summary", "history"),
            audience=meet(heard if m.mark is None else m.mark.audience for m in messages),
            count=len(messages),
            **values,
        )
    ]


def _chars(message: Message) -> int:
    """The characters of a message as it is sent: its text, and its calls with their arguments."""
    if not isinstance(message, AssistantMessage):
        return len(message.text)
    given = (json.dumps(c.arguments, ensure_ascii=False, separators=(",", ":")) for c in message.calls)
    names = sum(len(call.name) for call in message.calls)
    return len(message.text) + names + sum(map(len, given))
