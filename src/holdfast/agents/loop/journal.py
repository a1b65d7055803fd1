"""What a turn writes while it runs: each round is in the log before the next begins.

A call that must not be repeated is noted with the turn before it runs, and the note goes when its result is
written. So a crash leaves either a result, or a note that the call was begun.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.agents.models.types import ModelReply, Usage
from holdfast.board.ingest import prepare
from holdfast.board.rules import NOT_STORED
from holdfast.config.board import BoardConfig
from holdfast.context import (
    PARTIAL,
    AssistantMessage,
    Message,
    ToolCall,
    ToolResult,
    Trust,
    UserMessage,
    draft_of,
    message_of,
)
from holdfast.log import (
    Classification,
    Entry,
    EntryDraft,
    EntryFilter,
    Note,
    Session,
    Turn,
    Tx,
    agenda,
    entries,
    notes,
    sessions,
    turns,
)
from holdfast.log.turns import Committed, Outcome

log = logging.getLogger(__name__)
MOST_OWN: Final = entries.MAX_PAGE
_MOST_THINKING: Final = 64_000
_NO_NOTES: Final = {"steered": None, "unfinished": None, "spent": None}
_STOPS: Final = {"stop": "stop", "tool_calls": "toolUse", "length": "length", "refusal": "stop"}
DROPPED: Final = "left"
_MOST_TOLD: Final = 12
_EXCERPT: Final = 160
STEERED: Final = "[Not run: the user wrote meanwhile. Read the message before you decide what to do.]"
CUT: Final = (
    "[Not run: your reply was cut off at its length limit, so this call may not be whole. Say it anew.]"
)
UNKNOWN_OUTCOME: Final = (
    "[This call was begun and then cut off by a crash; whether it took effect is not known. "
    "Find out before you do it again.]"
)
NEVER_BEGUN: Final = "[Not run: the turn was cut off before this call.]"


@dataclass(slots=True)
class Journal:
    """The written side of one attempt. `messages` are the turn's own so far, as the log has them.

    One that `skips_notes` leaves them for the next turn: what is written in silence is not to act on them.
    `spent` is what all attempts together have used; it is kept with every write, so that costs add up. What
    is not `stored` is marked so that nobody sorts or recalls it.
    """

    turn: Turn
    session: Session
    agent_id: str
    board: Callable[[], BoardConfig]
    messages: list[Message] = field(default_factory=list)
    written: int = 0
    said_id: str | None = None
    handed: tuple[ToolCall, ...] = ()
    spent: Usage = field(default_factory=Usage)
    skips_notes: bool = False
    stored: bool = True
    advanced: Callable[[Tx], None] = lambda tx: None
    """Called with every write of what the attempt has done."""
    name: Callable[[], str | None] = lambda: None
    """How the agent is called where its words are shown."""
    people: set[str] = field(default_factory=set)
    """Entries of this turn that somebody said into it; notes are not among them."""
    _known: set[str] = field(default_factory=set)
    _shown: set[str] = field(default_factory=set)

    @classmethod
    def begin(cls, tx: Tx, turn: Turn, agent_id: str, board: Callable[[], BoardConfig]) -> Journal:
        """Start an attempt with all that earlier ones left; a call without a result gets one that says so."""
        begun = turns.start(tx, turn)
        own = cls(begun, sessions.get(tx, turn.session_id), agent_id, board)
        own.spent = _usage((turn.meta or {}).get("spent") or {})
        if turn.attempt or (turn.meta or {}).get("steered"):
            own._take_up(_own_entries(tx, begun))
            own._mend(tx)
        own._tell_dropped(tx)
        return own

    @property
    def called(self) -> tuple[str, ...]:
        """The tools that the turn has called so far."""
        asked = [m for m in self.messages if isinstance(m, AssistantMessage)]
        return tuple(call.name for message in asked for call in message.calls)

    def listen(self, tx: Tx) -> None:
        """Write the notes that wait for the session into the turn, and take them with that, once."""
        told = self._told(tx)
        if told:
            tx.on_commit(lambda: self._take_up(told))

    def reply(self, tx: Tx, reply: ModelReply, began: Sequence[ToolCall] = ()) -> list[Message]:
        """Write a model's words and calls, and note those that now run. Gives what was said meanwhile."""
        drafts = [reply_draft(reply)]
        return self._add(tx, drafts, unfinished=began, answered=True)

    def results(self, tx: Tx, results: Sequence[ToolResult], began: Sequence[ToolCall] = ()) -> list[Message]:
        """Write results; their notes go. Gives what was said meanwhile."""
        return self._add(tx, [draft_of(result) for result in results], unfinished=began, listen=True)

    def whole_round(self, tx: Tx, reply: ModelReply, results: Sequence[ToolResult]) -> list[Message]:
        """Write a reply and the results of its calls together, where none of them needed a note."""
        drafts = [reply_draft(reply), *(draft_of(result) for result in results)]
        return self._add(tx, drafts, answered=True, listen=True)

    def commit(self, tx: Tx, reply: ModelReply | None, outcome: Outcome, job: agenda.Job) -> Committed | None:
        """The last words and the end of the turn; None if someone spoke meanwhile: then it goes on."""
        drafts = [] if reply is None else [reply_draft(reply)]
        now = turns.get(tx, self.turn.id)
        if self._fresh(now):
            self._add(tx, drafts, answered=True)
            return None
        handed = [{"id": c.id, "name": c.name, "arguments": dict(c.arguments)} for c in self.handed] or None
        whole = replace(
            outcome,
            entries=[self._prepared(tx, draft) for draft in drafts],
            reply_id=self.said_id,
            usage=turns.added(outcome.usage, (now.meta or {}).get(turns.BESIDE)),
            meta={**(outcome.meta or {}), **_NO_NOTES, "handed": handed},
        )
        return turns.commit(tx, now, whole, job)

    def partial(self, tx: Tx, said: str, why: str) -> None:
        """Write how far a reply came that was stopped or broke off; whoever reads it is told that it did."""
        draft = EntryDraft(content=said, role="assistant", source={PARTIAL: why})
        turns.add(tx, self.turn, [self._prepared(tx, draft)], {"finish": why})

    def _add(
        self,
        tx: Tx,
        drafts: Sequence[EntryDraft],
        *,
        unfinished: Sequence[ToolCall] = (),
        answered: bool = False,
        listen: bool = False,
    ) -> list[Message]:
        """Entries, notes and what was said meanwhile, in one transaction; nothing is taken in if it fails."""
        begun = [{"id": call.id, "name": call.name} for call in unfinished]
        kept: dict[str, Any] = {"unfinished": begun or None, "spent": self.spent.json()}
        if answered:
            waiting = _steered(turns.get(tx, self.turn.id))
            kept["steered"] = [id_ for id_ in waiting if id_ not in self._shown] or None
        prepared = [self._prepared(tx, draft) for draft in drafts]
        turn, written = turns.add(tx, self.turn, prepared, kept)
        self.advanced(tx)
        told = self._told(tx) if listen else []
        fresh = entries.get_many(tx, self._fresh(turn))

        def take_up() -> None:
            self.turn = turn
            self._take_up([*written, *told, *fresh])

        tx.on_commit(take_up)
        return [m for entry in fresh if (m := message_of(entry)) is not None]

    def asked(self) -> None:
        """A model is about to see all of `messages`; its reply will be an answer to what was said in them."""
        self._shown = set(self._known)

    def _fresh(self, turn: Turn) -> list[str]:
        return [id_ for id_ in _steered(turn) if id_ not in self._known]

    def _take_up(self, found: Sequence[Entry]) -> None:
        spoken = [str(e.id) for e in found if e.is_answer]
        self.said_id = spoken[-1] if spoken else self.said_id
        self._known |= {str(entry.id) for entry in found if entry.role == "user"}
        self.people |= {str(e.id) for e in found if e.role == "user" and "note" not in (e.source or {})}
        self.messages += [m for entry in found if (m := message_of(entry)) is not None]

    def _told(self, tx: Tx) -> list[Entry]:
        """What others left for the session; a note that not all who hear it may read is taken unread."""
        waiting = [] if self.skips_notes else notes.waiting(tx, self.session.key)
        told = [note for note in waiting if self.session.reader.may_read(note.audience)]
        if len(told) < len(waiting):
            log.warning("%s notes for %s are not its to read", len(waiting) - len(told), self.session.key)
        drafts = [self._own(note_draft(note)) for note in told]
        written = turns.add(tx, self.turn, drafts)[1] if drafts else []
        notes.take(tx, [note.id for note in waiting], self.turn.id)
        return written

    def _prepared(self, tx: Tx, draft: EntryDraft) -> EntryDraft:
        """By the board's rules, which put what is to be sorted on the agenda."""
        own = self._own(draft)
        if not self.stored:
            own = replace(own, status=Classification.CLASSIFIED, code=NOT_STORED)
        return prepare(tx, own, self.board())

    def _own(self, draft: EntryDraft) -> EntryDraft:
        """An entry of this turn, with a key of its own."""
        self.written += 1
        return replace(
            draft,
            audience=self.turn.audience,
            session_key=self.session.key,
            session_id=self.session.id,
            turn_id=self.turn.id,
            agent_id=self.agent_id,
            agent_label=self.name() if draft.role == "assistant" else draft.agent_label,
            idempotency_key=f"{self.turn.id}:{self.turn.attempt}:{self.written}",
        )

    def _tell_dropped(self, tx: Tx) -> None:
        """Once, in the turn's own words: what was said before it and will not be answered."""
        left = DroppedMessages.read((self.turn.meta or {}).get(DROPPED))
        if left.count:
            self.turn, written = turns.add(tx, self.turn, [self._own(dropped_draft(left))], {DROPPED: None})
            self._take_up(written)

    def _mend(self, tx: Tx) -> None:
        """Pair the calls that were left without a result: begun and not known, or never begun."""
        begun = {str(note.get("id")) for note in (self.turn.meta or {}).get("unfinished") or ()}
        open_calls: dict[str, ToolCall] = {}
        for message in self.messages:
            if isinstance(message, AssistantMessage):
                open_calls |= {call.id: call for call in message.calls}
            elif isinstance(message, ToolResult):
                open_calls.pop(message.call_id, None)
        results = [
            not_run(call, UNKNOWN_OUTCOME if call.id in begun else NEVER_BEGUN)
            for call in open_calls.values()
        ]
        if results or begun:
            self.results(tx, results)


