"""What other assistants and memories give out: ChatGPT, Claude, mem0, Letta, Markdown vaults."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.adopt.conversations import Conversation, Kind, Message
from holdfast.adopt.report import Report
from holdfast.clock import parse_iso
from holdfast.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast

MOST_BYTES: Final = 4 * 1024**3
_LAST_SECOND: Final = 253_402_300_800  # the year 10,000
MOST_NOTE: Final = 16 * 1024 * 1024
_HIDDEN: Final = frozenset({".obsidian", ".git", ".trash", "node_modules", ".logseq"})


def conversations_in(origin: str, path: Path) -> Iterator[Conversation]:
    """The conversations of an export: a file, a folder or the archive as it was sent."""
    readers = {"chatgpt": _chatgpt, "claude": _claude, "mem0": _mem0, "letta": _letta}
    names = {"chatgpt": "conversations", "claude": "conversations"}
    found = False
    for text in _files(path, names.get(origin, "")):
        found = True
        yield from readers[origin](_parsed(text, path))
    if not found:
        raise NotFound(f"{path} holds no export of {origin}", hint="Name the file, folder or archive of it.")


def _files(path: Path, begins: str) -> Iterator[bytes]:
    """The JSON files of an export, by their names."""
    if not path.exists():
        raise NotFound(f"there is nothing at {path}")
    if path.is_dir():
        for file in sorted((*path.rglob(f"{begins}*.json"), *path.rglob("*.af"))):
            yield file.read_bytes()
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for info in sorted(archive.infolist(), key=lambda one: one.filename):
                name = Path(info.filename).name
                if (
                    info.file_size <= MOST_BYTES
                    and name.startswith(begins)
                    and name.endswith((".json", ".af"))
                ):
                    yield _unpacked(archive, info)
    else:
        yield path.read_bytes()


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    try:
        return archive.read(info)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, NotImplementedError) as error:
        raise InvalidInput(f"{info.filename} of the archive is damaged: {error}") from error


def _parsed(text: bytes, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from error


def _fields(value: object) -> Mapping[str, Any]:
    """An object's fields; what is none has none."""
    return value if isinstance(value, Mapping) else {}


def _id(*given: object) -> str:
    """The first of these that is an id; a message without one is known by its words."""
    return next((str(one) for one in given if isinstance(one, str | int) and one), "")


def _named(id_: str, *told: object) -> str:
    """A conversation's id, or one made of what it begins with."""
    return id_ or hashlib.sha256(repr(told).encode("utf-8", "replace")).hexdigest()[:16]


