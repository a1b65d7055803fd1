"""Session keys: which conversation a message belongs to, read and built in one place.

    agent:<agentId>:main                                  MainKey
    agent:<agentId>:subagent:<uuid>                       SubagentKey
    agent:<agentId>:[<channel>:[<account>:]]dm:<peerId>   DirectKey (`direct` is read and kept too)
    agent:<agentId>:<channel>:group:<groupId>             GroupKey
    agent:<agentId>:<channel>:channel:<id>                ChannelKey
    agent:<agentId>:<anything else>                       AgentKey (cron runs, hooks, ...)
    any of the above with `:thread:<threadId>` behind it
    clawboard:topic:<topicId>                             BoardTopicKey
    clawboard:task:<topicId>:<taskId>                     BoardTaskKey
    channel:<channelId>[|thread:<threadId>]               ChannelBucketKey
    <conversation id>[|thread:<threadId>]                 ConversationKey

A key is at most 512 printable characters, without blanks at its ends. Peer, group, channel and
thread ids may hold colons, `@`, `+` and inner spaces, as the ids of WhatsApp, Matrix and Teams do;
their case is kept. Agent ids are lower-cased, which is the only thing that reading a key ever
changes. In keys with a known prefix no segment between colons may be empty; a conversation id is
opaque. The first `:thread:` or `|thread:` begins the thread id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import ClassVar, Literal, NewType, TypeAlias

from holdfast.errors import InvalidInput
from holdfast.ids import AgentId

SessionKey = NewType("SessionKey", str)
ChatType = Literal["direct", "group", "room"]
DirectWord = Literal["dm", "direct"]

MAX_KEY_LENGTH = 512
_THREAD = ":thread:"
_CONVERSATION_THREAD = "|thread:"
_RESERVED = ("agent:", "clawboard:", "channel:")
NOT_CHANNELS = frozenset({"main", "subagent", "cron", "hook", "dm", "direct", "group", "channel"})
_HOSTS = frozenset({"openclaw", "clawboard"})
"""They log what they do as their own; the ids of rooms in it are some service's."""
_PROVIDER = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_BOARD = re.compile(r"(?:agent:[^:]+:)?(?P<board>clawboard:.*?)(?:[|:]thread:.*)?")
_BOARD_FORMS = "Use clawboard:topic:<topicId> or clawboard:task:<topicId>:<taskId>."
_FORMS = "Keys look like agent:main:main, agent:main:discord:channel:42 or clawboard:topic:<id>."


@dataclass(frozen=True, slots=True)
class _Key:
    """A key that would not read back as itself cannot be built."""

    is_subagent: ClassVar[bool] = False
    is_board: ClassVar[bool] = False
    chat_type: ClassVar[ChatType | None] = None

    def __post_init__(self) -> None:
        kind, parts = _split(str(self))
        own = tuple(getattr(self, part.name) for part in fields(self))
        if kind is not type(self) or parts != own:
            raise _refused(str(self), f"its parts do not make a {type(self).__name__}", _FORMS)

    @property
    def key(self) -> SessionKey:
        return SessionKey(str(self))


@dataclass(frozen=True, slots=True)
class _AgentScoped(_Key):
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class MainKey(_AgentScoped):
    thread: str | None = None
    channel: ClassVar[None] = None
    chat_type: ClassVar[ChatType | None] = "direct"

    def __str__(self) -> str:
        return _agent_text(self.agent_id, self.thread, "main")


@dataclass(frozen=True, slots=True)
class SubagentKey(_AgentScoped):
    """`child` is a UUID when we mint it; a nested subagent's longer rest is kept whole."""

    child: str
    thread: str | None = None
    channel: ClassVar[None] = None
    is_subagent: ClassVar[bool] = True

    def __str__(self) -> str:
        return _agent_text(self.agent_id, self.thread, "subagent", self.child)


@dataclass(frozen=True, slots=True)
class DirectKey(_AgentScoped):
    """A private chat; without a channel one person has one session on all channels."""

    channel: str | None
    peer: str
    account: str | None = None
    word: DirectWord = "dm"
    thread: str | None = None
    chat_type: ClassVar[ChatType | None] = "direct"

    def __str__(self) -> str:
        parts = (self.channel, self.account, self.word, self.peer)
        return _agent_text(self.agent_id, self.thread, *parts)


@dataclass(frozen=True, slots=True)
class GroupKey(_AgentScoped):
    channel: str
    group: str
    thread: str | None = None
    chat_type: ClassVar[ChatType | None] = "group"

    def __str__(self) -> str:
        return _agent_text(self.agent_id, self.thread, self.channel, "group", self.group)


@dataclass(frozen=True, slots=True)
class ChannelKey(_AgentScoped):
    channel: str
    room: str
    thread: str | None = None
    chat_type: ClassVar[ChatType | None] = "room"

    def __str__(self) -> str:
        return _agent_text(self.agent_id, self.thread, self.channel, "channel", self.room)