def not_run(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(text=why, call_id=call.id, name=call.name, is_error=True, source="holdfast")


def note_draft(note: Note) -> EntryDraft:
    """A note as the session reads it from now on: in the place of a user's words, with the trust it has."""
    message = UserMessage(text=note.text, trust=min(Trust.parse(note.trust), Trust.USER))
    draft = draft_of(message)
    source = {"channel": note.source, "note": note.kind, **(draft.source or {})}
    return replace(draft, source=source, status=Classification.CLASSIFIED, code="filtered_non_semantic")


def reply_draft(reply: ModelReply) -> EntryDraft:
    """A model's answer as an entry whose `raw` is the message as OpenClaw's transcripts have it."""
    message = AssistantMessage(text=reply.text, calls=reply.calls)
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking[:_MOST_THINKING]})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    blocks += [
        {"type": "toolCall", "id": c.id, "name": c.name, "arguments": dict(c.arguments)} for c in reply.calls
    ]
    usage = reply.usage
    counted: dict[str, Any] = {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "totalTokens": usage.input + usage.output,
    }
    counted |= {} if usage.cost is None else {"cost": {"total": usage.cost}}
    raw = {
        "role": "assistant",
        "content": blocks,
        "api": "holdfast",
        "provider": reply.model.provider,
        "model": reply.model.model,
        "usage": counted,
        "stopReason": _STOPS[reply.finish],
    }
    text = json.dumps(raw, ensure_ascii=False, separators=(",", ":"), default=str)
    return replace(draft_of(message), raw=text)


