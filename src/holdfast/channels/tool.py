"""`message`: what an agent says elsewhere than where it is spoken to, and what else a surface can do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.heartbeat.state import HeardAt
from holdfast.agents.tools.types import Caller, Tool, ToolOutput, always
from holdfast.channels import history, web
from holdfast.channels.connecting import Connected
from holdfast.channels.files import FileRoom
from holdfast.channels.surface import Surface
from holdfast.channels.transport import Message
from holdfast.config.channels import WEB, WEB_CHAT
from holdfast.context import Trust
from holdfast.effects import Effect
from holdfast.errors import Forbidden, InvalidInput
from holdfast.log import SYSTEM, EntryFilter, EntryType, Store, Threads, Tx, entries, heard_by, outbox
from holdfast.log.outbox import Parcel

Action = Literal["send", "thread-create", "thread-reply", "read", "edit", "react"]
MOST_READ: Final = 100
NOTHING: Final = "(nothing)"
_WHERE: Final = "Give target, such as discord:channel:42 or slack:dm:U7."


class MessageInput(BaseModel):
    """Post to another chat than the one you answer in, open a thread there, or read one. What you answer here
    is sent by itself: do not repeat it. thread-create gives the target of a new thread; thread-reply posts
    into it."""

    model_config = ConfigDict(extra="forbid")

    action: Action = "send"
    target: Annotated[
        str | None,
        Field(max_length=480, description="Where, as channel:kind:id; unset: the chat you answer in."),
    ] = None
    text: Annotated[str | None, Field(max_length=64_000, description="What to say; the sign of react.")] = (
        None
    )
    threadId: Annotated[str | None, Field(max_length=128, description="A thread in it.")] = None  # noqa: N815
    threadName: Annotated[str | None, Field(max_length=100, description="Its name.")] = None  # noqa: N815
    messageId: Annotated[  # noqa: N815
        str | None, Field(max_length=256, description="Of edit and react; or what a thread is opened on.")
    ] = None
    attachments: Annotated[
        list[str], Field(max_length=8, description="Files of your workspace to send along.")
    ] = []
    limit: Annotated[int, Field(ge=1, le=MOST_READ, description="Of read.")] = 30


class MessageTool:
    """A spawned session has no chat of its own to fall back on: it must say where."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        connect: Callable[[Surface], Connected],
        heard_at: HeardAt,
        files: FileRoom,
    ) -> None:
        self._store = store
        self._threads = threads
        self._connect = connect
        self._heard_at = heard_at
        self._files = files

    def tool(self) -> Tool[MessageInput]:
        return Tool(
            name="message",
            input=MessageInput,
            run=self._run,
            effect=Effect.WORLD,
            repeatable=False,
            for_others=always,
            offered=_has_channels,
        )

    async def _run(self, caller: Caller, given: MessageInput, call_id: str) -> ToolOutput:
        surface = target_of(caller, given)
        if given.action != "read":
            await self._threads(self._require_theirs, caller, surface)
        key = f"message:{caller.turn_id}:{call_id}"
        match given.action:
            case "read":
                return await self._read_there(caller, surface, given.limit)
            case "thread-create":
                return await self._open(caller, surface, given, key)
            case "edit" | "react":
                return await self._touch(surface, given, key)
            case _:
                return await self._threads(self._send, caller, surface, given, key)

    def _require_theirs(self, caller: Caller, surface: Surface) -> None:
        """What the owner did not ask for goes only to those who may read all that stood in its prompt."""
        if caller.owner_sent:
            return
        with self._store.read(SYSTEM) as tx:
            heard = self._heard_at(tx, surface.address)
        if heard is None or not heard_by(heard).may_read(caller.session.audience):
            raise Forbidden(
                f"not everyone at {surface.address} may read what this turn was given",
                code="not_theirs",
                hint="The owner can have it sent there by asking for it.",
            )

    def _send(self, caller: Caller, surface: Surface, given: MessageInput, key: str) -> ToolOutput:
        connected = self._connect(surface)
        to = surface.deliver()
        payload: dict[str, Any] = {"text": given.text or "", "agentId": caller.agent_id}
        if given.attachments:
            payload["files"] = self._attached(caller, connected, given)
        else:
            _text(given)
        parcel = Parcel(key=key, kind=to.kind, target=to.target, payload=payload)
        made = self._store.run(SYSTEM, lambda tx: outbox.post(tx, parcel))
        return _told({"status": "accepted", "channel": connected.name, "target": to.target, "id": made.id})

    def _attached(self, caller: Caller, connected: Connected, given: MessageInput) -> list[dict[str, Any]]:
        """Files of the workspace, which is the owner's."""
        if not caller.owner:
            raise Forbidden("files are sent for the owner alone", code="owner_only")
        most = connected.channel.abilities.most_file_bytes
        found = self._files.sendable(caller.workspace, given.attachments)
        for one in found:
            if one["bytes"] > most:
                said = f"channel {connected.name} takes files of {most:,} bytes at most: {one['name']}"
                raise InvalidInput(said, code="file_too_large")
        if connected.name == WEB:
            self._files.checked(self._files.read(found))
        return found

    async def _open(self, caller: Caller, surface: Surface, given: MessageInput, key: str) -> ToolOutput:
        connected = self._connect(surface)
        if not connected.channel.abilities.threads or surface.thread is not None:
            raise InvalidInput("no thread can be opened there", code="thread_unavailable", hint="Use send.")
        name = given.threadName or (given.text or "Thread")[:80]
        thread = await connected.channel.open_thread(surface, name, key, given.messageId)
        opened = surface.in_thread(thread)
        if given.text or given.attachments:
            await self._threads(self._send, caller, opened, given, key)
        return _told({"status": "opened", "threadId": thread, "target": opened.address})

    async def _touch(self, surface: Surface, given: MessageInput, key: str) -> ToolOutput:
        connected = self._connect(surface)
        able = connected.channel.abilities
        if not (able.edits if given.action == "edit" else able.reacts):
            raise InvalidInput(f"messages there cannot be changed by {given.action}", code="not_supported")
        if given.messageId is None:
            raise InvalidInput("which message?", hint="Give messageId.")
        message = Message(key=key, surface=surface, text=_text(given))
        act = connected.channel.edit if given.action == "edit" else connected.channel.react
        await act(given.messageId, message)
        return _told({"status": "done", "messageId": given.messageId})

    async def _read_there(self, caller: Caller, surface: Surface, limit: int) -> ToolOutput:
        """As the log has it; for the owner, where that has nothing, as the service has it."""
        logged = await self._threads(self._read, caller, surface, limit)
        if logged.text != NOTHING or not caller.owner:
            return logged
        channel = self._connect(surface).channel
        if not channel.abilities.reads:
            return logged
        found = await channel.history(surface, limit)
        return ToolOutput(text=history.quoted_lines(found) or NOTHING, trust=Trust.OUTSIDE)

    def _read(self, caller: Caller, surface: Surface, limit: int) -> ToolOutput:
        """What was said on a surface, as the log has it."""
        with self._store.read(caller.reader) as tx:
            key = _session_at(tx, caller, surface)
            spoken = EntryFilter(session_key=key, types=frozenset({EntryType.CONVERSATION}))
            found = [e for e in entries.listing(tx, spoken, limit=limit * 4).entries if e.content.strip()]
        said = [e for e in found if e.role in ("user", "assistant")][:limit]
        return ToolOutput(text=history.quoted(said) or NOTHING, trust=Trust.OUTSIDE)


