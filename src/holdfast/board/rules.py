"""What becomes of an entry as it comes in: its scope, and whether it is anyone's request at all.

`decide` is pure. Scope comes from the first of: a board key, the row's own topic, `source.boardScope*`, the
recorded link of exactly this child session, the entry that a note is about. Nothing else gives scope: not
what the agent did last, and not what any other session did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.board import noise
from holdfast.board.sanitise import Cleaned, clean
from holdfast.errors import InvalidInput
from holdfast.keys import BoardTaskKey, ParsedKey, board_key_of
from holdfast.log import Classification, EntryDraft, EntryType

Origin = Literal["board_key", "row", "source", "link", "related", "none"]

CONTROL_PLANE: Final = "filtered_control_plane"
CRON_EVENT: Final = "filtered_cron_event"
SUBAGENT_SCAFFOLD: Final = "filtered_subagent_scaffold"
UNLINKED_SUBAGENT: Final = "filtered_unlinked_subagent"
TOOL_ACTIVITY: Final = "filtered_tool_activity"
UNANCHORED_TOOL_ACTIVITY: Final = "filtered_unanchored_tool_activity"
NON_SEMANTIC: Final = "filtered_non_semantic"
MEMORY_ACTION: Final = "filtered_memory_action"
COMMAND: Final = "filtered_command"
NOT_STORED: Final = "filtered_not_stored"
INJECTION_NOISE: Final = "context_injection_noise"
PAYLOAD_NOISE: Final = "classifier_payload_noise"
CONVERSATION_NOISE: Final = "conversation_noise"
UNKNOWN_SCOPE: Final = "unknown_board_scope"

NOT_SEMANTIC: Final = frozenset(
    (
        CONTROL_PLANE,
        CRON_EVENT,
        SUBAGENT_SCAFFOLD,
        TOOL_ACTIVITY,
        UNANCHORED_TOOL_ACTIVITY,
        NON_SEMANTIC,
        MEMORY_ACTION,
        COMMAND,
        NOT_STORED,
        INJECTION_NOISE,
        PAYLOAD_NOISE,
        UNLINKED_SUBAGENT,
        CONVERSATION_NOISE,
    )
)
_SCOPE_KEYS: Final = (
    "boardScopeTopicId",
    "boardScopeTaskId",
    "boardScopeSpaceId",
    "boardScopeKind",
    "boardScopeLock",
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where on the board an entry lies, and what says so. A locked one is never changed by sorting."""

    topic_id: str | None = None
    task_id: str | None = None
    space_id: str | None = None
    origin: Origin = "none"
    locked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the store knows of the things that a draft names; gathered beforehand, bounded."""

    topics: Mapping[str, str] = field(default_factory=dict)
    """Topics that there are, with the space that owns each."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Tasks that there are, with the topic of each."""
    spaces: frozenset[str] = frozenset()
    link: Scope | None = None
    """The scope that was linked to exactly this child session when it was spawned."""
    awaits_link: bool = False
    """Whether it was spawned for a request that is itself still to be sorted."""
    related: Scope | None = None
    ignored_prefixes: tuple[str, ...] = ("internal:clawboard-classifier:",)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to store: `status` pending goes on to the classifier, all others are final."""

    status: Classification
    content: str
    scope: Scope
    code: str | None = None
    reason: str = ""


def decide(draft: EntryDraft, facts: Facts) -> Decision:
    """The rules in their order; the first that speaks decides."""
    source = draft.source or {}
    key = noise.key_of(draft.session_key)
    tool = noise.tool_of(draft.content, source, draft.role) if draft.type is EntryType.ACTION else None
    text = Cleaned(draft.content, injected=False) if tool is not None else clean(draft.content)
    scope, missing = _scope(draft, facts)
    found = _filtered(draft, facts, text, scope, key, tool) or _lineage(facts, key, scope, missing)
    if found is None:
        return Decision(_open_status(draft, scope), text.text, scope, draft.code)
    status, code, reason = found
    if status is Classification.FAILED:
        scope = Scope(space_id=scope.space_id)
    return Decision(status, text.text, scope, code, reason)


def normalised_source(source: Mapping[str, Any] | None, scope: Scope) -> dict[str, Any] | None:
    """The source as sent; where a board's scope holds, it stands in place of what was claimed.

    A claim that came to nothing stays readable but has no effect: see `without_claims`.
    """
    if scope.origin not in ("board_key", "source", "link"):
        return None if source is None else dict(source)
    held = {
        "boardScopeTopicId": scope.topic_id,
        "boardScopeTaskId": scope.task_id,
        "boardScopeSpaceId": scope.space_id,
        "boardScopeKind": "task" if scope.task_id else ("topic" if scope.topic_id else None),
        "boardScopeLock": scope.locked or None,
    }
    return without_claims(source) | {name: value for name, value in held.items() if value is not None}


def without_claims(source: Mapping[str, Any] | None) -> dict[str, Any]:
    """The source without `boardScope*`: of a stored entry, its own fields say where it lies."""
    return {name: value for name, value in (source or {}).items() if name not in _SCOPE_KEYS}


_Found = tuple[Classification, str, str]


def _filtered(
    draft: EntryDraft, facts: Facts, text: Cleaned, scope: Scope, key: ParsedKey | None, tool: str | None
) -> _Found | None:
    if (draft.session_key or "").startswith(facts.ignored_prefixes):
        return Classification.FAILED, PAYLOAD_NOISE, "the session is internal to a classifier"
    if draft.type in (EntryType.SYSTEM, EntryType.IMPORT):
        return Classification.CLASSIFIED, NON_SEMANTIC, f"entries of type {draft.type} say nothing to sort"
    if draft.type is EntryType.ACTION:
        return None if tool is None else _tool_trace(tool, scope)
    if draft.type is EntryType.CONVERSATION:
        channel = str((draft.source or {}).get("channel") or "").lower()
        return _conversation(draft, text, channel, key)
    return None


def _tool_trace(tool: str, scope: Scope) -> _Found:
    if noise.is_memory_tool(tool):
        return Classification.CLASSIFIED, MEMORY_ACTION, f"{tool} looks something up and is no content"
    if scope.topic_id is not None:
        return Classification.CLASSIFIED, TOOL_ACTIVITY, f"a tool trace, anchored by {scope.origin}"
    return Classification.FAILED, UNANCHORED_TOOL_ACTIVITY, "a tool trace that nothing ties to a topic"


def _conversation(draft: EntryDraft, text: Cleaned, channel: str, key: ParsedKey | None) -> _Found | None:
    words = text.text.strip()
    if noise.is_of_the_runtime(draft.source, draft.role, words):
        return Classification.CLASSIFIED, NON_SEMANTIC, "the runtime's own words or a return, no person's"
    looks = "" if noise.is_of_a_person(draft.source) else words
    if noise.is_cron(channel, key, looks):
        return Classification.FAILED, CRON_EVENT, "a scheduled event, not a person's request"
    if noise.is_control_plane(channel, looks):
        return Classification.FAILED, CONTROL_PLANE, "a heartbeat or upkeep"
    if noise.is_scaffold(looks):
        return Classification.FAILED, SUBAGENT_SCAFFOLD, "the frame of a subagent's task"
    if noise.is_classifier_payload(looks):
        return Classification.FAILED, PAYLOAD_NOISE, "a classifier's own payload"
    if not words and text.injected:
        return Classification.FAILED, INJECTION_NOISE, "nothing but injected context"
    if not words:
        return Classification.FAILED, CONVERSATION_NOISE, "no words"
    if draft.role != "assistant" and noise.is_command(words):
        return Classification.CLASSIFIED, COMMAND, "a command to the host"
    return None


def _lineage(facts: Facts, key: ParsedKey | None, scope: Scope, missing: str | None) -> _Found | None:
    """Only what descends from a person's request is sorted."""
    if missing is not None:
        return Classification.FAILED, UNKNOWN_SCOPE, f"the board chat names {missing}, which is not there"
    unlinked = scope.topic_id is None and not facts.awaits_link
    if key is not None and key.is_subagent and unlinked:
        return Classification.FAILED, UNLINKED_SUBAGENT, "a subagent's session that no spawn links to a topic"
    return None


