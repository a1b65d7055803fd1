"""What someone asks of an agent, which agent and session it is for, and what they are told at once.

Pure: what the message says and the config decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NotRequired, get_args, get_origin, get_type_hints

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.agents import Origin, route
from holdfast.clock import Millis
from holdfast.config import Config
from holdfast.config.agents import Thinking
from holdfast.config.session import SessionConfig
from holdfast.context import Image, Occasion, ToolSpec, Trust
from holdfast.errors import InvalidInput, TooLarge
from holdfast.ids import AgentId
from holdfast.keys import (
    ChannelKey,
    DirectKey,
    GroupKey,
    MainKey,
    ParsedKey,
    canonical_agent_id,
    canonical_key,
    parse_key,
)
from holdfast.log import FOR_OWNER, Audience, Tx
from holdfast.records import Iso, record

MAX_TEXT: Final = 1_000_000
MAX_IMAGES: Final = 16
MAX_IMAGE_CHARS: Final = 16_000_000
Mode = Literal["queue", "collect", "steer", "interrupt"]
_MODES: dict[str, Mode] = {"steer": "steer", "collect": "collect", "interrupt": "interrupt"}
ASK: Final = "ask"
RUNTIME: Final = "holdfast"
"""Whose words an entry has that the runtime itself put in the place of a person's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Where the reply goes besides the log: a parcel for a surface, posted with the commit.

    `heard` is who hears it there, where that is known; if not, only what the owner sends goes there.
    """

    kind: str
    target: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    heard: Audience | None = None

    def json(self) -> dict[str, Any]:
        kept: dict[str, Any] = {"kind": self.kind, "target": self.target, "payload": dict(self.payload)}
        return kept if self.heard is None else kept | {"heard": self.heard}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What an answer must be: JSON that fits a schema; without one, any JSON object."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None

    def json(self) -> dict[str, Any]:
        kept = {"schema": self.schema, "name": self.name, "strict": self.strict}
        return {name: value for name, value in kept.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a message may ask of its turn: said with the ask, kept with the turn.

    A new option is a field here: it is stored, read back and handed on by its type alone.

    `tools` are run by whoever asks: a call of one ends the turn and is handed over. One of `must_call` has to
    be called; `form` is what the reply has to be. `owner_sent` says that the owner chose by hand where the
    reply goes; `limited_to` are the agents whose words the asker may read at most. `one_off` says that the
    session ends with the turn: nobody would see what went on there later, so nothing can be sent off.
    `instructions` hold for this turn alone, with the trust of whoever asks; `max_tokens` bounds each answer
    of the model. What is not `stored` is kept while the turn runs and no longer: it is sorted and recalled
    nowhere, and the agent has only tools that change nothing.
    """

    model: str | None = None
    thinking: Thinking | None = None
    sender: str | None = None
    owner: bool = True
    occasion: Occasion = Occasion.MESSAGE
    timeout_seconds: int | None = None
    deliver: Deliver | None = None
    tools: tuple[ToolSpec, ...] = ()
    must_call: tuple[str, ...] = ()
    form: Form | None = None
    owner_sent: bool = False
    limited_to: tuple[str, ...] | None = None
    one_off: bool = False
    instructions: str | None = None
    max_tokens: int | None = None
    stored: bool = True

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the tools that whoever asked runs himself."""
        return frozenset(tool.name for tool in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Options):
    """A message for an agent. Without a session key it goes where its origin leads, else to `main`.

    `mode` says what becomes of it while a turn runs; unset: as `messages.queue` has it. `source` is kept with
    the entry. Anything but `trigger="user"` comes from within: it keeps no session fresh and is no command.
    `heard` is who hears the surface that it comes from, where that is known better than from the session's
    key. `by_token` says that it was asked with a token of the home's: whoever holds that may speak in the
    owner's sessions. `chain_id` is the chain that it follows from; unset: it comes from outside, and begins
    one. One that is `wordless` was said by nobody, such as the results of calls coming in: `text` stands in
    for words, is shown to the model and not kept. One that `continues` goes on from a turn that its sender
    named, however long ago that was. `noted` is kept with the turn for whoever asked. One whose sender is not
    `proven` may be anybody's: it decides nothing in that name. `with_entry` is written in the transaction of
    its entry, whose id it is given; nothing where the message was there already.
    """

    text: str
    session_key: str | None = None
    agent_id: str | None = None
    origin: Origin | None = None
    thread_id: str | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    key: str | None = None
    sender_label: str | None = None
    mode: Mode | None = None
    trigger: str = "user"
    trust: Trust = Trust.USER
    commands: bool = True
    heard: Audience | None = None
    by_token: bool = False
    chain_id: str | None = None
    wordless: bool = False
    continues: bool = False
    noted: Mapping[str, Any] = field(default_factory=dict)
    proven: bool = True
    with_entry: Callable[[Tx, str], None] | None = None

    def __post_init__(self) -> None:
        if not self.text.strip() and not self.images:
            raise InvalidInput("there is nothing to say", hint="Send some text or a picture.")
        if len(self.text) > MAX_TEXT:
            raise TooLarge(f"the message has {len(self.text):,} characters; {MAX_TEXT:,} are the most")
        if len(self.images) > MAX_IMAGES or sum(len(i.data) for i in self.images) > MAX_IMAGE_CHARS:
            raise TooLarge("too many or too large pictures", hint=f"Send at most {MAX_IMAGES}, and smaller.")

    @property
    def external(self) -> bool:
        return self.trigger == "user"


@record
class AcceptedRunOut(TypedDict):
    runId: str
    acceptedAt: Iso
    sessionKey: str
    sessionId: str
    turn: int
    entryId: str | None
    joined: Annotated[bool, Field(description="It became part of a turn that was there already.")]
    reset: NotRequired[Annotated[str | None, Field(description="Why the session was begun anew for it.")]]
    reply: NotRequired[
        Annotated[str | None, Field(description="There if it was answered at once, as commands are.")]
    ]
    told: NotRequired[
        Annotated[str | None, Field(description="What ended with the session that it left, if anything did.")]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The word that a message is stored and will be answered; `reply` is there if it was answered at once.

    `joined` says that it became part of a turn that was there already; its run is that turn's. `told` is what
    ended with a session that it left. `stops` are the agenda items of turns that end because of it, and
    `made_room` says that older turns ended so that it could wait: for whoever accepts it, not for who asked.
    """

    run_id: str
    accepted_at: Millis
    session_key: str
    session_id: str
    turn: int
    entry_id: str | None = None
    created: bool = True
    joined: bool = False
    reset: str | None = None
    reply: str | None = None
    told: str | None = None
    stops: tuple[str, ...] = ()
    made_room: bool = False

    def json(self) -> AcceptedRunOut:
        from holdfast.clock import iso

        told: AcceptedRunOut = {
            "runId": self.run_id,
            "acceptedAt": iso(self.accepted_at),
            "sessionKey": self.session_key,
            "sessionId": self.session_id,
            "turn": self.turn,
            "entryId": self.entry_id,
            "joined": self.joined,
        }
        if self.reset is not None:
            told["reset"] = self.reset
        if self.reply is not None:
            told["reply"] = self.reply
        if self.told is not None:
            told["told"] = self.told
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(Options):
    """The options of an ask and where it was addressed; kept with the turn, so that it can be resumed.

    `prompt` stands in for the user's words in a turn that nobody asked for.
    """

    agent_id: str
    channel: str | None = None
    prompt: str | None = None
    system_prompt: str | None = None

    @classmethod
    def of(cls, ask: Options, to: Address) -> Terms:
        """The terms of a message: every option that it has."""
        options = {option.name: getattr(ask, option.name) for option in fields(Options)}
        return cls(agent_id=to.agent_id, channel=to.channel, **options)

    def json(self) -> dict[str, Any]:
        """What a turn's notes keep: only what is not as usual."""
        unusual = [one for one in fields(self) if getattr(self, one.name) != one.default]
        return {_camel(one.name): _plain(getattr(self, one.name)) for one in unusual}

    @classmethod
    def read(cls, kept: Mapping[str, Any], default_agent: str) -> Terms:
        """From a turn's notes; a turn that was accepted by another program has none of them."""
        known = {name: (_camel(name), hint) for name, hint in _hints().items()}
        said = {name: _typed(kept[key], hint) for name, (key, hint) in known.items() if key in kept}
        given = {name: value for name, value in said.items() if value is not None}
        return cls(**{**given, "agent_id": given.get("agent_id") or default_agent})


