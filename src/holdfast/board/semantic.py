"""The text by which an entry or a topic may be found: what was said, and nothing that a machine added.

The search index, the classifier and the continuity block all read texts through these functions. Digests and
reserved tags are shown as context but never found, so that nothing feeds on itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from holdfast.board import noise
from holdfast.board.rules import MEMORY_ACTION, NOT_SEMANTIC, TOOL_ACTIVITY, UNANCHORED_TOOL_ACTIVITY
from holdfast.board.sanitise import sanitise
from holdfast.log import EntryType

_SILENT: Final[frozenset[str]] = frozenset((EntryType.SYSTEM, EntryType.IMPORT))
_ACTION: Final = EntryType.ACTION.value
_CONVERSATION: Final = EntryType.CONVERSATION.value
_TRACES = frozenset((TOOL_ACTIVITY, UNANCHORED_TOOL_ACTIVITY, MEMORY_ACTION))


class Said(Protocol):
    """As much of an entry as tells what it says."""

    @property
    def type(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def code(self) -> str | None: ...
    @property
    def role(self) -> str | None: ...
    @property
    def session_key(self) -> str | None: ...
    @property
    def source(self) -> Mapping[str, Any] | None: ...


def semantic_text(entry: Said, *, tool_traces: bool = False) -> str:
    """What an entry says, or "" when it is none that should be found.

    Rows from before the rules are judged by their text, so that they read as if they had been filtered.
    """
    code, kind = entry.code, entry.type
    if code in NOT_SEMANTIC and not (tool_traces and code in _TRACES):
        return ""
    if kind in _SILENT:
        return ""
    if kind == _ACTION:
        trace = noise.tool_of(entry.content, entry.source or {}, entry.role) is not None
        return entry.content if tool_traces or not trace else ""
    text = sanitise(entry.content).strip()
    return "" if kind == _CONVERSATION and _is_noise(entry, text) else text


def topic_text(name: str, description: str | None, tags: Iterable[str]) -> str:
    """The text of a topic or a task for the index; its digest and its reserved tags are left out."""
    plain = [tag for tag in tags if not tag.strip().lower().startswith("system:")]
    return "\n".join(part for part in (name, description or "", " ".join(plain)) if part)


def _is_noise(entry: Said, text: str) -> bool:
    channel = str((entry.source or {}).get("channel") or "").lower()
    if noise.is_plain(channel, entry.session_key, text):
        return False
    return (
        noise.is_scaffold(text)
        or noise.is_control_plane(channel, text)
        or noise.is_cron(channel, noise.key_of(entry.session_key), text)
        or noise.is_classifier_payload(text)
    )
