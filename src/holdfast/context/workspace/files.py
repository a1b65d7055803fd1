"""The workspace's files: which a session is given and in which order, and how they are read.

They are cached by inode, times and size, never read from outside the workspace, and fitted into their
budgets; the daily notes and the agent's identity are among them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from holdfast.clock import Millis
from holdfast.config import AgentEntry
from holdfast.context.messages import Trust
from holdfast.frontmatter import BadFrontmatter, read_frontmatter
from holdfast.keys import (
    AgentKey,
    BoardTaskKey,
    BoardTopicKey,
    ChannelBucketKey,
    ChannelKey,
    DirectKey,
    GroupKey,
    MainKey,
    SubagentKey,
    parse_key,
)
from holdfast.log import FOR_OWNER

ORDER: Final = (
    "IDENTITY.md",
    "SOUL.md",
    "USER.md",
    "AGENTS.md",
    "TOOLS.md",
    "MEMORY.md",
    "HEARTBEAT.md",
    "BOOTSTRAP.md",
    "BOOT.md",
)
REQUIRED: Final = frozenset({"AGENTS.md", "TOOLS.md"})
# Given for one occasion only, so they ride in the carrier and leave the stable prefix alone.
OCCASIONAL: Final = frozenset({"HEARTBEAT.md", "BOOTSTRAP.md", "BOOT.md"})
# Instructions, which every chat is answered by; and what the owner may open to chats that others are in.
FOR_ALL: Final = frozenset({"AGENTS.md"})
OPENABLE: Final = frozenset({"IDENTITY.md", "SOUL.md", "TOOLS.md"})
_PERSONA: Final = frozenset({"IDENTITY.md", "SOUL.md", "USER.md"})
_ALWAYS: Final = frozenset({"AGENTS.md", "TOOLS.md"})


class SessionKind(StrEnum):
    MAIN = "main"
    PRIVATE = "private"
    SHARED = "shared"
    SUBAGENT = "subagent"
    OTHER = "other"


class Occasion(StrEnum):
    MESSAGE = "message"
    HEARTBEAT = "heartbeat"
    HEARTBEAT_LIGHT = "heartbeat-light"
    BOOT = "boot"
    FLUSH = "flush"


def kind_of(session_key: str, audience: str) -> SessionKind:
    """The kind of a session, by its key and by who hears it.

    A direct chat with somebody else than the owner is as shared as a group; a group that only the owner reads
    is as private as a direct chat.
    """
    kind = _kind(session_key)
    if audience == FOR_OWNER:
        return SessionKind.PRIVATE if kind is SessionKind.SHARED else kind
    return SessionKind.SHARED if kind in (SessionKind.MAIN, SessionKind.PRIVATE) else kind


def _kind(session_key: str) -> SessionKind:
    match parse_key(session_key):
        case SubagentKey():
            return SessionKind.SUBAGENT
        case MainKey():
            return SessionKind.MAIN
        case DirectKey():
            return SessionKind.PRIVATE
        case GroupKey() | ChannelKey() | ChannelBucketKey():
            return SessionKind.SHARED
        case AgentKey() | BoardTopicKey() | BoardTaskKey():
            return SessionKind.OTHER
    return SessionKind.OTHER


def names_for(
    kind: SessionKind,
    occasion: Occasion = Occasion.MESSAGE,
    *,
    first_session: bool = False,
    subagent_files: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The names of the files to inject, in order.

    Subagents get AGENTS and TOOLS, or the files that are configured for them: of the persona's too, as older
    hosts did, and of nothing that is private.
    """
    if occasion is Occasion.HEARTBEAT_LIGHT:
        return ("HEARTBEAT.md",)
    wanted = set(_ALWAYS)
    if kind is SessionKind.SUBAGENT and subagent_files is not None:
        wanted = {*subagent_files} & (_ALWAYS | _PERSONA)
    if kind is not SessionKind.SUBAGENT:
        wanted |= _PERSONA
    if kind in (SessionKind.MAIN, SessionKind.PRIVATE):
        wanted.add("MEMORY.md")
        if first_session and occasion is Occasion.MESSAGE:
            wanted.add("BOOTSTRAP.md")
    if kind is not SessionKind.SUBAGENT:
        if occasion is Occasion.HEARTBEAT:
            wanted.add("HEARTBEAT.md")
        if occasion is Occasion.BOOT:
            wanted.add("BOOT.md")
    return tuple(name for name in ORDER if name in wanted)


