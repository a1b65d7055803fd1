"""Whatever a model is talked into calling, with whatever in it: it reads and changes what is its chat's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from asking import Known, Unknown
from marked_world import ADA, BETA, DESK, GIL, MAIN, MEMBER, ONE, TEAM, TWO, World, mark_in
from marks import SURFACES
from tool_arguments import MAKERS, Names, calls

from builders import share
from holdfast.agents.tools.types import Caller
from holdfast.log import FOR_ANYONE, SYSTEM, Reader, Session, for_space, heard_by, sessions

CALLERS = ("guest", "group one", "group two", "child of group one", "task of group one")
CALLERS += ("member", "team")
ALONE = ("main", "private group", "direct chat", "beta")
KEYS = {"guest": GIL, "group one": ONE, "group two": TWO, "main": MAIN, "private group": DESK}
KEYS |= {"direct chat": ADA, "beta": BETA, "member": MEMBER, "team": TEAM}


def caller_for(world: World, name: str) -> Caller:
    if name in KEYS:
        return world.caller(KEYS[name])
    kind = "subagent" if name.startswith("child") else "cron"
    found = world.rows(
        f"SELECT key FROM sessions WHERE audience = '{SURFACES[ONE]}' AND key LIKE 'agent:main:{kind}:%'"
    )
    return world.caller(found[0][0])


def in_a_new_thread(world: World, caller: Caller) -> Caller:
    made: list[Session] = []
    key, heard = f"{caller.session.key}:thread:new", caller.session.audience
    world.write(lambda tx: made.append(sessions.ensure(tx, key, audience=heard)))
    return replace(caller, session=made[0])


def tools(world: World) -> tuple[str, ...]:
    return world.hold.agency.tools.names


@pytest.mark.parametrize("who", CALLERS)
def test_every_tool_that_looks_shows_each_chat_what_those_in_it_may_read(world: World, who: str) -> None:
    """By day chats that are alike share what the tools are asked."""
    caller = caller_for(world, who)
    names, leaks = Names(world, Known(world)), {}
    heard = heard_by(caller.session.audience)
    for tool in tools(world):
        if world.hold.agency.tools.get(tool).effect.value != "none":
            continue
        for arguments in share(calls(names, tool), CALLERS.index(who), of=2):
            result = world.use(caller, tool, arguments)
            for mark in world.marks.leaked(result.text, heard):
                leaks.setdefault(f"{tool} showed {who} what is {mark}'s", json.dumps(arguments)[:200])
    assert not leaks, json.dumps(leaks, indent=1)


@pytest.mark.parametrize("who", CALLERS)
def test_every_tool_that_acts_stays_within_its_chat(world: World, who: str) -> None:
    world.settle()
    caller = caller_for(world, who)
    names, leaks = Names(world, Known(world)), {}
    heard = heard_by(caller.session.audience)
    before = Outside.of(world, caller)
    requests = len(world.model.requests)
    for tool in tools(world):
        if world.hold.agency.tools.get(tool).effect.value == "none":
            continue
        for arguments in calls(names, tool):
            result = world.use(caller, tool, arguments)
            for mark in world.marks.leaked(result.text, heard):
                leaks.setdefault(f"{tool} showed {who} what is {mark}'s", json.dumps(arguments)[:200])
    world.settle()
    assert not leaks, json.dumps(leaks, indent=1)
    after = Outside.of(world, caller)
    assert after.files == before.files
    assert not {name: rows for name, rows in before.changed(after).items() if rows}
    _all_heard_it(world, heard, requests)


def _all_heard_it(world: World, heard: Reader, since: int) -> None:
    """Whatever was set going by it was shown nothing else, either."""
    for asked in world.model.requests[since:]:
        assert not world.marks.leaked(json.dumps(asked.body, ensure_ascii=False), heard)


class Outside:
    """Everything that is not the caller's: the owner's files, and what lies in other chats."""

    def __init__(self, files: dict[str, str], rows: dict[str, frozenset[str]]) -> None:
        self.files = files
        self.rows = rows

    @classmethod
    def of(cls, world: World, caller: Caller) -> Outside:
        return cls.for_reader(world, heard_by(caller.session.audience), deliveries=caller.session.audience)

    @classmethod
    def for_reader(cls, world: World, reader: Reader, deliveries: str = "member:") -> Outside:
        return cls(dict(_files(world.hold.home.path, reader)), dict(_rows(world, reader, deliveries)))

    def changed(self, after: Outside) -> dict[str, list[str]]:
        return {name: sorted(after.rows[name] ^ rows)[:3] for name, rows in self.rows.items()}


def _files(home: Path, reader: Reader) -> Iterator[tuple[str, str]]:
    """The owner's files, and those of teams that the reader is not in."""
    own = ("workspace", "workspace-beta", "credentials", "skills")
    for path in sorted(home.rglob("*")):
        parts = path.relative_to(home).parts
        team = parts[1] if parts[0] == "teams" and len(parts) > 1 else None
        theirs = team is not None and not reader.may_read(for_space(f"team-{team}"))
        if path.is_file() and (parts[0] in own or theirs or parts == ("holdfast.json",)):
            yield str(path.relative_to(home)), hashlib.sha256(path.read_bytes()).hexdigest()