def _plain(value: Any) -> Any:
    """A value of the terms as JSON has it."""
    match value:
        case Deliver() | Form():
            return value.json()
        case ToolSpec():
            return {
                "name": value.name,
                "description": value.description,
                "parameters": dict(value.parameters),
            }
        case Occasion():
            return value.value
        case tuple():
            return [_plain(one) for one in value]
        case _:
            return value


def _typed(value: Any, hint: Any) -> Any:
    """A value read from JSON as its field has it; None stands for what is usual there."""
    if hint is bool:
        return value is True
    if value is None:
        return None
    if get_origin(hint) is tuple:
        return tuple(_typed(one, get_args(hint)[0]) for one in value)
    if hint in (Deliver, Form, ToolSpec):
        return hint(**value)
    return hint(value) if hint in (Occasion, str, int) else value


@cache
def _hints() -> dict[str, Any]:
    """The type of each of the terms, without the None that some may be."""
    return {name: _without_none(hint) for name, hint in get_type_hints(Terms).items()}


def _without_none(hint: Any) -> Any:
    some = [one for one in get_args(hint) if one is not NoneType]
    return some[0] if isinstance(hint, UnionType) and len(some) == 1 else hint


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


@dataclass(frozen=True, slots=True)
class Address:
    agent_id: str
    session_key: str
    channel: str | None = None


