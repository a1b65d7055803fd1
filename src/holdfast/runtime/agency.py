"""The agents' side of a home: who answers, with which tools and skills, and the loop that runs turns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from holdfast.agents.cron import CronParts, CronService
from holdfast.agents.heartbeat import HeartbeatParts, Heartbeats
from holdfast.agents.loop import Ask, LoopParts, Runs, TurnHook
from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.calling import SummaryCosts
from holdfast.agents.loop.parts import ApprovalHook, EngineHook, ProcessHook
from holdfast.agents.loop.planning import caller_of
from holdfast.agents.mcp import McpServers
from holdfast.agents.models import Hit, Models, ModelSummariser, StoredLessons
from holdfast.agents.plugin_hooks import AfterCompaction, before_compaction
from holdfast.agents.skills import SkillRoom
from holdfast.agents.subagents import SubagentParts, Subagents, chain_refusal
from holdfast.agents.tools import BackgroundCommands, ToolParts, builtin_toolbox
from holdfast.agents.tools.types import Caller
from holdfast.board.search import SearchAsk
from holdfast.board.visibility import Sight
from holdfast.channels import Channels
from holdfast.channels.files import FileRoom
from holdfast.config import Config
from holdfast.context import CompactResult, Trust
from holdfast.context.debug import DebugOutputs
from holdfast.continuation import Continuation
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Reader, Session, Tx, chains, sessions, turns
from holdfast.logs import limits_of
from holdfast.memory.scope import Chat
from holdfast.memory.service import Ask as MemoryAsk
from holdfast.memory.snippets import citation
from holdfast.runtime.plugging import (
    PluggedAdapter,
    PluggedModels,
    PluggedSandbox,
    SessionNews,
    SubagentNews,
    plug_in,
)

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast

RECALLED: Final = 6
_LABEL: Final = re.compile(r"^\[\d{1,2} \w+ \d{4}\] [^:\n]{1,80}: ")


class Agency:
    """Built once for an open home. Nothing here runs by itself: a runner of the agenda runs the turns."""

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold

        def config() -> Config:
            return hold.settings

        self._config = config
        self.models = Models(
            hold.home,
            config,
            hold.clock,
            search=self._recall,
            lessons=StoredLessons(hold.store),
            plugged=PluggedModels(hold).find,
        )
        self.skills = SkillRoom(hold.home, config, hold.workspace, lambda: hold.plugins.skill_folders)
        self.plugged_channels: dict[str, PluggedAdapter] = {}
        self.processes = BackgroundCommands()
        self.tools = builtin_toolbox(self._tool_parts())
        common: dict[str, Any] = {"store": hold.store, "threads": hold.threads, "config": config}
        self.mcp = McpServers(**common, home=hold.home, tools=self.tools)
        self.channels = Channels(
            **common,
            plugin_hooks=hold.plugin_hooks,
            runs=lambda: self.runs,
            children=lambda: self.subagents.spawner,
            context=lambda: hold.context,
            files=FileRoom(
                hold.home.path / "attachments", lambda: hold.settings.board.attachments, hold.workspace
            ),
        )
        self.subagents = Subagents(
            SubagentParts(
                **common,
                context=lambda: hold.context,
                models=self.models,
                open_thread=self.channels.open_thread,
                bind=self.channels.bind,
                plugin_hooks=hold.plugin_hooks,
            )
        )
        heard_at = self.channels.heard_at
        self.heartbeats = Heartbeats(HeartbeatParts(**common, workspace=hold.workspace, heard_at=heard_at))
        self.standing = CronService(CronParts(**common, patch=hold.config.patch, heard_at=heard_at))
        self.hooks: list[TurnHook] = [self.subagents.hook, self.heartbeats.hook, self.standing.hook]
        self.hooks += [ProcessHook(self.processes), ApprovalHook(), EngineHook(lambda: hold.context)]
        self.runs = Runs(self._loop_parts())
        self.continuation = self._continuation()
        self.subagents.watch(self.continuation.hook)
        self.subagents.watch(SubagentNews(hold.plugin_hooks))
        # Before all others, so that a token is taken out before anyone asks whether what is left is silence.
        self.hooks.insert(0, self.continuation.hook)
        self.hooks += [self.channels.hook, SessionNews(hold.plugin_hooks)]
        self.standing.bind(self.runs)
        for room in (self.subagents, self.standing, self.continuation, self.channels):
            self.tools.register_all(room.tools())
        for command in self.subagents.commands:
            self.runs.commands.register(command)
        self.tools.plugin_hooks = hold.plugin_hooks
        plug_in(hold, self)
        hold.context.on_compacted(self._tell_compacted)
        hold.context.use_summariser(
            ModelSummariser(self.models, config, SummaryCosts(hold.store, hold.threads))
        )

    def _tool_parts(self) -> ToolParts:
        hold = self._hold
        return ToolParts(
            store=hold.store,
            threads=hold.threads,
            home=hold.home,
            clock=hold.clock,
            memory=lambda: hold.memory,
            board=lambda: hold.board,
            skills=self.skills,
            courier=self,
            commands=self.processes,
            sandbox=PluggedSandbox(hold).find,
            recalls=lambda agent_id: hold.context.has_recall_tools(agent_id),
        )

    def _loop_parts(self) -> LoopParts:
        hold = self._hold
        return LoopParts(
            store=hold.store,
            threads=hold.threads,
            config=self._config,
            workspace=hold.workspace,
            context=lambda: hold.context,
            models=self.models,
            tools=self.tools,
            board=lambda: hold.board,
            skills=lambda: self.skills,
            debug=DebugOutputs(hold.home.logs, hold.clock, limits=lambda: limits_of(hold.settings.logging)),
            hooks=self.hooks,
            plugin_hooks=hold.plugin_hooks,
        )

    def _continuation(self) -> Continuation:
        """A compaction that it asks for is told to every hook by the context room, as any other is."""
        return Continuation(
            self._hold.store,
            self._hold.threads,
            self._config,
            self.runs.accept_in,
            payloads=self._hold.home.path / "continuation",
            spawner=self.subagents.spawner,
            caller_of=self._caller_of,
            stop_turn=lambda run_id, reason: self.runs.cancel(run_id, reason=reason),
            compact=self._compact,
            compacted=lambda tx, session: None,
            workspace=self._hold.workspace,
        )

    async def send(self, caller: Caller, to: str, text: str) -> str:
        """`sessions_send`: words from another session are data there, and never keep it fresh. They follow
        from what the sender was asked, so that two sessions cannot keep each other going without end."""
        hold = self._hold
        return await hold.threads(hold.store.run, SYSTEM, lambda tx: self._sent(tx, caller, to, text))

    def _sent(self, tx: Tx, caller: Caller, to: str, text: str) -> str:
        chain = chains.opened(tx, turns.get(tx, caller.turn_id))
        full = chain_refusal(chain.sent, caller.settings.subagents)
        if full is not None:
            raise full.error()
        ask = Ask(
            text=text,
            session_key=to,
            trigger="session",
            trust=Trust.OTHER_SESSION,
            sender=caller.session.key,
            owner=False,
            source={"fromSessionKey": caller.session.key},
            chain_id=chains.count(tx, chain, "sent").id,
        )
        return self.runs.accept_in(tx, ask).run_id

    def _caller_of(self, session: Session, terms: Terms) -> Caller:
        """Who sends a delegate off, after the turn that elected it."""
        config = self._hold.settings
        about = self.models.about(self.models.choice(config.agent(terms.agent_id), terms.model)[0])
        return caller_of(config, session, terms, self._hold.workspace(terms.agent_id), about)

    async def _compact(self, session: Session, window: int, used: int) -> CompactResult:
        self._hold.plugin_hooks.tell(before_compaction(session, "request"))
        return await self._hold.context.compact(
            session, window=window, reason="request", force=True, current_tokens=used
        )

    def _tell_compacted(self, session: Session) -> None:
        def write(tx: Tx) -> None:
            for hook in self.hooks:
                hook.compacted(tx, session)

        self._hold.store.run(SYSTEM, write)
        self._hold.plugin_hooks.tell(
            AfterCompaction(
                audience=session.audience,
                session_key=session.key,
                session_id=session.id,
                agent_id=session.agent_id,
            )
        )

    async def aclose(self) -> None:
        """End what still runs for agents, and give connections back."""
        await self.channels.aclose()
        await self._hold.threads(self.processes.close)
        await self.models.aclose()

    async def _recall(self, question: str, session_key: str | None) -> Sequence[Hit]:
        return await self._hold.threads(self._recalled, question, session_key)

    def _recalled(self, question: str, session_key: str | None) -> list[Hit]:
        """What memory and board hold, in turn: each text once, and not the question itself.

        Who is not the owner asks without a key, and is told nothing.
        """
        if session_key is None:
            return []
        agent = parse_key(session_key).agent_id or self._hold.settings.default_agent_id
        with self._hold.store.read(SYSTEM) as tx:
            reader = sessions.reader_in(tx, session_key)
        found = self._hold.memory.search(MemoryAsk(question, agent, reader, Chat.of(session_key), RECALLED))
        notes = [
            Hit(_said(hit.snippet), citation(hit.path, hit.start, hit.end).removeprefix("Source: "))
            for hit in found.hits
        ]
        logged = self._from_board(question, session_key, reader)
        mixed = [hit for pair in zip_longest(notes, logged) for hit in pair if hit is not None]
        once = {hit.text.strip(): hit for hit in reversed(mixed)}
        return [hit for hit in reversed(once.values()) if hit.text.strip() not in ("", question.strip())]

    def _from_board(self, question: str, session_key: str, reader: Reader) -> list[Hit]:
        sight = Sight(reader=reader, session_key=session_key)
        wanted = SearchAsk(q=question, sight=sight, topics=0, tasks=0, logs=RECALLED)
        return [Hit(f.text, f"log:{f.item.id}") for f in self._hold.board.search.run(wanted).logs]


def _said(snippet: str) -> str:
    """The words of an entry without the date and the speaker that the index puts before them."""
    return _LABEL.sub("", snippet)