def _rows(world: World, reader: Reader, deliveries: str) -> Iterator[tuple[str, frozenset[str]]]:
    """What others could read of it must be as it was; what is for the reader's own audiences may change."""
    own = ", ".join(f"'{one}'" for one in sorted((reader.audiences or frozenset()) - {FOR_ANYONE}))
    tables = {
        "entries": "id, content, topic_id, task_id, space_id, audience, revision",
        "sessions": "id, key, audience, status, label, turn_count",
        "topics": "id, name, audience, digest",
        "tasks": "id, title, audience, status",
        "notes": "id, session_key, text",
        "turns": "id, session_key, status",
        "attachments": "id, audience",
    }
    for table, columns in tables.items():
        yield table, _found(world, f"SELECT {columns} FROM {table} WHERE audience NOT IN ({own})")
    yield (
        "standing tasks",
        _found(
            world,
            "SELECT id, name, prompt, session, deliver, enabled FROM standing_tasks "
            f"WHERE coalesce(json_extract(created_by, '$.audience'), '') NOT IN ({own}) OR session = 'main'",
        ),
    )
    targets = f"'{_address(deliveries)}%'"
    yield (
        "deliveries",
        _found(world, f"SELECT id, target, payload FROM outbox WHERE NOT target LIKE {targets}"),
    )
    yield "shared spaces", _found(world, "SELECT id, shared FROM spaces")
    yield "connections of spaces", _found(world, "SELECT * FROM space_edges")
    yield "patterns", _found(world, "SELECT * FROM allowed_commands")
    yield "approvals", _found(world, "SELECT id, status FROM approvals")


def _address(audience: str) -> str:
    kind, _, rest = audience.partition(":")
    if kind == "member" and rest:
        return f"web:dm:{rest}"
    if kind == "space" and rest.startswith("team-"):
        return f"web:group:{rest.removeprefix('team-')}"
    if kind in ("member", "space"):
        return "no channel"  # people are answered where they ask
    channel, _, id_ = rest.split(":", 2)
    return f"{channel}:{'dm' if kind == 'peer' else 'group'}:{id_}"


def _found(world: World, sql: str) -> frozenset[str]:
    return frozenset(json.dumps(row, default=str) for row in world.rows(sql))


@pytest.mark.parametrize("who", [*CALLERS, *ALONE])
def test_each_chat_finds_its_own_words_by_its_tools(world: World, who: str) -> None:
    caller = caller_for(world, who)
    own = mark_in(world, KEYS.get(who, ONE))
    for tool, arguments in (
        ("memory_search", {"query": own.hook}),
        ("clawboard_search", {"q": own.hook}),
        ("clawboard_context", {"q": own.hook, "mode": "patient"}),
    ):
        assert own.word in world.use(caller, tool, arguments).text, tool


@pytest.mark.parametrize("who", ALONE)
def test_where_the_owner_is_alone_everybodys_words_are_found(world: World, who: str) -> None:
    # In a thread of its own: where a session was given a space, or was sorted into one, it is shown less.
    caller = in_a_new_thread(world, caller_for(world, who))
    for mark in world.marks.all:
        if mark.agent in (None, caller.agent_id):
            assert mark.word in world.use(caller, "clawboard_search", {"q": mark.hook}).text, mark.name
    of_agent = world.marks.beta if caller.agent_id == "beta" else world.marks.owner
    assert of_agent.word in world.use(caller, "memory_get", {"path": "MEMORY.md"}).text


def test_a_tool_that_the_suite_knows_nothing_of_fails_it(world: World) -> None:
    assert set(tools(world)) == set(MAKERS), "add a new tool to MAKERS in tool_arguments.py"
    with pytest.raises(Unknown):
        list(calls(Names(world, Known(world)), "diary_read"))


@pytest.mark.parametrize("key", [GIL, ONE])
def test_no_command_tells_or_does_what_is_the_owners(world: World, key: str) -> None:
    """Slash commands are answered by the runtime itself; they are found in its registry."""
    heard = heard_by(SURFACES[key])
    words: list[str] = []
    for name in world.hold.runs.commands.names:
        words += [f"/{name}", f"/{name} sauna"]
    with world.hold.store.read(SYSTEM) as tx:
        before = sessions.find(tx, MAIN)
    for text in (*words, "/sauna", "/sauna MEMORY.md"):
        world.say(key, text)
    with world.hold.store.read(SYSTEM) as tx:
        assert sessions.find(tx, MAIN) == before
    said = [post for post in world.end.posts if post.body["to"]["id"] in key.split(":")]
    leaks = {
        post.text[:80]: found for post in said if (found := world.marks.leaked(post.raw.decode(), heard))
    }
    assert said
    assert not leaks