@dataclass(frozen=True, slots=True)
class AgentKey(_AgentScoped):
    """Any other session of an agent, such as `cron:<job>:run:<uuid>`."""

    rest: str
    thread: str | None = None
    channel: ClassVar[None] = None

    def __str__(self) -> str:
        return _agent_text(self.agent_id, self.thread, self.rest)


@dataclass(frozen=True, slots=True)
class BoardTopicKey(_Key):
    topic_id: str
    agent_id: ClassVar[None] = None
    channel: ClassVar[None] = None
    thread: ClassVar[None] = None
    is_board: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"clawboard:topic:{self.topic_id}"


@dataclass(frozen=True, slots=True)
class BoardTaskKey(_Key):
    topic_id: str
    task_id: str
    agent_id: ClassVar[None] = None
    channel: ClassVar[None] = None
    thread: ClassVar[None] = None
    is_board: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"clawboard:task:{self.topic_id}:{self.task_id}"


@dataclass(frozen=True, slots=True)
class ChannelBucketKey(_Key):
    """The broad last resort: all that came in on one channel."""

    channel: str
    thread: str | None = None
    agent_id: ClassVar[None] = None
    chat_type: ClassVar[ChatType | None] = "room"

    def __str__(self) -> str:
        return _threaded(f"channel:{self.channel}", self.thread, _CONVERSATION_THREAD)


@dataclass(frozen=True, slots=True)
class ConversationKey(_Key):
    conversation: str
    thread: str | None = None
    agent_id: ClassVar[None] = None
    channel: ClassVar[None] = None

    def __str__(self) -> str:
        return _threaded(self.conversation, self.thread, _CONVERSATION_THREAD)


BoardKey: TypeAlias = BoardTopicKey | BoardTaskKey
ParsedKey: TypeAlias = (
    MainKey
    | SubagentKey
    | DirectKey
    | GroupKey
    | ChannelKey
    | AgentKey
    | BoardTopicKey
    | BoardTaskKey
    | ChannelBucketKey
    | ConversationKey
)
_Parts: TypeAlias = tuple[type[ParsedKey], tuple[str | None, ...]]


@lru_cache(maxsize=4096)
def parse_key(text: str) -> ParsedKey:
    """Read a key; `str()` of the result is the same text, but for the case of the agent id."""
    kind, parts = _split(text)
    return kind(*parts)  # type: ignore[arg-type]


def canonical_key(text: str) -> SessionKey:
    """The one form of a key that came from outside, or InvalidInput."""
    return parse_key(text).key


def canonical_agent_id(text: str) -> AgentId:
    """An agent id in its one form: lower-case letters, digits, `_` and `-`, at most 64."""
    if not _AGENT_ID.fullmatch(text):
        raise InvalidInput(
            f"not an agent id: {text[:80]!r}",
            hint="Use up to 64 letters, digits, '-' and '_', beginning with a letter or digit.",
        )
    return AgentId(text.lower())


def board_key_of(text: str | None) -> BoardKey | None:
    """The board chat that a key names, if any.

    Hosts put `agent:<id>:` before it and a thread behind it; both say nothing about the board.
    """
    if not text:
        return None
    _check_text(text)
    match = _BOARD.fullmatch(text)
    parsed = parse_key(match["board"]) if match else None
    return parsed if isinstance(parsed, BoardTopicKey | BoardTaskKey) else None


def effective_key(
    *,
    board_key: str | None = None,
    session_key: str | None = None,
    conversation_id: str | None = None,
    thread_id: str | None = None,
    channel_id: str | None = None,
    provider: str | None = None,
    agent_id: str | None = None,
) -> SessionKey:
    """The continuity bucket of a message, so that no chat is taken for another.

    A board chat wins wherever its key arrives. Then come the provider's conversation (with its
    thread), the session key as given, and last the channel as a whole. A room or group that only its
    provider's own id names (`channel:4242`) is, where provider and agent are known, the session that
    the agent has there (`agent:main:discord:channel:4242`); a session key that comes with it says whose.
    """
    for candidate in (board_key, session_key, conversation_id):
        if found := board_key_of(candidate):
            return found.key
    if board_key:
        raise _refused(board_key, "it names no board chat", _BOARD_FORMS)
    if conversation_id:
        agent_id = _agent_in(session_key) or agent_id
        return _of_agent(_with_thread(conversation_id, thread_id), provider, agent_id).key
    if session_key:
        return _of_agent(parse_key(session_key), provider, agent_id).key
    if channel_id:
        return _of_agent(ChannelBucketKey(channel_id), provider, agent_id).key
    raise InvalidInput(
        "nothing says which conversation this belongs to",
        hint="Send a session key, a conversation id or a channel id.",
    )


def _agent_in(session_key: str | None) -> str | None:
    """The agent that a session key names; one that cannot be read names none."""
    try:
        return parse_key(session_key).agent_id if session_key else None
    except InvalidInput:
        return None


