"""What the turn loop is made of, and where other rooms take part in a turn.

Subagents and continuation are built on these. What a hook writes is in the same transaction as the step of
the turn that it belongs to, so that neither is there without the other. The loop's own hooks let go of
approvals and background commands with their session.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.agents.approvals import requests
from holdfast.agents.loop.asks import Terms
from holdfast.agents.models.types import ModelAbout, ModelEvent, ModelReply, ModelRequest
from holdfast.agents.plugin_hooks import NO_HOOKS, HookBus
from holdfast.agents.policy import Policy
from holdfast.agents.tools import STOPS, BackgroundCommands
from holdfast.agents.tools.catalogue import Listed
from holdfast.agents.tools.types import Caller, Tool, ToolEvent
from holdfast.config import AgentSettings, Config
from holdfast.context import (
    SILENT_WORDS,
    ContextRoom,
    Occasion,
    Pressure,
    ShownData,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from holdfast.keys import parse_key
from holdfast.log import Session, Store, Threads, Turn, TurnStatus, Tx, sessions

if TYPE_CHECKING:
    from holdfast.agents.models.failures import Attempt
    from holdfast.agents.models.types import ModelRef
    from holdfast.agents.skills import SkillRoom
    from holdfast.board.context_room import Board
    from holdfast.context.debug import DebugOutputs


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How a turn ended, for those who act on it. `said` is the reply as it stands in the log.

    `signals` is what the hooks themselves found in the last words (`TurnHook.heard`), by name.
    """

    turn: Turn
    session: Session
    terms: Terms
    said: str = ""
    tools: tuple[str, ...] = ()
    pressure: Pressure | None = None
    signals: Mapping[str, Any] = field(default_factory=dict)
    prompt_tokens: int | None = None
    token_budget: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """The last words with what was meant for a hook taken out, and what that was."""

    text: str
    signal: Any = None


@dataclass(frozen=True, slots=True)
class Ended:
    """So many of one sort ended; `what` is the word that people have for one of them."""

    count: int
    what: str


@dataclass(frozen=True, slots=True)
class Understood:
    """The last words after every hook has heard them, and what each found."""

    text: str
    signals: Mapping[str, Any]
    spoke: bool = False
    """Whether it has a word for silence that only repeats what was read, so that it is sent."""


