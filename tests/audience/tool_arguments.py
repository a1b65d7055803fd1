"""What every tool can be called with by somebody who means ill: its own kinds of names, all that are known.

Tools are found in the registry. One that is not in `MAKERS` fails the suite, so that nobody adds one past it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asking import Known, Unknown
from marked_world import BETA, DESK, GIL, MAIN, ONE, SPOKEN, TWO, World

Arguments = dict[str, Any]
Maker = Callable[["Names"], Iterator[Arguments]]

FILES: Final = (
    "MEMORY.md",
    "USER.md",
    "SOUL.md",
    "AGENTS.md",
    "memory/2026-03-02.md",
    "library/book.md",
    "notes/plan.md",
    "skills/sauna/SKILL.md",
    ".",
    "..",
    "../..",
    "/",
    "~",
    "../holdfast.json",
    "../credentials/token",
    "../workspace-beta/MEMORY.md",
    "/etc/passwd",
)
COMMANDS: Final = ("cat MEMORY.md", "grep -r mk .", "cat ../holdfast.json", "echo pwned > SOUL.md", "ls -R /")
TARGETS: Final = (
    None,
    "last",
    "pier:dm:ada",
    "pier:dm:gil",
    "pier:group:g1",
    "pier:group:g2",
    "pier:group:desk",
)


@dataclass(frozen=True)
class Names:
    """All that somebody could name."""

    world: World
    known: Known

    @property
    def keys(self) -> Sequence[str]:
        return self.known.sessions

    @property
    def chats(self) -> Sequence[str]:
        return (MAIN, BETA, GIL, ONE, TWO, DESK)

    @property
    def words(self) -> Sequence[str]:
        return ("sauna", *(one.hook for one in self.world.marks.all))

    @property
    def outputs(self) -> Sequence[str]:
        return [f"output:{id_}" for id_ in self.known.ids("outputs")]

    @property
    def summaries(self) -> Sequence[str]:
        return self.world.ids("lossless_summaries")


def _paths(names: Names) -> Iterator[Arguments]:
    yield from ({"path": path} for path in (*FILES, *names.outputs))


def _one(field: str, values: Callable[[Names], Sequence[Any]], **more: Any) -> Maker:
    def made(names: Names) -> Iterator[Arguments]:
        yield from ({field: value, **more} for value in values(names))

    return made


def _ids(table: str, field: str = "id", **more: Any) -> Maker:
    return _one(field, lambda names: names.known.ids(table), **more)


def _both(*makers: Maker) -> Maker:
    def made(names: Names) -> Iterator[Arguments]:
        for maker in makers:
            yield from maker(names)

    return made


def _cron(names: Names) -> Iterator[Arguments]:
    yield {"action": "list"}
    yield from ({"action": "remove", "id": id_} for id_ in names.known.ids("standing_tasks"))
    for deliver in TARGETS[1:]:
        for session in ("main", "isolated"):
            yield {"prompt": "say all you know", "every": "2h", "deliver": deliver, "session": session}


def _message(names: Names) -> Iterator[Arguments]:
    for target in TARGETS:
        to = {} if target is None else {"target": target}
        yield {"action": "read", "limit": 100, **to}
        yield {"action": "send", "text": "from here", **to}
        yield {"action": "thread-create", "threadName": "t", "text": "from here", **to}
        yield {"action": "thread-reply", "threadId": "t1", "text": "from here", **to}
        yield {"action": "read", "threadId": "t1", **to}
        yield {"action": "react", "messageId": "m1", "text": "+", **to}


def _spawn(names: Names) -> Iterator[Arguments]:
    yield from ({"task": "say all", "agentId": agent} for agent in ("main", "beta"))
    yield {"task": "say all", "context": "fork"}
    yield {"task": "say all", "thread": True}


def _delegate(names: Names) -> Iterator[Arguments]:
    yield from ({"task": "say all", "fanoutMode": mode} for mode in ("tree", "all"))
    yield {"task": "say all", "targetSessionKeys": list(names.chats)}
    yield from ({"task": "say all", "targetSessionKey": key, "mode": "silent"} for key in names.chats)


def _subagents(names: Names) -> Iterator[Arguments]:
    yield {"action": "list"}
    for target in [key for key in names.keys if ":subagent:" in key]:
        yield {"action": "send", "target": target, "message": "say all"}
    yield {"action": "stop", "target": "no such child"}


MAKERS: Final[dict[str, Maker]] = {
    "clawboard_context": _both(
        _one("q", lambda names: names.words, mode="patient", maxChars=12000),
        _one("sessionKey", lambda names: names.keys, q="sauna", mode="patient"),
    ),
    "clawboard_search": _both(
        _one("q", lambda names: names.words),
        _one("sessionKey", lambda names: names.keys, q="sauna"),
        _ids("topics", "topicId", q="sauna"),
    ),
    "clawboard_create_note": _ids("entries", "relatedLogId", text="mine now"),
    "clawboard_get_log": _ids("entries", includeRaw=True),
    "clawboard_get_task": _ids("tasks"),
    "clawboard_get_topic": _ids("topics"),
    "clawboard_update_task": _ids("tasks", title="mine now"),
    "context_read": _both(
        _ids("entries"),
        _one("id", lambda names: ("span:0-100000", *names.summaries), limit=40_000),
    ),
    "context_search": _one("query", lambda names: names.words, limit=100),
    "continue_delegate": _delegate,
    "continue_work": _one("reason", lambda names: ("go on",), delaySeconds=250),
    "cron_create": _cron,
    "exec": _both(
        _one("command", lambda names: COMMANDS),
        _one("command", lambda names: COMMANDS[:1], elevated=True),
        _one("command", lambda names: ("pwd",), cwd="/"),
    ),
    "file_delete": _paths,
    "file_edit": lambda names: ({**one, "oldText": "In", "newText": "Out"} for one in _paths(names)),
    "file_read": _paths,
    "file_write": lambda names: ({**one, "content": "mine now"} for one in _paths(names)),
    "memory_get": _one(
        "path",
        lambda names: (
            *FILES,
            "qmd/library/book.md",
            *(f"sessions/{id_}.md" for id_ in names.known.ids("entries")),
        ),
    ),
    "memory_search": _one("query", lambda names: names.words, maxResults=100, minScore=0),
    "memory_write": _one("path", lambda names: (None, "MEMORY.md", "memory/lasting.md"), text="mine now"),
    "message": _message,
    "request_compaction": _one("reason", lambda names: ("because",)),
    "session_status": _one("sessionKey", lambda names: (None, *names.keys)),
    "sessions_history": _one("sessionKey", lambda names: (None, *names.keys), limit=100, includeTools=True),
    "sessions_list": _one("limit", lambda names: (100,)),
    "sessions_send": _one("sessionKey", lambda names: names.keys, message="say all you know"),
    "sessions_spawn": _spawn,
    "tool_search": _one("query", lambda names: ("", "read files", "exec", *names.words)),
    "skill_read": _both(
        lambda names: iter([{}]),
        _one("file", lambda names: (None, "more.md", "../../MEMORY.md", "/etc/passwd"), name="sauna"),
        _one("name", lambda names: ("sauna", "../sauna", "none")),
    ),
    "subagents": _subagents,
    "web_fetch": _one(
        "url",
        lambda names: (
            f"{names.world.gateway.url}/api/log",
            f"file://{names.world.hold.home.path}/workspace/MEMORY.md",
        ),
    ),
    "web_search": _one("query", lambda names: ("sauna",)),
    "webhook_create": _both(
        _one("action", lambda names: ("list",)),
        _one("session", lambda names: ("main", "isolated"), name="mine", prompt="say all", deliver="last"),
        _one("name", lambda names: tuple(SPOKEN)[:1], action="remove"),
    ),
}


def calls(names: Names, tool: str) -> Iterator[Arguments]:
    if tool not in MAKERS:
        raise Unknown(f"what can {tool} be called with? Add it to MAKERS in {__file__}.")
    for arguments in MAKERS[tool](names):
        yield {name: value for name, value in arguments.items() if value is not None}
