"""Where slash commands are answered and recorded, before any turn is made of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from holdfast.agents.commands import (
    Called,
    CommandContext,
    CommandRegistry,
    Control,
    PassOn,
    Reply,
    are_skills_open,
    use_skill,
)
from holdfast.agents.loop import ending
from holdfast.agents.loop.accepting import come_in, entered_session, terms_of
from holdfast.agents.loop.asks import Accepted, Address, Ask
from holdfast.agents.loop.ending import SessionEnded
from holdfast.agents.loop.parts import LoopParts
from holdfast.agents.skills import Invocation, invoked
from holdfast.errors import HoldfastError
from holdfast.ids import uuid7
from holdfast.log import (
    SYSTEM,
    Classification,
    EntryDraft,
    EntryType,
    Outcome,
    Session,
    Tx,
    entries,
    sessions,
    turns,
)
from holdfast.log.reset import reset_command, with_trigger


class SlashCommands:
    """Answers commands, and skills that are called by name."""

    def __init__(self, parts: LoopParts, commands: CommandRegistry, control: Control) -> None:
        self._parts = parts
        self._commands = commands
        self._control = control
        self._under_way: dict[str, asyncio.Task[Accepted | Ask]] = {}

    async def answer(self, ask: Ask, to: Address) -> Accepted | Ask:
        """A command's answer, recorded; or the ask as it goes on to the model."""
        ask = replace(ask, text=with_trigger(ask.text, self._parts.config().session.reset_triggers))
        called = self._commands.called(ask.text)
        skill = await self._skill(ask, to) if called is None else None
        reset = reset_command(ask.text)
        if (called is None and skill is None) or (reset is not None and (reset.message or ask.images)):
            return ask
        key = ask.key or f"command-{uuid7()}"
        under_way = self._under_way.get(key)
        if under_way is not None:
            return _repeated(ask, await asyncio.shield(under_way))
        task = asyncio.create_task(self._answered_once(ask, to, key, called, skill))
        self._under_way[key] = task
        task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)

    async def _answered_once(
        self, ask: Ask, to: Address, key: str, called: Called | None, skill: Invocation | None
    ) -> Accepted | Ask:
        session, left, known = await self._parts.threads(self._enter_command, ask, to, key)
        if known is not None:
            return known
        await self._control.stop_items(left.stop, "a new session was begun")
        context = CommandContext(self._parts, self._control, ask, to, session, left.told)
        done = await self._done(context, called, skill)
        if isinstance(done, PassOn):
            return replace(ask, text=done.text)
        return await self._parts.threads(self._record, ask, to, session, key, done, _name(called, skill))

    async def _skill(self, ask: Ask, to: Address) -> Invocation | None:
        room = self._parts.skills
        if room is None or not ask.text.lstrip().startswith("/"):
            return None
        offered = await self._parts.threads(lambda: room().commands(to.agent_id, self._commands.names))
        return invoked(ask.text, offered)

    async def _done(
        self, context: CommandContext, called: Called | None, skill: Invocation | None
    ) -> Reply | PassOn:
        """The answer; what a person did wrong is an answer too."""
        try:
            if called is not None:
                return await self._commands.run(context, called)
            assert skill is not None
            if not are_skills_open(context):
                return PassOn(context.ask.text)
            return await use_skill(context, skill.command, skill.argument)
        except HoldfastError as error:
            return Reply(f"{error.message}. {error.hint}".rstrip(". ") + ".", {"code": error.code})

    def _enter_command(
        self, ask: Ask, to: Address, key: str
    ) -> tuple[Session, SessionEnded, Accepted | None]:
        """Only `/new` and `/reset` make a session fresh; the others are about it as it stands."""
        config = self._parts.config()
        with self._parts.store.write(SYSTEM) as tx:
            turn = turns.by_key(tx, key)
            if turn is not None:
                return (
                    sessions.get(tx, turn.session_id),
                    SessionEnded(),
                    self._answered(tx, turn.id, created=False),
                )
            if reset_command(ask.text) is not None:
                entered, left = come_in(tx, ask, to, config, self._parts.hooks)
                return entered.session, left, None
            session = entered_session(tx, ask, to, config)
            return session, SessionEnded(), None

    def _record(self, ask: Ask, to: Address, session: Session, key: str, reply: Reply, name: str) -> Accepted:
        """In the log for people, as entries of the system: no model is shown them."""
        source: dict[str, Any] = {"command": name, "sender": ask.sender}
        typed = _command_entry(ask.text, "user", "user", {**ask.source, **source})
        answer = _command_entry(
            reply.text, "assistant", session.agent_id, {**source, "data": dict(reply.data)}
        )
        with self._parts.store.write(SYSTEM) as tx:
            done = turns.record(tx, session, typed, Outcome(entries=[answer]), key=key, trigger="command")
            if not done.duplicate:
                ending.deliver_reply(tx, done.turn, terms_of(ask, to, session.audience))
            return self._answered(tx, done.turn.id, created=not done.duplicate)

    def _answered(self, tx: Tx, run_id: str, *, created: bool) -> Accepted:
        turn = turns.get(tx, run_id)
        reply = None if turn.reply_id is None else entries.get(tx, turn.reply_id).content
        return Accepted(
            run_id=turn.id,
            accepted_at=turn.accepted_at,
            session_key=turn.session_key,
            session_id=turn.session_id,
            turn=turn.number,
            entry_id=turn.input_id,
            created=created,
            reply=reply,
        )


def _repeated(ask: Ask, answer: Accepted | Ask) -> Accepted | Ask:
    """The answer for who sends a command again while it is still at it: its tool runs once.

    Nothing of who sent it first goes over but the words.
    """
    if isinstance(answer, Accepted):
        return replace(answer, created=False)
    return replace(ask, text=answer.text)


def _name(called: Called | None, skill: Invocation | None) -> str:
    if called is not None:
        return called.command.name
    return "" if skill is None else skill.command.name


def _command_entry(text: str, role: str, agent_id: str | None, source: dict[str, Any]) -> EntryDraft:
    return EntryDraft(
        content=text,
        role=role,
        type=EntryType.SYSTEM,
        agent_id=agent_id,
        status=Classification.CLASSIFIED,
        code="filtered_command",
        source={name: value for name, value in source.items() if value is not None},
    )