def trust_of(name: str) -> Trust:
    """Workspace files are the operator's word; what the agent itself writes into is not."""
    base = name.rsplit("/", 1)[-1]
    return Trust.MODEL if base == "MEMORY.md" or name.startswith("memory/") else Trust.OPERATOR


Problem = Literal["missing", "binary", "outside", "unreadable", "not_a_file"]

MOST_BYTES: Final = 1_000_000
_SNIFF: Final = 8192
_MOST_CACHED: Final = 512

_Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file, or why there is none. `left_out` bytes lie between head and tail."""

    name: str
    text: str = ""
    problem: Problem | None = None
    left_out: int = 0


class FileReader:
    """Sees every edit at the next read: a file is read again when any of its stamps differs."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[_Stamp, FileText]] = {}

    def read(self, workspace: Path, name: str) -> FileText:
        path = workspace / name
        try:
            real = path
            if os.sep in name or path.is_symlink():  # a plain file of the folder itself lies within it
                real = path.resolve()
                if not real.is_relative_to(workspace.resolve()):
                    return FileText(name, problem="outside")
            found = real.stat()
        except FileNotFoundError:
            return FileText(name, problem="missing")
        except (OSError, RuntimeError):
            return FileText(name, problem="unreadable")
        if not stat.S_ISREG(found.st_mode):
            return FileText(name, problem="not_a_file")
        stamp = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        text = _load(real, name)
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        self._known[path] = (stamp, text)
        return text


def _load(path: Path, name: str) -> FileText:
    """The whole file, or of a huge one the head and the tail."""
    try:
        # No waiting for a pipe that was put in place of the file, and no following of a late symlink.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            size = os.fstat(handle).st_size
            data = file.read(MOST_BYTES)
            left_out = 0
            if size > 2 * MOST_BYTES:
                left_out = size - 2 * MOST_BYTES
                file.seek(size - MOST_BYTES)
            data += b"\n" * bool(left_out) + file.read(MOST_BYTES)
    except OSError:
        return FileText(name, problem="unreadable")
    if b"\0" in data[:_SNIFF]:
        return FileText(name, problem="binary")
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\0", "\ufffd")
    return FileText(name, text, left_out=left_out)


def zone_of(name: str) -> tzinfo:
    """The user's zone: `local` is this machine's."""
    if name == "local":
        return datetime.now(UTC).astimezone().tzinfo or UTC
    return ZoneInfo(name)


def local_time(now: Millis, zone: str) -> datetime:
    return datetime.fromtimestamp(now / 1000, zone_of(zone))


def daily_path(now: Millis, zone: str) -> str:
    """Today's file, as a path within the workspace."""
    return f"memory/{local_time(now, zone):%Y-%m-%d}.md"


def startup_paths(now: Millis, zone: str, days: int = 2) -> list[str]:
    """The files of the last days, today's last: the order in which they are read."""
    today = local_time(now, zone)
    return [f"memory/{today - timedelta(days=ago):%Y-%m-%d}.md" for ago in reversed(range(days))]


_HEAD_SHARE: Final = 0.75
_SMALLEST: Final = 200