def target_of(caller: Caller, given: MessageInput) -> Surface:
    """Where a call goes: as it says; else the session's own surface, which a spawned one does not have.

    Only for the owner does it go elsewhere than to the chat that they are in.
    """
    own = Surface.of_key(caller.session.key) or web.own_surface(caller.session)
    if given.target is not None:
        surface = Surface.parse(given.target)
    elif caller.subagent:
        raise InvalidInput("a subagent must name its target", code="target_required", hint=_WHERE)
    elif own is None:
        raise InvalidInput("this session has no chat of its own", code="target_required", hint=_WHERE)
    else:
        surface = own
    if given.threadId is not None:
        surface = surface.in_thread(given.threadId)
    web.require_whole(surface)
    if given.action == "thread-reply" and surface.thread is None:
        raise InvalidInput("which thread?", hint="Give threadId, or a target with a thread.")
    if not caller.owner and (own is None or replace(surface, thread=None) != replace(own, thread=None)):
        raise Forbidden("only for the owner are other chats reached", code="owner_only")
    return surface


def _session_at(tx: Tx, caller: Caller, surface: Surface) -> str:
    """The session that the caller's agent has on a surface."""
    chat = web.chat_at(tx, surface, caller.agent_id, caller.config) if surface.channel == WEB else None
    return str(surface.key(caller.agent_id)) if chat is None else chat.key


def _has_channels(caller: Caller) -> bool:
    """The pages' chat is one, if it is not switched off."""
    return any(channel.enabled for channel in {WEB: WEB_CHAT, **caller.config.channels}.values())


def _text(given: MessageInput) -> str:
    if not (given.text or "").strip():
        raise InvalidInput("there is nothing to say", hint="Give text.")
    return given.text or ""


def _told(body: dict[str, Any]) -> ToolOutput:
    return ToolOutput(text=json.dumps(body, ensure_ascii=False), details=body)