def _usage(kept: Mapping[str, Any]) -> Usage:
    return Usage(
        int(kept.get("inputTokens", 0)),
        int(kept.get("outputTokens", 0)),
        int(kept.get("cacheReadTokens", 0)),
        int(kept.get("cacheWriteTokens", 0)),
        kept.get("cost"),
    )


def _steered(turn: Turn) -> list[str]:
    return [str(id_) for id_ in (turn.meta or {}).get("steered") or ()]


def _own_entries(tx: Tx, turn: Turn) -> list[Entry]:
    """What earlier attempts of the turn left, oldest first; not its input, nor what became another's."""
    found = entries.listing(tx, EntryFilter(turn_id=turn.id), limit=MOST_OWN, raw=True).entries
    taken = turns.inputs_among(tx, turn.session_id, [e.id for e in found if e.role == "user"])
    return sorted((e for e in found if e.id not in taken), key=lambda entry: entry.position)


@dataclass(frozen=True, slots=True)
class DroppedMessages:
    """Kept with the turn that will be told, until it begins."""

    count: int = 0
    said: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> DroppedMessages:
        flat = " ".join(text.split())
        return cls(1, (flat if len(flat) <= _EXCERPT else f"{flat[: _EXCERPT - 1]}…",))

    def and_then(self, later: DroppedMessages) -> DroppedMessages:
        return DroppedMessages(self.count + later.count, (*self.said, *later.said)[-_MOST_TOLD:])

    def json(self) -> dict[str, Any]:
        return {"count": self.count, "said": list(self.said)}

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> DroppedMessages:
        return cls() if not kept else cls(int(kept["count"]), tuple(map(str, kept["said"])))

    def line(self) -> str:
        what = "message was" if self.count == 1 else "messages were"
        more = "the last of them: " if self.count > len(self.said) else ""
        told = " · ".join(f"“{text}”" for text in self.said)
        return f"{self.count} earlier {what} left out, since too many waited; {more}{told}"


def dropped_draft(left: DroppedMessages) -> EntryDraft:
    """The line that the turn's model reads: others' words, so it stands in a fence."""
    draft = draft_of(UserMessage(text=left.line(), trust=Trust.OUTSIDE))
    source = {"channel": "queue", "note": "left_out", **(draft.source or {})}
    return replace(draft, source=source, status=Classification.CLASSIFIED, code="filtered_non_semantic")


def over_the_limit(rounds: int) -> str:
    return f"[Not run: this turn has had its {rounds} rounds of tool calls. Answer now with what you have.]"
