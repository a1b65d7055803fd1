"""Session files of coding agents. Nobody promises their forms: what is not known in them is passed over.

What the person did not say is not theirs: summaries of compactions, what hooks and the host put in, the words
of subagents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.adopt.conversations import Conversation, Message
from holdfast.clock import parse_iso
from holdfast.coding_agents.hook import OWN_TOOLS, session_key, tool_key, tool_line
from holdfast.errors import InvalidInput, NotFound

CLAUDE: Final = "claude-code"
CODEX: Final = "codex"
HOMES: Final = {CLAUDE: "~/.claude/projects", CODEX: "~/.codex/sessions"}
MOST_LINE: Final = 8 * 1024 * 1024
# What hosts put into a message of the person's.
_PUT_IN: Final = re.compile(
    r"<(system-reminder|local-command-stdout|local-command-stderr|local-command-caveat|command-name"
    r"|command-message|command-args|bash-stdout|bash-stderr|environment_context|user_instructions"
    r"|turn_aborted|task-notification)\b[^>]*>.*?</\1>",
    re.DOTALL,
)
_WHOLLY: Final = re.compile(r"\s*(?:<[a-z_]*(?:instructions|context)>|# AGENTS\.md instructions|Caveat: The)")
_INTERRUPTED: Final = "[Request interrupted"
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")


def sessions_of(host: str, folder: Path) -> Iterator[Conversation]:
    """Every session that is kept under a folder, oldest file first."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint=f"Name that of {host}'s sessions.")
    read = claude_session if host == CLAUDE else codex_session
    files = [path for path in folder.rglob("*.jsonl") if path.is_file() and not path.is_symlink()]
    for path in sorted(files, key=lambda one: one.stat().st_mtime):
        found = read(lines_of(path), path.stem)
        if found is not None and found.messages:
            yield found


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file that are JSON objects; one that was cut off in writing is passed over."""
    with path.open("rb") as stream:
        while line := stream.readline(MOST_LINE):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found


def claude_session(lines: Iterable[Mapping[str, Any]], name: str) -> Conversation | None:
    """The branch of a session that it ended on, with the tool calls that were made on it."""
    by_id: dict[str, Mapping[str, Any]] = {}
    last: Mapping[str, Any] | None = None
    for line in lines:
        id_ = line.get("uuid")
        if isinstance(id_, str) and not line.get("isSidechain"):
            by_id[id_] = line
            last = line if line.get("type") in ("user", "assistant") else last
    if last is None:
        return None
    branch = _branch(by_id, last)
    outcomes = _outcomes(by_id.values())
    session, cwd = str(last.get("sessionId") or name), str(last.get("cwd") or "")
    messages = [one for line in branch for one in _claude_messages(line, session, outcomes)]
    facts = {"cwd": cwd or None, "gitBranch": last.get("gitBranch"), "version": last.get("version")}
    return Conversation(CLAUDE, session_key(CLAUDE, cwd, session), tuple(messages), source=facts)


def _branch(by_id: Mapping[str, Mapping[str, Any]], last: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """From the last leaf back to the root, over compactions; with the other parts of each reply on it."""
    on: set[str] = set()
    id_: object = last["uuid"]
    while isinstance(id_, str) and id_ in by_id and id_ not in on:
        on.add(id_)
        line = by_id[id_]
        id_ = line.get("parentUuid") or line.get("logicalParentUuid")
    replies = {_reply_id(by_id[one]) for one in on} - {None}
    return [line for one, line in by_id.items() if one in on or _reply_id(line) in replies]


def _reply_id(line: Mapping[str, Any]) -> object:
    message = line.get("message")
    return message.get("id") if line.get("type") == "assistant" and isinstance(message, dict) else None


def _outcomes(lines: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    """What each tool call came to, by its id."""
    return {
        str(block.get("tool_use_id")): block.get("content")
        for line in lines
        if line.get("type") == "user"
        for block in _blocks(line)
        if block.get("type") == "tool_result"
    }


def _blocks(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _claude_messages(
    line: Mapping[str, Any], session: str, outcomes: Mapping[str, object]
) -> Iterator[Message]:
    kind, id_, at = line.get("type"), str(line.get("uuid")), _time(line.get("timestamp"))
    if kind not in ("user", "assistant") or line.get("isCompactSummary") or line.get("isMeta"):
        return
    for number, block in enumerate(_blocks(line)):
        own = f"{id_}:{number}"
        if block.get("type") == "text" and kind == "assistant":
            yield Message(own, "assistant", str(block.get("text") or ""), at)
        elif block.get("type") == "text":
            said = spoken(str(block.get("text") or ""))
            if said:
                yield Message(own, "user", said, at)
        elif block.get("type") == "tool_use" and not str(block.get("name")).startswith(OWN_TOOLS):
            call = str(block.get("id"))
            text, raw = _done(str(block.get("name")), block.get("input"), outcomes.get(call))
            yield Message(own, "action", text, at, raw, tool_key(CLAUDE, session, call))


def spoken(text: str) -> str:
    """What of a person's message is the person's."""
    if _WHOLLY.match(text) or text.startswith(_INTERRUPTED):
        return ""
    return _PUT_IN.sub("", text).strip()


def _done(name: str, given: object, outcome: object) -> tuple[str, str]:
    """A tool call in a line, and whole."""
    return tool_line(name, given), json.dumps({"input": given, "response": outcome}, ensure_ascii=False)


def codex_session(lines: Iterable[Mapping[str, Any]], name: str) -> Conversation | None:
    """What a rollout file has of what was said and done; its events say the same again."""
    session, cwd = name, ""
    items: list[tuple[str, Mapping[str, Any], int | None]] = []
    for number, line in enumerate(lines):
        payload = line.get("payload")
        if not isinstance(payload, dict):
            continue
        if line.get("type") == "session_meta":
            session, cwd = str(payload.get("id") or session), str(payload.get("cwd") or cwd)
        elif line.get("type") == "response_item":
            # The place in the file is its name: the ids are the model's, and some models repeat them.
            items.append((str(number), payload, _time(line.get("timestamp"))))
    outputs = {str(p.get("call_id")): p.get("output") for _, p, _ in items if p.get("type") in _OUTPUTS}
    messages = [
        one
        for id_, item, at in items
        if (one := _codex_call(id_, item, at, session, outputs) or _codex_message(id_, item, at)) is not None
    ]
    key = session_key(CODEX, cwd, session)
    return Conversation(CODEX, key, tuple(messages), source={"cwd": cwd or None}) if messages else None


def _codex_call(
    id_: str, item: Mapping[str, Any], at: int | None, session: str, outputs: Mapping[str, object]
) -> Message | None:
    if item.get("type") not in ("function_call", "custom_tool_call"):
        return None
    if f"{item.get('namespace')}__".startswith(OWN_TOOLS):
        return None
    call = str(item.get("call_id"))
    given = _parsed(item["input"] if "input" in item else item.get("arguments"))
    text, raw = _done(str(item.get("name")), given, outputs.get(call))
    return Message(id_, "action", text, at, raw, tool_key(CODEX, session, call))


def _codex_message(id_: str, item: Mapping[str, Any], at: int | None) -> Message | None:
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, list):
        return None
    parts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    text = "\n".join(parts)
    if item.get("role") == "assistant":
        return Message(id_, "assistant", text, at)
    said = spoken(text) if item.get("role") == "user" else ""
    return Message(id_, "user", said, at) if said else None


def _parsed(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def _time(value: object) -> int | None:
    try:
        return parse_iso(value) if isinstance(value, str) else None
    except (ValueError, InvalidInput):
        return None