def _rows(value: Any, *names: str) -> list[Mapping[str, Any]]:
    """The objects of a list, or of the first of these fields that is one."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in names if isinstance(value.get(name), list)), [])
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _chatgpt(export: Any) -> Iterator[Conversation]:
    for one in _rows(export, "conversations"):
        nodes = one.get("mapping")
        if isinstance(nodes, Mapping):
            messages = [
                made for node in _path(nodes, one.get("current_node")) for made in _chatgpt_said(node)
            ]
            title = str(one.get("title") or "")
            id_ = _named(_id(one.get("conversation_id"), one.get("id")), title, *messages[:2])
            yield Conversation("chatgpt", f"chatgpt:{id_}", tuple(messages), title)


def _path(nodes: Mapping[str, Any], leaf: object) -> list[Mapping[str, Any]]:
    """The branch that a conversation stands on, from its root to its leaf; without a leaf, the longest."""
    if not isinstance(leaf, str) or leaf not in nodes:
        ends = [
            name for name, node in nodes.items() if isinstance(node, Mapping) and not node.get("children")
        ]
        leaf = max(ends, key=lambda name: len(_path(nodes, name)), default=None)
    found: list[Mapping[str, Any]] = []
    seen: set[object] = set()
    while isinstance(leaf, str) and leaf not in seen and isinstance(nodes.get(leaf), Mapping):
        seen.add(leaf)
        found.append(nodes[leaf])
        leaf = nodes[leaf].get("parent")
    return found[::-1]


def _chatgpt_said(node: Mapping[str, Any]) -> Iterator[Message]:
    message = node.get("message")
    if not isinstance(message, Mapping):
        return
    role, content = _fields(message.get("author")).get("role"), _fields(message.get("content"))
    hidden = _fields(message.get("metadata")).get("is_visually_hidden_from_conversation")
    if (
        role not in ("user", "assistant")
        or hidden
        or content.get("content_type") not in ("text", "multimodal_text")
    ):
        return
    parts = content.get("parts")
    text = "\n".join(_part(part) for part in parts).strip() if isinstance(parts, list) else ""
    at = message.get("create_time")
    when = int(at * 1000) if isinstance(at, int | float) and 0 < at < _LAST_SECOND else None
    if text:
        yield Message(
            _id(message.get("id"), node.get("id")), "user" if role == "user" else "assistant", text, when
        )


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("content_type") if isinstance(part, Mapping) else None
    return f"[{str(kind or 'attachment').replace('_asset_pointer', '')}]"


def _claude(export: Any) -> Iterator[Conversation]:
    for one in _rows(export, "conversations"):
        messages = [
            made for each in _rows(one.get("chat_messages")) if (made := _claude_said(each)) is not None
        ]
        if messages:
            title = str(one.get("name") or "")
            id_ = _named(_id(one.get("uuid")), title, *messages[:2])
            yield Conversation("claude", f"claude:{id_}", tuple(messages), title)


def _claude_said(message: Mapping[str, Any]) -> Message | None:
    parts = [
        str(block["text"]) for block in _rows(message.get("content")) if isinstance(block.get("text"), str)
    ]
    text = "\n".join(parts) or str(message.get("text") or "")
    for file in _rows(message.get("attachments")):
        text += f"\n\n[{file.get('file_name') or 'attachment'}]\n{file.get('extracted_content') or ''}"
    kind: Kind = "user" if message.get("sender") == "human" else "assistant"
    said = text.strip()
    return Message(_id(message.get("uuid")), kind, said, _time(message.get("created_at"))) if said else None


def _mem0(export: Any) -> Iterator[Conversation]:
    """What mem0 learned of somebody, as notes; one conversation for each user, agent or run."""
    of: dict[str, list[Message]] = {}
    for one in _rows(export, "results", "memories", "data"):
        text = one.get("memory") or one.get("text") or one.get("data")
        whose = next((str(one[name]) for name in ("user_id", "agent_id", "run_id") if one.get(name)), "all")
        if isinstance(text, str) and text.strip():
            at = _time(one.get("updated_at")) or _time(one.get("created_at"))
            raw = json.dumps(one.get("metadata"), ensure_ascii=False) if one.get("metadata") else None
            of.setdefault(whose, []).append(Message(_id(one.get("id")), "note", text, at, raw))
    for whose, messages in of.items():
        yield Conversation("mem0", f"mem0:{whose}", tuple(messages), f"mem0 of {whose}")


def _letta(export: Any) -> Iterator[Conversation]:
    """An agent file: its memory blocks and passages as notes, its messages as a conversation."""
    agents = _rows(export, "agents") or ([export] if isinstance(export, Mapping) else [])
    shared = _rows(export, "blocks") if isinstance(export, Mapping) and export.get("agents") else []
    for number, agent in enumerate(agents):
        name = _id(agent.get("id"), agent.get("name")) or str(number)
        blocks = [*(shared if number == 0 else ()), *_rows(agent, "core_memory", "blocks")]
        notes = [_block(one) for one in blocks if str(one.get("value") or "").strip()]
        notes += [
            Message(_id(one.get("id")), "note", str(one["text"]), _time(one.get("created_at")))
            for one in _rows(agent, "passages", "archival_memory")
            if one.get("text")
        ]
        said = [made for one in _rows(agent.get("messages")) if (made := _letta_said(one)) is not None]
        title = str(agent.get("name") or name)
        yield Conversation("letta", f"letta:{name}", (*notes, *said), title)


def _block(block: Mapping[str, Any]) -> Message:
    label = block.get("label") or "memory"
    return Message(f"block:{block.get('id') or label}", "note", f"{label}: {block['value']}")


def _letta_said(message: Mapping[str, Any]) -> Message | None:
    role = message.get("role")
    content = message.get("content") if message.get("content") is not None else message.get("text")
    parts = [str(one["text"]) for one in _rows(content) if isinstance(one.get("text"), str)]
    text = "\n".join(parts) if parts else content if isinstance(content, str) else ""
    if role not in ("user", "assistant") or not text.strip():
        return None
    own = _words(text) if role == "user" else text
    return (
        Message(
            _id(message.get("id")),
            "user" if role == "user" else "assistant",
            own,
            _time(message.get("created_at")),
        )
        if own
        else None
    )


def _words(text: str) -> str:
    """What the person said: Letta wraps it in JSON, beside events of its own that nobody said."""
    try:
        wrapped = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(wrapped, dict) or "type" not in wrapped:
        return text
    return str(wrapped.get("message") or "") if wrapped["type"] == "user_message" else ""


def _time(value: object) -> int | None:
    try:
        return parse_iso(value) if isinstance(value, str) else None
    except (ValueError, InvalidInput):
        return None


def take_vault(hold: Holdfast, folder: Path, report: Report, *, name: str, dry_run: bool) -> Report:
    """Copy the notes of a Markdown vault, as they are, into the agent's memory, where they are indexed."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    target = hold.workspace(hold.settings.default_agent_id) / "memory" / name
    for path in _notes(folder):
        own = target / path.relative_to(folder)
        report.begin(str(path.relative_to(folder)))
        if path.stat().st_size > MOST_NOTE:
            report.note("workspace", "refused", str(path), f"larger than {MOST_NOTE} bytes")
        elif not own.exists():
            report.count("workspace", "added")
            if not dry_run:
                own.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, own)
        elif own.read_bytes() == path.read_bytes():
            report.count("workspace", "unchanged")
        else:
            report.note(
                "workspace", "differs", str(own), "it was changed here or there; both stay as they are"
            )
    return report


def _notes(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder).parts
        if path.suffix.lower() not in (".md", ".markdown") or _HIDDEN.intersection(inner):
            continue
        if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(folder.resolve()):
            yield path