_PROBLEMS: Final = {
    "missing": "{name} is missing from the workspace.",
    "binary": "{name} is not text and was left out.",
    "outside": "{name} lies outside the workspace and was refused.",
    "unreadable": "{name} cannot be read.",
    "not_a_file": "{name} is not a regular file.",
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """A file as it is injected. `chars` is its own length, `text` what is left of it."""

    name: str
    text: str
    chars: int
    warning: str | None = None


def fit(files: Sequence[FileText], *, per_file: int, total: int) -> list[Fitted]:
    """Each file within its limit and all within the total; required ones are served first."""
    left = total
    grants: dict[str, int] = {}
    for file in sorted(files, key=lambda f: f.name not in REQUIRED):
        grants[file.name] = min(len(file.text), per_file, left)
        left -= grants[file.name]
    return [_fitted(file, grants[file.name], per_file) for file in files if _wanted(file)]


def _wanted(file: FileText) -> bool:
    """An optional file that is not there is no news."""
    return file.problem != "missing" or file.name in REQUIRED


def _fitted(file: FileText, grant: int, per_file: int) -> Fitted:
    if file.problem is not None:
        words = _PROBLEMS[file.problem].format(name=file.name)
        return Fitted(file.name, f"[{words}]" if file.name in REQUIRED else "", 0, words)
    chars = len(file.text) + file.left_out
    if grant >= len(file.text) and not file.left_out:
        return Fitted(file.name, file.text, chars)
    cause = "bootstrapMaxChars" if grant >= min(per_file, len(file.text)) else "bootstrapTotalMaxChars"
    text = cut(file.text, grant, file.name, chars)
    warning = f"{file.name} has {chars:,} characters; {len(text):,} are shown ({cause})."
    return Fitted(file.name, text, chars, warning)


def cut(text: str, limit: int, name: str, chars: int | None = None) -> str:
    """At most `limit` characters: the head, a marker that says what is missing, and the tail."""
    whole = len(text) if chars is None else chars
    if len(text) <= limit and whole == len(text):
        return text
    marker = (
        f"\n[… {name} is cut here: {whole:,} characters, limit {limit:,}; read the file for the rest …]\n"
    )
    room = limit - len(marker)
    if limit < _SMALLEST or room <= 0:
        return marker.strip()[: max(0, limit)]
    head = int(room * _HEAD_SHARE)
    tail = room - head
    return text[:head] + marker + text[len(text) - tail :]


_LISTED: Final = re.compile(r"[-*]\s+\**([A-Za-z]+)\**\s*:\**\s*(.*)")
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    name: str | None = None
    emoji: str | None = None
    creature: str | None = None
    vibe: str | None = None
    theme: str | None = None
    avatar: str | None = None


def identity_of(text: str) -> AgentIdentity:
    """What IDENTITY.md says, in its frontmatter or else in a list (`- Name: Logic`), as the template has it;
    anything missing, empty or strange is None."""
    values, body = _parts(text)
    listed = {m[1].lower(): m[2] for m in map(_LISTED.match, body.splitlines()) if m is not None}
    asked = {name: value for name, value in listed.items() if not value.startswith("(")}
    found = {key.lower(): value for key, value in values.items()}
    names = (field.name for field in fields(AgentIdentity))
    return AgentIdentity(**{name: _plain(found.get(name)) or _plain(asked.get(name)) for name in names})


def configured_identity(agent: AgentEntry) -> AgentIdentity:
    """What the config says of an agent; `identity.name` before `name`."""
    own = agent.identity
    return AgentIdentity(
        name=own.name or agent.name or None,
        emoji=own.emoji or None,
        creature=own.creature or None,
        vibe=own.vibe or None,
        theme=own.theme or None,
        avatar=own.avatar or None,
    )


def merged(first: AgentIdentity, other: AgentIdentity) -> AgentIdentity:
    """Field by field the first, and the other where it says nothing."""
    names = (f.name for f in fields(AgentIdentity))
    return AgentIdentity(**{name: getattr(first, name) or getattr(other, name) for name in names})


def _parts(text: str) -> tuple[Mapping[str, Any], str]:
    """The frontmatter, if any can be read, and the rest; `holdfast doctor` tells of a bad one."""
    try:
        read = read_frontmatter(text)
    except BadFrontmatter:
        return {}, text
    return read.values, read.body


def _plain(value: Any) -> str | None:
    return value.strip()[:_LONGEST] or None if isinstance(value, str) else None
