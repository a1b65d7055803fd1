"""Where the `message` tool goes: subagents must say it, and for strangers it is their own chat alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from builders import session
from holdfast.agents.heartbeat.state import nobody_knows
from holdfast.agents.tools.types import Caller
from holdfast.channels import Surface, receiving
from holdfast.channels.connecting import Connections
from holdfast.channels.files import FileRoom
from holdfast.channels.tool import MessageInput, MessageTool, target_of
from holdfast.config import Config
from holdfast.errors import Forbidden, InvalidInput
from holdfast.keys import parse_key
from holdfast.log import OWNER, Audience, EntryDraft, Store, Threads, Tx, entries, outbox
from holdfast.memory.scope import Chat

CONFIG = Config.model_validate({"channels": {"pier": {"url": "http://127.0.0.1:9/x"}}})
NO_FILES = FileRoom(Path(), lambda: CONFIG.board.attachments, lambda agent: Path())
HERE = "agent:main:pier:channel:c1"
CHILD = "agent:main:subagent:s1"


def caller(store: Store, key: str, **fields: Any) -> Caller:
    return Caller(
        config=CONFIG,
        settings=CONFIG.agent("main"),
        agent_id="main",
        session=session(store, key),
        turn_id="turn-1",
        workspace=Path(),
        chat=Chat.of(key),
        subagent=parse_key(key).is_subagent,
        **fields,
    )


def test_a_subagent_must_say_where(sqlite_store: Store) -> None:
    child = caller(sqlite_store, CHILD)
    with pytest.raises(InvalidInput, match="must name its target"):
        target_of(child, MessageInput(text="hi"))
    assert target_of(child, MessageInput(text="hi", target="pier:dm:ada")) == Surface("pier", "dm", "ada")
    with pytest.raises(InvalidInput, match="no chat of its own"):
        target_of(caller(sqlite_store, "agent:main:main"), MessageInput(text="hi"))


def test_for_a_stranger_it_reaches_their_own_chat_alone(sqlite_store: Store) -> None:
    there = caller(sqlite_store, HERE, owner=False)
    assert target_of(there, MessageInput(text="hi")) == Surface("pier", "channel", "c1")
    assert target_of(there, MessageInput(text="hi", threadId="9")).thread == "9"
    for action in ("send", "read"):
        with pytest.raises(Forbidden):
            target_of(there, MessageInput(action=action, text="hi", target="pier:dm:ada"))  # type: ignore[arg-type]
    owner = caller(sqlite_store, HERE)
    assert target_of(owner, MessageInput(text="hi", target="pier:dm:ada")).peer == "ada"


def test_the_same_call_again_posts_once_and_what_was_said_is_read(
    sqlite_store: Store, threads: Threads
) -> None:
    connections = Connections(lambda: CONFIG, sqlite_store.clock)
    tool = MessageTool(sqlite_store, threads, connections.of, nobody_knows, NO_FILES).tool()
    there = caller(sqlite_store, HERE, owner_sent=True)
    say = MessageInput(target="pier:dm:ada", text="The boats are in.")

    async def work() -> str:
        for _ in range(2):
            await tool.run(there, say, "call-1")
        return (await tool.run(there, MessageInput(action="read"), "call-2")).text

    with sqlite_store.write(OWNER) as tx:
        entries.append(tx, EntryDraft(content="When?", role="user", agent_label="Ben", session_key=HERE))
    assert asyncio.run(work()).endswith("Ben: When?")
    with sqlite_store.read(OWNER) as tx:
        (made,) = outbox.listing(tx)
    assert (made.target, made.payload["text"]) == ("pier:dm:ada", "The boats are in.")
    for wrong in ("thread-create", "edit", "react"):
        asked = MessageInput(action=wrong, text="x", messageId="m1")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            asyncio.run(tool.run(there, asked, "call-3"))  # type: ignore[arg-type]


def test_what_the_owner_did_not_ask_for_goes_only_to_those_who_may_read_it(
    sqlite_store: Store, threads: Threads
) -> None:
    config = Config.model_validate(
        {"channels": {"pier": {"url": "http://127.0.0.1:9/x", "owners": ["me"], "private": ["desk"]}}}
    )
    connections = Connections(lambda: config, sqlite_store.clock)

    def heard_at(tx: Tx, target: str) -> Audience | None:
        surface = Surface.parse(target)
        return receiving.heard_at(tx, surface, connections.settings(surface.channel))

    tool = MessageTool(sqlite_store, threads, connections.of, heard_at, NO_FILES).tool()
    alone = caller(sqlite_store, "agent:main:main")
    for theirs in ("pier:dm:me", "pier:channel:desk"):
        asyncio.run(tool.run(alone, MessageInput(target=theirs, text="The boats are in."), theirs))
    for others in ("pier:dm:ada", "pier:channel:c1"):
        with pytest.raises(Forbidden, match="not everyone"):
            asyncio.run(tool.run(alone, MessageInput(target=others, text="The boats are in."), others))
    with sqlite_store.read(OWNER) as tx:
        assert sorted(parcel.target for parcel in outbox.listing(tx)) == ["pier:channel:desk", "pier:dm:me"]