def address(ask: Ask, config: Config) -> Address:
    """The key as given, else the one that the origin makes, else the agent's main session."""
    origin = ask.origin
    named = None if ask.agent_id is None else str(canonical_agent_id(ask.agent_id))
    channel = None if origin is None else origin.channel
    if ask.session_key is not None:
        key = canonical_key(ask.session_key)
        agent = parse_key(key).agent_id or named or _routed(origin, config)
        config.agent(agent)
        return Address(agent, key, parse_key(key).channel or channel)
    agent = named or _routed(origin, config)
    config.agent(agent)
    if origin is None:
        return Address(agent, str(MainKey(AgentId(agent))), channel)
    made = _key(agent, origin, config.session, ask.thread_id, alone=_is_alone(ask, origin, config))
    return Address(agent, str(made), channel)


def _is_alone(ask: Ask, origin: Origin, config: Config) -> bool:
    """Whether nobody but the owner hears what is said there: only then may it share the main session."""
    if ask.heard is not None:
        return ask.heard == FOR_OWNER
    if origin.peer_kind == "dm" or origin.peer_id is None:
        return ask.owner
    return config.is_private(origin.channel, origin.peer_id)


def queue_mode(ask: Ask, config: Config, channel: str | None) -> Mode:
    """What becomes of a message while a turn runs."""
    if ask.mode is not None:
        return ask.mode
    queue = config.messages.queue
    return _MODES.get(queue.by_channel.get(channel or "", queue.mode), "queue")


def _routed(origin: Origin | None, config: Config) -> str:
    if origin is None:
        return config.default_agent_id
    return route(origin, config.bindings, config.agent_list).agent_id


def _key(agent: str, origin: Origin, config: SessionConfig, thread: str | None, *, alone: bool) -> ParsedKey:
    id_ = AgentId(agent)
    if origin.peer_id is None or origin.peer_kind is None:
        return MainKey(id_, thread)
    if origin.peer_kind == "dm":
        return _direct(id_, origin, config, thread, alone=alone)
    if origin.peer_kind == "group" and config.group_scope == "main" and alone:
        return MainKey(id_, thread)
    if origin.peer_kind == "group":
        return GroupKey(id_, origin.channel, origin.peer_id, thread)
    return ChannelKey(id_, origin.channel, origin.peer_id, thread)


def _direct(
    agent: AgentId, origin: Origin, config: SessionConfig, thread: str | None, *, alone: bool
) -> ParsedKey:
    """One person's chats share a session as widely as `dmScope` says; linked ids count as one person.

    The main session is the owner's: nobody else's chat is ever a part of it.
    """
    assert origin.peer_id is not None
    spoken = f"{origin.channel}:{origin.peer_id}"
    person = next((name for name, ids in config.identity_links.items() if spoken in ids), None)
    match config.dm_scope:
        case "main" if alone:
            return MainKey(agent, thread)
        case "per-peer":
            return DirectKey(agent, None, person or origin.peer_id, thread=thread)
        case "per-account-channel-peer" if origin.account_id is not None:
            return DirectKey(agent, origin.channel, origin.peer_id, origin.account_id, thread=thread)
        case _:
            if person is not None:
                return DirectKey(agent, None, person, thread=thread)
            return DirectKey(agent, origin.channel, origin.peer_id, thread=thread)