class TurnHook:
    """Override what is needed; every method does nothing by itself. `name` keys its signal."""

    name: str = ""

    def begun(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        """An attempt begins; the first one has `turn.attempt == 1`."""

    def shown(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> Sequence[Text]:
        """More for the carrier of this turn, besides the notes that wait for the session."""
        return ()

    def held_back(self, text: str, terms: Terms) -> int:
        """From where the words said so far may turn out to be meant for this hook alone; pure.

        Listeners are told no more than that until more is said, or `heard` has decided.
        """
        return len(text)

    def heard(self, text: str, terms: Terms, shown: ShownData) -> ParsedReply:
        """The model's last words, before they are written; pure. The text returned is what is kept.

        `shown` is the data that the model read: what stood there is repeated, not meant.
        """
        return ParsedReply(text)

    def committed(self, tx: Tx, end: TurnEnd) -> None:
        """The turn is committed in this very transaction."""

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        """The turn ended without a reply, for good: failed, cancelled, or interrupted and not tried again."""

    def before_compaction(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        """A compaction that nobody asked for is put on the agenda next, due when the turn was."""

    def compacted(self, tx: Tx, session: Session) -> None:
        """The session's history was summarised."""

    def status_line(self, tx: Tx, session: Session) -> str:
        """One line for `/status`; empty if there is nothing to say."""
        return ""

    def stopped(self, tx: Tx, session: Session) -> Ended | None:
        """Someone stopped all that a session does; what more that stopped here."""
        return None

    def chain_stopped(self, tx: Tx, chain_id: str, reason: str) -> Sequence[Ended]:
        """Someone stopped a chain: what of this room lives in it ends now, and wakes nobody."""
        return ()

    def reset(self, tx: Tx, left: Session) -> Ended | None:
        """Someone left a session by hand; what of this room ended with it, if they are to be told."""
        return None


def tellable(hooks: Sequence[TurnHook], text: str, terms: Terms) -> int:
    """How much of the words said so far is for listeners, whatever follows."""
    return min((hook.held_back(text, terms) for hook in hooks), default=len(text))


def listen(hooks: Sequence[TurnHook], text: str, terms: Terms, shown: ShownData) -> Understood:
    """Let each hook take out of the last words what is meant for it, one after another."""
    text, before = _said_aloud(text, shown), text
    signals: dict[str, Any] = {}
    spoke = text != before
    for hook in hooks:
        heard = hook.heard(text, terms, shown)
        text = heard.text
        if heard.signal is not None:
            signals[hook.name] = heard.signal
    return Understood(text, signals, spoke)


def _said_aloud(text: str, shown: ShownData) -> str:
    """A word for silence that stood in what was read silences nothing: as Markdown writes it, it is a word
    like others, wherever the reply goes."""
    for word, place in _SILENT_PLACES.items():
        if word in text and place.search(text) and shown.has_word(word):
            text = place.sub(lambda found: found[0].replace("_", r"\_", 1), text)
    return text


# Where such a word counts: first or last, whatever marks stand around it.
_SILENT_PLACES: Final = {
    word: re.compile(rf"(?:\A(?:[^\w\s]|\s)*{word}\b|\b{word}(?:[^\w\s]|\s)*\Z)") for word in SILENT_WORDS
}


class EngineHook(TurnHook):
    """Has the context engine told of every turn that ended, by what is written with its end."""

    name = "engine"

    def __init__(self, context: Callable[[], ContextRoom]) -> None:
        self._context = context

    def committed(self, tx: Tx, end: TurnEnd) -> None:
        self.failed(tx, end)

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        if end.terms.stored:
            self._context().turn_ended(
                tx,
                end.turn,
                is_heartbeat=end.terms.occasion in (Occasion.HEARTBEAT, Occasion.HEARTBEAT_LIGHT),
                prompt_tokens=end.prompt_tokens,
                token_budget=end.token_budget,
            )


class ApprovalHook(TurnHook):
    """Nobody is asked to decide for a session that was stopped or left. A turn that was cut off, or whose
    asker waited no longer, may make the same call again, and then finds what was decided meanwhile."""

    name = "approvals"

    def stopped(self, tx: Tx, session: Session) -> None:
        requests.withdraw(tx, session.key)

    def reset(self, tx: Tx, left: Session) -> None:
        requests.withdraw(tx, left.key)


class ProcessHook(TurnHook):
    """Ends what runs in this process for a session; a mark in the store tells other processes to."""

    name = "processes"

    def __init__(self, commands: BackgroundCommands) -> None:
        self._commands = commands

    def stopped(self, tx: Tx, session: Session) -> Ended:
        now = sessions.get(tx, session.id)
        meta = now.meta or {}
        sessions.update(tx, now, meta={**meta, STOPS: int(meta.get(STOPS, 0)) + 1})
        return self._end(tx, session)

    def reset(self, tx: Tx, left: Session) -> Ended:
        return self._end(tx, left)

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        """A subagent that is stopped has no session to come back to."""
        if end.turn.status is TurnStatus.CANCELLED and parse_key(end.session.key).is_subagent:
            self.stopped(tx, end.session)

    def _end(self, tx: Tx, session: Session) -> Ended:
        count = self._commands.behind(session.id)
        tx.on_commit(lambda: self._commands.end_session(session.id))
        return Ended(count, "background command")


Build = Callable[[ModelAbout], Awaitable[ModelRequest]]


class Answered(Protocol):
    """A whole answer, the model that gave it, and what was tried on the way."""

    @property
    def reply(self) -> ModelReply: ...
    @property
    def about(self) -> ModelAbout: ...
    @property
    def attempts(self) -> Sequence[Attempt]: ...


class Answers(Protocol):
    """The models: which are asked, and one answer from the first of them that gives one."""

    def about(self, ref: ModelRef) -> ModelAbout: ...

    def choice(self, settings: AgentSettings, override: str | None = None) -> list[ModelRef]: ...

    async def answer(
        self,
        refs: Sequence[ModelRef],
        build: Build,
        *,
        agent_id: str,
        on_event: Callable[[ModelEvent], None],
        session_key: str | None = None,
    ) -> Answered: ...


class Toolset(Protocol):
    """The tools: what is on offer to a caller, and running what a model asked for."""

    def get(self, name: str) -> Tool[Any]: ...

    def offered(self, caller: Caller, policy: Policy | None = None) -> tuple[ToolSpec, ...]: ...

    def listed(self, caller: Caller, policy: Policy | None = None) -> Listed: ...

    async def run_all(
        self, caller: Caller, calls: Sequence[ToolCall], on_event: Callable[[ToolEvent], None]
    ) -> list[ToolResult]: ...

    def compacted(self, turn_id: str) -> None: ...

    def forget(self, turn_id: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """Everything a turn is run with. Rooms are asked for when they are used, the config every time anew."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    workspace: Callable[[str], Path]
    context: Callable[[], ContextRoom]
    models: Answers
    tools: Toolset
    board: Callable[[], Board] | None = None
    skills: Callable[[], SkillRoom] | None = None
    debug: DebugOutputs | None = None
    hooks: Sequence[TurnHook] = ()
    plugin_hooks: HookBus = NO_HOOKS
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)