def _of_agent(key: ParsedKey, provider: str | None, agent_id: str | None) -> ParsedKey:
    """The session of an agent in a provider's room or group."""
    channel = (provider or "").lower()
    if agent_id is None or not _PROVIDER.fullmatch(channel) or channel in NOT_CHANNELS | _HOSTS:
        return key
    agent = canonical_agent_id(agent_id)
    named = str(key) if isinstance(key, ChannelBucketKey | ConversationKey) else ""
    kind, _, room = named.removeprefix(f"{channel}:").partition(_CONVERSATION_THREAD)[0].partition(":")
    room = room.removeprefix(f"{channel}:")
    if not room or room == channel:
        return key
    if kind == "channel":
        return ChannelKey(agent, channel, room, key.thread)
    return GroupKey(agent, channel, room, key.thread) if kind == "group" else key


def _with_thread(conversation_id: str, thread_id: str | None) -> ParsedKey:
    """Add the thread in the form of the key, unless the conversation id already has one."""
    parsed = parse_key(conversation_id)
    if not thread_id or parsed.thread is not None:
        return parsed
    mark = _THREAD if isinstance(parsed, _AgentScoped) else _CONVERSATION_THREAD
    return parse_key(_threaded(str(parsed), thread_id, mark))


def _agent_text(agent_id: str, thread: str | None, *rest: str | None) -> str:
    head = ":".join(("agent", agent_id, *(part for part in rest if part is not None)))
    return _threaded(head, thread, _THREAD)


def _threaded(head: str, thread: str | None, mark: str) -> str:
    return head if thread is None else f"{head}{mark}{thread}"


def _split(text: str) -> _Parts:
    """The class of a key and its fields, in the order of the class."""
    _check_text(text)
    if not text.startswith(_RESERVED):
        return _split_conversation(text)
    parts = text.split(":")
    if not all(parts):
        raise _refused(text, "a part between two colons is empty", "Leave no '::' and no ':' at the end.")
    if parts[0] == "channel":
        return ChannelBucketKey, _split_conversation(text.removeprefix("channel:"))[1]
    return _split_board(text, parts) if parts[0] == "clawboard" else _split_agent(text)


def _check_text(text: str) -> None:
    if not text or text != text.strip():
        raise _refused(text, "it is empty or has blanks at its ends", "Strip the key before sending it.")
    if len(text) > MAX_KEY_LENGTH:
        raise _refused(text, f"it has {len(text)} characters", f"Use at most {MAX_KEY_LENGTH}.")
    if not text.isprintable():
        raise _refused(text, "it holds characters that cannot be printed", "Leave out control characters.")


def _split_conversation(text: str) -> _Parts:
    conversation, mark, thread = text.partition(_CONVERSATION_THREAD)
    if not conversation or (mark and not thread):
        raise _refused(text, "the conversation or its thread is empty", "Use <id> or <id>|thread:<id>.")
    return ConversationKey, (conversation, thread if mark else None)


def _split_board(text: str, parts: list[str]) -> _Parts:
    match parts[1:]:
        case ["topic", topic]:
            return BoardTopicKey, (topic,)
        case ["task", topic, task]:
            return BoardTaskKey, (topic, task)
        case _:
            raise _refused(text, "it names no board chat", _BOARD_FORMS)


def _split_agent(text: str) -> _Parts:
    head, mark, tail = text.partition(_THREAD)
    thread = tail if mark else None
    _, *named = head.split(":")
    if not named:
        raise _refused(text, "it names no agent", _FORMS)
    agent, *rest = named
    owner = canonical_agent_id(agent)
    match rest:
        case []:
            raise _refused(text, "it names no session of the agent", "Add ':main' for the main session.")
        case ["main"]:
            return MainKey, (owner, thread)
        case ["subagent", _, *_]:
            return SubagentKey, (owner, ":".join(rest[1:]), thread)
        case ["dm" | "direct" as word, _, *_]:
            return DirectKey, (owner, None, ":".join(rest[1:]), None, word, thread)
        case [channel, *_] if channel in NOT_CHANNELS:
            return AgentKey, (owner, ":".join(rest), thread)
        case [channel, "dm" | "direct" as word, _, *_]:
            return DirectKey, (owner, channel, ":".join(rest[2:]), None, word, thread)
        case [channel, "group", _, *_]:
            return GroupKey, (owner, channel, ":".join(rest[2:]), thread)
        case [channel, "channel", _, *_]:
            return ChannelKey, (owner, channel, ":".join(rest[2:]), thread)
        case [channel, account, "dm" | "direct" as word, _, *_]:
            return DirectKey, (owner, channel, ":".join(rest[3:]), account, word, thread)
    return AgentKey, (owner, ":".join(rest), thread)


def _refused(text: str, reason: str, hint: str) -> InvalidInput:
    return InvalidInput(f"not a session key: {text[:80]!r}: {reason}", hint=hint)