def _open_status(draft: EntryDraft, scope: Scope) -> Classification:
    """A note with its topic needs no sorting; what the caller has already sorted stays so."""
    if draft.type is EntryType.NOTE and scope.topic_id is not None:
        return Classification.CLASSIFIED
    return draft.status


def _scope(draft: EntryDraft, facts: Facts) -> tuple[Scope, str | None]:
    """The scope of a draft, and what its board key names in vain."""
    locked, missing = _board_lock(draft.session_key, facts)
    if locked is not None or missing is not None:
        return locked or Scope(space_id=_space(draft, facts)), missing
    source = draft.source or {}
    claimed = (_text(source, "boardScopeTopicId"), _text(source, "boardScopeTaskId"))
    for topic, task, origin in ((draft.topic_id, draft.task_id, "row"), (*claimed, "source")):
        found = _placed(topic, task, facts, "row" if origin == "row" else "source")
        if found is not None:
            return found, None
    if facts.link is not None and (placed := _placed(facts.link.topic_id, facts.link.task_id, facts, "link")):
        return placed, None
    if draft.type is EntryType.NOTE and facts.related is not None:
        placed = _placed(facts.related.topic_id, facts.related.task_id, facts, "related")
        if placed is not None:
            return placed, None
    return Scope(space_id=_space(draft, facts)), None


def _board_lock(session_key: str | None, facts: Facts) -> tuple[Scope | None, str | None]:
    try:
        key = board_key_of(session_key)
    except InvalidInput:
        return None, None
    if key is None:
        return None, None
    if key.topic_id not in facts.topics:
        return None, f"topic {key.topic_id!r}"
    task = key.task_id if isinstance(key, BoardTaskKey) else None
    if task is not None and facts.tasks.get(task) != key.topic_id:
        return None, f"task {task!r}"
    return Scope(key.topic_id, task, facts.topics[key.topic_id], "board_key", locked=True), None


def _placed(topic: str | None, task: str | None, facts: Facts, origin: Origin) -> Scope | None:
    """The topic given, or that of the task; a task of another topic is left out. The topic has the space."""
    if topic is None and task is not None:
        topic = facts.tasks.get(task)
    if topic is None or topic not in facts.topics:
        return None
    held = task if task is not None and facts.tasks.get(task) == topic else None
    return Scope(topic, held, facts.topics[topic], origin, locked=origin != "related")


def _space(draft: EntryDraft, facts: Facts) -> str | None:
    claimed = (draft.space_id, _text(draft.source or {}, "boardScopeSpaceId"))
    linked = None if facts.link is None else facts.link.space_id
    return next((one for one in (*claimed, linked) if one is not None and one in facts.spaces), None)


def _text(source: Mapping[str, Any], name: str) -> str | None:
    value = source.get(name)
    return value.strip() or None if isinstance(value, str) else None
